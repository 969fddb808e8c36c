"""The state of one term: everything that the controller knows, and the indexes it is found by.

Change it only through its methods and only from replies: it is never ahead of ZooKeeper. After any
doubt it is thrown away and read again, never patched. Dicts stand in for sets throughout, because
their order is the order of insertion and so the same in every process.
"""

from collections.abc import Iterable, Mapping
from itertools import islice

import attrs

from kctl.model.brokers import Broker
from kctl.model.names import BrokerId, TopicId, TopicPartition
from kctl.model.rows import (
    Assignment,
    Leadership,
    Replicas,
    Row,
    check_replicas,
    may_follow,
)
from kctl.model.settings import (
    ALTER_PARTITION_SINCE,
    OLDEST_RELEASE,
    RECOVERY_STATE_SINCE,
    TOPIC_IDS_SINCE,
    Release,
    Settings,
)
from kctl.model.states import (
    PARTITION_CAME_FROM,
    IllegalTransition,
    PartitionState,
    ReplicaState,
)

INDEX_PORTION = 20_000
"""Replicas that are indexed in one go: some milliseconds."""
DEPARTED_MAX = 10_000
"""Partitions of deleted topics that are remembered: ten requests to a broker that comes back."""


@attrs.define
class Topic:
    id: TopicId | None
    zk_version: int
    """Version of `/brokers/topics/<t>`: a topic changed by somebody else is read before a write."""
    partitions: dict[int, TopicPartition] = attrs.field(factory=dict)
    _lent: bool = attrs.field(default=False, eq=False, repr=False)
    """`partitions` is shared with the topic of a fork, and copied before it changes."""

    def add(self, tp: TopicPartition) -> None:
        if self._lent:
            self.partitions, self._lent = self.partitions.copy(), False
        self.partitions[tp.partition] = tp

    def fork(self) -> "Topic":
        self._lent = True
        return Topic(self.id, self.zk_version, self.partitions, lent=True)


@attrs.define
class Deletion:
    """A topic that is to be deleted: queued, and how far its replicas are."""

    started: bool = False
    """Its partitions were moved to NonExistent; StopReplica answers matter from here on."""
    ineligible: str | None = None
    """Why it is on hold, or None."""
    counts: dict[ReplicaState, int] = attrs.field(factory=dict)
    """Replicas by state, kept up to date by `put`, so that an answer need not scan the topic."""


@attrs.define
class ClusterState:
    settings: Settings
    epoch: int
    epoch_zk_version: int
    seen_controllers: tuple[BrokerId, ...] = ()
    """Of this kind, in office before us."""

    brokers: dict[BrokerId, Broker] = attrs.field(factory=dict)
    """Live and shutting down."""
    shutting_down: dict[BrokerId, None] = attrs.field(factory=dict)
    live: dict[BrokerId, None] = attrs.field(factory=dict)
    """`brokers` without those that are shutting down: the ids that elections look at."""
    offline_dirs: dict[BrokerId, dict[TopicPartition, None]] = attrs.field(factory=dict)
    """Replicas on failed log dirs of brokers that are alive."""
    release: Release = OLDEST_RELEASE
    """Of the oldest live broker, as far as it is known."""
    membership: int = 0
    """Counts the changes of the live-broker list."""
    told: dict[BrokerId, int] = attrs.field(factory=dict)
    """The membership that each broker was last sent: LeaderAndIsr must not overtake it."""

    topics: dict[str, Topic] = attrs.field(factory=dict)
    topic_names: dict[TopicId, str] = attrs.field(factory=dict)
    rows: dict[TopicPartition, Row] = attrs.field(factory=dict)
    by_broker: dict[BrokerId, dict[TopicPartition, None]] = attrs.field(factory=dict)
    not_online: dict[TopicPartition, None] = attrs.field(factory=dict)
    """Rows in New or Offline: the ones that an election may help."""
    unbalanced: dict[TopicPartition, None] = attrs.field(factory=dict)
    """Rows whose leader is not their preferred replica."""
    reassigning: dict[TopicPartition, None] = attrs.field(factory=dict)
    deletions: dict[str, Deletion] = attrs.field(factory=dict)
    quarantine: dict[str, str] = attrs.field(factory=dict)
    """Path of a znode that cannot be used, and why."""
    poisoned: dict[TopicPartition, str] = attrs.field(factory=dict)
    """Partitions that are left alone because of a quarantined znode or a failing rule."""
    departed: dict[TopicPartition, TopicId | None] = attrs.field(factory=dict)
    """Of topics deleted in this term, the last `DEPARTED_MAX`, with their topic's id: a broker
    that was away then, or would not hear of it, has them in its metadata cache still."""

    _unindexed: dict[BrokerId, list[TopicPartition]] = attrs.field(factory=dict, repr=False)
    """Partitions that `add_unread` took in and `by_broker` does not know yet."""
    _unread: dict[Assignment | Replicas, Row] = attrs.field(factory=dict, repr=False)
    """The row that all unread partitions of an assignment share."""
    _assignments: dict[Assignment, Assignment] = attrs.field(factory=dict, repr=False)
    _replicas: dict[Replicas, Replicas] = attrs.field(factory=dict, repr=False)
    _states: dict[tuple[ReplicaState, ...], tuple[ReplicaState, ...]] = attrs.field(
        factory=dict, repr=False
    )
    """Apart from `_replicas`: states are numbers too, and compare as such."""

    # -- what the release of the oldest broker allows ---------------------------------------

    @property
    def has_topic_ids(self) -> bool:
        return self.release >= TOPIC_IDS_SINCE

    @property
    def has_recovery_state(self) -> bool:
        return self.release >= RECOVERY_STATE_SINCE

    @property
    def leaders_use_alter_partition(self) -> bool:
        return self.release >= ALTER_PARTITION_SINCE

    # -- brokers ----------------------------------------------------------------------------

    def add_broker(self, broker: Broker) -> None:
        self.brokers[broker.id] = broker
        if broker.id not in self.shutting_down:
            self.live[broker.id] = None
        self.membership += 1
        # What the others answered to ApiVersions stays true until this one answers otherwise,
        # unless its registration says already that it is older.
        registered = self._registered_release()
        old = registered < ALTER_PARTITION_SINCE
        self._settle_release(registered if old else max(self.release, registered))

    def remove_broker(self, broker: BrokerId) -> None:
        del self.brokers[broker]
        self.live.pop(broker, None)
        self.shutting_down.pop(broker, None)
        self.told.pop(broker, None)
        self.offline_dirs.pop(broker, None)
        self.membership += 1
        self._settle_release(max(self.release, self._registered_release()))

    def update_broker(self, broker: Broker) -> None:
        self.brokers[broker.id] = broker
        self.membership += 1

    def begin_shutdown(self, broker: BrokerId) -> None:
        self.shutting_down[broker] = None
        self.live.pop(broker, None)

    def raise_release(self, release: Release) -> None:
        """What ApiVersions told about the oldest live broker; registrations tell less."""
        self._settle_release(max(self._registered_release(), release))

    def _settle_release(self, release: Release) -> None:
        configured = self.settings.inter_broker_protocol
        self.release = release if configured is None else configured

    def _registered_release(self) -> Release:
        old = any(b.registration_version < 5 for b in self.brokers.values())
        return OLDEST_RELEASE if old else ALTER_PARTITION_SINCE

    def is_online(self, broker: BrokerId, tp: TopicPartition) -> bool:
        return broker in self.live and not (
            self.offline_dirs and tp in self.offline_dirs.get(broker, ())
        )

    def online_replicas(self, tp: TopicPartition, replicas: Replicas) -> Replicas:
        live = self.live
        if self.offline_dirs:
            return tuple([b for b in replicas if self.is_online(b, tp)])
        for broker in replicas:
            if broker not in live:
                return tuple([b for b in replicas if b in live])
        return replicas

    # -- topics -----------------------------------------------------------------------------

    def add_topic(self, name: str, topic_id: TopicId | None, zk_version: int) -> Topic:
        topic = self.topics[name] = Topic(topic_id, zk_version)
        if topic_id is not None:
            self.topic_names[topic_id] = name
        return topic

    def set_topic_id(self, name: str, topic_id: TopicId) -> None:
        self.topics[name].id = topic_id
        self.topic_names[topic_id] = name

    def remove_topic(self, name: str) -> None:
        """Forget all about it; a topic created again under this name is another topic."""
        topic = self.topics.pop(name)
        for tp in topic.partitions.values():
            self._forget(tp)
        if topic.id is not None and self.topic_names.get(topic.id) == name:
            del self.topic_names[topic.id]
        self.deletions.pop(name, None)

    def depart(self, name: str) -> None:
        """It was deleted: forget it, but for what brokers may still have to be told."""
        topic = self.topics[name]
        for tp in topic.partitions.values():
            self.departed.pop(tp, None)
            self.departed[tp] = topic.id
        for tp in list(islice(self.departed, max(0, len(self.departed) - DEPARTED_MAX))):
            del self.departed[tp]
        self.remove_topic(name)

    def partitions_of(self, topic: str) -> Iterable[TopicPartition]:
        return self.topics[topic].partitions.values()

    def partitions_on(self, broker: BrokerId) -> Mapping[TopicPartition, None]:
        return self.by_broker.get(broker, {})

    def is_led(self, tp: TopicPartition) -> bool:
        """Not in deletion, or its deletion waits for its reassignment.

        Without a leader the reassignment could not end, and the deletion would wait for ever.
        """
        deletion = self.deletions.get(tp.topic)
        return deletion is None or (not deletion.started and tp in self.reassigning)

    # -- rows -------------------------------------------------------------------------------

    def put(self, tp: TopicPartition, row: Row) -> None:
        """The only way to change a row. Refuses what the transition tables do not allow."""
        old = self.rows.get(tp)
        if old is None:
            self._index_new(tp, row)
            self.rows[tp] = row
            self._index_state(tp, row)
            self._index_leader(tp, row)
        else:
            self.replace(tp, old, row)

    def replace(self, tp: TopicPartition, old: Row, row: Row) -> None:
        """`put` for whoever has just looked the row up."""
        same_assignment = old.assignment is row.assignment
        if old.state is not row.state and old.state not in PARTITION_CAME_FROM[row.state]:
            raise IllegalTransition(f"{tp}: partition from {old.state.name} to {row.state.name}")
        if not same_assignment or not may_follow(old.replica_states, row.replica_states):
            check_replicas(tp, old, row)
        if not same_assignment:
            self._reindex(tp, old, row)
        if self.deletions and tp.topic in self.deletions:
            self._recount(tp.topic, old, row)
        self.rows[tp] = row
        if old.state is not row.state:
            self._index_state(tp, row)
        if old.leadership is not row.leadership or not same_assignment:
            self._index_leader(tp, row)

    def _index_state(self, tp: TopicPartition, row: Row) -> None:
        state = row.state
        if state is PartitionState.ONLINE or state is PartitionState.NON_EXISTENT:
            self.not_online.pop(tp, None)
        else:
            self.not_online[tp] = None

    def _index_leader(self, tp: TopicPartition, row: Row) -> None:
        leadership = row.leadership
        if leadership is not None and leadership.leader != row.assignment.replicas[0]:
            self.unbalanced[tp] = None
        else:
            self.unbalanced.pop(tp, None)

    def add_unread(self, topic: str, partitions: Mapping[int, Assignment]) -> None:
        """Partitions known by name, of a topic just added; `load` gives each its true state.

        Until then no index of states knows them: nearly all will turn out to be Online. Nor does
        `by_broker`, until `index_unread`: its dicts would grow at the same time, and a dict that
        grows is copied. With 100 brokers and a million partitions that takes half a second.
        """
        index = self.topics[topic].partitions
        rows, unread, unindexed = self.rows, self._unread, self._unindexed
        for partition, found in partitions.items():
            # The hash of an assignment is that of three tuples, and two of them are nearly always empty.
            key = found if found.adding or found.removing else found.replicas
            row = unread.get(key)
            if row is None:
                states = self.share_states((ReplicaState.NEW,) * len(found.replicas))
                row = unread[key] = Row(self.share(found), None, PartitionState.NEW, states)
            assignment = row.assignment
            tp = index[partition] = TopicPartition(topic, partition)
            rows[tp] = row
            for broker in assignment.replicas:
                on_it = unindexed.get(broker)
                if on_it is None:
                    unindexed[broker] = [tp]
                else:
                    on_it.append(tp)
            if assignment.adding or assignment.removing:
                self.reassigning[tp] = None

    def index_unread(self) -> bool:
        """Index a portion of what `add_unread` took in; whether there is more."""
        room = INDEX_PORTION
        while self._unindexed and room > 0:
            broker, tps = next(iter(self._unindexed.items()))
            portion = tps[:room]
            del tps[:room]
            room -= len(portion)
            self.by_broker.setdefault(broker, {}).update(dict.fromkeys(portion))
            if not tps:
                del self._unindexed[broker]
        if not self._unindexed:
            self._unread.clear()
        return bool(self._unindexed)

    def load(self, tp: TopicPartition, row: Row) -> None:
        """The first true state of a row known by name only, or not understood for a while.

        No transition, a beginning.
        """
        known = self.rows[tp].leadership is not None
        assert not known or tp in self.poisoned, f"{tp} was loaded already"
        old = self.rows[tp]
        if tp.topic in self.deletions:
            self._recount(tp.topic, old, row)
        self.rows[tp] = row
        self._index_state(tp, row)
        self._index_leader(tp, row)

    def load_healthy(
        self,
        tp: TopicPartition,
        assignment: Assignment,
        leadership: Leadership,
        states: tuple[ReplicaState, ...],
    ) -> None:
        """The same for a row whose replicas are all alive and in the ISR, as nearly all are."""
        assert not self.deletions, "these are looked for after the load"
        replicas = assignment.replicas
        shared = leadership.with_shared(replicas)
        self.rows[tp] = Row(assignment, shared, PartitionState.ONLINE, states)
        if leadership.leader != replicas[0]:
            self.unbalanced[tp] = None

    def replace_unborn(self, tp: TopicPartition, row: Row) -> None:
        """Another assignment for a partition that has no state yet: nothing of it existed."""
        assert self.rows[tp].leadership is None, f"{tp} has lived already"
        self._forget(tp)
        self.put(tp, row)

    def share(self, assignment: Assignment) -> Assignment:
        """The one instance of an assignment that all rows share."""
        shared = self._assignments.get(assignment)
        if shared is None:
            shared = self._assignments[assignment] = assignment
            self._replicas.setdefault(shared.replicas, shared.replicas)
        return shared

    def share_replicas(self, replicas: Replicas) -> Replicas:
        """The same for an ISR, which mostly is one of the assignments' replicas."""
        return self._replicas.setdefault(replicas, replicas)

    def share_states(self, states: tuple[ReplicaState, ...]) -> tuple[ReplicaState, ...]:
        return self._states.setdefault(states, states)

    def queue_deletion(self, topic: str) -> Deletion:
        deletion = self.deletions.get(topic)
        if deletion is None:
            deletion = self.deletions[topic] = Deletion()
            for tp in self.partitions_of(topic):
                for state in self.rows[tp].replica_states:
                    deletion.counts[state] = deletion.counts.get(state, 0) + 1
        return deletion

    def poison(self, tp: TopicPartition, path: str, reason: str) -> None:
        self.poisoned[tp] = path
        self.quarantine[path] = reason

    def heal(self, path: str) -> None:
        self.quarantine.pop(path, None)
        for tp in [tp for tp, poison in self.poisoned.items() if poison == path]:
            del self.poisoned[tp]

    @property
    def controller_ids(self) -> tuple[BrokerId, ...]:
        """This controller and others of its kind: never replicas. Our own is the first."""
        settings = self.settings
        others = (*settings.controller_ids, *self.seen_controllers)
        known = [i for i in others if i not in self.brokers]
        return tuple(dict.fromkeys((settings.controller_id, *known)))

    def fork(self) -> "ClusterState":
        """A copy to try things on. Rows are shared, they never change; topics until they do.

        `by_broker` is copied at once: one new topic may touch every broker, and sharing would only
        move the cost from the fork to that moment.
        """
        return attrs.evolve(
            self,
            brokers=dict(self.brokers),
            shutting_down=dict(self.shutting_down),
            live=dict(self.live),
            offline_dirs={b: dict(tps) for b, tps in self.offline_dirs.items()},
            told=dict(self.told),
            topics={name: topic.fork() for name, topic in self.topics.items()},
            topic_names=dict(self.topic_names),
            rows=self.rows.copy(),
            by_broker={b: tps.copy() for b, tps in self.by_broker.items()},
            not_online=dict(self.not_online),
            unbalanced=dict(self.unbalanced),
            reassigning=dict(self.reassigning),
            deletions={
                name: Deletion(d.started, d.ineligible, dict(d.counts))
                for name, d in self.deletions.items()
            },
            quarantine=dict(self.quarantine),
            poisoned=dict(self.poisoned),
            departed=dict(self.departed),
            unread=self._unread,
            unindexed={b: list(tps) for b, tps in self._unindexed.items()},
            assignments=self._assignments,
            replicas=self._replicas,
            states=self._states,
        )

    # -- indexes ----------------------------------------------------------------------------

    def _index_new(self, tp: TopicPartition, row: Row) -> None:
        self.topics[tp.topic].add(tp)
        for broker in row.assignment.replicas:
            self.by_broker.setdefault(broker, {})[tp] = None
        if row.assignment.is_reassigning:
            self.reassigning[tp] = None
        if tp.topic in self.deletions:
            counts = self.deletions[tp.topic].counts
            for state in row.replica_states:
                counts[state] = counts.get(state, 0) + 1

    def _reindex(self, tp: TopicPartition, old: Row, row: Row) -> None:
        for broker in old.assignment.replicas:
            if broker not in row.assignment.replicas:
                self.by_broker[broker].pop(tp, None)
                if broker in self.offline_dirs:
                    self.offline_dirs[broker].pop(tp, None)
        for broker in row.assignment.replicas:
            self.by_broker.setdefault(broker, {})[tp] = None

    def _recount(self, topic: str, old: Row, row: Row) -> None:
        counts = self.deletions[topic].counts
        for state in old.replica_states:
            counts[state] -= 1
        for state in row.replica_states:
            counts[state] = counts.get(state, 0) + 1

    def _forget(self, tp: TopicPartition) -> None:
        row = self.rows.pop(tp)
        for broker in row.assignment.replicas:
            self.by_broker[broker].pop(tp, None)
        self.not_online.pop(tp, None)
        self.unbalanced.pop(tp, None)
        self.reassigning.pop(tp, None)
        self.poisoned.pop(tp, None)
        for dirs in self.offline_dirs.values():
            dirs.pop(tp, None)


@attrs.define
class Node:
    """This controller as a candidate: who is active, and the cluster while it is this one."""

    settings: Settings
    active_id: BrokerId | None = None
    cluster: ClusterState | None = None
    """Present exactly while this node is the active controller."""
    registered: bool = False
    """Whether this node has put itself into `/brokers/ids`."""
    seen_controllers: dict[BrokerId, None] = attrs.field(factory=dict)
    """Others of this kind that were in office: brokers may still take them for brokers."""
