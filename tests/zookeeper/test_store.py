"""The store's writes on a real ZooKeeper, looked at through kazoo."""

import asyncio
import json
from typing import Any

import pytest
from kazoo.client import KazooClient

from kctl.messages import effects as ef
from kctl.messages.term import ControllerMoved, SessionLost
from kctl.model.codes import Code
from kctl.model.names import TopicPartition
from kctl.model.rows import Assignment
from kctl.zookeeper import paths
from kctl.zookeeper.batches import UNITS_MAX
from kctl.zookeeper.client import Client
from kctl.zookeeper.errors import ConnectionLoss, SessionExpired
from kctl.zookeeper.multi import Check
from kctl.zookeeper.session import Session
from kctl.zookeeper.store import Store
from tests.zookeeper.fault_proxy import FaultProxy
from tests.zookeeper.offices import (
    US,
    Between,
    kazoo,
    leaders,
    leadership,
    make_topic,
    partitions,
    ruling,
    set_state,
    topic_node,
)

pytestmark = [pytest.mark.zookeeper, pytest.mark.asyncio]

FENCED_WRITES: list[ef.Effect[Any]] = [
    ef.WritePartitions({TopicPartition("t", 0): leadership(9)}),
    ef.CreatePartitionStates({TopicPartition("t", 5): leadership()}),
    ef.WriteTopics({"t": topic_node(4)}),
    ef.CreateTopicNodes({"u": ef.TopicToCreate(topic_node(1), {})}),
    ef.MarkForDeletion(("t",)),
    ef.UnmarkForDeletion(("marked",)),
    ef.RemovePartitionNodes((TopicPartition("t", 0),)),
    ef.RemoveTopicNodes(("t",)),
    ef.WriteReassignments({TopicPartition("t", 0): (2, 1)}),
    ef.WriteReassignments({}),
    ef.RemovePreferredElection(),
    ef.RemoveNotifications((f"{paths.ISR_CHANGES}/isr_change_0000000000",)),
]


async def test_every_effect_is_performed(zk: Session) -> None:
    def kinds(base: type[ef.Effect[object]]) -> set[type[ef.Effect[object]]]:
        return set(base.__subclasses__()).union(*map(kinds, base.__subclasses__()))

    store = Store(zk, US)
    effects = {kind for kind in kinds(ef.Effect) if kind.__module__ == ef.__name__}
    assert effects - set(store._performers) == {ef.Flush, ef.Draw}


async def test_the_session_is_a_client(zk: Session) -> None:
    client: Client = zk
    assert client.session_id == zk.session_id


# -- rows stand alone ------------------------------------------------------------------------


async def test_states_are_made_with_their_parents_and_changed_by_version(
    zk: Session, chroot: str
) -> None:
    between = Between(zk)
    store = await ruling(between)
    between.multis.clear()
    tps = await make_topic(store, "t", 1000)
    for multi in between.multis:
        assert isinstance(multi[0], Check)
        assert len(multi) <= 3 * UNITS_MAX + 1
    assert len(between.multis) == 1 + 1000 // UNITS_MAX, "the guess was right: nothing was refused"
    with kazoo(chroot) as kz:
        assert sorted(map(int, kz.get_children(paths.partitions("t")))) == list(range(1000))
        data, stat = kz.get(paths.partition_state(tps[999]))
        assert json.loads(data) == {
            "version": 1,
            "leader": 1,
            "leader_epoch": 0,
            "controller_epoch": 1,
            "isr": [1, 2],
        }
        assert stat.version == 0
        codes = await store.perform(ef.WritePartitions({tp: leadership(2) for tp in tps}))
        assert list(codes.items()) == [(tp, Code.OK) for tp in tps]
        assert leaders(kz, tps) == [2] * 1000


async def test_half_of_the_rows_are_stale(zk: Session, chroot: str) -> None:
    """Every stale row has its own code, all others are written, and each stands where it stood."""
    between = Between(zk)
    store = await ruling(between)
    tps = await make_topic(store, "t", 600)
    missing = [TopicPartition("missing", p) for p in range(100)]
    with kazoo(chroot) as kz:
        for tp in tps[::2]:
            set_state(kz, tp, 7)
        rows = {tp: leadership(2) for tp in (*tps, *missing)}
        between.multis.clear()
        codes = await store.perform(ef.WritePartitions(rows))
        assert list(codes) == list(rows)
        assert [codes[tp] for tp in tps] == [Code.BAD_VERSION, Code.OK] * 300
        assert {codes[tp] for tp in missing} == {Code.NO_NODE}
        assert leaders(kz, tps) == [7, 2] * 300
    assert len(between.multis) <= 2 * 4, "each batch is refused once, then goes through"


async def test_a_row_that_changes_while_its_batch_is_read_back(zk: Session, chroot: str) -> None:
    between = Between(zk)
    store = await ruling(between, in_flight_max=1)
    tps = await make_topic(store, "t", 20)
    with kazoo(chroot) as kz:
        victims = iter(tps)

        def interfere(call: str) -> None:
            if call == "read_many" and (victim := next(victims, None)) is not None:
                set_state(kz, victim, 7)

        set_state(kz, tps[19], 7)
        between.after = interfere
        codes = await store.perform(ef.WritePartitions({tp: leadership(2) for tp in tps}))
        touched = [tp for tp in tps if codes[tp] is Code.BAD_VERSION]
        assert tps[19] in touched
        assert tps[0] in touched
        assert [codes[tp] for tp in tps if tp not in touched] == [Code.OK] * (20 - len(touched))
        assert leaders(kz, tps) == [7 if tp in touched else 2 for tp in tps]


async def test_states_where_some_parents_exist(zk: Session, chroot: str) -> None:
    store = await ruling(zk)
    for topic in ("new", "bare", "half", "grown"):
        new = {topic: ef.TopicToCreate(topic_node(3), {})}
        assert await store.perform(ef.CreateTopicNodes(new)) == {topic: Code.OK}
    grown = partitions("grown", 3)
    assert await store.perform(ef.CreatePartitionStates({grown[0]: leadership()})) == {
        grown[0]: Code.OK
    }
    with kazoo(chroot) as kz:
        kz.create(paths.partitions("bare"))
        kz.create(paths.partitions("half"))
        kz.create(f"{paths.partitions('half')}/1")
    late = TopicPartition("late", 2)  # not partition 0, and yet without a partitions node
    assert await store.perform(
        ef.CreateTopicNodes({"late": ef.TopicToCreate(topic_node(3), {})})
    ) == {"late": Code.OK}
    rows = {
        tp: leadership()
        for tp in (
            *partitions("new", 3),
            *partitions("bare", 3),
            *partitions("half", 3),
            *grown,
            late,
            *partitions("absent", 2),
        )
    }
    codes = await store.perform(ef.CreatePartitionStates(rows))
    assert list(codes) == list(rows)
    failed = {tp: code for tp, code in codes.items() if code is not Code.OK}
    assert failed == {
        grown[0]: Code.NODE_EXISTS,
        TopicPartition("absent", 0): Code.NO_NODE,
        TopicPartition("absent", 1): Code.NO_NODE,
    }
    with kazoo(chroot) as kz:
        there = [tp for tp in rows if kz.exists(paths.partition_state(tp))]
        assert there == [tp for tp in rows if tp.topic != "absent"]


async def test_a_znode_without_rights_fails_alone(zk: Session, chroot: str) -> None:
    """Who may write cannot be read beforehand: such a batch goes row by row."""
    store = await ruling(zk)
    tps = await make_topic(store, "t", 50)
    async with Session.open(chroot, auth=[("digest", b"other:secret")]) as other:
        for tp in (tps[3], tps[30]):
            acl = paths.acl_for(paths.partition_state(tp), secure=True)
            await other.set_acl(paths.partition_state(tp), acl)
    with kazoo(chroot) as kz:
        set_state(kz, tps[40], 7)
        codes = await store.perform(ef.WritePartitions({tp: leadership(2) for tp in tps}))
        denied = {tps[3]: Code.NO_AUTH, tps[30]: Code.NO_AUTH, tps[40]: Code.BAD_VERSION}
        assert {tp: code for tp, code in codes.items() if code is not Code.OK} == denied
        assert leaders(kz, tps) == [
            1 if tp in tps[3:31:27] else 7 if tp == tps[40] else 2 for tp in tps
        ]


async def test_rows_that_are_too_large_fail_alone(zk: Session, chroot: str) -> None:
    store = await ruling(zk)
    huge = ef.TopicNode({p: Assignment((1_000_000_000, 2)) for p in range(60_000)}, None, 0)
    large = ef.TopicNode({p: Assignment((1_000_000_000, 2)) for p in range(30_000)}, None, 0)
    topics = {
        name: ef.TopicToCreate(node, {})
        for name, node in {"a": topic_node(1), "b": huge, "c": large, "d": large}.items()
    }
    codes = await store.perform(ef.CreateTopicNodes(topics))
    assert codes == {"a": Code.OK, "b": Code.TOO_LARGE, "c": Code.OK, "d": Code.OK}
    found = await store.perform(ef.ReadTopics(("a", "b", "c")))
    assert found["c"] == large
    assert found["b"] is Code.NO_NODE
    assert await store.perform(ef.WriteTopics({"a": huge, "c": large})) == {
        "a": Code.TOO_LARGE,
        "c": Code.OK,
    }


# -- fencing ---------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", FENCED_WRITES, ids=lambda e: type(e).__name__)
async def test_another_controller_fences_every_write(
    zk: Session, chroot: str, effect: ef.Effect[Any]
) -> None:
    store = await ruling(zk)
    await make_topic(store, "t", 3)
    with kazoo(chroot) as kz:
        kz.create(paths.deletion("marked"))
        kz.create(paths.REASSIGN_PARTITIONS, b"{}")
        kz.create(paths.PREFERRED_REPLICA_ELECTION, b"{}")
        kz.create(f"{paths.ISR_CHANGES}/isr_change_", b"{}", sequence=True)
        before = _everything(kz)
        kz.set(paths.CONTROLLER_EPOCH, b"2")
        with pytest.raises(ControllerMoved):
            await store.perform(effect)
        assert _everything(kz) == before
        kz.delete(paths.CONTROLLER_EPOCH)
        with pytest.raises(ControllerMoved):
            await store.perform(effect)
        assert _everything(kz) == before


async def test_fenced_in_the_middle_of_a_long_write(zk: Session, chroot: str) -> None:
    between = Between(zk)
    store = await ruling(between)
    tps = await make_topic(store, "t", 2000)
    with kazoo(chroot) as kz:

        def depose(call: str) -> None:
            if call == "multi" and kz.get(paths.CONTROLLER_EPOCH)[0] == b"1":
                kz.set(paths.CONTROLLER_EPOCH, b"2")

        between.before = depose
        with pytest.raises(ControllerMoved):
            await store.perform(ef.WritePartitions({tp: leadership(2) for tp in tps}))
        assert set(leaders(kz, tps)) == {1}, "not one write landed after the epoch was raised"


async def test_a_store_that_never_ruled_writes_nothing(zk: Session, chroot: str) -> None:
    await ruling(zk)
    for effect in FENCED_WRITES:
        with pytest.raises(ControllerMoved):
            await Store(zk, US).perform(effect)


def _everything(kz: KazooClient, path: str = "/") -> dict[str, tuple[bytes, int]]:
    found: dict[str, tuple[bytes, int]] = {}
    for name in kz.get_children(path):
        child = f"{path.rstrip('/')}/{name}"
        data, stat = kz.get(child)
        if child != paths.CONTROLLER_EPOCH:
            found[child] = (data, stat.version)
        found |= _everything(kz, child)
    return found


# -- lost replies ----------------------------------------------------------------------------


async def test_a_lost_reply_is_unknown_and_never_sent_again(zk: Session, chroot: str) -> None:
    between = Between(zk)
    store = await ruling(between)
    tps = await make_topic(store, "t", 3)

    def lose(call: str) -> None:
        if call == "multi":
            between.after = lambda _: None
            raise ConnectionLoss

    between.after = lose
    between.multis.clear()
    codes = await store.perform(ef.WritePartitions({tp: leadership(2) for tp in tps}))
    assert codes == dict.fromkeys(tps, Code.UNKNOWN)
    assert len(between.multis) == 1
    between.calls.clear()
    found = await store.perform(ef.ReadPartitions(tuple(tps)))
    assert between.calls == ["sync", "read_many"], "what another server knows is waited for"
    assert found == {tp: leadership(2, zk_version=1) for tp in tps}
    await store.perform(ef.ReadPartitions(tuple(tps)))
    assert between.calls == ["sync", "read_many", "read_many"]


async def test_a_connection_that_is_cut(chroot: str, proxy: FaultProxy) -> None:
    """Several batches are under way: rows are written, or unknown, and reading tells which."""
    address = proxy.address + "/" + chroot.partition("/")[2]
    async with Session.open(address, timeout_ms=10_000) as zk:
        between = Between(zk)
        store = await ruling(between)
        tps = await make_topic(store, "t", 2000)

        def cut(call: str) -> None:
            if call == "multi":
                between.after = lambda _: None
                proxy.cut_rst()

        between.after = cut
        codes = await store.perform(ef.WritePartitions({tp: leadership(2) for tp in tps}))
        assert set(codes.values()) == {Code.OK, Code.UNKNOWN}
        found = await store.perform(ef.ReadPartitions(tuple(tps)))
        for tp, code in codes.items():
            landed = found[tp] == leadership(2, zk_version=1)
            assert landed or found[tp] == leadership(1)
            assert landed or code is Code.UNKNOWN
        again = {tp: leadership(2) for tp in tps if found[tp] == leadership(1)}
        assert set((await store.perform(ef.WritePartitions(again))).values()) <= {Code.OK}


async def test_reading_goes_on_over_a_cut(chroot: str, proxy: FaultProxy) -> None:
    address = proxy.address + "/" + chroot.partition("/")[2]
    async with Session.open(address, timeout_ms=10_000) as zk:
        store = await ruling(zk)
        tps = await make_topic(store, "t", 1500)
        proxy.stall()
        reading = asyncio.create_task(store.perform(ef.ReadPartitions(tuple(tps))))
        await asyncio.sleep(0)
        proxy.cut_rst()
        proxy.flow()
        assert await reading == {tp: leadership() for tp in tps}


@pytest.mark.parametrize("effect", [*FENCED_WRITES, ef.ListTopics(), ef.ReadTopics(("t",))])
async def test_an_expired_session_ends_the_term(zk: Session, effect: ef.Effect[Any]) -> None:
    between = Between(zk)
    store = await ruling(between)

    def expire(_: str) -> None:
        raise SessionExpired

    between.before = expire
    with pytest.raises(SessionLost):
        await store.perform(effect)


async def test_a_session_that_is_never_served_ends_the_term(zk: Session) -> None:
    between = Between(zk)
    store = await ruling(between)

    def lose(_: str) -> None:
        raise ConnectionLoss

    between.before = lose
    with pytest.raises(SessionLost):
        await store.perform(ef.ReadPartitions((TopicPartition("t", 0),)))
