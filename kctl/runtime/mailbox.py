"""The actor's queue on asyncio: `EventQueue` with somebody waiting at its end."""

import asyncio
import time

from kctl.messages.answers import Answer
from kctl.messages.events import Event, ShutdownEventThread
from kctl.messages.queue import EventQueue


class Mailbox:
    def __init__(self) -> None:
        self._queue = EventQueue()
        self._since: dict[int, float] = {}
        """When each waiting event came, by its identity."""
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, event: Event) -> None:
        before = len(self._queue)
        self._queue.put(event)
        if len(self._queue) > before:
            self._since[id(event)] = time.monotonic()
            self._filled.set()

    async def take(self) -> tuple[tuple[Event, ...], float]:
        """The next events and how long the first of them waited, in seconds."""
        while not len(self._queue):
            self._filled.clear()
            await self._filled.wait()
        events = self._queue.take()
        now = time.monotonic()
        waited = [now - self._since.pop(id(event), now) for event in events]
        return events, waited[0]

    def clear_and_put(self, event: Event) -> list[Answer]:
        answers = self._queue.clear_and_put(event)
        self._since.clear()
        self._filled.set()
        return answers

    def clear(self) -> list[Answer]:
        """Drop everything; what the waiting callers are to be told."""
        answers = self.clear_and_put(ShutdownEventThread())
        self._queue.take()
        return answers

    @property
    def oldest_s(self) -> float:
        """How long the longest waiting event waits."""
        # They are kept in the order in which they came.
        return time.monotonic() - next(iter(self._since.values())) if self._since else 0.0
