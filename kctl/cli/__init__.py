"""The command line: arguments and output only; what it does lives in the layers below.

A command's module is imported when that command is used: what most of them stand on takes a second
to import, and nobody should wait a second for a version or a typing error.
"""

import json
from importlib import import_module
from typing import Annotated, Final

import typer
from typer.core import TyperGroup

import kctl

HOMES: Final = {
    "run": "run",
    "up": "up",
    "explain": "questions",
    "plan": "questions",
    "shadow": "shadow",
    "replay": "replay",
    "simulate": "simulate",
    "bench": "bench",
}
"""The module of each command, in the order of the help."""


class Commands(TyperGroup):
    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        return [*HOMES, *super().list_commands(ctx)]

    def get_command(self, ctx: typer.Context, cmd_name: str):  # type: ignore[no-untyped-def,override]
        if cmd_name not in HOMES:
            return super().get_command(ctx, cmd_name)
        home = typer.Typer()
        # With a callback it is a group, however few its commands.
        home.callback()(lambda: None)
        import_module(f"kctl.cli.{HOMES[cmd_name]}").register(home)
        return typer.main.get_group(home).get_command(ctx, cmd_name)


app = typer.Typer(
    name="kctl",
    cls=Commands,
    help="A Kafka controller for clusters in ZooKeeper mode.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def _root() -> None:
    """Keep `version` a command of its own: it is the only one that is known from the start."""


@app.command(epilog="Example: kctl version --json")
def version(
    *, as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False
) -> None:
    """Print the version of kctl."""
    typer.echo(json.dumps({"version": kctl.__version__}) if as_json else kctl.__version__)


def main() -> None:
    """Run the command that the arguments name."""
    app()
