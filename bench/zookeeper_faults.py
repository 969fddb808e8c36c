"""The same faults for three ZooKeeper clients: ours, kazoo and aiozk.

    python -m bench.zookeeper_faults [--repeats 3] [--timeout-ms 6000] [--clients kctl,kazoo,aiozk]

Each client runs in a process of its own, holds an ephemeral znode and reads ten times a second. A
proxy in front of a real server makes the fault. Printed is a Markdown table: in how many runs the
session was kept, and after how long the client was served again or said that the session was gone.
"""

import argparse
import asyncio
import contextlib
import logging
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from signal import SIGCONT, SIGSTOP

import aiozk
import attrs
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from kctl.zookeeper.embedded import EmbeddedZooKeeper
from kctl.zookeeper.errors import ConnectionLoss, SessionExpired
from kctl.zookeeper.session import Session, State
from kctl.zookeeper.wire import CreateMode
from tests.zookeeper.fault_proxy import FaultProxy

POLL_S = 0.1
GIVE_UP_TIMEOUTS = 5
"""A client that is not served after so many session timeouts is given up."""


# --- the clients, each in a child process --------------------------------------------------------


def say(*words: object) -> None:
    print(time.monotonic(), *words, flush=True)


async def run_kctl(address: str, timeout_ms: int, path: str) -> None:
    """Ours."""
    async with Session.open(address, timeout_ms=timeout_ms) as zk:
        gone = {State.FENCED, State.EXPIRED}
        zk.on_state(lambda state: say("gone") if state in gone else None)
        await zk.create(path, b"", CreateMode.EPHEMERAL)
        say("ready", zk.session_id, zk._password.hex())  # noqa: SLF001 - to end it from outside
        while True:
            try:
                await zk.exists(path)
            except SessionExpired:
                await asyncio.sleep(3600)
            except ConnectionLoss:
                pass
            else:
                say("served", zk.session_id)
            await asyncio.sleep(POLL_S)


def run_kazoo(address: str, timeout_ms: int, path: str) -> None:
    """kazoo, with its threads."""
    client = KazooClient(address, timeout=timeout_ms / 1000)
    client.add_listener(lambda state: say("gone") if state == "LOST" else None)
    client.start()
    client.create(path, ephemeral=True)
    session_id, password = client.client_id
    say("ready", session_id, password.hex())
    while True:
        try:
            client.exists(path)
            say("served", client.client_id[0])
        except KazooException:
            pass
        time.sleep(POLL_S)


async def run_aiozk(address: str, timeout_ms: int, path: str) -> None:
    """aiozk."""
    logging.disable()
    client = aiozk.ZKClient(address, session_timeout=timeout_ms / 1000)
    await client.start()
    await client.create(path, ephemeral=True)
    session = client.session
    say("ready", session.session_id, session.password.hex())

    async def watch() -> None:
        while True:
            await session.state.wait_for(aiozk.states.States.LOST)
            say("gone")
            await session.state.wait_for(aiozk.states.States.CONNECTED)

    async def read() -> None:
        while True:
            try:
                await client.exists(path)
                say("served", session.session_id)
            except Exception as error:  # noqa: BLE001 - whatever it raises, the next try counts
                say("failed", type(error).__name__)
            await asyncio.sleep(POLL_S)

    await asyncio.gather(watch(), read())


# --- the faults ----------------------------------------------------------------------------------


@attrs.define
class Child:
    """A client under test, and what it has said."""

    process: asyncio.subprocess.Process
    session_id: int
    password: bytes
    lines: list[tuple[float, list[str]]] = attrs.Factory(list)

    def after(self, moment: float, word: str) -> float | None:
        """How long after this moment it first said this."""
        return next(
            (at - moment for at, words in self.lines if at > moment and words[0] == word), None
        )

    def replaced(self) -> bool:
        """Whether it went on in another session without saying that the first was gone."""
        ids = [words[1] for _, words in self.lines if words[0] == "served"]
        said = any(words[0] == "gone" for _, words in self.lines)
        return not said and any(one != str(self.session_id) for one in ids)


@contextlib.asynccontextmanager
async def started(client: str, address: str, timeout_ms: int, path: str) -> AsyncIterator[Child]:
    """Run a client in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.zookeeper_faults", "--child", client, address),
        *(str(timeout_ms), path),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    output = process.stdout
    assert output is not None
    words = (await output.readline()).decode().split()
    child = Child(process, int(words[2]), bytes.fromhex(words[3]))

    async def read() -> None:
        while line := await output.readline():
            at, *said = line.decode().split()
            child.lines.append((float(at), said))

    reading = asyncio.ensure_future(read())
    try:
        yield child
    finally:
        if process.returncode is None:
            process.send_signal(SIGCONT)
            process.kill()
        await process.wait()
        await reading


@attrs.define
class Stage:
    """One run: two ways to one server, and the client."""

    server: EmbeddedZooKeeper
    first: FaultProxy
    second: FaultProxy
    child: Child
    timeout_s: float

    def connected_to(self) -> tuple[FaultProxy, FaultProxy]:
        """The proxy that the client uses, and the other."""
        used = self.first if self.first.open_connections else self.second
        return used, self.second if used is self.first else self.first


async def fin(stage: Stage) -> None:
    stage.connected_to()[0].cut_fin()


async def rst(stage: Stage) -> None:
    stage.connected_to()[0].cut_rst()


async def freeze(stage: Stage) -> None:
    stage.connected_to()[0].stall()


async def refuse(stage: Stage) -> None:
    stage.first.refuse_next = 1
    stage.first.cut_rst()


async def late(stage: Stage) -> None:
    stage.first.delay_next_s = stage.timeout_s + 1
    stage.first.cut_rst()


async def restart(stage: Stage) -> None:
    await asyncio.to_thread(stage.server.kill)
    stage.server.spawn()


async def expire(stage: Stage) -> None:
    """Another connection of the same session ends it."""
    twin = Session(stage.server.connect_string, timeout_ms=round(stage.timeout_s * 1000))
    twin._session_id, twin._password = stage.child.session_id, stage.child.password  # noqa: SLF001
    twin._start()  # noqa: SLF001
    await twin.wait_connected()
    await twin.close()


async def stop(stage: Stage) -> None:
    """The process sleeps for longer than the server waits."""
    stage.child.process.send_signal(SIGSTOP)
    await asyncio.sleep(1.5 * stage.timeout_s)
    stage.child.process.send_signal(SIGCONT)


@attrs.frozen
class Fault:
    """What is done, and what is asked."""

    name: str
    make: Callable[[Stage], Awaitable[None]]
    two_servers: bool = False
    ends_session: bool = False


FAULTS = [
    Fault("FIN", fin),
    Fault("RST", rst),
    Fault("one of two servers freezes", freeze, two_servers=True),
    Fault("the reconnect is refused once", refuse),
    Fault("connect reply late by T + 1 s", late),
    Fault("the server is killed and started again", restart),
    Fault("the session is ended by the ensemble", expire, ends_session=True),
    Fault("the client is stopped for 1.5 T", stop, ends_session=True),
]


@attrs.frozen
class Outcome:
    """One run's result."""

    good: bool
    seconds: float | None
    note: str = ""


async def run_once(
    client: str, fault: Fault, server: EmbeddedZooKeeper, timeout_ms: int
) -> Outcome:
    """One client, one fault."""
    timeout_s = timeout_ms / 1000
    path = f"/held-{time.monotonic_ns()}"
    async with FaultProxy(server.port) as first, FaultProxy(server.port) as second:
        address = f"{first.address},{second.address}" if fault.two_servers else first.address
        async with started(client, address, timeout_ms, path) as child:
            await asyncio.sleep(0.5)
            stage = Stage(server, first, second, child, timeout_s)
            before = time.monotonic()
            await fault.make(stage)
            moment = time.monotonic() if fault.ends_session else before
            word = "gone" if fault.ends_session else "served"
            # Answers from before the fault may still be on their way.
            moment += 0.0 if fault.ends_session else 0.02
            while time.monotonic() - moment < GIVE_UP_TIMEOUTS * timeout_s:
                if (seconds := child.after(moment, word)) is not None:
                    break
                await asyncio.sleep(0.01)
            if fault.ends_session:
                note = "never said so" if seconds is None else ""
                return Outcome(seconds is not None, seconds, note)
            await asyncio.sleep(0.3)
            async with Session.open(server.connect_string, timeout_ms=10_000) as observer:
                stat = await observer.exists(path)
            kept = stat is not None and stat.ephemeral_owner == child.session_id
            note = "" if kept else ("replaced silently" if child.replaced() else "lost")
            if seconds is None:
                note = "not served"
            return Outcome(kept and seconds is not None, seconds, note)


def cell(outcomes: list[Outcome], *, ends_session: bool) -> str:
    """One cell of the table."""
    seconds = [outcome.seconds for outcome in outcomes if outcome.seconds is not None]
    good = sum(outcome.good for outcome in outcomes)
    median = f"{statistics.median(seconds):.2f} s" if seconds else "never"
    notes = ", ".join(dict.fromkeys(outcome.note for outcome in outcomes if outcome.note))
    verdict = f"noticed {good}/{len(outcomes)}" if ends_session else f"kept {good}/{len(outcomes)}"
    return f"{verdict}, {median}" + (f" ({notes})" if notes else "")


async def run(clients: list[str], repeats: int, timeout_ms: int) -> None:
    """All faults, row by row."""
    print("| fault | " + " | ".join(clients) + " |")
    print("|---" * (len(clients) + 1) + "|", flush=True)
    async with EmbeddedZooKeeper(tick_time_ms=200) as server:
        for fault in FAULTS:
            cells = []
            for client in clients:
                outcomes = [
                    await run_once(client, fault, server, timeout_ms) for _ in range(repeats)
                ]
                cells.append(cell(outcomes, ends_session=fault.ends_session))
            print(f"| {fault.name} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--timeout-ms", type=int, default=6000)
    parser.add_argument("--clients", default="kctl,kazoo,aiozk")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        client, address, timeout_ms, path = arguments.child
        if client == "kazoo":
            run_kazoo(address, int(timeout_ms), path)
        else:
            clients = {"kctl": run_kctl, "aiozk": run_aiozk}
            asyncio.run(clients[client](address, int(timeout_ms), path))
    else:
        asyncio.run(run(arguments.clients.split(","), arguments.repeats, arguments.timeout_ms))


if __name__ == "__main__":
    main()
