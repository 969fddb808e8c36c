"""`kctl simulate`: worlds from seeds that try to break the controller."""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kctl.cli.exits import Exit
from kctl.simulation.run import Result, simulate_many

REPORTS_MAX = 3


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: kctl simulate --seeds 1..500")(simulate)


def parse_seeds(text: str) -> range:
    found = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", text)
    if found is None:
        raise typer.BadParameter("give one seed, or A..B for all from A to B")
    first = int(found[1])
    return range(first, int(found[2] or first) + 1)


def simulate(
    *,
    seeds: Annotated[str, typer.Option(help="One seed, or A..B: from A to B, both included.")],
    workers: Annotated[int | None, typer.Option(help="Processes; one for each core.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run the live core in simulated clusters full of faults, and check every invariant.

    Each seed is a world of its own: brokers, controllers, a ZooKeeper ensemble, people. The same
    seed always runs the same way. Exit code 1 if an invariant was violated.
    """
    wanted = parse_seeds(seeds)
    processes = min(workers or os.cpu_count() or 1, max(1, len(wanted)))
    results = simulate_many(wanted, processes)
    summary = Summary()
    if as_json:
        summary.add_all(results)
        typer.echo(json.dumps(summary.as_json()))
    else:
        console = Console()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        disable = not console.is_terminal
        with Progress(*columns, console=console, disable=disable, transient=True) as progress:
            summary.add_all(progress.track(results, len(wanted), description="seeds"))
        console.print(summary.as_text(), highlight=False, markup=False, soft_wrap=True)
    if summary.violations:
        raise typer.Exit(Exit.FAILED)


class Summary:
    def __init__(self) -> None:
        self.seeds = self.writes = self.failovers = self.answers = self.acknowledged = 0
        self.seconds = self.virtual_s = 0.0
        self.faults: Counter[str] = Counter()
        self.invariants: Counter[str] = Counter()
        self.violations: list[Result] = []

    def add_all(self, results: Iterable[Result]) -> None:
        for result in results:
            self.seeds += 1
            self.writes += result.writes
            self.failovers += result.failovers
            self.answers += result.answers
            self.acknowledged += result.acknowledged
            self.seconds += result.seconds
            self.virtual_s += result.virtual_s
            self.faults.update(result.faults)
            self.invariants.update(result.invariants)
            if result.violation is not None:
                self.violations.append(result)

    def as_json(self) -> dict[str, object]:
        return {
            "seeds": self.seeds,
            "writes_committed": self.writes,
            "faults": dict(self.faults.most_common()),
            "controller_failovers": self.failovers,
            "requests_answered": self.answers,
            "records_acknowledged": self.acknowledged,
            "invariants_evaluated": dict(sorted(self.invariants.items())),
            "cluster_hours": round(self.virtual_s / 3_600, 2),
            "cpu_seconds_a_seed": round(self.seconds / max(1, self.seeds), 3),
            "violations": [
                {
                    "seed": result.seed,
                    "invariant": result.violation.invariant,
                    "message": result.violation.message,
                    "story": list(result.violation.story),
                }
                for result in self.violations
                if result.violation is not None
            ],
        }

    def as_text(self) -> str:
        kinds = ", ".join(f"{kind} {count}" for kind, count in self.faults.most_common())
        checks = ", ".join(f"{name} {count}" for name, count in sorted(self.invariants.items()))
        hours, each = self.virtual_s / 3_600, self.seconds / max(1, self.seeds)
        lines = [
            f"{self.seeds} seeds, {hours:.1f} cluster-hours, {each:.3f} CPU seconds a seed",
            f"writes committed       {self.writes}",
            f"controller failovers   {self.failovers}",
            f"requests answered      {self.answers}",
            f"records acknowledged   {self.acknowledged}",
            f"faults                 {self.faults.total()}: {kinds}",
            f"invariants evaluated   {self.invariants.total()}: {checks}",
            f"violations             {len(self.violations)}",
        ]
        for result in self.violations[:REPORTS_MAX]:
            if result.violation is not None:
                lines += ["", result.violation.report()]
        rest = [str(result.seed) for result in self.violations[REPORTS_MAX:]]
        if rest:
            lines += ["", f"violated too: seeds {', '.join(rest)}"]
        return "\n".join(lines)
