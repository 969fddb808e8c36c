"""Messages between the controller and brokers: what it tells them, and what they ask of it."""

from typing import Annotated

from kctl.wire.primitives import NULL_UUID
from kctl.wire.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    String,
    Struct,
    Uuid,
    since,
    tagged,
    until,
    versions,
)

# -- LeaderAndIsr ----------------------------------------------------------------------------


class LeaderAndIsrPartitionState(Struct):
    topic_name: Annotated[String, until(1)] = ""
    partition_index: Int32 = 0
    controller_epoch: Int32 = 0
    leader: Int32 = 0
    leader_epoch: Int32 = 0
    isr: tuple[Int32, ...] = ()
    partition_epoch: Int32 = 0
    """The version of the partition's state znode."""
    replicas: tuple[Int32, ...] = ()
    adding_replicas: Annotated[tuple[Int32, ...], since(3)] = ()
    removing_replicas: Annotated[tuple[Int32, ...], since(3)] = ()
    is_new: Annotated[Bool, since(1)] = False
    leader_recovery_state: Annotated[Int8, since(6)] = 0


class LeaderAndIsrTopicState(Struct):
    topic_name: String = ""
    topic_id: Annotated[Uuid, since(5)] = NULL_UUID
    partition_states: tuple[LeaderAndIsrPartitionState, ...] = ()


class LeaderAndIsrLiveLeader(Struct):
    broker_id: Int32 = 0
    host_name: String = ""
    port: Int32 = 0


class LeaderAndIsrRequest(Struct):
    controller_id: Int32 = 0
    is_kraft_controller: Annotated[Bool, since(7)] = False
    controller_epoch: Int32 = 0
    broker_epoch: Annotated[Int64, since(2)] = -1
    type: Annotated[Int8, since(5)] = 0
    ungrouped_partition_states: Annotated[tuple[LeaderAndIsrPartitionState, ...], until(1)] = ()
    topic_states: Annotated[tuple[LeaderAndIsrTopicState, ...], since(2)] = ()
    live_leaders: tuple[LeaderAndIsrLiveLeader, ...] = ()


class LeaderAndIsrPartitionError(Struct):
    topic_name: Annotated[String, until(4)] = ""
    partition_index: Int32 = 0
    error_code: Int16 = 0


class LeaderAndIsrTopicError(Struct):
    topic_id: Uuid = NULL_UUID
    partition_errors: tuple[LeaderAndIsrPartitionError, ...] = ()


class LeaderAndIsrResponse(Struct):
    error_code: Int16 = 0
    partition_errors: Annotated[tuple[LeaderAndIsrPartitionError, ...], until(4)] = ()
    topics: Annotated[tuple[LeaderAndIsrTopicError, ...], since(5)] = ()


# -- StopReplica -----------------------------------------------------------------------------


class StopReplicaPartitionV0(Struct):
    topic_name: String = ""
    partition_index: Int32 = 0


class StopReplicaTopicV1(Struct):
    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


class StopReplicaPartitionState(Struct):
    partition_index: Int32 = 0
    leader_epoch: Int32 = -1
    delete_partition: Bool = False


class StopReplicaTopicState(Struct):
    topic_name: String = ""
    partition_states: tuple[StopReplicaPartitionState, ...] = ()


class StopReplicaRequest(Struct):
    controller_id: Int32 = 0
    is_kraft_controller: Annotated[Bool, since(4)] = False
    controller_epoch: Int32 = 0
    broker_epoch: Annotated[Int64, since(1)] = -1
    delete_partitions: Annotated[Bool, until(2)] = False
    ungrouped_partitions: Annotated[tuple[StopReplicaPartitionV0, ...], until(0)] = ()
    topics: Annotated[tuple[StopReplicaTopicV1, ...], versions(1, 2)] = ()
    topic_states: Annotated[tuple[StopReplicaTopicState, ...], since(3)] = ()


class StopReplicaPartitionError(Struct):
    topic_name: String = ""
    partition_index: Int32 = 0
    error_code: Int16 = 0


class StopReplicaResponse(Struct):
    error_code: Int16 = 0
    partition_errors: tuple[StopReplicaPartitionError, ...] = ()


# -- UpdateMetadata --------------------------------------------------------------------------


class UpdateMetadataPartitionState(Struct):
    topic_name: Annotated[String, until(4)] = ""
    partition_index: Int32 = 0
    controller_epoch: Int32 = 0
    leader: Int32 = 0
    leader_epoch: Int32 = 0
    isr: tuple[Int32, ...] = ()
    zk_version: Int32 = 0
    replicas: tuple[Int32, ...] = ()
    offline_replicas: Annotated[tuple[Int32, ...], since(4)] = ()


class UpdateMetadataTopicState(Struct):
    topic_name: String = ""
    topic_id: Annotated[Uuid, since(7)] = NULL_UUID
    partition_states: tuple[UpdateMetadataPartitionState, ...] = ()


class UpdateMetadataEndpoint(Struct):
    port: Int32 = 0
    host: String = ""
    listener: Annotated[String, since(3)] = ""
    security_protocol: Int16 = 0


class UpdateMetadataBroker(Struct):
    id: Int32 = 0
    v0_host: Annotated[String, until(0)] = ""
    v0_port: Annotated[Int32, until(0)] = 0
    endpoints: Annotated[tuple[UpdateMetadataEndpoint, ...], since(1)] = ()
    rack: Annotated[String | None, since(2)] = None


class UpdateMetadataRequest(Struct):
    controller_id: Int32 = 0
    is_kraft_controller: Annotated[Bool, since(8)] = False
    type: Annotated[Int8, since(8), tagged(0)] = 0
    controller_epoch: Int32 = 0
    broker_epoch: Annotated[Int64, since(5)] = -1
    ungrouped_partition_states: Annotated[tuple[UpdateMetadataPartitionState, ...], until(4)] = ()
    topic_states: Annotated[tuple[UpdateMetadataTopicState, ...], since(5)] = ()
    live_brokers: tuple[UpdateMetadataBroker, ...] = ()


class UpdateMetadataResponse(Struct):
    error_code: Int16 = 0


# -- what brokers ask of the controller ------------------------------------------------------


class ControlledShutdownRequest(Struct):
    broker_id: Int32 = 0
    broker_epoch: Annotated[Int64, since(2)] = -1


class RemainingPartition(Struct):
    topic_name: String = ""
    partition_index: Int32 = 0


class ControlledShutdownResponse(Struct):
    error_code: Int16 = 0
    remaining_partitions: tuple[RemainingPartition, ...] = ()


class BrokerState(Struct):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


class AlterPartitionData(Struct):
    partition_index: Int32 = 0
    leader_epoch: Int32 = 0
    new_isr: Annotated[tuple[Int32, ...], until(2)] = ()
    new_isr_with_epochs: Annotated[tuple[BrokerState, ...], since(3)] = ()
    leader_recovery_state: Annotated[Int8, since(1)] = 0
    partition_epoch: Int32 = 0


class AlterPartitionTopic(Struct):
    topic_name: Annotated[String, until(1)] = ""
    topic_id: Annotated[Uuid, since(2)] = NULL_UUID
    partitions: tuple[AlterPartitionData, ...] = ()


class AlterPartitionRequest(Struct):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    topics: tuple[AlterPartitionTopic, ...] = ()


class AlteredPartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: tuple[Int32, ...] = ()
    leader_recovery_state: Annotated[Int8, since(1)] = 0
    partition_epoch: Int32 = 0


class AlteredPartitionTopic(Struct):
    topic_name: Annotated[String, until(1)] = ""
    topic_id: Annotated[Uuid, since(2)] = NULL_UUID
    partitions: tuple[AlteredPartitionData, ...] = ()


class AlterPartitionResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: tuple[AlteredPartitionTopic, ...] = ()


class AllocateProducerIdsRequest(Struct):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


class AllocateProducerIdsResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64 = 0
    producer_id_len: Int32 = 0
