"""kctl beside Kafka's own controller and the floor, in one run on one ZooKeeper.

scripts/bench --against kafka-3.9.1 --partitions 10000,100000 [--scenarios failover,...]
"""

import argparse
import asyncio
import json
import os
import platform
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import attrs
import uvloop
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from bench.jobs import StepFailed, positive, step
from bench.kafka_side import Kafka
from kctl.bench import results, shapes, tables
from kctl.bench.results import compare, summarise
from kctl.bench.scenarios import UnknownScenario, chosen
from kctl.bench.stage import Measurement, open_stage
from kctl.bench.systems import Kctl, System
from kctl.bench.turns import Failure, Turns
from kctl.testing.kafka import class_path
from kctl.zookeeper.jars import ServerUnavailable

TOPIC_SIZE = 50


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", default="kafka-3.9.1", help="kafka-VERSION, or none")
    parser.add_argument("--partitions", default="10000", help="sizes, separated by commas")
    parser.add_argument("--scenarios", default="", help="names, separated by commas; all if none")
    parser.add_argument("--repeats", type=positive, default=2, help="times each process is started")
    parser.add_argument("--passes", type=positive, default=2, help="rounds within each process")
    parser.add_argument("--heap-mb", type=positive, default=4_096, help="of Kafka's JVM")
    parser.add_argument("--profile", default="", help="scenarios of which kctl makes a profile")
    parser.add_argument("--no-report", action="store_true", help="neither analyse nor report")
    parser.add_argument("--out", type=Path, help="a folder for the run and its report")
    arguments = parser.parse_args()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    arguments.out = out = arguments.out or Path(f".cache/bench/side-by-side-{stamp}")
    console = Console()
    try:
        out.mkdir(parents=True, exist_ok=True)
        code = uvloop.run(side_by_side(arguments, console))
        if not arguments.no_report:
            step(console, "analyse", out / "run", "--out", out / "analysis")
            step(console, "report", out / "analysis", "--out", out / "report")
        return code
    except (UnknownScenario, ValueError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except (StepFailed, ServerUnavailable, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1


async def side_by_side(arguments: argparse.Namespace, console: Console) -> int:
    names = [name for name in arguments.scenarios.split(",") if name]
    chosen(names)
    profiled = frozenset(name for name in arguments.profile.split(",") if name)
    chosen(profiled)
    sizes = sizes_of(arguments.partitions)
    against = arguments.against
    if against != "none":
        if not re.fullmatch(r"kafka-\d+(\.\d+)+", against):
            raise ValueError(f"--against is {against!r}: kafka-VERSION, as kafka-3.9.1, or none")
        # What cannot be had is better known before half of it is measured.
        await asyncio.to_thread(class_path, against.removeprefix("kafka-"))
    failures: list[Failure] = []
    for size in sizes:
        failures += await one_size(size, names, profiled, arguments, console)
    for failure in failures:
        console.print(f"[red]no figure[/] {failure.system} {failure.scenario}: {failure.reason}")
    return 1 if failures else 0


def sizes_of(text: str) -> list[int]:
    sizes = text.replace("_", "").split(",")
    if not all(size.isdecimal() and int(size) > 0 for size in sizes):
        raise ValueError(f"--partitions is {text!r}: numbers from 1 on, separated by commas")
    return [int(size) for size in sizes]


async def one_size(
    size: int,
    names: list[str],
    profiled: frozenset[str],
    arguments: argparse.Namespace,
    console: Console,
) -> list[Failure]:
    out: Path = arguments.out
    run_id = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{size}"
    peers: list[Callable[[], System]] = []
    peer = None
    if arguments.against != "none":
        version = arguments.against.removeprefix("kafka-")
        peers = [lambda: Kafka(version, arguments.heap_mb)]
        peer = f"kafka-{version}"
    profiles = out / f"profiles-{run_id}" if profiled else None
    makers: list[Callable[[], System]] = [lambda: Kctl(profiles), *peers]
    began = time.time()
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), console=console
    ) as progress:
        loading = progress.add_task(f"loading {size:,} partitions", total=2 * size)
        async with open_stage(
            shapes.base(size, TOPIC_SIZE),
            progress=lambda done: progress.update(loading, completed=min(done, 2 * size)),
        ) as stage:
            progress.update(loading, completed=2 * size)
            scenarios = chosen(names)
            total = Turns.steps(len(scenarios), len(makers), arguments.repeats, arguments.passes)
            bar = progress.add_task("measuring", total=total)
            stage.profiled = profiled

            def advance(system: str, scenario: str) -> None:
                progress.update(bar, advance=1, description=f"{system}: {scenario}")

            def show(m: Measurement) -> None:
                progress.console.print(line(m), highlight=False, soft_wrap=True)

            stage.on_measured = show
            turns = Turns(stage, scenarios, advance)
            await turns.run(makers, arguments.repeats, arguments.passes)
            measured = stage.measured
    comparisons = compare(summarise(measured))
    shown = results.table(f"{size:,} partitions", comparisons, peer)
    wide = Console(width=200) if not console.is_terminal else console
    wide.print(shown)
    content = {
        "run_id": run_id,
        "partitions": size,
        "against": arguments.against,
        "peer_heap_mb": arguments.heap_mb,
        "machine": {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version()},
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(began)),
        "comparisons": results.as_json(comparisons),
        "failures": [attrs.asdict(f) for f in turns.failures],
    }
    (out / f"{run_id}.json").write_text(json.dumps(content, indent=1), "utf-8")
    brokers = stage.shape.brokers
    rows = results.scenario_rows(run_id, size, brokers, measured)
    tables.write_rows(out / "run", tables.RUN["scenarios"], rows, run_id)
    events = results.event_rows(run_id, size, measured, began)
    tables.write_rows(out / "run", tables.RUN["events"], events, run_id)
    phases = results.phase_rows(run_id, measured)
    tables.write_rows(out / "run", tables.RUN["phases"], phases, run_id)
    console.print(f"written to {out}: {run_id}.json, scenarios and events as Parquet")
    return turns.failures


def line(m: Measurement) -> str:
    parts = [f"{m.system:12} {m.scenario:20} {m.seconds:8.3f} s"]
    parts.append(f"CPU {m.cpu_s:.2f}/{m.zookeeper_cpu_s:.2f}/{m.simulator_cpu_s:.2f}")
    parts.append(f"ZK {m.zookeeper_requests:,} requests {m.transactions:,} transactions")
    parts.append(f"{m.requests:,} RPCs, {m.peak_bytes >> 20} MB, noise {m.noise:.0%}")
    if m.longest_step_s:
        parts.append(f"step {m.longest_step_s * 1000:.1f} ms")
    if m.rate is not None:
        parts.append(f"{m.rate:,.0f}/s")
    return ", ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
