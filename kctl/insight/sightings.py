"""What is seen to change in a cluster's znodes, one value for each change, in ZooKeeper's order."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

import attrs

from kctl.messages.effects import TopicNode
from kctl.model.brokers import Broker
from kctl.model.codes import Malformed
from kctl.model.names import BrokerId, TopicPartition
from kctl.model.rows import Leadership, Replicas
from kctl.simulation.memory import MemoryZooKeeper

K = TypeVar("K")
V = TypeVar("V")


@attrs.frozen
class BrokerSeen:
    broker: BrokerId
    value: Broker | Malformed | None


@attrs.frozen
class TopicSeen:
    topic: str
    value: TopicNode | Malformed | None


@attrs.frozen
class StateSeen:
    partition: TopicPartition
    value: Leadership | Malformed | None


@attrs.frozen
class ConfigSeen:
    topic: str
    value: Mapping[str, str] | Malformed | None = attrs.field(hash=False)


@attrs.frozen
class DefaultConfigSeen:
    value: Mapping[str, str] = attrs.field(hash=False)


@attrs.frozen
class MarkerSeen:
    """A marker in `/admin/delete_topics` came or went."""

    topic: str
    present: bool


@attrs.frozen
class ReassignmentsSeen:
    value: Mapping[TopicPartition, Replicas] | Malformed | None = attrs.field(hash=False)


@attrs.frozen
class PreferredElectionSeen:
    value: tuple[TopicPartition, ...] | Malformed | None


@attrs.frozen
class ControllerSeen:
    controller_id: int | None
    epoch: int


Seen = (
    BrokerSeen
    | TopicSeen
    | StateSeen
    | ConfigSeen
    | DefaultConfigSeen
    | MarkerSeen
    | ReassignmentsSeen
    | PreferredElectionSeen
    | ControllerSeen
)


def take_in(zookeeper: MemoryZooKeeper, seen: Seen) -> None:
    """Let the copy hold what was seen."""
    match seen:
        case BrokerSeen(key, value):
            _put(zookeeper.brokers, key, value)
        case TopicSeen(key, value):
            _put(zookeeper.topics, key, value)
        case StateSeen(key, value):
            _put(zookeeper.states, key, value)
        case ConfigSeen(key, value):
            _put(zookeeper.configs, key, value)
        case MarkerSeen(topic, present):
            if present:
                zookeeper.deletions[topic] = None
            else:
                zookeeper.deletions.pop(topic, None)
        case ReassignmentsSeen(value):
            zookeeper.reassignments = (
                value if value is None or isinstance(value, Malformed) else dict(value)
            )
        case PreferredElectionSeen(value):
            zookeeper.preferred_election = value
        case ControllerSeen(_, epoch):
            zookeeper.epoch = epoch
        case DefaultConfigSeen():
            pass


def _put(nodes: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        nodes.pop(key, None)
    else:
        nodes[key] = value


def differences(old: MemoryZooKeeper, new: MemoryZooKeeper) -> Iterator[Seen]:
    """What changed between two readings, in the order in which a controller meets it."""
    for broker in {**old.brokers, **new.brokers}:
        if old.brokers.get(broker) != new.brokers.get(broker):
            yield BrokerSeen(broker, new.brokers.get(broker))
    for topic in {**old.configs, **new.configs}:
        if old.configs.get(topic) != new.configs.get(topic):
            yield ConfigSeen(topic, new.configs.get(topic))
    for topic in {**old.topics, **new.topics}:
        if old.topics.get(topic) != new.topics.get(topic):
            yield TopicSeen(topic, new.topics.get(topic))
    if old.reassignments != new.reassignments:
        yield ReassignmentsSeen(new.reassignments)
    if old.preferred_election != new.preferred_election:
        yield PreferredElectionSeen(new.preferred_election)
    for tp in {**old.states, **new.states}:
        if old.states.get(tp) != new.states.get(tp):
            yield StateSeen(tp, new.states.get(tp))
    for topic in {**old.deletions, **new.deletions}:
        if (topic in old.deletions) != (topic in new.deletions):
            yield MarkerSeen(topic, topic in new.deletions)
