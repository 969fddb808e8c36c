"""Watches: what changes in a real ZooKeeper becomes an event, and nothing is missed."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import pytest

from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.model.codes import Code
from kctl.model.names import TopicPartition
from kctl.model.settings import Settings
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.config_changes import UNCLEAN, with_dynamic
from kctl.zookeeper.session import Session, State
from kctl.zookeeper.store import Store
from kctl.zookeeper.watches import Watches
from kctl.zookeeper.wire import CreateMode, EventType, WatchEvent
from tests.zookeeper.fault_proxy import FaultProxy
from tests.zookeeper.offices import US, leadership, make_topic, ruling, topic_node

pytestmark = [pytest.mark.zookeeper, pytest.mark.asyncio]

SETTINGS = Settings(controller_id=US)
WAIT_S = 30
TP = TopicPartition("t", 0)
RE_READ = [
    ev.ControllerChange(),
    ev.BrokerChange(),
    ev.TopicChange(),
    ev.TopicDeletion(),
    ev.IsrChangeNotification(),
    ev.LogDirEventNotification(),
    ev.ZkPartitionReassignment(),
    ev.ReplicaLeaderElection(),
]


class Office:
    """A ruling store with its watches, and what they emitted."""

    store: Store

    def __init__(self, zk: Session) -> None:
        self.watches = Watches(zk, self._emit, SETTINGS)
        self.events: list[ev.Event] = []
        self._arrived = asyncio.Event()

    def _emit(self, event: ev.Event) -> None:
        self.events.append(event)
        self._arrived.set()

    async def until(self, holds: Callable[[list[ev.Event]], bool]) -> list[ev.Event]:
        """Wait for it; what was emitted till then is taken."""
        async with asyncio.timeout(WAIT_S):
            while not holds(self.events):
                self._arrived.clear()
                await self._arrived.wait()
        taken = self.events[:]
        self.events.clear()
        return taken

    async def next(self) -> ev.Event:
        (event,) = await self.until(bool)
        return event

    async def settled(self, zk: Session) -> list[ev.Event]:
        """What was emitted once ZooKeeper and the background have nothing more to say."""
        await zk.sync()
        async with asyncio.timeout(WAIT_S):
            while not self.watches.idle:
                await zk.sync()
        taken = self.events[:]
        self.events.clear()
        return taken


@asynccontextmanager
async def office(zk: Session) -> AsyncIterator[Office]:
    here = Office(zk)
    zk.on_event(here.watches.fired)
    here.store = await ruling(zk, watches=here.watches)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(here.watches.run())
        yield here
        running.cancel()


# -- reports that are events at once ---------------------------------------------------------


@pytest.mark.parametrize(
    "kind,path,event",
    [
        (EventType.CREATED, "/controller", ev.ControllerChange()),
        (EventType.DATA_CHANGED, "/controller", ev.ControllerChange()),
        (EventType.DELETED, "/controller", ev.Reelect()),
        (EventType.CHILDREN_CHANGED, "/brokers/ids", ev.BrokerChange()),
        (EventType.DATA_CHANGED, "/brokers/ids/12", ev.BrokerModifications(12)),
        (EventType.DELETED, "/brokers/ids/12", None),
        (EventType.DATA_CHANGED, "/brokers/ids/x", None),
        (EventType.CHILDREN_CHANGED, "/brokers/topics", ev.TopicChange()),
        (EventType.CHILDREN_CHANGED, "/admin/delete_topics", ev.TopicDeletion()),
        (EventType.CHILDREN_CHANGED, "/isr_change_notification", ev.IsrChangeNotification()),
        (EventType.CHILDREN_CHANGED, "/log_dir_event_notification", ev.LogDirEventNotification()),
        (EventType.CREATED, "/admin/reassign_partitions", ev.ZkPartitionReassignment()),
        (EventType.CREATED, "/admin/preferred_replica_election", ev.ReplicaLeaderElection()),
        (EventType.DELETED, "/admin/reassign_partitions", None),
        (EventType.DATA_CHANGED, "/brokers/topics/unknown", None),
        (EventType.DATA_CHANGED, "/brokers/topics/t/partitions/0/state", None),
        (EventType.CREATED, "/somewhere/else", None),
    ],
)
async def test_reports_and_events(
    zk: Session, kind: EventType, path: str, event: ev.Event | None
) -> None:
    emitted: list[ev.Event] = []
    Watches(zk, emitted.append, SETTINGS).fired(WatchEvent(kind, path))
    assert emitted == ([] if event is None else [event])


async def test_what_the_reads_arm_is_reported(zk: Session) -> None:
    """Every read of the store that is to arm a watch does."""
    async with office(zk) as here:
        perform = here.store.perform
        await zk.create(paths.broker(7), b"{}")
        await perform(ef.ReadBrokers())
        await zk.set(paths.broker(7), b"[]")
        assert await here.next() == ev.BrokerModifications(7)
        await zk.create(paths.broker(8), b"{}")
        assert await here.next() == ev.BrokerChange()
        await perform(ef.ListTopics())
        await zk.create(paths.topic("t"), b"{}")
        assert await here.next() == ev.TopicChange()
        await perform(ef.ListDeletions())
        await zk.create(paths.deletion("t"))
        assert await here.next() == ev.TopicDeletion()
        await perform(ef.ReadIsrNotifications())
        await zk.create(f"{paths.ISR_CHANGES}/a", b"")
        assert await here.next() == ev.IsrChangeNotification()
        await perform(ef.ReadLogDirNotifications())
        await zk.create(f"{paths.LOG_DIR_EVENTS}/a", b"")
        assert await here.next() == ev.LogDirEventNotification()
        await perform(ef.ReadControllership())
        await zk.set(paths.CONTROLLER, b"{}")
        assert await here.next() == ev.ControllerChange()
        await perform(ef.ReadControllership())
        await zk.delete(paths.CONTROLLER)
        assert await here.next() == ev.Reelect()
        await perform(ef.ReadControllership())
        await zk.create(paths.CONTROLLER)
        assert await here.next() == ev.ControllerChange()


async def test_without_watches_nothing_is_armed(zk: Session, chroot: str) -> None:
    async with Session.open(chroot) as looking:
        await ruling(zk)
        seen: list[WatchEvent] = []
        looking.on_event(seen.append)
        store = Store(looking, US)
        await zk.create(paths.broker(7), b"{}")
        await store.perform(ef.ReadBrokers())
        await store.perform(ef.ListTopics())
        await store.perform(ef.ReadReassignments())
        await store.perform(ef.ReadControllership())
        await store.perform(ef.WatchPartitions((TP,)))
        await zk.create(paths.topic("t"), b"{}")
        await zk.set(paths.broker(7), b"[]")
        await zk.create(paths.REASSIGN_PARTITIONS)
        await zk.delete(paths.CONTROLLER)
        await looking.sync()
        assert seen == []


# -- admin znodes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path,read,event",
    [
        (paths.REASSIGN_PARTITIONS, ef.ReadReassignments(), ev.ZkPartitionReassignment()),
        (
            paths.PREFERRED_REPLICA_ELECTION,
            ef.ReadPreferredElection(),
            ev.ReplicaLeaderElection(),
        ),
    ],
)
async def test_admin_znodes_are_reported_each_time_they_appear(
    zk: Session, path: str, read: ef.Effect[object], event: ev.Event
) -> None:
    async with office(zk) as here:
        assert await here.store.perform(read) is Code.NO_NODE
        for _ in range(3):
            await zk.create(path, b"{}")
            assert await here.next() == event
            await here.store.perform(read)
            await zk.set(path, b"[]")
            assert await here.settled(zk) == [], "a change of the data is no creation"
            await zk.delete(path)
            assert await here.settled(zk) == []


# -- topics ----------------------------------------------------------------------------------


async def test_a_topic_that_changes_is_reported(zk: Session) -> None:
    async with office(zk) as here:
        await make_topic(here.store, "t", 1)
        await here.store.perform(ef.ReadTopics(("t", "absent")))
        assert await here.settled(zk) == []
        for leader in (3, 4, 5):
            await zk.set(paths.topic("t"), b'{"partitions":{"0":[%d]}}' % leader)
            assert await here.next() == ev.PartitionModifications("t")
            await here.store.perform(ef.ReadTopics(("t",)))
        await zk.set(paths.partition_state(TP), b"{}")
        assert await here.settled(zk) == []


async def test_a_change_between_reading_and_arming_is_reported(zk: Session) -> None:
    """The watches have not run yet when the topic changes: no watch tells, the version does."""
    emitted: list[ev.Event] = []
    watches = Watches(zk, emitted.append, SETTINGS)
    zk.on_event(watches.fired)
    store = await ruling(zk, watches=watches)
    for topic in ("a", "b", "c"):
        await make_topic(store, topic, 1)
    await store.perform(ef.ReadTopics(("a", "b", "c")))
    await zk.set(paths.topic("b"), b"changed")
    await zk.delete(paths.topic_config("c"))
    assert watches.pending
    assert emitted == []
    await watches.work()
    assert emitted == [ev.PartitionModifications("b")]
    assert not watches.pending


async def test_our_own_writes_do_not_come_back(zk: Session) -> None:
    async with office(zk) as here:
        names = [f"t{n}" for n in range(300)]
        new = {name: ef.TopicToCreate(topic_node(1), {}) for name in names}
        await here.store.perform(ef.CreateTopicNodes(new))
        await here.store.perform(ef.ReadTopics(tuple(names)))
        assert await here.settled(zk) == []
        codes = await here.store.perform(ef.WriteTopics({n: topic_node(2) for n in names}))
        assert set(codes.values()) == {Code.OK}
        assert await here.settled(zk) == []
        await zk.set(paths.topic("t7"), b"changed")
        assert await here.next() == ev.PartitionModifications("t7")


async def test_a_foreign_change_in_place_of_ours_is_reported(zk: Session) -> None:
    """It has the version that our refused write would have given."""
    async with office(zk) as here:
        await make_topic(here.store, "t", 1)
        await here.store.perform(ef.ReadTopics(("t",)))
        assert await here.settled(zk) == []
        here.watches.topic_sent(paths.topic("t"), 1)
        await zk.set(paths.topic("t"), b"changed")
        assert await here.settled(zk) == []
        here.watches.topic_written(paths.topic("t"), landed=False)
        assert await here.next() == ev.PartitionModifications("t")


async def test_a_deleted_topic_is_forgotten_and_a_new_one_watched(zk: Session) -> None:
    async with office(zk) as here:
        await zk.create(paths.topic("t"), b"one")
        await here.store.perform(ef.ReadTopics(("t",)))
        assert await here.settled(zk) == []
        await zk.delete(paths.topic("t"))
        await zk.create(paths.topic("t"), b"two")
        assert await here.settled(zk) == [], "the list of topics tells that"
        await here.store.perform(ef.ReadTopics(("t",)))
        assert await here.settled(zk) == []
        await zk.set(paths.topic("t"), b"three")
        assert await here.next() == ev.PartitionModifications("t")


async def test_after_the_term_topics_are_of_no_interest(zk: Session) -> None:
    async with office(zk) as here:
        await make_topic(here.store, "t", 1)
        await here.store.perform(ef.ReadTopics(("t",)))
        assert await here.settled(zk) == []
        here.watches.rest()
        await zk.set(paths.topic("t"), b"changed")
        assert await here.settled(zk) == []
        await here.store.perform(ef.ReadTopics(("t",)))
        assert await here.settled(zk) == []
        await zk.set(paths.topic("t"), b"again")
        assert await here.next() == ev.PartitionModifications("t")


async def test_partition_states_while_they_are_watched(zk: Session) -> None:
    """Armed again before it is reported, so that what the handler then reads is the latest."""
    async with office(zk) as here:
        tps = await make_topic(here.store, "t", 2)
        await here.store.perform(ef.WatchPartitions(tuple(tps)))
        for _ in range(3):
            await zk.set(paths.partition_state(TP), znodes.encode_state(leadership(2)))
            assert await here.next() == ev.PartitionReassignmentIsrChange(TP)
        await here.store.perform(ef.WatchPartitions((TP,), watch=False))
        await zk.set(paths.partition_state(TP), b"{}")
        assert await here.settled(zk) == []
        await zk.set(paths.partition_state(tps[1]), b"{}")
        assert await here.next() == ev.PartitionReassignmentIsrChange(tps[1])


# -- reconnecting ----------------------------------------------------------------------------


async def test_everything_is_looked_at_again_after_a_reconnect(
    zk: Session, chroot: str, proxy: FaultProxy
) -> None:
    address = proxy.address + "/" + chroot.partition("/")[2]
    async with Session.open(address, timeout_ms=10_000) as through, office(through) as here:
        states: list[State] = []
        back = asyncio.Event()

        def on_state(state: State) -> None:
            states.append(state)
            if state is State.CONNECTED:
                here.watches.reconnected()
                back.set()

        through.on_state(on_state)
        for topic in ("same", "changed"):
            await make_topic(here.store, topic, 1)
        await here.store.perform(ef.ReadTopics(("same", "changed")))
        assert await here.settled(through) == []
        proxy.stall()
        proxy.cut_rst()
        await zk.set(paths.topic("changed"), b"changed")
        proxy.flow()
        await back.wait()
        events = await here.until(
            lambda events: (
                ev.PartitionModifications("changed") in events
                and all(event in events for event in RE_READ)
            )
        )
        events += await here.settled(through)
        assert [e for e in events if not isinstance(e, ev.PartitionModifications)] == RE_READ
        assert events.count(ev.PartitionModifications("changed")) == 1
        assert ev.PartitionModifications("same") not in events


# -- configs ---------------------------------------------------------------------------------


async def change_config(zk: Session, entity: str, config: dict[str, str]) -> None:
    """As a broker does it."""
    path = f"/config/{entity}"
    data = znodes.encode_config(config)
    if await zk.exists(path) is None:
        await zk.create(path, data)
    else:
        await zk.set(path, data)
    notification = json.dumps({"version": 2, "entity_path": entity}).encode()
    await zk.create(
        "/config/changes/config_change_", notification, CreateMode.PERSISTENT_SEQUENTIAL
    )


async def test_unclean_election_of_a_topic(zk: Session) -> None:
    async with office(zk) as here:
        await change_config(zk, "topics/old", {UNCLEAN: "true"})
        here.watches.follow_configs()
        assert await here.settled(zk) == [], "changes of before are no news"
        await change_config(zk, "topics/t", {UNCLEAN: "true"})
        assert await here.next() == ev.TopicUncleanLeaderElectionEnable("t")
        await change_config(zk, "topics/t", {UNCLEAN: "false"})
        await change_config(zk, "topics/u", {"retention.ms": "1"})
        await change_config(zk, "clients/c", {UNCLEAN: "true"})
        await zk.create("/config/changes/config_change_9999999998", b"garbage")
        await zk.create("/config/changes/odd", b"garbage")
        assert await here.settled(zk) == []


async def test_a_garbled_notification_does_not_hide_the_next(zk: Session) -> None:
    async with office(zk) as here:
        here.watches.follow_configs()
        assert await here.settled(zk) == []
        prefix = "/config/changes/config_change_"
        sequential = CreateMode.PERSISTENT_SEQUENTIAL
        await zk.create(prefix, b"\xff", sequential)
        escape = b'{"version":2,"entity_path":"topics/../brokers/<default>"}'
        await zk.create(prefix, escape, sequential)
        await zk.create(paths.topic_config("spoiled"), b"garbage")
        spoiled = b'{"version":1,"entity_type":"topics","entity_name":"spoiled"}'
        await zk.create(prefix, spoiled, sequential)
        await change_config(zk, "topics/t", {UNCLEAN: "TRUE"})
        assert await here.next() == ev.TopicUncleanLeaderElectionEnable("t")


async def test_the_brokers_default_changes_the_settings(zk: Session) -> None:
    async with office(zk) as here:
        here.watches.follow_configs()
        assert await here.settled(zk) == []
        default = "brokers/<default>"
        await change_config(zk, default, {UNCLEAN: "true"})
        changed = attrs.evolve(SETTINGS, unclean_leader_election=True)
        assert await here.settled(zk) == [
            ev.SettingsChange(changed),
            ev.UncleanLeaderElectionEnable(),
        ]
        await change_config(zk, default, {UNCLEAN: "true", "auto.leader.rebalance.enable": "false"})
        changed = attrs.evolve(changed, auto_leader_rebalance=False)
        assert await here.settled(zk) == [ev.SettingsChange(changed)]
        await zk.set(paths.BROKERS_DEFAULT_CONFIG, b"garbage")
        assert await here.settled(zk) == [], "what held so far goes on"
        await zk.delete(paths.BROKERS_DEFAULT_CONFIG)
        assert await here.settled(zk) == [ev.SettingsChange(SETTINGS)]


@pytest.mark.parametrize(
    "config,changes",
    [
        ({}, {}),
        ({UNCLEAN: "maybe"}, {}),
        ({"leader.imbalance.per.broker.percentage": "-5"}, {}),
        ({"leader.imbalance.per.broker.percentage": "9" * 5000}, {}),
        ({"leader.imbalance.check.interval.seconds": "0"}, {}),
        (
            {"leader.imbalance.per.broker.percentage": "20"},
            {"leader_imbalance_per_broker_percentage": 20},
        ),
        (
            {"leader.imbalance.check.interval.seconds": "60"},
            {"leader_imbalance_check_interval_ms": 60_000},
        ),
        ({"delete.topic.enable": "false"}, {}),
    ],
)
async def test_dynamic_settings(config: dict[str, str], changes: dict[str, int]) -> None:
    assert with_dynamic(SETTINGS, config) == attrs.evolve(SETTINGS, **changes)  # type: ignore[arg-type]
