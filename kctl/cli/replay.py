"""`kctl replay`: run a journal through the core and say where it arrives."""

import datetime as dt
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from kctl.cli.exits import Exit, clear_errors
from kctl.insight.replay import Replay, ReplayError, read_journal

EXPECTED: dict[type[Exception], Exit] = {
    FileNotFoundError: Exit.NOT_FOUND,
    ReplayError: Exit.FAILED,
    OSError: Exit.USAGE,
}


def register(app: typer.Typer) -> None:
    app.command(
        name="replay",
        epilog="Example: kctl replay /var/log/kctl/journal --until 1200 --json",
    )(replay_command)


def replay_command(
    journal: Annotated[
        Path, typer.Argument(help="A file of a journal, or the name that kctl.journal was set to.")
    ],
    *,
    until: Annotated[
        int | None, typer.Option(min=0, help="Stop after so many events.", metavar="N")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Run a journal through the core; the same journal always arrives at the same state."""
    with clear_errors(EXPECTED, debug=debug):
        replay = Replay()
        replay.run(read_journal(journal), until)
    found = summary(replay)
    if as_json:
        typer.echo(json.dumps(found))
        return
    table = Table(show_header=False, box=None)
    for name, value in found.items():
        table.add_row(name.replace("_", " "), "" if value is None else str(value))
    Console().print(table)


def summary(replay: Replay) -> dict[str, object]:
    node = replay.node
    cluster = None if node is None else node.cluster
    at = dt.datetime.fromtimestamp(replay.last_ms / 1000, dt.UTC)
    return {
        "events": replay.events,
        "replies": replay.effects,
        "skipped": replay.skipped,
        "until": at.isoformat(timespec="milliseconds"),
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
