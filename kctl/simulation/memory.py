"""ZooKeeper in memory, at the level of effects: no sessions, no faults, no znodes.

It answers every effect at once and truthfully. Scenarios, `plan` and tests that need no Java run
the core on it; what can go wrong with a real ZooKeeper is the business of the model in
`zookeeper_model`.
"""

import random
from collections.abc import Mapping
from typing import Any, cast

import attrs

from kctl.logic.dispatch import handle
from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.messages.answers import Answer, AnswerValue
from kctl.messages.driver import Finished, step
from kctl.messages.outbox import Outbox, StartTimer, Story
from kctl.messages.queue import EventQueue
from kctl.messages.requests import Dispatch
from kctl.model.brokers import Broker
from kctl.model.cluster import ClusterState, Node
from kctl.model.codes import Code, Malformed
from kctl.model.names import BrokerId, TopicPartition
from kctl.model.rows import Leadership, Replicas
from kctl.model.secrets import Secret
from kctl.model.settings import Settings


@attrs.define
class MemoryZooKeeper:
    """What the znodes would hold."""

    controller: ef.ControllerNode | None = None
    epoch: int = 0
    epoch_zk_version: int = 0
    brokers: dict[BrokerId, Broker | Malformed] = attrs.field(factory=dict)
    topics: dict[str, ef.TopicNode | Malformed] = attrs.field(factory=dict)
    states: dict[TopicPartition, Leadership | Malformed] = attrs.field(factory=dict)
    configs: dict[str, Mapping[str, str] | Malformed] = attrs.field(factory=dict)
    deletions: dict[str, None] = attrs.field(factory=dict)
    reassignments: dict[TopicPartition, Replicas] | Malformed | None = None
    preferred_election: tuple[TopicPartition, ...] | Malformed | None = None
    isr_notifications: dict[str, tuple[TopicPartition, ...] | Malformed] = attrs.field(factory=dict)
    log_dir_notifications: dict[str, BrokerId | Malformed] = attrs.field(factory=dict)
    features: ef.FeatureNode | Malformed | None = None
    producer_ids: ef.ProducerIds = attrs.field(factory=lambda: ef.ProducerIds(-1, 0))
    users: dict[str, dict[str, Secret]] = attrs.field(factory=dict)
    watched: dict[TopicPartition, None] = attrs.field(factory=dict)
    chance: random.Random = attrs.field(factory=lambda: random.Random(0))

    def perform(self, effect: ef.Effect[Any]) -> object:
        reply = self._read(effect)
        return self._write(effect) if reply is NotImplemented else reply

    def _read(self, effect: ef.Effect[Any]) -> object:
        match effect:
            case ef.Flush():
                return None
            case ef.Draw(count=count, below=below):
                return tuple(self.chance.randrange(below) for _ in range(count))
            case ef.ReadControllership():
                return ef.Controllership(self.controller, self.epoch, self.epoch_zk_version)
            case ef.ReadBrokers():
                return dict(self.brokers)
            case ef.ListTopics():
                return tuple(self.topics)
            case ef.ReadTopics(topics=topics):
                return {t: self.topics.get(t, Code.NO_NODE) for t in topics}
            case ef.ReadTopicConfigs(topics=topics):
                return {t: self.configs.get(t, Code.NO_NODE) for t in topics}
            case ef.ReadPartitions(partitions=tps):
                return {tp: self.states.get(tp, Code.NO_NODE) for tp in tps}
            case ef.ListDeletions():
                return tuple(self.deletions)
            case ef.ReadReassignments():
                return Code.NO_NODE if self.reassignments is None else self.reassignments
            case ef.ReadPreferredElection():
                return Code.NO_NODE if self.preferred_election is None else self.preferred_election
            case ef.ReadIsrNotifications():
                return dict(self.isr_notifications)
            case ef.ReadLogDirNotifications():
                return dict(self.log_dir_notifications)
            case ef.ReadFeatures():
                return Code.NO_NODE if self.features is None else self.features
            case ef.ReadProducerIds():
                return self.producer_ids
            case _:
                return NotImplemented

    def _write(self, effect: ef.Effect[Any]) -> object:
        match effect:
            case (
                ef.CreateControllerEpoch()
                | ef.Bootstrap()
                | ef.RegisterController()
                | ef.UnregisterController()
            ):
                return Code.OK
            case ef.ClaimControllership(epoch=epoch, epoch_zk_version=version):
                if version != self.epoch_zk_version:
                    return Code.BAD_VERSION
                self.epoch, self.epoch_zk_version = epoch, version + 1
                self.controller = ef.ControllerNode(broker_id=-1, ours=True, kctl=True)
                return Code.OK
            case ef.ReleaseControllership():
                self.controller = None
                return Code.OK
            case ef.WriteTopics(topics=nodes):
                return {t: self._write_topic(t, node) for t, node in nodes.items()}
            case ef.CreateTopicNodes(topics=planned):
                return {t: self._create_topic(t, plan) for t, plan in planned.items()}
            case ef.WritePartitions(rows=rows):
                return {tp: self._write_state(tp, row) for tp, row in rows.items()}
            case ef.CreatePartitionStates(rows=rows):
                return {tp: self._create_state(tp, row) for tp, row in rows.items()}
            case ef.WatchPartitions(partitions=tps, watch=watch):
                for tp in tps:
                    if watch:
                        self.watched[tp] = None
                    else:
                        self.watched.pop(tp, None)
                return None
            case ef.MarkForDeletion(topics=names):
                self.deletions.update(dict.fromkeys(names))
                return dict.fromkeys(names, Code.OK)
            case ef.UnmarkForDeletion(topics=names):
                return {t: self._forget(self.deletions, t) for t in names}
            case ef.RemovePartitionNodes(partitions=tps):
                return {tp: self._forget(self.states, tp) for tp in tps}
            case ef.RemoveTopicNodes(topics=names):
                return {t: self._remove_topic(t) for t in names}
            case ef.WriteReassignments(targets=targets):
                self.reassignments = dict(targets) or None
                return Code.OK
            case ef.RemovePreferredElection():
                self.preferred_election = None
                return Code.OK
            case ef.RemoveNotifications(paths=paths):
                for path in paths:
                    self.isr_notifications.pop(path, None)
                    self.log_dir_notifications.pop(path, None)
                return None
            case ef.WriteFeatures(node=node):
                self.features = node
                return Code.OK
            case ef.WriteProducerIds(end=end, zk_version=version):
                if version != self.producer_ids.zk_version:
                    return Code.BAD_VERSION
                self.producer_ids = ef.ProducerIds(end, version + 1)
                return Code.OK
            case ef.AlterUsers(users=users):
                return {user: self._alter_user(user, changes) for user, changes in users.items()}
            case _:
                raise TypeError(f"unknown effect {effect!r}")

    def _write_topic(self, topic: str, node: ef.TopicNode) -> Code:
        known = self.topics.get(topic)
        if known is None:
            return Code.NO_NODE
        if isinstance(known, Malformed) or known.zk_version != node.zk_version:
            return Code.BAD_VERSION
        self.topics[topic] = attrs.evolve(node, zk_version=node.zk_version + 1)
        return Code.OK

    def _create_topic(self, topic: str, plan: ef.TopicToCreate) -> Code:
        if topic in self.topics:
            return Code.NODE_EXISTS
        self.topics[topic] = plan.node
        self.configs[topic] = plan.configs
        return Code.OK

    def _write_state(self, tp: TopicPartition, row: Leadership) -> Code:
        known = self.states.get(tp)
        if known is None:
            return Code.NO_NODE
        if isinstance(known, Malformed) or known.zk_version != row.zk_version:
            return Code.BAD_VERSION
        self.states[tp] = row.written()
        return Code.OK

    def _create_state(self, tp: TopicPartition, row: Leadership) -> Code:
        if tp in self.states:
            return Code.NODE_EXISTS
        self.states[tp] = row
        return Code.OK

    def _remove_topic(self, topic: str) -> Code:
        if any(tp.topic == topic for tp in self.states):
            return Code.NOT_EMPTY
        self.configs.pop(topic, None)
        self.deletions.pop(topic, None)
        self.topics.pop(topic, None)
        return Code.OK

    def _alter_user(self, user: str, changes: Mapping[str, Secret | None]) -> Code:
        known = self.users.get(user, {})
        if any(value is None and name not in known for name, value in changes.items()):
            return Code.NO_NODE
        merged = {**known, **changes}
        self.users[user] = {name: value for name, value in merged.items() if value is not None}
        return Code.OK

    @staticmethod
    def _forget(nodes: dict[Any, Any], key: object) -> Code:
        if key not in nodes:
            return Code.NO_NODE
        del nodes[key]
        return Code.OK


@attrs.define
class Recorded:
    """What a run sent, answered and told, in order."""

    effects: list[ef.Effect[Any]] = attrs.field(factory=list)
    dispatches: list[Dispatch] = attrs.field(factory=list)
    answers: list[Answer] = attrs.field(factory=list)
    stories: list[Story] = attrs.field(factory=list)

    def answer_to(self, caller: int) -> AnswerValue:
        values = [a.value for a in self.answers if a.caller == caller]
        assert len(values) == 1, f"{len(values)} answers to caller {caller}"
        return values[0]


@attrs.define
class DryController:
    """The core on a memory ZooKeeper: events in, everything that comes out recorded."""

    zookeeper: MemoryZooKeeper
    node: Node
    queue: EventQueue = attrs.field(factory=EventQueue)
    timers: dict[str, StartTimer] = attrs.field(factory=dict)

    @classmethod
    def of(cls, settings: Settings, zookeeper: MemoryZooKeeper) -> "DryController":
        return cls(zookeeper, Node(settings))

    @property
    def cluster(self) -> ClusterState:
        assert self.node.cluster is not None, "not the active controller"
        return self.node.cluster

    def run(self, *events: ev.Event) -> Recorded:
        """Handle these events and all that follow from them."""
        for event in events:
            self.queue.put(event)
        recorded = Recorded()
        while len(self.queue):
            self._handle(self.queue.take(), recorded)
        return recorded

    def _handle(self, events: tuple[ev.Event, ...], recorded: Recorded) -> None:
        outbox = Outbox()
        procedure = handle(self.node, events, outbox)
        wanted = step(procedure)
        while not isinstance(wanted, Finished):
            recorded.effects.append(wanted)
            if isinstance(wanted, ef.Flush):
                self._flush(outbox, recorded)
            wanted = step(procedure, self.zookeeper.perform(wanted))
        self._flush(outbox, recorded)

    def _flush(self, outbox: Outbox, recorded: Recorded) -> None:
        recorded.dispatches += outbox.dispatches
        recorded.answers += outbox.answers
        recorded.stories += outbox.stories
        for timer in outbox.timers:
            if isinstance(timer, StartTimer):
                self.timers[timer.tag] = timer
            else:
                self.timers.clear()
        for event in outbox.events:
            self.queue.put(event)
        for items in (outbox.dispatches, outbox.answers, outbox.stories, outbox.timers):
            cast("list[object]", items).clear()
        outbox.events.clear()
