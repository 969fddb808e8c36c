"""Effects: I/O that a handler wants and waits for, as frozen values.

`found = await ReadPartitions(tps)` hands the effect to whoever drives the handler and resumes with
the reply. Failures of single rows are codes in the reply. Two things never come back as replies:
being fenced (the epoch znode has another version) and losing the session end the term, and the
driver closes the handler.

Reads that say so arm a watch *before* they read, so that no change is missed: what changes
afterwards comes back as an event.
"""

from collections.abc import Generator, Mapping
from typing import Generic, TypeVar

import attrs

from kctl.model.brokers import Broker, Endpoint
from kctl.model.codes import Code, Malformed
from kctl.model.names import BrokerId, TopicId, TopicPartition
from kctl.model.rows import Assignment, Leadership, Replicas
from kctl.model.secrets import Secret

R = TypeVar("R")


@attrs.frozen
class Effect(Generic[R]):
    """Base of all effects; `R` is the type of the reply."""

    def __await__(self) -> "Generator[Effect[R], R, R]":
        return (yield self)


@attrs.frozen
class Flush(Effect[None]):
    """Send what the outbox holds, and let others run. Also the pause between two chunks."""


@attrs.frozen
class Draw(Effect[tuple[int, ...]]):
    """Chance: so many numbers from 0 to below `below`."""

    count: int
    below: int


# -- controllership --------------------------------------------------------------------------


@attrs.frozen
class ControllerNode:
    broker_id: BrokerId
    """-1 when the znode cannot be understood."""
    ours: bool
    """Held by our own session, whatever id it names."""
    kctl: bool
    """Written by a kctl; two of them never fight."""
    zk_version: int = 0


@attrs.frozen
class Controllership:
    controller: ControllerNode | None
    epoch: int | None
    """None: `/controller_epoch` does not exist."""
    epoch_zk_version: int = 0


@attrs.frozen
class ReadControllership(Effect[Controllership]):
    """`/controller` and `/controller_epoch`. Arms the watch on `/controller`."""


@attrs.frozen
class CreateControllerEpoch(Effect[Code]):
    """`/controller_epoch` with the value 0."""


@attrs.frozen
class ClaimControllership(Effect[Code]):
    """One multi: raise the epoch by its version, remove the old `/controller`, create ours."""

    epoch: int
    epoch_zk_version: int
    replaces: ControllerNode | None


@attrs.frozen
class ReleaseControllership(Effect[Code]):
    """Delete `/controller`, under the epoch's version, so that the next one starts at once."""

    epoch_zk_version: int


@attrs.frozen
class RegisterController(Effect[Code]):
    """Our own `/brokers/ids/<id>`: brokers up to 2.8 look there when they shut down."""

    endpoints: tuple[Endpoint, ...]
    rack: str | None = None


@attrs.frozen
class UnregisterController(Effect[Code]):
    """Remove it, if it is our session's: who does not rule must not be taken for a broker."""


@attrs.frozen
class Bootstrap(Effect[Code]):
    """Create the persistent paths that every broker creates at start, where they are missing."""


# -- brokers ---------------------------------------------------------------------------------


@attrs.frozen
class ReadBrokers(Effect[Mapping[BrokerId, Broker | Malformed]]):
    """All registrations but those of a kctl. Arms the child watch and the data watches."""


# -- topics and partitions -------------------------------------------------------------------


@attrs.frozen
class TopicNode:
    """`/brokers/topics/<t>`; in a write, `zk_version` is the version that must hold."""

    partitions: Mapping[int, Assignment]
    topic_id: TopicId | None
    zk_version: int


@attrs.frozen
class ListTopics(Effect[tuple[str, ...]]):
    """Children of `/brokers/topics`. Arms the child watch."""


@attrs.frozen
class ReadTopics(Effect[Mapping[str, TopicNode | Code | Malformed]]):
    """Arms the data watches. Only NO_NODE and NO_AUTH come as codes."""

    topics: tuple[str, ...]


@attrs.frozen
class WriteTopics(Effect[Mapping[str, Code]]):
    """Each topic alone, if its znode's version holds."""

    topics: Mapping[str, TopicNode]


@attrs.frozen
class TopicToCreate:
    node: TopicNode
    configs: Mapping[str, str]


@attrs.frozen
class CreateTopicNodes(Effect[Mapping[str, Code]]):
    """Topic and config znode of each topic together; NODE_EXISTS if the topic is there."""

    topics: Mapping[str, TopicToCreate]


@attrs.frozen
class ReadTopicConfigs(Effect[Mapping[str, Mapping[str, str] | Code | Malformed]]):
    """Overrides in `/config/topics/<t>`; NO_NODE means none."""

    topics: tuple[str, ...]


@attrs.frozen
class ReadPartitions(Effect[Mapping[TopicPartition, Leadership | Code | Malformed]]):
    """State znodes, after a sync when the outcome of a write of ours is unknown."""

    partitions: tuple[TopicPartition, ...]
    sync: bool = False


@attrs.frozen
class WatchPartitions(Effect[None]):
    """Arm (or drop) data watches on state znodes: old brokers change the ISR there."""

    partitions: tuple[TopicPartition, ...]
    watch: bool = True


@attrs.frozen
class WritePartitions(Effect[Mapping[TopicPartition, Code]]):
    """Each row alone, if its znode's version and our epoch still hold."""

    rows: Mapping[TopicPartition, Leadership]


@attrs.frozen
class CreatePartitionStates(Effect[Mapping[TopicPartition, Code]]):
    """State znodes of new partitions, with the parents that they need."""

    rows: Mapping[TopicPartition, Leadership]


# -- deletion --------------------------------------------------------------------------------


@attrs.frozen
class ListDeletions(Effect[tuple[str, ...]]):
    """Children of `/admin/delete_topics`. Arms the child watch."""


@attrs.frozen
class MarkForDeletion(Effect[Mapping[str, Code]]):
    """Create the children of `/admin/delete_topics`; one that is there is fine."""

    topics: tuple[str, ...]


@attrs.frozen
class UnmarkForDeletion(Effect[Mapping[str, Code]]):
    """Remove children of `/admin/delete_topics` that cannot or shall not be carried out."""

    topics: tuple[str, ...]


@attrs.frozen
class RemovePartitionNodes(Effect[Mapping[TopicPartition, Code]]):
    """State znodes and their parents; NO_NODE counts as done."""

    partitions: tuple[TopicPartition, ...]


@attrs.frozen
class RemoveTopicNodes(Effect[Mapping[str, Code]]):
    """The last step: partitions node, topic, config and marker of each topic together."""

    topics: tuple[str, ...]


# -- admin znodes ----------------------------------------------------------------------------


@attrs.frozen
class ReadReassignments(Effect[Mapping[TopicPartition, Replicas] | Code | Malformed]):
    """`/admin/reassign_partitions`; NO_NODE if absent. Arms the watch on its creation."""


@attrs.frozen
class WriteReassignments(Effect[Code]):
    """Replace its content; an empty mapping deletes the znode."""

    targets: Mapping[TopicPartition, Replicas]


@attrs.frozen
class ReadPreferredElection(Effect[tuple[TopicPartition, ...] | Code | Malformed]):
    """`/admin/preferred_replica_election`; NO_NODE if absent. Arms the watch on its creation."""


@attrs.frozen
class RemovePreferredElection(Effect[Code]):
    pass


@attrs.frozen
class ReadIsrNotifications(Effect[Mapping[str, tuple[TopicPartition, ...] | Malformed]]):
    """Children of `/isr_change_notification` by path. Arms the child watch."""


@attrs.frozen
class ReadLogDirNotifications(Effect[Mapping[str, BrokerId | Malformed]]):
    """Children of `/log_dir_event_notification` by path. Arms the child watch."""


@attrs.frozen
class RemoveNotifications(Effect[None]):
    """Best effort under the fence: what stays is found again at the next reading."""

    paths: tuple[str, ...]


# -- features and producer ids ---------------------------------------------------------------


@attrs.frozen
class FeatureNode:
    enabled: bool
    features: Mapping[str, int]
    version: int = 2


@attrs.frozen
class ReadFeatures(Effect[FeatureNode | Code | Malformed]):
    """`/feature`; NO_NODE if absent."""


@attrs.frozen
class WriteFeatures(Effect[Code]):
    node: FeatureNode


@attrs.frozen
class ProducerIds:
    """`/latest_producer_id_block`; `end` is the last id handed out, -1 for none."""

    end: int
    zk_version: int


@attrs.frozen
class ReadProducerIds(Effect[ProducerIds | Malformed]):
    """Creates the znode where it is missing."""


@attrs.frozen
class WriteProducerIds(Effect[Code]):
    broker: BrokerId
    start: int
    end: int
    zk_version: int


# -- users -----------------------------------------------------------------------------------


@attrs.frozen
class AlterUsers(Effect[Mapping[str, Code | Malformed]]):
    """Credentials in `/config/users/<user>`, with the notification that brokers wait for. Each user
    alone; what else is set for it stays. NO_NODE: one that is to be removed is not there."""

    users: Mapping[str, Mapping[str, Secret | None]]
