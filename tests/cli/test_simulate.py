import json

import pytest
from typer.testing import CliRunner

from kctl.cli import app
from kctl.cli import simulate as command
from kctl.simulation.run import Result
from kctl.simulation.violations import Violation


def result(seed: int, violation: Violation | None = None) -> Result:
    return Result(seed, "", 200, {"broker killed": 3}, 4, 50, 9, {"S1": 7}, 60.0, 0.2, violation)


def test_a_seed_or_a_range() -> None:
    assert command.parse_seeds("7") == range(7, 8)
    assert command.parse_seeds("3..10") == range(3, 11)


@pytest.mark.parametrize("text", ["", "a", "1..", "1...5", "-3"])
def test_what_is_no_range_is_a_usage_error(text: str) -> None:
    assert CliRunner().invoke(app, ["simulate", "--seeds", text]).exit_code == 2


@pytest.mark.timeout(60)
def test_one_seed_as_json() -> None:
    found = CliRunner().invoke(app, ["simulate", "--seeds", "1", "--workers", "1", "--json"])
    summary = json.loads(found.output)
    assert (summary["seeds"], found.exit_code) == (1, 1 if summary["violations"] else 0)
    assert summary["writes_committed"] > 0
    assert summary["invariants_evaluated"]["S1"] > 0


def test_a_violation_is_told_and_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = Violation(5, "S1", "two writers", ("the story",))
    monkeypatch.setattr(command, "simulate_many", lambda *_: iter([result(4), result(5, bad)]))
    found = CliRunner().invoke(app, ["simulate", "--seeds", "4..6"])
    assert found.exit_code == 1
    assert "seed 5: S1: two writers" in found.output
    assert "the story" in found.output
    assert "broker killed 6" in found.output


def test_no_violation_is_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "simulate_many", lambda *_: iter([result(4)]))
    found = CliRunner().invoke(app, ["simulate", "--seeds", "4"])
    assert (found.exit_code, "violations             0" in found.output) == (0, True)
