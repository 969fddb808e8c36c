"""Topics that appear, grow or vanish in ZooKeeper, made there by brokers and old tools."""

import pytest

from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.messages.answers import PartitionErrors
from kctl.messages.effects import TopicNode
from kctl.model.rows import Assignment
from kctl.model.states import PartitionState, ReplicaState
from tests.logic.notation import describe, topic_id, tp_of
from tests.logic.world import MakeWorld, World, foreign_controller


def create(one: World, topic: str, *replicas: tuple[int, ...], known_id: str | None = "") -> None:
    """As a broker does that creates a topic itself."""
    partitions = {p: Assignment(r) for p, r in enumerate(replicas)}
    one.zk.topics[topic] = TopicNode(partitions, topic_id(topic) if known_id == "" else known_id, 0)


def node(one: World, topic: str) -> TopicNode:
    found = one.zk.topics[topic]
    assert isinstance(found, TopicNode)
    return found


def grow(one: World, topic: str, *replicas: tuple[int, ...]) -> None:
    known = node(one, topic)
    first = len(known.partitions)
    added = {first + n: Assignment(r) for n, r in enumerate(replicas)}
    one.zk.topics[topic] = TopicNode(
        {**known.partitions, **added}, known.topic_id, known.zk_version + 1
    )


@pytest.mark.handles("TopicChange")
@pytest.mark.parity(16)
def test_a_new_topic_comes_online(world: MakeWorld) -> None:
    one = world(brokers=(1, 2, 3))
    create(one, "t", (1, 2), (2, 3))
    recorded = one.run(ev.TopicChange())
    assert (one["t-0"], one["t-1"]) == ("1*,2 isr=1,2 epoch=0", "2*,3 isr=2,3 epoch=0")
    assert [describe(d) for d in recorded.dispatches] == [
        "LeaderAndIsr to 1: t-0(new)",
        "LeaderAndIsr to 2: t-0(new), t-1(new)",
        "LeaderAndIsr to 3: t-1(new)",
        "UpdateMetadata to 1,2,3: t-0, t-1",
    ]
    assert one.run(ev.TopicChange()).dispatches == []


@pytest.mark.handles("TopicChange")
@pytest.mark.parity(17)
def test_a_new_topic_with_some_replicas_down(world: MakeWorld) -> None:
    """Only the live ones are in the ISR, and only those are told."""
    one = world(brokers=(1, 2))
    create(one, "t", (3, 1, 2))
    sent = one.sent(ev.TopicChange())
    assert one["t-0"] == "3,1*,2 isr=1,2 epoch=0"
    assert sent == [
        *("LeaderAndIsr to 1: t-0(new)", "LeaderAndIsr to 2: t-0(new)"),
        "UpdateMetadata to 1,2: t-0",
    ]
    assert one.cluster.rows[tp_of("t-0")].replica_state(3) is ReplicaState.OFFLINE


@pytest.mark.handles("TopicChange")
@pytest.mark.parity(18)
def test_a_new_topic_with_all_replicas_down_waits(world: MakeWorld) -> None:
    one = world(brokers=(1,))
    create(one, "t", (2, 3))
    assert one.sent(ev.TopicChange()) == []
    assert one.cluster.rows[tp_of("t-0")].state is PartitionState.NEW
    one.start(3)
    assert one["t-0"] == "2,3* isr=3 epoch=0"
    assert one.cluster.rows[tp_of("t-0")].state is PartitionState.ONLINE


@pytest.mark.handles("TopicChange")
@pytest.mark.parity(21)
def test_a_new_topic_without_an_id_gets_one_before_it_is_told(world: MakeWorld) -> None:
    one = world(brokers=(1, 2))
    create(one, "t", (1, 2), known_id=None)
    recorded = one.run(ev.TopicChange())
    minted = node(one, "t").topic_id
    assert minted is not None
    kinds = [type(e) for e in recorded.effects]
    assert kinds.index(ef.WriteTopics) < kinds.index(ef.CreatePartitionStates)
    assert {d.topic_ids["t"] for d in recorded.dispatches if hasattr(d, "topic_ids")} == {minted}


@pytest.mark.handles("TopicChange")
def test_a_topic_removed_by_hand_is_forgotten(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", "u-0: 1*,2")
    del one.zk.topics["t"], one.zk.states[tp_of("t-0")]
    one.run(ev.TopicChange())
    assert list(one.cluster.topics) == ["u"]
    assert one.told("topic gone") == ["t: its znode was removed by somebody else"]


@pytest.mark.handles("TopicChange")
def test_a_topic_with_the_id_of_another_is_put_aside(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    create(one, "copy", (1, 2), known_id=topic_id("t"))
    create(one, "fine", (1, 2))
    one.run(ev.TopicChange())
    assert set(one.cluster.topics) == {"t", "fine"}
    reason = one.cluster.quarantine["/brokers/topics/copy"]
    assert reason == f"its id {topic_id('t')} is that of topic t"


def test_a_state_that_is_there_already_is_not_overwritten(world: MakeWorld) -> None:
    """Somebody created it before: it has a history, and its leader is elected by the rules."""
    one = world("t-0: 1*,2", "u-0: 1*,2 isr=2 epoch=9")
    del one.zk.topics["u"]
    one.run(ev.TopicChange())
    create(one, "u", (1, 2))
    one.run(ev.TopicChange())
    assert one["u-0"] == "1,2* isr=2 epoch=10"
    assert one.cluster.rows[tp_of("u-0")].state is PartitionState.ONLINE


# -- growth --------------------------------------------------------------------------------------


@pytest.mark.handles("PartitionModifications")
@pytest.mark.parity(19)
def test_added_partitions_come_online(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    grow(one, "t", (2, 1), (1, 2))
    sent = one.sent(ev.PartitionModifications("t"))
    assert (one["t-1"], one["t-2"]) == ("2*,1 isr=2,1 epoch=0", "1*,2 isr=1,2 epoch=0")
    assert "LeaderAndIsr to 2: t-1(new), t-2(new)" in sent
    assert one["t-0"] == "1*,2 isr=1,2 epoch=0"


@pytest.mark.handles("PartitionModifications")
def test_our_own_write_seen_by_the_watch_changes_nothing(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", brokers=(3,))
    one.reassign(t_0=(1, 3))
    before = one["t-0"]
    recorded = one.run(ev.PartitionModifications("t"))
    assert [type(e) for e in recorded.effects] == [ef.ReadTopics]
    assert recorded.dispatches == []
    assert one["t-0"] == before


@pytest.mark.handles("PartitionModifications")
@pytest.mark.parity(20)
def test_growth_of_a_topic_in_deletion_is_undone(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    one.delete("t")
    grow(one, "t", (2, 1))
    one.run(ev.PartitionModifications("t"))
    assert list(node(one, "t").partitions) == [0]
    assert tp_of("t-1") not in one.zk.states
    one.settle()
    assert not one.zk.topics


@pytest.mark.handles("PartitionModifications")
@pytest.mark.parity(22)
def test_an_id_lost_by_an_old_tool_is_restored(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    known = node(one, "t")
    one.zk.topics["t"] = TopicNode(known.partitions, None, known.zk_version + 1)
    one.run(ev.PartitionModifications("t"))
    assert node(one, "t").topic_id == topic_id("t")
    assert one.told("topic id restored") == ["t: the znode was rewritten without it"]


@pytest.mark.handles("PartitionModifications")
def test_a_topic_made_anew_under_its_old_name_is_another_topic(world: MakeWorld) -> None:
    """Nothing of the old rows is carried over, though version and name are the same."""
    one = world("t-0: 1*,2 epoch=5", "t-1: 1*,2 epoch=5", brokers=(3,))
    one.zk.states.clear()
    create(one, "t", (3, 2), known_id=topic_id("another t"))
    one.run(ev.PartitionModifications("t"))
    assert one["t-0"] == "3*,2 isr=3,2 epoch=0"
    assert list(one.cluster.rows) == [tp_of("t-0")]
    assert one.cluster.topic_names == {topic_id("another t"): "t"}


@pytest.mark.handles("PartitionModifications")
def test_a_topic_that_is_not_known_yet_is_looked_for(world: MakeWorld) -> None:
    one = world(brokers=(1, 2))
    create(one, "t", (1, 2))
    one.run(ev.PartitionModifications("t"))
    assert one["t-0"] == "1*,2 isr=1,2 epoch=0"
    assert one.run(ev.PartitionModifications("nobody")).dispatches == []


def test_partitions_that_somebody_adds_during_our_write_are_kept(world: MakeWorld) -> None:
    """The znode holds the whole topic: a write under an old version would lose them."""
    one = world("t-0: 1*,2", brokers=(3,))
    grow(one, "t", (2, 1))
    one.reassign(t_0=(1, 3))
    assert node(one, "t").partitions == {
        0: Assignment((1, 3, 2), (3,), (2,)),
        1: Assignment((2, 1)),
    }
    one.run(ev.PartitionModifications("t"))
    assert one["t-1"] == "2*,1 isr=2,1 epoch=0"


# -- a controller among brokers ------------------------------------------------------------------


@pytest.mark.parity(73)
def test_a_replica_placed_on_the_controller_is_moved_before_anything_is_written(
    world: MakeWorld,
) -> None:
    one = world(brokers=(1, 2, 3))
    create(one, "t", (1000, 1), (2, 1000), (1000,))
    recorded = one.run(ev.TopicChange())
    kinds = [type(e) for e in recorded.effects]
    assert kinds.index(ef.WriteTopics) < kinds.index(ef.CreatePartitionStates)
    assert (one["t-0"], one["t-1"]) == ("2*,1 isr=2,1 epoch=0", "2*,3 isr=2,3 epoch=0")
    assert one["t-2"] == "3* isr=3 epoch=0"
    assert 1000 not in one.cluster.by_broker or not one.cluster.by_broker[1000]


@pytest.mark.parity(73)
def test_without_a_free_broker_there_is_one_replica_less(world: MakeWorld) -> None:
    one = world(brokers=(1, 2))
    create(one, "t", (1, 1000, 2))
    one.run(ev.TopicChange())
    assert one["t-0"] == "1*,2 isr=1,2 epoch=0"


@pytest.mark.parity(73)
def test_a_partition_that_lived_on_the_controller_is_reassigned_at_failover(
    world: MakeWorld,
) -> None:
    one = world("t-0: 1*,1000 isr=1", dead=(1000,), brokers=(2,))
    assert one["t-0"] == "1*,2,1000 adding=2 removing=1000 isr=1 epoch=2"
    one.settle()
    assert one["t-0"] == "1*,2 isr=1,2 epoch=3"


@pytest.mark.parity(73)
def test_a_misplaced_partition_waits_for_a_live_broker(world: MakeWorld) -> None:
    one = world()
    create(one, "t", (1000, 1))
    one.run(ev.TopicChange())
    assert one["t-0"] == "1000,1 new"
    one.start(2)
    assert one["t-0"] == "2*,1 isr=2 epoch=0"


def test_placing_nothing_on_a_topic_in_deletion(world: MakeWorld) -> None:
    one = world("t-0: 1*,1000 isr=1", dead=(1000,), elected=False)
    one.zk.deletions["t"] = None
    one.run(ev.Startup())
    assert one["t-0"].startswith("1")


@pytest.mark.parity(73)
def test_a_replica_placed_on_another_controller_is_moved_too(world: MakeWorld) -> None:
    """Brokers that created topics before they heard of us took our predecessor for a broker."""
    one = world("t-0: 1*,1001 isr=1", dead=(1001,), brokers=(2, 3), elected=False)
    one.zk.controller = foreign_controller(1001, kctl=True)
    one.run(ev.Startup())
    assert one.node.cluster is None
    one.zk.controller = None
    create(one, "u", (1001, 1000, 1), (1002, 2))
    one.run(ev.Reelect())
    one.settle()
    assert one["t-0"] == "1*,2 isr=1,2 epoch=3"
    assert one["u-0"].startswith("3*,2,1 ")
    # That one was never seen, and may be a broker that is down.
    assert one["u-1"].startswith("1002,2* ")
    assert isinstance(one.reassign(t_0=(1, 1001)), PartitionErrors)
    assert one["t-0"] == "1*,2 isr=1,2 epoch=3"


def test_controllers_that_are_listed(world: MakeWorld) -> None:
    one = world("t-0: 1*,1001 isr=1", dead=(1001,), brokers=(2,), controller_ids=(1000, 1001))
    one.settle()
    assert one["t-0"] == "1*,2 isr=1,2 epoch=3"


def test_a_listed_id_under_which_a_broker_is_registered_is_a_brokers(world: MakeWorld) -> None:
    one = world("t-0: 1*,1001", brokers=(2,), controller_ids=(1001,))
    assert one["t-0"] == "1*,1001 isr=1,1001 epoch=0"
