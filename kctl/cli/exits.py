"""Exit codes, and errors as one clear line."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import typer
from rich.console import Console
from rich.markup import escape


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    """What was asked for is not so: a violated invariant, a `--fail-if` that holds."""
    USAGE = 2
    """Arguments or configuration that cannot be used."""
    STOOD_DOWN = 3
    """The controller gave up campaigning; its log says why."""
    NO_ZOOKEEPER = 4
    """No ZooKeeper, or not the one of a Kafka cluster, at that address."""
    NOT_FOUND = 5
    """There is no such topic, partition, broker or file."""
    NO_REACTION = 6
    """The controller that was watched is absent, or does not react."""
    NO_PERMISSION = 7
    """ZooKeeper refuses to show it."""


def fail(code: Exit, message: str) -> typer.Exit:
    """Print one line to standard error; raise what this returns."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(
        f"[bold red]kctl:[/] {escape(message)}" if sys.stderr.isatty() else f"kctl: {message}",
        markup=sys.stderr.isatty(),
    )
    return typer.Exit(code)


@contextmanager
def clear_errors(expected: dict[type[Exception], Exit], *, debug: bool = False) -> Iterator[None]:
    """Turn the errors that a user can do something about into one line and an exit code."""
    try:
        yield
    except tuple(expected) as error:
        if debug:
            raise
        code = next(code for kind, code in expected.items() if isinstance(error, kind))
        raise fail(code, " ".join(str(error).split())) from None
