"""The rows of the side-by-side table: figures, ratios and goals as text."""

from collections.abc import Callable

import attrs

from bench.report_plots import seconds_text, words
from kctl.bench.analysis import Analysis, ScenarioSummary
from kctl.bench.results import GOALS, Comparison, Summary, compare

NOISY = 0.10
MB = 1 << 20


@attrs.frozen
class Row:
    scenario: str
    title: str
    kctl: str
    kctl_range: str
    peer: str
    peer_text: str
    peer_goal: str
    peer_met: bool | None
    floor: str
    floor_text: str
    floor_goal: str
    floor_met: bool | None
    cpu: str
    memory: str
    requests: str
    step: str
    noise: float
    count: int


def rows_by_size(analysis: Analysis) -> dict[int, list[Row]]:
    sizes = sorted({s.partitions for s in analysis.scenarios})
    return {
        size: rows for size in sizes if (rows := [_row(c) for c in comparisons(analysis, size)])
    }


def comparisons(analysis: Analysis, size: int) -> list[Comparison]:
    return compare(_summary(s) for s in analysis.scenarios if s.partitions == size)


def _summary(s: ScenarioSummary) -> Summary:
    return Summary(
        s.scenario,
        s.system,
        s.count,
        s.seconds,
        s.least,
        s.most,
        s.rate,
        s.cpu_seconds or 0.0,
        s.zookeeper_cpu_seconds or 0.0,
        s.simulator_cpu_seconds or 0.0,
        s.peak_rss_bytes or 0,
        round(s.zookeeper_requests or 0),
        0,
        0,
        s.longest_step or 0.0,
        s.stall_p99 or 0.0,
        s.stall_max or 0.0,
        s.noise or 0.0,
    )


def _row(c: Comparison) -> Row:
    goal = GOALS.get(c.kctl.scenario)
    rated = c.kctl.rate is not None
    peer_goal = goal.peer if goal is not None else None
    floor_goal = goal.floor if goal is not None else None
    return Row(
        c.kctl.scenario,
        words(c.kctl.scenario),
        f"{c.kctl.rate:,.0f}/s" if c.kctl.rate is not None else seconds_text(c.kctl.median_s),
        f"{seconds_text(c.kctl.least_s)} - {seconds_text(c.kctl.most_s)}",
        _peer_time(c),
        _ratio(c.peer_ratio, rated),
        "-" if peer_goal is None else _ratio(peer_goal, rated),
        None if peer_goal is None or c.peer_ratio is None else "peer" not in c.misses,
        "" if c.floor is None else seconds_text(c.floor.median_s),
        "-" if c.floor_ratio is None else f"{c.floor_ratio:.1f} x",
        "-" if floor_goal is None else f"{floor_goal:g} x",
        None if floor_goal is None or c.floor_ratio is None else "floor" not in c.misses,
        _both(c, lambda s: f"{s.cpu_s:.2f}"),
        _both(c, lambda s: f"{s.peak_bytes / MB:,.0f}"),
        _both(c, lambda s: f"{s.zookeeper_requests:,}"),
        seconds_text(c.kctl.longest_step_s) if c.kctl.longest_step_s else "-",
        max(s.noise for s in (c.kctl, c.peer, c.floor) if s is not None),
        c.kctl.count,
    )


def _peer_time(c: Comparison) -> str:
    if c.peer is None:
        return ""
    return f"{c.peer.rate:,.0f}/s" if c.peer.rate is not None else seconds_text(c.peer.median_s)


def _ratio(ratio: float | None, rated: bool) -> str:
    """Of rates how many times as many, of times which part of the other's."""
    if not ratio:
        return "-"
    if rated or ratio >= 1:
        return f"{ratio:.1f} x"
    return f"1/{1 / ratio:.3g}"


def _both(c: Comparison, text: Callable[[Summary], str]) -> str:
    return " / ".join(text(summary) for summary in (c.kctl, c.peer) if summary is not None)
