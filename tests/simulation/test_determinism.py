"""The same seed runs the same way in every process."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
from kctl.simulation.run import simulate
for seed in (3, 11):
    result = simulate(seed)
    print(seed, result.trace_hash, result.writes)
"""


def hashes(hash_seed: str) -> str:
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=env
    )
    return found.stdout


@pytest.mark.timeout(120)
def test_a_seed_gives_the_same_trace_in_any_process() -> None:
    first = hashes("1")
    assert first.count("\n") == 2
    assert hashes("4242") == first


@pytest.mark.timeout(120)
def test_other_seeds_give_other_traces() -> None:
    lines = hashes("0").splitlines()
    assert lines[0].split()[1] != lines[1].split()[1]
