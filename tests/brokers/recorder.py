"""What channels emit, and small clusters to tell brokers about."""

import asyncio
from collections.abc import Callable, Iterable
from typing import TypeVar

import attrs

from kctl.brokers.channel import ChannelSettings
from kctl.brokers.manager import ChannelManager
from kctl.brokers.simulated import SimulatedBroker, SimulatedBrokers
from kctl.brokers.versions import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from kctl.messages.events import Event
from kctl.messages.requests import (
    LeaderAndIsrRequest,
    StopReplicaPartition,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kctl.model.brokers import Broker
from kctl.model.names import TopicPartition, topic_id_from_bits
from kctl.model.rows import Assignment, Leadership, Row
from kctl.model.states import PartitionState, ReplicaState

E = TypeVar("E", bound=Event)
EPOCH = 50
"""Of the registrations in these tests."""
TOPIC_ID = topic_id_from_bits(12345)
SETTINGS = ChannelSettings(controller_id=1000, retry_backoff_ms=5)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
KEYS = {LEADER_AND_ISR: "LISR", UPDATE_METADATA: "UMR", STOP_REPLICA: "SR"}


class Recorder:
    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = asyncio.Event()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        self._changed.set()

    def of(self, kind: type[E]) -> list[E]:
        return [e for e in self.events if isinstance(e, kind)]

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def count(self, kind: type[E], wanted: int) -> None:
        await self.until(lambda: len(self.of(kind)) >= wanted)

    async def first(self, kind: type[E]) -> E:
        await self.count(kind, 1)
        return self.of(kind)[0]


def registered(broker: SimulatedBroker, epoch: int = EPOCH) -> Broker:
    broker.epoch = epoch
    return broker.registration(epoch)


def row(leader: int, replicas: tuple[int, ...], leader_epoch: int = 0) -> Row:
    return Row(
        Assignment(replicas),
        Leadership(leader, replicas, leader_epoch, 1, 0),
        PartitionState.ONLINE,
        (ReplicaState.ONLINE,) * len(replicas),
    )


def leader_and_isr(
    broker: int, rows: dict[TopicPartition, Row], *, epoch: int = EPOCH, controller_epoch: int = 1
) -> LeaderAndIsrRequest:
    ids = {tp.topic: TOPIC_ID for tp in rows}
    return LeaderAndIsrRequest(broker, epoch, controller_epoch, rows, {}, ids, ())


def update_metadata(
    recipients: Iterable[int],
    live: tuple[Broker, ...],
    rows: dict[TopicPartition, Row] | None = None,
    deleted: Iterable[str] = (),
    controller_epoch: int = 1,
) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        recipients=dict.fromkeys(recipients, EPOCH),
        controller_epoch=controller_epoch,
        live_brokers=live,
        rows=rows or {},
        deleted=dict.fromkeys(deleted),
        topic_ids={tp.topic: TOPIC_ID for tp in rows or {}},
    )


def stop_replica(
    broker: int, stops: dict[TopicPartition, bool], *, epoch: int = EPOCH
) -> StopReplicaRequest:
    return StopReplicaRequest(
        broker,
        epoch,
        1,
        {tp: StopReplicaPartition(-2 if delete else 0, delete) for tp, delete in stops.items()},
    )


def manager_with(recorder: Recorder, **changes: object) -> ChannelManager:
    settings: ChannelSettings = attrs.evolve(SETTINGS, **changes)  # type: ignore[arg-type]
    return ChannelManager(settings, recorder)


def seen(brokers: SimulatedBrokers, broker: int) -> list[str]:
    return [KEYS[frame.key] for frame in brokers[broker].frames]
