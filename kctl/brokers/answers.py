"""From a broker's answer to the event that the controller handles."""

from kctl.messages.events import (
    Event,
    LeaderAndIsrResponseReceived,
    TopicDeletionStopReplicaResponseReceived,
    UpdateMetadataResponseReceived,
)
from kctl.messages.requests import LeaderAndIsrRequest
from kctl.model.brokers import Broker
from kctl.model.codes import KafkaError
from kctl.model.names import TopicPartition
from kctl.wire import apis
from kctl.wire.control_plane import (
    LeaderAndIsrResponse,
    StopReplicaResponse,
    UpdateMetadataResponse,
)
from kctl.wire.primitives import topic_id_bytes


def leader_and_isr_answer(
    broker: Broker, request: LeaderAndIsrRequest, version: int, data: bytes, pos: int
) -> Event:
    answer = apis.decode(LeaderAndIsrResponse, version, data, pos)
    errors = {
        TopicPartition(e.topic_name, e.partition_index): e.error_code
        for e in answer.partition_errors
    }
    if answer.topics:
        names = {topic_id_bytes(id_): topic for topic, id_ in request.topic_ids.items()}
        for of_topic in answer.topics:
            topic = names.get(of_topic.topic_id)
            if topic is not None:
                for e in of_topic.partition_errors:
                    errors[TopicPartition(topic, e.partition_index)] = e.error_code
    return LeaderAndIsrResponseReceived(broker.id, broker.epoch, answer.error_code, errors)


def update_metadata_answer(broker: Broker, version: int, data: bytes, pos: int) -> Event:
    answer = apis.decode(UpdateMetadataResponse, version, data, pos)
    return UpdateMetadataResponseReceived(broker.id, broker.epoch, answer.error_code)


def stop_replica_answer(
    broker: Broker, deletes: tuple[TopicPartition, ...], version: int, data: bytes, pos: int
) -> Event | None:
    """Only for those that were to be deleted. A refusal of all names none, so it names them here;
    one that the broker leaves out of its answer is not known to be gone."""
    answer = apis.decode(StopReplicaResponse, version, data, pos)
    if not deletes:
        return None
    told = {
        TopicPartition(e.topic_name, e.partition_index): e.error_code
        for e in answer.partition_errors
    }
    missing = answer.error_code or KafkaError.UNKNOWN_SERVER_ERROR
    return TopicDeletionStopReplicaResponseReceived(
        broker.id,
        broker.epoch,
        answer.error_code,
        {tp: told.get(tp, missing) for tp in deletes},
    )
