"""Topics from creation to deletion, admin znodes and the rest, on a real ZooKeeper."""

import json

import pytest
from aiozk import ACL

from kctl.messages import effects as ef
from kctl.messages.term import ControllerMoved
from kctl.model.codes import Code, Malformed
from kctl.model.names import TopicPartition
from kctl.model.rows import Assignment
from kctl.model.secrets import Secret
from kctl.zookeeper import paths
from kctl.zookeeper.errors import ConnectionLoss
from kctl.zookeeper.session import Session
from kctl.zookeeper.store import Store
from tests.zookeeper.offices import (
    Between,
    kazoo,
    leadership,
    make_topic,
    partitions,
    ruling,
    topic_node,
)

pytestmark = [pytest.mark.zookeeper, pytest.mark.asyncio]

TOPIC_ID = "x3Kj9mQ1RbuWw0a7e5T2Zg"
TP = TopicPartition("t", 0)


# -- creation and change ---------------------------------------------------------------------


async def test_topics_and_their_configs_are_made_together(zk: Session, chroot: str) -> None:
    store = await ruling(zk)
    node = ef.TopicNode({0: Assignment((1, 2)), 1: Assignment((2, 1))}, TOPIC_ID, 0)
    with kazoo(chroot) as kz:
        kz.create(paths.topic("taken"), b"{}")
        kz.create(paths.topic_config("taken"), b"old")
        kz.create(paths.topic_config("left over"), b"old")
        config = {"retention.ms": "1"}
        codes = await store.perform(
            ef.CreateTopicNodes(
                {t: ef.TopicToCreate(node, config) for t in ("a", "taken", "left over", "b")}
            )
        )
        assert list(codes.items()) == [
            ("a", Code.OK),
            ("taken", Code.NODE_EXISTS),
            ("left over", Code.OK),
            ("b", Code.OK),
        ]
        assert kz.get(paths.topic_config("taken"))[0] == b"old"
        for topic in ("a", "left over", "b"):
            assert json.loads(kz.get(paths.topic_config(topic))[0])["config"] == config
            assert json.loads(kz.get(paths.topic(topic))[0]) == {
                "version": 3,
                "topic_id": TOPIC_ID,
                "partitions": {"0": [1, 2], "1": [2, 1]},
                "adding_replicas": {},
                "removing_replicas": {},
            }


async def test_topics_are_changed_by_version(zk: Session, chroot: str) -> None:
    store = await ruling(zk)
    for topic in ("a", "b"):
        await make_topic(store, topic, 1)
    moving = ef.TopicNode({0: Assignment((3, 1), (3,), (1,))}, TOPIC_ID, 0)
    with kazoo(chroot) as kz:
        kz.set(paths.topic("b"), b'{"partitions":{"0":[1],"1":[2]}}')
        codes = await store.perform(ef.WriteTopics({"a": moving, "b": moving, "c": moving}))
        assert codes == {"a": Code.OK, "b": Code.BAD_VERSION, "c": Code.NO_NODE}
        content = json.loads(kz.get(paths.topic("a"))[0])
        assert (content["adding_replicas"], content["removing_replicas"]) == (
            {"0": [3]},
            {"0": [1]},
        )
        assert json.loads(kz.get(paths.topic("b"))[0]) == {"partitions": {"0": [1], "1": [2]}}


# -- deletion --------------------------------------------------------------------------------


async def test_a_topic_is_deleted(zk: Session, chroot: str) -> None:
    store = await ruling(zk)
    tps = await make_topic(store, "t", 700)
    other = await make_topic(store, "other", 1)
    assert await store.perform(ef.MarkForDeletion(("t", "u"))) == {"t": Code.OK, "u": Code.OK}
    assert await store.perform(ef.MarkForDeletion(("t",))) == {"t": Code.OK}
    assert await store.perform(ef.ListDeletions()) == ("t", "u")
    assert await store.perform(ef.UnmarkForDeletion(("u", "never"))) == {
        "u": Code.OK,
        "never": Code.OK,
    }
    removed = await store.perform(ef.RemovePartitionNodes(tuple(tps)))
    assert list(removed.items()) == [(tp, Code.OK) for tp in tps]
    assert set((await store.perform(ef.RemovePartitionNodes(tuple(tps)))).values()) == {Code.OK}
    assert await store.perform(ef.RemoveTopicNodes(("t",))) == {"t": Code.OK}
    assert await store.perform(ef.RemoveTopicNodes(("t", "never"))) == {
        "t": Code.OK,
        "never": Code.OK,
    }
    with kazoo(chroot) as kz:
        for parent in (paths.TOPICS, paths.TOPIC_CONFIGS):
            assert kz.get_children(parent) == ["other"]
        assert kz.get_children(paths.DELETE_TOPICS) == []
        assert kz.exists(paths.partition_state(other[0]))


async def test_partitions_that_are_half_gone_or_hold_more_than_a_state(
    zk: Session, chroot: str
) -> None:
    store = await ruling(zk)
    tps = await make_topic(store, "t", 5)
    neighbour = await make_topic(store, "neighbour", 1)
    with kazoo(chroot) as kz:
        kz.delete(paths.partition_state(tps[1]))
        kz.delete(paths.partition(tps[2]), recursive=True)
        kz.ensure_path(f"{paths.partition(tps[3])}/stray/of/some/depth")
        kz.ensure_path(f"{paths.partition_state(tps[4])}/below")
        codes = await store.perform(ef.RemovePartitionNodes(tuple(tps)))
        assert codes == dict.fromkeys(tps, Code.OK)
        assert kz.get_children(paths.partitions("t")) == []
        assert kz.exists(paths.partition_state(neighbour[0]))


async def test_strays_beyond_all_bounds_stay(zk: Session, chroot: str) -> None:
    store = await ruling(zk)
    tps = await make_topic(store, "t", 2)
    with kazoo(chroot) as kz:
        deep = paths.partition(tps[0]) + "/d" * 12
        kz.ensure_path(deep)
        codes = await store.perform(ef.RemovePartitionNodes(tuple(tps)))
        assert codes == {tps[0]: Code.NOT_EMPTY, tps[1]: Code.OK}
        assert kz.exists(deep)


async def test_what_is_left_below_a_doomed_topic_goes_with_it(zk: Session, chroot: str) -> None:
    """Also what Kafka knows nothing of; but only while the topic is marked for deletion."""
    store = await ruling(zk)
    for topic in ("marked", "unmarked", "tidy"):
        await make_topic(store, topic, 1)
    await store.perform(ef.RemovePartitionNodes((TopicPartition("tidy", 0),)))
    await store.perform(ef.MarkForDeletion(("marked", "tidy")))
    with kazoo(chroot) as kz:
        kz.ensure_path(f"{paths.partitions('marked')}/x/y")
        kz.ensure_path(f"{paths.topic('marked')}/stray")
        kz.delete(paths.topic_config("tidy"))
        codes = await store.perform(ef.RemoveTopicNodes(("marked", "unmarked", "tidy")))
        assert codes == {"marked": Code.OK, "unmarked": Code.NOT_EMPTY, "tidy": Code.OK}
        assert kz.get_children(paths.TOPICS) == ["unmarked"]
        assert kz.exists(paths.partition_state(TopicPartition("unmarked", 0)))


async def test_a_topic_made_again_after_a_lost_reply_is_not_removed(
    zk: Session, chroot: str
) -> None:
    between = Between(zk)
    store = await ruling(between)
    tps = await make_topic(store, "t", 1)
    await store.perform(ef.MarkForDeletion(("t",)))
    await store.perform(ef.RemovePartitionNodes(tuple(tps)))

    def lose(call: str) -> None:
        if call == "multi":
            between.after = lambda _: None
            raise ConnectionLoss

    between.after = lose
    assert await store.perform(ef.RemoveTopicNodes(("t",))) == {"t": Code.UNKNOWN}
    with kazoo(chroot) as kz:
        assert kz.exists(paths.topic("t")) is None, "it had landed"
        kz.create(paths.topic("t"), b"new")
        assert await store.perform(ef.RemoveTopicNodes(("t",))) == {"t": Code.OK}
        assert kz.get(paths.topic("t"))[0] == b"new"


# -- admin znodes ----------------------------------------------------------------------------


async def test_reassignments_by_znode(zk: Session, chroot: str) -> None:
    store = await ruling(zk)
    assert await store.perform(ef.ReadReassignments()) is Code.NO_NODE
    assert await store.perform(ef.WriteReassignments({})) is Code.OK
    targets = {TP: (1, 2), TopicPartition("u", 3): (4,)}
    assert await store.perform(ef.WriteReassignments(targets)) is Code.OK
    assert await store.perform(ef.ReadReassignments()) == targets
    assert await store.perform(ef.WriteReassignments({TP: (1, 2)})) is Code.OK
    assert await store.perform(ef.ReadReassignments()) == {TP: (1, 2)}
    with kazoo(chroot) as kz:
        kz.set(paths.REASSIGN_PARTITIONS, b"garbage")
        spoiled = await store.perform(ef.ReadReassignments())
        assert isinstance(spoiled, Malformed)
        assert await store.perform(ef.WriteReassignments({})) is Code.OK
        assert kz.exists(paths.REASSIGN_PARTITIONS) is None


async def test_preferred_election_by_znode(zk: Session, chroot: str) -> None:
    store = await ruling(zk)
    assert await store.perform(ef.ReadPreferredElection()) is Code.NO_NODE
    with kazoo(chroot) as kz:
        data = b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
        kz.create(paths.PREFERRED_REPLICA_ELECTION, data)
        assert await store.perform(ef.ReadPreferredElection()) == (TP,)
        assert await store.perform(ef.RemovePreferredElection()) is Code.OK
        assert await store.perform(ef.RemovePreferredElection()) is Code.OK
        assert kz.exists(paths.PREFERRED_REPLICA_ELECTION) is None


async def test_notifications(zk: Session, chroot: str) -> None:
    store = await ruling(zk)
    with kazoo(chroot) as kz:
        isr = f"{paths.ISR_CHANGES}/isr_change_"
        named = b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
        kz.create(isr, named, sequence=True)
        kz.create(isr, b"garbage", sequence=True)
        dirs = f"{paths.LOG_DIR_EVENTS}/log_dir_event_"
        kz.create(dirs, b'{"version":1,"broker":3,"event":1}', sequence=True)
        found = await store.perform(ef.ReadIsrNotifications())
        assert list(found) == [isr + "0000000000", isr + "0000000001"]
        assert found[isr + "0000000000"] == (TP,)
        assert isinstance(found[isr + "0000000001"], Malformed)
        failed = await store.perform(ef.ReadLogDirNotifications())
        assert failed == {dirs + "0000000000": 3}
        gone = isr + "0000000099"
        await store.perform(ef.RemoveNotifications((*found, gone, *failed)))
        assert kz.get_children(paths.ISR_CHANGES) == []
        assert kz.get_children(paths.LOG_DIR_EVENTS) == []
    assert await store.perform(ef.ReadIsrNotifications()) == {}


async def test_features_and_producer_ids(zk: Session, chroot: str) -> None:
    store = await ruling(zk)
    assert await store.perform(ef.ReadFeatures()) is Code.NO_NODE
    for node in (ef.FeatureNode(False, {}), ef.FeatureNode(True, {})):
        assert await store.perform(ef.WriteFeatures(node)) is Code.OK
        assert await store.perform(ef.ReadFeatures()) == node
    assert await store.perform(ef.ReadProducerIds()) == ef.ProducerIds(-1, 0)
    assert await store.perform(ef.WriteProducerIds(1, 0, 999, 0)) is Code.OK
    assert await store.perform(ef.WriteProducerIds(2, 0, 999, 0)) is Code.BAD_VERSION
    assert await store.perform(ef.ReadProducerIds()) == ef.ProducerIds(999, 1)
    with kazoo(chroot) as kz:
        kz.delete(paths.PRODUCER_IDS)
        assert await store.perform(ef.ReadProducerIds()) == ef.ProducerIds(-1, 0)
        kz.set(paths.PRODUCER_IDS, b"garbage")
        spoiled = await store.perform(ef.ReadProducerIds())
        assert isinstance(spoiled, Malformed)


async def test_users(zk: Session, chroot: str) -> None:
    """Quotas stay, versions are looked at, and brokers are told in the same transaction."""
    store = await ruling(zk)
    sha, longer = Secret("salt=x"), Secret("salt=y")
    odd = "a/b c*~<d>"
    made = await store.perform(
        ef.AlterUsers({"alice": {"SCRAM-SHA-256": sha}, odd: {"SCRAM-SHA-256": sha}})
    )
    assert made == {"alice": Code.OK, odd: Code.OK}
    with kazoo(chroot) as kz:
        assert sorted(kz.get_children("/config/users")) == ["a%2Fb%20c%2A%7E%3Cd%3E", "alice"]
        quota = b'{"version":1,"config":{"producer_byte_rate":"7","SCRAM-SHA-256":"salt=x"}}'
        kz.set("/config/users/alice", quota)
        kz.create("/config/users/broken", b"no JSON")
        changed = await store.perform(
            ef.AlterUsers(
                {
                    "alice": {"SCRAM-SHA-256": None, "SCRAM-SHA-512": longer},
                    "broken": {"SCRAM-SHA-256": sha},
                    "nobody": {"SCRAM-SHA-256": None},
                    "..": {"SCRAM-SHA-256": sha},
                }
            )
        )
        assert (changed["alice"], changed["nobody"]) == (Code.OK, Code.NO_NODE)
        assert isinstance(changed["broken"], Malformed)
        assert isinstance(changed[".."], Malformed)
        assert json.loads(kz.get("/config/users/alice")[0]) == {
            "version": 1,
            "config": {"producer_byte_rate": "7", "SCRAM-SHA-512": "salt=y"},
        }
        told = [
            json.loads(kz.get(f"{paths.CONFIG_CHANGES}/{name}")[0])
            for name in sorted(kz.get_children(paths.CONFIG_CHANGES))
        ]
    assert told == [
        {"version": 2, "entity_path": "users/alice"},
        {"version": 2, "entity_path": "users/a%2Fb%20c%2A%7E%3Cd%3E"},
        {"version": 2, "entity_path": "users/alice"},
    ]


async def test_users_under_the_fence(zk: Session, chroot: str) -> None:
    store = await ruling(zk)
    with kazoo(chroot) as kz:
        kz.set(paths.CONTROLLER_EPOCH, b"77")
        with pytest.raises(ControllerMoved):
            await store.perform(ef.AlterUsers({"alice": {"SCRAM-SHA-256": Secret("x")}}))
        assert kz.get_children("/config/users") == []


# -- rights ----------------------------------------------------------------------------------


async def test_rights_of_all_that_we_create(chroot: str) -> None:
    """As brokers set them with `zookeeper.set.acl`, read back from every znode."""
    async with Session.open(chroot, auth=[("digest", b"kafka:secret")]) as zk:
        store = await ruling(zk, set_acl=True)
        await store.perform(ef.RegisterController(()))
        await make_topic(store, "t", 2)
        await store.perform(ef.MarkForDeletion(("t",)))
        await store.perform(ef.WriteReassignments({TP: (1,)}))
        await store.perform(ef.WriteFeatures(ef.FeatureNode(True, {})))
        await store.perform(ef.CreatePartitionStates({TopicPartition("t", 7): leadership()}))
        await store.perform(ef.AlterUsers({"alice": {"SCRAM-SHA-256": Secret("x")}}))
        seen = 0
        todo = ["/"]
        while todo:
            path = todo.pop()
            todo += [f"{path.rstrip('/')}/{name}" for name in await zk.children(path)]
            if path == "/":
                continue
            acl, _ = await zk.get_acl(path)
            seen += 1
            if path == "/consumers":
                assert _rights(acl) == [("world", 31)]
            elif path in {"/config/users", "/config/users/alice", "/config/brokers"}:
                assert _rights(acl) == [("digest", 31)], path
            else:
                assert _rights(acl) == [("digest", 31), ("world", 1)], path
        assert seen > 30
    async with Session.open(chroot) as stranger:
        assert await Store(stranger, 7).perform(ef.ReadTopics(("t",))) == {"t": topic_node(2)}
        claim = ef.ClaimControllership(2, 1, None)
        assert await Store(stranger, 7).perform(claim) is Code.NO_AUTH


async def test_without_set_acl_all_is_open(zk: Session) -> None:
    store = await ruling(zk)
    await make_topic(store, "t", 1)
    for path in (paths.CONTROLLER, "/config/users", paths.partition_state(TP)):
        assert _rights((await zk.get_acl(path))[0]) == [("world", 31)]


def _rights(acl: tuple[ACL, ...]) -> list[tuple[str, int]]:
    return [(entry.id.scheme, entry.perms) for entry in acl]


async def test_two_clusters_in_one_ensemble(zk: Session, chroot: str) -> None:
    """Each in its chroot, the names the same."""
    await zk.create("/one")
    await zk.create("/two")
    async with Session.open(chroot + "/one") as one, Session.open(chroot + "/two") as two:
        first, second = await ruling(one), await ruling(two)
        await make_topic(first, "t", 3)
        await make_topic(second, "t", 1)
        await second.perform(ef.MarkForDeletion(("t",)))
        await second.perform(ef.RemoveTopicNodes(("t",)))
        assert await second.perform(ef.ListTopics()) == ()
        found = await first.perform(ef.ReadPartitions(tuple(partitions("t", 3))))
        assert found == {tp: leadership() for tp in partitions("t", 3)}
        assert await first.perform(ef.ReadTopics(("t",))) == {"t": topic_node(3)}
