"""An analysis as something to look at: Markdown, JSON, plots, and one HTML page with all of it.

    python -m bench.report DIR --out docs/report [--title TEXT] [--machine TEXT] [--note TEXT]

DIR holds the analysis.json that `analyse` wrote. The page is self-contained; the Markdown shows
the PNG files beside it.
"""

import argparse
import io
import json
import os
import platform
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import attrs
from matplotlib import rc_context
from matplotlib.figure import Figure

from bench.report_page import page
from bench.report_plots import STYLE, plots, systems_of
from bench.report_rows import NOISY, Row, rows_by_size
from kctl.bench.analysis import Analysis, NotAnAnalysis, read_analysis

HEADINGS = {
    "side-by-side": (
        "Side by side",
        "One run, one ZooKeeper, the same simulated brokers; the floor is the least ZooKeeper work.",
    ),
    "scaling": (
        "Growth with the number of partitions",
        "Medians with the range of all repetitions; a straight line at 45 degrees is linear.",
    ),
    "failover": (
        "A failover by phase",
        "From the trigger to the last request that a broker received; medians.",
    ),
    "latencies": (
        "How long events take",
        "Of kctl: from being queued to being done. Each row adds up to one.",
    ),
    "throughput": (
        "Throughput over time",
        "Of kctl: the scenario with the most events, mean of the repetitions.",
    ),
}


def machine() -> str:
    """Without a name: what matters is what it can do."""
    text = ""
    cpu_info = Path("/proc/cpuinfo")
    if cpu_info.exists():
        match = re.search(r"model name\s*:\s*(.+)", cpu_info.read_text("utf-8"))
        text = f"{match[1].strip()}, " if match else ""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    cores = len(os.sched_getaffinity(0))
    return f"{text}{cores} cores, {memory:.0f} GiB, Python {platform.python_version()}"


def noise_text(analysis: Analysis) -> str:
    noises = [s.noise for s in analysis.scenarios if s.noise is not None]
    if not noises:
        return "Noise was not recorded."
    noisy = sum(noise > NOISY for noise in noises)
    return (
        f"Noise, the share of the machine that others took: median {median(noises):.0%},"
        f" at most {max(noises):.0%}; {noisy} of {len(noises)} figures have more than {NOISY:.0%}."
    )


def markdown(
    title: str, about: Sequence[str], rows: Mapping[int, Sequence[Row]], names: Sequence[str]
) -> str:
    out = [f"# {title}", "", *(f"{line}  " for line in about), ""]
    for name in names:
        heading, sentence = HEADINGS[name]
        out += [f"## {heading}", "", sentence, "", f"![{heading}]({name}.png)", ""]
    heads = ["scenario", "kctl", "range", "Kafka", "to Kafka (goal)", "floor", "to floor (goal)"]
    heads += ["CPU s", "peak MB", "ZK requests", "longest step", "n", "noise"]
    for size, found in rows.items():
        out += [f"## {size:,} partitions", "", f"| {' | '.join(heads)} |"]
        out += ["|---" * len(heads) + "|"]
        for row in found:
            cells = [
                row.title,
                row.kctl,
                row.kctl_range,
                row.peer or "-",
                f"{row.peer_text} ({row.peer_goal})",
                row.floor or "-",
                f"{row.floor_text} ({row.floor_goal})",
                row.cpu,
                row.memory,
                row.requests,
                row.step,
                str(row.count),
                f"{row.noise:.0%}",
            ]
            out.append(f"| {' | '.join(cells)} |")
        out.append("")
    out += ["Two numbers in one cell are kctl / Kafka. Times are medians of `n` repetitions."]
    out += [
        "Goals are for 100,000 partitions; a ratio to Kafka of 1/10 is a tenth of its time.",
        "",
    ]
    return "\n".join(out)


def svg_of(figure: Figure) -> str:
    """To be put into a page, without a date: the same figure gives the same text."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def write_report(analysis: Analysis, out: Path, title: str, about: Sequence[str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    rows = rows_by_size(analysis)
    drawings = {}
    with rc_context(STYLE):
        figures = plots(analysis)
        for name, figure in figures.items():
            figure.savefig(out / f"{name}.png", dpi=130, metadata={"Software": None})
            svg = svg_of(figure)
            (out / f"{name}.svg").write_text(svg, "utf-8")
            heading, sentence = HEADINGS[name]
            drawings[heading] = (sentence, svg)
    (out / "report.html").write_text(page(title, about, rows, analysis, drawings), "utf-8")
    (out / "report.md").write_text(markdown(title, about, rows, list(figures)), "utf-8")
    summary = {str(size): [attrs.asdict(row) for row in found] for size, found in rows.items()}
    content = {"title": title, "about": list(about), "partitions": summary}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (out / "report.json").write_text(text + "\n", "utf-8")


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("analysis", type=Path, help="folder that analyse wrote")
    found.add_argument("--out", type=Path, required=True, help="folder for the report")
    found.add_argument("--title", help="default: who was measured")
    found.add_argument("--machine", default=machine(), help="default: this one")
    found.add_argument(
        "--note", action="append", default=[], help="a sentence on top of the report"
    )
    return found


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        analysis = read_analysis(arguments.analysis)
        date = time.strftime("%Y-%m-%d", time.gmtime())
        about = [f"{date}, {arguments.machine}.", noise_text(analysis), *arguments.note]
        title = arguments.title or ", ".join(systems_of(analysis)) + ": measured side by side"
        write_report(analysis, arguments.out, title, about)
    except (NotAnAnalysis, OSError) as error:
        print(f"report: {error}", file=sys.stderr)
        return 1
    print(f"report: {arguments.out / 'report.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
