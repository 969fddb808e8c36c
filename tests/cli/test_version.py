import json
import subprocess
import sys
from importlib.metadata import version

from typer.testing import CliRunner

from kctl.cli import app


def test_version_prints_the_installed_version() -> None:
    result = CliRunner().invoke(app, ["version"])
    assert (result.exit_code, result.output.strip()) == (0, version("kctl"))


def test_version_as_json() -> None:
    result = CliRunner().invoke(app, ["version", "--json"])
    assert json.loads(result.output) == {"version": version("kctl")}


def test_the_module_is_the_same_program() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "kctl", "version"], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == version("kctl")


def test_an_unknown_command_is_a_usage_error() -> None:
    assert CliRunner().invoke(app, ["no-such-command"]).exit_code == 2
