"""Samples of processes and of ZooKeeper while something is measured, and when it is over.

CPU time, memory and the share of the machine that others took come from `/proc`; requests and
transactions from ZooKeeper's own counters.
"""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from kctl.zookeeper.embedded import four_letter_word

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
SAMPLE_S: Final = 0.05
SAMPLE_MAX_S: Final = 0.25
QUIET_S: Final = 1.0
"""Nothing is received and nothing is written for so long: it is over, or it hangs."""
IDLE_SHARE: Final = 0.25
"""Of one core, what a controller that has nothing to do may use at most: a JVM never rests."""
BUSY_SHARE: Final = 0.3
"""Of the samples, in how many it may be found at work nevertheless."""


def cpu_s(pid: int) -> float:
    """User and system time of a process so far, with all its threads."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("ascii")
    except OSError:
        return 0.0
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def is_runnable(pid: int) -> bool:
    """Whether a thread of the process works, or would if others left it a core."""
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            if (task / "stat").read_text("ascii").rpartition(")")[2].split(None, 1)[0] == "R":
                return True
    except OSError:
        pass  # a thread, or the process, has just ended
    return False


def machine_s() -> tuple[float, float]:
    """Busy and total time of all cores so far."""
    fields = [int(f) for f in Path("/proc/stat").read_text("ascii").split("\n", 1)[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / TICKS_PER_S, sum(fields) / TICKS_PER_S


def forget_peak(pid: int) -> None:
    """`peak_bytes` counts from here."""
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5", "ascii")
    except OSError:
        pass  # another user's process: then the peak is that of its life


def peak_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii")
    except OSError:
        return 0
    lines = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(lines[0].split()[1]) * 1024 if lines else 0


@attrs.frozen
class Counters:
    """What ZooKeeper has counted."""

    received: int
    zxid: int


def counters(port: int) -> Counters:
    words = dict(
        line.split(": ", 1) for line in four_letter_word(port, "srvr").splitlines() if ": " in line
    )
    return Counters(int(words.get("Received", "0")), int(words.get("Zxid", "0x0"), 16))


@attrs.frozen
class Sample:
    at: float
    controller_s: float
    zookeeper_s: float
    own_s: float
    received: int
    zxid: int
    frames: int
    machine: tuple[float, float]
    """Busy and total time of all cores, but for reading results."""
    busy: bool = False
    """The controller or ZooKeeper works, or waits for a core to do so."""


@attrs.define
class Watcher:
    """Samples in the background; `quiet` says when nothing moves any more."""

    controller: int
    """Process ids."""
    zookeeper: int
    port: int
    frames: Callable[[], int]
    """How many requests the simulated brokers have received."""
    samples: list[Sample] = attrs.field(factory=list)
    reading_s: float = 0.0
    """CPU time of this process that went into reading results, in the middle of a trial."""

    def _take(self) -> Sample:
        now = counters(self.port)
        busy, total = machine_s()
        return Sample(
            time.monotonic(),
            cpu_s(self.controller),
            cpu_s(self.zookeeper),
            cpu_s(os.getpid()) - self.reading_s,
            now.received,
            now.zxid,
            self.frames(),
            (busy - self.reading_s, total),
            is_runnable(self.controller) or is_runnable(self.zookeeper),
        )

    async def sample(self) -> Sample:
        taken = await asyncio.to_thread(self._take)
        self.samples.append(taken)
        return taken

    async def quiet(self, quiet_s: float) -> None:
        """Return when there was no request, no transaction and no work for so long."""
        since = await self.sample()
        while True:
            # Looking costs some CPU time, so the longer it takes, the more seldom.
            elapsed = time.monotonic() - self.samples[0].at
            await asyncio.sleep(max(SAMPLE_S, min(elapsed / 20, SAMPLE_MAX_S)))
            now = await self.sample()
            if now.zxid != since.zxid or now.frames != since.frames:
                since = now
            elif now.at - since.at >= quiet_s:
                window = [s for s in self.samples if s.at >= now.at - quiet_s]
                worked = window[-1].controller_s - window[0].controller_s
                busy = sum(s.busy for s in window) > BUSY_SHARE * len(window)
                if worked < IDLE_SHARE * quiet_s and not busy:
                    return

    def at(self, when: float) -> Sample:
        """The first sample that was taken then or later."""
        return next((s for s in self.samples if s.at >= when), self.samples[-1])

    def own_requests(self, until: Sample) -> int:
        """How many of the packets were questions of this watcher."""
        return sum(1 for s in self.samples if s.at <= until.at) - 1

    def noise(self, until: Sample) -> float:
        """Share of the machine that others took up to then."""
        first = self.samples[0]
        busy, total = (now - then for now, then in zip(until.machine, first.machine, strict=True))
        ours = sum(
            getattr(until, name) - getattr(first, name)
            for name in ("controller_s", "zookeeper_s", "own_s")
        )
        return max(0.0, min(1.0, (busy - ours) / total)) if total else 0.0
