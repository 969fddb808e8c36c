"""Reassignment in Kafka's steps, with fewer epochs and the ISR always within the assignment."""

import pytest

from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.messages.answers import OK, AnswerValue, PartitionErrors, Reassignments
from kctl.messages.requests import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from kctl.model.codes import Code, KafkaError
from kctl.model.names import TopicPartition
from kctl.model.rows import Assignment, Leadership
from kctl.model.states import ReplicaState
from kctl.simulation.memory import MemoryZooKeeper
from tests.logic.notation import describe, tp_of, tps
from tests.logic.world import MakeWorld, World, malformed, notified

T0 = tp_of("t-0")


def code(answer: AnswerValue, tp: TopicPartition = T0) -> KafkaError:
    assert isinstance(answer, PartitionErrors)
    return answer.errors[tp].code


def steps(one: World, since: int = 0) -> list[str]:
    return [describe(d) for d in one.log.dispatches[since:]]


@pytest.mark.handles("ApiPartitionReassignment")
@pytest.mark.parity(40)
def test_phase_a_the_target_is_told_to_start(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3 epoch=4", brokers=(4, 5, 6))
    mark = len(one.log.dispatches)
    assert one.reassign(t_0=(4, 5, 6)) == PartitionErrors({T0: OK})
    under_way = "4,5,6,1*,2,3 adding=4,5,6 removing=1,2,3 isr=1,2,3 epoch=5"
    assert one["t-0"] == under_way
    assert steps(one, mark) == [
        *("LeaderAndIsr to 1: t-0", "LeaderAndIsr to 2: t-0", "LeaderAndIsr to 3: t-0"),
        *("LeaderAndIsr to 4: t-0(new)", "LeaderAndIsr to 5: t-0(new)"),
        *("LeaderAndIsr to 6: t-0(new)", "UpdateMetadata to 1,2,3,4,5,6: t-0"),
    ]
    assert one.cluster.rows[T0].replica_states[:3] == (ReplicaState.NEW,) * 3


@pytest.mark.parity(40, 47)
def test_phase_b_the_rest_is_stopped_deleted_and_forgotten(world: MakeWorld) -> None:
    one = world("t-0: 1*,2 epoch=4", brokers=(3, 4))
    one.reassign(t_0=(3, 2))
    mark = len(one.log.dispatches)
    one.propose("t-0", 1, 2, 3)
    assert one["t-0"] == "3*,2 isr=2,3 epoch=6"
    assert "StopReplica to 1: t-0(delete)" in steps(one, mark)
    assert not one.cluster.reassigning
    assert one.cluster.rows[T0].replica_states == (ReplicaState.ONLINE, ReplicaState.ONLINE)
    assert set(one.cluster.rows[T0].isr) == {2, 3}


@pytest.mark.parity(47)
def test_stop_replica_leaves_before_the_last_record_of_the_replica_is_erased(
    world: MakeWorld,
) -> None:
    one = world("t-0: 1*,2", brokers=(3,))
    one.reassign(t_0=(3, 2))
    row = one.cluster.rows[T0]
    assert row.leadership is not None
    proposal = ev.IsrProposal((1, 2, 3), row.leadership.leader_epoch, row.leadership.zk_version)
    event = ev.AlterPartitionReceived(9, 1, 101, 1, {T0: proposal})
    seen_at_write: list[bool] = []

    class Watching(MemoryZooKeeper):
        __slots__ = ()

        def perform(self, effect: ef.Effect[object]) -> object:
            if isinstance(effect, ef.WriteTopics):
                told = [d for d in one.log.dispatches if isinstance(d, StopReplicaRequest)]
                seen_at_write.append(any(T0 in d.partitions for d in told))
            return super().perform(effect)

    one.zk.__class__ = Watching
    one.run(event)
    assert seen_at_write == [True]


@pytest.mark.parity(40)
def test_the_last_epoch_is_told_with_the_final_replicas(world: MakeWorld) -> None:
    """A broker heeds a leader epoch once: told with the old lists, it would keep them."""
    one = world("t-0: 1*,2,3", brokers=(4, 5, 6))
    one.reassign(t_0=(4, 5, 6))
    one.settle()
    last: dict[int, tuple[int, Assignment]] = {}
    for dispatch in one.log.dispatches:
        if isinstance(dispatch, LeaderAndIsrRequest):
            row = dispatch.rows[T0]
            assert row.leadership is not None
            epoch = row.leadership.leader_epoch
            if epoch > last.get(dispatch.broker, (-1, None))[0]:
                last[dispatch.broker] = (epoch, row.assignment)
    assert {last[b] for b in (4, 5, 6)} == {(2, Assignment((4, 5, 6)))}
    metadata = [d for d in one.log.dispatches if isinstance(d, UpdateMetadataRequest) and d.rows]
    assert metadata[-1].rows[T0].assignment == Assignment((4, 5, 6))


@pytest.mark.parity(40)
def test_a_plain_move_costs_two_epochs(world: MakeWorld) -> None:
    """Kafka needs three: its B3 and B4 are one write here."""
    one = world("t-0: 1*", brokers=(2,))
    one.reassign(t_0=(2,))
    one.settle()
    assert one["t-0"] == "2* isr=2 epoch=2"


def test_order_only_completes_at_once(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3")
    one.reassign(t_0=(3, 1, 2))
    assert one["t-0"] == "3,1*,2 isr=1,2,3 epoch=1"
    assert not one.cluster.reassigning


def test_order_only_does_not_wait_for_a_leader(world: MakeWorld) -> None:
    """Its only in-sync replica is leaving: nobody has to move, so it is through."""
    one = world("t-0: 1*,2 isr=1")
    one.ask(ev.ControlledShutdown(1, 1))
    assert code(one.reassign(t_0=(2, 1))) is KafkaError.NONE
    assert not one.cluster.reassigning
    assert one["t-0"].startswith("2,1*")


@pytest.mark.parity(41)
def test_cancelled(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", brokers=(3, 4))
    one.reassign(t_0=(3, 4))
    mark = len(one.log.dispatches)
    assert code(one.reassign(t_0=None)) is KafkaError.NONE
    assert one["t-0"] == "1*,2 isr=1,2 epoch=2"
    sent = steps(one, mark)
    assert "StopReplica to 3: t-0(delete)" in sent
    assert "StopReplica to 4: t-0(delete)" in sent
    assert not one.cluster.reassigning


@pytest.mark.parity(41)
def test_cancelled_when_a_new_replica_is_in_sync_and_leads(world: MakeWorld) -> None:
    """It leaves the ISR, and the leadership, before it leaves the assignment."""
    one = world("t-0: 3*,4,1,2 adding=3,4 removing=1,2 isr=3,1,2 epoch=4")
    order: list[str] = []

    class Watching(MemoryZooKeeper):
        __slots__ = ()

        def perform(self, effect: ef.Effect[object]) -> object:
            if isinstance(effect, ef.WritePartitions | ef.WriteTopics):
                order.append(type(effect).__name__)
            return super().perform(effect)

    one.zk.__class__ = Watching
    one.reassign(t_0=None)
    assert order[:2] == ["WritePartitions", "WriteTopics"]
    one.settle()
    assert one["t-0"].startswith("1*,2 isr=1,2")


@pytest.mark.parity(41)
def test_a_cancellation_that_would_lose_the_leader_is_refused(world: MakeWorld) -> None:
    one = world("t-0: 3*,4,1,2 adding=3,4 removing=1,2 isr=3", dead=(1, 2))
    before = one["t-0"]
    answer = one.reassign(t_0=None)
    assert isinstance(answer, PartitionErrors)
    assert answer.errors[T0].message == ("of the ISR [3] no live member would be left in [1, 2]")
    assert one["t-0"] == before


@pytest.mark.parity(42)
def test_overridden_under_way(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", brokers=(3, 4, 5))
    one.reassign(t_0=(3, 4))
    mark = len(one.log.dispatches)
    one.reassign(t_0=(5, 4))
    assert one["t-0"] == "5,4,1*,2 adding=5,4 removing=1,2 isr=1,2 epoch=2"
    assert "StopReplica to 3: t-0(delete)" in steps(one, mark)
    one.settle()
    assert one["t-0"] == "5*,4 isr=5,4 epoch=3"


# -- the znode of old tools ----------------------------------------------------------------------


@pytest.mark.handles("ZkPartitionReassignment")
@pytest.mark.parity(43)
def test_by_the_znode(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", "t-1: 1*,2", brokers=(3,))
    one.zk.reassignments = {T0: (3, 2), tp_of("t-1"): (2, 1)}
    one.run(ev.ZkPartitionReassignment())
    assert one["t-1"].startswith("2,1*")
    assert one.zk.reassignments == {T0: (3, 2)}  # what is through is taken out
    one.settle()
    assert one["t-0"] == "3*,2 isr=2,3 epoch=2"
    assert one.zk.reassignments is None


@pytest.mark.handles("ZkPartitionReassignment")
@pytest.mark.parity(43, 45)
def test_nonsense_in_the_znode_is_dropped_and_the_rest_done(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", "t-1: 1*,2", brokers=(3,))
    one.zk.reassignments = {
        tp_of("nobody-0"): (1,),
        tp_of("t-1"): (),
        tp_of("t-2"): (1, 1),
        tp_of("t-3"): (1000,),
        T0: (3, 2),
    }
    one.run(ev.ZkPartitionReassignment())
    assert one.zk.reassignments == {T0: (3, 2)}
    assert one["t-1"] == "1*,2 isr=1,2 epoch=0"
    assert "t-1: the replica list is empty" in one.told("reassignment refused")


@pytest.mark.handles("ZkPartitionReassignment")
def test_dead_targets_in_the_znode_are_waited_for(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    one.zk.reassignments = {T0: (1, 9)}
    one.run(ev.ZkPartitionReassignment())
    assert one["t-0"] == "1*,9,2 adding=9 removing=2 isr=1,2 epoch=1"
    assert "LeaderAndIsr to 9: t-0(new)" in [describe(d) for d in one.start(9).dispatches]
    one.settle()
    assert one["t-0"] == "1*,9 isr=1,9 epoch=3"


@pytest.mark.handles("ZkPartitionReassignment")
def test_no_znode_and_a_broken_one(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    assert not one.run(ev.ZkPartitionReassignment()).dispatches
    one.zk.reassignments = malformed("/admin/reassign_partitions")
    one.run(ev.ZkPartitionReassignment())
    assert list(one.cluster.quarantine) == ["/admin/reassign_partitions"]
    one.zk.reassignments = None
    one.fire("quarantine")
    assert not one.cluster.quarantine


def test_a_znode_that_may_not_be_written_is_not_tried_for_ever(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")

    class NoRights(MemoryZooKeeper):
        __slots__ = ()

        def perform(self, effect: ef.Effect[object]) -> object:
            if isinstance(effect, ef.WriteReassignments):
                return Code.NO_AUTH
            return super().perform(effect)

    one.zk.__class__ = NoRights
    one.zk.reassignments = {T0: (2, 1)}
    one.run(ev.ZkPartitionReassignment())
    assert one["t-0"] == "2,1* isr=1,2 epoch=1"
    assert one.told("znode not cleared")


@pytest.mark.parity(43)
def test_the_api_beats_the_znode(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", brokers=(3, 4))
    one.zk.reassignments = {T0: (9, 8)}
    one.reassign(t_0=(3, 4))
    one.settle()
    assert one["t-0"].startswith("3*,4")
    assert one.zk.reassignments is None


# -- validation ----------------------------------------------------------------------------------


@pytest.mark.handles("ApiPartitionReassignment")
@pytest.mark.parity(45)
@pytest.mark.parametrize(
    "name, target, error, message",
    [
        ("t-0", (), KafkaError.INVALID_REPLICA_ASSIGNMENT, "empty"),
        ("t-0", (1, 1), KafkaError.INVALID_REPLICA_ASSIGNMENT, "duplicates"),
        ("t-0", (1, -2), KafkaError.INVALID_REPLICA_ASSIGNMENT, "negative"),
        ("t-0", (1, 9), KafkaError.INVALID_REPLICA_ASSIGNMENT, r"\[9\] are not alive"),
        ("t-0", (1, 5), KafkaError.INVALID_REPLICA_ASSIGNMENT, r"\[5\] are not alive"),
        ("t-0", (1, 1000), KafkaError.INVALID_REPLICA_ASSIGNMENT, "1000 is the controller"),
        ("t-0", None, KafkaError.NO_REASSIGNMENT_IN_PROGRESS, "t-0 is not being reassigned"),
        ("t-7", (1, 2), KafkaError.UNKNOWN_TOPIC_OR_PARTITION, "t-7 does not exist"),
        ("nobody-0", None, KafkaError.UNKNOWN_TOPIC_OR_PARTITION, "nobody-0 does not exist"),
        ("nobody-0", (), KafkaError.INVALID_REPLICA_ASSIGNMENT, "empty"),
        ("going-0", (1, 2), KafkaError.UNKNOWN_TOPIC_OR_PARTITION, "does not exist"),
    ],
)
def test_what_is_refused(
    world: MakeWorld,
    name: str,
    target: tuple[int, ...] | None,
    error: KafkaError,
    message: str,
) -> None:
    """One error each; a good one in the same request goes through."""
    one = world("t-0: 1*,2,3", "ok-0: 1*,2", "going-0: 1*,4", dead=(3, 4), brokers=(5, 6))
    one.delete("going")
    one.ask(ev.ControlledShutdown(1, 5))
    wanted = {tp_of(name): target, tp_of("ok-0"): (2, 1)}
    answer = one.ask(ev.ApiPartitionReassignment(2, wanted))
    assert isinstance(answer, PartitionErrors)
    assert answer.errors[tp_of("ok-0")] == OK
    refused = answer.errors[tp_of(name)]
    assert refused.code is error
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(refused.message)


def test_a_dead_replica_that_is_assigned_already_may_stay(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3")
    one.kill(3)
    assert code(one.reassign(t_0=(3, 1))) is KafkaError.NONE


@pytest.mark.handles("ListPartitionReassignments")
@pytest.mark.parity(46)
def test_listing(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", "t-1: 1*,2", brokers=(3,))
    one.reassign(t_0=(1, 3))
    listed = Reassignments({T0: Assignment((1, 3, 2), (3,), (2,))})
    assert one.ask(ev.ListPartitionReassignments(1)) == listed
    some = tps("t-0", "t-1", "nobody-0")
    assert one.ask(ev.ListPartitionReassignments(2, some)) == listed
    assert one.ask(ev.ListPartitionReassignments(3, tps("t-1"))) == Reassignments({})


# -- what may happen meanwhile -------------------------------------------------------------------


def isr_written_by_its_leader(one: World, *isr: int) -> None:
    """As leaders did before AlterPartition."""
    known = one.zk.states[T0]
    assert isinstance(known, Leadership)
    one.zk.states[T0] = Leadership(
        known.leader, isr, known.leader_epoch, known.controller_epoch, known.zk_version + 1
    )


@pytest.mark.handles("PartitionReassignmentIsrChange")
@pytest.mark.parity(52)
def test_old_leaders_change_the_isr_in_zookeeper(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", brokers=(3,), inter_broker_protocol=(2, 6))
    one.reassign(t_0=(3, 2))
    assert list(one.zk.watched) == [T0]
    isr_written_by_its_leader(one, 1, 2, 3)
    one.run(ev.PartitionReassignmentIsrChange(T0))
    assert one["t-0"] == "3*,2 isr=2,3 epoch=2"
    assert not one.zk.watched
    assert one.run(ev.PartitionReassignmentIsrChange(T0)).effects == []  # it is through


@pytest.mark.parity(52)
def test_old_leaders_by_notification(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", brokers=(3,), inter_broker_protocol=(2, 6))
    one.reassign(t_0=(3, 2))
    isr_written_by_its_leader(one, 1, 2, 3)
    one.zk.isr_notifications.update(notified(a=["t-0"]))
    one.run(ev.IsrChangeNotification())
    assert one["t-0"] == "3*,2 isr=2,3 epoch=2"


@pytest.mark.parity(44)
def test_a_target_that_dies_and_comes_back(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", brokers=(3,))
    one.reassign(t_0=(3, 2))
    one.kill(3)
    one.start(3)
    one.settle()
    assert one["t-0"].startswith("3*,2 isr=2,3")


def test_a_partition_that_never_had_a_state_is_moved_and_begun(world: MakeWorld) -> None:
    one = world("t-0: 1,2 new", dead=(1, 2), brokers=(3, 4))
    assert code(one.reassign(t_0=(3, 4))) is KafkaError.NONE
    one.settle()
    assert one["t-0"].startswith("3*,4 isr=3,4")
    assert not one.cluster.reassigning


class NoStates(MemoryZooKeeper):
    __slots__ = ()

    def _write_state(self, tp: TopicPartition, row: object) -> Code:
        return Code.NO_AUTH


class NoTopics(MemoryZooKeeper):
    __slots__ = ()

    def _write_topic(self, topic: str, node: object) -> Code:
        return Code.TOO_LARGE


def test_a_new_replica_dies_before_it_was_ever_told(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", brokers=(3,))
    one.zk.__class__ = NoStates
    one.reassign(t_0=(1, 3))
    one.kill(3)
    one.zk.__class__ = MemoryZooKeeper
    one.start(3)
    one.settle()
    assert one["t-0"].startswith("1*,3 isr=1,3")


def test_a_deleted_replica_whose_broker_dies_before_the_assignment_is_written(
    world: MakeWorld,
) -> None:
    one = world("t-0: 1*,2", brokers=(3,))
    one.reassign(t_0=(1, 3))
    one.zk.__class__ = NoTopics
    one.propose("t-0", 1, 2, 3)
    assert one.cluster.rows[T0].replica_state(2) is ReplicaState.DELETION_SUCCESSFUL
    one.kill(2)
    one.zk.__class__ = MemoryZooKeeper
    one.start(3, epoch=900)
    one.settle()
    assert one["t-0"].startswith("1*,3 isr=1,3")


def test_cancelled_after_the_old_replica_was_deleted(world: MakeWorld) -> None:
    """It begins anew: told, it fetches everything again."""
    one = world("t-0: 1*,2", brokers=(3,))
    one.reassign(t_0=(1, 3))
    one.zk.__class__ = NoTopics
    one.propose("t-0", 1, 2, 3)
    one.zk.__class__ = MemoryZooKeeper
    one.reassign(t_0=None)
    told = one.last_told(2)[T0]
    assert told is not None
    assert told.leader_epoch == one.cluster.rows[T0].leadership.leader_epoch  # type: ignore[union-attr]
    one.settle()
    assert one["t-0"].startswith("1*,2 isr=1,2")


def test_a_topic_too_large_to_write_is_answered_with_advice(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", brokers=(3,))
    one.zk.__class__ = NoTopics
    answer = one.reassign(t_0=(1, 3))
    assert isinstance(answer, PartitionErrors)
    assert "reassign fewer of its partitions at a time" in (answer.errors[T0].message or "")
    assert one["t-0"] == "1*,2 isr=1,2 epoch=0"


@pytest.mark.parametrize("by_znode", [False, True])
def test_a_partition_whose_state_cannot_be_read_is_not_moved(
    world: MakeWorld, by_znode: bool
) -> None:
    """Nobody knows who has its data: the replicas that leave could be the only ones."""
    one = world("t-0: 1,2* isr=2 epoch=3", brokers=(3,), elected=False)
    good = one.zk.states[T0]
    one.zk.states[T0] = malformed("/brokers/topics/t/partitions/0/state")
    one.run(ev.Startup())
    mark = len(one.log.dispatches)
    if by_znode:
        one.zk.reassignments = {T0: (3, 1)}
        one.run(ev.ZkPartitionReassignment())
    else:
        assert code(one.reassign(t_0=(3, 1))) is KafkaError.UNKNOWN_SERVER_ERROR
    assert steps(one, mark) == []
    one.zk.states[T0] = good
    assert one["t-0"] == "1,2* isr=2 epoch=3"


def test_a_reassignment_is_taken_up_when_its_state_is_repaired(world: MakeWorld) -> None:
    one = world("t-0: 3,1*,2 adding=3 removing=1 isr=1,2", elected=False)
    good = one.zk.states[T0]
    one.zk.states[T0] = malformed("/brokers/topics/t/partitions/0/state")
    one.run(ev.Startup())
    one.start(3, epoch=900)
    assert T0 in one.cluster.reassigning
    one.zk.states[T0] = good
    one.fire("quarantine")
    one.settle()
    assert one["t-0"].startswith("3*,2 isr=2,3")
