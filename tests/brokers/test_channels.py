"""Channels and their manager against simulated brokers."""

import asyncio
from pathlib import Path

import pytest

from kctl.brokers.manager import ChannelManager
from kctl.brokers.simulated import Frame, Mishap, SimulatedBrokers
from kctl.brokers.versions import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from kctl.messages import events as ev
from kctl.messages.requests import Connect, Disconnect, DisconnectAll
from kctl.model.brokers import Broker, Endpoint
from kctl.model.names import TopicPartition
from tests.brokers.recorder import (
    EPOCH,
    SETTINGS,
    T0,
    T1,
    Recorder,
    leader_and_isr,
    manager_with,
    registered,
    row,
    seen,
    stop_replica,
    update_metadata,
)

pytestmark = pytest.mark.asyncio

ON_BOTH_LOOPS = True


def once(mishap: Mishap, key: int) -> "OnceAMishap":
    return OnceAMishap(mishap, key)


class OnceAMishap:
    """The first request of that kind goes wrong, its repetition does not."""

    def __init__(self, mishap: Mishap, key: int) -> None:
        self._left: Mishap | None = mishap
        self._key = key

    def __call__(self, frame: Frame) -> Mishap | None:
        if frame.key != self._key:
            return None
        mishap, self._left = self._left, None
        return mishap


# -- order and answers -----------------------------------------------------------------------


async def test_requests_arrive_in_order_and_are_answered(
    brokers: SimulatedBrokers, manager: ChannelManager, recorder: Recorder
) -> None:
    one, two = registered(brokers[1]), registered(brokers[2])
    manager.send(Connect(one))
    manager.send(update_metadata([1], (one, two)))
    manager.send(leader_and_isr(1, {T0: row(2, (1, 2)), T1: row(1, (1, 2))}))
    manager.send(update_metadata([1], (one, two), {T0: row(2, (1, 2))}))
    manager.send(stop_replica(1, {T0: False, T1: True}))
    event = await recorder.first(ev.TopicDeletionStopReplicaResponseReceived)

    assert seen(brokers, 1) == ["UMR", "LISR", "UMR", "SR"]
    assert event == ev.TopicDeletionStopReplicaResponseReceived(1, EPOCH, 0, {T1: 0})
    assert recorder.of(ev.LeaderAndIsrResponseReceived) == [
        ev.LeaderAndIsrResponseReceived(1, EPOCH, 0, {T0: 0, T1: 0})
    ]
    assert (
        recorder.of(ev.UpdateMetadataResponseReceived)
        == [ev.UpdateMetadataResponseReceived(1, EPOCH, 0)] * 2
    )
    belief = brokers[1].belief
    assert belief.controller_id == 1000
    assert not belief.hosted[T0].started
    assert T1 in belief.deleted
    assert {b.client_id for b in (f.header for f in brokers[1].frames)} == {"1000"}


async def test_one_request_is_in_flight(
    brokers: SimulatedBrokers, manager: ChannelManager, recorder: Recorder
) -> None:
    brokers[1].silent = True
    one = registered(brokers[1])
    manager.send(Connect(one))
    for _ in range(5):
        manager.send(update_metadata([1], (one,)))
    await brokers[1].until(lambda b: bool(b.frames))
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(brokers[1].frames) == 1
    assert manager.channels[1].backlog == 4


async def test_stop_replica_without_deletion_is_of_no_interest(
    brokers: SimulatedBrokers, manager: ChannelManager, recorder: Recorder
) -> None:
    one = registered(brokers[1])
    manager.send(Connect(one))
    manager.send(stop_replica(1, {T0: False}))
    manager.send(update_metadata([1], (one,)))
    await recorder.first(ev.UpdateMetadataResponseReceived)
    assert recorder.of(ev.TopicDeletionStopReplicaResponseReceived) == []


async def test_a_refused_stop_replica_names_what_is_not_deleted(
    brokers: SimulatedBrokers, manager: ChannelManager, recorder: Recorder
) -> None:
    brokers[1].errors[STOP_REPLICA] = 11
    manager.send(Connect(registered(brokers[1])))
    manager.send(stop_replica(1, {T0: True, T1: False}))
    event = await recorder.first(ev.TopicDeletionStopReplicaResponseReceived)
    assert event == ev.TopicDeletionStopReplicaResponseReceived(1, EPOCH, 11, {T0: 11})


async def test_a_channel_that_is_not_there_is_no_failure(
    brokers: SimulatedBrokers, manager: ChannelManager, recorder: Recorder
) -> None:
    one = registered(brokers[1])
    manager.send(leader_and_isr(9, {T0: row(1, (1,))}))
    manager.send(Connect(one))
    manager.send(update_metadata([1, 9], (one,)))
    await recorder.first(ev.UpdateMetadataResponseReceived)


# -- when things go wrong --------------------------------------------------------------------


async def test_a_broker_that_does_not_listen_yet_is_tried_again(
    brokers: SimulatedBrokers, manager: ChannelManager, recorder: Recorder
) -> None:
    await brokers[1].stop()
    one = registered(brokers[1])
    manager.send(Connect(one))
    manager.send(update_metadata([1], (one,)))
    await asyncio.sleep(0.02)
    assert recorder.events == []
    await brokers[1].start()
    await recorder.first(ev.UpdateMetadataResponseReceived)


@pytest.mark.parametrize(
    "mishap, times",
    [
        (Mishap.CUT_BEFORE, 1),
        (Mishap.CUT_AFTER, 2),
        (Mishap.GARBAGE, 2),
        (Mishap.WRONG_REQUEST, 2),
    ],
)
async def test_a_request_is_sent_again_until_it_is_answered(
    mishap: Mishap,
    times: int,
    brokers: SimulatedBrokers,
    manager: ChannelManager,
    recorder: Recorder,
) -> None:
    """Once answered, the next one goes. A repetition is nothing new to the broker."""
    brokers[1].mishap = once(mishap, LEADER_AND_ISR)
    one = registered(brokers[1])
    manager.send(Connect(one))
    manager.send(update_metadata([1], (one,)))
    manager.send(leader_and_isr(1, {T0: row(1, (1,))}))
    manager.send(stop_replica(1, {T1: True}))
    await recorder.first(ev.TopicDeletionStopReplicaResponseReceived)
    assert seen(brokers, 1) == ["UMR", *["LISR"] * times, "SR"]
    answers = recorder.of(ev.LeaderAndIsrResponseReceived)
    assert [a.partition_errors for a in answers] == [{T0: 0 if times == 1 else 11}]
    assert brokers[1].connections_made == 2


async def test_silence_ends_with_the_timeout(brokers: SimulatedBrokers, recorder: Recorder) -> None:
    brokers[1].mishap = once(Mishap.SILENCE, UPDATE_METADATA)
    one = registered(brokers[1])
    async with manager_with(recorder, request_timeout_ms=50) as manager:
        manager.send(Connect(one))
        manager.send(update_metadata([1], (one,)))
        await recorder.first(ev.UpdateMetadataResponseReceived)
    assert seen(brokers, 1) == ["UMR", "UMR"]


async def test_an_idle_connection_that_the_broker_closed_is_replaced(
    brokers: SimulatedBrokers, manager: ChannelManager, recorder: Recorder
) -> None:
    one = registered(brokers[1])
    manager.send(Connect(one))
    manager.send(update_metadata([1], (one,)))
    await recorder.first(ev.UpdateMetadataResponseReceived)
    brokers[1].cut()
    await asyncio.sleep(0.01)
    manager.send(update_metadata([1], (one,)))
    await recorder.count(ev.UpdateMetadataResponseReceived, 2)
    assert seen(brokers, 1) == ["UMR", "UMR"]


async def test_an_answer_larger_than_allowed_is_refused(
    brokers: SimulatedBrokers, recorder: Recorder
) -> None:
    """Four partitions in the answer are allowed here, four hundred are not."""
    one = registered(brokers[1])
    many = {TopicPartition("t", p): row(1, (1,)) for p in range(400)}
    async with manager_with(recorder, answer_bytes_max=500) as manager:
        manager.send(Connect(one))
        manager.send(leader_and_isr(1, many))
        await brokers[1].until(lambda b: len(b.frames) >= 3)
        assert recorder.of(ev.LeaderAndIsrResponseReceived) == []
        manager.send(Connect(one))
        manager.send(leader_and_isr(1, {T0: row(1, (1,), leader_epoch=1)}))
        await recorder.first(ev.LeaderAndIsrResponseReceived)


async def test_a_request_that_cannot_be_encoded_does_not_stop_the_rest(
    brokers: SimulatedBrokers, manager: ChannelManager, recorder: Recorder
) -> None:
    one = registered(brokers[1])
    manager.send(Connect(one))
    manager.send(leader_and_isr(1, {T0: row(1, (1,), leader_epoch=2**31)}))
    manager.send(update_metadata([1], (one,)))
    await recorder.first(ev.UpdateMetadataResponseReceived)
    assert seen(brokers, 1) == ["UMR"]
    assert manager.channels[1].unsendable == 1


async def test_a_broker_without_an_endpoint_is_not_spoken_to(
    brokers: SimulatedBrokers, manager: ChannelManager, recorder: Recorder
) -> None:
    one = registered(brokers[1])
    manager.send(Connect(Broker(2, EPOCH)))
    manager.send(Connect(one))
    manager.send(update_metadata([1, 2], (one,)))
    await recorder.first(ev.UpdateMetadataResponseReceived)


# -- epochs ----------------------------------------------------------------------------------


async def test_another_incarnation_gets_nothing_that_was_meant_for_the_old_one(
    brokers: SimulatedBrokers, manager: ChannelManager, recorder: Recorder
) -> None:
    manager.send(Connect(registered(brokers[1], EPOCH)))
    manager.send(leader_and_isr(1, {T0: row(1, (1,))}, epoch=EPOCH - 1))
    manager.send(leader_and_isr(1, {T1: row(1, (1,))}, epoch=EPOCH))
    await recorder.first(ev.LeaderAndIsrResponseReceived)
    assert list(brokers[1].belief.hosted) == [T1]
    assert seen(brokers, 1) == ["LISR"]


async def test_nothing_of_an_earlier_controller_epoch_is_written(
    brokers: SimulatedBrokers, manager: ChannelManager, recorder: Recorder
) -> None:
    """The older request waits for the broker; meanwhile there is a newer epoch."""
    await brokers[1].stop()
    manager.send(Connect(registered(brokers[1])))
    manager.send(leader_and_isr(1, {T0: row(1, (1,))}, controller_epoch=4))
    manager.send(leader_and_isr(1, {T1: row(1, (1,))}, controller_epoch=5))
    await brokers[1].start()
    await recorder.first(ev.LeaderAndIsrResponseReceived)
    assert list(brokers[1].belief.hosted) == [T1]


async def test_a_bounced_broker_gets_a_new_channel(
    brokers: SimulatedBrokers, manager: ChannelManager, recorder: Recorder
) -> None:
    manager.send(Connect(registered(brokers[1])))
    manager.send(leader_and_isr(1, {T0: row(1, (1,))}))
    await recorder.first(ev.LeaderAndIsrResponseReceived)
    await brokers[1].restart()
    manager.send(Connect(registered(brokers[1], EPOCH + 7)))
    manager.send(leader_and_isr(1, {T0: row(1, (1,))}))
    manager.send(leader_and_isr(1, {T1: row(1, (1,))}, epoch=EPOCH + 7))
    await recorder.count(ev.LeaderAndIsrResponseReceived, 2)
    assert [e.broker_epoch for e in recorder.of(ev.LeaderAndIsrResponseReceived)] == [50, 57]
    assert list(brokers[1].belief.hosted) == [T1]


# -- one body for many brokers ---------------------------------------------------------------


async def test_a_body_is_encoded_once_for_each_version(recorder: Recorder) -> None:
    async with (
        SimulatedBrokers(range(1, 7)) as brokers,
        ChannelManager(SETTINGS, recorder) as manager,
    ):
        brokers[6].versions[UPDATE_METADATA] = (0, 7)
        live = tuple(registered(b) for b in brokers.values())
        for broker in live:
            manager.send(Connect(broker))
        manager.send(update_metadata(list(brokers), live, {T0: row(1, (1, 2))}))
        await recorder.count(ev.UpdateMetadataResponseReceived, 6)
        assert manager._bodies.encoded == 2
        assert manager._bodies.held_bytes == 0
        assert [b.belief.metadata[T0].leader for b in brokers.values()] == [1] * 6
        assert brokers.decoder.decoded == 2


# -- acknowledgements ------------------------------------------------------------------------


async def test_what_was_sent_can_be_waited_for(
    brokers: SimulatedBrokers, manager: ChannelManager
) -> None:
    one, two = registered(brokers[1]), registered(brokers[2])
    for broker in (one, two):
        manager.send(Connect(broker))
    brokers[2].silent = True
    manager.send(update_metadata([1, 2], (one, two)))
    mark = manager.mark()
    await manager.acknowledged(mark, [1])
    assert seen(brokers, 1) == ["UMR"]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(manager.acknowledged(mark), 0.05)
    waiting = asyncio.ensure_future(manager.acknowledged(mark))
    await asyncio.sleep(0)
    manager.send(Disconnect(2))
    await waiting
    await manager.acknowledged(mark)


# -- a backlog that is too large -------------------------------------------------------------


async def test_a_dropped_backlog_ends_in_a_resync(
    brokers: SimulatedBrokers, recorder: Recorder
) -> None:
    """The one in flight stays. Before anything else the broker learns who lives and what to
    forget; the deletions that it still owes are asked for with the resync."""
    one, two = registered(brokers[1]), registered(brokers[2])
    gone = TopicPartition("gone", 0)
    async with manager_with(recorder, backlog_requests_max=5) as manager:
        brokers[1].silent = True
        manager.send(Connect(one))
        manager.send(update_metadata([1], (one,), {gone: row(1, (1,)), T0: row(1, (1,))}))
        await brokers[1].until(lambda b: bool(b.frames))
        manager.send(stop_replica(1, {T1: True, T0: False}))
        manager.send(update_metadata([1], (one, two), {gone: row(1, (1,))}, deleted=["gone"]))
        for epoch in range(1, 10):
            manager.send(leader_and_isr(1, {T0: row(1, (1,), leader_epoch=epoch)}))
        manager.send(stop_replica(1, {gone: True}))
        channel = manager.channels[1]
        assert channel.dropped_backlogs == 1
        assert channel.backlog == 0
        assert recorder.of(ev.BrokerResync) == []

        brokers[1].silent = False
        brokers[1].cut()
        resync = await recorder.first(ev.BrokerResync)
        assert resync == ev.BrokerResync(1, EPOCH, (T1, gone))
        manager.send(leader_and_isr(1, {T0: row(2, (1, 2), leader_epoch=20)}))
        await recorder.first(ev.LeaderAndIsrResponseReceived)
        belief = brokers[1].belief
        assert list(belief.live) == [1, 2]
        assert list(belief.metadata) == [T0]
        assert belief.hosted[T0].state.leader_epoch == 20
        assert belief.hosted[T0].started
        assert len(recorder.of(ev.BrokerResync)) == 1


async def test_rows_bound_the_backlog_too(brokers: SimulatedBrokers, recorder: Recorder) -> None:
    one = registered(brokers[1])
    rows = {TopicPartition("t", p): row(1, (1,)) for p in range(60)}
    async with manager_with(recorder, backlog_rows_max=100) as manager:
        brokers[1].silent = True
        manager.send(Connect(one))
        manager.send(update_metadata([1], (one,)))
        await brokers[1].until(lambda b: bool(b.frames))
        manager.send(leader_and_isr(1, rows))
        assert manager.channels[1].dropped_backlogs == 0
        manager.send(leader_and_isr(1, rows))
        assert manager.channels[1].dropped_backlogs == 1


async def test_bodies_of_slow_brokers_are_forgotten_when_dropped(
    brokers: SimulatedBrokers, recorder: Recorder
) -> None:
    live = tuple(registered(b) for b in brokers.values())
    async with manager_with(recorder, backlog_requests_max=3) as manager:
        brokers[1].silent = True
        for broker in live:
            manager.send(Connect(broker))
        for p in range(5):
            tp = TopicPartition("t", p)
            manager.send(update_metadata([1, 2, 3], live, {tp: row(1, (1,))}))
            answers = 2 * (p + 1)
            await recorder.count(ev.UpdateMetadataResponseReceived, answers)
        assert manager.channels[1].dropped_backlogs == 1
        # Only the one in flight is still needed.
        assert manager._bodies.held_bytes < 500
    assert manager._bodies.held_bytes == 0


# -- the end ---------------------------------------------------------------------------------


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_nothing_is_left_behind() -> None:
    await some_traffic()  # loops open files of their own at first use
    tasks, files = len(asyncio.all_tasks()), open_files()
    for _ in range(3):
        await some_traffic()
    for _ in range(100):
        if len(asyncio.all_tasks()) == tasks and open_files() == files:
            break
        await asyncio.sleep(0.01)
    assert len(asyncio.all_tasks()) == tasks
    assert open_files() == files


async def some_traffic() -> None:
    """To twenty brokers, of which one is down and one does not answer."""
    recorder = Recorder()
    async with SimulatedBrokers(range(1, 21)) as brokers:
        await brokers[3].stop()
        brokers[4].silent = True
        async with ChannelManager(SETTINGS, recorder) as manager:
            live = tuple(registered(b) for b in brokers.values())
            for broker in live:
                manager.send(Connect(broker))
            for _ in range(3):
                manager.send(update_metadata(list(brokers), live, {T0: row(1, (1,))}))
            await recorder.count(ev.UpdateMetadataResponseReceived, 54)
            manager.send(DisconnectAll())
            assert manager.channels == {}
    await asyncio.sleep(0.01)


async def test_after_disconnect_nothing_more_is_written(
    brokers: SimulatedBrokers, manager: ChannelManager, recorder: Recorder
) -> None:
    one = registered(brokers[1])
    brokers[1].silent = True
    manager.send(Connect(one))
    manager.send(update_metadata([1], (one,)))
    manager.send(leader_and_isr(1, {T0: row(1, (1,))}))
    await brokers[1].until(lambda b: bool(b.frames))
    manager.send(DisconnectAll())
    brokers[1].silent = False
    await manager.aclose()
    assert seen(brokers, 1) == ["UMR"]
    assert recorder.of(ev.UpdateMetadataResponseReceived) == []


async def test_the_listener_of_the_control_plane_is_used(
    brokers: SimulatedBrokers, recorder: Recorder
) -> None:
    port = brokers[1].port
    brokers[1].epoch = EPOCH
    one = Broker(
        1, EPOCH, (Endpoint("CLIENT", "127.0.0.1", 1), Endpoint("CONTROL", "127.0.0.1", port))
    )
    async with manager_with(recorder, listener="CONTROL") as manager:
        manager.send(Connect(one))
        manager.send(update_metadata([1], (one,)))
        await recorder.first(ev.UpdateMetadataResponseReceived)
