"""`kctl up`: a whole cluster on this machine, to try things on."""

import asyncio
import json
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Annotated

import attrs
import structlog
import typer

from kctl.cli.console import commands
from kctl.cli.exits import Exit, clear_errors, fail
from kctl.cli.logs import set_up_logging
from kctl.cli.run import run_loop, serve
from kctl.http import Dialect, HttpUnavailable, listen
from kctl.messages import events as ev
from kctl.model.brokers import Endpoint
from kctl.runtime.config import Config, ConfigError
from kctl.runtime.controller import Controller
from kctl.testing import Cluster, NotReached
from kctl.testing.cluster_answers import RequestRefused, expect_done
from kctl.testing.kafka import KafkaBrokers
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
  kctl up --topic orders:12          three simulated brokers, and a topic
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
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:PARTITIONS", help="Create this topic; repeatable."),
    ] = None,
    http: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help="Where to serve the page, metrics and health; 0: a free port."
        ),
    ] = f"{HOST}:0",
    metrics_dialect: Annotated[
        Dialect, typer.Option(help="How Kafka's meters are named in /metrics.")
    ] = Dialect.CONFLUENT,
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
    given = {"kctl.http": http, "kctl.metrics.dialect": metrics_dialect.value}
    try:
        topics = named_topics(topic or [])
        config = Config.load(overrides=given)
    except ConfigError as error:
        raise fail(Exit.USAGE, str(error)) from None
    set_up_logging(as_json=as_json or not sys.stderr.isatty(), debug=debug)
    errors = {
        ServerUnavailable: Exit.FAILED,
        HttpUnavailable: Exit.USAGE,
        RequestRefused: Exit.USAGE,
        NotReached: Exit.FAILED,
    }
    with clear_errors(errors, debug=debug):
        run_loop(lambda: until_stopped(config, brokers, kafka, topics, as_json=as_json))


def named_topics(texts: list[str]) -> dict[str, int]:
    named = {}
    for text in texts:
        name, colon, partitions = text.rpartition(":")
        if not colon or not name or not partitions.isdecimal() or int(partitions) < 1:
            raise ConfigError(f"--topic {text}: write NAME:PARTITIONS, as orders:12")
        named[name] = int(partitions)
    return named


def _has_zookeeper_mode(version: str) -> bool:
    parts = version.split(".")
    if len(parts) < 3 or not all(part.isdecimal() for part in parts):
        return False
    return RELEASES[0] <= (int(parts[0]), int(parts[1])) <= RELEASES[1]


async def until_stopped(
    config: Config, count: int, kafka: str | None, topics: Mapping[str, int], *, as_json: bool
) -> None:
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
        async with cluster(config, count, kafka, topics) as addresses:
            typer.echo(addresses.json() if as_json else addresses.text())
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
    http: str | None
    """The page; `metrics`, `healthz` and the others are beside it."""
    hint: str | None = None

    def json(self) -> str:
        return json.dumps(attrs.asdict(self, filter=attrs.filters.exclude("hint")))

    def text(self) -> str:
        kind = "simulated" if self.kafka is None else f"Kafka {self.kafka}"
        lines = [
            f"ZooKeeper   {self.zookeeper}",
            f"controller  {self.controller}  id {self.controller_id}",
            *(f"broker {b:<4} {address}  {kind}" for b, address in self.brokers.items()),
            *([f"page        {self.http}"] if self.http else []),
            *([self.hint] if self.hint else []),
            "Ctrl-C ends it.",
        ]
        return "\n".join(lines)


@asynccontextmanager
async def cluster(
    config: Config, count: int, kafka: str | None, topics: Mapping[str, int]
) -> AsyncIterator[Addresses]:
    # Before anything is started: an address in use is said at once.
    listening = None if config.http is None else listen(*config.http)
    opened = (
        simulated(config, count, topics) if kafka is None else real(config, count, kafka, topics)
    )
    try:
        async with opened as (controller, brokers, hint), serve(controller, listening) as url:
            (own,) = controller.config.listeners
            yield Addresses(
                controller.config.zookeeper_connect,
                f"{own.host}:{own.port}",
                CONTROLLER_ID,
                brokers,
                kafka,
                url,
                hint,
            )
    finally:
        if listening is not None:
            listening.close()


Opened = tuple[Controller, Mapping[int, str], str | None]
"""The controller, the brokers' addresses, and a line for people."""


@asynccontextmanager
async def simulated(config: Config, count: int, topics: Mapping[str, int]) -> AsyncIterator[Opened]:
    settings = {"kctl.metrics.dialect": config.metrics_dialect}
    seed = secrets.randbits(32)  # topics of two clusters do not share their ids
    async with (
        Cluster(count, topics, zookeeper="embedded", settings=settings, seed=seed) as made,
        commands(made) as hint,
    ):
        yield made.controller, {b: broker.address for b, broker in made.brokers.items()}, hint


@asynccontextmanager
async def real(
    config: Config, count: int, kafka: str, topics: Mapping[str, int]
) -> AsyncIterator[Opened]:
    (port,) = free_ports(1)
    factor, ids = min(3, count), range(1, count + 1)
    settings = {
        "default.replication.factor": str(factor),
        "offsets.topic.replication.factor": str(factor),
        "transaction.state.log.replication.factor": str(factor),
        "transaction.state.log.min.isr": str(max(1, factor - 1)),
        "min.insync.replicas": str(max(1, factor - 1)),
    }
    async with EmbeddedZooKeeper() as server:
        config = attrs.evolve(
            config,
            zookeeper_connect=server.connect_string,
            zookeeper_session_timeout_ms=SESSION_TIMEOUT_MS,
            broker_id=CONTROLLER_ID,
            listeners=(Endpoint("PLAINTEXT", HOST, port),),
            default_replication_factor=factor,
        )
        async with Controller(config) as controller:
            # Before there are brokers, which would stand for election, too.
            await _until(controller, lambda c: c.is_active, "controller elected")
            made = KafkaBrokers(count, server.connect_string, version=kafka, settings=settings)
            async with made as brokers:
                await _until(
                    controller,
                    lambda c: c.state is not None and set(c.state.brokers) == set(ids),
                    "brokers registered",
                )
                if topics:
                    wanted = tuple(ev.NewTopic(name, number) for name, number in topics.items())
                    answer = await controller.ask(lambda caller: ev.CreateTopics(caller, wanted))
                    expect_done(answer, "create topics")
                yield controller, {b: brokers[b].address for b in ids}, None


async def _until(
    controller: Controller, condition: Callable[[Controller], bool], what: str
) -> None:
    try:
        async with asyncio.timeout(READY_BOUND_S):
            await controller.until(condition)
    except TimeoutError:
        raise ServerUnavailable(f"no {what} within {READY_BOUND_S:.0f} s") from None
