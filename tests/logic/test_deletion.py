"""Topic deletion, from the marker to nothing left."""

import pytest

from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.messages.answers import OK, PartitionErrors
from kctl.messages.requests import StopReplicaRequest, UpdateMetadataRequest
from kctl.model.cluster import DEPARTED_MAX
from kctl.model.codes import KafkaError
from kctl.model.names import TopicPartition
from kctl.model.rows import Assignment
from kctl.model.states import PartitionState, ReplicaState
from kctl.simulation.memory import Recorded
from tests.logic.notation import describe, topic_id, tp_of
from tests.logic.world import MakeWorld, World, foreign_controller, malformed


def deleted(
    one: World, broker: int, *names: str, error: int = 0, partition_error: int = 0
) -> Recorded:
    """A broker's answer to StopReplica with deletion."""
    epoch = one.cluster.brokers[broker].epoch
    errors = {tp_of(name): partition_error for name in names}
    return one.run(ev.TopicDeletionStopReplicaResponseReceived(broker, epoch, error, errors))


def asked(recorded: Recorded) -> list[type]:
    return [type(e) for e in recorded.effects if not isinstance(e, ef.Flush)]


def states(one: World, name: str) -> list[str]:
    return [state.name for state in one.cluster.rows[tp_of(name)].replica_states]


@pytest.mark.handles("TopicDeletion", "TopicDeletionStopReplicaResponseReceived")
@pytest.mark.parity(23, 29)
def test_a_topic_goes_step_by_step(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", "t-1: 2*,1", "u-0: 1*,2")
    one.zk.configs["t"] = {"retention.ms": "1"}
    recorded = one.delete("t")
    assert [describe(d) for d in recorded.dispatches] == [
        "UpdateMetadata to 1,2: t-0(deleted), t-1(deleted)",
        "StopReplica to 1: t-0(delete), t-1(delete)",
        "StopReplica to 2: t-0(delete), t-1(delete)",
    ]
    stop = recorded.dispatches[-1]
    assert isinstance(stop, StopReplicaRequest)
    assert {order.leader_epoch for order in stop.partitions.values()} == {-2}
    assert not [e for e in recorded.effects if isinstance(e, ef.WritePartitions)]
    assert one.cluster.rows[tp_of("t-0")].state is PartitionState.NON_EXISTENT
    deleted(one, 1, "t-0", "t-1")
    assert states(one, "t-0") == ["DELETION_SUCCESSFUL", "DELETION_STARTED"]
    assert "t" in one.zk.topics
    removed = deleted(one, 2, "t-0", "t-1")
    assert asked(removed) == [ef.RemovePartitionNodes, ef.RemoveTopicNodes]
    assert (list(one.zk.topics), list(one.zk.states)) == (["u"], [tp_of("u-0")])
    assert not one.zk.deletions
    assert not one.zk.configs
    assert one.told("topic deleted") == ["t: all its replicas are gone"]


@pytest.mark.parity(23)
def test_the_name_can_be_used_again_at_once(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    one.delete("t")
    one.settle()
    created = one.ask(ev.CreateTopics(1, (ev.NewTopic("t", 1, 2),)))
    assert created.topics[0].error == OK  # type: ignore[union-attr]
    assert one["t-0"].endswith("epoch=0")


@pytest.mark.parity(24)
def test_a_dead_replica_holds_it_until_the_broker_is_back(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3")
    one.kill(3)
    one.delete("t")
    one.settle()
    assert states(one, "t-0") == ["DELETION_SUCCESSFUL", "DELETION_SUCCESSFUL", "OFFLINE"]
    assert one.cluster.deletions["t"].ineligible == "replica of t-0 on broker 3 is offline"
    recorded = one.start(3)
    assert "StopReplica to 3: t-0(delete)" in [describe(d) for d in recorded.dispatches]
    one.settle()
    assert not one.zk.topics
    assert not one.zk.deletions


@pytest.mark.parity(24)
def test_a_broker_that_dies_during_the_deletion(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    one.delete("t")
    recorded = one.kill(2)
    assert states(one, "t-0") == ["DELETION_STARTED", "DELETION_INELIGIBLE"]
    assert not [d for d in recorded.dispatches if isinstance(d, StopReplicaRequest)]
    deleted(one, 1, "t-0")
    one.start(2)
    one.settle()
    assert not one.zk.topics


@pytest.mark.parity(24)
def test_while_one_is_deleting_a_returning_broker_waits_for_its_answer(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    one.delete("t")
    one.kill(2)
    started = one.start(2)
    assert not [d for d in started.dispatches if isinstance(d, StopReplicaRequest)]
    assert deleted(one, 1, "t-0").dispatches
    one.settle()
    assert not one.zk.topics


@pytest.mark.parity(25)
def test_a_reassignment_holds_it_until_it_is_through(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", brokers=(3,))
    one.reassign(t_0=(3, 2))
    sent = [describe(d) for d in one.delete("t").dispatches]
    assert sent == []
    assert one.cluster.deletions["t"].ineligible == "one of its partitions is being reassigned"
    one.propose("t-0", 1, 2, 3)
    one.settle()
    assert not one.zk.topics


@pytest.mark.handles("TopicDeletionStopReplicaResponseReceived")
@pytest.mark.parity(26)
def test_a_refusal_holds_it_and_it_is_tried_again(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    one.delete("t")
    deleted(one, 1, "t-0", partition_error=KafkaError.KAFKA_STORAGE_ERROR)
    assert one.cluster.deletions["t"].ineligible == "a broker refused to delete a replica"
    assert states(one, "t-0") == ["DELETION_INELIGIBLE", "DELETION_STARTED"]
    deleted(one, 2, "t-0")
    assert states(one, "t-0") == ["OFFLINE", "DELETION_SUCCESSFUL"]
    again = [describe(d) for d in one.bounce(1).dispatches]
    assert "StopReplica to 1: t-0(delete)" in again
    one.settle()
    assert not one.zk.topics


@pytest.mark.handles("TopicDeletionStopReplicaResponseReceived")
@pytest.mark.parity(26)
def test_a_request_refused_as_a_whole_deleted_nothing(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", "t-1: 1*,2")
    one.delete("t")
    deleted(one, 1, error=KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    assert states(one, "t-0")[0] == states(one, "t-1")[0] == "DELETION_INELIGIBLE"


@pytest.mark.handles("TopicDeletionStopReplicaResponseReceived")
def test_a_broker_that_obeys_a_newer_controller_ends_the_term(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    one.delete("t")
    one.zk.controller = foreign_controller(2)
    deleted(one, 1, "t-0", error=KafkaError.STALE_CONTROLLER_EPOCH)
    assert one.node.cluster is None


@pytest.mark.handles("TopicDeletionStopReplicaResponseReceived")
@pytest.mark.parametrize(
    "answer",
    [
        ev.TopicDeletionStopReplicaResponseReceived(1, 100, 0, {tp_of("t-0"): 0}),
        ev.TopicDeletionStopReplicaResponseReceived(9, 1, 0, {tp_of("t-0"): 0}),
        ev.TopicDeletionStopReplicaResponseReceived(1, 101, 0, {tp_of("u-0"): 0}),
        ev.TopicDeletionStopReplicaResponseReceived(1, 101, 0, {tp_of("nobody-0"): 0}),
    ],
    ids=["older incarnation", "unknown broker", "topic that stays", "unknown topic"],
)
def test_answers_that_do_not_count(world: MakeWorld, answer: ev.Event) -> None:
    one = world("t-0: 1*,2", "u-0: 1*,2")
    one.delete("t")
    before = dict(one.cluster.rows)
    one.run(answer)
    assert one.cluster.rows == before


def test_an_answer_twice_is_one_answer(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    one.delete("t")
    deleted(one, 1, "t-0")
    deleted(one, 1, "t-0")
    assert states(one, "t-0") == ["DELETION_SUCCESSFUL", "DELETION_STARTED"]


def test_many_answers_are_one_look(world: MakeWorld) -> None:
    one = world(*(f"t-{p}: 1*,2,3" for p in range(3)))
    recorded = one.delete("t")
    stops = [d for d in recorded.dispatches if isinstance(d, StopReplicaRequest)]
    answers = [
        ev.TopicDeletionStopReplicaResponseReceived(
            d.broker, d.broker_epoch, 0, dict.fromkeys(d.partitions, 0)
        )
        for d in stops
    ]
    removed = one.run(*answers)
    assert asked(removed) == [ef.RemovePartitionNodes, ef.RemoveTopicNodes]


@pytest.mark.handles("TopicDeletion")
def test_a_marker_without_a_topic_is_removed(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    one.delete("nobody")
    assert not one.zk.deletions
    assert one.told("deletion refused") == ["nobody: no such topic, or deletion is disabled"]


@pytest.mark.handles("TopicDeletion")
def test_a_topic_created_and_marked_before_anybody_looked(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    one.zk.topics["u"] = one.zk.topics["t"]
    one.zk.topics["u"] = ef.TopicNode(one.zk.topics["t"].partitions, None, 0)  # type: ignore[union-attr]
    one.delete("u")
    one.settle()
    assert list(one.zk.topics) == ["t"]


@pytest.mark.handles("TopicDeletion")
@pytest.mark.parity(28)
def test_switched_off_the_markers_are_cleared(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", delete_topic_enable=False)
    assert [describe(d) for d in one.delete("t").dispatches] == []
    assert not one.zk.deletions
    assert not one.cluster.deletions
    assert "t" in one.zk.topics


@pytest.mark.parity(28)
def test_switched_off_the_markers_are_cleared_at_failover(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", delete_topic_enable=False, elected=False)
    one.zk.deletions["t"] = None
    one.run(ev.Startup())
    assert not one.zk.deletions
    assert one["t-0"] == "1*,2 isr=1,2 epoch=0"


@pytest.mark.parity(29)
def test_in_deletion_there_are_no_elections_and_no_balance(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3", brokers=(4,))
    one.kill(3)
    one.delete("t")
    one.kill(1)
    assert one["t-0"] == "1*,2,3 isr=1,2 epoch=1"
    errors = one.ask(
        ev.ReplicaLeaderElection(1, (tp_of("t-0"),), trigger=ev.ElectionTrigger.ADMIN_CLIENT)
    )
    assert isinstance(errors, PartitionErrors)
    assert errors.errors[tp_of("t-0")].code is KafkaError.INVALID_TOPIC_EXCEPTION
    one.fire("leader balance")
    assert one["t-0"] == "1*,2,3 isr=1,2 epoch=1"


@pytest.mark.parity(29)
def test_a_newcomer_is_told_that_a_topic_in_deletion_is_gone(world: MakeWorld) -> None:
    """It may have lost its session only, and know the topic."""
    one = world("t-0: 1*,2", "u-0: 1*,2")
    one.delete("t")
    assert told(one.start(5), 5) == [
        "UpdateMetadata to 5: t-0(deleted)",
        "UpdateMetadata to 5: u-0",
    ]


def test_a_topic_without_partitions_goes_at_once(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    one.zk.topics["empty"] = ef.TopicNode({}, None, 0)
    one.run(ev.TopicChange())
    one.delete("empty")
    assert list(one.zk.topics) == ["t"]


def test_replicas_of_partitions_that_never_had_a_state(world: MakeWorld) -> None:
    one = world("t-0: 1,2 new", dead=(1, 2), brokers=(3,))
    one.delete("t")
    assert states(one, "t-0") == ["DELETION_INELIGIBLE"] * 2
    one.start(1, 2)
    one.settle()
    assert not one.zk.topics


def test_the_counters_are_those_of_the_rows(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3", "t-1: 2*,3,1")
    one.delete("t")
    deleted(one, 1, "t-0")
    one.kill(3)
    counts = one.cluster.deletions["t"].counts
    assert {state: n for state, n in counts.items() if n} == {
        ReplicaState.DELETION_STARTED: 3,
        ReplicaState.DELETION_SUCCESSFUL: 1,
        ReplicaState.DELETION_INELIGIBLE: 2,
    }


@pytest.mark.parity(25)
def test_a_reassignment_that_holds_a_deletion_is_led_on(world: MakeWorld) -> None:
    """Without a leader neither of the two could ever end."""
    one = world("t-0: 1*,2", "t-1: 1*,2", brokers=(3,))
    one.reassign(t_0=(3, 2))
    one.delete("t")
    one.kill(1)
    assert one["t-0"] == "3,2*,1 adding=3 removing=1 isr=2 epoch=2"
    assert one["t-1"] == "1*,2 isr=1,2 epoch=0"
    one.start(1)
    one.settle()
    assert not one.zk.topics


@pytest.mark.parity(25)
def test_also_after_a_failover(world: MakeWorld) -> None:
    one = world("t-0: 3,1*,2 adding=3 removing=1 isr=1,2", dead=(1,), elected=False)
    one.zk.deletions["t"] = None
    one.run(ev.Startup())
    assert one["t-0"].startswith("3,1,2* adding=3")
    one.start(1)
    one.settle()
    assert not one.zk.topics


def test_a_state_that_is_repaired_during_the_deletion_does_not_bring_it_back(
    world: MakeWorld,
) -> None:
    one = world("t-0: 1*,2", "t-1: 1*,2", elected=False)
    good = one.zk.states[tp_of("t-0")]
    one.zk.states[tp_of("t-0")] = malformed("/brokers/topics/t/partitions/0/state")
    one.run(ev.Startup())
    one.delete("t")
    one.zk.states[tp_of("t-0")] = good
    one.fire("quarantine")
    assert one.cluster.rows[tp_of("t-0")].state is PartitionState.NON_EXISTENT
    assert not one.cluster.quarantine
    one.settle()
    assert not one.zk.topics


# -- brokers that did not hear of it -------------------------------------------------------------


def told(recorded: Recorded, broker: int) -> list[str]:
    """UpdateMetadata for this broker alone."""
    return [
        line
        for line in map(describe, recorded.dispatches)
        if line.startswith(f"UpdateMetadata to {broker}:")
    ]


def test_a_broker_that_was_away_hears_of_a_deletion_when_it_is_back(world: MakeWorld) -> None:
    """It may be the same process with a new session, and its metadata cache knows the topic."""
    one = world("t-0: 1*", "t-1: 1*", "u-0: 1*,2", brokers=(3,))
    one.kill(3)
    one.delete("t")
    one.settle()
    assert "t" not in one.zk.topics
    back = told(one.start(3), 3)
    assert back == ["UpdateMetadata to 3: t-0(deleted), t-1(deleted)", "UpdateMetadata to 3: u-0"]


def test_a_broker_that_refused_to_hear_of_a_deletion_is_told_again(world: MakeWorld) -> None:
    one = world("t-0: 1*", "u-0: 1*,2")
    one.delete("t")
    one.run(ev.UpdateMetadataResponseReceived(2, 102, KafkaError.UNKNOWN_SERVER_ERROR))
    one.settle()
    assert "t" not in one.zk.topics
    assert told(one.fire("resync-2"), 2)[0] == "UpdateMetadata to 2: t-0(deleted)"


def test_a_broker_that_refused_is_told_again_while_the_deletion_is_under_way(
    world: MakeWorld,
) -> None:
    one = world("t-0: 1*", "u-0: 1*,2")
    one.delete("t")
    one.run(ev.UpdateMetadataResponseReceived(2, 102, KafkaError.UNKNOWN_SERVER_ERROR))
    again = told(one.fire("resync-2"), 2)
    assert again == ["UpdateMetadata to 2: t-0(deleted)", "UpdateMetadata to 2: u-0"]


def test_a_topic_created_again_is_not_told_as_deleted(world: MakeWorld) -> None:
    one = world("t-0: 1*", "t-1: 1*", "u-0: 1*,2", brokers=(3,))
    one.kill(3)
    one.delete("t")
    one.settle()
    one.zk.topics["t"] = ef.TopicNode({0: Assignment((1,))}, topic_id("new"), 0)
    one.run(ev.TopicChange())
    recorded = one.start(3)
    assert told(recorded, 3) == [
        "UpdateMetadata to 3: t-1(deleted)",
        "UpdateMetadata to 3: u-0, t-0",
    ]
    gone = next(d for d in recorded.dispatches if isinstance(d, UpdateMetadataRequest))
    assert gone.topic_ids == {"t": topic_id("new")}


def test_only_so_many_deleted_partitions_are_remembered(world: MakeWorld) -> None:
    one = world("t-0: 1*", "u-0: 1*")
    one.cluster.departed.update(
        {TopicPartition("old", p): None for p in range(DEPARTED_MAX)},
    )
    one.delete("t")
    one.settle()
    assert len(one.cluster.departed) == DEPARTED_MAX
    assert tp_of("t-0") in one.cluster.departed
    assert tp_of("old-0") not in one.cluster.departed


def test_a_partition_whose_state_cannot_be_understood_leaves_the_caches_too(
    world: MakeWorld,
) -> None:
    one = world("t-0: 1*,2", "t-1: 1*,2", elected=False)
    path = "/brokers/topics/t/partitions/0/state"
    one.zk.states[tp_of("t-0")] = malformed(path)
    one.run(ev.Startup())
    recorded = one.delete("t")
    assert describe(recorded.dispatches[0]) == "UpdateMetadata to 1,2: t-0(deleted), t-1(deleted)"
