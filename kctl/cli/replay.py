"""`kctl replay`: run a journal through the core and say where it arrives."""

import datetime as dt
import json
from pathlib import Path
from typing import Annotated, Any

import attrs
import typer
from rich.console import Console

from kctl.cli.exits import Exit, clear_errors, fail
from kctl.insight.history import described, differences, state_at, story_of
from kctl.insight.replay import Replay, ReplayError, read_journal
from kctl.model.cluster import ClusterState

EXPECTED: dict[type[Exception], Exit] = {
    FileNotFoundError: Exit.NOT_FOUND,
    ReplayError: Exit.FAILED,
    OSError: Exit.USAGE,
}
SHOWN_MAX = 50


def register(app: typer.Typer) -> None:
    app.command(
        name="replay",
        epilog="Examples: kctl replay /var/log/kctl/journal --at 1200;  "
        "kctl replay journal --diff 1200 1201;  kctl replay journal --story orders-0",
    )(replay_command)


def replay_command(
    journal: Annotated[
        Path, typer.Argument(help="A file of a journal, or the name that kctl.journal was set to.")
    ],
    *,
    at: Annotated[
        int | None,
        typer.Option("--at", "--until", min=0, help="The state after so many events.", metavar="N"),
    ] = None,
    diff: Annotated[
        tuple[int, int] | None,
        typer.Option(min=0, help="What is different after event B from after event A."),
    ] = None,
    story: Annotated[
        str | None,
        typer.Option(help="What happened to a partition, topic or broker id.", metavar="KEY"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Run a journal through the core; the same journal always arrives at the same state."""
    if sum(given is not None for given in (at, diff, story)) > 1:
        raise fail(Exit.USAGE, "--at, --diff and --story are different questions: ask one")
    with clear_errors(EXPECTED, debug=debug):
        if diff is not None:
            _diff(journal, *diff, as_json=as_json)
        elif story is not None:
            _story(journal, story, as_json=as_json)
        else:
            _state(journal, at, as_json=as_json)


def _state(journal: Path, at: int | None, *, as_json: bool) -> None:
    if at is None:
        replay = Replay()
        replay.run(read_journal(journal))
    else:
        replay = state_at(read_journal(journal), at)
    found = summary(replay)
    cluster = None if replay.node is None else replay.node.cluster
    rows = _rows(cluster) if at is not None else {}
    if as_json:
        typer.echo(json.dumps(found if at is None else found | {"state": rows}))
        return
    console = Console(highlight=False, soft_wrap=True)
    for name, value in found.items():
        if value is not None:
            console.print(f"{name.replace('_', ' '):<18}{value}", markup=False)
    for name, row in list(rows.items())[:SHOWN_MAX]:
        console.print(f"  {name}: {row}", markup=False)
    if len(rows) > SHOWN_MAX:
        console.print(f"  and {len(rows) - SHOWN_MAX} more (all of them with --json)")


def _rows(cluster: ClusterState | None) -> dict[str, str]:
    if cluster is None:
        return {}
    return {str(tp): described(row) for tp, row in sorted(cluster.rows.items())}


def _diff(journal: Path, first: int, second: int, *, as_json: bool) -> None:
    states = []
    for point in (first, second):
        node = state_at(read_journal(journal), point).node
        states.append(None if node is None else node.cluster)
    lines = list(differences(*states))
    if as_json:
        typer.echo(json.dumps({"from": first, "to": second, "differences": lines}))
        return
    for line in lines or [f"nothing changed between event {first} and event {second}"]:
        typer.echo(line)


def _story(journal: Path, key: str, *, as_json: bool) -> None:
    chapters = list(story_of(read_journal(journal), key))
    if not chapters:
        raise ReplayError(f"nothing in this journal is about {key!r}")
    if as_json:
        typer.echo(json.dumps([_with_time(attrs.asdict(one)) for one in chapters]))
        return
    for one in chapters:
        change = f": {one.change}" if one.change else ""
        typer.echo(f"{_clock(one.at_ms)} #{one.event} {one.name}: {one.what}{change} ({one.why})")


def _with_time(chapter: dict[str, Any]) -> dict[str, Any]:
    return {"at": _clock(chapter.pop("at_ms")), **chapter}


def _clock(at_ms: int) -> str:
    at = dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC)
    return at.isoformat(timespec="milliseconds")


def summary(replay: Replay) -> dict[str, object]:
    node = replay.node
    cluster = None if node is None else node.cluster
    return {
        "events": replay.events,
        "replies": replay.effects,
        "skipped": replay.skipped,
        "until": _clock(replay.last_ms),
        "unfinished_event": replay.unfinished,
        "controller_epoch": None if cluster is None else cluster.epoch,
        "brokers": None if cluster is None else len(cluster.brokers),
        "topics": None if cluster is None else len(cluster.topics),
        "partitions": None if cluster is None else len(cluster.rows),
        "reassigning": None if cluster is None else len(cluster.reassigning),
        "deletions": None if cluster is None else len(cluster.deletions),
        "quarantine": None if cluster is None else len(cluster.quarantine),
        "state_hash": replay.state_hash,
    }
