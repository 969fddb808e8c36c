"""`kctl explain` and `kctl plan`: questions to a live cluster, answered without touching it."""

import asyncio
import json
import os
from pathlib import Path
from typing import Annotated, Any

import attrs
import javaproperties
import typer
from aiozk.exc import ZKError
from rich.console import Console
from typer.core import TyperCommand

from kctl.cli.exits import Exit, clear_errors, fail
from kctl.insight.explain import Unknown, explain
from kctl.insight.plan import Outcome, Plan, PlanError, condition, describe, read_reassignment
from kctl.insight.snapshot import (
    Access,
    NoPermission,
    NotAKafkaCluster,
    NoZooKeeper,
    Snapshot,
    open_reader,
    take_snapshot,
)
from kctl.messages.term import SessionLost
from kctl.runtime.config import Config, ConfigError
from kctl.runtime.security import towards_zookeeper

EXPECTED: dict[type[Exception], Exit] = {
    NoZooKeeper: Exit.NO_ZOOKEEPER,
    NotAKafkaCluster: Exit.NO_ZOOKEEPER,
    NoPermission: Exit.NO_PERMISSION,
    SessionLost: Exit.NO_ZOOKEEPER,
    ZKError: Exit.NO_ZOOKEEPER,
    Unknown: Exit.NOT_FOUND,
    ConfigError: Exit.USAGE,
    PlanError: Exit.USAGE,
    ValueError: Exit.USAGE,
}

ZooKeeper = Annotated[
    str | None,
    typer.Option(
        "--zookeeper",
        "-z",
        envvar="KCTL_ZOOKEEPER_CONNECT",
        help="HOST:PORT\\[,HOST:PORT]\\[/chroot] of the cluster.",
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="A broker's server.properties: zookeeper.connect, how to reach a secured ZooKeeper, "
        "and what the brokers do where the cluster says nothing.",
    ),
]
TYPED = "kctl.typed"
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


def register(app: typer.Typer) -> None:
    app.command(
        name="explain",
        epilog="Examples: kctl explain orders-17 -z zk1:2181/kafka;  kctl explain broker 4 -z zk1",
    )(explain_command)
    app.command(
        name="plan",
        cls=InOrder,
        epilog="Examples: kctl plan -z zk1:2181 --shutdown 3 --fail-if 'offline>0';  "
        "kctl plan -z zk1:2181 --rack-loss a --kill 7. "
        f"--fail-if takes COUNT OPERATOR NUMBER; counts: {', '.join(Outcome().counts())}; "
        "operators: > >= < <= == !=.",
    )(plan_command)


class InOrder(TyperCommand):
    """Keeps the words as they were typed: steps follow one another in that order."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[TYPED] = list(args)
        return super().parse_args(ctx, args)


def explain_command(
    subject: Annotated[
        list[str],
        typer.Argument(help="TOPIC-PARTITION, TOPIC, broker ID or controller", metavar="SUBJECT"),
    ],
    zookeeper: ZooKeeper = None,
    *,
    config: ConfigFile = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Say how a partition, topic or broker stands, and why. Reads only."""
    with clear_errors(EXPECTED, debug=debug):
        explanation = explain(_snapshot(zookeeper, config), " ".join(subject))
    if as_json:
        typer.echo(json.dumps(attrs.asdict(explanation)))
        return
    console = Console(highlight=False, soft_wrap=True)
    style = "green" if explanation.healthy else "yellow"
    console.print(f"[bold]{explanation.subject}[/]: ", end="")
    console.print(explanation.verdict, style=style, markup=False)
    for line in explanation.lines():
        console.print(f"  {line}", markup=False)


def plan_command(  # noqa: PLR0917 the steps are options, in the order of the help
    context: typer.Context,
    zookeeper: ZooKeeper = None,
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
        list[str],
        typer.Option(help="Exit with 1 if this holds, such as 'offline>0'.", metavar="CONDITION"),
    ] = [],  # noqa: B006
    *,
    config: ConfigFile = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Say what would happen, step by step in the order of the command line. Changes nothing."""
    with clear_errors(EXPECTED, debug=debug):
        forbidden = [condition(text) for text in fail_if]
        steps = _steps(context.meta[TYPED], kill, shutdown, rack_loss, reassign, elect)
        if not steps:
            raise PlanError("nothing to plan: give --kill, --shutdown, --rack-loss, ...")
        plan = Plan(_snapshot(zookeeper, config))
        for step, argument in steps:
            _apply(plan, step, argument)
        outcome = plan.outcome()
    if as_json:
        typer.echo(json.dumps(_as_json(outcome)))
    else:
        _print_outcome(outcome)
    if broken := [one for one in forbidden if one(outcome)]:
        counts = outcome.counts()
        held = ", ".join(f"{one.text} ({one.count} is {counts[one.count]})" for one in broken)
        raise fail(Exit.FAILED, f"do not do this: {held}")


def access(zookeeper: str | None, config: Path | None) -> Access:
    """Where to ask, and with what rights."""
    given = {} if zookeeper is None else {"zookeeper.connect": zookeeper}
    if zookeeper is None and config is None:
        raise ConfigError("give --zookeeper HOST:PORT[/chroot], or --config server.properties")
    found = Config.load(config, os.environ, given)
    scheme, _, credentials = found.zookeeper_auth.partition(":")
    auth = ((scheme, credentials.encode()),) if found.zookeeper_auth else ()
    return Access(found.zookeeper_connect, towards_zookeeper(found), auth)


def _snapshot(zookeeper: str | None, config: Path | None) -> Snapshot:
    where = access(zookeeper, config)
    properties = {} if config is None else javaproperties.loads(config.read_text("utf-8"))

    async def take() -> Snapshot:
        async with open_reader(where) as reader:
            return await take_snapshot(reader)

    with Console(stderr=True).status("reading the cluster"):
        return asyncio.run(take()).with_file(properties)


def _steps(typed: list[str], *given: list[Any]) -> list[tuple[str, Any]]:
    """All steps in the order in which they were typed, which the parser does not keep."""
    names = ("--kill", "--shutdown", "--rack-loss", "--reassign", "--elect")
    queues = dict(zip(names, (list(values) for values in given), strict=True))
    steps = []
    for word in typed:
        name = word.partition("=")[0]
        if queues.get(name):
            steps.append((name, queues[name].pop(0)))
    return steps


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
        "steps": list(outcome.steps),
        **outcome.counts(),
        "forecast_s": round(outcome.forecast_s, 3),
        "offline_partitions": [str(tp) for tp in outcome.offline],
        "under_min_isr_partitions": [str(tp) for tp in outcome.under_min_isr],
        "requests_by_broker": outcome.traffic.requests,
        "bytes_by_broker": outcome.traffic.bytes,
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


BAD = ("offline", "newly_offline", "under_min_isr", "newly_under_min_isr", "refused")


def _print_outcome(outcome: Outcome) -> None:
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"If you {', then '.join(outcome.steps)}:", markup=False)
    for line in describe(outcome) or ["nothing changes"]:
        console.print(f"  {line}", markup=False)
    for name, count in outcome.counts().items():
        style = "red" if name in BAD and count else ""
        console.print(f"{name.replace('_', ' '):<21}{count}", style=style)
    forecast = f"{outcome.forecast_s:.2f} s from the moment it is noticed"
    console.print(f"{'forecast':<21}{forecast}")
    for broker, count in sorted(outcome.traffic.requests.items()):
        size = outcome.traffic.bytes[broker]
        console.print(f"  broker {broker}: {count} requests, {size} bytes", markup=False)
    for tp, why in outcome.refused.items():
        console.print(f"  refused {tp}: {why}", markup=False)
