"""A fork and its origin share what neither has changed, and see nothing of each other's changes."""

import pytest

from kctl.model.cluster import ClusterState
from kctl.model.invariants import violations
from kctl.model.names import TopicPartition
from kctl.model.rows import Assignment, Row
from kctl.model.states import PartitionState, ReplicaState
from tests.logic.notation import build_cluster

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def grow(cluster: ClusterState) -> None:
    states = (ReplicaState.NEW, ReplicaState.NEW)
    cluster.put(T1, Row(Assignment((2, 3)), None, PartitionState.NEW, states))


def move(cluster: ClusterState) -> None:
    row = cluster.rows[T0]
    cluster.put(T0, row.reassigned(cluster.share(row.assignment.reassign_to((2, 3)))))


def drop(cluster: ClusterState) -> None:
    cluster.remove_topic("t")


def read_another(cluster: ClusterState) -> None:
    cluster.add_topic("u", None, 0)
    cluster.add_unread("u", {0: Assignment((1, 3))})


def indexes(cluster: ClusterState) -> object:
    return (
        dict(cluster.rows),
        {name: dict(topic.partitions) for name, topic in cluster.topics.items()},
        {broker: dict(tps) for broker, tps in cluster.by_broker.items()},
    )


@pytest.mark.parametrize("change", [grow, move, drop, read_another])
@pytest.mark.parametrize("changed", ["the fork", "the origin", "a fork of the fork"])
def test_a_change_stays_where_it_is_made(change: object, changed: str) -> None:
    assert callable(change)
    origin = build_cluster("t-0: 1*,2", brokers=(3,))
    fork = origin.fork()
    second = fork.fork()
    clusters = {"the origin": origin, "the fork": fork, "a fork of the fork": second}
    before = indexes(origin)
    change(clusters[changed])
    assert indexes(clusters[changed]) != before
    for name, cluster in clusters.items():
        if name != changed:
            assert indexes(cluster) == before, name


def test_both_may_change() -> None:
    origin = build_cluster("t-0: 1*,2", brokers=(3,))
    fork = origin.fork()
    grow(origin)
    drop(fork)
    assert T1 in origin.partitions_on(3)
    assert not fork.partitions_on(1)
    assert violations(origin) == []
    assert violations(fork) == []
