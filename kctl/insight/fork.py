"""A copy of a cluster on which the core decides, with brokers that do what they are told.

Events go in one by one, and everything that follows from them happens at once.
"""

from collections.abc import Iterable, Mapping

import attrs

from kctl.logic.broker_changes import usable_brokers
from kctl.logic.failover import load_state
from kctl.logic.topics import load_topics
from kctl.messages import events as ev
from kctl.messages.driver import Finished, Procedure, step
from kctl.messages.effects import ControllerNode, Flush
from kctl.messages.outbox import Outbox
from kctl.messages.requests import Dispatch, StopReplicaRequest
from kctl.model.cluster import ClusterState, Node
from kctl.model.codes import Code
from kctl.model.names import TopicPartition
from kctl.model.rows import Replicas
from kctl.model.settings import Settings
from kctl.model.states import ReplicaState
from kctl.simulation.memory import DryController, MemoryZooKeeper, Recorded

PLANNER_ID = 2**31 - 1
"""Nobody's id: the planner must not look like a misplaced replica."""


GONE = (ReplicaState.OFFLINE, ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL)
"""The way of a replica that is deleted."""


def copied(zookeeper: MemoryZooKeeper) -> MemoryZooKeeper:
    return attrs.evolve(
        zookeeper,
        brokers=dict(zookeeper.brokers),
        topics=dict(zookeeper.topics),
        states=dict(zookeeper.states),
        configs=dict(zookeeper.configs),
        deletions=dict(zookeeper.deletions),
        isr_notifications=dict(zookeeper.isr_notifications),
        log_dir_notifications=dict(zookeeper.log_dir_notifications),
        watched=dict(zookeeper.watched),
    )


def known_cluster(zookeeper: MemoryZooKeeper, settings: Settings) -> ClusterState:
    """What a controller in office knows, and nothing that it would do about it."""
    cluster = ClusterState(settings, zookeeper.epoch, zookeeper.epoch_zk_version)
    outbox = Outbox()
    for broker in usable_brokers(cluster, zookeeper.brokers, outbox).values():
        cluster.add_broker(broker)
    at_once(load_topics(cluster, zookeeper.topics, outbox, unread=True))
    while cluster.index_unread():
        pass  # nobody waits meanwhile
    for tp in list(cluster.rows):
        load_state(cluster, tp, zookeeper.states.get(tp, Code.NO_NODE), outbox)
        row = cluster.rows[tp]
        offline = [b for b in row.replicas if not cluster.is_online(b, tp)]
        if offline and tp.topic not in zookeeper.deletions:
            cluster.put(tp, row.with_replicas_in(offline, ReplicaState.OFFLINE))
    return cluster


def at_once(procedure: Procedure) -> None:
    """Run a part of the core that only pauses and wants nothing."""
    while not isinstance(wanted := step(procedure), Finished):
        assert isinstance(wanted, Flush), f"a reader cannot perform {wanted!r}"


class Fork:
    def __init__(
        self,
        zookeeper: MemoryZooKeeper,
        settings: Settings | None = None,
        deleted: Mapping[TopicPartition, Replicas] | None = None,
    ) -> None:
        """As a controller in office would know it. The original stays as it is.

        `deleted` are replicas that are gone already while the rest of their topic is still there: a
        controller remembers that, ZooKeeper does not.
        """
        self.zookeeper = attrs.evolve(
            copied(zookeeper), controller=ControllerNode(-1, ours=True, kctl=True)
        )
        settings = settings or Settings(PLANNER_ID)
        cluster = known_cluster(self.zookeeper, settings)
        for tp, brokers in (deleted or {}).items():
            if tp in cluster.rows and tp.topic in self.zookeeper.deletions:
                for state in GONE:
                    cluster.put(tp, cluster.rows[tp].with_replicas_in(brokers, state))
        self._controller = DryController(self.zookeeper, Node(settings, PLANNER_ID, cluster))
        self._callers = 0
        if self.zookeeper.deletions:
            self.run(ev.TopicDeletion())

    @classmethod
    def taking_office(cls, zookeeper: MemoryZooKeeper, settings: Settings | None = None) -> "Fork":
        """As a new controller would leave it: what is already due is done."""
        fork = cls(zookeeper, settings)
        fork.zookeeper.controller = None
        fork._controller = DryController.of(settings or Settings(PLANNER_ID), fork.zookeeper)
        fork.run(ev.Startup())
        return fork

    @property
    def cluster(self) -> ClusterState:
        return self._controller.cluster

    def caller(self) -> int:
        self._callers += 1
        return self._callers

    def run(self, *events: ev.Event) -> Recorded:
        """Handle these and what follows; live brokers delete what they are told to delete."""
        recorded = self._controller.run(*events)
        answered = 0
        while answers := list(_deletions_done(recorded.dispatches[answered:])):
            answered = len(recorded.dispatches)
            more = self._controller.run(*answers)
            recorded.effects += more.effects
            recorded.dispatches += more.dispatches
            recorded.answers += more.answers
            recorded.stories += more.stories
        return recorded

    def deleted_replicas(self) -> dict[TopicPartition, Replicas]:
        """Of topics whose deletion is not through yet."""
        successful = ReplicaState.DELETION_SUCCESSFUL
        found: dict[TopicPartition, Replicas] = {}
        for topic in self.cluster.deletions:
            for tp in self.cluster.partitions_of(topic):
                row = self.cluster.rows[tp]
                gone = tuple(b for b in row.replicas if row.replica_state(b) is successful)
                if gone:
                    found[tp] = gone
        return found

    def change_isr(
        self, tp: TopicPartition, joined: Iterable[int], left: Iterable[int]
    ) -> Recorded | None:
        """What the leader would ask for; None if there is no live leader, or nothing to ask for."""
        row = self.cluster.rows.get(tp)
        if row is None or row.leadership is None or row.leader not in self.cluster.brokers:
            return None
        gone = [b for b in left if b != row.leader]
        isr: Replicas = tuple(dict.fromkeys((*row.isr, *joined)))
        isr = tuple(b for b in isr if b not in gone)
        if set(isr) == set(row.isr):
            return None
        proposal = ev.IsrProposal(isr, row.leadership.leader_epoch, row.leadership.zk_version)
        epoch = self.cluster.brokers[row.leader].epoch
        return self.run(
            ev.AlterPartitionReceived(self.caller(), row.leader, epoch, partitions={tp: proposal})
        )

    def fork(self) -> "Fork":
        """A copy to try something on."""
        other = object.__new__(Fork)
        other.zookeeper = copied(self.zookeeper)
        node = self._controller.node
        other._controller = DryController(
            other.zookeeper,
            Node(node.settings, node.active_id, self.cluster.fork(), node.registered),
        )
        other._callers = self._callers
        return other


def _deletions_done(dispatches: Iterable[Dispatch]) -> Iterable[ev.Event]:
    for dispatch in dispatches:
        if isinstance(dispatch, StopReplicaRequest):
            deleted = {tp: 0 for tp, order in dispatch.partitions.items() if order.delete}
            if deleted:
                yield ev.TopicDeletionStopReplicaResponseReceived(
                    dispatch.broker, dispatch.broker_epoch, 0, deleted
                )
