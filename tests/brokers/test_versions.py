"""Versions: what each release is spoken to in, and what the controller learns of releases."""

import asyncio

import pytest

from kctl.brokers.manager import ChannelManager
from kctl.brokers.simulated import Frame, Mishap, SimulatedBrokers
from kctl.brokers.versions import LEADER_AND_ISR, STOP_REPLICA
from kctl.messages import events as ev
from kctl.messages.requests import Connect, Disconnect
from kctl.model.settings import Release
from kctl.wire import control_plane as cp
from tests.brokers.recorder import (
    EPOCH,
    KEYS,
    SETTINGS,
    T0,
    T1,
    Recorder,
    leader_and_isr,
    manager_with,
    registered,
    row,
    stop_replica,
    update_metadata,
)

pytestmark = pytest.mark.asyncio
ON_BOTH_LOOPS = True


@pytest.mark.parametrize(
    "release, versions, known_as",
    [
        ((2, 2), {"LISR": 2, "UMR": 5, "SR": 1}, (2, 2)),
        ((2, 4), {"LISR": 4, "UMR": 6, "SR": 2}, (2, 4)),
        ((2, 6), {"LISR": 4, "UMR": 6, "SR": 3}, (2, 6)),
        ((2, 7), {"LISR": 4, "UMR": 6, "SR": 3}, (2, 7)),
        ((2, 8), {"LISR": 5, "UMR": 7, "SR": 3}, (2, 8)),
        ((3, 1), {"LISR": 5, "UMR": 7, "SR": 3}, (3, 0)),
        ((3, 2), {"LISR": 6, "UMR": 7, "SR": 3}, (3, 2)),
        ((3, 3), {"LISR": 6, "UMR": 7, "SR": 3}, (3, 3)),
        ((3, 4), {"LISR": 7, "UMR": 8, "SR": 4}, (3, 4)),
        ((3, 9), {"LISR": 7, "UMR": 8, "SR": 4}, (3, 5)),
    ],
)
async def test_each_broker_is_spoken_to_in_its_versions(
    release: Release, versions: dict[str, int], known_as: Release, recorder: Recorder
) -> None:
    async with (
        SimulatedBrokers((1,), release=release) as brokers,
        ChannelManager(SETTINGS, recorder) as manager,
    ):
        one = registered(brokers[1])
        manager.send(Connect(one))
        manager.send(update_metadata([1], (one,), {T0: row(1, (1,))}))
        manager.send(leader_and_isr(1, {T0: row(1, (1,)), T1: row(1, (1,))}))
        manager.send(stop_replica(1, {T0: False, T1: True}))
        manager.send(update_metadata([1], (one,)))
        await recorder.count(ev.UpdateMetadataResponseReceived, 2)
        assert {KEYS[f.key]: f.version for f in brokers[1].frames} == versions
        assert recorder.of(ev.LeaderAndIsrResponseReceived)[0].partition_errors == {T0: 0, T1: 0}
        assert recorder.of(ev.TopicDeletionStopReplicaResponseReceived) == [
            ev.TopicDeletionStopReplicaResponseReceived(1, EPOCH, 0, {T1: 0})
        ]
        assert recorder.of(ev.BrokerVersions) == [ev.BrokerVersions(known_as)]
        stops = [r for r in brokers[1].requests() if isinstance(r, cp.StopReplicaRequest)]
        if versions["SR"] < 3:
            assert [s.delete_partitions for s in stops] == [True, False]
        else:
            assert len(stops) == 1


async def test_the_answered_half_of_an_old_stop_replica_is_not_sent_again(
    recorder: Recorder,
) -> None:
    async with (
        SimulatedBrokers((1,), release=(2, 4)) as brokers,
        ChannelManager(SETTINGS, recorder) as manager,
    ):
        stops: list[Frame] = []

        def cut_the_second(frame: Frame) -> Mishap | None:
            if frame.key == STOP_REPLICA:
                stops.append(frame)
                return Mishap.CUT_BEFORE if len(stops) == 2 else None
            return None

        brokers[1].mishap = cut_the_second
        one = registered(brokers[1])
        manager.send(Connect(one))
        manager.send(stop_replica(1, {T0: False, T1: True}))
        manager.send(update_metadata([1], (one,)))
        await recorder.first(ev.UpdateMetadataResponseReceived)
        decoded = [r for r in brokers[1].requests() if isinstance(r, cp.StopReplicaRequest)]
        assert [s.delete_partitions for s in decoded] == [True, False]
        assert len(recorder.of(ev.TopicDeletionStopReplicaResponseReceived)) == 1


async def test_the_configured_protocol_is_the_limit(
    brokers: SimulatedBrokers, recorder: Recorder
) -> None:
    one = registered(brokers[1])
    async with manager_with(recorder, inter_broker_protocol=(2, 5)) as manager:
        manager.send(Connect(one))
        manager.send(leader_and_isr(1, {T0: row(1, (1,))}))
        manager.send(update_metadata([1], (one,)))
        await recorder.first(ev.UpdateMetadataResponseReceived)
    assert [(KEYS[f.key], f.version) for f in brokers[1].frames] == [("LISR", 4), ("UMR", 6)]


async def test_a_broker_that_serves_no_common_version_is_tried_again(
    brokers: SimulatedBrokers, manager: ChannelManager, recorder: Recorder
) -> None:
    right = brokers[1].versions[LEADER_AND_ISR]
    brokers[1].versions[LEADER_AND_ISR] = (8, 9)
    one = registered(brokers[1])
    manager.send(Connect(one))
    manager.send(leader_and_isr(1, {T0: row(1, (1,))}))
    while brokers[1].connections_made < 3:  # noqa: ASYNC110  nothing tells
        await asyncio.sleep(0.005)
    brokers[1].versions[LEADER_AND_ISR] = right
    await recorder.first(ev.LeaderAndIsrResponseReceived)


async def test_the_oldest_live_broker_counts_once_all_have_answered(
    brokers: SimulatedBrokers, manager: ChannelManager, recorder: Recorder
) -> None:
    brokers[2].versions = {**brokers[2].versions, 4: (0, 5), 56: (0, 0)}
    await brokers[3].stop()
    for broker in brokers.values():
        manager.send(Connect(registered(broker)))
    one = brokers[1].registration(EPOCH)
    manager.send(update_metadata([1, 2], (one,)))
    await recorder.count(ev.UpdateMetadataResponseReceived, 2)
    assert recorder.of(ev.BrokerVersions) == []
    await brokers[3].start()
    assert await recorder.first(ev.BrokerVersions) == ev.BrokerVersions((3, 0))
    manager.send(Disconnect(2))
    assert recorder.of(ev.BrokerVersions)[1:] == [ev.BrokerVersions((3, 5))]
    manager.send(Connect(registered(brokers[2])))
    await recorder.count(ev.BrokerVersions, 3)
    assert recorder.of(ev.BrokerVersions)[2] == ev.BrokerVersions((3, 0))


async def test_a_new_broker_makes_the_release_known_again_even_if_it_is_the_same(
    brokers: SimulatedBrokers, manager: ChannelManager, recorder: Recorder
) -> None:
    manager.send(Connect(registered(brokers[1])))
    await recorder.first(ev.BrokerVersions)
    manager.send(Connect(registered(brokers[2])))
    await recorder.count(ev.BrokerVersions, 2)
