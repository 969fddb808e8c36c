"""The cluster state: indexes that keep up with the rows, forks that do not touch the original."""

from collections.abc import Callable

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.model.brokers import Broker
from kctl.model.cluster import ClusterState
from kctl.model.invariants import violations
from kctl.model.names import TopicPartition
from kctl.model.rows import Assignment, Leadership, Row
from kctl.model.settings import Release, Settings
from kctl.model.states import IllegalTransition, PartitionState, ReplicaState
from tests.logic.notation import broker, build_cluster, tp_of, tps

T0 = TopicPartition("t", 0)


def test_indexes_after_a_load() -> None:
    cluster = build_cluster(
        "t-0: 1*,2,3",
        "t-1: 2,3*,1",
        "t-2: 3,1,2 isr=3",
        "t-3: 1,2 new",
        "t-4: 4*,1 adding=4 isr=1,4",
    )
    assert list(cluster.partitions_on(4)) == [*tps("t-4")]
    assert list(cluster.not_online) == [*tps("t-2", "t-3")]
    assert list(cluster.unbalanced) == [*tps("t-1", "t-2")]
    assert list(cluster.reassigning) == [*tps("t-4")]
    assert violations(cluster) == []


states = st.sampled_from([PartitionState.ONLINE, PartitionState.OFFLINE, PartitionState.NEW])
moves = st.tuples(
    st.integers(0, 3),
    st.lists(st.integers(1, 5), min_size=1, max_size=4, unique=True).map(tuple),
    st.integers(-1, 5),
    states,
)


@given(st.lists(moves, max_size=12))
def test_indexes_equal_a_scan_whatever_is_put(
    changes: list[tuple[int, tuple[int, ...], int, PartitionState]],
) -> None:
    cluster = build_cluster(
        "t-0: 1*", "t-1: 2*", "t-2: 3*", "t-3: 4,5 new", brokers=(1, 2, 3, 4, 5)
    )
    for number, replicas, leader, state in changes:
        tp = TopicPartition("t", number)
        assignment = cluster.share(Assignment(replicas))
        leadership = Leadership(leader, (leader,), 1, 1, 1) if leader in replicas else None
        row = Row(assignment, leadership, state, (ReplicaState.NEW,) * len(replicas))
        try:
            cluster.put(tp, row)
        except IllegalTransition:
            continue
    indexes = [v for v in violations(cluster) if "holds" in v or "lacks" in v]
    assert indexes == []


def test_deletion_counts_follow_the_rows() -> None:
    cluster = build_cluster("t-0: 1*,2", "t-1: 2*,1")
    deletion = cluster.queue_deletion("t")
    assert deletion.counts == {ReplicaState.ONLINE: 4}
    cluster.put(T0, cluster.rows[T0].with_replicas_in((2,), ReplicaState.OFFLINE))
    assert deletion.counts == {ReplicaState.ONLINE: 3, ReplicaState.OFFLINE: 1}
    assert cluster.queue_deletion("t") is deletion
    assert violations(cluster) == []


def test_a_removed_topic_leaves_nothing_behind() -> None:
    cluster = build_cluster("t-0: 1*,2", "u-0: 1,2 adding=2", offline_dirs={2: ("u-0",)})
    cluster.queue_deletion("u")
    cluster.poison(tp_of("u-0"), "/u", "broken")
    cluster.remove_topic("u")
    assert list(cluster.rows) == [T0]
    assert not cluster.deletions
    assert not cluster.reassigning
    assert not cluster.poisoned
    assert violations(cluster) == []


def test_a_fork_is_a_copy_to_try_things_on() -> None:
    cluster = build_cluster("t-0: 1*,2", "u-0: 1,2 new", shutting_down=(2,))
    cluster.queue_deletion("u")
    before = attrs.asdict(cluster, recurse=False, filter=lambda a, _: not a.name.startswith("_"))
    copied = {
        name: value.copy() if isinstance(value, dict) else value for name, value in before.items()
    }
    fork = cluster.fork()
    fork.put(T0, fork.rows[T0].in_state(PartitionState.OFFLINE))
    fork.remove_broker(1)
    fork.add_broker(broker(9))
    fork.remove_topic("u")
    fork.poison(T0, "/x", "broken")
    fork.offline_dirs[2] = {T0: None}
    assert {name: getattr(cluster, name) for name in copied} == copied
    assert violations(cluster) == []


@pytest.mark.parametrize(
    "configured, registrations, answered, expected",
    [
        (None, (5, 5), None, (2, 7)),
        (None, (5, 4), None, (2, 4)),
        (None, (5, 5), (3, 9), (3, 9)),
        ((2, 6), (5, 5), (3, 9), (2, 6)),
        ((3, 9), (4, 4), None, (3, 9)),
    ],
    ids=["registered", "an old one", "answered", "configured low", "configured high"],
)
def test_the_release_that_rules(
    configured: Release | None,
    registrations: tuple[int, ...],
    answered: Release | None,
    expected: Release,
) -> None:
    cluster = build_cluster(inter_broker_protocol=configured)
    for number, version in enumerate(registrations):
        cluster.add_broker(Broker(number, 1, registration_version=version))
    if answered is not None:
        cluster.raise_release(answered)
    assert cluster.release == expected
    assert cluster.has_topic_ids is (expected >= (2, 8))
    assert cluster.has_recovery_state is (expected >= (3, 2))
    assert cluster.leaders_use_alter_partition is (expected >= (2, 7))


def test_a_newcomer_that_is_older_counts_at_once() -> None:
    """By its registration, and by what it answers when it is asked."""
    cluster = build_cluster(brokers=(1, 2), inter_broker_protocol=None)
    cluster.raise_release((3, 9))
    cluster.add_broker(Broker(3, 1, registration_version=4))
    assert cluster.release == (2, 4)
    cluster.remove_broker(3)
    cluster.raise_release((3, 9))
    cluster.add_broker(broker(4))
    cluster.raise_release((2, 7))
    assert cluster.release == (2, 7)


def test_liveness_by_broker_shutdown_and_log_dir() -> None:
    cluster = build_cluster(
        "t-0: 1*,2,3,4", dead=(4,), shutting_down=(3,), offline_dirs={2: ("t-0",)}
    )
    assert [cluster.is_online(b, T0) for b in (1, 2, 3, 4)] == [True, False, False, False]
    assert cluster.online_replicas(T0, (4, 3, 2, 1)) == (1,)
    assert list(cluster.live) == [1, 2]
    cluster.remove_broker(3)
    assert not cluster.shutting_down


Spoil = Callable[[ClusterState], object]


@pytest.mark.parametrize(
    "spoil, complaint",
    [
        (lambda c: c.live.pop(1), "live is"),
        (lambda c: c.shutting_down.update({9: None}), "9 is shutting down"),
        (lambda c: c.by_broker[1].pop(T0), r"by_broker\[1\] lacks t-0"),
        (lambda c: c.not_online.update({T0: None}), "not_online holds t-0"),
        (lambda c: c.unbalanced.update({T0: None}), "unbalanced holds t-0"),
        (lambda c: c.reassigning.update({T0: None}), "reassigning holds t-0"),
        (lambda c: c.topic_names.clear(), "topic names by id"),
        (lambda c: c.topics["t"].partitions.clear(), "in one of topics and rows only"),
        (lambda c: c.queue_deletion("t").counts.clear(), "deletion of t counts"),
        (lambda c: c.told.update({1: 99}), "told membership 99"),
        (lambda c: c.offline_dirs.update({9: {T0: None}}), "9 has failed log dirs"),
        (lambda c: c.poisoned.update({T0: "/x"}), "not in quarantine"),
        (lambda c: c.brokers.pop(1), "its leader 1 is not registered"),
        (lambda c: row(c, isr=(2,)), "leader 1 is not in the ISR"),
        (lambda c: row(c, isr=()), "empty ISR"),
        (lambda c: row(c, isr=(1, 1)), "twice in its ISR"),
        (lambda c: row(c, isr=(1, 7)), "not among the replicas"),
        (lambda c: row(c, states=(ReplicaState.ONLINE,)), "2 replicas and 1 replica states"),
        (lambda c: row(c, states=(ReplicaState.NON_EXISTENT,) * 2), "does not exist"),
        (lambda c: row(c, states=(ReplicaState.DELETION_STARTED,) * 2), "nobody deletes it"),
        (lambda c: row(c, state=PartitionState.NEW), "New, but has a leadership"),
        (lambda c: row(c, state=PartitionState.NON_EXISTENT), "topic is not being deleted"),
        (lambda c: row(c, leader=-1), "Online without a leader"),
    ],
)
def test_the_invariants_see_what_breaks_them(spoil: Spoil, complaint: str) -> None:
    cluster = build_cluster("t-0: 1*,2", "u-0: 1,2 new")
    assert violations(cluster) == []
    spoil(cluster)
    with pytest.raises(AssertionError, match=complaint):
        raise AssertionError("; ".join(violations(cluster)))


def row(
    cluster: ClusterState,
    *,
    leader: int = 1,
    isr: tuple[int, ...] = (1, 2),
    state: PartitionState = PartitionState.ONLINE,
    states: tuple[ReplicaState, ...] = (ReplicaState.ONLINE, ReplicaState.ONLINE),
) -> None:
    """Behind the back of `put`."""
    leadership = Leadership(leader, isr, 0, 1, 0)
    cluster.rows[T0] = Row(cluster.rows[T0].assignment, leadership, state, states)


def test_partitions_taken_in_unread_are_indexed_in_portions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kctl.model.cluster.INDEX_PORTION", 4)
    cluster = ClusterState(Settings(1000), 1, 1)
    cluster.add_topic("t", None, 0)
    cluster.add_unread("t", {p: Assignment((1, 2, 3)) for p in range(3)})
    portions = 1
    while cluster.index_unread():
        portions += 1
    assert portions == 3
    everything = [TopicPartition("t", p) for p in range(3)]
    assert {b: list(tps) for b, tps in cluster.by_broker.items()} == dict.fromkeys(
        (1, 2, 3), everything
    )
    assert not cluster.index_unread()
