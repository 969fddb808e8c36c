"""Effects that write, under the fence: each row is a unit of operations, `batches` sends them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from kctl.messages import effects as ef
from kctl.model.codes import Code, Malformed
from kctl.model.names import TopicPartition
from kctl.model.secrets import Secret
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.batches import IN_FLIGHT_MAX, Batches, Fence
from kctl.zookeeper.calls import code_for, outcome, read_many, reading
from kctl.zookeeper.client import Client
from kctl.zookeeper.errors import ErrorCode, NoAuth, NoNode
from kctl.zookeeper.forecast import Discard, Ensure, Put, Unit
from kctl.zookeeper.multi import Create, Read, SetData
from kctl.zookeeper.watches import Watches
from kctl.zookeeper.wire import CreateMode

K = TypeVar("K")

STRAYS_MAX: Final = 100_000
STRAY_DEPTH_MAX: Final = 6
"""Below a partition or a topic that is removed there may be znodes that Kafka knows nothing of."""


class Writing:
    def __init__(
        self,
        client: Client,
        fence: Fence,
        watches: Watches | None,
        secure: bool,
        in_flight_max: int = IN_FLIGHT_MAX,
    ) -> None:
        self._client = client
        self._fence = fence
        self._watches = watches
        self._secure = secure
        self._in_flight_max = in_flight_max
        self._perhaps_removed: dict[str, None] = {}
        """Topics whose removal has an unknown outcome."""

    # -- topics and partitions ---------------------------------------------------------------

    async def write_topics(self, effect: ef.WriteTopics) -> Mapping[str, Code]:
        watches = self._watches

        def units() -> Iterator[tuple[str, Unit]]:
            for name, node in effect.topics.items():
                path = paths.topic(name)
                if watches is not None:
                    watches.topic_sent(path, node.zk_version + 1)
                yield name, (SetData(path, znodes.encode_topic(node), node.zk_version),)

        codes: dict[str, Code] = {}
        try:
            codes = await self._write(units())
        finally:
            if watches is not None:
                for name in effect.topics:
                    watches.topic_written(paths.topic(name), codes.get(name) is Code.OK)
        return codes

    async def create_topic_nodes(self, effect: ef.CreateTopicNodes) -> Mapping[str, Code]:
        return await self._write(
            (
                name,
                (
                    Put(self._create(paths.topic_config(name), znodes.encode_config(new.configs))),
                    self._create(paths.topic(name), znodes.encode_topic(new.node)),
                ),
            )
            for name, new in effect.topics.items()
        )

    async def write_partitions(self, effect: ef.WritePartitions) -> Mapping[TopicPartition, Code]:
        return await self._write(
            (
                tp,
                (SetData(paths.partition_state(tp), znodes.encode_state(row), row.zk_version),),
            )
            for tp, row in effect.rows.items()
        )

    async def create_partition_states(
        self, effect: ef.CreatePartitionStates
    ) -> Mapping[TopicPartition, Code]:
        # A topic that gets its partition 0 is new, one that gets others has its partitions node.
        new = {tp.topic: None for tp in effect.rows if tp.partition == 0}
        parents: dict[str, Ensure] = {}

        def units() -> Iterator[tuple[TopicPartition, Unit]]:
            for tp, row in effect.rows.items():
                parent = parents.get(tp.topic)
                if parent is None:
                    create = self._create(paths.partitions(tp.topic))
                    parent = parents[tp.topic] = Ensure(create, expected=tp.topic not in new)
                node = self._create(paths.partition(tp))
                state = self._create(paths.partition_state(tp), znodes.encode_state(row))
                yield tp, (parent, Ensure(node), state)

        return await self._write(units())

    # -- deletion ----------------------------------------------------------------------------

    async def mark_for_deletion(self, effect: ef.MarkForDeletion) -> Mapping[str, Code]:
        return await self._write(
            (topic, (Ensure(self._create(paths.deletion(topic))),)) for topic in effect.topics
        )

    async def unmark_for_deletion(self, effect: ef.UnmarkForDeletion) -> Mapping[str, Code]:
        return await self._write(
            (topic, (Discard(paths.deletion(topic)),)) for topic in effect.topics
        )

    async def remove_partition_nodes(
        self, effect: ef.RemovePartitionNodes
    ) -> Mapping[TopicPartition, Code]:
        def unit(tp: TopicPartition) -> Unit:
            return Discard(paths.partition_state(tp)), Discard(paths.partition(tp))

        codes = await self._write((tp, unit(tp)) for tp in effect.partitions)
        full = [tp for tp, code in codes.items() if code is Code.NOT_EMPTY]
        if full:
            await self._remove_below([paths.partition(tp) for tp in full])
            codes.update(await self._write((tp, unit(tp)) for tp in full))
        return codes

    async def remove_topic_nodes(self, effect: ef.RemoveTopicNodes) -> Mapping[str, Code]:
        def unit(topic: str) -> Unit:
            return (
                Discard(paths.partitions(topic)),
                Discard(paths.topic(topic)),
                Discard(paths.topic_config(topic)),
                Discard(paths.deletion(topic)),
            )

        gone = await self._removed_after_all(effect.topics)
        codes = dict.fromkeys(effect.topics, Code.OK)
        codes.update(await self._write((t, unit(t)) for t in effect.topics if t not in gone))
        # Without its marker this may be another topic of that name, made since: not ours to empty.
        doomed = await self._marked([t for t, code in codes.items() if code is Code.NOT_EMPTY])
        if doomed:
            await self._remove_below([paths.topic(topic) for topic in doomed])
            codes.update(await self._write((topic, unit(topic)) for topic in doomed))
        self._perhaps_removed.update(
            dict.fromkeys(topic for topic, code in codes.items() if code is Code.UNKNOWN)
        )
        return codes

    async def _removed_after_all(self, topics: Sequence[str]) -> dict[str, None]:
        """The marker goes in the same multi: without it the topic is gone, or is a new one."""
        doubtful = [topic for topic in topics if topic in self._perhaps_removed]
        if not doubtful:
            return {}
        await reading(self._client.sync)
        marked = await self._marked(doubtful)
        for topic in doubtful:
            del self._perhaps_removed[topic]
        return {topic: None for topic in doubtful if topic not in marked}

    async def _marked(self, topics: Sequence[str]) -> dict[str, None]:
        """Those of them that are marked for deletion."""
        if not topics:
            return {}
        markers = await read_many(self._client, [paths.deletion(topic) for topic in topics])
        found = zip(topics, markers, strict=True)
        return {topic: None for topic, read in found if isinstance(read, tuple)}

    # -- admin znodes ------------------------------------------------------------------------

    async def write_reassignments(self, effect: ef.WriteReassignments) -> Code:
        path = paths.REASSIGN_PARTITIONS
        if effect.targets:
            unit: Unit = (Put(self._create(path, znodes.encode_reassignments(effect.targets))),)
        else:
            unit = (Discard(path),)
        return (await self._write([(path, unit)]))[path]

    async def remove_preferred_election(self, _: ef.RemovePreferredElection) -> Code:
        path = paths.PREFERRED_REPLICA_ELECTION
        return (await self._write([(path, (Discard(path),))]))[path]

    async def remove_notifications(self, effect: ef.RemoveNotifications) -> None:
        parents = (paths.ISR_CHANGES + "/", paths.LOG_DIR_EVENTS + "/")
        assert all(path.startswith(parents) for path in effect.paths)
        _ = await self._write((path, (Discard(path),)) for path in effect.paths)

    # -- users -------------------------------------------------------------------------------

    async def alter_users(self, effect: ef.AlterUsers) -> Mapping[str, Code | Malformed]:
        """Read, changed and written under the version that was read: quotas are kept there too."""
        nodes = [paths.user_config(user) for user in effect.users]
        reads = await read_many(self._client, nodes)
        outcomes: dict[str, Code | Malformed] = {}
        units: list[tuple[str, Unit]] = []
        for (user, changes), path, read in zip(effect.users.items(), nodes, reads, strict=True):
            unit = self._altered_user(paths.escaped(user), path, read, changes)
            outcomes[user] = unit if isinstance(unit, Code | Malformed) else Code.UNKNOWN
            if not isinstance(unit, Code | Malformed):
                units.append((user, unit))
        return outcomes | await self._write(units)

    def _altered_user(
        self, name: str, path: str, read: Read, changes: Mapping[str, Secret | None]
    ) -> Unit | Code | Malformed:
        if not paths.is_name(name):
            return Malformed(path, "not a name that ZooKeeper can hold")
        found: Mapping[str, str] | Malformed = {}
        if isinstance(read, tuple):
            found = znodes.decode_config(path, read[0])
        elif read is not ErrorCode.NO_NODE:
            return code_for(read)
        if isinstance(found, Malformed):
            return found
        config = dict(found)
        for mechanism, credential in changes.items():
            if credential is not None:
                config[mechanism] = credential.text
            elif config.pop(mechanism, None) is None:
                return Code.NO_NODE
        data = znodes.encode_config(config)
        return (
            SetData(path, data, read[1].version)
            if isinstance(read, tuple)
            else self._create(path, data),
            Create(
                f"{paths.CONFIG_CHANGES}/config_change_",
                znodes.encode_config_change(f"users/{name}"),
                CreateMode.PERSISTENT_SEQUENTIAL,
                paths.acl_for(paths.CONFIG_CHANGES, self._secure),
            ),
        )

    # -- not fenced, as in Kafka -------------------------------------------------------------

    async def bootstrap(self, _: ef.Bootstrap) -> Code:
        reads = await read_many(self._client, paths.PERSISTENT)
        for path, read in zip(paths.PERSISTENT, reads, strict=True):
            if read is ErrorCode.NO_NODE:
                code = await self._create_alone(path, None)
                if code not in {Code.OK, Code.NODE_EXISTS}:
                    return code
        return Code.OK

    async def create_controller_epoch(self, _: ef.CreateControllerEpoch) -> Code:
        return await self._create_alone(paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(0))

    async def write_features(self, effect: ef.WriteFeatures) -> Code:
        data = znodes.encode_feature(effect.node)
        code = await outcome(lambda: self._client.set(paths.FEATURE, data))
        return await self._create_alone(paths.FEATURE, data) if code is Code.NO_NODE else code

    async def read_producer_ids(self, _: ef.ReadProducerIds) -> ef.ProducerIds | Malformed:
        path = paths.PRODUCER_IDS
        try:
            data, stat = await reading(lambda: self._client.get(path))
        except NoNode:
            code = await self._create_alone(path, None)
            if code not in {Code.OK, Code.NODE_EXISTS, Code.UNKNOWN}:
                return Malformed(path, f"cannot be created: {code.value}")
            try:
                data, stat = await reading(lambda: self._client.get(path))
            except NoNode:
                return Malformed(path, "cannot be created")
        except NoAuth:
            return Malformed(path, "no right to read it")
        return znodes.decode_producer_ids(path, data, stat.version)

    async def write_producer_ids(self, effect: ef.WriteProducerIds) -> Code:
        data = znodes.encode_producer_ids(effect.broker, effect.start, effect.end)
        return await outcome(lambda: self._client.set(paths.PRODUCER_IDS, data, effect.zk_version))

    # -- how ---------------------------------------------------------------------------------

    def _create(self, path: str, data: bytes | None = None) -> Create:
        return Create(path, data, acl=paths.acl_for(path, self._secure))

    async def _write(self, units: Iterable[tuple[K, Unit]]) -> dict[K, Code]:
        return await Batches[K](self._client, self._fence, self._in_flight_max).write(units)

    async def _remove_below(self, roots: Sequence[str]) -> None:
        """Everything below these, deepest first; the roots stay. Gives up beyond the bounds."""
        levels: list[list[str]] = []
        level = list(roots)
        for _ in range(STRAY_DEPTH_MAX):
            level = await self._below(level)
            if not level:
                break
            levels.append(level)
            if sum(map(len, levels)) > STRAYS_MAX:
                return
        for strays in reversed(levels):
            _ = await self._write((path, (Discard(path),)) for path in strays)

    async def _below(self, parents: Sequence[str]) -> list[str]:
        found = await reading(lambda: self._client.children_many(parents))
        return [
            f"{parent}/{name}"
            for parent, names in zip(parents, found, strict=True)
            if not isinstance(names, ErrorCode)
            for name in names
        ]

    async def _create_alone(self, path: str, data: bytes | None) -> Code:
        acl = paths.acl_for(path, self._secure)
        return await outcome(lambda: self._client.create(path, data, acl=acl))
