"""The two transition tables: what they allow happens, everything else raises and changes nothing.

The tables of Kafka are written out here once more, by hand, so that a slip in one shows.
"""

from typing import TypeAlias

import pytest

from kctl.model.cluster import ClusterState
from kctl.model.names import TopicPartition
from kctl.model.rows import Assignment, Row
from kctl.model.settings import Settings
from kctl.model.states import (
    PARTITION_CAME_FROM,
    REPLICA_CAME_FROM,
    IllegalTransition,
    PartitionState,
    ReplicaState,
)

P: TypeAlias = PartitionState
R: TypeAlias = ReplicaState
TP = TopicPartition("t", 0)

PARTITIONS_MAY = {
    (P.NON_EXISTENT, P.NEW),
    *((P.NEW, P.ONLINE), (P.ONLINE, P.ONLINE), (P.OFFLINE, P.ONLINE)),
    *((P.NEW, P.OFFLINE), (P.ONLINE, P.OFFLINE), (P.OFFLINE, P.OFFLINE)),
    (P.OFFLINE, P.NON_EXISTENT),
}
REPLICAS_MAY = {
    (R.NON_EXISTENT, R.NEW),
    *((R.NEW, R.ONLINE), (R.ONLINE, R.ONLINE), (R.OFFLINE, R.ONLINE)),
    (R.DELETION_INELIGIBLE, R.ONLINE),
    *((R.NEW, R.OFFLINE), (R.ONLINE, R.OFFLINE), (R.OFFLINE, R.OFFLINE)),
    (R.DELETION_INELIGIBLE, R.OFFLINE),
    (R.OFFLINE, R.DELETION_STARTED),
    (R.DELETION_STARTED, R.DELETION_SUCCESSFUL),
    (R.OFFLINE, R.DELETION_INELIGIBLE),
    (R.DELETION_STARTED, R.DELETION_INELIGIBLE),
    (R.DELETION_SUCCESSFUL, R.NON_EXISTENT),
}


def cluster_with(row: Row) -> ClusterState:
    cluster = ClusterState(Settings(1000), 1, 1)
    cluster.add_topic("t", None, 0)
    cluster.put(TP, row)
    return cluster


@pytest.mark.parametrize("before", P)
@pytest.mark.parametrize("after", P)
def test_a_partition_moves_only_as_the_table_says(before: P, after: P) -> None:
    row = Row(Assignment((1,)), None, before, (R.ONLINE,))
    cluster = cluster_with(row)
    changed = row.in_state(after)
    if (before, after) in PARTITIONS_MAY or before is after:  # to stay is no transition
        cluster.put(TP, changed)
        assert cluster.rows[TP].state is after
    else:
        with pytest.raises(IllegalTransition, match=f"t-0: .*{before.name} to {after.name}"):
            cluster.put(TP, changed)
        assert cluster.rows[TP] == row
    assert (before in PARTITION_CAME_FROM[after]) == ((before, after) in PARTITIONS_MAY)


@pytest.mark.parametrize("before", R)
@pytest.mark.parametrize("after", R)
def test_a_replica_moves_only_as_the_table_says(before: R, after: R) -> None:
    row = Row(Assignment((1, 2)), None, P.NEW, (R.ONLINE, before))
    cluster = cluster_with(row)
    changed = row.with_replicas_in((2,), after)
    if (before, after) in REPLICAS_MAY or before is after:
        cluster.put(TP, changed)
        assert cluster.rows[TP].replica_states == (R.ONLINE, after)
    else:
        with pytest.raises(IllegalTransition, match=rf"replica 2 .*{before.name} to {after.name}"):
            cluster.put(TP, changed)
        assert cluster.rows[TP] == row
    assert (before in REPLICA_CAME_FROM[after]) == ((before, after) in REPLICAS_MAY)


@pytest.mark.parametrize("before", R)
def test_a_replica_leaves_the_assignment_only_when_deleted(before: R) -> None:
    """Dropped from the assignment means NonExistent, and the table asks what was before."""
    row = Row(Assignment((1, 2)), None, P.NEW, (R.ONLINE, before))
    cluster = cluster_with(row)
    without = row.reassigned(Assignment((1,)))
    if before in (R.DELETION_SUCCESSFUL, R.NON_EXISTENT):
        cluster.put(TP, without)
        assert TP not in cluster.partitions_on(2)
    else:
        with pytest.raises(IllegalTransition, match="replica 2"):
            cluster.put(TP, without)
        assert cluster.rows[TP] == row
        assert TP in cluster.partitions_on(2)


@pytest.mark.parametrize("first", R)
def test_a_replica_enters_the_assignment_as_new(first: R) -> None:
    row = Row(Assignment((1,)), None, P.NEW, (R.ONLINE,))
    cluster = cluster_with(row)
    grown = Row(Assignment((1, 2)), None, P.NEW, (R.ONLINE, first))
    if first in (R.NEW, R.NON_EXISTENT):
        cluster.put(TP, grown)
        assert TP in cluster.partitions_on(2)
    else:
        with pytest.raises(IllegalTransition, match="replica 2 from NON_EXISTENT"):
            cluster.put(TP, grown)
        assert cluster.rows[TP] == row


def test_the_bytes_are_kafkas() -> None:
    assert [s.value for s in P] == [0, 1, 2, 3]
    assert [s.value for s in R] == [1, 2, 3, 4, 5, 6, 7]
