"""Which rows go to which broker in which request, and in which order."""

import attrs
import pytest

from kctl.logic.recipients import (
    live_brokers,
    seal,
    stop_replica,
    tell_leadership,
    tell_live_brokers,
    tell_metadata,
)
from kctl.messages.outbox import Outbox
from kctl.messages.requests import (
    LeaderAndIsrRequest,
    StopReplicaPartition,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kctl.model.brokers import Endpoint
from kctl.model.cluster import ClusterState
from tests.logic.notation import MakeCluster, broker, describe, topic_id, tp_of

T0, T1 = tp_of("t-0"), tp_of("t-1")


def sealed(cluster: ClusterState, outbox: Outbox) -> list[str]:
    seal(cluster, outbox)
    return [describe(d) for d in outbox.dispatches]


@pytest.fixture
def told(cluster: MakeCluster) -> ClusterState:
    """Three brokers that know of each other."""
    state = cluster("t-0: 1*,2 epoch=5", "t-1: 2*,3 epoch=5")
    state.told.update(dict.fromkeys(state.brokers, state.membership))
    return state


def test_leader_and_isr_to_some_means_metadata_to_all(told: ClusterState) -> None:
    outbox = Outbox()
    tell_leadership(told, outbox, T0, (1, 2))
    tell_leadership(told, outbox, T1, (2,))
    assert sealed(told, outbox) == [
        "LeaderAndIsr to 1: t-0",
        "LeaderAndIsr to 2: t-0, t-1",
        "UpdateMetadata to 1,2,3: t-0, t-1",
    ]


def test_new_stays_new(told: ClusterState) -> None:
    outbox = Outbox()
    tell_leadership(told, outbox, T0, (1,), is_new=True)
    tell_leadership(told, outbox, T0, (1,))
    assert sealed(told, outbox)[0] == "LeaderAndIsr to 1: t-0(new)"


def test_delete_stays_delete(told: ClusterState) -> None:
    outbox = Outbox()
    stop_replica(told, outbox, T0, 1, delete=True)
    stop_replica(told, outbox, T0, 1, delete=False)
    assert sealed(told, outbox) == ["StopReplica to 1: t-0(delete)"]


def test_the_last_order_wins(told: ClusterState) -> None:
    outbox = Outbox()
    tell_leadership(told, outbox, T0, (1, 2))
    stop_replica(told, outbox, T0, 1, delete=False)
    assert sealed(told, outbox) == [
        "LeaderAndIsr to 2: t-0",
        "UpdateMetadata to 1,2,3: t-0",
        "StopReplica to 1: t-0",
    ]
    outbox = Outbox()
    stop_replica(told, outbox, T0, 1, delete=False)
    tell_leadership(told, outbox, T0, (1,))
    assert sealed(told, outbox) == ["LeaderAndIsr to 1: t-0", "UpdateMetadata to 1,2,3: t-0"]


def test_a_deletion_is_never_merged_away(told: ClusterState) -> None:
    """It closes the batch: the broker must delete before it is told to begin anew."""
    outbox = Outbox()
    stop_replica(told, outbox, T0, 1, delete=True)
    tell_leadership(told, outbox, T0, (1, 2))
    assert sealed(told, outbox) == [
        "StopReplica to 1: t-0(delete)",
        "LeaderAndIsr to 1: t-0",
        "LeaderAndIsr to 2: t-0",
        "UpdateMetadata to 1,2,3: t-0",
    ]


@pytest.mark.parity(10)
def test_who_does_not_know_the_live_brokers_learns_them_first(told: ClusterState) -> None:
    told.add_broker(broker(4))
    outbox = Outbox()
    tell_leadership(told, outbox, T0, (1,))
    assert sealed(told, outbox) == [
        "UpdateMetadata to 1: live brokers",
        "LeaderAndIsr to 1: t-0",
        "UpdateMetadata to 1,2,3,4: t-0",
    ]
    again = Outbox()
    tell_live_brokers(again, told.brokers)
    tell_leadership(told, again, T0, (1,))
    assert sealed(told, again) == ["LeaderAndIsr to 1: t-0", "UpdateMetadata to 1,2,3,4: t-0"]


def test_brokers_that_are_gone_get_nothing(told: ClusterState) -> None:
    outbox = Outbox()
    tell_leadership(told, outbox, T0, (1, 9, -1))
    stop_replica(told, outbox, T1, 9, delete=True)
    tell_live_brokers(outbox, (9,))
    assert sealed(told, outbox) == ["LeaderAndIsr to 1: t-0", "UpdateMetadata to 1,2,3: t-0"]


@pytest.mark.parity(15)
def test_requests_name_the_incarnation_and_the_term(told: ClusterState) -> None:
    outbox = Outbox()
    tell_leadership(told, outbox, T0, (2,))
    stop_replica(told, outbox, T1, 3, delete=True)
    seal(told, outbox)
    lisr, metadata, stop = outbox.dispatches
    assert isinstance(lisr, LeaderAndIsrRequest)
    assert isinstance(metadata, UpdateMetadataRequest)
    assert isinstance(stop, StopReplicaRequest)
    assert (lisr.broker_epoch, lisr.controller_epoch) == (102, told.epoch)
    assert metadata.recipients == {1: 101, 2: 102, 3: 103}
    assert lisr.topic_ids == {"t": topic_id("t")}
    assert [b.id for b in lisr.live_leaders] == [1]
    assert stop.partitions == {T1: StopReplicaPartition(5, delete=True)}


@pytest.mark.parity(29)
def test_epochs_of_stop_replica(cluster: MakeCluster) -> None:
    state = cluster("t-0: 1*,2 epoch=5", "t-1: 1,2 new", "u-0: 1*,2 epoch=5")
    state.queue_deletion("u")
    outbox = Outbox()
    for name in ("t-0", "t-1", "u-0", "gone-0"):
        stop_replica(state, outbox, tp_of(name), 2, delete=False)
    seal(state, outbox)
    (stop,) = outbox.dispatches
    assert isinstance(stop, StopReplicaRequest)
    assert [order.leader_epoch for order in stop.partitions.values()] == [5, -1, -2, -1]


def test_partitions_without_a_leadership_are_not_told(cluster: MakeCluster) -> None:
    state = cluster("t-0: 1,2 new", "t-1: 1*,2")
    state.told.update(dict.fromkeys(state.brokers, state.membership))
    outbox = Outbox()
    tell_leadership(state, outbox, T0, (1, 2))
    tell_metadata(outbox, (T0, T1, tp_of("gone-0")))
    assert sealed(state, outbox) == ["UpdateMetadata to 1,2: t-1"]


@pytest.mark.parity(54)
def test_offline_replicas_by_broker_and_by_dir(cluster: MakeCluster) -> None:
    for dirs in ({}, {1: ("t-1",)}):
        state = cluster("t-0: 2*,9", "t-1: 2*,1", dead=(9,), offline_dirs=dirs)
        outbox = Outbox()
        tell_metadata(outbox, (T0, T1))
        seal(state, outbox)
        (metadata,) = outbox.dispatches
        assert isinstance(metadata, UpdateMetadataRequest)
        assert metadata.offline == ({T0: (9,)} if not dirs else {T0: (9,), T1: (1,)})


@pytest.mark.parity(72)
@pytest.mark.parametrize(
    "racks, rack",
    [((None, None), None), (("a", None), None), (("a", "b"), "a")],
    ids=["none", "some", "all"],
)
def test_the_controller_is_listed_among_the_live_brokers(
    cluster: MakeCluster, racks: tuple[str | None, ...], rack: str | None
) -> None:
    """With a rack exactly if all brokers have one, and then that of a broker."""
    endpoints = (Endpoint("PLAINTEXT", "kctl", 9999),)
    state = cluster(endpoints=endpoints)
    for number, its_rack in enumerate(racks, 1):
        state.add_broker(broker(number, rack=its_rack))
    own = live_brokers(state)[-1]
    assert (own.id, own.endpoints, own.rack) == (1000, endpoints, rack)
    hidden = attrs.evolve(state.settings, endpoints=())
    state.settings = hidden
    assert [b.id for b in live_brokers(state)] == [1, 2]


def test_nothing_gathered_is_nothing_sent(told: ClusterState) -> None:
    assert sealed(told, Outbox()) == []
