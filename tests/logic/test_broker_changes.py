"""Brokers that start, die, restart unnoticed, change their registration, or miss requests."""

import attrs
import pytest

from kctl.logic.replicas import replicas_on
from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.messages.driver import Finished, step
from kctl.messages.outbox import StartTimer
from kctl.messages.requests import (
    Connect,
    Disconnect,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kctl.model.brokers import Broker, Endpoint
from kctl.model.codes import KafkaError
from kctl.model.states import PartitionState, ReplicaState
from tests.logic.notation import describe, tp_of
from tests.logic.world import MakeWorld, World, malformed


@pytest.mark.handles("BrokerChange")
@pytest.mark.parity(12, 30)
def test_death_of_a_broker(world: MakeWorld) -> None:
    """One write where it led, one where it followed; nobody is told before ZooKeeper knows."""
    one = world("t-0: 1*,2,3", "t-1: 2*,1,3", "t-2: 1*", "t-3: 2*,3")
    recorded = one.kill(1)
    assert (one["t-0"], one["t-1"]) == ("1,2*,3 isr=2,3 epoch=1", "2*,1,3 isr=2,3 epoch=1")
    assert (one["t-2"], one["t-3"]) == ("1 isr=1 epoch=1", "2*,3 isr=2,3 epoch=0")
    assert [describe(d) for d in recorded.dispatches] == [
        "Disconnect 1",
        "UpdateMetadata to 2,3: live brokers",
        *("LeaderAndIsr to 2: t-0", "LeaderAndIsr to 3: t-0", "UpdateMetadata to 2,3: t-0"),
        *("LeaderAndIsr to 2: t-1", "LeaderAndIsr to 3: t-1"),
        "UpdateMetadata to 2,3: t-1, t-2",
    ]
    kinds = [type(e) for e in recorded.effects]
    assert kinds.index(ef.WritePartitions) < kinds.index(ef.Flush, kinds.index(ef.WritePartitions))


@pytest.mark.handles("BrokerChange")
@pytest.mark.parity(12)
def test_death_of_all_replicas_leaves_the_last_of_the_isr(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", brokers=(3,))
    one.kill(1, 2)
    assert one["t-0"] == "1,2 isr=2 epoch=1"
    one.start(1)
    assert one["t-0"] == "1,2 isr=2 epoch=1"  # it may miss records
    one.start(2)
    assert one["t-0"] == "1,2* isr=2 epoch=2"


def test_a_dead_replica_outside_the_isr_costs_an_epoch(world: MakeWorld) -> None:
    """It fences a delayed AlterPartition that would take it in after it came back empty."""
    one = world("t-0: 1*,2,3 isr=1,2 epoch=3")
    delayed = ev.IsrProposal((1, 2, 3), 3, 3)
    one.kill(3)
    assert one["t-0"] == "1*,2,3 isr=1,2 epoch=4"
    one.start(3)
    answer = one.ask(ev.AlterPartitionReceived(1, 1, 101, 1, {tp_of("t-0"): delayed}))
    assert answer.partitions == {tp_of("t-0"): KafkaError.FENCED_LEADER_EPOCH}  # type: ignore[union-attr]


@pytest.mark.handles("BrokerChange")
@pytest.mark.parity(11, 15)
def test_start_of_a_broker(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3 epoch=1", "t-1: 2*,3 epoch=1")
    one.kill(1)
    recorded = one.start(1)
    assert [describe(d) for d in recorded.dispatches] == [
        "Connect 1",
        "UpdateMetadata to 1,2,3: live brokers",
        "LeaderAndIsr to 1: t-0",
        "UpdateMetadata to 1,2,3: t-0",
        "UpdateMetadata to 1: t-0, t-1",
    ]
    lisr = next(d for d in recorded.dispatches if isinstance(d, LeaderAndIsrRequest))
    assert (lisr.broker_epoch, lisr.controller_epoch) == (501, 7)
    assert [b.id for b in lisr.live_leaders] == [2]
    assert one["t-0"] == "1,2*,3 isr=2,3 epoch=2"


@pytest.mark.handles("BrokerChange")
@pytest.mark.parity(13)
def test_a_restart_that_nobody_saw(world: MakeWorld) -> None:
    """A larger broker epoch under the same id: it failed and started, in this order."""
    one = world("t-0: 1*,2,3")
    recorded = one.bounce(1)
    assert one["t-0"] == "1,2*,3 isr=2,3 epoch=1"
    links = [d for d in recorded.dispatches if isinstance(d, Connect | Disconnect)]
    assert [describe(d) for d in links] == ["Disconnect 1", "Connect 1"]
    told = [d for d in recorded.dispatches if isinstance(d, LeaderAndIsrRequest) and d.broker == 1]
    assert {d.broker_epoch for d in told} == {102}


@pytest.mark.handles("BrokerChange")
def test_a_notice_without_a_change_does_nothing(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    recorded = one.run(ev.BrokerChange())
    assert [type(e) for e in recorded.effects] == [ef.ReadBrokers]
    assert recorded.dispatches == []


@pytest.mark.handles("BrokerChange")
def test_some_start_one_restarts_and_one_dies_at_once(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3", "t-1: 3*,1,2")
    del one.zk.brokers[3]
    one.zk.brokers[1] = Broker(1, 900)
    one.zk.brokers[4] = Broker(4, 901)
    one.run(ev.BrokerChange())
    assert list(one.cluster.live) == [2, 4, 1]
    assert one["t-0"] == "1,2*,3 isr=2 epoch=2"
    assert one["t-1"] == "3,1,2* isr=2 epoch=2"


@pytest.mark.parity(11)
def test_an_empty_broker_learns_of_everybody_and_everybody_of_it(world: MakeWorld) -> None:
    one = world(brokers=(1, 2))
    assert [describe(d) for d in one.start(3).dispatches] == [
        "Connect 3",
        "UpdateMetadata to 1,2,3: live brokers",
    ]
    assert [describe(d) for d in one.kill(3).dispatches] == [
        "Disconnect 3",
        "UpdateMetadata to 1,2: live brokers",
    ]


@pytest.mark.parity(18)
def test_partitions_whose_replicas_were_all_down_come_online(world: MakeWorld) -> None:
    one = world("t-0: 1,2 new", dead=(1, 2), brokers=(3,))
    assert one["t-0"] == "1,2 new"
    recorded = one.start(2)
    assert one["t-0"] == "1,2* isr=2 epoch=0"
    assert "LeaderAndIsr to 2: t-0(new)" in [describe(d) for d in recorded.dispatches]


@pytest.mark.handles("BrokerModifications")
@pytest.mark.parity(14)
def test_new_endpoints_are_told_to_all(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    known = one.zk.brokers[1]
    assert isinstance(known, Broker)
    one.zk.brokers[1] = attrs.evolve(known, endpoints=(Endpoint("PLAINTEXT", "elsewhere", 1),))
    dispatches = one.run(ev.BrokerModifications(1)).dispatches
    assert [describe(d) for d in dispatches] == ["UpdateMetadata to 1,2: live brokers"]
    told = dispatches[0]
    assert isinstance(told, UpdateMetadataRequest)
    assert told.live_brokers[0].endpoints[0].host == "elsewhere"


@pytest.mark.handles("BrokerModifications")
@pytest.mark.parity(14)
def test_a_rack_alone_changes_nothing(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    known = one.zk.brokers[1]
    assert isinstance(known, Broker)
    one.zk.brokers[1] = attrs.evolve(known, rack="r1")
    assert one.sent(ev.BrokerModifications(1)) == []


@pytest.mark.handles("BrokerModifications")
def test_a_modification_that_is_a_restart_or_an_end(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3")
    one.zk.brokers[1] = Broker(1, 900)
    one.run(ev.BrokerModifications(1))
    assert one["t-0"] == "1,2*,3 isr=2,3 epoch=1"
    del one.zk.brokers[2]
    one.run(ev.BrokerModifications(2))
    assert one["t-0"] == "1,2,3* isr=3 epoch=2"
    assert one.run(ev.BrokerModifications(77)).dispatches == []


def test_a_broker_that_cannot_be_read_stays_as_it_was(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3")
    one.zk.brokers[1] = malformed("/brokers/ids/1")
    one.zk.brokers[99] = malformed("/brokers/ids/99")
    one.kill(3)
    assert one["t-0"] == "1*,2,3 isr=1,2 epoch=1"
    assert list(one.cluster.brokers) == [1, 2]
    assert set(one.cluster.quarantine) == {"/brokers/ids/1", "/brokers/ids/99"}
    assert len(one.told("quarantined")) == 2
    one.run(ev.BrokerChange())
    assert len(one.told("quarantined")) == 2  # reported once
    del one.zk.brokers[99]
    one.start(1)
    assert one.cluster.quarantine == {}


# -- brokers that missed something ---------------------------------------------------------------


def test_a_resync_tells_a_broker_everything_again(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", "t-1: 2*,3", "gone-0: 1*,3")
    one.delete("gone")
    recorded = one.run(ev.BrokerResync(1, 101, (tp_of("old-0"), tp_of("t-0"))))
    assert [describe(d) for d in recorded.dispatches] == [
        "UpdateMetadata to 1: gone-0(deleted)",  # and who is alive
        "LeaderAndIsr to 1: t-0",
        "UpdateMetadata to 1,2,3: t-0",
        "UpdateMetadata to 1: t-0, t-1",
        "StopReplica to 1: old-0(delete), gone-0(delete)",  # t-0 lives: it is not owed any more
    ]
    assert one.run(ev.BrokerResync(1, 100)).dispatches == []  # an older incarnation
    assert one.run(ev.BrokerResync(9, 100)).dispatches == []


@pytest.mark.handles("UpdateMetadataResponseReceived")
def test_refused_metadata_is_sent_again_after_a_pause(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    refusal = ev.UpdateMetadataResponseReceived(1, 101, KafkaError.UNKNOWN_SERVER_ERROR)
    assert one.sent(refusal) == []
    assert one.timers["resync-1"] == StartTimer("resync-1", 1_000, ev.BrokerResync(1, 101))
    assert "LeaderAndIsr to 1: t-0" in [describe(d) for d in one.fire("resync-1").dispatches]


@pytest.mark.handles("UpdateMetadataResponseReceived")
@pytest.mark.parametrize(
    "answer",
    [
        ev.UpdateMetadataResponseReceived(1, 101, KafkaError.NONE),
        ev.UpdateMetadataResponseReceived(1, 101, KafkaError.STALE_BROKER_EPOCH),
        ev.UpdateMetadataResponseReceived(1, 99, KafkaError.UNKNOWN_SERVER_ERROR),
        ev.UpdateMetadataResponseReceived(9, 1, KafkaError.UNKNOWN_SERVER_ERROR),
    ],
    ids=["fine", "restarted", "older incarnation", "unknown broker"],
)
def test_answers_that_need_nothing(world: MakeWorld, answer: ev.Event) -> None:
    one = world("t-0: 1*,2")
    assert one.run(answer).effects == []
    assert "resync-1" not in one.timers


def test_a_broker_that_heard_of_a_newer_controller_is_told_again_if_there_is_none(
    world: MakeWorld,
) -> None:
    one = world("t-0: 1*,2")
    refusal = ev.UpdateMetadataResponseReceived(1, 101, KafkaError.STALE_CONTROLLER_EPOCH)
    assert [type(e) for e in one.run(refusal).effects] == [ef.ReadControllership]
    assert "resync-1" in one.timers


@pytest.mark.parity(21)
def test_topic_ids_are_minted_when_the_last_old_broker_is_gone(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", elected=False, inter_broker_protocol=None)
    node = one.zk.topics["t"]
    assert isinstance(node, ef.TopicNode)
    one.zk.topics["t"] = ef.TopicNode(node.partitions, None, 0)
    one.run(ev.Startup())
    assert known_id(one) is None
    one.run(ev.BrokerVersions((2, 7)))
    assert known_id(one) is None
    one.run(ev.BrokerVersions((3, 9)))
    assert known_id(one) is not None
    stored = one.zk.topics["t"]
    assert isinstance(stored, ef.TopicNode)
    assert stored.topic_id == known_id(one)


def known_id(one: World) -> str | None:
    return one.cluster.topics["t"].id


# -- what the rows say afterwards ----------------------------------------------------------------


def test_replica_states_follow(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3")
    one.kill(1)
    row = one.cluster.rows[tp_of("t-0")]
    assert row.state is PartitionState.ONLINE
    assert row.replica_states == (ReplicaState.OFFLINE, ReplicaState.ONLINE, ReplicaState.ONLINE)
    one.start(1)
    assert set(one.cluster.rows[tp_of("t-0")].replica_states) == {ReplicaState.ONLINE}


def test_a_dead_broker_gets_no_requests(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3")
    for dispatch in one.kill(1).dispatches:
        if isinstance(dispatch, LeaderAndIsrRequest | StopReplicaRequest):
            assert dispatch.broker != 1
        elif isinstance(dispatch, UpdateMetadataRequest):
            assert 1 not in dispatch.recipients
            assert [b.id for b in dispatch.live_brokers] == [2, 3]


def test_replicas_of_many_brokers_are_gathered_with_a_pause_for_each(world: MakeWorld) -> None:
    """Of a rack with a hundred thousand replicas this took a tenth of a second in one go."""
    one = world("t-0: 1*,2", "t-1: 3*,1")
    procedure = replicas_on(one.cluster, (1, 2, 3))
    assert [step(procedure), step(procedure)] == [ef.Flush(), ef.Flush()]
    assert step(procedure) == Finished({tp_of("t-0"): (1, 2), tp_of("t-1"): (1, 3)})


def test_brokers_that_start_together_share_what_they_are_told(world: MakeWorld) -> None:
    """Encoding everything once for each of them would take as long as all that follows."""
    one = world("t-0: 1*,2,3", "t-1: 1*,2,3", dead=(2, 3))
    everything = [
        sorted(d.recipients)
        for d in one.start(2, 3).dispatches
        if isinstance(d, UpdateMetadataRequest) and len(d.rows) == 2
    ]
    assert everything == [[1, 2, 3], [2, 3]]


def test_many_partitions_go_in_few_writes(world: MakeWorld) -> None:
    one = world(*(f"t-{p}: 1*,2,3" for p in range(12_000)))
    recorded = one.kill(1)
    writes = [len(e.rows) for e in recorded.effects if isinstance(e, ef.WritePartitions)]
    assert writes == [10_000, 2_000]
    assert not [e for e in recorded.effects if isinstance(e, ef.ReadPartitions)]
    assert one["t-11999"] == "1,2*,3 isr=2,3 epoch=1"
