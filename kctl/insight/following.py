"""Following a live cluster: every change of its znodes, in ZooKeeper's order, by reading only.

Watches of the whole tree tell what to read again. Changes made while the connection was lost are not
told afterwards, so then everything is read and compared; so it is, once a second, where the server
is too old for such watches.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from kctl.insight.shadow import STUCK_AFTER_S, Finding, Shadow
from kctl.insight.sightings import (
    BrokerSeen,
    ConfigSeen,
    ControllerSeen,
    DefaultConfigSeen,
    MarkerSeen,
    PreferredElectionSeen,
    ReassignmentsSeen,
    Seen,
    StateSeen,
    TopicSeen,
    differences,
)
from kctl.insight.snapshot import UNREADABLE, Access, Snapshot, open_reader, take_snapshot
from kctl.messages.term import SessionLost
from kctl.model.codes import Malformed
from kctl.model.names import TopicPartition
from kctl.simulation.memory import MemoryZooKeeper
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.calls import read_many, reading
from kctl.zookeeper.errors import Unimplemented
from kctl.zookeeper.multi import Read
from kctl.zookeeper.registrations import decode_registration, is_kctl_registration
from kctl.zookeeper.session import ReadOnlySession, State
from kctl.zookeeper.wire import EventType, WatchEvent, WatchMode

WATCHED = ("/brokers", "/admin", paths.CONTROLLER, paths.CONTROLLER_EPOCH, "/config")
POLL_S = 1.0
CHECK_S = 0.25
BATCH_MAX = 2_000


async def follow(
    where: str | Access, *, stuck_after_s: float = STUCK_AFTER_S, for_s: float | None = None
) -> AsyncIterator[Finding]:
    """Findings as they come, until the time is up."""
    clock = asyncio.get_running_loop().time
    end_s = None if for_s is None else clock() + for_s
    shadow: Shadow | None = None
    while end_s is None or clock() < end_s:
        try:
            async with open_reader(where) as session:
                follower = Follower(session)
                snapshot = await follower.start()
                if shadow is None:
                    shadow = Shadow(snapshot, clock(), stuck_after_s=stuck_after_s)
                else:
                    shadow.see(differences(shadow.reality, snapshot.zookeeper), clock())
                while end_s is None or clock() < end_s:
                    shadow.see(await follower.next(shadow.reality, CHECK_S), clock())
                    for finding in shadow.check(clock()):
                        yield finding
        except SessionLost:
            if shadow is None:
                raise
            continue  # a new session, and everything read again


class Follower:
    def __init__(self, session: ReadOnlySession) -> None:
        self._session = session
        self._events: list[WatchEvent] = []
        self._news = asyncio.Event()
        self._missed = False
        self._watching = True
        self._default_config: Mapping[str, str] = {}
        self._controller: ControllerSeen = ControllerSeen(None, 0)

    async def start(self) -> Snapshot:
        self._session.on_event(self._on_event)
        self._session.on_state(self._on_state)
        try:
            for path in WATCHED:
                await reading(lambda p=path: self._watch(p))  # type: ignore[misc]
        except Unimplemented:
            self._watching = False
        snapshot = await take_snapshot(self._session)
        _ = self._note(snapshot)
        return snapshot

    async def next(self, reality: MemoryZooKeeper, bound_s: float) -> list[Seen]:
        """What changed, as soon as something does; nothing if the time is up before."""
        if not self._watching:
            await asyncio.sleep(min(POLL_S, bound_s))
            return await self._read_all(reality)
        try:
            async with asyncio.timeout(bound_s):
                await self._news.wait()
        except TimeoutError:
            return []
        self._news.clear()
        if self._missed:
            self._missed = False
            self._events.clear()
            return await self._read_all(reality)
        events, self._events = self._events[:BATCH_MAX], self._events[BATCH_MAX:]
        if self._events:
            self._news.set()
        return await self._read(events)

    async def _watch(self, path: str) -> None:
        await self._session.add_watch(path, WatchMode.PERSISTENT_RECURSIVE)

    def _on_event(self, event: WatchEvent) -> None:
        if event.type in (EventType.CREATED, EventType.DELETED, EventType.DATA_CHANGED):
            self._events.append(event)
            self._news.set()

    def _on_state(self, state: State) -> None:
        if state is State.CONNECTED:
            self._missed = True
            self._news.set()

    def _note(self, snapshot: Snapshot) -> list[Seen]:
        default, controller = self._default_config, self._controller
        self._default_config = snapshot.default_config
        self._controller = ControllerSeen(snapshot.controller_id, snapshot.zookeeper.epoch)
        changes: list[Seen] = []
        if default != self._default_config:
            changes.append(DefaultConfigSeen(self._default_config))
        if controller != self._controller:
            changes.append(self._controller)
        return changes

    async def _read_all(self, reality: MemoryZooKeeper) -> list[Seen]:
        snapshot = await take_snapshot(self._session)
        return [*differences(reality, snapshot.zookeeper), *self._note(snapshot)]

    async def _read(self, events: Sequence[WatchEvent]) -> list[Seen]:
        """Each change at the place of its event; of several changes of one znode the last value."""
        last = {event.path: at for at, event in enumerate(events)}
        wanted = [
            path
            for path, at in last.items()
            if events[at].type is not EventType.DELETED and _is_known(path)
        ]
        reads = dict(zip(wanted, await read_many(self._session, wanted), strict=True))
        found: list[Seen] = []
        for at, event in enumerate(events):
            if event.type is EventType.DELETED:
                found += self._decode(event.path, None)
            elif event.type is EventType.CREATED and event.path.startswith(paths.DELETE_TOPICS):
                # It may be gone already; that it was there is what counts.
                found += self._decode(event.path, (b"", None))
            elif last[event.path] == at and event.path in reads:
                read = reads[event.path]
                if isinstance(read, tuple):
                    found += self._decode(event.path, read)
        return found

    def _decode(self, path: str, read: Read | tuple[bytes, None] | None) -> list[Seen]:
        """None: it is gone."""
        data, stat = read if isinstance(read, tuple) else (b"", None)
        version = 0 if stat is None else stat.version
        match path.split("/")[1:]:
            case ["brokers", "ids", name] if _is_number(name):
                if read is None:
                    return [BrokerSeen(int(name), None)]
                if is_kctl_registration(data):
                    return []
                epoch = 0 if stat is None else stat.czxid
                return [BrokerSeen(int(name), decode_registration(path, data, int(name), epoch))]
            case ["brokers", "topics", topic]:
                node = None if read is None else znodes.decode_topic(path, data, version)
                return [TopicSeen(topic, node)]
            case ["brokers", "topics", topic, "partitions", partition, "state"] if _is_number(
                partition
            ):
                tp = TopicPartition(topic, int(partition))
                state = None if read is None else znodes.decode_state(path, data, version)
                return [StateSeen(tp, state)]
            case ["admin", "delete_topics", topic]:
                return [MarkerSeen(topic, read is not None)]
            case ["admin", "reassign_partitions"]:
                targets = None if read is None else znodes.decode_reassignments(path, data)
                return [ReassignmentsSeen(targets)]
            case ["admin", "preferred_replica_election"]:
                asked = None if read is None else znodes.decode_named_partitions(path, data)
                return [PreferredElectionSeen(asked)]
            case ["config", "topics", topic]:
                config = None if read is None else znodes.decode_config(path, data)
                return [ConfigSeen(topic, config)]
            case ["config", "brokers", "<default>"]:
                default = {} if read is None else znodes.decode_config(path, data)
                if isinstance(default, Malformed) or default == self._default_config:
                    return []
                self._default_config = default
                return [DefaultConfigSeen(default)]
            case ["controller"]:
                claim = None if read is None else znodes.decode_controller(path, data)
                holder = UNREADABLE if isinstance(claim, Malformed) else None
                if isinstance(claim, znodes.Claim):
                    holder = claim.broker_id
                self._controller = ControllerSeen(holder, self._controller.epoch)
                return [self._controller]
            case ["controller_epoch"] if read is not None:
                epoch_now = znodes.decode_controller_epoch(path, data)
                if not isinstance(epoch_now, Malformed):
                    holder = self._controller.controller_id
                    self._controller = ControllerSeen(holder, epoch_now)
                return [self._controller]
            case _:
                return []


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and str(int(name)) == name


def _is_known(path: str) -> bool:
    return path.startswith((*(f"{p}/" for p in ("/brokers", "/admin", "/config")), "/controller"))
