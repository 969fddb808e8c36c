"""Several requests under way at once, but never too many."""

import asyncio
from collections.abc import Coroutine, Iterable
from itertools import chain, islice


async def in_parallel(jobs: Iterable[Coroutine[object, object, None]], limit: int) -> None:
    """Run the jobs, at most `limit` at a time, making each only when its turn has come.

    The first failure is raised, after no more jobs were begun and those under way have ended: a
    write that is cut short would leave its outcome unknown for nothing. One at a time needs no
    event loop of asyncio.
    """
    remaining = iter(jobs)
    first = list(islice(remaining, 2))
    remaining = chain(first, remaining)
    failures: list[Exception] = []

    async def work() -> None:
        try:
            for job in remaining:
                await job
                if failures:
                    return
        except Exception as error:  # noqa: BLE001 - raised below, for all workers
            failures.append(error)

    try:
        if limit == 1 or len(first) < 2:
            await work()
        else:
            async with asyncio.TaskGroup() as workers:
                for _ in range(limit):
                    workers.create_task(work())
    finally:
        for job in first:
            job.close()  # one that was made to look ahead, and then never begun
    if failures:
        raise failures[0]
