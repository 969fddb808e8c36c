"""The quick encoders against the same requests put together message by message."""

import struct

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kctl.messages import requests as values
from kctl.model.brokers import Broker, Endpoint
from kctl.model.names import TopicId, TopicPartition, topic_id_from_bits
from kctl.model.rows import Assignment, Leadership, Row
from kctl.model.states import PartitionState, ReplicaState
from kctl.wire import apis, requests
from kctl.wire import control_plane as cp
from kctl.wire import states as wire_states
from kctl.wire.primitives import WireError, topic_id_bytes

CONTROLLER = 1000

ids = st.integers(0, 2**31 - 1)
replicas = st.lists(ids, min_size=1, max_size=5, unique=True).map(tuple)
assignments = st.builds(
    Assignment, replicas, st.just(()) | replicas, st.just(()) | replicas
) | st.sampled_from([Assignment((1, 2, 3)), Assignment((2, 3, 1))])
leaderships = st.builds(
    Leadership,
    leader=st.integers(-1, 2**31 - 1),
    isr=st.lists(ids, max_size=4).map(tuple) | st.just((1, 2, 3)),
    leader_epoch=ids,
    controller_epoch=ids,
    zk_version=ids,
    recovering=st.booleans(),
)
rows = st.builds(
    Row,
    assignments,
    st.none() | leaderships,
    st.just(PartitionState.ONLINE),
    st.just((ReplicaState.ONLINE,)),
)
names = st.sampled_from(["a", "b", "orders", "日本", "x" * 200])
partitions = st.builds(TopicPartition, names, st.integers(0, 6))
tables = st.dictionaries(partitions, rows, max_size=12)
endpoints = st.sampled_from(
    [
        (Endpoint("PLAINTEXT", "h", 9092),),
        (Endpoint("PLAINTEXT", "h", 9092), Endpoint("SSL", "s", 9093, "SSL")),
    ]
)
brokers = st.builds(Broker, ids, ids, endpoints, st.none() | st.just("r1"))
broker_lists = st.lists(brokers, max_size=3).map(tuple)
epochs = st.integers(-1, 2**62)
topic_ids = st.fixed_dictionaries(
    {}, optional={n: st.none() | st.just(topic_id_from_bits(99)) for n in ("a", "orders", "日本")}
)


def by_topic(tps: list[TopicPartition]) -> dict[str, list[TopicPartition]]:
    grouped: dict[str, list[TopicPartition]] = {}
    for tp in tps:
        grouped.setdefault(tp.topic, []).append(tp)
    return grouped


def raw_id(known: dict[str, TopicId | None], topic: str) -> bytes:
    return topic_id_bytes(known.get(topic))


# -- LeaderAndIsr ----------------------------------------------------------------------------


@st.composite
def leader_and_isr_requests(draw: st.DrawFn) -> values.LeaderAndIsrRequest:
    table = draw(tables)
    return values.LeaderAndIsrRequest(
        broker=1,
        broker_epoch=draw(epochs),
        controller_epoch=draw(ids),
        rows=table,
        new={tp: None for tp in table if draw(st.booleans())},
        topic_ids=draw(topic_ids),
        live_leaders=draw(broker_lists),
    )


def expected_leader_and_isr(
    request: values.LeaderAndIsrRequest, version: int
) -> cp.LeaderAndIsrRequest:
    def state(tp: TopicPartition) -> cp.LeaderAndIsrPartitionState:
        row = request.rows[tp]
        led = row.leadership
        assert led is not None
        return cp.LeaderAndIsrPartitionState(
            topic_name=tp.topic,
            partition_index=tp.partition,
            controller_epoch=led.controller_epoch,
            leader=led.leader,
            leader_epoch=led.leader_epoch,
            isr=led.isr,
            partition_epoch=led.zk_version,
            replicas=row.replicas,
            adding_replicas=row.assignment.adding,
            removing_replicas=row.assignment.removing,
            is_new=tp in request.new,
            leader_recovery_state=int(led.recovering),
        )

    told = [tp for tp, row in request.rows.items() if row.leadership is not None]
    grouped = by_topic(told)
    return cp.LeaderAndIsrRequest(
        controller_id=CONTROLLER,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        ungrouped_partition_states=tuple(map(state, told)),
        topic_states=tuple(
            cp.LeaderAndIsrTopicState(
                topic, raw_id(dict(request.topic_ids), topic), tuple(map(state, tps))
            )
            for topic, tps in grouped.items()
        ),
        live_leaders=tuple(
            cp.LeaderAndIsrLiveLeader(b.id, b.endpoints[0].host, b.endpoints[0].port)
            for b in request.live_leaders
        ),
    )


@pytest.mark.parametrize("version", range(8))
@settings(max_examples=40)
@given(leader_and_isr_requests())
def test_leader_and_isr(version: int, request: values.LeaderAndIsrRequest) -> None:
    body = requests.finish(requests.leader_and_isr(request, CONTROLLER, version))
    assert body == apis.encode(expected_leader_and_isr(request, version), version)


def test_leaders_are_named_by_the_listener_of_the_brokers() -> None:
    broker = Broker(1, 5, (Endpoint("CLIENT", "c", 1), Endpoint("INTERNAL", "i", 2)))
    request = values.LeaderAndIsrRequest(1, 5, 1, {}, {}, {}, (broker,))

    def leader(listener: str | None) -> cp.LeaderAndIsrLiveLeader:
        body = requests.finish(requests.leader_and_isr(request, CONTROLLER, 7, listener))
        return apis.decode(cp.LeaderAndIsrRequest, 7, body).live_leaders[0]

    assert leader("INTERNAL") == cp.LeaderAndIsrLiveLeader(1, "i", 2)
    assert leader("OTHER") == leader(None) == cp.LeaderAndIsrLiveLeader(1, "c", 1)


# -- UpdateMetadata --------------------------------------------------------------------------


@st.composite
def update_metadata_requests(draw: st.DrawFn) -> values.UpdateMetadataRequest:
    table = draw(tables)
    return values.UpdateMetadataRequest(
        recipients={1: draw(epochs), 2: draw(epochs)},
        controller_epoch=draw(ids),
        live_brokers=draw(broker_lists),
        rows=table,
        offline={tp: draw(replicas) for tp in table if draw(st.booleans())},
        deleted={topic: None for topic in ("a", "orders") if draw(st.booleans())},
        topic_ids=draw(topic_ids),
    )


def expected_update_metadata(
    request: values.UpdateMetadataRequest, version: int, broker_epoch: int
) -> cp.UpdateMetadataRequest:
    def state(tp: TopicPartition) -> cp.UpdateMetadataPartitionState:
        row = request.rows[tp]
        led = row.leadership
        assert led is not None
        doomed = tp.topic in request.deleted
        return cp.UpdateMetadataPartitionState(
            topic_name=tp.topic,
            partition_index=tp.partition,
            controller_epoch=led.controller_epoch,
            leader=-2 if doomed else led.leader,
            leader_epoch=0 if doomed else led.leader_epoch,
            isr=led.isr,
            zk_version=0 if doomed else led.zk_version,
            replicas=row.replicas,
            offline_replicas=request.offline.get(tp, ()),
        )

    def live(broker: Broker) -> cp.UpdateMetadataBroker:
        protocols = {"PLAINTEXT": 0, "SSL": 1}
        return cp.UpdateMetadataBroker(
            id=broker.id,
            v0_host=broker.endpoints[0].host,
            v0_port=broker.endpoints[0].port,
            endpoints=tuple(
                cp.UpdateMetadataEndpoint(
                    e.port, e.host, e.listener, protocols[e.security_protocol]
                )
                for e in broker.endpoints
            ),
            rack=broker.rack,
        )

    told = [tp for tp, row in request.rows.items() if row.leadership is not None]
    return cp.UpdateMetadataRequest(
        controller_id=CONTROLLER,
        controller_epoch=request.controller_epoch,
        broker_epoch=broker_epoch,
        ungrouped_partition_states=tuple(map(state, told)),
        topic_states=tuple(
            cp.UpdateMetadataTopicState(
                topic, raw_id(dict(request.topic_ids), topic), tuple(map(state, tps))
            )
            for topic, tps in by_topic(told).items()
        ),
        live_brokers=tuple(map(live, request.live_brokers)),
    )


@pytest.mark.parametrize("version", range(9))
@settings(max_examples=40)
@given(update_metadata_requests())
def test_update_metadata(version: int, request: values.UpdateMetadataRequest) -> None:
    shared = requests.finish(requests.update_metadata_body(request, version))
    for broker_epoch in request.recipients.values():
        head = requests.update_metadata_head(request, CONTROLLER, version, broker_epoch)
        expected = expected_update_metadata(request, version, broker_epoch)
        assert head + shared == apis.encode(expected, version)


@pytest.mark.parametrize(
    "version, endpoints",
    [
        (0, (Endpoint("SSL", "h", 1, "SSL"),)),
        (0, (Endpoint("A", "h", 1), Endpoint("B", "h", 2))),
        (1, (Endpoint("INTERNAL", "h", 1),)),
        (2, (Endpoint("INTERNAL", "h", 1),)),
        (8, (Endpoint("INTERNAL", "h", 1, "CARRIER_PIGEON"),)),
    ],
)
def test_endpoints_that_a_version_cannot_carry(
    version: int, endpoints: tuple[Endpoint, ...]
) -> None:
    request = values.UpdateMetadataRequest({1: 1}, 1, (Broker(1, 5, endpoints),))
    with pytest.raises(WireError, match="broker 1"):
        requests.finish(requests.update_metadata_body(request, version))


# -- StopReplica -----------------------------------------------------------------------------

stops = st.builds(values.StopReplicaPartition, st.integers(-2, 2**31 - 1), st.booleans())
stop_requests = st.builds(
    values.StopReplicaRequest,
    broker=st.just(1),
    broker_epoch=epochs,
    controller_epoch=ids,
    partitions=st.dictionaries(partitions, stops, min_size=1, max_size=10),
)


def expected_stop_replica(
    request: values.StopReplicaRequest, version: int, delete: bool | None
) -> cp.StopReplicaRequest:
    tps = [tp for tp, stop in request.partitions.items() if delete in (None, stop.delete)]
    grouped = by_topic(tps)
    return cp.StopReplicaRequest(
        controller_id=CONTROLLER,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        delete_partitions=bool(delete),
        ungrouped_partitions=tuple(
            cp.StopReplicaPartitionV0(*tp) for tps in grouped.values() for tp in tps
        ),
        topics=tuple(
            cp.StopReplicaTopicV1(topic, tuple(tp.partition for tp in tps))
            for topic, tps in grouped.items()
        ),
        topic_states=tuple(
            cp.StopReplicaTopicState(
                topic,
                tuple(
                    cp.StopReplicaPartitionState(
                        tp.partition,
                        request.partitions[tp].leader_epoch,
                        request.partitions[tp].delete,
                    )
                    for tp in tps
                ),
            )
            for topic, tps in grouped.items()
        ),
    )


@pytest.mark.parametrize("version", range(5))
@settings(max_examples=40)
@given(stop_requests)
def test_stop_replica(version: int, request: values.StopReplicaRequest) -> None:
    """Up to version 2 deletions go first, in a request of their own, and only they matter."""
    bodies = requests.stop_replica(request, CONTROLLER, version)
    deletes = tuple(tp for tp, stop in request.partitions.items() if stop.delete)
    if version >= 3:
        assert [b.body for b in bodies] == [
            apis.encode(expected_stop_replica(request, version, None), version)
        ]
    else:
        kinds = [
            d for d in (True, False) if any(s.delete is d for s in request.partitions.values())
        ]
        assert [b.body for b in bodies] == [
            apis.encode(expected_stop_replica(request, version, d), version) for d in kinds
        ]
    assert tuple(tp for b in bodies for tp in b.deletes) == deletes


# -- long requests ---------------------------------------------------------------------------


def large_table(topics: int, interleaved: bool) -> dict[TopicPartition, Row]:
    row = Row(
        Assignment((1, 2, 3)),
        Leadership(1, (1, 2, 3), 0, 1, 0),
        PartitionState.ONLINE,
        (ReplicaState.ONLINE,) * 3,
    )
    if interleaved:
        return {TopicPartition(f"t{t}", p): row for p in range(3) for t in range(topics)}
    return {TopicPartition(f"t{t}", p): row for t in range(topics) for p in range(3)}


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_long_request_is_encoded_in_steps(
    interleaved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire_states, "ROWS_A_STEP", 100)
    table = large_table(200, interleaved)
    request = values.UpdateMetadataRequest({1: 5}, 1, (), table)
    steps = requests.update_metadata_body(request, 8)
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            body = done.value
            break
        pauses += 1
    assert pauses >= 6
    head = requests.update_metadata_head(request, CONTROLLER, 8, 5)
    assert head + body == apis.encode(expected_update_metadata(request, 8, 5), 8)


def test_many_replicas_need_longer_lengths() -> None:
    many = tuple(range(200))
    row = Row(
        Assignment(many), Leadership(0, many, 0, 1, 0), PartitionState.ONLINE, (ReplicaState.NEW,)
    )
    request = values.LeaderAndIsrRequest(1, 5, 1, {TopicPartition("t", 0): row}, {}, {}, ())
    body = requests.finish(requests.leader_and_isr(request, CONTROLLER, 7))
    assert body == apis.encode(expected_leader_and_isr(request, 7), 7)


def test_an_epoch_that_does_not_fit_is_refused() -> None:
    row = Row(Assignment((1,)), Leadership(1, (1,), 2**31, 1, 0), PartitionState.ONLINE, ())
    request = values.LeaderAndIsrRequest(1, 5, 1, {TopicPartition("t", 0): row}, {}, {}, ())
    with pytest.raises(WireError, match="LeaderAndIsrRequest v7"):
        requests.finish(requests.leader_and_isr(request, CONTROLLER, 7))
    stop = values.StopReplicaRequest(
        1, 2**63, 1, {TopicPartition("t", 0): values.StopReplicaPartition(0, delete=True)}
    )
    with pytest.raises(WireError, match="StopReplicaRequest v4"):
        requests.stop_replica(stop, CONTROLLER, 4)
    metadata = values.UpdateMetadataRequest({1: 5}, 2**31, ())
    with pytest.raises(WireError, match="UpdateMetadataRequest v8"):
        requests.update_metadata_head(metadata, CONTROLLER, 8, 5)
    with pytest.raises(WireError, match="UpdateMetadataRequest v8"):
        requests.finish(
            requests.update_metadata_body(attrs.evolve(metadata, rows=dict(request.rows)), 8)
        )


def test_the_head_is_where_the_broker_epoch_is() -> None:
    request = values.UpdateMetadataRequest({1: 5}, 3, ())
    head = requests.update_metadata_head(request, CONTROLLER, 8, 5)
    assert head == struct.pack(">i?iq", CONTROLLER, False, 3, 5)
