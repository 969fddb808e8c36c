"""What a simulated broker answers with, once it has made up its mind."""

from collections.abc import Mapping

from kctl.brokers.simulated_belief import Belief
from kctl.model.codes import KafkaError
from kctl.model.names import TopicPartition
from kctl.wire import client
from kctl.wire import control_plane as cp
from kctl.wire.primitives import NULL_UUID

INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")


def leader_and_isr_response(
    request: cp.LeaderAndIsrRequest,
    version: int,
    error: int,
    partitions: Mapping[TopicPartition, int],
) -> cp.LeaderAndIsrResponse:
    """Flat by name up to version 4, grouped by topic id from then on."""
    if version < 5:
        return cp.LeaderAndIsrResponse(
            error,
            tuple(cp.LeaderAndIsrPartitionError(*tp, code) for tp, code in partitions.items()),
        )
    by_topic: dict[str, list[cp.LeaderAndIsrPartitionError]] = {}
    for tp, code in partitions.items():
        entry = cp.LeaderAndIsrPartitionError(partition_index=tp.partition, error_code=code)
        by_topic.setdefault(tp.topic, []).append(entry)
    return cp.LeaderAndIsrResponse(
        error,
        topics=tuple(
            cp.LeaderAndIsrTopicError(t.topic_id, tuple(by_topic.get(t.topic_name, ())))
            for t in request.topic_states
            if t.topic_name in by_topic
        ),
    )


def metadata_response(
    belief: Belief, request: client.MetadataRequest, listener: str, version: int
) -> client.MetadataResponse:
    """From the broker's own cache, for a client that came in by this listener."""
    by_topic: dict[str, list[client.MetadataResponsePartition]] = {}
    nodes = {
        broker.id: client.MetadataResponseBroker(broker.id, e.host, e.port, broker.rack)
        for broker in belief.live.values()
        for e in broker.endpoints
        if e.listener == listener
    }
    for tp, state in belief.metadata.items():
        known = state.leader in nodes
        by_topic.setdefault(tp.topic, []).append(
            client.MetadataResponsePartition(
                error_code=KafkaError.NONE if known else KafkaError.LEADER_NOT_AVAILABLE,
                partition_index=tp.partition,
                leader_id=state.leader if known else -1,
                leader_epoch=state.leader_epoch,
                replica_nodes=state.replicas,
                isr_nodes=state.isr,
                offline_replicas=state.offline_replicas,
            )
        )
    wanted = request.topics
    asked: list[tuple[str | None, KafkaError, bytes]]
    if wanted is None or (version == 0 and not wanted):
        asked = [(topic, KafkaError.NONE, NULL_UUID) for topic in by_topic]
    else:
        asked = [_asked(belief, by_topic, topic) for topic in wanted]
    return client.MetadataResponse(
        brokers=tuple(nodes.values()),
        controller_id=belief.controller_id if belief.controller_id in nodes else -1,
        topics=tuple(
            client.MetadataResponseTopic(
                error_code=error,
                name=name,
                topic_id=belief.topic_ids.get(name or "", topic_id),
                is_internal=name in INTERNAL_TOPICS,
                partitions=tuple(by_topic.get(name or "", ())),
            )
            for name, error, topic_id in asked
        ),
    )


def _asked(
    belief: Belief, known: Mapping[str, object], topic: client.MetadataRequestTopic
) -> tuple[str | None, KafkaError, bytes]:
    """Name, error and id of a topic that was asked for by name or by id."""
    if topic.name is not None:
        error = KafkaError.NONE if topic.name in known else KafkaError.UNKNOWN_TOPIC_OR_PARTITION
        return topic.name, error, topic.topic_id
    name = next((n for n, id_ in belief.topic_ids.items() if id_ == topic.topic_id), None)
    return name, KafkaError.NONE if name else KafkaError.UNKNOWN_TOPIC_ID, topic.topic_id
