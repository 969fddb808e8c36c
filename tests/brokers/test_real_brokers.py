"""What channels send, judged by unmodified brokers of three releases."""

import pytest

from kctl.brokers.channel import ChannelSettings
from kctl.brokers.connection import Address, Connection, Security
from kctl.brokers.manager import ChannelManager
from kctl.messages import events as ev
from kctl.messages.requests import (
    Connect,
    LeaderAndIsrRequest,
    StopReplicaPartition,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kctl.model.brokers import Broker, Endpoint
from kctl.model.names import TopicPartition, topic_id_from_bits
from kctl.model.settings import Release
from kctl.testing.kafka import KafkaBrokers
from kctl.wire import apis, client
from kctl.zookeeper.embedded import EmbeddedZooKeeper
from tests.brokers.recorder import Recorder, row

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

EPOCH_UNKNOWN = -1
"""As broker epoch: not checked by the broker."""
OURS = 100
"""A controller epoch that the broker's own controller does not reach."""
TOPIC_ID = topic_id_from_bits(777)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def leaders(port: int, version: int) -> dict[int, tuple[int, int]]:
    """Error and leader by partition of our topic, as the broker tells a client."""
    connection = await Connection.open(
        Address("127.0.0.1", port), client_id="test", security=Security()
    )
    asked = client.MetadataRequest(
        topics=(client.MetadataRequestTopic(name="t"),), allow_auto_topic_creation=False
    )
    frame, pos = await connection.exchange(3, version, apis.encode(asked, version))
    await connection.close()
    answer = apis.decode(client.MetadataResponse, version, frame, pos)
    return {
        p.partition_index: (p.error_code, p.leader_id)
        for topic in answer.topics
        for p in topic.partitions
    }


@pytest.mark.parametrize(
    "version, known_as, metadata_version",
    [("3.9.1", (3, 5), 12), ("2.8.2", (2, 8), 11), ("2.4.1", (2, 4), 9)],
)
async def test_a_real_broker_understands_all_three_requests(
    version: str, known_as: Release, metadata_version: int
) -> None:
    recorder = Recorder()
    async with (
        EmbeddedZooKeeper() as zookeeper,
        KafkaBrokers(1, zookeeper.connect_string, version=version) as brokers,
        ChannelManager(ChannelSettings(controller_id=1000), recorder) as manager,
    ):
        await told(manager, recorder, brokers[1].port, known_as, metadata_version)


async def told(
    manager: ChannelManager, recorder: Recorder, port: int, known_as: Release, version: int
) -> None:
    one = Broker(1, EPOCH_UNKNOWN, (Endpoint("PLAINTEXT", "127.0.0.1", port),))
    rows = {T0: row(1, (1,)), T1: row(1, (1,))}
    ids = {"t": TOPIC_ID}

    def metadata(deleted: dict[str, None]) -> UpdateMetadataRequest:
        return UpdateMetadataRequest(
            {1: EPOCH_UNKNOWN}, OURS, (one,), rows, deleted=deleted, topic_ids=ids
        )

    manager.send(Connect(one))
    assert await recorder.first(ev.BrokerVersions) == ev.BrokerVersions(known_as)
    manager.send(metadata({}))
    lisr = LeaderAndIsrRequest(1, EPOCH_UNKNOWN, OURS, rows, {T0: None, T1: None}, ids, (one,))
    manager.send(lisr)
    manager.send(lisr)
    await manager.acknowledged(manager.mark())
    first, second = recorder.of(ev.LeaderAndIsrResponseReceived)
    assert (first.error, first.partition_errors) == (0, {T0: 0, T1: 0})
    assert (second.error, second.partition_errors) == (0, {T0: 11, T1: 11})
    assert await leaders(port, version) == {0: (0, 1), 1: (0, 1)}

    manager.send(metadata({"t": None}))
    manager.send(
        StopReplicaRequest(
            1,
            EPOCH_UNKNOWN,
            OURS,
            {T0: StopReplicaPartition(-2, delete=True), T1: StopReplicaPartition(0, delete=False)},
        )
    )
    await manager.acknowledged(manager.mark())
    assert [e.error for e in recorder.of(ev.UpdateMetadataResponseReceived)] == [0, 0]
    assert recorder.of(ev.TopicDeletionStopReplicaResponseReceived) == [
        ev.TopicDeletionStopReplicaResponseReceived(1, EPOCH_UNKNOWN, 0, {T0: 0})
    ]
    assert await leaders(port, version) == {}
