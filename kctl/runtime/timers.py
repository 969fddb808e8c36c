"""Timers of a term: each puts an event into the queue, and all of them end with the term."""

import asyncio
from collections.abc import Callable

from kctl.messages.events import Event
from kctl.messages.outbox import CancelTimers, StartTimer


class Timers:
    def __init__(self, put: Callable[[Event], None]) -> None:
        self._put = put
        self._running: dict[str, asyncio.TimerHandle] = {}

    def apply(self, order: StartTimer | CancelTimers) -> None:
        if isinstance(order, CancelTimers):
            self.cancel()
            return
        previous = self._running.pop(order.tag, None)
        if previous is not None:
            previous.cancel()
        loop = asyncio.get_running_loop()
        self._running[order.tag] = loop.call_later(order.delay_ms / 1000, self._fire, order)

    def cancel(self) -> None:
        for handle in self._running.values():
            handle.cancel()
        self._running.clear()

    def _fire(self, order: StartTimer) -> None:
        self._running.pop(order.tag, None)
        self._put(order.event)
