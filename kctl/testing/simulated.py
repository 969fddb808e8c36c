"""Simulated brokers that are registered in ZooKeeper, as real ones register themselves."""

import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import msgspec

from kctl.brokers.simulated import SimulatedBroker, SimulatedBrokers
from kctl.model.names import BrokerId
from kctl.zookeeper import paths
from kctl.zookeeper.errors import NodeExists
from kctl.zookeeper.session import Session
from kctl.zookeeper.wire import CreateMode

SESSION_TIMEOUT_MS = 6_000


@asynccontextmanager
async def registered_brokers(
    zookeeper: str, ids: Iterable[BrokerId]
) -> AsyncIterator[SimulatedBrokers]:
    """They are gone from ZooKeeper when this is left."""
    async with (
        SimulatedBrokers(ids) as brokers,
        Session.open(zookeeper, timeout_ms=SESSION_TIMEOUT_MS) as session,
    ):
        for path in ("/brokers", paths.BROKER_IDS):
            try:
                await session.create(path, None)
            except NodeExists:
                continue
        for broker in brokers.values():
            await register(session, broker)
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
