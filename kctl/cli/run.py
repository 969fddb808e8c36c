"""`kctl run`: a controller until it is told to stop."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, TypeVar

import anyio
import structlog
import typer

import kctl
from kctl.cli.exits import Exit, fail
from kctl.cli.logs import set_up_logging
from kctl.http import Dialect, Http, HttpUnavailable, listen
from kctl.messages.outbox import Story
from kctl.runtime.config import Config, ConfigError
from kctl.runtime.controller import Controller

T = TypeVar("T")

EPILOG = """\b
Exit codes
  0  stopped by SIGTERM or SIGINT, the controllership was handed over
  1  a defect of kctl; --debug shows where
  2  a wrong argument or setting
  3  stood down: what is wrong must be looked at before this controller is started again
  4  no ZooKeeper session within zookeeper.connection.timeout.ms

\b
Settings come from --config, KCTL_* variables (KCTL_BROKER_ID is broker.id) and -o, the last wins.

\b
Example
  kctl run --zookeeper 127.0.0.1:2181/kafka --id 1000 --listen PLAINTEXT://127.0.0.1:9999 --takeover
"""

log = structlog.get_logger("kctl")


def register(app: typer.Typer) -> None:
    app.command(name="run", epilog=EPILOG)(run)


def run(
    *,
    zookeeper: Annotated[
        str | None, typer.Option(metavar="HOST:PORT,...[/CHROOT]", help="zookeeper.connect")
    ] = None,
    controller_id: Annotated[
        int | None, typer.Option("--id", help="broker.id: an id that no broker has.")
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(metavar="NAME://HOST:PORT,...", help="listeners: where brokers reach it."),
    ] = None,
    takeover: Annotated[
        bool,
        typer.Option("--takeover", help="Take the controllership from a broker that has it."),
    ] = False,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A server.properties, as brokers have it.")
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="kctl.http: serve the page, metrics and health."),
    ] = None,
    metrics_dialect: Annotated[
        Dialect | None,
        typer.Option(help="kctl.metrics.dialect: how Kafka's meters are named in /metrics."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("-o", metavar="NAME=VALUE", help="Any setting by its name; repeatable."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Log JSON lines on a terminal too.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Log more, and show where an error came from.")
    ] = False,
) -> None:
    """Run a controller: stand for election, control the cluster, hand over when told to stop."""
    given: dict[str, str] = {}
    if zookeeper is not None:
        given["zookeeper.connect"] = zookeeper
    if controller_id is not None:
        given["broker.id"] = str(controller_id)
    if listen is not None:
        # What a broker's file advertises is that broker's address.
        given |= {"listeners": listen, "advertised.listeners": ""}
    if takeover:
        given["kctl.takeover"] = "true"
    if http is not None:
        given["kctl.http"] = http
    if metrics_dialect is not None:
        given["kctl.metrics.dialect"] = metrics_dialect.value
    try:
        settings = Config.load(config, os.environ, given | named_options(option or []))
        if not settings.listeners:
            raise ConfigError("listeners: brokers must reach the controller; give --listen")  # noqa: TRY301
    except ConfigError as error:
        raise fail(Exit.USAGE, str(error)) from None
    set_up_logging(as_json=as_json or not sys.stderr.isatty(), debug=debug)
    try:
        code = run_loop(lambda: control(settings))
    except ConfigError as error:
        # Of files that are read at the start: keys and certificates.
        raise fail(Exit.USAGE, str(error)) from None
    except HttpUnavailable as error:
        raise fail(Exit.USAGE, str(error)) from None
    except OSError as error:
        if debug:
            raise
        line = f"cannot start: {error}; check --listen, and where kctl.journal is written"
        raise fail(Exit.USAGE, line) from None
    except Exception as error:
        if debug:
            raise
        line = f"{_innermost(error)!r}: this is a defect of kctl, --debug shows where"
        raise fail(Exit.FAILED, line) from None
    raise typer.Exit(code)


def named_options(texts: list[str]) -> dict[str, str]:
    named = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"-o {text}: write NAME=VALUE")
        named[name.strip()] = value
    return named


async def control(config: Config) -> Exit:
    """Until a signal or the end of this candidacy; the exit code."""
    # Before the controller stands for election: an address in use must not cost anybody the office.
    listening = None if config.http is None else listen(*config.http)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        async with (
            Controller(config, tune_gc=True) as controller,
            serve(controller, listening) as url,
        ):
            log.info(
                "started",
                version=kctl.__version__,
                id=config.broker_id,
                zookeeper=config.zookeeper_connect,
                takeover=config.takeover,
                http=url,
            )
            await _first(stop.wait, controller.first_attempt)
            if not stop.is_set() and not await controller.first_attempt():
                fail(
                    Exit.NO_ZOOKEEPER,
                    f"{controller.last_error}; is it running, is it the right"
                    " address? See --zookeeper and zookeeper.connection.timeout.ms",
                )
                return Exit.NO_ZOOKEEPER
            await _first(stop.wait, lambda: _stood_down(controller))
            if not stop.is_set():
                fail(
                    Exit.STOOD_DOWN,
                    f"stood down: {controller.stood_down}; the log above has the"
                    " details, start kctl again when that is settled",
                )
                return Exit.STOOD_DOWN
            log.info("stopping", active=controller.is_active)
    finally:
        if listening is not None:
            listening.close()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
    log.info("stopped")
    return Exit.OK


@asynccontextmanager
async def serve(
    controller: Controller, listening: socket.socket | None
) -> AsyncIterator[str | None]:
    """The page and its neighbours; gives their address."""
    if listening is None:
        yield None
        return
    dialect = Dialect(controller.config.metrics_dialect)
    async with Http(controller, listening=listening, dialect=dialect) as http:
        yield http.url


async def _stood_down(controller: Controller) -> None:
    down = asyncio.Event()

    def look(_: Story) -> None:
        if controller.stood_down:
            down.set()

    ended = controller.on_story(look)
    try:
        if not controller.stood_down:
            await down.wait()
    finally:
        ended()


async def _first(*waits: Callable[[], Coroutine[object, object, object]]) -> None:
    """Return when the first of them does; the others are cancelled."""
    async with anyio.create_task_group() as group:

        async def wait(on: Callable[[], Coroutine[object, object, object]]) -> None:
            await on()
            group.cancel_scope.cancel()

        for each in waits:
            group.start_soon(wait, each)


def run_loop(main: Callable[[], Coroutine[object, object, T]]) -> T:
    """On uvloop where there is one."""
    make: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    try:
        import uvloop  # noqa: PLC0415 it is not there on every platform

        make = uvloop.new_event_loop
    except ImportError:
        pass
    with asyncio.Runner(loop_factory=make) as runner:
        return runner.run(main())


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
