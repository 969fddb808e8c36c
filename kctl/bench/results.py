"""Measurements of one run, put together: medians and spread, ratios, and the goals beside them."""

import statistics
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs
from rich.table import Table

from kctl.bench.scenarios import SCENARIOS
from kctl.bench.stage import Measurement

KCTL: Final = "kctl"
FLOOR: Final = "floor"


@attrs.frozen
class Goal:
    """What is aimed at with 100,000 partitions; nothing fails because of it."""

    peer: float | None
    """At most this part of what Kafka's controller takes; for a rate, at least so many times."""
    floor: float | None = None
    """At most so many times the floor."""


GOALS: Final[Mapping[str, Goal]] = {
    "failover": Goal(1 / 10, 4),
    "broker_failure": Goal(1 / 12, 5),
    "broker_start": Goal(1 / 2),
    "controlled_shutdown": Goal(1 / 12, 5),
    "preferred_election": Goal(1 / 10, 6),
    "create_100x50": Goal(1 / 7, 6),
    "create_1000x5": Goal(1 / 7, 6),
    "delete_100x50": Goal(1 / 25, 9),
    "delete_1000x5": Goal(1 / 25, 9),
    "reassignment_start": Goal(1 / 40),
    "reassignment_finish": Goal(1 / 40),
    "isr_notification": Goal(1 / 6),
    "alter_partition_1": Goal(4),
    "alter_partition_50": Goal(4),
}
CPU_GOAL: Final = 1 / 5
"""Of the CPU time of Kafka's controller, in scenarios where that is over a second."""
STEP_GOAL_S: Final = 0.010
PHASES_MAX: Final = 50


@attrs.frozen
class Summary:
    """All repetitions of one scenario by one system."""

    scenario: str
    system: str
    count: int
    median_s: float
    least_s: float
    most_s: float
    rate: float | None
    cpu_s: float
    zookeeper_cpu_s: float
    simulator_cpu_s: float
    peak_bytes: int
    zookeeper_requests: int
    transactions: int
    requests: int
    longest_step_s: float
    stall_p99_s: float
    stall_max_s: float
    noise: float


def summarise(measured: Iterable[Measurement]) -> list[Summary]:
    groups: dict[tuple[str, str], list[Measurement]] = {}
    for m in measured:
        groups.setdefault((m.scenario, m.system), []).append(m)
    return [_summary(group) for group in groups.values()]


def _summary(group: list[Measurement]) -> Summary:
    median = statistics.median
    rates = [m.rate for m in group if m.rate is not None]
    times = [m.seconds for m in group]
    return Summary(
        group[0].scenario,
        group[0].system,
        len(group),
        median(times),
        min(times),
        max(times),
        median(rates) if rates else None,
        median(m.cpu_s for m in group),
        median(m.zookeeper_cpu_s for m in group),
        median(m.simulator_cpu_s for m in group),
        max(m.peak_bytes for m in group),
        round(median(m.zookeeper_requests for m in group)),
        round(median(m.transactions for m in group)),
        round(median(m.requests for m in group)),
        max(m.longest_step_s for m in group),
        max(m.stall_p99_s for m in group),
        max(m.stall_max_s for m in group),
        median(m.noise for m in group),
    )


@attrs.frozen
class Comparison:
    """One scenario: kctl beside the others of the same run."""

    kctl: Summary
    peer: Summary | None = None
    floor: Summary | None = None

    @property
    def peer_ratio(self) -> float | None:
        """kctl's time as a part of the other's; of rates, how many times as many."""
        if self.peer is None:
            return None
        if self.kctl.rate is not None and self.peer.rate is not None:
            return self.kctl.rate / self.peer.rate
        return self.kctl.median_s / self.peer.median_s

    @property
    def floor_ratio(self) -> float | None:
        return None if self.floor is None else self.kctl.median_s / self.floor.median_s

    @property
    def misses(self) -> list[str]:
        """Goals that are not met."""
        goal = GOALS.get(self.kctl.scenario)
        missed = []
        if goal is not None and goal.peer is not None and self.peer_ratio is not None:
            rated = self.kctl.rate is not None
            met = self.peer_ratio >= goal.peer if rated else self.peer_ratio <= goal.peer
            if not met:
                missed.append("peer")
        floor = goal.floor if goal is not None else None
        if floor is not None and self.floor_ratio is not None and self.floor_ratio > floor:
            missed.append("floor")
        if (
            self.peer is not None
            and self.peer.cpu_s > 1
            and (self.kctl.cpu_s > CPU_GOAL * self.peer.cpu_s)
        ):
            missed.append("CPU")
        if self.kctl.longest_step_s > STEP_GOAL_S:
            missed.append("step")
        return missed


def compare(summaries: Iterable[Summary]) -> list[Comparison]:
    """Scenarios that kctl has run, in their order."""
    by_scenario: dict[str, dict[str, Summary]] = {}
    for s in summaries:
        by_scenario.setdefault(s.scenario, {})[s.system] = s
    order = {name: place for place, name in enumerate(("cold_start", *SCENARIOS))}
    return [
        Comparison(
            systems[KCTL],
            next((s for name, s in systems.items() if name not in (KCTL, FLOOR)), None),
            systems.get(FLOOR),
        )
        for _, systems in sorted(by_scenario.items(), key=lambda item: order.get(item[0], 99))
        if KCTL in systems
    ]


def table(title: str, comparisons: Iterable[Comparison], peer: str | None = None) -> Table:
    """For a terminal."""
    shown = Table(title=title)
    shown.add_column("scenario")
    columns = ["kctl s", "min-max"]
    if peer is not None:
        columns += [f"{peer} s", f"1 / {peer}"]
    columns += ["floor s", "x floor", "CPU s", "peak MB", "ZK requests", "step ms", "stall ms"]
    columns += ["noise"]
    for name in columns:
        shown.add_column(name, justify="right")
    if peer is not None:
        shown.add_column("missed")
    for c in comparisons:
        shown.add_row(*_row(c, with_peer=peer is not None))
    return shown


def _row(c: Comparison, *, with_peer: bool) -> list[str]:
    k = c.kctl
    name = k.scenario if k.rate is None else f"{k.scenario} ({k.rate:,.0f}/s)"
    row = [name, f"{k.median_s:.3f}", f"{k.least_s:.3f}-{k.most_s:.3f}"]
    if with_peer:
        ratio = c.peer_ratio
        shown = "-"
        if ratio:
            shown = f"{ratio:.1f} x" if k.rate is not None else f"1/{1 / ratio:.1f}"
        row += [f"{c.peer.median_s:.3f}" if c.peer else "-", shown]
    row += [
        f"{c.floor.median_s:.3f}" if c.floor else "-",
        f"{c.floor_ratio:.1f}" if c.floor_ratio else "-",
    ]
    cpu = f"{k.cpu_s:.2f}"
    memory = f"{k.peak_bytes >> 20}"
    asked = f"{k.zookeeper_requests:,}"
    if c.peer is not None:
        cpu += f" / {c.peer.cpu_s:.2f}"
        memory += f" / {c.peer.peak_bytes >> 20}"
        asked += f" / {c.peer.zookeeper_requests:,}"
    row += [cpu, memory, asked, f"{k.longest_step_s * 1000:.1f}", f"{k.stall_max_s * 1000:.0f}"]
    row.append(f"{max(k.noise, c.peer.noise if c.peer else 0.0):.0%}")
    if with_peer:
        row.append(", ".join(c.misses) or "-")
    return row


def as_json(comparisons: Iterable[Comparison]) -> list[dict[str, Any]]:
    """For a file or another program."""
    rows = []
    for c in comparisons:
        row: dict[str, Any] = {"scenario": c.kctl.scenario, "missed": c.misses}
        row |= {"ratio_to_peer": c.peer_ratio, "ratio_to_floor": c.floor_ratio}
        for name, summary in (("kctl", c.kctl), ("peer", c.peer), ("floor", c.floor)):
            row[name] = attrs.asdict(summary) if summary is not None else None
        rows.append(row)
    return rows


def scenario_rows(
    run_id: str, partitions: int, brokers: int, measured: Iterable[Measurement]
) -> list[dict[str, Any]]:
    """For the table `scenarios`."""
    counts: dict[tuple[str, str], int] = {}
    rows = []
    for m in measured:
        key = m.scenario, m.system
        repeat = counts[key] = counts.get(key, -1) + 1
        rows.append(
            {
                "run_id": run_id,
                "system": m.system,
                "scenario": m.scenario,
                "partitions": partitions,
                "brokers": brokers,
                "repeat": repeat,
                "seconds": m.seconds,
                "rate": m.rate,
                "last_znode_seconds": m.last_znode_s,
                "last_request_seconds": m.last_request_s,
                "cpu_seconds": m.cpu_s,
                "zookeeper_cpu_seconds": m.zookeeper_cpu_s,
                "simulator_cpu_seconds": m.simulator_cpu_s,
                "peak_rss_bytes": m.peak_bytes,
                "zookeeper_requests": m.zookeeper_requests,
                "longest_step": m.longest_step_s,
                "stall_p99": m.stall_p99_s,
                "stall_max": m.stall_max_s,
                "noise": m.noise,
            }
        )
    return rows


def phase_rows(run_id: str, measured: Iterable[Measurement]) -> list[dict[str, Any]]:
    """For the table `phases`: what was seen from outside, and what kctl handled."""
    counts: dict[tuple[str, str], int] = {}
    rows: list[dict[str, Any]] = []
    for m in measured:
        key = m.scenario, m.system
        repeat = counts[key] = counts.get(key, -1) + 1
        about = {"run_id": run_id, "system": m.system, "scenario": m.scenario, "repeat": repeat}
        spans = list(m.phases)
        for r in m.records[:PHASES_MAX]:
            done = r.at_s - m.started_at
            taken = done - r.took_s
            if taken > m.seconds:
                break  # it was over by then
            spans.append((f"{r.event} handled", taken, done))
            spans += [(name, taken + begin, taken + end) for name, (begin, end) in r.phases.items()]
        rows += [
            {**about, "phase": name, "started_at": begin, "finished_at": end}
            for name, begin, end in spans
        ]
    return rows


def event_rows(
    run_id: str, partitions: int, measured: Iterable[Measurement], began: float
) -> list[dict[str, Any]]:
    """For the table `events`: what kctl handled in each scenario."""
    counts: dict[tuple[str, str], int] = {}
    rows: list[dict[str, Any]] = []
    for m in measured:
        key = m.scenario, m.system
        repeat = counts[key] = counts.get(key, -1) + 1
        for r in m.records:
            finished = r.at_s - began
            rows.append(
                {
                    "run_id": run_id,
                    "system": m.system,
                    "scenario": m.scenario,
                    "partitions": partitions,
                    "repeat": repeat,
                    "sequence": len(rows),
                    "event": r.event,
                    "queued_at": finished - r.took_s - r.queued_s,
                    "started_at": finished - r.took_s,
                    "finished_at": finished,
                    "queue_depth": r.queue_depth,
                    "effects": r.effects,
                    "zookeeper_requests": r.zookeeper_requests,
                    "zookeeper_rows": r.rows,
                    "zookeeper_bytes": r.zookeeper_bytes,
                    "longest_step": r.longest_step_s,
                    "loop_stall": r.loop_lag_s,
                }
            )
    return rows
