"""`kctl up` at a terminal: what is typed there makes simulated brokers come and go."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import structlog

from kctl.testing import Cluster

log = structlog.get_logger("kctl")

HELP = "Type `kill 2` or `start 2` to see a broker go and come back."
LINE_MAX = 4_096


@asynccontextmanager
async def commands(cluster: Cluster) -> AsyncIterator[str | None]:
    """Obeys what is typed, as long as this lasts; gives a line of help if there is a terminal."""
    if not sys.stdin.isatty():
        yield None
        return
    loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()
    typed: asyncio.Queue[str] = asyncio.Queue()

    def read() -> None:
        # A job in the background would be stopped for reading.
        line = os.read(terminal, LINE_MAX).decode(errors="replace") if _in_front(terminal) else ""
        if line:
            typed.put_nowait(line)
        else:
            loop.remove_reader(terminal)

    loop.add_reader(terminal, read)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_obey, cluster, typed)
            yield HELP
            tasks.cancel_scope.cancel()
    finally:
        loop.remove_reader(terminal)


def _in_front(terminal: int) -> bool:
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return True  # not the terminal that this process belongs to


async def _obey(cluster: Cluster, typed: "asyncio.Queue[str]") -> None:
    while True:
        words = (await typed.get()).split()
        known: dict[str, Callable[[int], Awaitable[None]]] = {
            "kill": cluster.kill,
            "start": cluster.restart,
        }
        match words:
            case [verb, number] if verb in known and number.isdecimal():
                if int(number) in cluster.brokers:
                    await known[verb](int(number))
                    log.info("done", command=verb, broker=int(number))
                else:
                    log.warning("there is no such broker", broker=int(number))
            case []:
                pass
            case _:
                log.warning(HELP)
