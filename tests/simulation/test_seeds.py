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


ONCE_FAILED = {
    "a log is lost before a new controller reads the registrations": (124, 697),
    "a log is lost while the znodes of its topic are malformed": (987,),
    "an old leader acknowledges after an unclean election": (1537,),
    "a broker refuses to hear of a deletion": (434, 911, 1118, 1257),
    "a broker has no session while a topic is deleted": (749,),
    "a topic is deleted while the state of a partition is malformed": (1210, 1633),
    "a state is repaired just before its leader asks to leave": (724, 860),
    "a follower does not know its leader and the controller dies": (1014, 1203, 1258, 1346, 1375),
    "a new follower does not know its leader but is in the ISR": (1273, 1828),
    "an old leader adds a replica that is leaving": (1831,),
    "a leader asks for an ISR while its state is malformed": (941,),
    "a state is repaired between two terms": (209,),
    "a broker is told again while a deletion is under way": (697,),
    "a replaced controller gives leave": (446,),
    "a topic loses its id between a claim and the first look": (1818,),
    "a topic without id is created again where a stray replica is left": (241,),
    "a topic is repaired in the middle of a reassignment": (840,),
}
"""What turned out to be wrong, in the core or in what was expected of it, and where. Seeds change
their course with every change of the simulation; the rules are shown one by one in tests/logic."""


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seeds", ONCE_FAILED.values(), ids=ONCE_FAILED)
def test_what_once_failed(seeds: tuple[int, ...]) -> None:
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
