"""The controller that is measured, as a process of its own.

    python -m kctl.bench.subject --zookeeper 127.0.0.1:2181 --listen PLAINTEXT://127.0.0.1:9999 \
        --records handled.jsonl

It runs as `kctl run` does, logs to standard error, and writes a line for each event that it has
handled. SIGTERM ends it; SIGUSR1 starts a profile, SIGUSR2 ends and writes it (`--profile`).
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import IO

import msgspec
import structlog

from kctl.runtime.config import Config
from kctl.runtime.controller import Controller
from kctl.runtime.meters import Handled, Meters

LAG_NOTED_S = 0.002
PHASE_MIN_S = 0.005
SAMPLE_S = 0.001
SWITCH_S = sys.getswitchinterval()


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
    phases: dict[str, tuple[float, float]] = {}
    """By type of effect, where it took its time: from when to when, since the event was taken."""


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
        {name: span for name, span in done.phases.items() if span[1] - span[0] >= PHASE_MIN_S},
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
    """Profiles of stretches of the run, one file each, as text: where the loop was, time and again.

    Samples, because counting every call makes small functions look several times as dear as they
    are. Of another thread, because handlers of signals do not run under uvloop.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._watched = threading.get_ident()
        self._count = 0
        self._sampling: threading.Thread | None = None
        self._enough = threading.Event()
        self._samples = 0
        self._own: Counter[str] = Counter()
        self._within: Counter[str] = Counter()

    def begin(self) -> None:
        self._samples = 0
        self._own.clear()
        self._within.clear()
        self._enough.clear()
        sys.setswitchinterval(SAMPLE_S / 2)
        self._sampling = threading.Thread(target=self._sample, daemon=True)
        self._sampling.start()

    def _sample(self) -> None:
        while not self._enough.wait(SAMPLE_S):
            # The only way to see where another thread is.
            frame: FrameType | None = sys._current_frames()[self._watched]  # noqa: SLF001
            self._samples += 1
            if frame is not None:
                self._own[f"{_name(frame)} line {frame.f_lineno}"] += 1
            seen: dict[str, None] = {}
            while frame is not None:
                seen[_name(frame)] = None
                frame = frame.f_back
            self._within.update(list(seen))

    def end(self) -> None:
        if self._sampling is None:
            return
        self._enough.set()
        self._sampling.join()
        self._sampling = None
        sys.setswitchinterval(SWITCH_S)
        self._count += 1
        with (self._folder / f"profile-{self._count:03}.txt").open("w") as out:
            out.write(f"{self._samples} samples, about one each {SAMPLE_S * 1000:g} ms\n")
            for title, counts in (("in this line", self._own), ("in or below", self._within)):
                out.write(f"\n{title}\n")
                for name, count in counts.most_common(60):
                    out.write(f"{count:7} {count / self._samples:6.1%}  {name}\n")


def _name(frame: FrameType) -> str:
    code = frame.f_code
    file = code.co_filename
    return f"{file[file.rfind('/kctl/') + 1 :]} {code.co_qualname}"


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
