"""CreateTopics, CreatePartitions and DeleteTopics, in all versions, and what their answers wait for."""

import asyncio
from typing import Any

import pytest

from kctl.messages.events import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ListPartitionReassignments,
)
from kctl.model.codes import KafkaError
from kctl.model.names import TopicPartition, topic_id_to_bytes
from kctl.wire.admin import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.logic.notation import topic_id
from tests.server.office import office

pytestmark = pytest.mark.asyncio

CREATE_VERSIONS = pytest.mark.parametrize("version", range(8))
GROW_VERSIONS = pytest.mark.parametrize("version", range(4))
DELETE_VERSIONS = pytest.mark.parametrize("version", range(7))
BROKERS = (1, 2, 3)
INT_MAX = 2**31 - 1


def create(*topics: CreatableTopic, timeout_ms: int = 5_000, **more: Any) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics, timeout_ms, **more)


# -- CreateTopics ----------------------------------------------------------------------------


@CREATE_VERSIONS
async def test_a_topic_by_counts(version: int) -> None:
    async with office(others=BROKERS) as one:
        answer = await one.ask(create(CreatableTopic("t", 2, 3)), version)
        (result,) = answer.topics
        assert (result.name, result.error_code) == ("t", 0)
        assert one.world.cluster.rows[TopicPartition("t", 1)].leader in BROKERS
        node = one.world.zk.topics["t"]
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (2, 3)
        if version >= 7:
            assert result.topic_id == topic_id_to_bytes(node.topic_id or "")  # type: ignore[union-attr]
        assert [set(tps) for tps in one.told.asked] == [
            {TopicPartition("t", 0), TopicPartition("t", 1)}
        ]


@CREATE_VERSIONS
async def test_a_topic_by_assignment_with_configs(version: int) -> None:
    async with office(others=BROKERS) as one:
        topic = CreatableTopic(
            "t",
            -1,
            -1,
            (CreatableReplicaAssignment(1, (3, 1)), CreatableReplicaAssignment(0, (2, 3))),
            (CreatableTopicConfig("retention.ms", "1000"),),
        )
        answer = await one.ask(create(topic), version)
        (result,) = answer.topics
        assert result.error_code == 0
        assert one.world["t-0"] == "2*,3 isr=2,3 epoch=0"
        assert one.world["t-1"] == "3*,1 isr=3,1 epoch=0"
        assert one.world.zk.configs["t"] == {"retention.ms": "1000"}
        if version >= 5:
            shown = {c.name: (c.value, c.config_source) for c in result.configs}
            assert shown["retention.ms"] == ("1000", 1)
            assert shown["segment.bytes"] == ("1073741824", 5)


@pytest.mark.parametrize("version", range(1, 8))
async def test_only_validated(version: int) -> None:
    async with office(others=BROKERS) as one:
        topics = (CreatableTopic("t", -1, -1), CreatableTopic("u", 1, 9))
        answer = await one.ask(create(*topics, timeout_ms=0, validate_only=True), version)
        good, bad = answer.topics
        assert good.error_code == 0
        assert bad.error_code == KafkaError.INVALID_REPLICATION_FACTOR
        assert bad.error_message
        assert one.world.zk.topics == {}
        assert one.told.asked == []


@CREATE_VERSIONS
async def test_each_topic_has_its_own_outcome(version: int) -> None:
    async with office("old-0: 1*,2", others=BROKERS) as one:
        answer = await one.ask(
            create(
                CreatableTopic("old", 1, 1),
                CreatableTopic("new", 1, 1),
                CreatableTopic("bad name", 1, 1),
                CreatableTopic("none", 0, 1),
                CreatableTopic("odd", 1, 1, configs=(CreatableTopicConfig("no.such", "1"),)),
                CreatableTopic("both", 1, 1, (CreatableReplicaAssignment(0, (1,)),)),
            ),
            version,
        )
        assert [(r.name, r.error_code) for r in answer.topics] == [
            ("old", KafkaError.TOPIC_ALREADY_EXISTS),
            ("new", KafkaError.NONE),
            ("bad name", KafkaError.INVALID_TOPIC_EXCEPTION),
            ("none", KafkaError.INVALID_PARTITIONS),
            ("odd", KafkaError.INVALID_CONFIG),
            ("both", KafkaError.INVALID_REQUEST),
        ]
        assert set(one.world.zk.topics) == {"old", "new"}


@CREATE_VERSIONS
async def test_a_standby_creates_nothing(version: int) -> None:
    async with office(others=BROKERS, elected=False) as one:
        answer = await one.ask(create(CreatableTopic("t", 1, 1)), version)
        assert [r.error_code for r in answer.topics] == [KafkaError.NOT_CONTROLLER]


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31)])
async def test_no_time_to_wait_is_a_time_out_of_what_was_done(timeout_ms: int) -> None:
    async with office("old-0: 1*,2", others=BROKERS) as one:
        topics = (CreatableTopic("t", 1, 1), CreatableTopic("old", 1, 1))
        answer = await one.ask(create(*topics, timeout_ms=timeout_ms), 7)
        assert [r.error_code for r in answer.topics] == [
            KafkaError.REQUEST_TIMED_OUT,
            KafkaError.TOPIC_ALREADY_EXISTS,
        ]
        assert "t" in one.world.zk.topics
        assert one.told.asked == []


async def test_the_answer_waits_for_the_brokers() -> None:
    async with office(others=BROKERS) as one, one.client() as client:
        one.told.holding = True
        sent = await client.send(create(CreatableTopic("t", 1, 1), timeout_ms=60_000), 7)
        await one.told.on_asked.wait()
        assert "t" in one.world.zk.topics
        reading = asyncio.create_task(client.frame())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not reading.done()
        one.told.released.set()
        frame = await reading
        assert frame is not None
        assert int.from_bytes(frame[:4], "big") == sent


async def test_brokers_that_do_not_answer_in_time() -> None:
    async with office(others=BROKERS) as one:
        one.told.holding = True
        answer = await one.ask(create(CreatableTopic("t", 1, 1), timeout_ms=20), 7)
        assert [r.error_code for r in answer.topics] == [KafkaError.REQUEST_TIMED_OUT]
        assert "t" in one.world.zk.topics


async def test_nobody_waits_for_ever_however_much_time_is_allowed() -> None:
    async with office(others=BROKERS, limits={"wait_s": 0.02}) as one:
        one.told.holding = True
        answer = await one.ask(create(CreatableTopic("t", 1, 1), timeout_ms=INT_MAX), 7)
        assert [r.error_code for r in answer.topics] == [KafkaError.REQUEST_TIMED_OUT]


async def test_a_topic_without_a_live_replica_is_not_there_in_time() -> None:
    async with office(others=BROKERS) as one:
        alone = CreatableTopic("t", -1, -1, (CreatableReplicaAssignment(0, (9,)),))
        answer = await one.ask(create(alone, CreatableTopic("u", 1, 1), timeout_ms=30), 7)
        assert [r.error_code for r in answer.topics] == [KafkaError.REQUEST_TIMED_OUT, 0]


async def test_its_leader_comes_while_the_answer_waits() -> None:
    async with office(others=BROKERS) as one, one.client() as client:
        alone = CreatableTopic("t", -1, -1, (CreatableReplicaAssignment(0, (9,)),))
        asking = asyncio.create_task(client.ask(create(alone, timeout_ms=60_000), 7))
        await one.answered.wait()
        one.world.start(9)
        answer = await asking
        assert [r.error_code for r in answer.topics] == [0]


async def test_the_controller_resigns_while_the_answer_waits() -> None:
    """The topic is committed, and the next controller tells the brokers: no reason to fail."""
    async with office(others=BROKERS) as one, one.client() as client:
        one.told.holding = True
        asking = asyncio.create_task(
            client.ask(create(CreatableTopic("t", 1, 1), timeout_ms=60_000), 7)
        )
        await one.told.on_asked.wait()
        one.world.node.cluster = None
        one.told.released.set()
        answer = await asking
        assert [r.error_code for r in answer.topics] == [0]


async def test_counts_that_nothing_could_hold_are_refused_before_anything_is_placed() -> None:
    async with office(others=BROKERS, limits={"partitions_per_request_max": 250_000}) as one:
        answer = await one.ask(
            create(
                CreatableTopic("huge", INT_MAX, 1),
                CreatableTopic("large", 150_000, 1),
                CreatableTopic("more", 150_000, 1),
                timeout_ms=0,
                validate_only=True,
            ),
            7,
        )
        assert {r.name: r.error_code for r in answer.topics} == {
            "large": KafkaError.NONE,
            "huge": KafkaError.INVALID_PARTITIONS,
            "more": KafkaError.INVALID_REQUEST,
        }
        (event,) = one.events
        assert isinstance(event, CreateTopics)
        assert [t.name for t in event.topics] == ["large"]


async def test_more_topics_than_one_request_may_make() -> None:
    async with office(others=BROKERS, limits={"topics_per_request_max": 2}) as one:
        answer = await one.ask(create(*(CreatableTopic(f"t{n}", 1, 1) for n in range(4))), 7)
        assert [r.error_code for r in answer.topics] == [0, 0, *[KafkaError.INVALID_REQUEST] * 2]
        assert set(one.world.zk.topics) == {"t0", "t1"}
        grown = await one.ask(grow(*(CreatePartitionsTopic(f"t{n}", 2, None) for n in range(3))), 3)
        assert [r.error_code for r in grown.results] == [0, 0, KafkaError.INVALID_REQUEST]


async def test_a_busy_controller_is_not_waited_for_without_end() -> None:
    async def never(_event_for: object) -> None:
        await asyncio.Event().wait()

    async with office(others=BROKERS, ask=never, limits={"ask_s": 0.02}) as one:
        answer = await one.ask(create(CreatableTopic("t", 1, 1), timeout_ms=1), 7)
        assert [r.error_code for r in answer.topics] == [KafkaError.REQUEST_TIMED_OUT]


# -- CreatePartitions ------------------------------------------------------------------------


def grow(*topics: CreatePartitionsTopic, timeout_ms: int = 5_000, **more: Any) -> Any:
    return CreatePartitionsRequest(topics, timeout_ms, **more)


@GROW_VERSIONS
async def test_a_topic_grows(version: int) -> None:
    async with office("t-0: 1*,2", "u-0: 1*,2", "v-0: 1*,2", others=BROKERS) as one:
        answer = await one.ask(
            grow(
                CreatePartitionsTopic("t", 3, None),
                CreatePartitionsTopic("u", 2, (CreatePartitionsAssignment((3, 2)),)),
                CreatePartitionsTopic("v", 1, None),
                CreatePartitionsTopic("w", 2, None),
            ),
            version,
        )
        assert [(r.name, r.error_code) for r in answer.results] == [
            ("t", 0),
            ("u", 0),
            ("v", KafkaError.INVALID_PARTITIONS),
            ("w", KafkaError.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert one.world["u-1"] == "3*,2 isr=3,2 epoch=0"
        assert len(one.world.cluster.topics["t"].partitions) == 3


@GROW_VERSIONS
async def test_growth_only_validated(version: int) -> None:
    async with office("t-0: 1*,2", others=BROKERS) as one:
        request = grow(CreatePartitionsTopic("t", 3, None), validate_only=True)
        assert [r.error_code for r in (await one.ask(request, version)).results] == [0]
        assert len(one.world.cluster.topics["t"].partitions) == 1


@GROW_VERSIONS
async def test_growth_at_a_standby_or_without_time(version: int) -> None:
    async with office("t-0: 1*,2", elected=False) as one:
        answer = await one.ask(grow(CreatePartitionsTopic("t", 3, None)), version)
        assert [r.error_code for r in answer.results] == [KafkaError.NOT_CONTROLLER]
    async with office("t-0: 1*,2") as one:
        answer = await one.ask(grow(CreatePartitionsTopic("t", 3, None), timeout_ms=0), version)
        assert [r.error_code for r in answer.results] == [KafkaError.REQUEST_TIMED_OUT]
        assert len(one.world.cluster.topics["t"].partitions) == 3


async def test_growth_that_nothing_could_hold() -> None:
    async with office("t-0: 1*,2", "u-0: 1*,2") as one:
        answer = await one.ask(
            grow(CreatePartitionsTopic("t", INT_MAX, None), CreatePartitionsTopic("u", 2, None)), 3
        )
        assert {r.name: r.error_code for r in answer.results} == {
            "t": KafkaError.INVALID_PARTITIONS,
            "u": 0,
        }
        (event,) = one.events
        assert isinstance(event, CreatePartitions)
        assert [t.name for t in event.topics] == ["u"]


# -- DeleteTopics ----------------------------------------------------------------------------


def delete(version: int, *names: str, timeout_ms: int = 5_000) -> DeleteTopicsRequest:
    if version < 6:
        return DeleteTopicsRequest(topic_names=names, timeout_ms=timeout_ms)
    topics = tuple(DeleteTopicState(name) for name in names)
    return DeleteTopicsRequest(topics, timeout_ms=timeout_ms)


@DELETE_VERSIONS
async def test_topics_are_deleted_by_name(version: int) -> None:
    async with office("t-0: 1*,2", "u-0: 1*,2") as one:
        answer = await one.ask(delete(version, "t", "none"), version)
        assert [(r.name, r.error_code) for r in answer.responses] == [
            ("t", 0),
            ("none", KafkaError.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        if version >= 6:
            assert answer.responses[0].topic_id == topic_id_to_bytes(topic_id("t"))
        assert one.told.asked == [(TopicPartition("t", 0),)]
        one.world.settle()
        assert set(one.world.zk.topics) == {"u"}


async def test_the_brokers_are_waited_for_when_all_of_them_have_been_told() -> None:
    """The core answers while it still tells them; an event behind that one says when it is done."""
    async with office("t-0: 1*,2") as one:
        await one.ask(delete(6, "t"), 6)
        assert [type(event) for event in one.events] == [DeleteTopics, ListPartitionReassignments]
        one.world.settle()


async def test_topics_are_deleted_by_id() -> None:
    async with office("t-0: 1*,2") as one:
        known, unknown = (topic_id_to_bytes(topic_id(name)) for name in "tx")
        request = DeleteTopicsRequest(
            (DeleteTopicState(None, known), DeleteTopicState(None, unknown)), timeout_ms=5_000
        )
        answer = await one.ask(request, 6)
        assert [(r.name, r.topic_id, r.error_code) for r in answer.responses] == [
            ("t", known, 0),
            (None, unknown, KafkaError.UNKNOWN_TOPIC_ID),
        ]
        assert one.told.asked == [(TopicPartition("t", 0),)]
        one.world.settle()
        assert one.world.zk.topics == {}


async def test_a_name_and_an_id_at_once_are_refused() -> None:
    async with office("t-0: 1*,2") as one:
        state = DeleteTopicState("t", topic_id_to_bytes(topic_id("t")))
        answer = await one.ask(DeleteTopicsRequest((state,), timeout_ms=5_000), 6)
        assert [r.error_code for r in answer.responses] == [KafkaError.INVALID_REQUEST]
        assert set(one.world.zk.topics) == {"t"}


@DELETE_VERSIONS
async def test_deletion_switched_off(version: int) -> None:
    async with office("t-0: 1*,2", delete_topic_enable=False) as one:
        answer = await one.ask(delete(version, "t"), version)
        expected = KafkaError.INVALID_REQUEST if version < 3 else KafkaError.TOPIC_DELETION_DISABLED
        assert [r.error_code for r in answer.responses] == [expected]
        assert one.world.zk.deletions == {}


@DELETE_VERSIONS
async def test_a_standby_deletes_nothing(version: int) -> None:
    async with office("t-0: 1*,2", elected=False) as one:
        answer = await one.ask(delete(version, "t"), version)
        assert [r.error_code for r in answer.responses] == [KafkaError.NOT_CONTROLLER]


@DELETE_VERSIONS
async def test_no_time_to_wait_for_a_deletion(version: int) -> None:
    async with office("t-0: 1*,2") as one:
        answer = await one.ask(delete(version, "t", timeout_ms=0), version)
        assert [r.error_code for r in answer.responses] == [KafkaError.REQUEST_TIMED_OUT]
        assert "t" in one.world.zk.deletions


async def test_a_deletion_on_hold_is_not_done_in_time() -> None:
    async with office("t-0: 3,1*,2 adding=3 removing=1 isr=1,2", others=(3,)) as one:
        answer = await one.ask(delete(6, "t", timeout_ms=30), 6)
        assert [r.error_code for r in answer.responses] == [KafkaError.REQUEST_TIMED_OUT]
        assert "t" in one.world.zk.deletions


async def test_a_deletion_that_starts_while_the_answer_waits() -> None:
    async with office("t-0: 3,1*,2 adding=3 removing=1 isr=1,2", others=(3,)) as one:
        async with one.client() as client:
            asking = asyncio.create_task(client.ask(delete(6, "t", timeout_ms=60_000), 6))
            await one.answered.wait()
            one.world.propose("t-0", 1, 2, 3)  # with that the reassignment is over
            answer = await asking
            assert [r.error_code for r in answer.responses] == [0]
        one.world.settle()
