"""What brokers ask of the controller: to leave, to change ISRs, to hand out producer ids."""

from collections.abc import Mapping

from kctl.messages.answers import (
    AlteredPartitions,
    ControlledShutdownDone,
    ProducerIdBlock,
    Refused,
)
from kctl.messages.events import (
    AllocateProducerIds,
    AlterPartitionReceived,
    ControlledShutdown,
    IsrProposal,
)
from kctl.model.codes import KafkaError
from kctl.model.names import TopicId, TopicPartition
from kctl.model.rows import Leadership
from kctl.server.access import ControllerAccess
from kctl.wire.control_plane import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlteredPartitionData,
    AlteredPartitionTopic,
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from kctl.wire.primitives import topic_id_from_bytes

TOPIC_IDS_SINCE = 2
"""Version of AlterPartition from which topics go by id."""
BROKER_EPOCHS_SINCE = 3
"""Brokers in ZooKeeper mode send -1 for all of them: they say nothing and are not looked at."""
RECOVERED, RECOVERING = 0, 1


async def controlled_shutdown(
    access: ControllerAccess, request: ControlledShutdownRequest, _version: int
) -> ControlledShutdownResponse:
    answer = await access.answer_to(
        lambda caller: ControlledShutdown(caller, request.broker_id, request.broker_epoch)
    )
    match answer:
        case ControlledShutdownDone(remaining=remaining):
            return ControlledShutdownResponse(
                remaining_partitions=tuple(RemainingPartition(*tp) for tp in remaining)
            )
        case Refused(error=error):
            return ControlledShutdownResponse(error_code=error.code)
    raise TypeError(f"ControlledShutdown was answered with {answer!r}")


async def allocate_producer_ids(
    access: ControllerAccess, request: AllocateProducerIdsRequest, _version: int
) -> AllocateProducerIdsResponse:
    answer = await access.answer_to(
        lambda caller: AllocateProducerIds(caller, request.broker_id, request.broker_epoch)
    )
    match answer:
        case ProducerIdBlock(start=start, length=length):
            return AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=length)
        case Refused(error=error):
            return AllocateProducerIdsResponse(error_code=error.code)
    raise TypeError(f"AllocateProducerIds was answered with {answer!r}")


# -- AlterPartition --------------------------------------------------------------------------


async def alter_partition(
    access: ControllerAccess, request: AlterPartitionRequest, version: int
) -> AlterPartitionResponse:
    states = {p.leader_recovery_state for topic in request.topics for p in topic.partitions}
    if not states <= {RECOVERED, RECOVERING}:
        # Kafka, too, fails the request as a whole.
        return AlterPartitionResponse(error_code=KafkaError.UNKNOWN_SERVER_ERROR)
    named: dict[TopicPartition, IsrProposal] = {}
    by_id: dict[tuple[TopicId, int], IsrProposal] = {}
    for topic in request.topics:
        topic_id = topic_id_from_bytes(topic.topic_id)
        for partition in topic.partitions:
            proposal = _proposal(partition, version)
            if version < TOPIC_IDS_SINCE:
                named[TopicPartition(topic.topic_name, partition.partition_index)] = proposal
            elif topic_id is not None:
                by_id[topic_id, partition.partition_index] = proposal
    names = _names(access, by_id)
    answer = await access.answer_to(
        lambda caller: AlterPartitionReceived(
            caller, request.broker_id, request.broker_epoch, version, named, by_id
        )
    )
    match answer:
        case AlteredPartitions():
            # A topic may have been made, or deleted, while the request was waiting.
            names = {**_names(access, by_id), **names}
            return AlterPartitionResponse(
                topics=tuple(_altered(topic, answer, names, version) for topic in request.topics)
            )
        case Refused(error=error):
            return AlterPartitionResponse(error_code=error.code)
    raise TypeError(f"AlterPartition was answered with {answer!r}")


def _proposal(partition: AlterPartitionData, version: int) -> IsrProposal:
    isr = (
        tuple(broker.broker_id for broker in partition.new_isr_with_epochs)
        if version >= BROKER_EPOCHS_SINCE
        else partition.new_isr
    )
    return IsrProposal(
        isr,
        partition.leader_epoch,
        partition.partition_epoch,
        recovering=partition.leader_recovery_state == RECOVERING,
    )


def _names(
    access: ControllerAccess, by_id: Mapping[tuple[TopicId, int], IsrProposal]
) -> dict[TopicId, str]:
    state = access.view()
    if state is None:
        return {}
    ids = {topic_id: None for topic_id, _ in by_id}
    return {i: state.topic_names[i] for i in ids if i in state.topic_names}


def _altered(
    topic: AlterPartitionTopic,
    answer: AlteredPartitions,
    names: Mapping[TopicId, str],
    version: int,
) -> AlteredPartitionTopic:
    name: str | None = topic.topic_name
    if version >= TOPIC_IDS_SINCE:
        name = names.get(topic_id_from_bytes(topic.topic_id) or "")
    unknown = (
        KafkaError.UNKNOWN_TOPIC_ID
        if version >= TOPIC_IDS_SINCE
        else KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    )
    partitions = []
    for asked in topic.partitions:
        index = asked.partition_index
        outcome: Leadership | KafkaError = unknown
        if name is not None:
            outcome = answer.partitions.get(TopicPartition(name, index), unknown)
        partitions.append(_altered_partition(index, outcome))
    return AlteredPartitionTopic(topic.topic_name, topic.topic_id, tuple(partitions))


def _altered_partition(index: int, outcome: Leadership | KafkaError) -> AlteredPartitionData:
    if isinstance(outcome, KafkaError):
        return AlteredPartitionData(index, outcome)
    return AlteredPartitionData(
        partition_index=index,
        leader_id=outcome.leader,
        leader_epoch=outcome.leader_epoch,
        isr=outcome.isr,
        leader_recovery_state=RECOVERING if outcome.recovering else RECOVERED,
        partition_epoch=outcome.zk_version,
    )
