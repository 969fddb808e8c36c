"""Callers that wait for an answer: each gets exactly one."""

import asyncio
from collections.abc import Callable

from kctl.messages.answers import Answer, AnswerValue
from kctl.messages.events import Caller, Event


class Callers:
    def __init__(self, put: Callable[[Event], None]) -> None:
        self._put = put
        self._waiting: dict[Caller, asyncio.Future[AnswerValue]] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._waiting)

    async def ask(self, event_for: Callable[[Caller], Event]) -> AnswerValue:
        """Put an event that carries a caller, and wait for its answer."""
        self._last += 1
        caller = self._last
        future: asyncio.Future[AnswerValue] = asyncio.get_running_loop().create_future()
        self._waiting[caller] = future
        try:
            self._put(event_for(caller))
            return await future
        finally:
            self._waiting.pop(caller, None)

    def answer(self, answer: Answer) -> None:
        """One that nobody waits for any more is dropped; a second one is, too."""
        future = self._waiting.get(answer.caller)
        if future is not None and not future.done():
            future.set_result(answer.value)
