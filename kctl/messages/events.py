"""Events: something happened. Frozen values in the actor's queue, under Kafka's names.

The first block are the 28 events of Kafka's controller. Those that a caller waits for carry the
`caller` that its answer is addressed to. The second block are ours: topics made, grown and deleted
through this controller, brokers that must be told everything again, settings that changed.
"""

from collections.abc import Mapping
from enum import Enum, IntEnum

import attrs

from kctl.model.codes import KafkaError
from kctl.model.names import BrokerId, TopicId, TopicPartition
from kctl.model.rows import Replicas
from kctl.model.secrets import Secret
from kctl.model.settings import Release, Settings

Caller = int
"""Whom an answer goes to; every accepted request gets exactly one."""


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


class ElectionTrigger(Enum):
    ADMIN_CLIENT = "admin client"
    ZK = "znode"
    AUTO = "automatic balance"


@attrs.frozen
class Event:
    """Base of all events."""


# -- election of the controller --------------------------------------------------------------


@attrs.frozen
class Startup(Event):
    """The node begins: look at `/controller`, stand for election if it is free."""


@attrs.frozen
class ControllerChange(Event):
    """`/controller` was created or its data changed: resign if it is no longer ours."""


@attrs.frozen
class Reelect(Event):
    """`/controller` was deleted: resign if it was ours, then stand for election."""


@attrs.frozen
class RegisterBrokerAndReelect(Event):
    """A new ZooKeeper session began after the old one was lost."""


@attrs.frozen
class Expire(Event):
    """The session is lost: forget everything at once. Drops all queued events."""


@attrs.frozen
class ShutdownEventThread(Event):
    """Stop: resign, hand over, end the loop. Drops all queued events."""


# -- leaders ---------------------------------------------------------------------------------


@attrs.frozen
class AutoPreferredReplicaLeaderElection(Event):
    """The balance timer is due."""


@attrs.frozen
class ReplicaLeaderElection(Event):
    """ElectLeaders, or the znode `/admin/preferred_replica_election`."""

    caller: Caller | None = None
    partitions: tuple[TopicPartition, ...] | None = None
    """None: all partitions (by RPC), or those that the znode names."""
    election_type: ElectionType = ElectionType.PREFERRED
    trigger: ElectionTrigger = ElectionTrigger.ZK


@attrs.frozen
class UncleanLeaderElectionEnable(Event):
    """The brokers' default became true."""


@attrs.frozen
class TopicUncleanLeaderElectionEnable(Event):
    topic: str


@attrs.frozen
class ControlledShutdown(Event):
    caller: Caller
    broker: BrokerId
    broker_epoch: int = -1


# -- brokers' answers ------------------------------------------------------------------------


@attrs.frozen
class LeaderAndIsrResponseReceived(Event):
    broker: BrokerId
    broker_epoch: int
    error: int = KafkaError.NONE
    partition_errors: Mapping[TopicPartition, int] = attrs.field(factory=dict, hash=False)


@attrs.frozen
class UpdateMetadataResponseReceived(Event):
    broker: BrokerId
    broker_epoch: int
    error: int = KafkaError.NONE


@attrs.frozen
class TopicDeletionStopReplicaResponseReceived(Event):
    """Answers for replicas that were told to delete; others are of no interest."""

    broker: BrokerId
    broker_epoch: int
    error: int = KafkaError.NONE
    partition_errors: Mapping[TopicPartition, int] = attrs.field(factory=dict, hash=False)


# -- ZooKeeper's watches ---------------------------------------------------------------------


@attrs.frozen
class BrokerChange(Event):
    """Children of `/brokers/ids`."""


@attrs.frozen
class BrokerModifications(Event):
    """Data of `/brokers/ids/<id>`."""

    broker: BrokerId


@attrs.frozen
class TopicChange(Event):
    """Children of `/brokers/topics`."""


@attrs.frozen
class PartitionModifications(Event):
    """Data of `/brokers/topics/<t>`."""

    topic: str


@attrs.frozen
class TopicDeletion(Event):
    """Children of `/admin/delete_topics`."""


@attrs.frozen
class LogDirEventNotification(Event):
    """Children of `/log_dir_event_notification`."""


@attrs.frozen
class IsrChangeNotification(Event):
    """Children of `/isr_change_notification`."""


@attrs.frozen
class ZkPartitionReassignment(Event):
    """`/admin/reassign_partitions` was created."""


@attrs.frozen
class PartitionReassignmentIsrChange(Event):
    """Data of a partition state while it is reassigned; only brokers older than 2.7 need it."""

    partition: TopicPartition


# -- requests to the controller --------------------------------------------------------------


@attrs.frozen
class ApiPartitionReassignment(Event):
    caller: Caller
    targets: Mapping[TopicPartition, Replicas | None] = attrs.field(hash=False)
    """None cancels."""


@attrs.frozen
class ListPartitionReassignments(Event):
    caller: Caller
    partitions: tuple[TopicPartition, ...] | None = None


@attrs.frozen
class IsrProposal:
    """What a leader asks for one partition in AlterPartition."""

    isr: Replicas
    leader_epoch: int
    partition_epoch: int
    recovering: bool = False


@attrs.frozen
class AlterPartitionReceived(Event):
    caller: Caller
    broker: BrokerId
    broker_epoch: int
    version: int = 3
    partitions: Mapping[TopicPartition, IsrProposal] = attrs.field(factory=dict, hash=False)
    """By name, up to version 1."""
    by_id: Mapping[tuple[TopicId, int], IsrProposal] = attrs.field(factory=dict, hash=False)
    """By topic id and partition, from version 2."""


@attrs.frozen
class FeatureUpdate:
    feature: str
    max_version_level: int
    upgrade_type: int = 1
    """1 upgrade, 2 safe downgrade, 3 unsafe downgrade."""


@attrs.frozen
class UpdateFeatures(Event):
    caller: Caller
    updates: tuple[FeatureUpdate, ...] = ()


@attrs.frozen
class AllocateProducerIds(Event):
    caller: Caller
    broker: BrokerId
    broker_epoch: int


# -- ours ------------------------------------------------------------------------------------


@attrs.frozen
class NewTopic:
    """One topic of CreateTopics; -1 and None mean the default, as on the wire."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Replicas] | None = attrs.field(default=None, hash=False)
    configs: Mapping[str, str | None] = attrs.field(factory=dict, hash=False)


@attrs.frozen
class CreateTopics(Event):
    caller: Caller
    topics: tuple[NewTopic, ...]
    validate_only: bool = False


@attrs.frozen
class NewPartitions:
    """One topic of CreatePartitions: the total count, and the new partitions' replicas if given."""

    name: str
    count: int
    assignments: tuple[Replicas, ...] | None = None


@attrs.frozen
class CreatePartitions(Event):
    caller: Caller
    topics: tuple[NewPartitions, ...]
    validate_only: bool = False


@attrs.frozen
class DeleteTopics(Event):
    """Each topic by name or by id, exactly one of the two."""

    caller: Caller
    topics: tuple[tuple[str | None, TopicId | None], ...]


@attrs.frozen
class AlterUserScramCredentials(Event):
    caller: Caller
    users: Mapping[str, Mapping[str, Secret | None]] = attrs.field(hash=False)
    """By user and mechanism: the credential as brokers read it, None to remove it."""


@attrs.frozen
class BrokerResync(Event):
    """A broker missed requests: send what a newly started one gets, and the deletions it owes."""

    broker: BrokerId
    broker_epoch: int
    owed_deletions: tuple[TopicPartition, ...] = ()


@attrs.frozen
class BrokerVersions(Event):
    """The oldest release among the live brokers, by what they answered to ApiVersions."""

    release: Release


@attrs.frozen
class SettingsChange(Event):
    """Dynamic configuration changed the core's settings."""

    settings: Settings


@attrs.frozen
class Retry(Event):
    """The timer after which work that was given up is tried again."""


@attrs.frozen
class QuarantineCheck(Event):
    """The timer that looks whether a quarantined znode was repaired."""
