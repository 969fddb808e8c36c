"""`kctl bench`: how long the controller takes for what happens to a cluster, on this machine."""

import json
import sys
from collections.abc import Callable
from typing import Annotated

import attrs
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from kctl.bench import results
from kctl.bench.scenarios import SCENARIOS, UnknownScenario, chosen
from kctl.bench.shapes import ImpossibleShape, Shape
from kctl.bench.stage import open_stage
from kctl.bench.systems import Kctl
from kctl.bench.turns import Turns
from kctl.cli.exits import Exit, clear_errors, fail
from kctl.cli.run import run_loop
from kctl.zookeeper.jars import ServerUnavailable

_NAMES = "\n".join(f"  {s.name:20} {s.about}" for s in SCENARIOS.values())
EPILOG = f"""\b
Scenarios
{_NAMES}

\b
Exit codes
  0  every scenario was complete
  1  a scenario was not complete, or a server cannot be started here
  2  a wrong argument

\b
Examples
  kctl bench                                      2,000 partitions, all scenarios
  kctl bench --partitions 100000 --scenario failover --scenario broker_failure --repeats 5
"""


def register(app: typer.Typer) -> None:
    app.command(name="bench", epilog=EPILOG)(bench_command)


def bench_command(
    *,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of the cluster.")] = 2_000,
    topic_size: Annotated[int, typer.Option(min=1, help="Partitions of each topic.")] = 50,
    brokers: Annotated[int, typer.Option(min=1, max=1_000, help="Simulated brokers.")] = 10,
    scenario: Annotated[
        list[str] | None, typer.Option(help="One of those below; repeatable. All if not given.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="How often each is measured.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
) -> None:
    """Measure the controller on a real ZooKeeper with simulated brokers.

    Nothing outside of this machine is touched. Beside each figure stands the floor: the least
    ZooKeeper work that the scenario needs, done by a bare client. "noise" is the share of the
    machine that other processes took meanwhile.
    """
    errors: dict[type[Exception], Exit] = {
        UnknownScenario: Exit.USAGE,
        ImpossibleShape: Exit.USAGE,
        ServerUnavailable: Exit.FAILED,
    }
    with clear_errors(errors, debug=debug):
        chosen(scenario or [])
        topics = max(1, partitions // topic_size)
        factor = min(3, brokers)
        shape = Shape(
            f"bench-{partitions}", topics, partitions, brokers, replication=((factor, 1.0),)
        )
        failed = run_loop(lambda: measure(shape, scenario or [], repeats, as_json=as_json))
    if failed:
        raise typer.Exit(Exit.FAILED)


async def measure(shape: Shape, names: list[str], repeats: int, *, as_json: bool) -> bool:
    """Whether something was not complete."""
    scenarios = chosen(names)
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description:32}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not sys.stderr.isatty(),
        transient=True,
    ) as progress:
        znodes = 2 * shape.partitions + 3 * shape.topics
        loading = progress.add_task("loading the cluster", total=znodes)
        async with open_stage(
            shape, progress=lambda done: progress.update(loading, completed=done)
        ) as stage:
            total = Turns.steps(len(scenarios), systems=1, turns=1, passes=repeats)
            bar = progress.add_task("measuring", total=total)
            turns = Turns(stage, scenarios, _stepper(progress, bar))
            await turns.run([Kctl], turns=1, passes=repeats)
    comparisons = results.compare(results.summarise(stage.measured))
    for name, reason in turns.left_out.items():
        console.print(f"{name} is left out: {reason}", highlight=False)
    for failure in turns.failures:
        fail(Exit.FAILED, f"{failure.scenario}: no figure, {failure.reason}")
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "shape": attrs.asdict(shape),
                    "scenarios": results.as_json(comparisons),
                    "left_out": turns.left_out,
                    "failures": [attrs.asdict(f) for f in turns.failures],
                }
            )
        )
    else:
        title = f"{shape.partitions:,} partitions, {shape.topics:,} topics, {shape.brokers} brokers"
        width = None if sys.stdout.isatty() else 140
        Console(width=width).print(results.table(title, comparisons))
    return bool(turns.failures)


def _stepper(progress: Progress, bar: TaskID) -> Callable[[str, str], None]:
    def step(system: str, scenario: str) -> None:
        progress.update(bar, advance=1, description=f"{system}: {scenario}")

    return step
