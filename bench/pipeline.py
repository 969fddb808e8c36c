"""From a preset to a report: generate, load, run, analyse, report.

    scripts/bench --preset ci-2k

Spark generates, loads, analyses and draws; the controller runs in between, on the ZooKeeper that was
loaded, with simulated brokers: first the scenarios, then the traces of the data set. Large data sets
are kept and used again.
"""

import argparse
import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pyarrow.parquet as pq
import uvloop
from rich.console import Console

from bench.jobs import StepFailed, positive, step
from bench.side_by_side import line
from kctl.bench import results, tables
from kctl.bench.analysis import NOT_CONVERGED
from kctl.bench.datasets import MANIFEST, NotADataSet, read_manifest, shape_of
from kctl.bench.floor import measure_floor
from kctl.bench.measuring import QUIET_S
from kctl.bench.playing import Player
from kctl.bench.scenarios import UnknownScenario, chosen
from kctl.bench.shapes import PRESETS, Shape, UnknownPreset, shape
from kctl.bench.stage import Incomplete, Measurement, Stage, heap_mb_for, open_stage
from kctl.bench.systems import Kctl
from kctl.bench.traces import TRACES, Happening
from kctl.bench.turns import Failure, Turns
from kctl.zookeeper.embedded import EmbeddedZooKeeper
from kctl.zookeeper.jars import ServerUnavailable

WORK = Path(".cache/bench")
BELIEVERS_MAX = 10
SMALL = 10_000
LARGE = 500_000
"""From here on: the scenarios that matter most, and no traces."""
FEW = ("failover", "broker_failure", "broker_start")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", required=True, help=", ".join(PRESETS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeats", type=positive, help="times each scenario is run")
    parser.add_argument("--scenarios", help="names, separated by commas")
    parser.add_argument("--traces", help="names, separated by commas; none for none")
    parser.add_argument("--trace-s", type=float, help="about as long as a trace takes at most")
    parser.add_argument("--out", type=Path, help="where the run and the report go")
    parser.add_argument("--work", type=Path, default=WORK, help="where data sets are kept")
    arguments = parser.parse_args()
    try:
        return pipeline(plan_of(arguments))
    except (UnknownPreset, UnknownScenario) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except (StepFailed, ServerUnavailable, NotADataSet, Incomplete, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1


@attrs.frozen
class Plan:
    of: Shape
    seed: int
    scenarios: list[str]
    traces: list[str]
    repeats: int
    trace_s: float
    quiet_s: float
    work: Path
    out: Path

    @property
    def data(self) -> Path:
        """Where the data set is, or will be."""
        return self.work / "data" / f"{self.of.name}-{self.seed}"


def plan_of(arguments: argparse.Namespace) -> Plan:
    of = shape(arguments.preset)
    small, large = of.partitions <= SMALL, of.partitions >= LARGE
    scenarios = _names(arguments.scenarios, FEW if large else ())
    chosen(scenarios)
    traces = _names(arguments.traces, () if large else tuple(TRACES))
    unknown = [name for name in traces if name not in TRACES and name != "none"]
    if unknown:
        raise UnknownScenario(f"no trace is named {unknown[0]!r}; there are {', '.join(TRACES)}")
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    out: Path = arguments.out or arguments.work / f"{of.name}-{stamp}"
    out.mkdir(parents=True, exist_ok=True)
    return Plan(
        of,
        arguments.seed,
        scenarios,
        traces,
        arguments.repeats or (1 if small or large else 3),
        arguments.trace_s or (4.0 if small else 20.0),
        0.5 if small else QUIET_S,
        arguments.work,
        out,
    )


def _names(given: str | None, otherwise: Sequence[str]) -> list[str]:
    return list(otherwise) if given is None else [name for name in given.split(",") if name]


def pipeline(plan: Plan) -> int:
    console = Console(width=None if sys.stdout.isatty() else 200)
    of, data, out = plan.of, plan.data, plan.out
    if (data / MANIFEST).is_file() and shape_of(read_manifest(data)) != of:
        # The preset has another meaning than when this was made.
        shutil.rmtree(data)
    if not (data / MANIFEST).is_file():
        data.parent.mkdir(parents=True, exist_ok=True)
        step(console, "generate", "--preset", of.name, "--seed", plan.seed, "--out", data)
    with EmbeddedZooKeeper(heap_mb=heap_mb_for(of), force_sync=True) as server:
        step(console, "load_cluster", data, "--zookeeper", server.connect_string)
        failures = uvloop.run(run(plan, server, console))
    converged = True
    try:
        step(console, "analyse", out / "run", "--out", out / "analysis")
    except StepFailed as failed:
        if failed.code != NOT_CONVERGED:
            raise
        converged = False  # the report says where
    title = title_of(of)
    step(console, "report", out / "analysis", "--out", out / "report", "--title", title)
    console.print(f"report: {out / 'report'}")
    for failure in failures:
        console.print(f"[red]no figure[/] {failure.scenario}: {failure.reason}")
    return 0 if converged and not failures else 1


def title_of(of: Shape) -> str:
    return f"{of.name}: {of.partitions:,} partitions, {of.brokers} brokers"


# -- run ---------------------------------------------------------------------------------------


async def run(plan: Plan, server: EmbeddedZooKeeper, console: Console) -> list[Failure]:
    console.rule("run")
    began = time.time()

    def show(m: Measurement) -> None:
        console.print(line(m), highlight=False, soft_wrap=True)

    async with open_stage(plan.of, server=server, loaded=True) as stage:
        stage.on_measured = show
        stage.quiet_s = plan.quiet_s
        turns = Turns(stage, chosen(plan.scenarios))
        for _ in range(plan.repeats):
            await measure_floor(stage, [s.name for s in turns.scenarios])
        await turns.measure(Kctl(), plan.repeats)
        played = [name for name in TRACES if name in plan.traces]
        if played:
            turns.failures += await play(stage, plan, played)
        await asyncio.to_thread(write, plan, stage, began)
    comparisons = results.compare(results.summarise(stage.measured))
    console.print(results.table(title_of(plan.of), comparisons))
    content: dict[str, Any] = {
        "run_id": plan.out.name,
        "preset": plan.of.name,
        "shape": attrs.asdict(plan.of),
        "cores": len(os.sched_getaffinity(0)),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(began)),
        "comparisons": results.as_json(comparisons),
        "left_out": turns.left_out,
        "failures": [attrs.asdict(f) for f in turns.failures],
    }
    (plan.out / "run.json").write_text(json.dumps(content, indent=1), "utf-8")
    return turns.failures


async def play(stage: Stage, plan: Plan, names: Sequence[str]) -> list[Failure]:
    """Each trace on the cluster as it was loaded; what deletes its topics comes last."""
    failures: list[Failure] = []
    await stage.enter(Kctl())
    try:
        for name in names:
            happenings = await asyncio.to_thread(read_trace, plan.data, name)
            if not happenings:
                continue
            await stage.go_home()
            player = Player(stage, plan.trace_s)
            try:
                await player.play(name, happenings)
            except (Incomplete, TimeoutError) as problem:
                failures.append(Failure("kctl", f"trace_{name}", str(problem)))
    finally:
        await stage.leave()
    return failures


def read_trace(data: Path, name: str) -> list[Happening]:
    read = pq.read_table(data / "events", filters=[("trace", "=", name)])
    rows = sorted(read.to_pylist(), key=lambda row: row["sequence"])
    return [
        Happening(**{**row, "replicas": tuple(row["replicas"]) if row["replicas"] else None})
        for row in rows
    ]


# -- what it leaves behind -----------------------------------------------------------------------


def write(plan: Plan, stage: Stage, began: float) -> None:
    folder, run_id, measured = plan.out / "run", plan.out.name, stage.measured
    rows = results.scenario_rows(run_id, plan.of.partitions, plan.of.brokers, measured)
    tables.write_rows(folder, tables.RUN["scenarios"], rows)
    rows = results.event_rows(run_id, plan.of.partitions, measured, began)
    tables.write_rows(folder, tables.RUN["events"], rows)
    tables.write_rows(folder, tables.RUN["phases"], results.phase_rows(run_id, measured))
    tables.write_rows(folder, tables.RUN["truth"], truth_rows(stage))
    tables.write_rows(folder, tables.RUN["beliefs"], belief_rows(stage))


def truth_rows(stage: Stage) -> Iterator[dict[str, Any]]:
    for tp, state in stage.truth.states.items():
        yield {
            "topic": tp.topic,
            "partition": tp.partition,
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "isr": sorted(state.isr),
            "replicas": list(stage.truth.replicas(tp)),
        }


def belief_rows(stage: Stage) -> Iterable[dict[str, Any]]:
    live = [b for b in stage.audience.heard if b in stage.brokers.live]
    for broker in live[:BELIEVERS_MAX]:
        for tp, state in stage.audience.beliefs[broker].metadata.items():
            yield {
                "broker": broker,
                "topic": tp.topic,
                "partition": tp.partition,
                "leader": state.leader,
                "leader_epoch": state.leader_epoch,
                "isr": sorted(state.isr),
                "replicas": list(state.replicas),
            }


if __name__ == "__main__":
    sys.exit(main())
