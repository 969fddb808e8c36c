"""What an analysis says about a run: the content of `analysis.json`."""

from pathlib import Path
from typing import Final

import msgspec

FILE: Final = "analysis.json"
NOT_CONVERGED: Final = 3
"""Exit code of the job where brokers believe something else than ZooKeeper holds."""


class NotAnAnalysis(Exception):
    """There is no analysis here, or not one that can be read."""


class Quantiles(msgspec.Struct, frozen=True):
    p50: float
    p95: float
    p99: float
    max: float


class EventCost(msgspec.Struct, frozen=True):
    """All events of one kind in one scenario at one size. Times in seconds."""

    system: str
    scenario: str
    partitions: int
    event: str
    count: int
    queued: Quantiles
    handled: Quantiles
    depth: Quantiles
    zookeeper_requests: int
    zookeeper_rows: int
    zookeeper_bytes: int
    longest_step: float
    us_a_row: float | None
    """Time of handling for each znode that was read or written."""


class ScenarioSummary(msgspec.Struct, frozen=True):
    """All repetitions of one scenario by one system at one size: medians, unless it says otherwise."""

    system: str
    scenario: str
    partitions: int
    brokers: int
    count: int
    seconds: float
    least: float
    most: float
    rate: float | None
    last_znode_seconds: float | None
    last_request_seconds: float | None
    cpu_seconds: float | None
    zookeeper_cpu_seconds: float | None
    simulator_cpu_seconds: float | None
    peak_rss_bytes: int | None
    """The most."""
    zookeeper_requests: float | None
    longest_step: float | None
    """The most, as are the stalls."""
    stall_p99: float | None
    stall_max: float | None
    noise: float | None
    noise_max: float | None
    us_a_partition: float


class Fit(msgspec.Struct, frozen=True):
    """How time grows with partitions: a power of them, and a straight line."""

    system: str
    scenario: str
    sizes: int
    exponent: float
    """1: linear."""
    us_a_partition: float
    seconds_at_zero: float
    r2: float


class Growth(msgspec.Struct, frozen=True):
    """From one size to the next larger one, as if that were twice as large."""

    system: str
    scenario: str
    partitions: int
    to_partitions: int
    ratio_a_doubling: float


class Throughput(msgspec.Struct, frozen=True):
    """Events handled in a tenth of a second from the scenario's first event, mean of repetitions."""

    system: str
    scenario: str
    partitions: int
    at: float
    events: float
    depth: float


class Bin(msgspec.Struct, frozen=True):
    """How many events took, waiting included, from this time to a quarter decade more."""

    system: str
    scenario: str
    partitions: int
    event: str
    from_seconds: float
    count: int


class Phase(msgspec.Struct, frozen=True):
    """When a phase began and ended, counted from the trigger; medians of the repetitions."""

    system: str
    scenario: str
    partitions: int
    phase: str
    began: float
    ended: float


class Mismatch(msgspec.Struct, frozen=True):
    broker: int
    topic: str
    partition: int
    believed: str
    truth: str


class Convergence(msgspec.Struct, frozen=True):
    """What brokers believe, held against ZooKeeper, for every broker and partition."""

    partitions: int
    brokers: int
    equal: int
    differing: int
    missing: int
    """ZooKeeper has the partition, the broker does not know it."""
    left_over: int
    """The broker knows it, ZooKeeper does not have it."""
    examples: list[Mismatch]

    @property
    def converged(self) -> bool:
        return not (self.differing or self.missing or self.left_over)


class Change(msgspec.Struct, frozen=True):
    """One scenario before and after."""

    system: str
    scenario: str
    partitions: int
    before: float
    after: float
    ratio: float
    certain: bool
    """The repetitions before and after do not overlap."""


class Analysis(msgspec.Struct, frozen=True):
    runs: list[str]
    scenarios: list[ScenarioSummary]
    events: list[EventCost] = []
    fits: list[Fit] = []
    growth: list[Growth] = []
    throughput: list[Throughput] = []
    latencies: list[Bin] = []
    phases: list[Phase] = []
    convergence: Convergence | None = None
    changes: list[Change] = []


def encode_analysis(analysis: Analysis) -> bytes:
    return msgspec.json.format(msgspec.json.encode(analysis), indent=1) + b"\n"


def read_analysis(at: Path) -> Analysis:
    """From its file, or from the folder that it is in."""
    file = at / FILE if at.is_dir() else at
    if not file.is_file():
        raise NotAnAnalysis(f"{file} is not there: run analyse first")
    try:
        return msgspec.json.decode(file.read_bytes(), type=Analysis)
    except ValueError as error:
        raise NotAnAnalysis(f"{file} is not an analysis: {error}") from None
