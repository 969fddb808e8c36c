"""What brokers ask: ControlledShutdown, AlterPartition, AllocateProducerIds, in all versions."""

import copy
from typing import Any

import pytest

from kctl.model.codes import KafkaError
from kctl.model.names import TopicPartition, topic_id_to_bytes
from kctl.wire.control_plane import (
    AllocateProducerIdsRequest,
    AlteredPartitionData,
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerState,
    ControlledShutdownRequest,
    RemainingPartition,
)
from tests.logic.notation import topic_id
from tests.server.office import Office, office

pytestmark = pytest.mark.asyncio

ALL_VERSIONS = pytest.mark.parametrize("version", range(4))


# -- ControlledShutdown ----------------------------------------------------------------------


@ALL_VERSIONS
async def test_a_broker_that_leaves_hands_its_leaderships_over(version: int) -> None:
    async with office("t-0: 1*,2", "t-1: 2*,1") as one:
        answer = await one.ask(ControlledShutdownRequest(1, 101), version)
        assert (answer.error_code, answer.remaining_partitions) == (0, ())
        assert one.world["t-0"] == "1,2* isr=2 epoch=1"


@ALL_VERSIONS
async def test_it_is_told_what_nobody_can_take_over(version: int) -> None:
    async with office("t-0: 1*,2 isr=1") as one:
        answer = await one.ask(ControlledShutdownRequest(1, 101), version)
        assert answer.remaining_partitions == (RemainingPartition("t", 0),)


@ALL_VERSIONS
async def test_a_standby_tells_it_to_look_for_the_controller(version: int) -> None:
    async with office("t-0: 1*,2", elected=False) as one:
        answer = await one.ask(ControlledShutdownRequest(1, 101), version)
        assert answer.error_code == KafkaError.STALE_CONTROLLER_EPOCH


async def test_an_older_incarnation_does_not_shut_the_newer_one_down() -> None:
    async with office("t-0: 1*,2") as one:
        answer = await one.ask(ControlledShutdownRequest(1, 100), 3)
        assert answer.error_code == KafkaError.STALE_BROKER_EPOCH
        unknown = await one.ask(ControlledShutdownRequest(9, 109), 3)
        assert unknown.error_code == KafkaError.BROKER_NOT_AVAILABLE
        assert one.world["t-0"] == "1*,2 isr=1,2 epoch=0"


# -- AllocateProducerIds ---------------------------------------------------------------------


async def test_producer_ids_are_never_given_twice() -> None:
    async with office(others=(1, 2)) as one:
        first = await one.ask(AllocateProducerIdsRequest(1, 101), 0)
        second = await one.ask(AllocateProducerIdsRequest(2, 102), 0)
        assert (first.producer_id_start, first.producer_id_len) == (0, 1000)
        assert (second.producer_id_start, second.producer_id_len) == (1000, 1000)


@pytest.mark.parametrize(
    "broker, epoch, error",
    [(1, 99, KafkaError.STALE_BROKER_EPOCH), (7, 107, KafkaError.BROKER_ID_NOT_REGISTERED)],
)
async def test_producer_ids_only_for_brokers(broker: int, epoch: int, error: int) -> None:
    async with office(others=(1,)) as one:
        before = one.world.zk.producer_ids
        answer = await one.ask(AllocateProducerIdsRequest(broker, epoch), 0)
        assert answer.error_code == error
        assert one.world.zk.producer_ids == before


async def test_producer_ids_of_a_standby() -> None:
    async with office(others=(1,), elected=False) as one:
        answer = await one.ask(AllocateProducerIdsRequest(1, 101), 0)
        assert answer.error_code == KafkaError.NOT_CONTROLLER


# -- AlterPartition --------------------------------------------------------------------------


def alter(
    version: int,
    *isr: int,
    topic: str = "t",
    broker: int = 1,
    epoch: int | None = None,
    partition: int = 0,
    leader_epoch: int = 5,
    partition_epoch: int = 5,
    recovery: int = 0,
) -> AlterPartitionRequest:
    data = AlterPartitionData(
        partition,
        leader_epoch,
        new_isr=isr,
        new_isr_with_epochs=tuple(BrokerState(b, -1) for b in isr),
        leader_recovery_state=recovery,
        partition_epoch=partition_epoch,
    )
    named = AlterPartitionTopic(topic, topic_id_to_bytes(topic_id(topic)), (data,))
    return AlterPartitionRequest(broker, 100 + broker if epoch is None else epoch, (named,))


async def outcome(one: Office, request: AlterPartitionRequest, version: int) -> Any:
    answer = await one.ask(request, version)
    assert answer.error_code == 0
    (topic,) = answer.topics
    assert topic.topic_name == ("t" if version < 2 else "")
    assert topic.topic_id == (bytes(16) if version < 2 else request.topics[0].topic_id)
    (partition,) = topic.partitions
    return partition


@ALL_VERSIONS
async def test_a_leader_shrinks_and_expands_its_isr(version: int) -> None:
    async with office("t-0: 1*,2,3 epoch=5") as one:
        shrunk = await outcome(one, alter(version, 1, 2), version)
        assert shrunk == AlteredPartitionData(0, 0, 1, 5, (1, 2), 0, 6)
        grown = await outcome(one, alter(version, 1, 2, 3, partition_epoch=6), version)
        assert grown == AlteredPartitionData(0, 0, 1, 5, (1, 2, 3), 0, 7)
        assert one.world["t-0"] == "1*,2,3 isr=1,2,3 epoch=5"


@ALL_VERSIONS
async def test_the_same_proposal_twice_is_written_once(version: int) -> None:
    async with office("t-0: 1*,2,3 epoch=5") as one:
        first = await outcome(one, alter(version, 1, 2), version)
        again = await outcome(one, alter(version, 1, 2), version)
        assert first == again


INVALID = KafkaError.INVALID_REQUEST


@ALL_VERSIONS
@pytest.mark.parametrize(
    "isr, changes, error",
    [
        ((2, 1), {"broker": 2}, INVALID),
        ((), {}, INVALID),
        ((2, 3), {}, INVALID),
        ((1, 4), {}, INVALID),
        ((1, -1), {}, INVALID),
        ((1, 2), {"leader_epoch": 4}, KafkaError.FENCED_LEADER_EPOCH),
        ((1, 2), {"leader_epoch": 6}, KafkaError.NOT_CONTROLLER),
        ((1, 2), {"partition_epoch": 4}, KafkaError.INVALID_UPDATE_VERSION),
        ((1, 2), {"partition_epoch": 6}, KafkaError.NOT_CONTROLLER),
        ((1, 2), {"partition": 7}, KafkaError.UNKNOWN_TOPIC_OR_PARTITION),
        ((1, 2), {"partition": -1}, KafkaError.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_what_is_no_isr_is_refused(
    version: int, isr: tuple[int, ...], changes: dict[str, int], error: int
) -> None:
    async with office("t-0: 1*,2,3 epoch=5", others=(4,)) as one:
        before = copy.deepcopy(one.world.zk.states)
        refused = await outcome(one, alter(version, *isr, **changes), version)  # type: ignore[arg-type]
        assert refused.error_code == error
        if error != KafkaError.INVALID_UPDATE_VERSION:
            assert one.world.zk.states == before


@ALL_VERSIONS
async def test_a_leader_that_is_behind_changes_nothing_but_perhaps_its_epoch(version: int) -> None:
    """A higher epoch is how it is told the version that it does not know."""
    async with office("t-0: 1*,2,3 epoch=5") as one:
        refused = await outcome(one, alter(version, 1, 2, partition_epoch=4), version)
        assert refused.error_code == KafkaError.INVALID_UPDATE_VERSION
        assert one.world["t-0"].startswith("1*,2,3 isr=1,2,3 epoch=")


@ALL_VERSIONS
async def test_a_replica_that_is_down_is_not_in_sync(version: int) -> None:
    async with office("t-0: 1*,2,3 isr=1,2 epoch=5") as one:
        one.world.kill(3)
        now = one.world.cluster.rows[TopicPartition("t", 0)].leadership
        assert now is not None
        request = alter(
            version, 1, 2, 3, leader_epoch=now.leader_epoch, partition_epoch=now.zk_version
        )
        refused = await outcome(one, request, version)
        expected = KafkaError.OPERATION_NOT_ATTEMPTED if version < 2 else 107
        assert refused.error_code == expected


@pytest.mark.parametrize("version", [2, 3])
async def test_topics_that_are_not_known_by_id(version: int) -> None:
    async with office("t-0: 1*,2 epoch=5") as one:
        refused = await outcome(one, alter(version, 1, topic="u"), version)
        assert refused.error_code == KafkaError.UNKNOWN_TOPIC_ID
        nameless = AlterPartitionTopic("", bytes(16), (AlterPartitionData(0),))
        refused = await outcome(one, AlterPartitionRequest(1, 101, (nameless,)), version)
        assert refused.error_code == KafkaError.UNKNOWN_TOPIC_ID


@ALL_VERSIONS
@pytest.mark.parametrize("broker, epoch", [(1, 100), (1, 102), (1, -1), (9, 109)])
async def test_only_the_living_incarnation_of_a_broker_counts(
    version: int, broker: int, epoch: int
) -> None:
    async with office("t-0: 1*,2 epoch=5") as one:
        answer = await one.ask(alter(version, 1, broker=broker, epoch=epoch), version)
        assert (answer.error_code, answer.topics) == (KafkaError.STALE_BROKER_EPOCH, ())
        assert one.world["t-0"] == "1*,2 isr=1,2 epoch=5"


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_recovery_states(version: int) -> None:
    async with office("t-0: 1*,2 isr=1 epoch=5 recovering") as one:
        answer = await one.ask(alter(version, 1, recovery=9), version)
        assert answer.error_code == KafkaError.UNKNOWN_SERVER_ERROR
        assert one.events == []
        recovered = await outcome(one, alter(version, 1, recovery=0), version)
        assert (recovered.error_code, recovered.leader_recovery_state) == (0, 0)
        back = await outcome(one, alter(version, 1, partition_epoch=6, recovery=1), version)
        assert back.error_code == INVALID


@ALL_VERSIONS
async def test_a_standby_changes_no_isr(version: int) -> None:
    async with office("t-0: 1*,2 epoch=5", elected=False) as one:
        answer = await one.ask(alter(version, 1), version)
        assert answer.error_code == KafkaError.NOT_CONTROLLER


async def test_many_partitions_are_answered_in_the_order_of_the_request() -> None:
    async with office(*(f"t-{p}: 1*,2 epoch=5" for p in range(50)), "u-0: 1*,2 epoch=5") as one:
        order = [*range(49, -1, -1)]
        data = tuple(AlterPartitionData(p, 5, new_isr=(1,), partition_epoch=5) for p in order)
        request = AlterPartitionRequest(
            1,
            101,
            (
                AlterPartitionTopic("u", partitions=data[-1:]),
                AlterPartitionTopic("t", partitions=data),
            ),
        )
        answer = await one.ask(request, 1)
        assert [t.topic_name for t in answer.topics] == ["u", "t"]
        assert [p.partition_index for p in answer.topics[1].partitions] == order
        assert {p.isr for t in answer.topics for p in t.partitions} == {(1,)}
