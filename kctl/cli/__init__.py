"""The command line: arguments and output only; what it does lives in the layers below."""

import json
from typing import Annotated

import typer

import kctl
from kctl.cli import questions, replay, simulate, up
from kctl.cli import run as run_command

app = typer.Typer(
    name="kctl",
    help="A Kafka controller for clusters in ZooKeeper mode.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def _root() -> None:
    """Keep `version` a command of its own while it is the only one."""


@app.command(epilog="Example: kctl version --json")
def version(
    *, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """Print the version of kctl."""
    typer.echo(json.dumps({"version": kctl.__version__}) if as_json else kctl.__version__)


questions.register(app)
replay.register(app)
simulate.register(app)
up.register(app)
app.command("run", epilog=run_command.EPILOG)(run_command.run)


def main() -> None:
    """Run the command that the arguments name."""
    app()
