"""Simulated brokers that are registered in ZooKeeper, as real ones register themselves.

Each has a session of its own, so that one can be killed, and come back, without the others.
"""

import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Self

import msgspec

from kctl.brokers.simulated import SimulatedBroker, SimulatedBrokers
from kctl.model.names import BrokerId
from kctl.model.settings import LATEST_RELEASE, Release
from kctl.zookeeper import paths
from kctl.zookeeper.errors import NodeExists
from kctl.zookeeper.session import Session
from kctl.zookeeper.wire import CreateMode

SESSION_TIMEOUT_MS = 6_000


class RegisteredBrokers(Mapping[BrokerId, SimulatedBroker]):
    """`async with RegisteredBrokers(zookeeper, (1, 2, 3)) as brokers: await brokers.kill(2)`"""

    def __init__(
        self,
        zookeeper: str,
        ids: Iterable[BrokerId],
        *,
        release: Release = LATEST_RELEASE,
        racks: Mapping[BrokerId, str] | None = None,
        quick: bool = False,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> None:
        self._zookeeper = zookeeper
        self._timeout_ms = session_timeout_ms
        self._brokers = SimulatedBrokers(ids, release=release, racks=racks, quick=quick)
        self._sessions: dict[BrokerId, Session] = {}

    async def __aenter__(self) -> Self:
        await self._brokers.__aenter__()
        try:
            for broker_id in self._brokers:
                await self._register(broker_id)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_problem: object) -> None:
        for broker_id in tuple(self._sessions):
            await self._sessions.pop(broker_id).close()
        await self._brokers.__aexit__()

    @property
    def live(self) -> list[BrokerId]:
        """Those that are registered."""
        return sorted(self._sessions)

    async def kill(self, broker_id: BrokerId) -> None:
        """Its port is closed, its connections are cut, its registration is gone."""
        await self[broker_id].stop()
        await self.unregister(broker_id)

    async def unregister(self, broker_id: BrokerId) -> None:
        """Its session ends; it still takes requests."""
        await self._sessions.pop(broker_id).close()

    async def start(self, broker_id: BrokerId) -> None:
        """A new process on the same port: it has forgotten everything but its log dirs."""
        if broker_id in self._sessions:
            await self.unregister(broker_id)
        await self[broker_id].restart()
        await self._register(broker_id)

    async def _register(self, broker_id: BrokerId) -> None:
        session = await Session.connect(self._zookeeper, timeout_ms=self._timeout_ms)
        self._sessions[broker_id] = session
        for path in ("/brokers", paths.BROKER_IDS):
            try:
                await session.create(path, None)
            except NodeExists:
                continue
        await register(session, self[broker_id])

    def __getitem__(self, broker_id: BrokerId) -> SimulatedBroker:
        return self._brokers[broker_id]

    def __iter__(self) -> Iterator[BrokerId]:
        return iter(self._brokers)

    def __len__(self) -> int:
        return len(self._brokers)


@asynccontextmanager
async def registered_brokers(
    zookeeper: str, ids: Iterable[BrokerId], *, racks: Mapping[BrokerId, str] | None = None
) -> AsyncIterator[RegisteredBrokers]:
    """They are gone from ZooKeeper when this is left."""
    async with RegisteredBrokers(zookeeper, ids, racks=racks) as brokers:
        yield brokers


async def register(session: Session, broker: SimulatedBroker) -> None:
    """As long as the session lives; the broker's epoch is the transaction that did it."""
    path = paths.broker(broker.id)
    created = await session.create(path, registration_json(broker), CreateMode.EPHEMERAL)
    stat = created.stat or await session.exists(path)
    assert stat is not None, "it has just been created"
    broker.epoch = stat.czxid


def registration_json(broker: SimulatedBroker) -> bytes:
    registration = broker.registration(-1)
    (endpoint,) = registration.endpoints
    content: dict[str, object] = {
        "version": registration.registration_version,
        "host": endpoint.host,
        "port": endpoint.port,
        "jmx_port": -1,
        "timestamp": str(int(time.time() * 1000)),
        "endpoints": [f"{endpoint.listener}://{endpoint.host}:{endpoint.port}"],
        "listener_security_protocol_map": {endpoint.listener: endpoint.security_protocol},
    }
    if registration.rack is not None:
        content["rack"] = registration.rack
    if registration.registration_version >= 5:
        content["features"] = {}
    return msgspec.json.encode(content)
