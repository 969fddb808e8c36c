"""Requests that everyone sends to every node, answered for this one.

It holds no logs, coordinates no groups and no transactions, and its configs are not changed from
outside. Relayed, the answers would be another broker's.
"""

import struct

from kctl.model.cluster import ClusterState
from kctl.model.codes import KafkaError
from kctl.model.names import BrokerId
from kctl.wire.admin import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from kctl.wire.client import ListGroupsResponse

LOG_DIR = "none"
"""Java clients take an empty list of log dirs for a missing right, so there is one, without logs."""

BROKER, BROKER_LOGGER = 4, 8
STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 4, 5
TYPE_STRING = 2
DELETE = 1

THROTTLES = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
"""Set and cleared by kafka-reassign-partitions on every node; a node without logs obeys trivially."""

ConfigsRequest = DescribeConfigsRequest | AlterConfigsRequest | IncrementalAlterConfigsRequest
ConfigsResponse = DescribeConfigsResponse | AlterConfigsResponse | IncrementalAlterConfigsResponse
ConfigsResource = DescribeConfigsResource | AlterConfigsResource | IncrementalAlterConfigsResource
ConfigsResult = DescribeConfigsResult | AlterConfigsResourceResponse


def list_groups() -> ListGroupsResponse:
    return ListGroupsResponse()


def list_transactions(correlation_id: int) -> bytes:
    """A whole response: no error, no unknown filters, no transactions; alike in versions 0 and 1."""
    return struct.pack(">ibihbbb", correlation_id, 0, 0, 0, 1, 1, 0)


def describe_log_dirs() -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(results=(DescribeLogDirsResult(log_dir=LOG_DIR),))


# -- configs ---------------------------------------------------------------------------------


def is_own(resource: ConfigsResource, controller_id: BrokerId) -> bool:
    return resource.resource_type in (BROKER, BROKER_LOGGER) and (
        resource.resource_name == str(controller_id)
    )


def own_configs_result(
    resource: ConfigsResource, controller_id: BrokerId, state: ClusterState | None
) -> ConfigsResult:
    match resource:
        case DescribeConfigsResource():
            return _described(resource, controller_id, state)
        case IncrementalAlterConfigsResource():
            changed = [c.name for c in resource.configs if c.config_operation != DELETE]
        case AlterConfigsResource():
            changed = [c.name for c in resource.configs]
    refused = [name for name in changed if name not in THROTTLES]
    return AlterConfigsResourceResponse(
        error_code=KafkaError.INVALID_REQUEST if refused else KafkaError.NONE,
        error_message=(
            f"{', '.join(refused)}: set in the configuration of the controller itself"
            if refused
            else None
        ),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _described(
    resource: DescribeConfigsResource, controller_id: BrokerId, state: ClusterState | None
) -> DescribeConfigsResult:
    configs = {"broker.id": str(controller_id)}
    if state is not None:
        settings = state.settings
        configs |= {
            "auto.leader.rebalance.enable": _text(settings.auto_leader_rebalance),
            "default.replication.factor": str(settings.default_replication_factor),
            "delete.topic.enable": _text(settings.delete_topic_enable),
            "leader.imbalance.check.interval.seconds": str(
                settings.leader_imbalance_check_interval_ms // 1000
            ),
            "leader.imbalance.per.broker.percentage": str(
                settings.leader_imbalance_per_broker_percentage
            ),
            "num.partitions": str(settings.num_partitions),
            "unclean.leader.election.enable": _text(settings.unclean_leader_election),
        }
    if resource.resource_type == BROKER_LOGGER:
        configs = {}
    # None asks for all; in versions up to 2.4's clients an empty list does so, too.
    wanted = resource.configuration_keys or tuple(configs)
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(
            DescribeConfigsResourceResult(
                name,
                configs[name],
                read_only=True,
                config_source=STATIC_BROKER_CONFIG,
                config_type=TYPE_STRING,
            )
            for name in wanted
            if name in configs
        ),
    )


def _text(flag: bool) -> str:
    return "true" if flag else "false"
