"""Messages of any client: versions, authentication, metadata, coordinators, producer ids."""

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
    versions,
)

NO_OPERATIONS = -2147483648
"""Authorized operations were not asked for."""

# -- ApiVersions, SASL -----------------------------------------------------------------------


class ApiVersionsRequest(Struct):
    client_software_name: Annotated[String, since(3)] = ""
    client_software_version: Annotated[String, since(3)] = ""


class ApiVersion(Struct):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Struct):
    name: String = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(Struct):
    name: String = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


class ApiVersionsResponse(Struct):
    error_code: Int16 = 0
    api_keys: tuple[ApiVersion, ...] = ()
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    supported_features: Annotated[tuple[SupportedFeatureKey, ...], since(3), tagged(0)] = ()
    finalized_features_epoch: Annotated[Int64, since(3), tagged(1)] = -1
    finalized_features: Annotated[tuple[FinalizedFeatureKey, ...], since(3), tagged(2)] = ()
    zk_migration_ready: Annotated[Bool, since(3), tagged(3)] = False


class SaslHandshakeRequest(Struct):
    mechanism: String = ""


class SaslHandshakeResponse(Struct):
    error_code: Int16 = 0
    mechanisms: tuple[String, ...] = ()


class SaslAuthenticateRequest(Struct):
    auth_bytes: Bytes = b""


class SaslAuthenticateResponse(Struct):
    error_code: Int16 = 0
    error_message: String | None = None
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, since(1)] = 0


# -- Metadata, DescribeCluster ---------------------------------------------------------------


class MetadataRequestTopic(Struct):
    topic_id: Annotated[Uuid, since(10)] = NULL_UUID
    name: Annotated[String | None, nullable_since(10)] = ""


class MetadataRequest(Struct):
    topics: Annotated[tuple[MetadataRequestTopic, ...] | None, nullable_since(1)] = ()
    """None: all topics. In version 0 an empty list says the same."""
    allow_auto_topic_creation: Annotated[Bool, since(4)] = True
    include_cluster_authorized_operations: Annotated[Bool, versions(8, 10)] = False
    include_topic_authorized_operations: Annotated[Bool, since(8)] = False


class MetadataResponseBroker(Struct):
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[String | None, since(1)] = None


class MetadataResponsePartition(Struct):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, since(7)] = -1
    replica_nodes: tuple[Int32, ...] = ()
    isr_nodes: tuple[Int32, ...] = ()
    offline_replicas: Annotated[tuple[Int32, ...], since(5)] = ()


class MetadataResponseTopic(Struct):
    error_code: Int16 = 0
    name: Annotated[String | None, nullable_since(12)] = ""
    topic_id: Annotated[Uuid, since(10)] = NULL_UUID
    is_internal: Annotated[Bool, since(1)] = False
    partitions: tuple[MetadataResponsePartition, ...] = ()
    topic_authorized_operations: Annotated[Int32, since(8)] = NO_OPERATIONS


class MetadataResponse(Struct):
    throttle_time_ms: Annotated[Int32, since(3)] = 0
    brokers: tuple[MetadataResponseBroker, ...] = ()
    cluster_id: Annotated[String | None, since(2)] = None
    controller_id: Annotated[Int32, since(1)] = -1
    topics: tuple[MetadataResponseTopic, ...] = ()
    cluster_authorized_operations: Annotated[Int32, versions(8, 10)] = NO_OPERATIONS


class DescribeClusterRequest(Struct):
    include_cluster_authorized_operations: Bool = False
    endpoint_type: Annotated[Int8, since(1)] = 1


class DescribeClusterBroker(Struct):
    broker_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    rack: String | None = None


class DescribeClusterResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    endpoint_type: Annotated[Int8, since(1)] = 1
    cluster_id: String = ""
    controller_id: Int32 = -1
    brokers: tuple[DescribeClusterBroker, ...] = ()
    cluster_authorized_operations: Int32 = NO_OPERATIONS


# -- coordinators, producer ids, groups, envelopes -------------------------------------------


class FindCoordinatorRequest(Struct):
    key: Annotated[String, until(3)] = ""
    key_type: Annotated[Int8, since(1)] = 0
    coordinator_keys: Annotated[tuple[String, ...], since(4)] = ()


class Coordinator(Struct):
    key: String = ""
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class FindCoordinatorResponse(Struct):
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Annotated[Int16, until(3)] = 0
    error_message: Annotated[String | None, versions(1, 3)] = None
    node_id: Annotated[Int32, until(3)] = 0
    host: Annotated[String, until(3)] = ""
    port: Annotated[Int32, until(3)] = 0
    coordinators: Annotated[tuple[Coordinator, ...], since(4)] = ()


class InitProducerIdRequest(Struct):
    transactional_id: String | None = None
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, since(3)] = -1
    producer_epoch: Annotated[Int16, since(3)] = -1


class InitProducerIdResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0


class ListGroupsRequest(Struct):
    states_filter: Annotated[tuple[String, ...], since(4)] = ()
    types_filter: Annotated[tuple[String, ...], since(5)] = ()


class ListedGroup(Struct):
    group_id: String = ""
    protocol_type: String = ""
    group_state: Annotated[String, since(4)] = ""
    group_type: Annotated[String, since(5)] = ""


class ListGroupsResponse(Struct):
    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Int16 = 0
    groups: tuple[ListedGroup, ...] = ()


class EnvelopeRequest(Struct):
    request_data: Bytes = b""
    request_principal: Bytes | None = None
    client_host_address: Bytes = b""


class EnvelopeResponse(Struct):
    response_data: Bytes | None = None
    error_code: Int16 = 0
