"""`kctl up`: a whole cluster on this machine, to try things on."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Annotated

import attrs
import structlog
import typer

from kctl.cli.exits import Exit, clear_errors, fail
from kctl.cli.logs import set_up_logging
from kctl.cli.run import run_loop
from kctl.model.brokers import Endpoint
from kctl.runtime.config import Config
from kctl.runtime.controller import Controller
from kctl.testing.kafka import KafkaBrokers
from kctl.testing.simulated import registered_brokers
from kctl.zookeeper.embedded import HOST, EmbeddedZooKeeper, free_ports
from kctl.zookeeper.jars import ServerUnavailable

log = structlog.get_logger("kctl")

CONTROLLER_ID = 1000
SESSION_TIMEOUT_MS = 6_000
READY_BOUND_S = 60.0
RELEASES = ((2, 4), (3, 9))

EPILOG = """\b
Exit codes
  0  ended by Ctrl-C or SIGTERM
  1  a server cannot be started here; the message says why
  2  a wrong argument

\b
Examples
  kctl up                            three simulated brokers
  kctl up --brokers 5 --kafka 3.9.1  five real ones of that release, fetched once
"""


def register(app: typer.Typer) -> None:
    app.command(name="up", epilog=EPILOG)(up_command)


def up_command(
    *,
    brokers: Annotated[int, typer.Option(min=1, max=100, help="How many brokers.")] = 3,
    kafka: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="Real brokers of this release, such as 3.9.1."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print and log JSON.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Log more, and show where an error came from.")
    ] = False,
) -> None:
    """Start ZooKeeper, brokers and a controller; everything ends and is removed on Ctrl-C.

    Simulated brokers obey the controller and answer clients' Metadata, but store no records.
    """
    if kafka is not None and not _has_zookeeper_mode(kafka):
        raise fail(Exit.USAGE, f"--kafka {kafka}: write a release from 2.4.0 to 3.9.x, as 3.9.1")
    set_up_logging(as_json=as_json or not sys.stderr.isatty(), debug=debug)
    with clear_errors({ServerUnavailable: Exit.FAILED}, debug=debug):
        run_loop(lambda: until_stopped(brokers, kafka, as_json=as_json))


def _has_zookeeper_mode(version: str) -> bool:
    parts = version.split(".")
    if len(parts) < 3 or not all(part.isdecimal() for part in parts):
        return False
    return RELEASES[0] <= (int(parts[0]), int(parts[1])) <= RELEASES[1]


async def until_stopped(count: int, kafka: str | None, *, as_json: bool) -> None:
    """Until the first signal, which may come while things are being started."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    stopping = False

    def stop() -> None:
        nonlocal stopping
        # Only once: what is being cleaned up must not be interrupted by an impatient second one.
        if not stopping:
            stopping = True
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        async with cluster(count, kafka) as addresses:
            typer.echo(json.dumps(attrs.asdict(addresses)) if as_json else addresses.text())
            await asyncio.Event().wait()
    except asyncio.CancelledError:
        if not stopping:
            raise
        task.uncancel()
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    log.info("ended")


@attrs.frozen
class Addresses:
    zookeeper: str
    controller: str
    controller_id: int
    brokers: Mapping[int, str]
    kafka: str | None
    """The brokers' release; None if they are simulated."""

    def text(self) -> str:
        kind = "simulated" if self.kafka is None else f"Kafka {self.kafka}"
        lines = [
            f"ZooKeeper   {self.zookeeper}",
            f"controller  {self.controller}  id {self.controller_id}",
            *(f"broker {b:<4} {address}  {kind}" for b, address in self.brokers.items()),
            "Ctrl-C ends it.",
        ]
        return "\n".join(lines)


@asynccontextmanager
async def cluster(count: int, kafka: str | None) -> AsyncIterator[Addresses]:
    (port,) = free_ports(1)
    factor = min(3, count)
    async with EmbeddedZooKeeper() as server:
        config = Config(
            zookeeper_connect=server.connect_string,
            zookeeper_session_timeout_ms=SESSION_TIMEOUT_MS,
            broker_id=CONTROLLER_ID,
            listeners=(Endpoint("PLAINTEXT", HOST, port),),
            default_replication_factor=factor,
        )
        async with Controller(config) as controller:
            await _until(controller, lambda c: c.is_active, "controller elected")
            async with _brokers(server.connect_string, count, kafka, factor) as brokers:
                await _until(
                    controller,
                    lambda c: c.state is not None and set(c.state.brokers) == set(brokers),
                    "brokers registered",
                )
                yield Addresses(
                    server.connect_string, f"{HOST}:{port}", CONTROLLER_ID, brokers, kafka
                )


@asynccontextmanager
async def _brokers(
    zookeeper: str, count: int, kafka: str | None, factor: int
) -> AsyncIterator[dict[int, str]]:
    ids = range(1, count + 1)
    if kafka is None:
        async with registered_brokers(zookeeper, ids) as simulated:
            yield {b: f"{HOST}:{simulated[b].port}" for b in ids}
        return
    settings = {
        "default.replication.factor": str(factor),
        "offsets.topic.replication.factor": str(factor),
        "transaction.state.log.replication.factor": str(factor),
        "transaction.state.log.min.isr": str(max(1, factor - 1)),
        "min.insync.replicas": str(max(1, factor - 1)),
    }
    async with KafkaBrokers(count, zookeeper, version=kafka, settings=settings) as real:
        yield {b: real[b].address for b in ids}


async def _until(
    controller: Controller, condition: Callable[[Controller], bool], what: str
) -> None:
    try:
        async with asyncio.timeout(READY_BOUND_S):
            await controller.until(condition)
    except TimeoutError:
        raise ServerUnavailable(f"no {what} within {READY_BOUND_S:.0f} s") from None
