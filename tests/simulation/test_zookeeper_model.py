"""The model of ZooKeeper: what is promised, and the legal oddities."""

from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from kctl.simulation.scheduler import Scheduler, Task
from kctl.simulation.zookeeper_client import ModelClient
from kctl.simulation.zookeeper_model import Ensemble
from kctl.simulation.zookeeper_tree import Refused
from kctl.zookeeper.errors import (
    BadVersion,
    ConnectionLoss,
    ErrorCode,
    MultiError,
    NodeExists,
    NoNode,
    SessionExpired,
)
from kctl.zookeeper.multi import Check, Create, Delete, SetData
from kctl.zookeeper.wire import CreateMode, EventType, WatchEvent


class Place:
    def __init__(self, seed: int = 0) -> None:
        self.scheduler = Scheduler()
        self.ensemble = Ensemble(self.scheduler, Random(seed))
        self.people = self.ensemble.open("people")
        self.events: list[WatchEvent] = []
        self.client = self.connect(seed)
        self.client.on_event = self.events.append

    def connect(self, seed: int = 0) -> ModelClient:
        return ModelClient(
            self.ensemble,
            self.scheduler,
            Random(seed),
            gate=lambda call, *args: call(*args),
            owner="test",
            timeout_ms=6_000,
        )

    def begin(self, work: Coroutine[Any, Any, Any]) -> list[object]:
        outcome: list[object] = []

        async def run() -> None:
            try:
                outcome.append(await work)
            except Exception as error:  # noqa: BLE001 the outcome is what is tested
                outcome.append(error)

        Task(run(), lambda call, *args: call(*args)).start()
        return outcome

    def do(self, work: Coroutine[Any, Any, Any], ms: int = 100) -> Any:
        outcome = self.begin(work)
        self.scheduler.run_until(self.scheduler.now + ms)
        (result,) = outcome
        return result


def test_versions_and_codes() -> None:
    place = Place()
    client = place.client
    assert place.do(client.create("/a", b"1")).path == "/a"
    assert isinstance(place.do(client.create("/a")), NodeExists)
    assert isinstance(place.do(client.create("/no/parent")), NoNode)
    assert place.do(client.set("/a", b"2", 0)).version == 1
    assert isinstance(place.do(client.set("/a", b"3", 0)), BadVersion)
    data, stat = place.do(client.get("/a"))
    assert (data, stat.version, stat.mzxid > stat.czxid) == (b"2", 1, True)


def test_a_multi_is_all_or_nothing() -> None:
    place = Place()
    place.do(place.client.create("/a", b"1"))
    refused = place.do(
        place.client.multi([SetData("/a", b"2"), Create("/b"), Check("/a", 7), Delete("/a")])
    )
    assert isinstance(refused, MultiError)
    assert refused.codes == (
        ErrorCode.OK,
        ErrorCode.OK,
        ErrorCode.BAD_VERSION,
        ErrorCode.RUNTIME_INCONSISTENCY,
    )
    assert place.ensemble.tree.data("/a") == b"1"
    assert place.ensemble.tree.get("/b") is None


def test_sequential_names_rise() -> None:
    place = Place()
    names = [
        place.do(place.client.create("/n_", b"", CreateMode.PERSISTENT_SEQUENTIAL)).path
        for _ in range(3)
    ]
    assert names == sorted(set(names))


def test_a_watch_goes_off_once_and_before_newer_data_is_read() -> None:
    for seed in range(20):
        place = Place(seed)
        place.do(place.client.create("/a", b"1"))
        place.do(place.client.get("/a", watch=True))
        place.ensemble.commit(place.people, [SetData("/a", b"2")])
        place.ensemble.commit(place.people, [SetData("/a", b"3")])
        reads: list[tuple[bytes, int]] = []

        async def read(place: Place = place, reads: list[tuple[bytes, int]] = reads) -> None:
            for _ in range(3):
                data, _ = await place.client.get("/a")
                reads.append((data, len(place.events)))

        place.do(read())
        assert all(events == 1 for data, events in reads if data != b"1")
        assert place.events == [WatchEvent(EventType.DATA_CHANGED, "/a")]


def test_a_change_during_an_outage_is_reported_after_it() -> None:
    place = Place()
    place.do(place.client.create("/a", b"1"))
    place.do(place.client.get("/a", watch=True))
    place.client.lose_connection(200)
    place.ensemble.commit(place.people, [SetData("/a", b"2")])
    place.scheduler.run_until(place.scheduler.now + 1_000)
    assert place.events == [WatchEvent(EventType.DATA_CHANGED, "/a")]


def test_a_lost_connection_leaves_the_outcome_open() -> None:
    """Over many seeds both happen: the write landed, and it did not."""
    landed = set()
    for seed in range(40):
        place = Place(seed)
        outcome = place.begin(place.client.create("/a"))
        place.scheduler.run_until(seed % 4)
        place.client.lose_connection(50)
        place.scheduler.run_until(500)
        if outcome and isinstance(outcome[0], ConnectionLoss):
            landed.add(place.ensemble.tree.get("/a") is not None)
    assert landed == {True, False}


def test_a_call_waits_for_the_connection() -> None:
    place = Place()
    place.client.lose_connection(300)
    outcome = place.begin(place.client.create("/a"))
    place.scheduler.run_until(250)
    assert outcome == []
    place.scheduler.run_until(600)
    assert len(outcome) == 1
    assert place.ensemble.tree.get("/a") is not None


@pytest.mark.parametrize("linger", [0, 500])
def test_expiry_takes_the_ephemerals(linger: int) -> None:
    place = Place()
    ended: list[bool] = []
    place.client.on_expired = lambda: ended.append(True)
    place.do(place.client.create("/e", b"", CreateMode.EPHEMERAL))
    place.client.expired_by_server(linger)
    assert (place.ensemble.tree.get("/e") is not None) is bool(linger)
    place.scheduler.run_until(place.scheduler.now + 1_000)
    assert place.ensemble.tree.get("/e") is None
    assert ended == [True]
    assert isinstance(place.do(place.client.get("/e")), SessionExpired)


def test_silence_ends_a_session_on_both_sides() -> None:
    place = Place()
    place.do(place.client.create("/e", b"", CreateMode.EPHEMERAL))
    place.client.lose_connection(60_000)
    place.scheduler.run_until(place.scheduler.now + 9_000)
    assert place.client.over
    assert place.ensemble.tree.get("/e") is None


def test_a_follower_may_lag_but_sync_catches_up() -> None:
    stale: list[bool] = []
    for seed in range(20):
        place = Place(seed)
        place.do(place.client.create("/a", b"old"))
        place.ensemble.follower_stalls_until = place.scheduler.now + 3_000
        place.ensemble.commit(place.people, [SetData("/a", b"new")])
        stale.append(place.do(place.client.get("/a"))[0] == b"old")

        async def fresh(place: Place = place) -> bytes:
            await place.client.sync()
            return (await place.client.get("/a"))[0]

        assert place.do(fresh()) == b"new"
    assert set(stale) == {True, False}


def test_listeners_see_every_transaction_in_order() -> None:
    place = Place()
    zxids: list[int] = []
    place.ensemble.listeners.append(lambda transaction: zxids.append(transaction.zxid))
    place.do(place.client.create("/a"))
    with pytest.raises(Refused):
        place.ensemble.commit(place.people, [Create("/a")])
    place.do(place.client.set("/a", b"1"))
    assert zxids == [1, 2]
