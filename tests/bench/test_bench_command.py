"""`kctl bench` and the commands of scripts/bench: tables, JSON, and errors in one line."""

import json
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kctl.bench.subject import Profiles
from kctl.cli import app
from kctl.zookeeper import embedded
from kctl.zookeeper.jars import ServerUnavailable


def invoke(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["bench", *arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.zookeeper
def test_it_prints_json_with_the_floor_beside_it() -> None:
    code, out, err = invoke(
        "--partitions", "100", "--topic-size", "10", "--brokers", "3", "--repeats", "1",
        "--scenario", "failover", "--json",
    )  # fmt: skip
    assert code == 0, err
    content = json.loads(out)
    (found,) = [s for s in content["scenarios"] if s["scenario"] == "failover"]
    assert found["kctl"]["count"] == 1
    assert found["ratio_to_floor"] > 0
    assert content["failures"] == []


def test_an_unknown_scenario_is_a_wrong_argument() -> None:
    code, _, err = invoke("--scenario", "nothing")
    assert code == 2
    assert "no scenario is named 'nothing'" in err


def test_without_java_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java() -> None:
        raise ServerUnavailable("Java 17 or later is needed")

    monkeypatch.setattr(embedded, "find_java", no_java)
    monkeypatch.setattr(embedded, "class_path", lambda _: [])
    code, out, err = invoke("--partitions", "10")
    assert code == 1
    assert "Java 17 or later is needed" in err
    assert out == ""


@pytest.mark.parametrize(
    "command,message",
    [
        (["side_by_side", "--scenarios", "nothing"], "no scenario is named 'nothing'"),
        (["side_by_side", "--partitions", "many"], "--partitions is 'many': numbers from 1 on"),
        (["side_by_side", "--partitions", "10,0"], "--partitions is '10,0': numbers from 1 on"),
        (["side_by_side", "--against", "another"], "--against is 'another': kafka-VERSION"),
        (["pipeline", "--preset", "nothing"], "nothing"),
        (["pipeline", "--preset", "ci-2k", "--traces", "nothing"], "no trace is named 'nothing'"),
    ],
)
def test_wrong_arguments_end_it_before_anything_starts(
    command: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: object,
) -> None:
    pytest.importorskip("pyarrow")
    job = import_module(f"bench.{command[0]}")
    monkeypatch.setattr(sys, "argv", [*command, "--out", str(tmp_path)])
    assert job.main() == 2
    assert message in capsys.readouterr().err


def test_a_profile_says_where_the_time_went(tmp_path: Path) -> None:
    profiles = Profiles(tmp_path)
    profiles.begin()
    busy_until = time.monotonic() + 0.2
    while time.monotonic() < busy_until:
        sum(range(1_000))
    profiles.end()
    profiles.end()  # without a beginning: nothing more
    (written,) = tmp_path.iterdir()
    text = written.read_text("utf-8")
    assert "samples, about one each 1 ms" in text
    assert "test_a_profile_says_where_the_time_went" in text
