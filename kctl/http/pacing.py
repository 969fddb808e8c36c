"""Long looks at the cluster in short steps: the loop belongs to the controller."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

STEP_S = 0.003
LOOKED_AT = 64
"""Items between two looks at the clock."""


class Pace:
    """`await pace()` lets others have their turn if this one has lasted long enough."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._since = self._loop.time()

    async def __call__(self) -> None:
        if self._loop.time() - self._since > STEP_S:
            await asyncio.sleep(0)
            self._since = self._loop.time()


async def paced(items: Iterable[T]) -> AsyncIterator[list[T]]:
    """Portions of these, with a breath in between. `items` must not change meanwhile."""
    pace = Pace()
    rest = iter(items)
    while portion := list(islice(rest, LOOKED_AT)):
        yield portion
        await pace()
