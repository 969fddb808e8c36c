"""What the runtime measures: counts and times, kept cheap; whoever exports them reads here."""

import time
from collections import deque

import attrs

from kctl.messages.events import Event

RECENT = 2_048
"""Samples kept for percentiles."""


@attrs.define
class Timing:
    count: int = 0
    total_s: float = 0.0
    max_s: float = 0.0
    recent_s: deque[float] = attrs.field(factory=lambda: deque(maxlen=RECENT))

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total_s += seconds
        self.max_s = max(self.max_s, seconds)
        self.recent_s.append(seconds)

    def quantile(self, q: float) -> float:
        ordered = sorted(self.recent_s)
        return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else 0.0


@attrs.frozen
class Handled:
    """One event, done."""

    event: Event
    at_ms: int
    queued_s: float
    took_s: float
    effects: int
    longest_step_s: float
    """Thread CPU time of the longest stretch between two awaits."""


@attrs.define
class Meters:
    handled: dict[str, Timing] = attrs.field(factory=dict)
    """By type of event."""
    queued: Timing = attrs.field(factory=Timing)
    steps: Timing = attrs.field(factory=Timing)
    """Thread CPU time between two awaits of a handler."""
    loop_lag: Timing = attrs.field(factory=Timing)
    """Wall clock: how late the loop came round."""
    effects: dict[str, int] = attrs.field(factory=dict)
    faults: int = 0
    elections_won: int = 0
    quarantined: int = 0
    """How often a znode was found that cannot be used; the cluster's quarantine names those."""
    state: int = 0
    """Kafka's ControllerState of the event under way."""

    def record(self, done: Handled) -> None:
        self.handled.setdefault(type(done.event).__name__, Timing()).add(done.took_s)
        self.queued.add(done.queued_s)

    def effect(self, name: str) -> None:
        self.effects[name] = self.effects.get(name, 0) + 1


def thread_cpu_s() -> float:
    return time.thread_time()
