"""Producer ids and features: duties that touch no partition."""

from typing import Any

import pytest

from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.messages.answers import (
    AnswerValue,
    ApiError,
    FeatureErrors,
    ProducerIdBlock,
    Refused,
)
from kctl.messages.effects import ProducerIds
from kctl.model.codes import Code, KafkaError
from kctl.simulation.memory import MemoryZooKeeper
from tests.logic.world import MakeWorld, World, malformed


def allocate(one: World, broker: int = 1, epoch: int = 101) -> AnswerValue:
    one.callers += 1
    return one.ask(ev.AllocateProducerIds(one.callers, broker, epoch))


@pytest.mark.handles("AllocateProducerIds")
@pytest.mark.parity(60)
def test_blocks_of_a_thousand_one_after_the_other(world: MakeWorld) -> None:
    one = world(brokers=(1, 2))
    assert allocate(one) == ProducerIdBlock(0, 1000)
    assert allocate(one, 2, 102) == ProducerIdBlock(1000, 1000)
    one.expire()
    assert allocate(one) == ProducerIdBlock(2000, 1000)


@pytest.mark.handles("AllocateProducerIds")
@pytest.mark.parity(60)
@pytest.mark.parametrize(
    "broker, epoch, error",
    [
        (9, 1, KafkaError.BROKER_ID_NOT_REGISTERED),
        (1, 100, KafkaError.STALE_BROKER_EPOCH),
        (1, 102, KafkaError.STALE_BROKER_EPOCH),
    ],
)
def test_to_whom_none_are_given(
    world: MakeWorld, broker: int, epoch: int, error: KafkaError
) -> None:
    one = world(brokers=(1,))
    assert allocate(one, broker, epoch) == Refused(ApiError(error))
    assert one.zk.producer_ids.end == -1


class Shaky(MemoryZooKeeper):
    """The first writes are answered UNKNOWN, and land or not in turn."""

    __slots__ = ()

    def perform(self, effect: ef.Effect[Any]) -> object:
        if isinstance(effect, ef.WriteProducerIds):
            turn = self.chance.randrange(3)
            if turn == 0:
                return super().perform(effect)
            if turn == 1:
                super().perform(effect)
            return Code.UNKNOWN
        return super().perform(effect)


@pytest.mark.parity(60)
def test_no_block_is_given_twice_whatever_became_of_the_write(world: MakeWorld) -> None:
    one = world(brokers=(1,))
    one.zk.__class__ = Shaky
    blocks = [allocate(one) for _ in range(50)]
    starts = [block.start for block in blocks if isinstance(block, ProducerIdBlock)]
    assert len(starts) > 40
    assert sorted(set(starts)) == starts


@pytest.mark.parity(60)
def test_the_end_of_all_ids_and_a_broken_znode(world: MakeWorld) -> None:
    one = world(brokers=(1,))
    one.zk.producer_ids = ProducerIds(2**63 - 500, 3)
    refused = allocate(one)
    assert refused == Refused(
        ApiError(KafkaError.UNKNOWN_SERVER_ERROR, "all producer ids are used up")
    )
    one.zk.producer_ids = malformed("/latest_producer_id_block")  # type: ignore[assignment]
    assert allocate(one) == Refused(ApiError(KafkaError.UNKNOWN_SERVER_ERROR, "not JSON"))
    assert one.cluster.quarantine == {"/latest_producer_id_block": "not JSON"}
    one.zk.producer_ids = ProducerIds(-1, 4)
    assert allocate(one) == ProducerIdBlock(0, 1000)
    assert not one.cluster.quarantine


def test_a_znode_that_always_changes_is_given_up(world: MakeWorld) -> None:
    one = world(brokers=(1,))

    class Busy(MemoryZooKeeper):
        __slots__ = ()

        def perform(self, effect: ef.Effect[Any]) -> object:
            if isinstance(effect, ef.WriteProducerIds):
                return Code.BAD_VERSION
            return super().perform(effect)

    one.zk.__class__ = Busy
    answer = allocate(one)
    assert isinstance(answer, Refused)
    assert answer.error.message == "the producer id znode kept changing"


@pytest.mark.handles("UpdateFeatures")
@pytest.mark.parity(61)
def test_features_are_refused_one_by_one(world: MakeWorld) -> None:
    one = world(brokers=(1,))
    wanted = (ev.FeatureUpdate("f", 2), ev.FeatureUpdate("", 1))
    answer = one.ask(ev.UpdateFeatures(1, wanted))
    assert isinstance(answer, FeatureErrors)
    assert {error.code for error in answer.errors.values()} == {KafkaError.INVALID_REQUEST}
    assert answer.errors["f"].message == "no broker in ZooKeeper mode supports the feature f"
    assert answer.errors[""].message == "a feature must have a name"
    assert one.zk.features == ef.FeatureNode(True, {})


@pytest.mark.handles("UpdateFeatures")
@pytest.mark.parity(61)
def test_features_need_a_protocol_that_knows_them(world: MakeWorld) -> None:
    one = world(brokers=(1,), inter_broker_protocol=(2, 6))
    assert one.ask(ev.UpdateFeatures(1)) == Refused(
        ApiError(KafkaError.INVALID_REQUEST, "features need Kafka 2.7 or later")
    )
