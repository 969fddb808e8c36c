"""Requests: what brokers are told, as values. Encoding and sending them is the channels' business.

Rows are referred to, not copied; they never change. A request carries the controller epoch it was
decided under and the broker epoch it is meant for, and is not sent to another incarnation.
"""

from collections.abc import Mapping

import attrs

from kctl.model.brokers import Broker
from kctl.model.names import BrokerId, TopicId, TopicPartition
from kctl.model.rows import Replicas, Row


@attrs.frozen
class LeaderAndIsrRequest:
    broker: BrokerId
    broker_epoch: int
    controller_epoch: int
    rows: Mapping[TopicPartition, Row]
    new: Mapping[TopicPartition, None]
    """Those to be marked isNew: the broker may create the log."""
    topic_ids: Mapping[str, TopicId | None]
    live_leaders: tuple[Broker, ...]


@attrs.frozen
class UpdateMetadataRequest:
    """One value for all its recipients, so that its body is encoded once."""

    recipients: Mapping[BrokerId, int]
    """Broker epochs by id."""
    controller_epoch: int
    live_brokers: tuple[Broker, ...]
    rows: Mapping[TopicPartition, Row] = attrs.field(factory=dict)
    offline: Mapping[TopicPartition, Replicas] = attrs.field(factory=dict)
    """Replicas that are not online, for the rows that have such."""
    deleted: Mapping[str, None] = attrs.field(factory=dict)
    """Topics being deleted: told with leader -2, which removes them from the brokers' caches."""
    topic_ids: Mapping[str, TopicId | None] = attrs.field(factory=dict)


@attrs.frozen
class StopReplicaPartition:
    leader_epoch: int
    """-2 while the topic is deleted, -1 unknown."""
    delete: bool


@attrs.frozen
class StopReplicaRequest:
    broker: BrokerId
    broker_epoch: int
    controller_epoch: int
    partitions: Mapping[TopicPartition, StopReplicaPartition]


Request = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


@attrs.frozen
class Connect:
    """Open a channel to this incarnation; one to an older incarnation is closed first."""

    broker: Broker


@attrs.frozen
class Disconnect:
    broker: BrokerId


@attrs.frozen
class DisconnectAll:
    """The term is over: close every channel, drop what is queued."""


Dispatch = Request | Connect | Disconnect | DisconnectAll
