"""Every checker must be able to fail: hand-made bad histories, one rule broken in each."""

import json
from collections.abc import Sequence

import pytest

from kctl.messages import events as ev
from kctl.messages.answers import (
    OK,
    AlteredPartitions,
    Answer,
    ControlledShutdownDone,
    CreatedTopic,
    PartitionErrors,
    ProducerIdBlock,
    TopicResults,
)
from kctl.messages.requests import (
    StopReplicaPartition,
    StopReplicaRequest,
)
from kctl.model.codes import KafkaError
from kctl.model.rows import Leadership
from kctl.zookeeper.multi import Create, Delete, Operation, SetData
from kctl.zookeeper.wire import CreateMode
from tests.simulation.history import (
    STATE,
    T0,
    TOPIC_ID,
    History,
    acknowledge,
    allow_unclean,
    violated,
)


def test_a_good_history_passes(history: History) -> None:
    history.kill(1)
    history.put_state(2, [2], 1)
    history.greet()
    history.safety.queued(history.one, history.leader_and_isr(history.row(2, (2,), 1, 1), 2))


# -- S1, S2 --------------------------------------------------------------------------------------


def test_s1_a_write_without_a_fence(history: History) -> None:
    with violated("S1"):
        history.ensemble.commit(
            history.one.client.session_id, [SetData(STATE, history.state(1, [1], 1))]
        )


def test_s1_a_write_in_the_epoch_of_somebody_else(history: History) -> None:
    history.ensemble.commit(history.people, [Delete("/controller")])
    two = history.controller("two")
    history.claim(two, 2, 1)
    with violated("S1"):
        history.write(SetData(STATE, history.state(1, [1], 1)), fence=2)


@pytest.mark.parametrize(
    "operations",
    [
        [SetData("/controller_epoch", b"5", 1), Create("/controller", b"", CreateMode.EPHEMERAL)],
        [SetData("/controller_epoch", b"2", 1)],
        [SetData("/controller_epoch", b"2", 1), Create("/controller")],
    ],
    ids=["jumps", "no claim", "no ephemeral"],
)
def test_s2_an_epoch_that_is_not_claimed_properly(
    history: History, operations: Sequence[Operation]
) -> None:
    history.ensemble.commit(history.people, [Delete("/controller")])
    two = history.controller("two")
    with violated("S2"):
        history.ensemble.commit(two.client.session_id, operations)


def test_s2_a_request_with_an_epoch_that_somebody_else_made(history: History) -> None:
    with violated("S2"):
        history.greet(epoch=2)


def test_s2_a_state_with_another_controller_epoch(history: History) -> None:
    history.kill(1)
    with violated("S2"):
        history.put_state(2, [2], 1, by=7)


# -- S3 to S7 ------------------------------------------------------------------------------------


def test_s3_a_new_leader_without_a_new_epoch(history: History) -> None:
    history.kill(1)
    with violated("S3"):
        history.put_state(2, [2], 0)


def test_s3_a_falling_epoch(history: History) -> None:
    history.kill(1)
    history.put_state(2, [2], 5)
    with violated("S3"):
        history.put_state(2, [2], 4)


@pytest.mark.parametrize("leader,isr", [(1, []), (3, [1, 2]), (1, [1, 1])])
def test_s4_a_bad_isr(history: History, leader: int, isr: list[int]) -> None:
    with violated("S4"):
        history.put_state(leader, isr, 1)


def test_s5_an_isr_outside_the_replicas(history: History) -> None:
    with violated("S5"):
        history.put_topic({0: [1, 3]})


def test_s6_an_unclean_leader(history: History) -> None:
    history.kill(1)
    history.kill(2)
    with violated("S6"):
        history.put_state(3, [3], 1, leader_recovery_state=1)


def test_s6_an_unclean_leader_where_it_is_allowed(history: History) -> None:
    allow_unclean(history)
    history.kill(1)
    history.kill(2)
    history.put_state(3, [3], 1, leader_recovery_state=1)


def test_s6_an_unclean_leader_that_forgets_to_recover(history: History) -> None:
    allow_unclean(history)
    history.kill(1)
    history.kill(2)
    with violated("S6"):
        history.put_state(3, [3], 1)


def test_s6_an_unclean_leader_while_one_in_sync_is_alive(history: History) -> None:
    allow_unclean(history)
    history.learn()
    history.kill(1)
    with violated("S6"):
        history.put_state(3, [3], 1, leader_recovery_state=1)


def test_s6_a_member_that_nobody_proposed(history: History) -> None:
    with violated("S6"):
        history.put_state(1, [1, 2, 3], 0)


def test_s6_a_member_that_the_leader_proposed(history: History) -> None:
    proposal = ev.IsrProposal((1, 2, 3), 0, 0)
    event = ev.AlterPartitionReceived(7, 1, history.world.brokers[1].epoch, 1, {T0: proposal})
    history.safety.asked(history.one, event)
    history.put_state(1, [1, 2, 3], 0)


def test_s7_a_leader_that_is_dead(history: History) -> None:
    history.kill(2)
    history.now(20)
    history.learn()
    with violated("S7"):
        history.put_state(2, [2], 1)


def test_s7_a_leader_that_is_leaving(history: History) -> None:
    event = ev.ControlledShutdown(1, 2, history.world.brokers[2].epoch)
    history.safety.answered(history.one, history.asked(event), ControlledShutdownDone(()))
    history.kill(1)
    with violated("S7"):
        history.put_state(2, [2], 1)


def test_s7_a_leader_with_a_failed_log_dir(history: History) -> None:
    errors = {T0: int(KafkaError.KAFKA_STORAGE_ERROR)}
    answer = ev.LeaderAndIsrResponseReceived(2, history.world.brokers[2].epoch, 0, errors)
    history.safety.handled(history.one, (answer,))
    history.kill(1)
    with violated("S7"):
        history.put_state(2, [2], 1)


# -- S10, S11 ------------------------------------------------------------------------------------


def test_s10_leader_and_isr_before_the_live_brokers(history: History) -> None:
    with violated("S10"):
        history.safety.queued(history.one, history.leader_and_isr(history.row(1, (1, 2), 0, 0)))


def test_s10_something_older_after_something_newer(history: History) -> None:
    broker = history.world.brokers[1]
    newer = history.leader_and_isr(history.row(1, (1,), 1, 1))
    older = history.leader_and_isr(history.row(1, (1, 2), 0, 0))
    history.safety.delivered(broker, newer, broker.epoch, history.one)
    with violated("S10"):
        history.safety.delivered(broker, older, broker.epoch, history.one)


def test_s11_a_state_that_was_never_committed(history: History) -> None:
    history.greet()
    with violated("S11"):
        history.safety.queued(history.one, history.leader_and_isr(history.row(2, (2,), 1, 1)))


def test_s11_an_answer_that_was_never_committed(history: History) -> None:
    event = ev.AlterPartitionReceived(1, 1, 1)
    value = AlteredPartitions({T0: Leadership(1, (1, 2, 3), 0, 1, 1)})
    with violated("S11"):
        history.safety.answered(history.one, history.asked(event), value)


# -- S12 to S16 ----------------------------------------------------------------------------------


def test_s12_another_topic_id(history: History) -> None:
    with violated("S12"):
        history.put_topic({0: [1, 2, 3]}, topic_id="BBBBBBBBQACAAAAAAAAAAQ")


def test_s12_an_id_used_twice(history: History) -> None:
    body = {"version": 3, "topic_id": TOPIC_ID, "partitions": {"0": [1]}}
    with violated("S12"):
        history.write(Create("/brokers/topics/u", json.dumps(body).encode()))


def test_s13_a_block_given_out_twice(history: History) -> None:
    event = ev.AllocateProducerIds(1, 1, 1)
    history.safety.answered(history.one, history.asked(event), ProducerIdBlock(0, 1_000))
    with violated("S13"):
        history.safety.answered(history.one, history.asked(event), ProducerIdBlock(999, 1_000))


@pytest.mark.parametrize(
    "replicas,adding,removing",
    [([1, 2, 3], [4], []), ([1, 2, 3], [1], [1]), ([1, 1, 2], [], []), ([1, 2], [], [1, 2])],
)
def test_s14_broken_algebra(
    history: History, replicas: list[int], adding: list[int], removing: list[int]
) -> None:
    with violated("S14"):
        history.put_topic(
            {0: replicas}, adding_replicas={"0": adding}, removing_replicas={"0": removing}
        )


def test_s14_a_live_replica_taken_out(history: History) -> None:
    history.learn()
    with violated("S14"):
        history.put_state(1, [1], 1)


def test_s14_a_replica_that_shall_leave_may_be_taken_out(history: History) -> None:
    history.learn()
    history.safety.asked(history.one, ev.ApiPartitionReassignment(1, {T0: (1, 3)}))
    history.put_state(1, [1], 1)


def stop(history: History, broker: int) -> None:
    orders = {T0: StopReplicaPartition(0, delete=True)}
    epoch = history.world.brokers[broker].epoch
    history.safety.queued(history.one, StopReplicaRequest(broker, epoch, 1, orders))


def test_s15_a_deletion_that_nobody_asked_for(history: History) -> None:
    with violated("S15"):
        stop(history, 3)


def test_s15_a_deletion_that_was_asked_for(history: History) -> None:
    history.write(Create("/admin/delete_topics/t"))
    stop(history, 3)


def test_s15_a_log_deleted_while_in_sync(history: History) -> None:
    with violated("S15"):
        history.safety.log_deleted(2, T0)


def test_s15_a_topic_removed_that_was_not_marked(history: History) -> None:
    with violated("S15"):
        history.write(Delete(STATE))


def test_l4_a_topic_removed_while_there_is_data(history: History) -> None:
    acknowledge(history, [3])
    history.write(Create("/admin/delete_topics/t"))
    history.write(Delete(STATE))
    with violated("L4"):
        history.write(
            Delete("/brokers/topics/t/partitions/0"),
            Delete("/brokers/topics/t/partitions"),
            Delete("/brokers/topics/t"),
        )


def test_s16_a_topic_that_was_not_created(history: History) -> None:
    event = ev.CreateTopics(1, (ev.NewTopic("u", 1, 1),))
    with violated("S16"):
        value = TopicResults((CreatedTopic("u", OK),))
        history.safety.answered(history.one, history.asked(event), value)


def test_s16_a_topic_that_was_not_marked(history: History) -> None:
    event = ev.DeleteTopics(1, (("t", None),))
    with violated("S16"):
        value = TopicResults((CreatedTopic("t", OK),))
        history.safety.answered(history.one, history.asked(event), value)


def test_s16_partitions_that_are_not_there(history: History) -> None:
    event = ev.CreatePartitions(1, (ev.NewPartitions("t", 5),))
    with violated("S16"):
        value = TopicResults((CreatedTopic("t", OK),))
        history.safety.answered(history.one, history.asked(event), value)


def test_s16_a_reassignment_that_was_not_begun(history: History) -> None:
    event = ev.ApiPartitionReassignment(1, {T0: (2, 3)})
    with violated("S16"):
        history.safety.answered(history.one, history.asked(event), PartitionErrors({T0: OK}))


def test_s16_an_election_that_did_not_happen(history: History) -> None:
    history.kill(1)
    history.put_state(2, [2], 1)
    event = ev.ReplicaLeaderElection(1, (T0,), trigger=ev.ElectionTrigger.ADMIN_CLIENT)
    with violated("S16"):
        history.safety.answered(history.one, history.asked(event), PartitionErrors({T0: OK}))


def test_s16_leave_to_go_while_leading(history: History) -> None:
    event = ev.ControlledShutdown(1, 1, 1)
    with violated("S16"):
        history.safety.answered(history.one, history.asked(event), ControlledShutdownDone(()))


def test_s16_a_leader_fenced_by_one_who_knows_less(history: History) -> None:
    """KAFKA-14154: it would wait for an epoch newer than its own, which is the newest."""
    event = ev.AlterPartitionReceived(1, 1, 1, 1, {T0: ev.IsrProposal((1,), 0, 0)})
    fenced = AlteredPartitions({T0: KafkaError.FENCED_LEADER_EPOCH})
    with violated("S16"):
        history.safety.answered(history.one, history.asked(event), fenced)
    history.put_state(1, [1, 2], 1)
    history.safety.answered(history.one, history.asked(event), fenced)


def test_s7_a_member_that_restarted_since_its_leader_decided(history: History) -> None:
    """KIP-903: it may have come back with an empty disk."""
    history.learn()
    history.now(20)
    history.safety.decided(T0, 1, (0, 0), (1, 2, 3))
    history.world.brokers[3].stop(expire_after=0)
    history.world.brokers[3].start()
    history.learn()
    history.now(30)
    history.one.handling_since = 30
    event = ev.AlterPartitionReceived(1, 1, 1, 1, {T0: ev.IsrProposal((1, 2, 3), 0, 0)})
    history.safety.asked(history.one, event)
    with violated("S7"):
        history.put_state(1, [1, 2, 3], 0)


def test_s16_a_leaving_leader_that_is_not_told_of_its_successor(history: History) -> None:
    """KAFKA-7482."""
    history.greet()
    history.safety.queued(history.one, history.leader_and_isr(history.row(1, (1, 2), 0, 0)))
    history.one.node.cluster.rows = {T0: None}
    history.one.node.cluster.shutting_down[1] = None
    history.put_state(2, [2], 1)
    event = ev.ControlledShutdown(1, 1, 1)
    with violated("S16"):
        history.safety.answered(history.one, history.asked(event), ControlledShutdownDone(()))
    history.safety.queued(history.one, history.leader_and_isr(history.row(2, (2,), 1, 1)))
    history.safety.answered(history.one, history.asked(event), ControlledShutdownDone(()))


# -- L5, L6 --------------------------------------------------------------------------------------


def test_l5_a_replica_that_is_not_told_to_go(history: History) -> None:
    """KAFKA-13972."""
    history.put_topic({0: [1, 2]})
    with violated("L5"):
        history.safety.handled(history.one, ())


def test_l5_a_replica_that_is_told_to_go(history: History) -> None:
    history.put_topic({0: [1, 2]})
    incarnation = history.world.brokers[3].epoch
    order = {T0: StopReplicaPartition(0, delete=True)}
    history.safety.queued(history.one, StopReplicaRequest(3, incarnation, 1, order))
    history.safety.handled(history.one, ())


def test_l6_an_answer_too_many(history: History) -> None:
    with violated("L6"):
        history.world.callers.answer(history.one, Answer(77, ControlledShutdownDone(())))
