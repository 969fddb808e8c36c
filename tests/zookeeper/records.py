"""What a session reported, and waiting until it reports something."""

import asyncio
from collections.abc import Callable

from kctl.zookeeper.session import ReadOnlySession, State
from kctl.zookeeper.wire import WatchEvent


class Record:
    """Keeps the states and events of one session, in the order of arrival."""

    def __init__(self, session: ReadOnlySession) -> None:
        self.states: list[State] = []
        self.events: list[WatchEvent] = []
        self._changed = asyncio.Event()
        session.on_state(self._on_state)
        session.on_event(self._on_event)

    def _on_state(self, state: State) -> None:
        self.states.append(state)
        self._changed.set()

    def _on_event(self, event: WatchEvent) -> None:
        self.events.append(event)
        self._changed.set()

    async def until(self, holds: Callable[["Record"], bool]) -> None:
        """Wait until this is true of the record; the test's own timeout bounds it."""
        while not holds(self):
            self._changed.clear()
            await self._changed.wait()

    async def until_state(self, *states: State) -> None:
        """Wait until these states have been reported since the start, as the last ones."""
        await self.until(lambda record: tuple(record.states[-len(states) :]) == states)
