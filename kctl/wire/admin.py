"""Messages of admin clients: topics, partitions, reassignments, elections, configs, features."""

from typing import Annotated

from kctl.wire.primitives import NULL_UUID
from kctl.wire.schema import (
    Bool,
    Bytes,
    Int8,
    Int16,
    Int32,
    Int64,
    String,
    Struct,
    Uuid,
    nullable_since,
    since,
    tagged,
    until,
)

# -- CreateTopics ----------------------------------------------------------------------------


class CreatableReplicaAssignment(Struct):
    partition_index: Int32 = 0
    broker_ids: tuple[Int32, ...] = ()


class CreatableTopicConfig(Struct):
    name: String = ""
    value: String | None = None


class CreatableTopic(Struct):
    name: String = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: tuple[CreatableReplicaAssignment, ...] = ()
    configs: tuple[CreatableTopicConfig, ...] = ()


class CreateTopicsRequest(Struct):
    topics: tuple[CreatableTopic, ...] = ()
    timeout_ms: Int32 = 60_000
    validate_only: Annotated[Bool, since(1)] = False


class CreatableTopicConfigs(Struct):
    name: String = ""
    value: String | None = None
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False


class CreatableTopicResult(Struct):
    name: String = ""
    topic_id: Annotated[Uuid, since(7)] = NULL_UUID
    error_code: Int16 = 0
    error_message: Annotated[String | None, since(1)] = None
    topic_config_error_code: Annotated[Int16, since(5), tagged(0)] = 0
    num_partitions: Annotated[Int32, since(5)] = -1
    replication_factor: Annotated[Int16, since(5)] = -1
    configs: Annotated[tuple[CreatableTopicConfigs, ...] | None, since(5)] = ()


class CreateTopicsResponse(Struct):
    throttle_time_ms: Annotated[Int32, since(2)] = 0
    topics: tuple[CreatableTopicResult, ...] = ()


# -- DeleteTopics, CreatePartitions ----------------------------------------------------------


class DeleteTopicState(Struct):
    name: String | None = None
    topic_id: Uuid = NULL_UUID


class DeleteTopicsRequest(Struct):
    topics: Annotated[tuple[DeleteTopicState, ...], since(6)] = ()
    topic_names: Annotated[tuple[String, ...], until(5)] = ()
    timeout_ms: Int32 = 0


class DeletableTopicResult(Struct):
    name: Annotated[String | None, nullable_since(6)] = ""
    topic_id: Annotated[Uuid, since(6)] = NULL_UUID
    error_code: Int16 = 0
    error_message: Annotated[String | None, since(5)] = None


class DeleteTopicsResponse(Struct):
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    responses: tuple[DeletableTopicResult, ...] = ()


class CreatePartitionsAssignment(Struct):
    broker_ids: tuple[Int32, ...] = ()


class CreatePartitionsTopic(Struct):
    name: String = ""
    count: Int32 = 0
    assignments: tuple[CreatePartitionsAssignment, ...] | None = ()


class CreatePartitionsRequest(Struct):
    topics: tuple[CreatePartitionsTopic, ...] = ()
    timeout_ms: Int32 = 0
    validate_only: Bool = False


class CreatePartitionsTopicResult(Struct):
    name: String = ""
    error_code: Int16 = 0
    error_message: String | None = None


class CreatePartitionsResponse(Struct):
    throttle_time_ms: Int32 = 0
    results: tuple[CreatePartitionsTopicResult, ...] = ()


# -- reassignments and elections -------------------------------------------------------------


class ReassignablePartition(Struct):
    partition_index: Int32 = 0
    replicas: tuple[Int32, ...] | None = None
    """None cancels."""


class ReassignableTopic(Struct):
    name: String = ""
    partitions: tuple[ReassignablePartition, ...] = ()


class AlterPartitionReassignmentsRequest(Struct):
    timeout_ms: Int32 = 60_000
    topics: tuple[ReassignableTopic, ...] = ()


class ReassignablePartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class ReassignableTopicResponse(Struct):
    name: String = ""
    partitions: tuple[ReassignablePartitionResponse, ...] = ()


class AlterPartitionReassignmentsResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    responses: tuple[ReassignableTopicResponse, ...] = ()


class ListPartitionReassignmentsTopics(Struct):
    name: String = ""
    partition_indexes: tuple[Int32, ...] = ()


class ListPartitionReassignmentsRequest(Struct):
    timeout_ms: Int32 = 60_000
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = None


class OngoingPartitionReassignment(Struct):
    partition_index: Int32 = 0
    replicas: tuple[Int32, ...] = ()
    adding_replicas: tuple[Int32, ...] = ()
    removing_replicas: tuple[Int32, ...] = ()


class OngoingTopicReassignment(Struct):
    name: String = ""
    partitions: tuple[OngoingPartitionReassignment, ...] = ()


class ListPartitionReassignmentsResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    topics: tuple[OngoingTopicReassignment, ...] = ()


class TopicPartitions(Struct):
    topic: String = ""
    partitions: tuple[Int32, ...] = ()


class ElectLeadersRequest(Struct):
    election_type: Annotated[Int8, since(1)] = 0
    topic_partitions: tuple[TopicPartitions, ...] | None = ()
    """None: all partitions."""
    timeout_ms: Int32 = 60_000


class PartitionResult(Struct):
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class ReplicaElectionResult(Struct):
    topic: String = ""
    partition_result: tuple[PartitionResult, ...] = ()


class ElectLeadersResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(1)] = 0
    replica_election_results: tuple[ReplicaElectionResult, ...] = ()


# -- configs ---------------------------------------------------------------------------------


class IncrementalAlterableConfig(Struct):
    name: String = ""
    config_operation: Int8 = 0
    value: String | None = None


class IncrementalAlterConfigsResource(Struct):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[IncrementalAlterableConfig, ...] = ()


class IncrementalAlterConfigsRequest(Struct):
    resources: tuple[IncrementalAlterConfigsResource, ...] = ()
    validate_only: Bool = False


class AlterConfigsResourceResponse(Struct):
    error_code: Int16 = 0
    error_message: String | None = None
    resource_type: Int8 = 0
    resource_name: String = ""


class IncrementalAlterConfigsResponse(Struct):
    throttle_time_ms: Int32 = 0
    responses: tuple[AlterConfigsResourceResponse, ...] = ()


class AlterableConfig(Struct):
    name: String = ""
    value: String | None = None


class AlterConfigsResource(Struct):
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[AlterableConfig, ...] = ()


class AlterConfigsRequest(Struct):
    resources: tuple[AlterConfigsResource, ...] = ()
    validate_only: Bool = False


class AlterConfigsResponse(Struct):
    throttle_time_ms: Int32 = 0
    responses: tuple[AlterConfigsResourceResponse, ...] = ()


class DescribeConfigsResource(Struct):
    resource_type: Int8 = 0
    resource_name: String = ""
    configuration_keys: tuple[String, ...] | None = ()


class DescribeConfigsRequest(Struct):
    resources: tuple[DescribeConfigsResource, ...] = ()
    include_synonyms: Annotated[Bool, since(1)] = False
    include_documentation: Annotated[Bool, since(3)] = False


class DescribeConfigsSynonym(Struct):
    name: String = ""
    value: String | None = None
    source: Int8 = 0


class DescribeConfigsResourceResult(Struct):
    name: String = ""
    value: String | None = None
    read_only: Bool = False
    is_default: Annotated[Bool, until(0)] = False
    config_source: Annotated[Int8, since(1)] = -1
    is_sensitive: Bool = False
    synonyms: Annotated[tuple[DescribeConfigsSynonym, ...], since(1)] = ()
    config_type: Annotated[Int8, since(3)] = 0
    documentation: Annotated[String | None, since(3)] = None


class DescribeConfigsResult(Struct):
    error_code: Int16 = 0
    error_message: String | None = None
    resource_type: Int8 = 0
    resource_name: String = ""
    configs: tuple[DescribeConfigsResourceResult, ...] = ()


class DescribeConfigsResponse(Struct):
    throttle_time_ms: Int32 = 0
    results: tuple[DescribeConfigsResult, ...] = ()


# -- features, SCRAM credentials, log dirs ---------------------------------------------------


class FeatureUpdateKey(Struct):
    feature: String = ""
    max_version_level: Int16 = 0
    allow_downgrade: Annotated[Bool, until(0)] = False
    upgrade_type: Annotated[Int8, since(1)] = 1


class UpdateFeaturesRequest(Struct):
    timeout_ms: Int32 = 60_000
    feature_updates: tuple[FeatureUpdateKey, ...] = ()
    validate_only: Annotated[Bool, since(1)] = False


class UpdatableFeatureResult(Struct):
    feature: String = ""
    error_code: Int16 = 0
    error_message: String | None = None


class UpdateFeaturesResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    results: tuple[UpdatableFeatureResult, ...] = ()


class ScramCredentialDeletion(Struct):
    name: String = ""
    mechanism: Int8 = 0


class ScramCredentialUpsertion(Struct):
    name: String = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: Bytes = b""
    salted_password: Bytes = b""


class AlterUserScramCredentialsRequest(Struct):
    deletions: tuple[ScramCredentialDeletion, ...] = ()
    upsertions: tuple[ScramCredentialUpsertion, ...] = ()


class AlterUserScramCredentialsResult(Struct):
    user: String = ""
    error_code: Int16 = 0
    error_message: String | None = None


class AlterUserScramCredentialsResponse(Struct):
    throttle_time_ms: Int32 = 0
    results: tuple[AlterUserScramCredentialsResult, ...] = ()


class DescribableLogDirTopic(Struct):
    topic: String = ""
    partitions: tuple[Int32, ...] = ()


class DescribeLogDirsRequest(Struct):
    topics: tuple[DescribableLogDirTopic, ...] | None = ()


class DescribeLogDirsPartition(Struct):
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: Bool = False


class DescribeLogDirsTopic(Struct):
    name: String = ""
    partitions: tuple[DescribeLogDirsPartition, ...] = ()


class DescribeLogDirsResult(Struct):
    error_code: Int16 = 0
    log_dir: String = ""
    topics: tuple[DescribeLogDirsTopic, ...] = ()
    total_bytes: Annotated[Int64, since(4)] = -1
    usable_bytes: Annotated[Int64, since(4)] = -1


class DescribeLogDirsResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(3)] = 0
    results: tuple[DescribeLogDirsResult, ...] = ()
