"""Every command explains itself, and none is imported for the sake of another."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from kctl.cli import HOMES, app


@pytest.mark.parametrize("command", [*HOMES, "version"])
def test_help_has_an_example(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0, result.output
    assert "Example" in result.output
    assert f"kctl {command}" in " ".join(result.output.split())


def test_the_list_of_commands() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    for command in HOMES:
        assert command in result.output


@pytest.mark.parametrize("arguments", [["nonsense"], ["run", "--nonsense"], ["explain"]])
def test_wrong_arguments_are_named(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "Error" in result.output


def test_a_command_imports_only_its_own() -> None:
    program = (
        "import sys, kctl.cli\n"
        "try:\n    kctl.cli.app(['version'])\nexcept SystemExit:\n    pass\n"
        "print(sorted(m for m in sys.modules if m.startswith(('kctl.', 'aiokafka'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=15
    )
    assert done.stdout.splitlines()[-1] == "['kctl.cli']"
