"""The controller that is measured, as a process of its own.

    python -m kctl.bench.subject --zookeeper 127.0.0.1:2181 --listen PLAINTEXT://127.0.0.1:9999 \
        --records handled.jsonl

It runs as `kctl run` does, logs to standard error, and writes a line for each event that it has
handled. SIGTERM ends it; SIGUSR1 starts a profile, SIGUSR2 ends and writes it (`--profile`).
"""

import argparse
import asyncio
import cProfile
import logging
import os
import pstats
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import msgspec
import structlog

from kctl.runtime.config import Config
from kctl.runtime.controller import Controller
from kctl.runtime.meters import Handled, Meters

LAG_NOTED_S = 0.002


class Record(msgspec.Struct, omit_defaults=True):
    """One event that was handled, or (without a name) how late the loop came round."""

    at_s: float
    """Wall clock, when it was done."""
    event: str = ""
    queued_s: float = 0.0
    took_s: float = 0.0
    events: int = 1
    queue_depth: int = 0
    effects: int = 0
    rows: int = 0
    zookeeper_requests: int = 0
    zookeeper_bytes: int = 0
    longest_step_s: float = 0.0
    loop_lag_s: float = 0.0


def record_of(done: Handled) -> Record:
    return Record(
        done.at_ms / 1000,
        type(done.event).__name__,
        done.queued_s,
        done.took_s,
        done.events,
        done.queue_depth,
        done.effects,
        done.rows,
        done.zookeeper_requests,
        done.zookeeper_bytes,
        done.longest_step_s,
        done.loop_lag_s,
    )


class Recorder:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._encode = msgspec.json.Encoder().encode

    def write(self, record: Record) -> None:
        self._file.write(self._encode(record) + b"\n")

    async def events(self, controller: Controller) -> None:
        async for done in controller.events():
            self.write(record_of(done))
            self._file.flush()


class NotingMeters(Meters):
    """Meters that also write down each lag of the loop that is worth it."""

    note: Callable[[float], None] = staticmethod(lambda _: None)

    def lag(self, seconds: float) -> None:
        super().lag(seconds)
        if seconds >= LAG_NOTED_S:
            self.note(seconds)


class Profiles:
    """Profiles of stretches of the run, one file each, as text."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._profile: cProfile.Profile | None = None
        self._count = 0

    def begin(self) -> None:
        # Of CPU time: what others take of the machine is not our functions' doing.
        self._profile = cProfile.Profile(time.thread_time)
        self._profile.enable()

    def end(self) -> None:
        if self._profile is None:
            return
        self._profile.disable()
        self._count += 1
        with (self._folder / f"profile-{self._count:03}.txt").open("w") as out:
            stats = pstats.Stats(self._profile, stream=out)
            stats.sort_stats("tottime").print_stats(25)
            stats.sort_stats("cumulative").print_stats(40)
        self._profile = None


async def control(config: Config, records: IO[bytes], profiles: Profiles | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if profiles is not None:
        loop.add_signal_handler(signal.SIGUSR1, profiles.begin)
        loop.add_signal_handler(signal.SIGUSR2, profiles.end)
    recorder = Recorder(records)
    controller = Controller(config, tune_gc=True)
    controller.meters = meters = NotingMeters()

    def note(seconds: float) -> None:
        recorder.write(Record(time.time(), loop_lag_s=seconds))

    meters.note = note
    async with controller, asyncio.TaskGroup() as group:
        recording = group.create_task(recorder.events(controller))
        await stop.wait()
        recording.cancel()


def set_up_logging() -> None:
    """As `kctl run` does without a terminal."""
    logging.basicConfig(format="%(message)s", stream=sys.stderr, level=logging.INFO, force=True)
    for chatty in ("asyncio", "aiozk", "aiokafka"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--zookeeper", required=True)
    parser.add_argument("--listen", required=True)
    parser.add_argument("--id", default="1000")
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--profile", type=Path)
    arguments = parser.parse_args()
    config = Config.load(
        overrides={
            "zookeeper.connect": arguments.zookeeper,
            "zookeeper.session.timeout.ms": "60000",
            "listeners": arguments.listen,
            "broker.id": arguments.id,
            "auto.leader.rebalance.enable": "false",
        }
    )
    set_up_logging()
    make: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    try:
        import uvloop  # noqa: PLC0415 it is not there on every platform

        make = uvloop.new_event_loop
    except ImportError:
        pass
    profiles = Profiles(arguments.profile) if arguments.profile is not None else None
    with arguments.records.open("ab") as records, asyncio.Runner(loop_factory=make) as runner:
        runner.run(control(config, records, profiles))
    # The whole cluster need not be taken apart object by object.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
