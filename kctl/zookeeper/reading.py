"""Effects that read. What they arm, they arm before they read: a later change comes as an event."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from kctl.messages import effects as ef
from kctl.model.brokers import Broker
from kctl.model.codes import Code, Malformed
from kctl.model.names import BrokerId, TopicPartition
from kctl.model.rows import Leadership, Replicas
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.calls import code_for, read_many, reading
from kctl.zookeeper.client import Reader
from kctl.zookeeper.errors import NoAuth, NoNode
from kctl.zookeeper.multi import Read
from kctl.zookeeper.parallel import in_parallel
from kctl.zookeeper.registrations import decode_registration, is_kctl_registration
from kctl.zookeeper.watches import Watches
from kctl.zookeeper.wire import Stat

K = TypeVar("K")
V = TypeVar("V")

CHUNK: Final = 500
"""Paths in one bulk read: what is decoded without a pause."""
IN_FLIGHT_MAX: Final = 4
BROKERS_IN_FLIGHT_MAX: Final = 50

Decode = Callable[[str, bytes, Stat], V | Malformed]


class Reading:
    """Without watches nothing is armed: for those who only look."""

    def __init__(
        self,
        client: Reader,
        watches: Watches | None,
        in_flight_max: int = IN_FLIGHT_MAX,
    ) -> None:
        self._client = client
        self._watches = watches
        self._in_flight_max = in_flight_max

    # -- brokers -----------------------------------------------------------------------------

    async def read_brokers(self, _: ef.ReadBrokers) -> Mapping[BrokerId, Broker | Malformed]:
        names = await self._children(paths.BROKER_IDS)
        found: dict[BrokerId, Broker | Malformed] = {}
        ids: list[BrokerId] = []
        for name in names:
            if name.isascii() and name.isdecimal() and str(int(name)) == name:
                ids.append(int(name))
            else:
                # It has no id to be filed under; a negative one belongs to no broker.
                found[-1 - len(found)] = Malformed(f"{paths.BROKER_IDS}/{name}", "not a broker id")
        ids.sort()
        read: dict[BrokerId, Broker | Malformed | None] = dict.fromkeys(ids)
        jobs = (self._read_broker(broker, read) for broker in ids)
        one_by_one = self._in_flight_max == 1
        await in_parallel(jobs, 1 if one_by_one else BROKERS_IN_FLIGHT_MAX)
        found.update({broker: value for broker, value in read.items() if value is not None})
        return found

    async def _read_broker(
        self, broker: BrokerId, found: dict[BrokerId, Broker | Malformed | None]
    ) -> None:
        path = paths.broker(broker)
        try:
            data, stat = await reading(lambda: self._client.get(path, watch=self._arming))
        except NoNode:
            return  # gone since; the child watch reports it
        except NoAuth:
            found[broker] = Malformed(path, "no right to read it")
            return
        # Ours, or that of another kctl whose session is not over yet: no brokers, all of them.
        if not is_kctl_registration(data):
            found[broker] = decode_registration(path, data, broker, stat.czxid)

    # -- topics and partitions ---------------------------------------------------------------

    async def list_topics(self, _: ef.ListTopics) -> tuple[str, ...]:
        return tuple(sorted(await self._children(paths.TOPICS)))

    async def read_topics(
        self, effect: ef.ReadTopics
    ) -> Mapping[str, ef.TopicNode | Code | Malformed]:
        watches = self._watches

        def decode(path: str, data: bytes, stat: Stat) -> ef.TopicNode | Malformed:
            if watches is not None:
                # Bulk reads arm nothing, and a request for each topic would hold up the failover:
                # it is armed later, and its version then is compared with the one read here.
                watches.topic_read(path, stat.version)
            return znodes.decode_topic(path, data, stat.version)

        return await self._bulk(effect.topics, paths.topic, decode)

    async def read_topic_configs(
        self, effect: ef.ReadTopicConfigs
    ) -> Mapping[str, Mapping[str, str] | Code | Malformed]:
        def decode(path: str, data: bytes, _: Stat) -> Mapping[str, str] | Malformed:
            return znodes.decode_config(path, data)

        return await self._bulk(effect.topics, paths.topic_config, decode)

    async def read_partitions(
        self, effect: ef.ReadPartitions
    ) -> Mapping[TopicPartition, Leadership | Code | Malformed]:
        def decode(path: str, data: bytes, stat: Stat) -> Leadership | Malformed:
            return znodes.decode_state(path, data, stat.version)

        if effect.sync:
            await reading(self._client.sync)
        return await self._bulk(effect.partitions, paths.partition_state, decode)

    async def watch_partitions(self, effect: ef.WatchPartitions) -> None:
        if self._watches is None:
            return
        if effect.watch:
            await self._watches.watch_partitions(effect.partitions)
        else:
            self._watches.unwatch_partitions(effect.partitions)

    async def list_deletions(self, _: ef.ListDeletions) -> tuple[str, ...]:
        return tuple(sorted(await self._children(paths.DELETE_TOPICS)))

    # -- admin znodes ------------------------------------------------------------------------

    async def read_reassignments(
        self, _: ef.ReadReassignments
    ) -> Mapping[TopicPartition, Replicas] | Code | Malformed:
        read = await self._armed_read(paths.REASSIGN_PARTITIONS)
        if not isinstance(read, tuple):
            return code_for(read)
        return znodes.decode_reassignments(paths.REASSIGN_PARTITIONS, read[0])

    async def read_preferred_election(
        self, _: ef.ReadPreferredElection
    ) -> tuple[TopicPartition, ...] | Code | Malformed:
        read = await self._armed_read(paths.PREFERRED_REPLICA_ELECTION)
        if not isinstance(read, tuple):
            return code_for(read)
        return znodes.decode_named_partitions(paths.PREFERRED_REPLICA_ELECTION, read[0])

    async def read_isr_notifications(
        self, _: ef.ReadIsrNotifications
    ) -> Mapping[str, tuple[TopicPartition, ...] | Malformed]:
        def decode(path: str, data: bytes, _: Stat) -> tuple[TopicPartition, ...] | Malformed:
            return znodes.decode_named_partitions(path, data)

        return await self._notifications(paths.ISR_CHANGES, decode)

    async def read_log_dir_notifications(
        self, _: ef.ReadLogDirNotifications
    ) -> Mapping[str, BrokerId | Malformed]:
        def decode(path: str, data: bytes, _: Stat) -> BrokerId | Malformed:
            return znodes.decode_log_dir_event(path, data)

        return await self._notifications(paths.LOG_DIR_EVENTS, decode)

    # -- features and producer ids -----------------------------------------------------------

    async def read_features(self, _: ef.ReadFeatures) -> ef.FeatureNode | Code | Malformed:
        (read,) = await read_many(self._client, (paths.FEATURE,))
        if not isinstance(read, tuple):
            return code_for(read)
        return znodes.decode_feature(paths.FEATURE, read[0])

    # -- how ---------------------------------------------------------------------------------

    @property
    def _arming(self) -> bool:
        return self._watches is not None

    async def _children(self, path: str) -> list[str]:
        """Sorted, so that the order is the same in every run."""
        try:
            return sorted(await reading(lambda: self._client.children(path, watch=self._arming)))
        except NoNode:
            return []

    async def _armed_read(self, path: str) -> Read:
        if self._arming:
            await reading(lambda: self._client.exists(path, watch=True))
        (read,) = await read_many(self._client, (path,))
        return read

    async def _notifications(self, parent: str, decode: Decode[V]) -> dict[str, V | Malformed]:
        children = [f"{parent}/{name}" for name in await self._children(parent)]
        found = await self._bulk(children, str, decode)
        notifications: dict[str, V | Malformed] = {}
        for path, value in found.items():
            if isinstance(value, Code):
                if value is not Code.NO_NODE:
                    notifications[path] = Malformed(path, value.value)
            else:
                notifications[path] = value
        return notifications

    async def _bulk(
        self, keys: Sequence[K], path_of: Callable[[K], str], decode: Decode[V]
    ) -> dict[K, V | Code | Malformed]:
        # Filled beforehand: the order of the reply is that of the keys, not that of the answers.
        found: dict[K, V | Code | Malformed] = dict.fromkeys(keys, Code.UNKNOWN)

        async def read(chunk: Sequence[K]) -> None:
            chunk_paths = [path_of(key) for key in chunk]
            reads = await read_many(self._client, chunk_paths)
            for key, path, got in zip(chunk, chunk_paths, reads, strict=True):
                if isinstance(got, tuple):
                    data, stat = got
                    found[key] = decode(path, data, stat)
                else:
                    found[key] = code_for(got)

        await in_parallel((read(chunk) for chunk in _chunks(keys)), self._in_flight_max)
        return found


def _chunks(keys: Sequence[K]) -> Iterator[Sequence[K]]:
    for start in range(0, len(keys), CHUNK):
        yield keys[start : start + CHUNK]
