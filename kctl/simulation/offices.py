"""The live store and the live watches of one session, over a model client."""

from collections.abc import Callable

from kctl.messages.effects import Effect
from kctl.messages.events import Event
from kctl.messages.term import SessionLost
from kctl.model.settings import Settings
from kctl.simulation.scheduler import Gate, Task
from kctl.simulation.zookeeper_client import ModelClient
from kctl.zookeeper.store import Store
from kctl.zookeeper.watches import Watches
from kctl.zookeeper.wire import WatchEvent


class Office:
    def __init__(
        self,
        client: ModelClient,
        settings: Settings,
        put: Callable[[Event], None],
        gate: Gate,
        now_ms: Callable[[], int],
    ) -> None:
        self._gate = gate
        self._put = put
        self._open = True
        self._watches = Watches(client, self._emit, settings, in_flight_max=1)
        self._store = Store(
            client,
            settings.controller_id,
            watches=self._watches,
            now_ms=now_ms,
            in_flight_max=1,
        )
        self._worker: Task | None = None
        client.on_event = self._fired
        client.on_reconnected = self._reconnected

    def follow_configs(self) -> None:
        self._watches.follow_configs()
        self._look_after()

    async def perform(self, effect: Effect[object]) -> object:
        reply = await self._store.perform(effect)
        self._look_after()
        return reply

    def close(self) -> None:
        self._open = False
        self._watches.rest()
        if self._worker is not None:
            self._worker.close()

    def _emit(self, event: Event) -> None:
        if self._open:
            self._put(event)

    def _fired(self, event: WatchEvent) -> None:
        self._watches.fired(event)
        self._look_after()

    def _reconnected(self) -> None:
        self._watches.reconnected()
        self._look_after()

    def _look_after(self) -> None:
        """Start the watches' background work if there is some and nobody is at it."""
        if self._open and self._watches.pending and (self._worker is None or self._worker.over):
            self._worker = Task(self._work(), self._gate)
            self._worker.start()

    async def _work(self) -> None:
        try:
            await self._watches.work()
        except SessionLost:
            return
