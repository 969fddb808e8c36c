"""Events in interesting clusters, for tests that break them off, lose their replies, or storm them.

Each scenario builds the same world every time and names the event to be broken. What must come out
in the end is what comes out undisturbed: same leaders, ISRs as sets, assignments and topics.
"""

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from kctl.messages import events as ev
from kctl.messages.effects import TopicNode
from kctl.model.codes import Malformed
from kctl.model.names import TopicPartition
from kctl.model.rows import Assignment, Leadership
from tests.logic.notation import broker, topic_id, tp_of
from tests.logic.world import World, build_zookeeper, notified


@attrs.frozen
class Scenario:
    build: Callable[[], World]
    event: ev.Event
    once_only: bool = False
    """What nobody repeats or sees again: broken off early, it may not have happened at all."""


def elected(*lines: str, **options: Any) -> World:
    settings = {k: v for k, v in options.items() if k not in ("dead", "brokers")}
    cluster = {k: v for k, v in options.items() if k in ("dead", "brokers")}
    world = World.over(build_zookeeper(*lines, **cluster), **settings)
    world.run(ev.Startup())
    return world


def killed() -> World:
    world = elected("t-0: 1*,2,3", "t-1: 2*,1,3", "t-2: 1*", "u-0: 3*,1 isr=3")
    del world.zk.brokers[1]
    return world


def started() -> World:
    world = elected("t-0: 1,2*,3 isr=2,3", "t-1: 1 isr=1", "t-2: 1,4 new", dead=(1, 4))
    world.zk.brokers[1] = broker(1, 900)
    return world


def bounced() -> World:
    world = elected("t-0: 1*,2,3", "t-1: 2*,1", "t-2: 1*")
    world.zk.brokers[1] = broker(1, 900)
    return world


def all_dead() -> World:
    world = elected("t-0: 1*,2", "t-1: 2*,1", brokers=(3,))
    del world.zk.brokers[1], world.zk.brokers[2]
    return world


def created() -> World:
    world = elected("t-0: 1*,2", brokers=(3,))
    partitions = {0: Assignment((1, 2)), 1: Assignment((2, 1000)), 2: Assignment((9, 3))}
    world.zk.topics["new"] = TopicNode(partitions, None, 0)
    return world


def grown() -> World:
    world = elected("t-0: 1*,2")
    known = world.zk.topics["t"]
    assert isinstance(known, TopicNode)
    world.zk.topics["t"] = TopicNode({**known.partitions, 1: Assignment((2, 1))}, topic_id("t"), 1)
    return world


def marked(*, dead: bool = False) -> World:
    world = elected("t-0: 1*,2,3", "t-1: 2*,3,1", "u-0: 1*,2", dead=(3,) if dead else ())
    world.zk.configs["t"] = {"retention.ms": "1"}
    world.zk.deletions["t"] = None
    return world


def deleting() -> World:
    world = elected("t-0: 1*", "u-0: 1*")
    world.delete("t")
    return world


def moving() -> World:
    world = elected("t-0: 1*,2", "t-1: 1*,2", brokers=(3, 4))
    world.reassign(t_0=(3, 4))
    return world


def to_be_moved() -> World:
    return elected("t-0: 1*,2", "t-1: 1*,2", brokers=(3, 4))


def moving_by_znode() -> World:
    world = elected("t-0: 1*,2", "t-1: 1*,2", brokers=(3, 4))
    world.zk.reassignments = {tp_of("t-0"): (3, 2), tp_of("t-1"): (2, 1)}
    return world


def to_be_balanced() -> World:
    return elected("t-0: 1,2*", "t-1: 1,2*", "t-2: 1,2*")


def asked_to_balance() -> World:
    world = elected("t-0: 1,2*", "t-1: 1,2* isr=2")
    world.zk.preferred_election = (tp_of("t-0"), tp_of("t-1"))
    return world


def notified_of_an_isr() -> World:
    world = elected("t-0: 1*,2", inter_broker_protocol=(2, 6))
    world.zk.states[tp_of("t-0")] = Leadership(1, (1,), 0, 1, 1)
    world.zk.isr_notifications.update(notified(a=["t-0"]))
    return world


def in_disorder() -> World:
    """Everything at once, for a controller that is yet to be elected."""
    zk = build_zookeeper(
        *("t-0: 1*,2,3 epoch=4", "t-1: 3*,1", "t-2: 2,1 new", "gone-0: 2*,3", "gone-1: 2* epoch=1"),
        *(
            "move-0: 4,2*,3 adding=4 removing=3 isr=2,3",
            "own-0: 1000,2 new",
            "done-0: 2*,4 isr=2,4",
        ),
        dead=(1, 1000),
    )
    zk.deletions["gone"] = None
    zk.deletions["nobody"] = None
    zk.reassignments = {tp_of("done-0"): (4, 2)}
    zk.preferred_election = (tp_of("t-1"),)
    return World.over(zk)


T0 = tp_of("t-0")
SCENARIOS: Mapping[str, Scenario] = {
    "failover": Scenario(in_disorder, ev.Startup()),
    "a broker dies": Scenario(killed, ev.BrokerChange()),
    "a broker starts": Scenario(started, ev.BrokerChange()),
    "a broker bounces": Scenario(bounced, ev.BrokerChange(), once_only=True),
    "all replicas die": Scenario(all_dead, ev.BrokerChange()),
    "a topic appears": Scenario(created, ev.TopicChange()),
    "a topic grows": Scenario(grown, ev.PartitionModifications("t")),
    "a topic is marked": Scenario(marked, ev.TopicDeletion()),
    "a topic is marked, a broker is dead": Scenario(lambda: marked(dead=True), ev.TopicDeletion()),
    "a deletion ends": Scenario(
        deleting, ev.TopicDeletionStopReplicaResponseReceived(1, 101, 0, {T0: 0})
    ),
    "a reassignment begins": Scenario(
        to_be_moved, ev.ApiPartitionReassignment(9, {T0: (3, 4)}), once_only=True
    ),
    "a reassignment ends": Scenario(
        moving,
        ev.AlterPartitionReceived(9, 1, 101, 1, {T0: ev.IsrProposal((1, 2, 3, 4), 1, 1)}),
    ),
    "a reassignment is cancelled": Scenario(
        moving, ev.ApiPartitionReassignment(9, {T0: None}), once_only=True
    ),
    "a reassignment by znode": Scenario(moving_by_znode, ev.ZkPartitionReassignment()),
    "the balance timer": Scenario(
        to_be_balanced, ev.AutoPreferredReplicaLeaderElection(), once_only=True
    ),
    "a preferred election by znode": Scenario(asked_to_balance, ev.ReplicaLeaderElection()),
    "a controlled shutdown": Scenario(
        to_be_moved, ev.ControlledShutdown(9, 1, 101), once_only=True
    ),
    "an ISR notification": Scenario(notified_of_an_isr, ev.IsrChangeNotification()),
    "topics by request": Scenario(
        to_be_moved, ev.CreateTopics(9, (ev.NewTopic("new", 2, 2),)), once_only=True
    ),
    "growth by request": Scenario(
        to_be_moved, ev.CreatePartitions(9, (ev.NewPartitions("t", 4),)), once_only=True
    ),
    "deletion by request": Scenario(
        to_be_moved, ev.DeleteTopics(9, (("t", None),)), once_only=True
    ),
    "a failed log dir": Scenario(
        to_be_moved,
        ev.LeaderAndIsrResponseReceived(1, 101, 0, {T0: 56}),
        once_only=True,
    ),
}


def outcome(world: World) -> dict[str, object]:
    """What counts in the end; epochs and the order of ISRs do not."""
    partitions: dict[TopicPartition, object] = {}
    for topic, node in world.zk.topics.items():
        assert isinstance(node, TopicNode)
        for number, assignment in node.partitions.items():
            tp = TopicPartition(topic, number)
            state = world.zk.states.get(tp)
            assert not isinstance(state, Malformed)
            held = None if state is None else (state.leader, frozenset(state.isr))
            partitions[tp] = (assignment, held)
    return {
        "partitions": partitions,
        "ids": {t: n.topic_id is not None for t, n in world.zk.topics.items()},  # type: ignore[union-attr]
        "deletions": dict(world.zk.deletions),
        "configs": set(world.zk.configs),
        "reassignments": world.zk.reassignments,
        "preferred election": world.zk.preferred_election,
        "notifications": dict(world.zk.isr_notifications),
    }
