"""Run seeds: one at a time here, many in processes for the command line."""

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext

import attrs

from kctl.simulation.violations import Violation
from kctl.simulation.world import World


@attrs.frozen
class Result:
    seed: int
    trace_hash: str
    writes: int
    """Committed transactions."""
    faults: dict[str, int]
    failovers: int
    """Controllerships claimed."""
    acknowledged: int
    answers: int
    invariants: dict[str, int]
    """How often each was evaluated."""
    virtual_s: float
    seconds: float
    """Of CPU time."""
    violation: Violation | None = None


def simulate(
    seed: int, *, mutate: AbstractContextManager[object] | None = None, keep: bool = True
) -> Result:
    """One seed. `mutate` may change the core while it runs, for tests that the checkers notice.

    With `keep` a violation is part of the result, else it is raised.
    """
    started = time.process_time()
    violation: Violation | None = None
    with mutate or nullcontext():
        world = World(seed)
        try:
            world.run()
        except Violation as found:
            if not keep:
                raise
            violation = found
    safety = world.safety
    return Result(
        seed,
        world.trace.digest(),
        safety.writes,
        dict(world.mishaps),
        safety.claims,
        safety.durability.acknowledged_count,
        world.callers.answers,
        dict(safety.evaluated),
        world.now / 1_000,
        time.process_time() - started,
        violation,
    )


def simulate_many(seeds: Iterable[int], workers: int) -> Iterator[Result]:
    """In order of the seeds."""
    if workers <= 1:
        yield from map(simulate, seeds)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(simulate, seeds, chunksize=4)
