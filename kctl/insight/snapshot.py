"""A live cluster as it stands in ZooKeeper, read by a client that cannot write.

The snapshot is the effect-level ZooKeeper in memory, filled from the real one: the same core that
decides live can be run on it. Reading takes several requests, so a cluster that changes meanwhile
gives a mixture, as it would give a controller that reads it.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TypeVar

import attrs

from kctl.logic.broker_changes import usable_brokers
from kctl.logic.chunks import chunks
from kctl.logic.failover import load_state
from kctl.logic.topics import load_topics
from kctl.messages import effects as ef
from kctl.messages.driver import Finished, Procedure, step
from kctl.messages.outbox import Outbox
from kctl.model.cluster import ClusterState
from kctl.model.codes import Code, Malformed
from kctl.model.names import TopicPartition
from kctl.model.rows import Leadership
from kctl.model.settings import Settings
from kctl.simulation.memory import MemoryZooKeeper
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.client import Reader
from kctl.zookeeper.reading import Reading
from kctl.zookeeper.session import ReadOnlySession

K = TypeVar("K")
V = TypeVar("V")

NOBODY = -2
"""The id of a reader: no broker and no controller has it."""


class NotAKafkaCluster(Exception):
    """What was found is not a Kafka cluster in ZooKeeper mode; the message says what it is."""


@attrs.frozen
class Snapshot:
    zookeeper: MemoryZooKeeper
    controller_id: int | None
    """Who holds `/controller`; -1 if that znode cannot be understood."""

    def cluster(self, settings: Settings | None = None) -> ClusterState:
        """What a controller would know from this, before it does anything about it."""
        zookeeper = self.zookeeper
        cluster = ClusterState(settings or Settings(NOBODY), zookeeper.epoch, 0)
        outbox = Outbox()
        for broker in usable_brokers(cluster, zookeeper.brokers, outbox).values():
            cluster.add_broker(broker)
        _at_once(load_topics(cluster, zookeeper.topics, outbox))
        for tp in list(cluster.rows):
            load_state(cluster, tp, zookeeper.states.get(tp, Code.NO_NODE), outbox)
        for topic in zookeeper.deletions:
            if topic in cluster.topics:
                cluster.queue_deletion(topic)
        for topic, config in zookeeper.configs.items():
            if isinstance(config, Malformed):
                cluster.quarantine[paths.topic_config(topic)] = config.reason
        for value in (zookeeper.reassignments, zookeeper.preferred_election):
            if isinstance(value, Malformed):
                cluster.quarantine[value.path] = value.reason
        return cluster


@asynccontextmanager
async def open_reader(connect: str, *, timeout_ms: int = 10_000) -> AsyncIterator[ReadOnlySession]:
    async with ReadOnlySession.open(connect, timeout_ms=timeout_ms) as session:
        yield session


async def take_snapshot(client: Reader) -> Snapshot:
    if await client.exists(paths.BROKER_IDS) is None:
        raise NotAKafkaCluster(
            "there is no /brokers/ids here: an empty ensemble, another chroot, or a Kafka cluster "
            "in KRaft mode; check the address and give the chroot as HOST:PORT/chroot"
        )
    read = Reading(client, None)
    controller_id, epoch = await _read_controller(client)
    topics: dict[str, ef.TopicNode | Malformed] = {}
    configs: dict[str, Mapping[str, str] | Malformed] = {}
    for names in chunks(await read.list_topics(ef.ListTopics())):
        topics |= _present(await read.read_topics(ef.ReadTopics(names)))
        configs |= _present(await read.read_topic_configs(ef.ReadTopicConfigs(names)))
    states: dict[TopicPartition, Leadership | Malformed] = {}
    partitions = [
        TopicPartition(topic, p)
        for topic, node in topics.items()
        if isinstance(node, ef.TopicNode)
        for p in node.partitions
    ]
    for tps in chunks(partitions):
        states |= _present(await read.read_partitions(ef.ReadPartitions(tps)))
    reassignments = await read.read_reassignments(ef.ReadReassignments())
    preferred = await read.read_preferred_election(ef.ReadPreferredElection())
    deletions = dict.fromkeys(await read.list_deletions(ef.ListDeletions()))
    return Snapshot(
        MemoryZooKeeper(
            epoch=epoch,
            brokers=dict(await read.read_brokers(ef.ReadBrokers())),
            topics=topics,
            states=states,
            configs=configs,
            deletions=deletions,
            reassignments=(
                None
                if isinstance(reassignments, Code)
                else reassignments
                if isinstance(reassignments, Malformed)
                else dict(reassignments)
            ),
            preferred_election=None if isinstance(preferred, Code) else preferred,
        ),
        controller_id,
    )


def _at_once(procedure: Procedure) -> None:
    """Run a part of the core that only pauses and wants nothing."""
    while not isinstance(wanted := step(procedure), Finished):
        assert isinstance(wanted, ef.Flush), f"a reader cannot perform {wanted!r}"


def _present(found: Mapping[K, V | Code]) -> dict[K, V]:
    return {key: value for key, value in found.items() if not isinstance(value, Code)}


async def _read_controller(client: Reader) -> tuple[int | None, int]:
    holder, epoch = await client.read_many([paths.CONTROLLER, paths.CONTROLLER_EPOCH])
    controller_id = None
    if isinstance(holder, tuple):
        decoded = znodes.decode_controller(paths.CONTROLLER, holder[0])
        controller_id = -1 if isinstance(decoded, Malformed) else decoded.broker_id
    number = 0
    if isinstance(epoch, tuple):
        value = znodes.decode_controller_epoch(paths.CONTROLLER_EPOCH, epoch[0])
        number = 0 if isinstance(value, Malformed) else value
    return controller_id, number
