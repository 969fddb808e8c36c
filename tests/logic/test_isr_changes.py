"""ISR changes: asked for by leaders, or written by old ones and notified."""

from typing import Any

import pytest

from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.messages.answers import AlteredPartitions, AnswerValue, ApiError, Refused
from kctl.model.codes import Code, KafkaError
from kctl.model.rows import Leadership
from kctl.simulation.memory import MemoryZooKeeper
from tests.logic.notation import describe, topic_id, tp_of, tps
from tests.logic.world import MakeWorld, malformed, notified

K = KafkaError
T0 = tp_of("t-0")


def outcome(answer: AnswerValue) -> Leadership | KafkaError:
    assert isinstance(answer, AlteredPartitions)
    return answer.partitions[T0]


@pytest.mark.handles("AlterPartitionReceived")
@pytest.mark.parity(48)
def test_a_leader_takes_a_replica_into_its_isr(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3 isr=1,2 epoch=4 version=8")
    mark = len(one.log.dispatches)
    committed = outcome(one.propose("t-0", 1, 2, 3))
    assert committed == Leadership(1, (1, 2, 3), 4, 7, zk_version=9)
    assert one["t-0"] == "1*,2,3 isr=1,2,3 epoch=4"  # the leader epoch stays
    assert [describe(d) for d in one.log.dispatches[mark:]] == ["UpdateMetadata to 1,2,3: t-0"]


@pytest.mark.parity(48)
def test_by_topic_id_from_version_2(world: MakeWorld) -> None:
    one = world("t-0: 1*,2 isr=1")
    proposal = ev.IsrProposal((1, 2), 0, 0)
    ids = {(topic_id("t"), 0): proposal, (topic_id("nobody"), 0): proposal}
    answer = one.ask(ev.AlterPartitionReceived(1, 1, 101, 3, by_id=ids))
    assert answer == AlteredPartitions(
        {T0: Leadership(1, (1, 2), 0, 7, 1)}, {(topic_id("nobody"), 0): K.UNKNOWN_TOPIC_ID}
    )


@pytest.mark.handles("AlterPartitionReceived")
@pytest.mark.parity(49)
@pytest.mark.parametrize(
    "changes, error",
    [
        ({"partition_epoch": 9}, K.NOT_CONTROLLER),
        ({"leader_epoch": 5}, K.NOT_CONTROLLER),
        ({"leader_epoch": 3}, K.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 7}, K.INVALID_UPDATE_VERSION),
        ({"isr": (1, 2, 5)}, K.INVALID_REQUEST),
        ({"isr": ()}, K.INVALID_REQUEST),
        ({"isr": (2, 3)}, K.INVALID_REQUEST),
        ({"recovering": True, "isr": (1, 2, 3)}, K.INVALID_REQUEST),
        ({"recovering": True, "isr": (1,)}, K.INVALID_REQUEST),
        ({"isr": (1, 2, 4), "api_version": 1}, K.OPERATION_NOT_ATTEMPTED),
        ({"isr": (1, 2, 4), "api_version": 2}, K.INELIGIBLE_REPLICA),
        ({"broker": 2}, K.INVALID_REQUEST),
        ({"broker": 5, "isr": (5,)}, K.INVALID_REQUEST),
    ],
    ids=[
        *("newer partition epoch", "newer leader epoch", "older leader epoch"),
        *("older partition epoch", "not a replica", "empty", "without the leader"),
        *("recovering with two", "recovering again", "dead, v1", "dead, v2"),
        *("from a follower", "from a stranger"),
    ],
)
def test_what_is_refused(world: MakeWorld, changes: dict[str, Any], error: KafkaError) -> None:
    """In Kafka's order; the last ones and the shape of the ISR are stricter than Kafka."""
    one = world("t-0: 1*,2,3,4 isr=1,2 epoch=4 version=8", brokers=(5,))
    one.kill(4)
    one.propose("t-0", 1, 2)  # the leader has heard of the epoch that the death cost
    current = one.cluster.rows[T0].leadership
    assert current is not None
    shift = {"partition_epoch": current.zk_version - 8, "leader_epoch": current.leader_epoch - 4}
    wanted = {k: v + shift.get(k, 0) if k in shift else v for k, v in changes.items()}
    isr = wanted.pop("isr", (1, 2, 3))
    before = one["t-0"].partition(" epoch=")[0]
    assert outcome(one.propose("t-0", *isr, **wanted)) is error
    assert one["t-0"].partition(" epoch=")[0] == before


@pytest.mark.parity(49)
def test_the_same_again_is_answered_without_a_write(world: MakeWorld) -> None:
    """A retry whose first answer was lost; the order of the ISR does not matter."""
    one = world("t-0: 1*,2,3 isr=1,2 epoch=4 version=8")
    committed = outcome(one.propose("t-0", 1, 2, 3))
    for again in ((1, 2, 3), (3, 2, 1)):
        assert outcome(one.propose("t-0", *again, partition_epoch=8)) == committed
    assert isinstance(committed, Leadership)
    assert one.zk.states[T0] == committed


@pytest.mark.parity(49)
def test_unknown_partitions_and_callers(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", "t-1: 1,2 new", dead=(2,))
    proposal = ev.IsrProposal((1,), 0, 0)
    named = dict.fromkeys(tps("t-9", "nobody-0"), proposal)
    answer = one.ask(ev.AlterPartitionReceived(1, 1, 101, 1, named))
    assert answer == AlteredPartitions(dict.fromkeys(named, K.UNKNOWN_TOPIC_OR_PARTITION))
    for broker, epoch in ((9, 1), (1, 100), (1, 102)):
        stale = one.ask(ev.AlterPartitionReceived(2, broker, epoch, 1, {T0: proposal}))
        assert stale == Refused(ApiError(K.STALE_BROKER_EPOCH))


@pytest.mark.parity(33, 48)
def test_recovery_is_reported_with_the_next_isr(world: MakeWorld) -> None:
    one = world("t-0: 1*,2 isr=1 epoch=3 recovering")
    assert outcome(one.propose("t-0", 1, 2, recovering=True)) is K.INVALID_REQUEST
    assert isinstance(outcome(one.propose("t-0", 1, recovering=True)), Leadership)
    one.propose("t-0", 1, recovering=False)
    assert one["t-0"] == "1*,2 isr=1 epoch=3"


@pytest.mark.parity(49)
def test_a_group_is_judged_in_order_and_each_is_answered(world: MakeWorld) -> None:
    """Two callers, three partitions, one write as long as nobody waits for another."""
    one = world("t-0: 1*,2,3 isr=1", "t-1: 2*,1 isr=2", "t-2: 1*,3 isr=1")
    first = ev.AlterPartitionReceived(
        1, 1, 101, 1, {T0: ev.IsrProposal((1, 2), 0, 0), tp_of("t-2"): ev.IsrProposal((1, 3), 0, 0)}
    )
    other = ev.AlterPartitionReceived(2, 2, 102, 1, {tp_of("t-1"): ev.IsrProposal((2, 1), 0, 0)})
    stranger = ev.AlterPartitionReceived(3, 7, 1, 1, {T0: ev.IsrProposal((7,), 0, 0)})
    recorded = one.run(first, other, stranger)
    writes = [list(e.rows) for e in recorded.effects if isinstance(e, ef.WritePartitions)]
    assert writes == [[T0, tp_of("t-2"), tp_of("t-1")]]
    assert [a.caller for a in recorded.answers] == [1, 2, 3]
    assert recorded.answer_to(3) == Refused(ApiError(K.STALE_BROKER_EPOCH))


@pytest.mark.parity(49)
def test_the_second_of_two_proposals_sees_the_first(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3 isr=1")
    events = [
        ev.AlterPartitionReceived(1, 1, 101, 1, {T0: ev.IsrProposal((1, 2), 0, 0)}),
        ev.AlterPartitionReceived(2, 1, 101, 1, {T0: ev.IsrProposal((1, 2, 3), 0, 1)}),
        ev.AlterPartitionReceived(3, 1, 101, 1, {T0: ev.IsrProposal((1,), 0, 1)}),
    ]
    recorded = one.run(*events)
    assert outcome(recorded.answer_to(1)) == Leadership(1, (1, 2), 0, 7, 1)
    assert outcome(recorded.answer_to(2)) == Leadership(1, (1, 2, 3), 0, 7, 2)
    assert outcome(recorded.answer_to(3)) is K.INVALID_UPDATE_VERSION
    assert one["t-0"].startswith("1*,2,3 isr=1,2,3")


class Answering(MemoryZooKeeper):
    code = Code.NO_AUTH
    __slots__ = ()

    def _write_state(self, tp: object, row: object) -> Code:
        return self.code


class Behind(MemoryZooKeeper):
    __slots__ = ()

    def perform(self, effect: ef.Effect[Any]) -> object:
        if isinstance(effect, ef.WritePartitions):
            for tp in effect.rows:
                known = self.states[tp]
                assert isinstance(known, Leadership)
                self.states[tp] = known.written()
        return super().perform(effect)


@pytest.mark.parametrize(
    "zookeeper, error",
    [(Answering, K.UNKNOWN_SERVER_ERROR), (Behind, K.INVALID_UPDATE_VERSION)],
)
def test_what_zookeeper_says_is_what_the_leader_hears(
    world: MakeWorld, zookeeper: type[MemoryZooKeeper], error: KafkaError
) -> None:
    one = world("t-0: 1*,2 isr=1")
    one.zk.__class__ = zookeeper
    assert outcome(one.propose("t-0", 1, 2)) is error


# -- leaders that write ZooKeeper themselves -----------------------------------------------------


@pytest.mark.handles("IsrChangeNotification")
@pytest.mark.parity(51)
def test_a_notified_isr_is_read_and_told(world: MakeWorld) -> None:
    one = world("t-0: 1*,2 epoch=3", "t-1: 1*,2", inter_broker_protocol=(2, 6))
    known = one.zk.states[T0]
    assert isinstance(known, Leadership)
    one.zk.states[T0] = Leadership(1, (1,), 3, 1, known.zk_version + 1)
    one.zk.isr_notifications.update(notified(a=["t-0", "nobody-3"], b=["t-0"]))
    recorded = one.run(ev.IsrChangeNotification())
    assert one.cluster.rows[T0].isr == (1,)
    assert [describe(d) for d in recorded.dispatches] == ["UpdateMetadata to 1,2: t-0"]
    assert not one.zk.isr_notifications


@pytest.mark.handles("IsrChangeNotification")
@pytest.mark.parity(51)
def test_a_broken_notification_is_dropped_and_the_others_count(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", inter_broker_protocol=(2, 6))
    one.zk.isr_notifications.update(notified(a=["t-0"]))
    one.zk.isr_notifications["/isr_change_notification/b"] = malformed("/b")
    one.run(ev.IsrChangeNotification())
    assert one.told("notification dropped") == ["/isr_change_notification/b: not JSON"]
    assert not one.zk.isr_notifications


@pytest.mark.parity(51)
def test_versions_that_moved_behind_our_back_are_no_harm(world: MakeWorld) -> None:
    """Old leaders write with the controller epoch they know; our next write reads first."""
    one = world("t-0: 1*,2,3 epoch=3", inter_broker_protocol=(2, 6))
    one.zk.states[T0] = Leadership(1, (1, 3), 3, 1, 4)
    one.kill(1)
    assert one["t-0"] == "1,2,3* isr=3 epoch=4"


@pytest.mark.handles("IsrChangeNotification")
def test_a_replica_that_its_leader_took_back_as_it_left_is_taken_out_again(
    world: MakeWorld,
) -> None:
    one = world("t-0: 1*,2,3 isr=1,3 epoch=3", dead=(2,), inter_broker_protocol=(2, 6))
    known = one.zk.states[T0]
    assert isinstance(known, Leadership)
    one.zk.states[T0] = Leadership(1, (1, 3, 2), known.leader_epoch, 1, known.zk_version + 1)
    one.zk.isr_notifications.update(notified(a=["t-0"]))
    one.run(ev.IsrChangeNotification())
    assert one.cluster.rows[T0].isr == (1, 3)
    state = one.zk.states[T0]
    assert isinstance(state, Leadership)
    assert state.isr == (1, 3)


def test_an_isr_shrunk_in_a_mixed_cluster_both_ways(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3", inter_broker_protocol=None)
    one.zk.states[T0] = shrunk_to(one.zk.states[T0], (1, 2))
    one.zk.isr_notifications.update(notified(a=["t-0"]))
    one.run(ev.IsrChangeNotification())
    assert isinstance(outcome(one.propose("t-0", 1)), Leadership)
    assert one["t-0"] == "1*,2,3 isr=1 epoch=0"


def shrunk_to(known: object, isr: tuple[int, ...]) -> Leadership:
    assert isinstance(known, Leadership)
    return Leadership(known.leader, isr, known.leader_epoch, 1, known.zk_version + 1)
