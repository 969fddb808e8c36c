"""A live cluster as it stands in ZooKeeper, read by a client that cannot write.

The snapshot is the effect-level ZooKeeper in memory, filled from the real one: the same core that
decides live can be run on it. Reading takes several requests, so a cluster that changes meanwhile
gives a mixture, as it would give a controller that reads it.
"""

import datetime as dt
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import attrs

from kctl.insight.addresses import find_broker
from kctl.insight.fork import known_cluster
from kctl.logic.chunks import chunks
from kctl.messages import effects as ef
from kctl.model.cluster import ClusterState
from kctl.model.codes import Code, Malformed
from kctl.model.names import BrokerId, TopicPartition
from kctl.model.rows import Leadership
from kctl.model.settings import Settings
from kctl.simulation.memory import MemoryZooKeeper
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.calls import read_many
from kctl.zookeeper.client import Reader
from kctl.zookeeper.config_changes import with_dynamic
from kctl.zookeeper.errors import ErrorCode, NoAuth, NoServers
from kctl.zookeeper.reading import Reading
from kctl.zookeeper.session import ReadOnlySession

K = TypeVar("K")
V = TypeVar("V")

NOBODY = -2
"""The id of a reader: no broker and no controller has it."""
UNREADABLE = -1
"""Stands for the controller's id when `/controller` cannot be understood."""
CONNECT_BOUND_MS = 5_000
NO_RIGHT = "no right to read it"


class NotAKafkaCluster(Exception):
    """What was found is not a Kafka cluster in ZooKeeper mode; the message says what it is."""


class NoZooKeeper(Exception):
    """Nobody answers there."""


class NoPermission(Exception):
    """ZooKeeper refuses to show what has to be seen."""


@attrs.frozen
class Times:
    """When things were last written, in milliseconds since 1970, by ZooKeeper's clock."""

    taken: int = 0
    """When the snapshot was taken, by ours."""
    registered: Mapping[BrokerId, int] = attrs.field(factory=dict)
    states: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    marked: Mapping[str, int] = attrs.field(factory=dict)
    """Deletion markers."""
    controller: int | None = None


@attrs.frozen
class Snapshot:
    zookeeper: MemoryZooKeeper
    controller_id: int | None
    """Who holds `/controller`; -1 if that znode cannot be understood."""
    controller_is_kctl: bool = False
    default_config: Mapping[str, str] = attrs.field(factory=dict)
    """The default of all brokers: the dynamic one, and that of a broker's file if one was given."""
    times: Times = attrs.field(factory=Times)
    problems: Mapping[str, str] = attrs.field(factory=dict)
    """Other znodes that cannot be read or understood, and why."""

    def with_file(self, properties: Mapping[str, str]) -> "Snapshot":
        """Where the cluster itself says nothing, the brokers do as their files say."""
        return attrs.evolve(self, default_config={**properties, **self.default_config})

    def settings(self, controller_id: BrokerId) -> Settings:
        """As the dynamic default has it."""
        return with_dynamic(Settings(controller_id), self.default_config)

    def cluster(self, settings: Settings | None = None) -> ClusterState:
        """What a controller would know from this, before it does anything about it."""
        zookeeper = self.zookeeper
        cluster = known_cluster(zookeeper, settings or self.settings(NOBODY))
        for topic in zookeeper.deletions:
            if topic in cluster.topics:
                cluster.queue_deletion(topic)
        for topic, config in zookeeper.configs.items():
            if isinstance(config, Malformed):
                cluster.quarantine[paths.topic_config(topic)] = config.reason
        for value in (zookeeper.reassignments, zookeeper.preferred_election):
            if isinstance(value, Malformed):
                cluster.quarantine[value.path] = value.reason
        cluster.quarantine.update(self.problems)
        return cluster


@attrs.frozen
class Access:
    """Where a ZooKeeper is and, if it is secured, how one gets in."""

    connect: str
    tls: ssl.SSLContext | None = None
    auth: tuple[tuple[str, bytes], ...] = attrs.field(default=(), repr=False)


@asynccontextmanager
async def open_reader(
    where: str | Access, *, timeout_ms: int = 10_000
) -> AsyncIterator[ReadOnlySession]:
    """A session that cannot write, or a sentence on what stands at that address instead."""
    access = Access(where) if isinstance(where, str) else where
    connect = access.connect
    try:
        session = await ReadOnlySession.connect(
            connect,
            timeout_ms=timeout_ms,
            connect_timeout_ms=min(timeout_ms, CONNECT_BOUND_MS),
            ssl=access.tls,
            auth=access.auth,
        )
    except NoServers as error:
        if broker := await find_broker(connect):
            raise NotAKafkaCluster(
                f"{broker} is a Kafka broker, not a ZooKeeper server; give the address that stands "
                "in zookeeper.connect of its server.properties (a cluster in KRaft mode has none, "
                "and no controller that kctl could ask about)"
            ) from error
        raise NoZooKeeper(
            f"no ZooKeeper answers at {connect}: {_cause(error)}; check the address, and that the "
            "server runs and can be reached from here"
        ) from error
    try:
        yield session
    finally:
        await session.close()


def _cause(error: NoServers) -> str:
    cause = error.__cause__
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower()
    return "no answer" if cause is None else str(cause) or type(cause).__name__


async def take_snapshot(client: Reader) -> Snapshot:
    with _clear_refusals():
        if await client.exists(paths.BROKER_IDS) is None:
            raise NotAKafkaCluster(
                "there is no /brokers/ids here: an empty ensemble, another chroot, or a Kafka "
                "cluster in KRaft mode; check the address and give the chroot as HOST:PORT/chroot"
            )
        return await _take_snapshot(client)


async def _take_snapshot(client: Reader) -> Snapshot:
    read = Reading(client, None)
    problems: dict[str, str] = {}
    claim, since, epoch = await _read_controller(client, problems)
    topics: dict[str, ef.TopicNode | Malformed] = {}
    configs: dict[str, Mapping[str, str] | Malformed] = {}
    for names in chunks(await read.list_topics(ef.ListTopics())):
        found = await read.read_topics(ef.ReadTopics(names))
        topics |= _present(found)
        for topic, node in found.items():
            if node is Code.NO_AUTH:
                topics[topic] = Malformed(paths.topic(topic), NO_RIGHT)
        configs |= _present(await read.read_topic_configs(ef.ReadTopicConfigs(names)))
    partitions = [
        TopicPartition(topic, p)
        for topic, node in topics.items()
        if isinstance(node, ef.TopicNode)
        for p in node.partitions
    ]
    states: dict[TopicPartition, Leadership | Malformed] = {}
    written: dict[TopicPartition, int] = {}
    for tps in chunks(partitions):
        await _read_states(client, tps, states, written)
    reassignments = await read.read_reassignments(ef.ReadReassignments())
    preferred = await read.read_preferred_election(ef.ReadPreferredElection())
    deletions = dict.fromkeys(await read.list_deletions(ef.ListDeletions()))
    brokers = dict(await read.read_brokers(ef.ReadBrokers()))
    return Snapshot(
        MemoryZooKeeper(
            epoch=epoch,
            brokers=brokers,
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
            log_dir_notifications=dict(
                await read.read_log_dir_notifications(ef.ReadLogDirNotifications())
            ),
        ),
        None if claim is None else claim.broker_id,
        claim is not None and claim.kctl,
        await _read_default_config(client, problems),
        Times(
            taken=int(dt.datetime.now(dt.UTC).timestamp() * 1000),
            registered=await _times(client, {b: paths.broker(b) for b in brokers if b >= 0}),
            states=written,
            marked=await _times(client, {t: paths.deletion(t) for t in deletions}),
            controller=since,
        ),
        problems,
    )


@contextmanager
def _clear_refusals() -> Iterator[None]:
    try:
        yield
    except NoAuth:
        raise NoPermission(
            "ZooKeeper refuses to show the cluster's znodes (NOAUTH): their ACL wants another "
            "user; give --config with kctl.zookeeper.auth=digest:USER:PASSWORD or the brokers' "
            "zookeeper.ssl.* settings, or have /brokers, /controller, /admin and /config made readable"
        ) from None


async def _read_states(
    client: Reader,
    tps: tuple[TopicPartition, ...],
    states: dict[TopicPartition, Leadership | Malformed],
    written: dict[TopicPartition, int],
) -> None:
    wanted = [paths.partition_state(tp) for tp in tps]
    for tp, path, got in zip(tps, wanted, await read_many(client, wanted), strict=True):
        if isinstance(got, tuple):
            states[tp] = znodes.decode_state(path, got[0], got[1].version)
            written[tp] = got[1].mtime
        elif got is ErrorCode.NO_AUTH:
            states[tp] = Malformed(path, NO_RIGHT)


async def _times(client: Reader, nodes: Mapping[K, str]) -> dict[K, int]:
    reads = await read_many(client, list(nodes.values()))
    return {
        key: got[1].ctime for key, got in zip(nodes, reads, strict=True) if isinstance(got, tuple)
    }


async def _read_default_config(client: Reader, problems: dict[str, str]) -> Mapping[str, str]:
    path = paths.BROKERS_DEFAULT_CONFIG
    (got,) = await read_many(client, [path])
    config = znodes.decode_config(path, got[0]) if isinstance(got, tuple) else {}
    if isinstance(config, Malformed):
        problems[path] = config.reason
        return {}
    return config


def _present(found: Mapping[K, V | Code]) -> dict[K, V]:
    return {key: value for key, value in found.items() if not isinstance(value, Code)}


async def _read_controller(
    client: Reader, problems: dict[str, str]
) -> tuple[znodes.Claim | None, int | None, int]:
    """Who, since when, and the epoch."""
    holder, epoch = await read_many(client, [paths.CONTROLLER, paths.CONTROLLER_EPOCH])
    claim, since, number = None, None, 0
    if isinstance(holder, tuple):
        found = znodes.decode_controller(paths.CONTROLLER, holder[0])
        since = holder[1].ctime
        if isinstance(found, Malformed):
            problems[paths.CONTROLLER] = found.reason
            claim = znodes.Claim(UNREADABLE, kctl=False)
        else:
            claim = found
    if isinstance(epoch, tuple):
        value = znodes.decode_controller_epoch(paths.CONTROLLER_EPOCH, epoch[0])
        if isinstance(value, Malformed):
            problems[paths.CONTROLLER_EPOCH] = value.reason
        else:
            number = value
    return claim, since, number
