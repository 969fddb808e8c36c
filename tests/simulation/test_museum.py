"""Each bug that is put back must be noticed; how many seeds it took is printed."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kctl.simulation.run import simulate
from tests.simulation.museum import EXHIBITS, Exhibit

SEEDS_MAX = 100
"""Enough for the shyest bug by a wide margin, and still a bounded time."""


@contextmanager
def put_back(exhibit: Exhibit) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        exhibit.put_back(patch)
        yield


@pytest.mark.timeout(600)
@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda e: f"{e.number}-{e.put_back.__name__}")
def test_the_bug_is_caught(exhibit: Exhibit, capsys: pytest.CaptureFixture[str]) -> None:
    for tried, seed in enumerate(range(1, SEEDS_MAX + 1), 1):
        result = simulate(seed, mutate=put_back(exhibit))
        if result.violation is not None:
            assert simulate(seed).violation is None, "the seed fails without the bug too"
            with capsys.disabled():
                print(f"\n{exhibit}: {result.violation.invariant} after {tried} seeds", end="")  # noqa: T201 that is what is asked for
            return
    pytest.fail(f"{SEEDS_MAX} seeds did not notice: {exhibit}")


def test_the_museum_has_enough_exhibits() -> None:
    assert len({e.number for e in EXHIBITS}) >= 20
