"""What the runtime measures: counts and times, kept cheap; whoever exports them reads here."""

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence

import attrs

from kctl.messages.events import Event
from kctl.runtime.states import IDLE, controller_state

RECENT = 2_048
"""Samples kept for percentiles."""
BOUNDS_S = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
"""Upper bounds of the bins that times are counted in; the last bin has none."""


def thread_cpu_s() -> float:
    return time.thread_time()


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


@attrs.define
class Timing:
    count: int = 0
    total_s: float = 0.0
    max_s: float = 0.0
    recent_s: deque[float] = attrs.field(factory=lambda: deque(maxlen=RECENT))
    bins: list[int] = attrs.field(factory=lambda: [0] * (len(BOUNDS_S) + 1))

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total_s += seconds
        self.max_s = max(self.max_s, seconds)
        self.recent_s.append(seconds)
        self.bins[bisect_left(BOUNDS_S, seconds)] += 1

    def quantile(self, q: float) -> float:
        return quantiles(self.recent_s, (q,))[0]


def quantiles(samples: Sequence[float], wanted: Sequence[float]) -> list[float]:
    ordered = sorted(samples)
    last = len(ordered) - 1
    return [ordered[min(last, int(q * len(ordered)))] if ordered else 0.0 for q in wanted]


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
    events: int = 1
    """How many were handled together, this one being the first."""
    queue_depth: int = 0
    """Events that waited behind it when it was taken."""
    rows: int = 0
    """Rows read from ZooKeeper or written there."""
    zookeeper_requests: int = 0
    """Of the whole session meanwhile, hence with what its watches read."""
    zookeeper_bytes: int = 0
    loop_lag_s: float = 0.0
    """Wall clock: how late the loop came round at most, looked at every 50 ms."""
    phases: Mapping[str, tuple[float, float]] = attrs.field(factory=dict)
    """By type of effect, in seconds from its beginning: when the first was asked for, and when the
    last reply was there."""


@attrs.define
class Meters:
    handled: dict[str, Timing] = attrs.field(factory=dict)
    """By type of event."""
    by_state: dict[int, Timing] = attrs.field(factory=dict)
    """By Kafka's ControllerState."""
    queued: Timing = attrs.field(factory=Timing)
    steps: Timing = attrs.field(factory=Timing)
    """Thread CPU time between two awaits of a handler."""
    loop_lag: Timing = attrs.field(factory=Timing)
    """Wall clock: how late the loop came round."""
    event_lag_s: float = 0.0
    """The most of it since the event under way began."""
    effects: dict[str, int] = attrs.field(factory=dict)
    faults: int = 0
    elections_won: int = 0
    quarantined: int = 0
    """How often a znode was found that cannot be used; the cluster's quarantine names those."""
    state: int = IDLE
    """Kafka's ControllerState of the event under way."""
    under_way: str | None = None
    """The type of that event."""
    began_at: float = 0.0
    """When it began, on the monotonic clock."""
    started_ms: int = attrs.field(factory=wall_clock_ms)
    active_id: int | None = None
    """Who is controller, as far as this node has seen."""
    active_since_ms: int | None = None
    """Since when it has seen that."""
    session_connects: int = 0
    session_disconnects: int = 0
    session_expiries: int = 0

    def begin(self, event: Event) -> None:
        self.state = controller_state(event)
        self.under_way = type(event).__name__
        self.began_at = time.monotonic()

    def end(self) -> None:
        self.state = IDLE
        self.under_way = None

    @property
    def under_way_s(self) -> float:
        """How long the event under way has taken so far."""
        return 0.0 if self.under_way is None else time.monotonic() - self.began_at

    def controller_is(self, broker: int | None) -> None:
        if broker != self.active_id:
            self.active_id = broker
            self.active_since_ms = None if broker is None else wall_clock_ms()

    def record(self, done: Handled) -> None:
        self.handled.setdefault(type(done.event).__name__, Timing()).add(done.took_s)
        self.by_state.setdefault(controller_state(done.event), Timing()).add(done.took_s)
        self.queued.add(done.queued_s)

    def lag(self, seconds: float) -> None:
        self.loop_lag.add(seconds)
        self.event_lag_s = max(self.event_lag_s, seconds)

    def effect(self, name: str) -> None:
        self.effects[name] = self.effects.get(name, 0) + 1
