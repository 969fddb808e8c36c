"""What only a new leader epoch, or a second look, brings right again."""

from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.messages.answers import AlteredPartitions
from kctl.model.codes import KafkaError
from kctl.model.rows import Assignment, Leadership
from tests.logic.notation import describe, tp_of
from tests.logic.world import MakeWorld, malformed, notified

T0 = tp_of("t-0")


def test_a_leader_behind_the_znode_learns_by_a_new_epoch(world: MakeWorld) -> None:
    """Refused it waits for a LeaderAndIsr, and one that repeats the epoch it would ignore."""
    one = world("t-0: 1*,2 isr=1 epoch=3 version=5")
    answer = one.propose("t-0", 1, 2, partition_epoch=4)
    assert answer == AlteredPartitions({T0: KafkaError.INVALID_UPDATE_VERSION})
    assert one["t-0"] == "1*,2 isr=1 epoch=4"
    told = one.last_told(1)[T0]
    assert told is not None
    assert (told.leader_epoch, told.zk_version) == (4, 6)


def test_a_resync_repeats_the_epoch_and_writes_nothing(world: MakeWorld) -> None:
    """A follower that did not know its leader has not taken up that epoch: it does so now."""
    one = world("t-0: 1*,2 isr=1 epoch=3", "t-1: 1*,2 epoch=3")
    recorded = one.run(ev.BrokerResync(2, 102))
    assert [describe(d) for d in recorded.dispatches][:2] == [
        "UpdateMetadata to 2: live brokers",
        "LeaderAndIsr to 2: t-0, t-1",
    ]
    assert not [e for e in recorded.effects if isinstance(e, ef.WritePartitions)]


def test_a_replica_that_left_is_taken_out_of_an_isr_that_an_old_leader_wrote(
    world: MakeWorld,
) -> None:
    one = world("t-0: 1*,2 epoch=3")
    state = one.zk.states[T0]
    assert isinstance(state, Leadership)
    one.zk.states[T0] = Leadership(1, (1, 2, 9), 3, state.controller_epoch, state.zk_version + 1)
    one.zk.isr_notifications.update(notified(a=["t-0"]))
    one.run(ev.IsrChangeNotification())
    assert one["t-0"] == "1*,2 isr=1,2 epoch=4"


def test_no_decision_confirms_a_replica_that_left(world: MakeWorld) -> None:
    """An old leader added 9 just before the write: that is read again, and decided without 9."""
    one = world("t-0: 1*,2,3 epoch=3", brokers=(4,), inter_broker_protocol=(2, 4))
    state = one.zk.states[T0]
    assert isinstance(state, Leadership)
    one.zk.states[T0] = Leadership(1, (1, 2, 3, 9), 3, state.controller_epoch, state.zk_version + 1)
    one.kill(3)
    assert one["t-0"] == "1*,2,3 isr=1,2 epoch=4"
    changed = one.zk.states[T0]
    assert isinstance(changed, Leadership)
    one.zk.states[T0] = Leadership(1, (1, 2, 9), 4, 7, changed.zk_version + 1)
    one.reassign(t_0=(1, 2, 4))
    assert one["t-0"].split(" isr=")[1] == "1,2 epoch=5"


def test_a_reassignment_goes_on_when_its_topic_is_repaired(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", brokers=(3,))
    one.reassign(t_0=(3, 2))
    good = one.zk.topics["t"]
    assert isinstance(good, ef.TopicNode)
    one.zk.topics["t"] = malformed("/brokers/topics/t")
    one.propose("t-0", 1, 2, 3)
    assert one.cluster.reassigning, "its last step could not be written"
    one.zk.topics["t"] = ef.TopicNode(good.partitions, good.topic_id, good.zk_version + 2)
    one.run(ev.PartitionModifications("t"))
    one.fire("retry")
    assert not one.cluster.reassigning
    node = one.zk.topics["t"]
    assert isinstance(node, ef.TopicNode)
    assert node.partitions == {0: Assignment((3, 2))}


def test_an_admin_znode_that_asks_for_nothing_is_removed(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    one.zk.reassignments = {}
    one.run(ev.ZkPartitionReassignment())
    assert one.zk.reassignments is None


def test_an_entry_of_a_topic_removed_by_hand_does_not_block_the_admin_znode(
    world: MakeWorld,
) -> None:
    one = world("t-0: 1*,2", brokers=(3,))
    one.zk.reassignments = {T0: (3, 2)}
    one.run(ev.ZkPartitionReassignment())
    del one.zk.topics["t"]
    del one.zk.states[T0]
    one.run(ev.TopicChange())
    assert one.zk.reassignments is None


def test_a_refused_deletion_is_tried_again(world: MakeWorld) -> None:
    one = world("t-0: 1*")
    one.delete("t")
    refusal = ev.TopicDeletionStopReplicaResponseReceived(
        1, 101, partition_errors={T0: KafkaError.KAFKA_STORAGE_ERROR}
    )
    one.run(refusal)
    again = one.fire("retry")
    assert "StopReplica to 1: t-0(delete)" in [describe(d) for d in again.dispatches]
