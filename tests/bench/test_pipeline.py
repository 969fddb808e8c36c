"""scripts/bench --preset: generate, load, run, analyse, report, in a small size."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BOUND_S = 900
"""Four Spark jobs, one after the other, perhaps on a busy machine."""


@pytest.mark.spark
@pytest.mark.zookeeper
@pytest.mark.timeout(BOUND_S)
def test_from_a_preset_to_a_report(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "bench.pipeline", "--preset", "ci-2k", "--out", str(out)]
    command += ["--scenarios", "failover,broker_failure", "--traces", "topic_storm"]
    command += ["--trace-s", "0.5", "--work", str(tmp_path / "work")]
    run = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=BOUND_S - 60, check=False
    )
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
    content = json.loads((out / "run.json").read_text("utf-8"))
    measured = {row["scenario"] for row in content["comparisons"]}
    assert {"failover", "broker_failure", "trace_topic_storm"} <= measured
    assert content["failures"] == []
    assert (out / "analysis" / "analysis.json").is_file()
    report = (out / "report" / "report.md").read_text("utf-8")
    assert "failover" in report
