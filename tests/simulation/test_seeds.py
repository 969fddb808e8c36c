"""Worlds full of faults. KCTL_SEEDS=1000..2000 runs others than the default ones."""

import os

import pytest

from kctl.cli.simulate import parse_seeds
from kctl.simulation.run import simulate

SEEDS = parse_seeds(os.environ.get("KCTL_SEEDS", "0..100"))
CHUNK = 20
CHUNKS = [
    range(first, min(first + CHUNK, SEEDS.stop)) for first in range(SEEDS.start, SEEDS.stop, CHUNK)
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seeds", CHUNKS, ids=lambda r: f"{r.start}..{r.stop}")
def test_no_invariant_is_violated(seeds: range) -> None:
    reports = [
        result.violation.report() for result in map(simulate, seeds) if result.violation is not None
    ]
    assert not reports, "\n\n".join(reports)


@pytest.mark.timeout(120)
def test_a_seed_is_worth_its_name() -> None:
    """Enough happens in a world: writes, faults, changes of the controller, every checker at work."""
    results = [simulate(seed) for seed in range(10)]
    writes = sum(result.writes for result in results) / len(results)
    faults = sum(sum(result.faults.values()) for result in results) / len(results)
    failovers = sum(result.failovers for result in results) / len(results)
    assert (writes >= 150, faults >= 10, failovers >= 2) == (True, True, True)
    checked = {name for result in results for name in result.invariants}
    assert checked >= {f"S{n}" for n in range(1, 17)} - {"S9"}
