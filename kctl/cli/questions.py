"""`kctl explain` and `kctl plan`: questions to a live cluster, answered without touching it."""

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any

import attrs
import typer
from aiozk.exc import ZKError
from rich.console import Console
from rich.table import Table

from kctl.cli.exits import Exit, clear_errors, fail
from kctl.insight.explain import Unknown, explain
from kctl.insight.plan import Outcome, Plan, PlanError, condition, describe, read_reassignment
from kctl.insight.snapshot import NotAKafkaCluster, Snapshot, open_reader, take_snapshot
from kctl.messages.term import SessionLost
from kctl.zookeeper.errors import NoServers

EXPECTED: dict[type[Exception], Exit] = {
    NoServers: Exit.NO_ZOOKEEPER,
    NotAKafkaCluster: Exit.NO_ZOOKEEPER,
    SessionLost: Exit.NO_ZOOKEEPER,
    ZKError: Exit.NO_ZOOKEEPER,
    Unknown: Exit.NOT_FOUND,
    PlanError: Exit.USAGE,
    ValueError: Exit.USAGE,
}

ZooKeeper = Annotated[
    str,
    typer.Option(
        "--zookeeper",
        "-z",
        envvar="KCTL_ZOOKEEPER_CONNECT",
        help="HOST:PORT[,HOST:PORT][/chroot] of the cluster.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


def register(app: typer.Typer) -> None:
    app.command(
        name="explain",
        epilog="Examples: kctl explain orders-17 -z zk1:2181/kafka;  kctl explain broker 4 -z zk1",
    )(explain_command)
    app.command(
        name="plan",
        epilog="Example: kctl plan -z zk1:2181 --shutdown 3 --fail-if 'offline>0'",
    )(plan_command)


def explain_command(
    subject: Annotated[
        list[str], typer.Argument(help="TOPIC-PARTITION, TOPIC or: broker ID", metavar="SUBJECT")
    ],
    zookeeper: ZooKeeper,
    *,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Say how a partition, topic or broker stands, and why. Reads only."""
    with clear_errors(EXPECTED, debug=debug):
        explanation = explain(_snapshot(zookeeper), " ".join(subject))
    if as_json:
        typer.echo(json.dumps(attrs.asdict(explanation)))
        return
    console = Console(highlight=False, soft_wrap=True)
    style = "green" if explanation.healthy else "yellow"
    console.print(f"[bold]{explanation.subject}[/]: [{style}]{explanation.verdict}[/]")
    for line in explanation.because:
        console.print(f"  because {line}", markup=False)
    for line in explanation.until:
        console.print(f"  until   {line}", markup=False)


def plan_command(  # noqa: PLR0917 the steps are options, in the order of the help
    zookeeper: ZooKeeper,
    kill: Annotated[list[int], typer.Option(help="This broker dies.", metavar="ID")] = [],  # noqa: B006 typer copies it
    shutdown: Annotated[
        list[int], typer.Option(help="This broker is shut down in order.", metavar="ID")
    ] = [],  # noqa: B006
    rack_loss: Annotated[
        list[str], typer.Option(help="All brokers of this rack die at once.", metavar="RACK")
    ] = [],  # noqa: B006
    reassign: Annotated[
        list[Path],
        typer.Option(help="JSON as for kafka-reassign-partitions.", metavar="FILE"),
    ] = [],  # noqa: B006
    elect: Annotated[
        list[str], typer.Option(help="preferred: give leaderships back.", metavar="TYPE")
    ] = [],  # noqa: B006
    fail_if: Annotated[
        str | None, typer.Option(help="Exit with 1 if this holds, such as 'offline>0'.")
    ] = None,
    *,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Say what would happen, step by step in the order of the command line. Changes nothing."""
    with clear_errors(EXPECTED, debug=debug):
        forbidden = condition(fail_if) if fail_if else None
        steps = _steps(kill, shutdown, rack_loss, reassign, elect)
        if not steps:
            raise PlanError("nothing to plan: give --kill, --shutdown, --rack-loss, ...")
        plan = Plan(_snapshot(zookeeper))
        for step, argument in steps:
            _apply(plan, step, argument)
        outcome = plan.outcome()
    if as_json:
        typer.echo(json.dumps(_as_json(outcome)))
    else:
        _print_outcome(outcome)
    if forbidden is not None and forbidden(outcome):
        raise fail(Exit.FAILED, f"{fail_if} holds")


def _snapshot(zookeeper: str) -> Snapshot:
    async def take() -> Snapshot:
        async with open_reader(zookeeper) as reader:
            return await take_snapshot(reader)

    return asyncio.run(take())


def _steps(*given: list[Any]) -> list[tuple[str, Any]]:
    """All steps in the order in which they were typed, which the parser does not keep."""
    import sys  # noqa: PLC0415 only here

    names = ("--kill", "--shutdown", "--rack-loss", "--reassign", "--elect")
    queues = dict(zip(names, (list(values) for values in given), strict=True))
    steps = []
    for word in sys.argv:
        name = word.partition("=")[0]
        if queues.get(name):
            steps.append((name, queues[name].pop(0)))
    return steps + [(name, value) for name, values in queues.items() for value in values]


def _apply(plan: Plan, step: str, argument: Any) -> None:
    match step:
        case "--kill":
            plan.kill(argument)
        case "--shutdown":
            plan.shutdown(argument)
        case "--rack-loss":
            plan.rack_loss(argument)
        case "--reassign":
            plan.reassign(read_reassignment(argument))
        case _:
            if argument != "preferred":
                raise PlanError(f"--elect {argument}: only preferred can be planned")
            plan.elect_preferred()


def _as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        **outcome.counts(),
        "offline_partitions": [str(tp) for tp in outcome.offline],
        "under_min_isr_partitions": [str(tp) for tp in outcome.under_min_isr],
        "requests_by_broker": outcome.requests,
        "refused_partitions": {str(tp): why for tp, why in outcome.refused.items()},
        "changes": [
            {
                "partition": str(c.partition),
                "leader": [c.before.leader, c.after.leader],
                "isr": [list(c.before.isr), list(c.after.isr)],
                "replicas": [list(c.before.replicas), list(c.after.replicas)],
            }
            for c in outcome.changes
        ],
    }


def _print_outcome(outcome: Outcome) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for line in describe(outcome):
        console.print(f"  {line}", markup=False)
    table = Table(show_header=False, box=None)
    for name, count in outcome.counts().items():
        bad = name in ("offline", "under_min_isr", "refused") and count
        table.add_row(name.replace("_", " "), f"[red]{count}[/]" if bad else str(count))
    console.print(table)
    for tp, why in outcome.refused.items():
        console.print(f"  refused {tp}: {why}", markup=False)
