"""Clusters with a history: a controller in office on a memory ZooKeeper, made from a seed."""

import random

import attrs

from kctl.insight.fork import copied
from kctl.insight.snapshot import Snapshot
from kctl.messages import events as ev
from kctl.messages.effects import TopicNode
from kctl.messages.requests import StopReplicaRequest
from kctl.model.brokers import Broker, Endpoint
from kctl.model.names import TopicPartition
from kctl.model.rows import Assignment, Leadership, Replicas
from kctl.model.settings import Settings
from kctl.simulation.memory import DryController, MemoryZooKeeper

CONTROLLER = 1000
UNCLEAN = "unclean.leader.election.enable"
Picture = dict[TopicPartition, tuple[Replicas, tuple[int, ...], int, tuple[int, ...]]]
"""Replicas, those on the move, leader, and the ISR as a set."""


@attrs.define
class RandomCluster:
    seed: int
    dice: random.Random = attrs.field(init=False)
    controller: DryController = attrs.field(init=False)
    callers: int = 0
    epochs: int = 100

    def __attrs_post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        ids = list(range(1, self.dice.randint(3, 9)))
        zookeeper = MemoryZooKeeper(brokers={b: self.registration(b) for b in ids})
        for number in range(self.dice.randint(1, 6)):
            partitions = {
                p: Assignment(tuple(self.dice.sample(ids, self.dice.randint(1, min(4, len(ids))))))
                for p in range(self.dice.randint(1, 8))
            }
            name = f"t{number}"
            zookeeper.topics[name] = TopicNode(partitions, f"{name}{'A' * 19}w", 0)
            if self.dice.random() < 0.5:
                allowed = self.dice.choice(["true", "false"])
                config = {UNCLEAN: allowed, "min.insync.replicas": str(self.dice.randint(1, 3))}
                zookeeper.configs[name] = config
        settings = Settings(CONTROLLER, auto_leader_rebalance=False)
        self.controller = DryController.of(settings, zookeeper)
        self.controller.run(ev.Startup())
        for _ in range(self.dice.randint(0, 12)):
            self.dice.choice([self.lose, self.regain, self.shrink, self.grow, self.move])()

    def registration(self, broker: int) -> Broker:
        self.epochs += 1
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 9000 + broker)
        return Broker(broker, self.epochs, (endpoint,), rack="abc"[broker % 3])

    @property
    def alive(self) -> list[int]:
        return list(self.controller.cluster.brokers)

    @property
    def dead(self) -> list[int]:
        rows = self.controller.cluster.rows.values()
        return sorted({b for row in rows for b in row.replicas} - set(self.alive))

    def caller(self) -> int:
        self.callers += 1
        return self.callers

    # -- what happens -------------------------------------------------------------------------

    def die(self, *brokers: int) -> None:
        for broker in brokers:
            del self.controller.zookeeper.brokers[broker]
        self.controller.run(ev.BrokerChange())

    def lose(self) -> None:
        if len(self.alive) > 1:
            self.die(self.dice.choice(self.alive))

    def regain(self) -> None:
        if self.dead:
            broker = self.dice.choice(self.dead)
            self.controller.zookeeper.brokers[broker] = self.registration(broker)
            self.controller.run(ev.BrokerChange())

    def shrink(self) -> None:
        for tp in self.some_partitions():
            row = self.controller.cluster.rows[tp]
            self.ask_for(
                tp, tuple(b for b in row.isr if b == row.leader or self.dice.random() < 0.5)
            )

    def grow(self) -> None:
        for tp in self.some_partitions():
            row = self.controller.cluster.rows[tp]
            self.join(tp, row.replicas)

    def join(self, tp: TopicPartition, replicas: Replicas) -> None:
        row = self.controller.cluster.rows[tp]
        alive = tuple(b for b in replicas if b in self.alive)
        self.ask_for(tp, tuple(dict.fromkeys((*row.isr, *alive))))

    def ask_for(self, tp: TopicPartition, isr: Replicas) -> None:
        leadership = self.controller.cluster.rows[tp].leadership
        if leadership is None or leadership.leader not in self.controller.cluster.brokers:
            return
        epoch = self.controller.cluster.brokers[leadership.leader].epoch
        proposal = ev.IsrProposal(isr, leadership.leader_epoch, leadership.zk_version)
        self.controller.run(
            ev.AlterPartitionReceived(
                self.caller(), leadership.leader, epoch, partitions={tp: proposal}
            )
        )

    def move(self) -> None:
        self.reassign({tp: self.some_replicas() for tp in self.some_partitions()})

    def some_partitions(self) -> list[TopicPartition]:
        rows = list(self.controller.cluster.rows)
        return self.dice.sample(rows, min(3, len(rows)))

    def some_replicas(self) -> Replicas:
        return tuple(self.dice.sample(self.alive, self.dice.randint(1, min(3, len(self.alive)))))

    def shut_down(self, broker: int) -> None:
        self.controller.run(ev.ControlledShutdown(self.caller(), broker))
        self.die(broker)

    def reassign(self, targets: dict[TopicPartition, Replicas]) -> None:
        recorded = self.controller.run(ev.ApiPartitionReassignment(self.caller(), targets))
        for dispatch in recorded.dispatches:
            assert not isinstance(dispatch, StopReplicaRequest) or dispatch.partitions

    def elect_preferred(self) -> None:
        kind, trigger = ev.ElectionType.PREFERRED, ev.ElectionTrigger.ADMIN_CLIENT
        self.controller.run(ev.ReplicaLeaderElection(self.caller(), None, kind, trigger))

    # -- what is there ------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        return Snapshot(copied(self.controller.zookeeper), CONTROLLER, controller_is_kctl=True)

    def picture(self) -> Picture:
        return picture(self.controller.zookeeper)


def picture(zookeeper: MemoryZooKeeper) -> Picture:
    found: Picture = {}
    for topic, node in zookeeper.topics.items():
        assert isinstance(node, TopicNode)
        for partition, assignment in node.partitions.items():
            tp = TopicPartition(topic, partition)
            state = zookeeper.states[tp]
            assert isinstance(state, Leadership)
            moving = (*sorted(assignment.adding), *sorted(assignment.removing))
            found[tp] = (assignment.replicas, moving, state.leader, tuple(sorted(state.isr)))
    return found
