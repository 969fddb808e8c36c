"""Long work in pieces: no step between two awaits may keep the loop, or a caller, waiting."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

CHUNK = 500
"""Rows between two awaits: a few milliseconds of work, and a handful of multis."""

ROUND = 10_000
"""Rows in one round of requests, where nothing is written between: enough for each broker."""

WRITE = 10_000
"""Rows in one write: ZooKeeper is at work on its first multis while the last ones are made, and
rarely waited for. Deciding on them, and taking in what came of it, is done in chunks."""

REQUEST = 5_000
"""Rows in one request: each costs some tenths of a millisecond beside its rows."""

FEW_BROKERS = 10
"""`ROUND` and `REQUEST` are for so many. Of more, each would get more requests with less in them."""

ANNOUNCED = 2_500
"""Rows between two awaits where each is only put into requests: a few milliseconds of work."""

SMALL = 250
"""Rows between two awaits where each costs more than elsewhere: it is decided on, or changes."""

FEW = 100
"""The same where its assignment changes, and several states on the way."""


def for_brokers(size: int, brokers: int, most: int) -> int:
    """`ROUND` or `REQUEST` for so many brokers: at most so many times as large."""
    return size * max(1, min(most, brokers // FEW_BROKERS))


def chunks(items: Iterable[T], size: int = CHUNK) -> Iterator[tuple[T, ...]]:
    iterator = iter(items)
    while chunk := tuple(islice(iterator, size)):
        yield chunk


def paced(items: Iterable[T], size: int = CHUNK) -> Iterator[tuple[bool, tuple[T, ...]]]:
    """Chunks, and whether to pause before each: before all but the first."""
    pause = False
    for chunk in chunks(items, size):
        yield pause, chunk
        pause = True


def paced_by(
    items: Iterable[T], rows_of: Callable[[T], int], size: int = CHUNK
) -> Iterator[tuple[bool, T]]:
    """One by one, and whether to pause before each: where so many rows have gone before."""
    rows = 0
    for item in items:
        pause = rows >= size
        rows = rows_of(item) + (0 if pause else rows)
        yield pause, item


def mapping_chunks(items: Mapping[K, V], size: int = CHUNK) -> Iterator[Mapping[K, V]]:
    if 0 < len(items) <= size:
        yield items
        return
    iterator = iter(items.items())
    while chunk := dict(islice(iterator, size)):
        yield chunk
