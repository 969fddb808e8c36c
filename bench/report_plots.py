"""The plots of a report, as matplotlib figures."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kctl.bench.analysis import Analysis, Fit, Phase, ScenarioSummary
from kctl.bench.results import FLOOR, GOALS, KCTL

INK: Final = "#1f2933"
PALE: Final = "#d8dee6"
COLOURS: Final = {KCTL: "#0b6e99", FLOOR: "#8a94a0"}
PEER_COLOUR: Final = "#d9730d"
PHASE_COLOURS: Final = ("#0b6e99", "#2a9d8f", "#8ab17d", "#e9c46a", "#f4a261", "#d9730d", "#9b5de5")
MARKS: Final = {KCTL: "o", FLOOR: "|"}
ROWS_MAX: Final = 24
PHASES_SHOWN: Final = 12
PHASE_MIN_SHARE: Final = 0.01
PANELS_ACROSS: Final = 3
ROOM: Final = 0.3

STYLE: Final[dict[Any, Any]] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.edgecolor": PALE,
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#edf0f3",
    "text.color": INK,
    "xtick.color": "#52606d",
    "ytick.color": "#52606d",
    "figure.facecolor": "white",
    # The same numbers give the same file.
    "svg.hashsalt": "kctl",
    "svg.fonttype": "path",
}


def colour(system: str) -> str:
    return COLOURS.get(system, PEER_COLOUR)


def seconds_text(value: float) -> str:
    if value >= 1:
        return f"{value:.3g} s"
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} µs"


def words(name: str) -> str:
    return name.replace("_", " ")


def plots(analysis: Analysis) -> dict[str, Figure]:
    """By name; a plot for which the run has nothing is left out. Drawn and saved within `STYLE`."""
    makers: dict[str, Callable[[Analysis], Figure | None]] = {
        "side-by-side": side_by_side,
        "scaling": scaling,
        "failover": failover,
        "latencies": latencies,
        "throughput": throughput,
    }
    made = {name: make(analysis) for name, make in makers.items()}
    return {name: figure for name, figure in made.items() if figure is not None}


def systems_of(analysis: Analysis) -> list[str]:
    """kctl, those beside it, and the floor."""
    found = dict.fromkeys(s.system for s in analysis.scenarios)
    return sorted(found, key=lambda name: (name == FLOOR, name != KCTL, name))


def largest_size(analysis: Analysis) -> int:
    """The largest at which somebody stands beside kctl, else the largest."""
    beside = [s.partitions for s in analysis.scenarios if s.system != KCTL]
    return max(beside or [s.partitions for s in analysis.scenarios], default=0)


# -- times side by side --------------------------------------------------------------------------


def side_by_side(analysis: Analysis) -> Figure | None:
    size = largest_size(analysis)
    rows: dict[str, list[ScenarioSummary]] = {}
    for summary in analysis.scenarios:
        if summary.partitions == size:
            rows.setdefault(summary.scenario, []).append(summary)
    if not rows:
        return None
    order = sorted(rows, key=lambda name: max(s.seconds for s in rows[name]))
    figure = Figure(figsize=(9, 1.3 + 0.42 * len(order)), layout="constrained")
    axes = figure.add_subplot()
    for height, name in enumerate(order):
        times = [s.seconds for s in rows[name]]
        axes.plot([min(times), max(times)], [height, height], color=PALE, lw=2, zorder=1)
        for s in rows[name]:
            paint = colour(s.system)
            axes.plot([s.least, s.most], [height, height], color=paint, lw=5, alpha=0.25, zorder=2)
            mark = MARKS.get(s.system, "s")
            axes.plot(s.seconds, height, mark, color=paint, ms=9 if mark != "|" else 14, mew=2)
        _goal(axes, rows[name], height)
    axes.set_yticks(range(len(order)), [words(name) for name in order])
    axes.set_xscale("log")
    axes.set_xlabel("seconds (log scale); the pale bar is the range of all repetitions")
    axes.set_title(f"{size:,} partitions: how long it takes")
    for system in systems_of(analysis):
        axes.plot([], [], MARKS.get(system, "s"), color=colour(system), label=system, mew=2)
    axes.plot([], [], "v", color="#b83280", label="goal")
    axes.legend(loc="lower right", frameon=False, ncols=4, bbox_to_anchor=(1, 1))
    return figure


def _goal(axes: Axes, beside: Sequence[ScenarioSummary], height: int) -> None:
    """Where kctl should be, given how long the other took in the same run."""
    goal = GOALS.get(beside[0].scenario)
    other = next((s for s in beside if s.system not in (KCTL, FLOOR)), None)
    if goal is not None and goal.peer is not None and other is not None:
        at = other.seconds * goal.peer if goal.peer < 1 else other.seconds / goal.peer
        axes.plot(at, height + 0.28, "v", color="#b83280", ms=5, zorder=4)


# -- growth --------------------------------------------------------------------------------------


def scaling(analysis: Analysis) -> Figure | None:
    lines: dict[str, dict[str, list[ScenarioSummary]]] = {}
    for s in analysis.scenarios:
        lines.setdefault(s.scenario, {}).setdefault(s.system, []).append(s)
    lines = {
        name: systems
        for name, systems in lines.items()
        if any(len(points) > 1 for points in systems.values())
    }
    if not lines:
        return None
    fitted = {(fit.system, fit.scenario): fit for fit in analysis.fits}
    down = math.ceil(len(lines) / PANELS_ACROSS)
    figure = Figure(figsize=(10.5, 2.7 * down + 0.4), layout="constrained")
    for place, (name, systems) in enumerate(lines.items(), 1):
        axes = figure.add_subplot(down, PANELS_ACROSS, place)
        for system, points in systems.items():
            _curve(axes, system, sorted(points, key=lambda s: s.partitions))
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(words(name))
        shown = [_exponent(fit) for system in systems if (fit := fitted.get((system, name)))]
        lowest, highest = axes.get_ylim()
        # Room below the curves, for the text.
        axes.set_ylim(lowest / (highest / lowest) ** ROOM, highest)
        axes.text(0.98, 0.02, "\n".join(shown), transform=axes.transAxes, ha="right", fontsize=6.5)
        if place > len(lines) - PANELS_ACROSS:
            axes.set_xlabel("partitions")
        if place % PANELS_ACROSS == 1:
            axes.set_ylabel("seconds")
    handles = [
        Line2D([], [], color=colour(s), marker=MARKS.get(s, "s"), label=s)
        for s in systems_of(analysis)
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=4, frameon=False)
    return figure


def _curve(axes: Axes, system: str, points: Sequence[ScenarioSummary]) -> None:
    sizes = [s.partitions for s in points]
    below = [s.seconds - s.least for s in points]
    above = [s.most - s.seconds for s in points]
    axes.errorbar(
        sizes,
        [s.seconds for s in points],
        yerr=[below, above],
        color=colour(system),
        marker=MARKS.get(system, "s"),
        ms=5,
        lw=1.6,
        elinewidth=1,
        capsize=2,
    )


def _exponent(fit: Fit) -> str:
    return f"{fit.system}: n^{fit.exponent:.2f}, {fit.us_a_partition:.3g} µs a partition"


# -- phases --------------------------------------------------------------------------------------


def failover(analysis: Analysis) -> Figure | None:
    size = max((p.partitions for p in analysis.phases if p.scenario == "failover"), default=0)
    by_system: dict[str, list[Phase]] = {}
    for phase in analysis.phases:
        if phase.scenario == "failover" and phase.partitions == size:
            by_system.setdefault(phase.system, []).append(phase)
    if not by_system:
        return None
    totals = {
        s.system: s.seconds
        for s in analysis.scenarios
        if (s.scenario, s.partitions) == ("failover", size)
    }
    for system, phases in by_system.items():
        # What takes long is what is looked for.
        longest = sorted(phases, key=lambda p: p.began - p.ended)[:PHASES_SHOWN]
        shown = [p for p in longest if p.ended - p.began > PHASE_MIN_SHARE * totals[system]]
        by_system[system] = shown or longest
    names = [system for system in systems_of(analysis) if system in by_system]
    heights = [len(by_system[name]) + 1 for name in names]
    figure = Figure(figsize=(9, 0.34 * sum(heights) + 1.2), layout="constrained")
    panels = figure.subplots(len(names), 1, height_ratios=heights, squeeze=False)
    for axes, name in zip(panels[:, 0], names, strict=True):
        _timeline(axes, by_system[name])
        axes.set_title(f"{name}: failover of {size:,} partitions, {seconds_text(totals[name])}")
    panels[-1, 0].set_xlabel("seconds from the trigger; each system has its own scale")
    return figure


def _timeline(axes: Axes, phases: Sequence[Phase]) -> None:
    for height, phase in enumerate(sorted(phases, key=lambda p: (p.began, p.ended))):
        width = max(phase.ended - phase.began, 0.0)
        paint = PHASE_COLOURS[height % len(PHASE_COLOURS)]
        axes.barh(height, width, left=phase.began, color=paint, height=0.62)
        text = f" {words(phase.phase)}, {seconds_text(width)}"
        axes.text(phase.began + width, height, text, va="center", fontsize=8)
    axes.set_ylim(len(phases) - 0.4, -0.6)
    axes.set_yticks([])
    end = max(phase.ended for phase in phases)
    axes.set_xlim(0, end * 1.35 or 1)


# -- events --------------------------------------------------------------------------------------


def latencies(analysis: Analysis) -> Figure | None:
    sizes = [b.partitions for b in analysis.latencies]
    if not sizes:
        return None
    counts: dict[str, dict[int, int]] = {}
    for b in analysis.latencies:
        if b.partitions == max(sizes):
            quarter = round(4 * math.log10(b.from_seconds))
            row = counts.setdefault(f"{words(b.scenario)}: {b.event}", {})
            row[quarter] = row.get(quarter, 0) + b.count
    rows = sorted(counts, key=lambda name: -sum(counts[name].values()))[:ROWS_MAX]
    rows.sort(reverse=True)
    quarters = [q for name in rows for q in counts[name]]
    least, most = min(quarters), max(quarters) + 1
    shares = [
        [counts[name].get(q, 0) / sum(counts[name].values()) for q in range(least, most)]
        for name in rows
    ]
    figure = Figure(figsize=(9, 1.2 + 0.3 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    edges = [10 ** (q / 4) for q in range(least, most + 1)]
    mesh = axes.pcolormesh(
        edges, range(len(rows) + 1), shares, cmap="Blues", vmin=0, vmax=1, edgecolors="white"
    )
    axes.set_xscale("log")
    total = [sum(counts[name].values()) for name in rows]
    axes.set_yticks(
        [n + 0.5 for n in range(len(rows))],
        [f"{name} ({count:,})" for name, count in zip(rows, total, strict=True)],
    )
    axes.grid(visible=False)
    axes.set_xlabel("seconds from being queued to being done (log scale)")
    axes.set_title(f"{max(sizes):,} partitions: how long events take")
    figure.colorbar(mesh, ax=axes, label="share", shrink=0.6)
    return figure


def throughput(analysis: Analysis) -> Figure | None:
    """Of the scenario with the most events at the largest size."""
    events: dict[tuple[int, str], float] = {}
    for point in analysis.throughput:
        key = (point.partitions, point.scenario)
        events[key] = events.get(key, 0.0) + point.events
    if not events:
        return None
    size = max(size for size, _ in events)
    name = max((key for key in events if key[0] == size), key=lambda key: events[key])[1]
    points = [p for p in analysis.throughput if (p.partitions, p.scenario) == (size, name)]
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    for system in dict.fromkeys(p.system for p in points):
        own = [p for p in points if p.system == system]
        at = [p.at for p in own]
        upper.bar(at, [p.events * 10 for p in own], width=0.09, align="edge", color=colour(system))
        lower.step(at, [p.depth for p in own], where="post", color=colour(system), label=system)
    upper.set_ylabel("events a second")
    lower.set_ylabel("waiting")
    lower.set_xlabel("seconds from the first event")
    upper.set_title(f"{words(name)}, {size:,} partitions: events handled, and events waiting")
    return figure
