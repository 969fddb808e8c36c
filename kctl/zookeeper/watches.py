"""Watches: what changed in ZooKeeper becomes an event of the controller.

`fired` is called for each report of a watch, in the order of the wire. Most reports are an event at
once, and its handler arms the watch again by reading. The rest needs requests first: `run` (or the
simulation, by `work`) makes them in the background.

Topics. Reading them in bulk arms nothing, so each is armed here later, and its version compared with
the one that was read: a topic that changed in between is reported. A report is verified in the same
way, by arming again and comparing, so that our own writes do not come back as changes.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final

from kctl.messages import events as ev
from kctl.messages.term import SessionLost
from kctl.model.names import TopicPartition
from kctl.model.settings import Settings
from kctl.zookeeper import paths
from kctl.zookeeper.calls import read_many, reading
from kctl.zookeeper.client import Client
from kctl.zookeeper.config_changes import ConfigChanges
from kctl.zookeeper.parallel import in_parallel
from kctl.zookeeper.wire import EventType, WatchEvent

IN_FLIGHT_MAX: Final = 32
"""Few enough that a request of the store does not wait for long behind them."""
CHUNK: Final = 500

_CHILDREN: Final[dict[str, ev.Event]] = {
    paths.BROKER_IDS: ev.BrokerChange(),
    paths.TOPICS: ev.TopicChange(),
    paths.DELETE_TOPICS: ev.TopicDeletion(),
    paths.ISR_CHANGES: ev.IsrChangeNotification(),
    paths.LOG_DIR_EVENTS: ev.LogDirEventNotification(),
}
_CREATION: Final[dict[str, ev.Event]] = {
    paths.REASSIGN_PARTITIONS: ev.ZkPartitionReassignment(),
    paths.PREFERRED_REPLICA_ELECTION: ev.ReplicaLeaderElection(),
}
_TOPIC: Final = paths.TOPICS + "/"
_BROKER: Final = paths.BROKER_IDS + "/"


class Watches:
    """The watches of one session."""

    def __init__(
        self,
        client: Client,
        emit: Callable[[ev.Event], None],
        settings: Settings,
        in_flight_max: int = IN_FLIGHT_MAX,
        unusable: Callable[[str, str | None], None] = lambda _path, _reason: None,
    ) -> None:
        """`unusable` is told of configs; what the core reads, it puts into quarantine itself."""
        self._client = client
        self._emit = emit
        self._in_flight_max = in_flight_max
        self._configs = ConfigChanges(client, emit, settings, unusable)
        self._wake = asyncio.Event()
        self._topics: dict[str, int] = {}
        """By path: the version that the core has read or written."""
        self._sent: dict[str, int] = {}
        self._armed: dict[str, None] = {}
        self._to_verify: dict[str, None] = {}
        self._partitions: dict[str, TopicPartition] = {}
        self._changed_partitions: dict[str, None] = {}
        self._consumed: dict[str, bool] = {}
        """Watches on creation that went off over something else; true: over the deletion."""
        self._configs_due = False
        self._reconnected = False
        self._at_work = False

    # -- what the store tells ----------------------------------------------------------------

    def topic_read(self, path: str, version: int) -> None:
        self._topics[path] = version
        if path not in self._armed:
            self._to_verify[path] = None
            self._wake.set()

    def topic_sent(self, path: str, version: int) -> None:
        """A write of ours will give it this version; its report may come before the reply."""
        self._sent[path] = version

    def topic_written(self, path: str, landed: bool) -> None:
        """The outcome. If it was not ours, that version may be somebody else's."""
        version = self._sent.pop(path, None)
        if version is None or path not in self._topics:
            return
        if landed:
            self._topics[path] = max(version, self._topics[path])
        else:
            self._to_verify[path] = None
            self._wake.set()

    async def watch_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        watched = {paths.partition_state(tp): tp for tp in partitions}
        self._partitions.update(watched)
        await in_parallel((self._arm(path) for path in watched), self._in_flight_max)

    def unwatch_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """A watch that is armed still goes off once, and is ignored."""
        for tp in partitions:
            self._partitions.pop(paths.partition_state(tp), None)

    def rest(self) -> None:
        """The term is over: topics and partitions are of no interest until they are read again."""
        self._topics.clear()
        self._to_verify.clear()
        self._partitions.clear()
        self._changed_partitions.clear()

    # -- what the client tells ---------------------------------------------------------------

    def fired(self, event: WatchEvent) -> None:
        kind, path = event
        if path == paths.CONTROLLER:
            if kind is EventType.DELETED:
                self._emit(ev.Reelect())
            elif kind in {EventType.CREATED, EventType.DATA_CHANGED}:
                self._emit(ev.ControllerChange())
        elif path in _CHILDREN:
            if kind in {EventType.CHILDREN_CHANGED, EventType.DELETED}:
                self._emit(_CHILDREN[path])
        elif path in _CREATION:
            self._creation_fired(kind, path)
        elif path in {paths.CONFIG_CHANGES, paths.BROKERS_DEFAULT_CONFIG}:
            self._configs_due = True
            self._wake.set()
        elif path.startswith(_TOPIC):
            self._topic_fired(kind, path)
        elif path.startswith(_BROKER) and kind is EventType.DATA_CHANGED:
            name = path.removeprefix(_BROKER)
            if name.isascii() and name.isdecimal():
                self._emit(ev.BrokerModifications(int(name)))

    def reconnected(self) -> None:
        """Another connection of the same session: everything is looked at again."""
        self._reconnected = True
        self._wake.set()

    def follow_configs(self) -> None:
        """Begin to follow the dynamic configuration, once for each session."""
        self._configs_due = True
        self._wake.set()

    def _creation_fired(self, kind: EventType, path: str) -> None:
        if kind is EventType.CREATED:
            self._emit(_CREATION[path])  # its handler reads, and arms before that
        elif kind in {EventType.DELETED, EventType.DATA_CHANGED}:
            self._consumed[path] = kind is EventType.DELETED
            self._wake.set()

    def _topic_fired(self, kind: EventType, path: str) -> None:
        if path in self._partitions:
            if kind is EventType.DATA_CHANGED:
                self._changed_partitions[path] = None
                self._wake.set()
            elif kind is EventType.DELETED:
                del self._partitions[path]
            return
        self._armed.pop(path, None)
        if kind is EventType.DELETED:
            self._topics.pop(path, None)
        elif kind is EventType.DATA_CHANGED and path in self._topics:
            self._to_verify[path] = None
            self._wake.set()

    # -- in the background -------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Whether there is something to `work` on."""
        return bool(
            self._reconnected
            or self._configs_due
            or self._consumed
            or self._changed_partitions
            or self._to_verify
        )

    async def run(self) -> None:
        """Until the session is lost."""
        try:
            while True:
                _ = await self._wake.wait()
                self._wake.clear()
                await self.work()
        except SessionLost:
            return  # whoever keeps the session reports that

    @property
    def idle(self) -> bool:
        """Nothing is pending and nothing under way: all that the watches reported was emitted."""
        return not (self.pending or self._at_work)

    async def work(self) -> None:
        """All that is pending."""
        self._at_work = True
        try:
            while self.pending:
                await self._work_on_next()
        finally:
            self._at_work = False

    async def _work_on_next(self) -> None:
        if self._reconnected:
            self._reconnected = False
            await self._look_again()
        elif self._consumed:
            path, deleted = self._consumed.popitem()
            await self._arm_creation(path, deleted)
        elif self._changed_partitions:
            changed = list(self._changed_partitions)
            self._changed_partitions.clear()
            await in_parallel(map(self._arm_partition, changed), self._in_flight_max)
        elif self._configs_due:
            self._configs_due = False
            await self._configs.look()
        else:
            some = list(islice(self._to_verify, CHUNK))
            await in_parallel(map(self._verify, some), self._in_flight_max)

    async def _arm(self, path: str) -> None:
        _ = await reading(lambda: self._client.exists(path, watch=True))

    async def _arm_creation(self, path: str, deleted: bool) -> None:
        """Whatever was created since is reported; data that only changed is not."""
        stat = await reading(lambda: self._client.exists(path, watch=True))
        if stat is not None and (deleted or stat.version == 0):
            self._emit(_CREATION[path])

    async def _arm_partition(self, path: str) -> None:
        await self._arm(path)
        tp = self._partitions.get(path)
        if tp is not None:
            self._emit(ev.PartitionReassignmentIsrChange(tp))

    async def _verify(self, path: str) -> None:
        self._to_verify.pop(path, None)
        if path not in self._topics:
            return
        # Before the request: a report that overtakes its reply must not be forgotten.
        self._armed[path] = None
        try:
            stat = await reading(lambda: self._client.exists(path, watch=True))
        except BaseException:
            # Whether it is armed is not known; when the topic is read again, it is armed again.
            self._armed.pop(path, None)
            raise
        if stat is None:
            self._topics.pop(path, None)
            self._armed.pop(path, None)
        else:
            self._compare(path, stat.version)

    def _compare(self, path: str, version: int) -> None:
        if version not in {self._topics.get(path, version), self._sent.get(path)}:
            self._topics[path] = version
            self._emit(ev.PartitionModifications(path.removeprefix(_TOPIC)))

    async def _look_again(self) -> None:
        """The client has set its watches again; but that is nothing to stand on alone."""
        await reading(self._client.sync)
        self._emit(ev.ControllerChange())
        for event in (*_CHILDREN.values(), *_CREATION.values()):
            self._emit(event)
        for tp in tuple(self._partitions.values()):
            self._emit(ev.PartitionReassignmentIsrChange(tp))
        self._configs_due = True
        topics = list(self._topics)
        chunks = (topics[start : start + CHUNK] for start in range(0, len(topics), CHUNK))
        await in_parallel(map(self._compare_all, chunks), min(4, self._in_flight_max))

    async def _compare_all(self, topics: Sequence[str]) -> None:
        for path, read in zip(topics, await read_many(self._client, topics), strict=True):
            if isinstance(read, tuple):
                self._compare(path, read[1].version)
