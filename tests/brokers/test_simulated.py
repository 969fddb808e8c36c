"""Simulated brokers: they judge, apply and answer as real ones do."""

import asyncio

import pytest
from aiokafka.client import AIOKafkaClient

from kctl.brokers.channel import ChannelSettings
from kctl.brokers.connection import Address, Connection, ConnectionFailed, Security
from kctl.brokers.manager import ChannelManager
from kctl.brokers.simulated import SimulatedBrokers
from kctl.brokers.simulated_belief import Belief
from kctl.messages import events as ev
from kctl.messages.requests import Connect
from kctl.model.names import TopicPartition
from kctl.wire import apis, client
from kctl.wire import control_plane as cp
from tests.brokers.recorder import (
    EPOCH,
    Recorder,
    leader_and_isr,
    registered,
    row,
    update_metadata,
)

T0 = TopicPartition("t", 0)
ID, OTHER_ID = b"i" * 16, b"o" * 16
SETTINGS = ChannelSettings(controller_id=1000, retry_backoff_ms=5)


def lisr(
    leader: int,
    leader_epoch: int,
    *,
    controller_epoch: int = 1,
    topic_id: bytes = ID,
    replicas: tuple[int, ...] = (1, 2),
) -> cp.LeaderAndIsrRequest:
    state = cp.LeaderAndIsrPartitionState(
        leader=leader, leader_epoch=leader_epoch, isr=replicas, replicas=replicas
    )
    return cp.LeaderAndIsrRequest(
        controller_epoch=controller_epoch,
        topic_states=(cp.LeaderAndIsrTopicState("t", topic_id, (state,)),),
    )


def stop(leader_epoch: int, *, delete: bool, controller_epoch: int = 1) -> cp.StopReplicaRequest:
    state = cp.StopReplicaPartitionState(0, leader_epoch, delete)
    return cp.StopReplicaRequest(
        controller_epoch=controller_epoch,
        topic_states=(cp.StopReplicaTopicState("t", (state,)),),
    )


def live(*ids: int) -> cp.UpdateMetadataRequest:
    return cp.UpdateMetadataRequest(
        controller_epoch=1, live_brokers=tuple(cp.UpdateMetadataBroker(i) for i in ids)
    )


# -- rules -----------------------------------------------------------------------------------


def test_only_a_higher_leader_epoch_is_taken() -> None:
    belief = Belief(1)
    assert belief.leader_and_isr(lisr(1, 5)) == (0, {T0: 0})
    assert belief.leader_and_isr(lisr(1, 5)) == (0, {T0: 11})
    assert belief.leader_and_isr(lisr(2, 4)) == (0, {T0: 11})
    assert belief.hosted[T0].state.leader_epoch == 5


def test_a_smaller_controller_epoch_is_refused() -> None:
    belief = Belief(1)
    belief.leader_and_isr(lisr(1, 5, controller_epoch=7))
    assert belief.leader_and_isr(lisr(1, 6, controller_epoch=6)) == (11, {T0: 11})
    assert belief.stop_replica(stop(-2, delete=True, controller_epoch=6)) == (11, {})
    assert belief.update_metadata(live(1)) == 11
    assert T0 in belief.hosted
    assert belief.live == {}


def test_a_follower_of_an_unknown_leader_is_not_started_but_answered_with_success() -> None:
    belief = Belief(1)
    assert belief.leader_and_isr(lisr(2, 1)) == (0, {T0: 0})
    assert not belief.hosted[T0].started
    belief.update_metadata(live(1, 2))
    assert not belief.hosted[T0].started
    assert belief.leader_and_isr(lisr(2, 1)) == (0, {T0: 0})  # the epoch was not taken up
    assert belief.hosted[T0].started
    belief.update_metadata(live(1))
    assert belief.leader_and_isr(lisr(2, 2)) == (0, {T0: 0})
    assert belief.hosted[T0].state.leader_epoch == 1


def test_what_a_broker_does_not_host() -> None:
    assert Belief(3).leader_and_isr(lisr(1, 1)) == (0, {T0: 3})


def test_another_topic_of_that_name() -> None:
    belief = Belief(1)
    belief.leader_and_isr(lisr(1, 1))
    assert belief.leader_and_isr(lisr(1, 2, topic_id=OTHER_ID)) == (0, {T0: 103})


def test_a_failed_log_dir() -> None:
    belief = Belief(1, failed_dirs={T0: None})
    assert belief.leader_and_isr(lisr(1, 1)) == (0, {T0: 56})
    assert belief.stop_replica(stop(-2, delete=True)) == (0, {T0: 56})


@pytest.mark.parametrize("leader_epoch, code", [(-2, 0), (-1, 0), (5, 0), (6, 0), (4, 74)])
def test_stop_replica_is_fenced_by_the_leader_epoch(leader_epoch: int, code: int) -> None:
    belief = Belief(1)
    belief.leader_and_isr(lisr(1, 5))
    assert belief.stop_replica(stop(leader_epoch, delete=True)) == (0, {T0: code})
    assert (T0 in belief.hosted) == bool(code)
    assert (T0 in belief.deleted) != bool(code)


def test_stopped_without_deletion_keeps_the_log() -> None:
    belief = Belief(1)
    belief.leader_and_isr(lisr(1, 5))
    assert belief.stop_replica(stop(5, delete=False)) == (0, {T0: 0})
    assert not belief.hosted[T0].started


def test_metadata_is_merged_and_forgotten() -> None:
    belief = Belief(1)

    def told(leader: int, topic_id: bytes) -> cp.UpdateMetadataRequest:
        state = cp.UpdateMetadataPartitionState(leader=leader)
        topic = cp.UpdateMetadataTopicState("t", topic_id, (state,))
        return cp.UpdateMetadataRequest(topic_states=(topic,))

    belief.update_metadata(told(2, ID))
    assert belief.metadata[T0].leader == 2
    assert belief.topic_ids == {"t": ID}
    belief.update_metadata(live(4))
    assert T0 in belief.metadata
    assert list(belief.live) == [4]
    belief = Belief(1, metadata=belief.metadata, topic_ids=belief.topic_ids)
    belief.update_metadata(told(-2, bytes(16)))
    assert belief.metadata == {}
    assert belief.topic_ids == {}


# -- on the wire -----------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_request_for_an_earlier_incarnation_is_refused() -> None:
    recorder = Recorder()
    async with SimulatedBrokers((1,)) as brokers, ChannelManager(SETTINGS, recorder) as manager:
        manager.send(Connect(registered(brokers[1])))
        brokers[1].epoch = EPOCH + 1
        manager.send(leader_and_isr(1, {T0: row(1, (1,))}))
        event = await recorder.first(ev.LeaderAndIsrResponseReceived)
        assert event.error == 77
        assert brokers[1].belief.hosted == {}


@pytest.mark.asyncio
async def test_versions_that_are_not_served_end_the_connection() -> None:
    async with SimulatedBrokers((1,), release=(2, 4)) as brokers:
        connection = await Connection.open(
            Address("127.0.0.1", brokers[1].port), client_id="x", security=Security()
        )
        body = apis.encode(client.ApiVersionsRequest("x", "1"), 4)
        frame, pos = await connection.exchange(apis.API_VERSIONS, 4, body)
        refused = apis.decode(client.ApiVersionsResponse, 0, frame, pos)
        assert refused.error_code == 35
        with pytest.raises(ConnectionFailed):
            await connection.exchange(6, 8, apis.encode(cp.UpdateMetadataRequest(), 8))
        await connection.close()


@pytest.mark.asyncio
async def test_a_kafka_client_sees_the_leaders_move() -> None:
    recorder = Recorder()
    async with (
        SimulatedBrokers((1, 2), racks={1: "a", 2: "b"}) as brokers,
        ChannelManager(SETTINGS, recorder) as manager,
    ):
        both = tuple(registered(b) for b in brokers.values())
        for broker in both:
            manager.send(Connect(broker))
        manager.send(update_metadata([1, 2], both, {T0: row(1, (1, 2))}))
        await manager.acknowledged(manager.mark())
        kafka = AIOKafkaClient(bootstrap_servers=f"127.0.0.1:{brokers[1].port}")
        await kafka.bootstrap()
        try:
            await kafka.add_topic("t")
            await kafka.force_metadata_update()
            assert {b.nodeId for b in kafka.cluster.brokers()} == {1, 2}
            assert kafka.cluster.leader_for_partition(kafka_partition()) == 1
            manager.send(update_metadata([1, 2], both, {T0: row(2, (1, 2), leader_epoch=1)}))
            await manager.acknowledged(manager.mark())
            await kafka.force_metadata_update()
            assert kafka.cluster.leader_for_partition(kafka_partition()) == 2
            manager.send(update_metadata([1, 2], both, {T0: row(2, (1, 2))}, deleted=["t"]))
            await manager.acknowledged(manager.mark())
            assert brokers[1].belief.metadata == {}
        finally:
            await kafka.close()


def kafka_partition() -> object:
    from aiokafka import TopicPartition as KafkaPartition  # noqa: PLC0415  a name of ours too

    return KafkaPartition("t", 0)


@pytest.mark.asyncio
async def test_metadata_by_name_and_by_id() -> None:
    recorder = Recorder()
    async with SimulatedBrokers((1,)) as brokers, ChannelManager(SETTINGS, recorder) as manager:
        one = registered(brokers[1])
        manager.send(Connect(one))
        rows = {T0: row(1, (1,)), TopicPartition("t", 1): row(9, (9, 1))}
        manager.send(update_metadata([1], (one,), rows))
        await manager.acknowledged(manager.mark())
        connection = await Connection.open(
            Address("127.0.0.1", brokers[1].port), client_id="x", security=Security()
        )
        topic_id = brokers[1].belief.topic_ids["t"]
        asked = client.MetadataRequest(
            topics=(
                client.MetadataRequestTopic(name="t"),
                client.MetadataRequestTopic(name="nope"),
                client.MetadataRequestTopic(topic_id, None),
                client.MetadataRequestTopic(OTHER_ID, None),
            )
        )
        frame, pos = await connection.exchange(3, 12, apis.encode(asked, 12))
        answer = apis.decode(client.MetadataResponse, 12, frame, pos)
        await connection.close()
    assert [(t.name, t.error_code, t.topic_id == topic_id) for t in answer.topics] == [
        ("t", 0, True),
        ("nope", 3, False),
        ("t", 0, True),
        (None, 100, False),
    ]
    led, leaderless = answer.topics[0].partitions
    assert (led.error_code, led.leader_id) == (0, 1)
    assert (leaderless.error_code, leaderless.leader_id) == (5, -1)


@pytest.mark.asyncio
async def test_a_quick_broker_reads_later_and_each_body_once() -> None:
    recorder = Recorder()
    async with (
        SimulatedBrokers(range(1, 101), quick=True) as brokers,
        ChannelManager(SETTINGS, recorder) as manager,
    ):
        everyone = tuple(registered(b) for b in brokers.values())
        for broker in everyone:
            manager.send(Connect(broker))
        manager.send(update_metadata(list(brokers), everyone, {T0: row(1, (1, 2))}))
        manager.send(leader_and_isr(1, {T0: row(1, (1, 2))}))
        await manager.acknowledged(manager.mark())
        assert recorder.of(ev.LeaderAndIsrResponseReceived)[0].partition_errors == {}
        assert brokers.decoder.decoded == 0
        stamps = [f.stamp_s for f in brokers[1].frames]
        assert stamps == sorted(stamps)
        assert len(stamps) == 2
        assert all(b.belief.metadata[T0].leader == 1 for b in brokers.values())
        assert brokers[1].belief.hosted[T0].started
        assert brokers.decoder.decoded == 2


@pytest.mark.asyncio
async def test_garbage_ends_the_connection_only() -> None:
    async with SimulatedBrokers((1,)) as brokers:
        for garbage in (b"\x00\x00\x00\x02ab", b"\xff\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", brokers[1].port)
            writer.write(garbage)
            try:
                assert await reader.read() == b""
            except ConnectionResetError:
                pass
            writer.transport.abort()
        connection = await Connection.open(
            Address("127.0.0.1", brokers[1].port), client_id="x", security=Security()
        )
        await connection.close()


@pytest.mark.asyncio
async def test_a_restart_forgets() -> None:
    recorder = Recorder()
    async with SimulatedBrokers((1,)) as brokers, ChannelManager(SETTINGS, recorder) as manager:
        manager.send(Connect(registered(brokers[1])))
        manager.send(leader_and_isr(1, {T0: row(1, (1,))}))
        await manager.acknowledged(manager.mark())
        port = brokers[1].port
        await brokers[1].restart()
        assert brokers[1].port == port
        assert brokers[1].belief == Belief(1)
