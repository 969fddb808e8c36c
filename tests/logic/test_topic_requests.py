"""CreateTopics, CreatePartitions and DeleteTopics: Kafka's checks in Kafka's order."""

from typing import Any

import attrs
import pytest

from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.messages.answers import OK, CreatedTopic, TopicResults
from kctl.messages.effects import TopicNode
from kctl.messages.events import NewPartitions, NewTopic
from kctl.model.codes import Code, KafkaError
from kctl.model.names import TopicPartition
from kctl.simulation.memory import MemoryZooKeeper
from tests.logic.notation import broker, describe, topic_id, tp_of
from tests.logic.world import MakeWorld, World, malformed

K = KafkaError


def create(one: World, *topics: NewTopic, **options: Any) -> tuple[CreatedTopic, ...]:
    one.callers += 1
    answer = one.ask(ev.CreateTopics(one.callers, topics, **options))
    assert isinstance(answer, TopicResults)
    return answer.topics


def grow(one: World, *topics: NewPartitions, **options: Any) -> tuple[CreatedTopic, ...]:
    one.callers += 1
    answer = one.ask(ev.CreatePartitions(one.callers, topics, **options))
    assert isinstance(answer, TopicResults)
    return answer.topics


def delete(one: World, *topics: tuple[str | None, str | None]) -> tuple[CreatedTopic, ...]:
    one.callers += 1
    answer = one.ask(ev.DeleteTopics(one.callers, topics))
    assert isinstance(answer, TopicResults)
    return answer.topics


def explains(error: object, *words: str) -> bool:
    return all(word in str(error) for word in words)


# -- CreateTopics --------------------------------------------------------------------------------


@pytest.mark.parity(16, 55)
def test_a_created_topic_is_online_when_it_is_answered(world: MakeWorld) -> None:
    one = world(brokers=(1, 2, 3))
    (made,) = create(one, NewTopic("t", 2, 3, configs={"retention.ms": "1000"}))
    stored = one.zk.topics["t"]
    assert isinstance(stored, TopicNode)
    assert made == CreatedTopic("t", OK, stored.topic_id, 2, 3)
    assert made.topic_id is not None
    assert one.zk.configs["t"] == {"retention.ms": "1000"}
    for name in ("t-0", "t-1"):
        row = one.cluster.rows[tp_of(name)]
        assert row.leader == row.replicas[0]
        assert row.isr == row.replicas
    assert one.run(ev.TopicChange()).dispatches == []  # the watch finds nothing new


@pytest.mark.parity(55)
def test_defaults_are_the_controllers(world: MakeWorld) -> None:
    one = world(brokers=(1, 2, 3), num_partitions=4, default_replication_factor=2)
    (made,) = create(one, NewTopic("t"))
    assert (made.num_partitions, made.replication_factor) == (4, 2)


@pytest.mark.parity(55)
def test_a_manual_assignment_is_taken_as_it_is(world: MakeWorld) -> None:
    """Brokers that are down may be named, as in Kafka."""
    one = world(brokers=(1, 2))
    (made,) = create(one, NewTopic("t", assignments={1: (2, 9), 0: (1, 2)}))
    assert made.error == OK
    assert (one["t-0"], one["t-1"]) == ("1*,2 isr=1,2 epoch=0", "2*,9 isr=2 epoch=0")


@pytest.mark.parity(55)
def test_validate_only_writes_nothing(world: MakeWorld) -> None:
    one = world(brokers=(1, 2))
    assert create(one, NewTopic("t", 1, 2), validate_only=True) == (
        CreatedTopic("t", OK, None, 1, 2),
    )
    assert not one.zk.topics


@pytest.mark.parity(55)
@pytest.mark.parametrize(
    "topic, error, words",
    [
        (NewTopic("__cluster_metadata"), K.INVALID_REQUEST, "reserved"),
        (NewTopic("known"), K.TOPIC_ALREADY_EXISTS, "known already exists"),
        (NewTopic("t", configs={"retention.ms": None}), K.INVALID_CONFIG, "is null"),
        (NewTopic("t", 3, -1, {0: (1,)}), K.INVALID_REQUEST, "not both"),
        (NewTopic("t", -1, 3, {0: (1,)}), K.INVALID_REQUEST, "not both"),
        (NewTopic("t", 0, 1), K.INVALID_PARTITIONS, "positive"),
        (NewTopic("t", -5, 1), K.INVALID_PARTITIONS, "positive"),
        (NewTopic("t", 2**31 - 1, 1), K.INVALID_PARTITIONS, "2147483647 are more than"),
        (NewTopic("t", 1, 0), K.INVALID_REPLICATION_FACTOR, "factor 0 with 3 live"),
        (NewTopic("t", 1, 4), K.INVALID_REPLICATION_FACTOR, "factor 4 with 3 live"),
        (NewTopic("", 1, 1), K.INVALID_TOPIC_EXCEPTION, "not a topic name"),
        (NewTopic(".", 1, 1), K.INVALID_TOPIC_EXCEPTION, "not a topic name"),
        (NewTopic("..", 1, 1), K.INVALID_TOPIC_EXCEPTION, "not a topic name"),
        (NewTopic("x" * 250, 1, 1), K.INVALID_TOPIC_EXCEPTION, "not a topic name"),
        (NewTopic("a b", 1, 1), K.INVALID_TOPIC_EXCEPTION, "'a b' is not a topic name"),
        (NewTopic("t\n", 1, 1), K.INVALID_TOPIC_EXCEPTION, "not a topic name"),
        (NewTopic("going", 1, 1), K.TOPIC_ALREADY_EXISTS, "going"),
        (NewTopic("marked", 1, 1), K.TOPIC_ALREADY_EXISTS, "being deleted"),
        (NewTopic("broken", 1, 1), K.TOPIC_ALREADY_EXISTS, "broken"),
        (NewTopic("with_dots", 1, 1), K.INVALID_TOPIC_EXCEPTION, "collides"),
        (NewTopic("t", assignments={1: (1,)}), K.INVALID_REPLICA_ASSIGNMENT, "consecutive"),
        (
            NewTopic("t", assignments={0: (1,), 1: (1, 2)}),
            K.INVALID_REPLICA_ASSIGNMENT,
            "same number of replicas",
        ),
        (NewTopic("t", assignments={0: ()}), K.INVALID_REPLICA_ASSIGNMENT, "at least one"),
        (NewTopic("t", assignments={0: (1, 1)}), K.INVALID_REPLICA_ASSIGNMENT, "twice"),
        (NewTopic("t", assignments={0: (-1,)}), K.INVALID_REPLICA_ASSIGNMENT, "negative"),
        (NewTopic("t", assignments={0: (1000,)}), K.INVALID_REPLICA_ASSIGNMENT, "controller"),
        (NewTopic("t", 1, 1, configs={"no.such": "1"}), K.INVALID_CONFIG, "no.such"),
        (
            NewTopic("t", 1, 1, configs={"segment.bytes": "13"}),
            K.INVALID_CONFIG,
            "segment.bytes=13: must be from 14",
        ),
        # The order of the checks: counts before the name, the name before the configs.
        (NewTopic("a b", 0, 1), K.INVALID_PARTITIONS, "positive"),
        (NewTopic("a b", 1, 1, configs={"no.such": "1"}), K.INVALID_TOPIC_EXCEPTION, "a b"),
        (NewTopic("a b", assignments={5: (1,)}), K.INVALID_TOPIC_EXCEPTION, "a b"),
    ],
)
def test_what_is_refused_at_creation(
    world: MakeWorld, topic: NewTopic, error: KafkaError, words: str
) -> None:
    one = world("known-0: 1*,2", "with.dots-0: 1*", "going-0: 1*,9", dead=(9,), brokers=(3,))
    one.zk.topics["broken"] = malformed("/brokers/topics/broken")
    one.delete("going")
    one.zk.deletions["marked"] = None
    before = dict(one.zk.topics)
    (made,) = create(one, topic)
    assert made.error.code is error
    assert explains(made.error.message, words)
    assert one.zk.topics == before


@pytest.mark.parity(55)
def test_one_bad_topic_does_not_hinder_the_others(world: MakeWorld) -> None:
    one = world(brokers=(1, 2))
    twice = NewTopic("twice", 1, 1)
    results = create(one, NewTopic("bad!", 1, 1), twice, NewTopic("good", 1, 1), twice)
    assert [(r.name, r.error.code) for r in results] == [
        ("bad!", K.INVALID_TOPIC_EXCEPTION),
        ("twice", K.INVALID_REQUEST),
        ("good", K.NONE),
    ]


def test_two_topics_of_one_request_may_not_collide_either(world: MakeWorld) -> None:
    one = world(brokers=(1,))
    results = create(one, NewTopic("a.b", 1, 1), NewTopic("a_b", 1, 1))
    assert [r.error.code for r in results] == [K.NONE, K.INVALID_TOPIC_EXCEPTION]


def test_brokers_that_leave_are_not_placed_on(world: MakeWorld) -> None:
    one = world(brokers=(1, 2))
    one.ask(ev.ControlledShutdown(99, 2))
    (made,) = create(one, NewTopic("t", 3, 1))
    assert made.error == OK
    assert {one.cluster.rows[tp].replicas for tp in one.cluster.partitions_of("t")} == {(1,)}


@pytest.mark.parity(56)
def test_racks_of_some_brokers_only(world: MakeWorld) -> None:
    one = world(brokers=(1,))
    one.zk.brokers[2] = broker(2, rack="a")
    one.run(ev.BrokerChange())
    (made,) = create(one, NewTopic("t", 1, 1))
    assert made.error.code is K.UNKNOWN_SERVER_ERROR
    assert explains(made.error.message, "brokers [1] have no rack")


@pytest.mark.parity(72)
def test_the_controller_is_never_a_replica(world: MakeWorld) -> None:
    one = world(brokers=(1, 2))
    create(one, *(NewTopic(f"t{n}", 5, 2) for n in range(10)))
    assert set(one.cluster.by_broker) == {1, 2}


class Answers(MemoryZooKeeper):
    """Topics are answered with this code; with UNKNOWN they land or not."""

    code = Code.UNKNOWN
    lands = True
    __slots__ = ()

    def perform(self, effect: ef.Effect[Any]) -> object:
        if isinstance(effect, ef.CreateTopicNodes):
            if self.lands:
                super().perform(effect)
            return dict.fromkeys(effect.topics, self.code)
        return super().perform(effect)


class Landed(Answers):
    __slots__ = ()


class NotLanded(Answers):
    lands = False
    __slots__ = ()


class Raced(NotLanded):
    code = Code.NODE_EXISTS
    __slots__ = ()


class TooLarge(NotLanded):
    code = Code.TOO_LARGE
    __slots__ = ()


@pytest.mark.parametrize(
    "zookeeper, error",
    [
        (Landed, K.NONE),
        (NotLanded, K.UNKNOWN_SERVER_ERROR),
        (Raced, K.TOPIC_ALREADY_EXISTS),
        (TooLarge, K.INVALID_PARTITIONS),
    ],
)
def test_what_zookeeper_says_to_a_new_topic(
    world: MakeWorld, zookeeper: type[MemoryZooKeeper], error: KafkaError
) -> None:
    one = world(brokers=(1, 2))
    one.zk.__class__ = zookeeper
    (made,) = create(one, NewTopic("t", 1, 1))
    assert made.error.code is error
    assert ("t" in one.zk.topics) is (error is K.NONE)
    assert ("t" in one.cluster.topics) is (error is K.NONE)


# -- CreatePartitions ----------------------------------------------------------------------------


@pytest.mark.parity(58)
def test_partitions_are_added_where_kafka_adds_them(world: MakeWorld) -> None:
    """Start and shift are the place of partition 0's first replica among the brokers."""
    one = world("t-0: 2*,3", "t-1: 3*,1")
    assert grow(one, NewPartitions("t", 4)) == (CreatedTopic("t", OK),)
    # Brokers 1, 2, 3; start 1, shift 1: partition 2 at index 0, its follower 1 + 1 on; at
    # partition 3 the shift rises.
    assert one["t-2"] == "1*,3 isr=1,3 epoch=0"
    assert one["t-3"] == "2*,3 isr=2,3 epoch=0"
    assert one["t-0"] == "2*,3 isr=2,3 epoch=0"


@pytest.mark.parity(58)
def test_partitions_are_added_as_asked(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", brokers=(3,))
    sent = [
        describe(d)
        for d in one.run(ev.CreatePartitions(1, (NewPartitions("t", 2, ((3, 1),)),))).dispatches
    ]
    assert one["t-1"] == "3*,1 isr=3,1 epoch=0"
    assert "LeaderAndIsr to 3: t-1(new)" in sent


@pytest.mark.parity(58)
@pytest.mark.parametrize(
    "wanted, error, words",
    [
        (NewPartitions("nobody", 2), K.UNKNOWN_TOPIC_OR_PARTITION, "nobody does not exist"),
        (NewPartitions("going", 2), K.INVALID_TOPIC_EXCEPTION, "being deleted"),
        (NewPartitions("moving", 2), K.REASSIGNMENT_IN_PROGRESS, "being reassigned"),
        (NewPartitions("empty", 2), K.UNKNOWN_TOPIC_OR_PARTITION, "no partitions"),
        (NewPartitions("t", 1), K.INVALID_PARTITIONS, "1 would not be more"),
        (NewPartitions("t", 0), K.INVALID_PARTITIONS, "0 would not be more"),
        (NewPartitions("t", -1), K.INVALID_PARTITIONS, "-1 would not be more"),
        (NewPartitions("t", 2**31 - 1), K.INVALID_PARTITIONS, "are more than"),
        (NewPartitions("t", 2, ()), K.INVALID_REPLICA_ASSIGNMENT, "0 assignments given"),
        (NewPartitions("t", 2, ((1, 2), (2, 1))), K.INVALID_REPLICA_ASSIGNMENT, "2 assign"),
        (NewPartitions("t", 2, ((),)), K.INVALID_REPLICA_ASSIGNMENT, "must have 2 replicas"),
        (NewPartitions("t", 2, ((1, 1),)), K.INVALID_REPLICA_ASSIGNMENT, "twice"),
        (NewPartitions("t", 2, ((1,),)), K.INVALID_REPLICA_ASSIGNMENT, "must have 2"),
        (NewPartitions("t", 2, ((1, 77),)), K.INVALID_REPLICA_ASSIGNMENT, "[77] are not known"),
        (NewPartitions("t", 2, ((1, 1000),)), K.INVALID_REPLICA_ASSIGNMENT, "[1000]"),
        (NewPartitions("wide", 2), K.INVALID_REPLICATION_FACTOR, "4 with 3 live"),
    ],
)
def test_what_is_refused_at_growth(
    world: MakeWorld, wanted: NewPartitions, error: KafkaError, words: str
) -> None:
    one = world(
        *("t-0: 1*,2", "going-0: 1*,9", "moving-0: 1*,2,3 adding=3 isr=1,2", "wide-0: 1*,2,3,9"),
        dead=(9,),
    )
    one.zk.topics["empty"] = TopicNode({}, topic_id("empty"), 0)
    one.run(ev.TopicChange())
    one.delete("going")
    before = dict(one.zk.topics)
    (result,) = grow(one, wanted)
    assert result.error.code is error
    assert explains(result.error.message, words)
    assert one.zk.topics == before


@pytest.mark.parity(58)
def test_growth_twice_in_one_request_and_validate_only(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", "u-0: 1*,2")
    results = grow(one, NewPartitions("t", 2), NewPartitions("t", 3), NewPartitions("u", 2))
    assert [r.error.code for r in results] == [K.INVALID_REQUEST, K.NONE]
    assert grow(one, NewPartitions("u", 9), validate_only=True)[0].error == OK
    assert len(one.cluster.topics["u"].partitions) == 2


# -- DeleteTopics --------------------------------------------------------------------------------


@pytest.mark.parity(57)
def test_deleted_by_name_and_by_id(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", "u-0: 1*,2", "v-0: 1*,2")
    results = delete(one, ("t", None), (None, topic_id("u")))
    assert results == (
        CreatedTopic("t", OK, topic_id("t")),
        CreatedTopic("u", OK, topic_id("u")),
    )
    one.settle()
    assert list(one.zk.topics) == ["v"]


@pytest.mark.parity(57)
@pytest.mark.parametrize(
    "name, wanted_id, error",
    [
        ("nobody", None, K.UNKNOWN_TOPIC_OR_PARTITION),
        (None, "A" * 22, K.UNKNOWN_TOPIC_ID),
        (None, None, K.UNKNOWN_TOPIC_ID),
        ("t", "A" * 22, K.INVALID_REQUEST),
    ],
)
def test_what_is_refused_at_deletion(
    world: MakeWorld, name: str | None, wanted_id: str | None, error: KafkaError
) -> None:
    one = world("t-0: 1*,2", "u-0: 1*,2")
    results = delete(one, (name, wanted_id), ("u", None))
    assert [r.error.code for r in results] == [error, K.NONE]
    assert "t" not in one.zk.deletions


@pytest.mark.parity(28, 57)
def test_deletion_switched_off(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", delete_topic_enable=False)
    assert delete(one, ("t", None))[0].error.code is K.TOPIC_DELETION_DISABLED
    assert not one.zk.deletions


@pytest.mark.parity(57)
def test_deleted_twice_is_fine(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3")
    one.kill(3)
    assert delete(one, ("t", None))[0].error == OK
    assert delete(one, ("t", None), (None, topic_id("t")))[1].error == OK


def test_a_marker_that_could_not_be_written_is_an_error(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")

    class NoMarkers(MemoryZooKeeper):
        __slots__ = ()

        def perform(self, effect: ef.Effect[Any]) -> object:
            if isinstance(effect, ef.MarkForDeletion):
                return dict.fromkeys(effect.topics, Code.NO_AUTH)
            return super().perform(effect)

    one.zk.__class__ = NoMarkers
    result = delete(one, ("t", None))[0]
    assert (result.error.code, result.error.message) == (
        K.UNKNOWN_SERVER_ERROR,
        "not marked: no auth",
    )
    assert not one.cluster.deletions


def test_many_topics_at_once_are_few_writes(world: MakeWorld) -> None:
    one = world(brokers=(1, 2))
    event = ev.CreateTopics(1, tuple(NewTopic(f"t{n}", 1, 2) for n in range(50)))
    effects = one.run(event).effects
    assert len([e for e in effects if isinstance(e, ef.CreateTopicNodes)]) == 1
    assert len([e for e in effects if isinstance(e, ef.CreatePartitionStates)]) == 1
    assert attrs.asdict(one.log.answers[0])["caller"] == 1
    assert TopicPartition("t49", 0) in one.zk.states
