"""A broker asks to leave."""

import pytest

from kctl.messages import events as ev
from kctl.messages.answers import (
    AnswerValue,
    ApiError,
    ControlledShutdownDone,
    PartitionErrors,
    Refused,
)
from kctl.messages.requests import LeaderAndIsrRequest
from kctl.model.codes import KafkaError
from kctl.model.states import ReplicaState
from tests.logic.notation import describe, tp_of, tps
from tests.logic.world import MakeWorld, World, malformed


def leave(one: World, broker: int, epoch: int = -1) -> AnswerValue:
    one.callers += 1
    return one.ask(ev.ControlledShutdown(one.callers, broker, epoch))


@pytest.mark.handles("ControlledShutdown")
@pytest.mark.parity(38)
def test_leaders_move_and_followers_stop(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3", "t-1: 2*,1,3", "t-2: 3*,2", "t-3: 1*")
    mark = len(one.log.dispatches)
    assert leave(one, 1) == ControlledShutdownDone(())
    assert one["t-0"] == "1,2*,3 isr=2,3 epoch=1"
    assert one["t-1"] == "2*,1,3 isr=2,3 epoch=1"
    assert one["t-2"] == "3*,2 isr=3,2 epoch=0"
    assert one["t-3"] == "1* isr=1 epoch=0"  # a single replica neither moves nor counts
    sent = [describe(d) for d in one.log.dispatches[mark:]]
    assert sent == [
        *("LeaderAndIsr to 1: t-0", "LeaderAndIsr to 2: t-0", "LeaderAndIsr to 3: t-0"),
        "UpdateMetadata to 1,2,3: t-0",
        *("LeaderAndIsr to 2: t-1", "LeaderAndIsr to 3: t-1"),
        *("UpdateMetadata to 1,2,3: t-1", "StopReplica to 1: t-1"),
    ]


@pytest.mark.parity(38)
def test_the_leaving_leader_is_told_that_it_leads_no_more(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3")
    leave(one, 1)
    told = one.last_told(1)[tp_of("t-0")]
    assert told is not None
    assert (told.leader, told.leader_epoch) == (2, 1)


@pytest.mark.handles("ControlledShutdown")
@pytest.mark.parity(38)
def test_what_cannot_move_is_answered(world: MakeWorld) -> None:
    """The last in-sync replica keeps leadership and ISR, and the broker asks again."""
    one = world("t-0: 1*,2 isr=1", "t-1: 1*,2")
    assert leave(one, 1) == ControlledShutdownDone(tps("t-0"))
    assert one["t-0"] == "1*,2 isr=1 epoch=0"
    assert one["t-1"] == "1,2* isr=2 epoch=1"
    # As in Kafka, a leader that leaves can take nobody into its ISR any more.
    refused = one.propose("t-0", 1, 2, api_version=2)
    assert refused.partitions == {tp_of("t-0"): KafkaError.INELIGIBLE_REPLICA}  # type: ignore[union-attr]
    assert leave(one, 1) == ControlledShutdownDone(tps("t-0"))


@pytest.mark.parity(38)
def test_topics_in_deletion_do_not_count(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3")
    one.kill(3)
    one.delete("t")
    assert leave(one, 1) == ControlledShutdownDone(())
    assert one["t-0"] == "1*,2,3 isr=1,2 epoch=1"


@pytest.mark.parity(38)
def test_two_brokers_leave(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3")
    leave(one, 2)
    assert leave(one, 1) == ControlledShutdownDone(())
    assert one["t-0"].startswith("1,2,3* isr=3")
    assert leave(one, 3) == ControlledShutdownDone(tps("t-0"))


@pytest.mark.handles("ControlledShutdown")
@pytest.mark.parity(39)
@pytest.mark.parametrize(
    "broker, epoch, error",
    [
        (1, 100, KafkaError.STALE_BROKER_EPOCH),
        (9, -1, KafkaError.BROKER_NOT_AVAILABLE),
        (9, 109, KafkaError.BROKER_NOT_AVAILABLE),
    ],
)
def test_whom_it_is_refused_to(
    world: MakeWorld, broker: int, epoch: int, error: KafkaError
) -> None:
    one = world("t-0: 1*,2")
    assert leave(one, broker, epoch) == Refused(ApiError(error))
    assert one["t-0"] == "1*,2 isr=1,2 epoch=0"
    assert not one.cluster.shutting_down


@pytest.mark.parity(39)
@pytest.mark.parametrize("epoch", [-1, 101, 102])
def test_its_own_epoch_or_a_later_one_passes(world: MakeWorld, epoch: int) -> None:
    one = world("t-0: 1*,2")
    assert leave(one, 1, epoch) == ControlledShutdownDone(())


@pytest.mark.parity(50)
def test_a_leaving_broker_is_kept_out_until_its_next_life(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3", "t-1: 2*,1", brokers=(4,))
    leave(one, 1)
    refused = one.propose("t-0", 2, 3, 1, api_version=2)
    assert refused.partitions == {tp_of("t-0"): KafkaError.INELIGIBLE_REPLICA}  # type: ignore[union-attr]
    moved = one.reassign(t_1=(2, 1))
    assert isinstance(moved, PartitionErrors)  # assigned already: it may stay
    one.kill(1)
    assert not one.cluster.shutting_down
    one.start(1)
    one.settle()
    assert one["t-0"].endswith("isr=2,3,1 epoch=1")


def test_its_death_afterwards_costs_no_further_epoch(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3", "t-1: 2*,1,3", "t-2: 1*")
    leave(one, 1)
    one.kill(1)
    assert one["t-0"] == "1,2*,3 isr=2,3 epoch=1"
    assert one["t-1"] == "2*,1,3 isr=2,3 epoch=1"
    assert one["t-2"] == "1 isr=1 epoch=1"
    assert one.cluster.rows[tp_of("t-0")].replica_state(1) is ReplicaState.OFFLINE


def test_one_that_dies_together_with_it_costs_an_epoch_where_it_had_a_replica(
    world: MakeWorld,
) -> None:
    one = world("t-0: 1*,2,3", "t-1: 1*,2,4")
    leave(one, 1)
    one.kill(1, 4)
    assert one["t-0"] == "1,2*,3 isr=2,3 epoch=1"
    assert one["t-1"] == "1,2*,4 isr=2 epoch=2"


def test_requests_still_reach_a_leaving_broker(world: MakeWorld) -> None:
    one = world("t-0: 1*,2 isr=1", brokers=(3,))
    leave(one, 1)
    mark = len(one.log.dispatches)
    one.reassign(t_0=(1, 3))
    lisrs = [d for d in one.log.dispatches[mark:] if isinstance(d, LeaderAndIsrRequest)]
    assert 1 in {d.broker for d in lisrs}


def test_a_state_repaired_meanwhile_is_looked_at_first(world: MakeWorld) -> None:
    """Else the broker would go, and leave behind a partition that it leads."""
    one = world("t-0: 1*,2", elected=False)
    good = one.zk.states[tp_of("t-0")]
    one.zk.states[tp_of("t-0")] = malformed("/brokers/topics/t/partitions/0/state")
    one.run(ev.Startup())
    one.zk.states[tp_of("t-0")] = good
    assert leave(one, 1) == ControlledShutdownDone(())
    assert one["t-0"].startswith("1,2* isr=2")
