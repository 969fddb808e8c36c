"""Watches of a real server: one-shot, persistent, recursive; and events before newer data."""

import asyncio

import pytest

from kctl.zookeeper.errors import NoNode
from kctl.zookeeper.session import Session
from kctl.zookeeper.wire import EventType, WatchEvent, WatchKind, WatchMode
from tests.zookeeper.records import Record

pytestmark = [pytest.mark.zookeeper, pytest.mark.asyncio]

CREATED, DELETED = EventType.CREATED, EventType.DELETED
DATA_CHANGED, CHILDREN_CHANGED = EventType.DATA_CHANGED, EventType.CHILDREN_CHANGED


async def test_one_shot_watches(zk: Session, chroot: str) -> None:
    async with Session.open(chroot, timeout_ms=10_000) as writer:
        record = Record(zk)
        assert await zk.exists("/a", watch=True) is None
        await zk.children("/", watch=True)
        await writer.create("/a")
        await record.until(lambda record: len(record.events) >= 2)
        assert set(record.events) == {(CREATED, "/a"), (CHILDREN_CHANGED, "/")}
        assert len(zk._watches) == 0
        # Not armed again by itself.
        await writer.set("/a", b"1")
        await zk.get("/a", watch=True)
        await zk.children("/a", watch=True)
        await writer.set("/a", b"2")
        await writer.set("/a", b"3")
        await zk.get("/a", watch=True)
        await writer.delete("/a")
        await record.until(lambda record: len(record.events) >= 4)
        assert record.events[2:] == [(DATA_CHANGED, "/a"), (DELETED, "/a")]
        assert len(zk._watches) == 0


async def test_a_failed_read_arms_nothing(zk: Session) -> None:
    record = Record(zk)
    for call in (zk.get, zk.children):
        with pytest.raises(NoNode):
            await call("/a", watch=True)
    await zk.create("/a")
    await zk.sync()
    assert record.events == []
    assert len(zk._watches) == 0


async def test_persistent_watches(zk: Session) -> None:
    record = Record(zk)
    await zk.create("/p")
    await zk.create("/r")
    await zk.add_watch("/p", WatchMode.PERSISTENT)
    await zk.add_watch("/r", WatchMode.PERSISTENT_RECURSIVE)
    for path in ("/p", "/r"):
        await zk.set(path, b"")
        await zk.create(path + "/a")
        await zk.create(path + "/a/b")
        await zk.set(path + "/a/b", b"")
        await zk.delete(path + "/a/b")
    await zk.sync()
    assert record.events == [
        (DATA_CHANGED, "/p"),
        (CHILDREN_CHANGED, "/p"),
        (DATA_CHANGED, "/r"),
        (CREATED, "/r/a"),
        (CREATED, "/r/a/b"),
        (DATA_CHANGED, "/r/a/b"),
        (DELETED, "/r/a/b"),
    ]
    await zk.remove_watches("/r")
    await zk.remove_watches("/p", WatchKind.ANY)
    del record.events[:]
    await zk.set("/r", b"")
    await zk.sync()
    assert [event for event in record.events if event.type > 0 and event.type < 5] == []
    assert len(zk._watches) == 0


async def test_removed_one_shot_watches_stay_silent(zk: Session) -> None:
    record = Record(zk)
    await zk.create("/a")
    await zk.get("/a", watch=True)
    await zk.remove_watches("/a", WatchKind.DATA)
    await zk.set("/a", b"")
    await zk.sync()
    assert [event for event in record.events if event.type is DATA_CHANGED] == []


async def test_an_event_comes_before_the_data_that_caused_it(zk: Session, chroot: str) -> None:
    """Whoever sees the new data has been told; replies and events keep the wire's order."""
    await zk.create("/a", b"0")
    told = 0

    def on_event(event: WatchEvent) -> None:
        nonlocal told
        told += event.type is DATA_CHANGED

    zk.on_event(on_event)
    async with Session.open(chroot, timeout_ms=10_000) as writer:

        async def write() -> None:
            for number in range(1, 201):
                await writer.set("/a", str(number).encode())

        writing = asyncio.ensure_future(write())
        seen = told_at_last = 0
        while seen < 200:
            data, _ = await zk.get("/a", watch=True)
            if int(data) > seen > 0:
                # Watched since the read that saw the value before.
                assert told > told_at_last
            seen, told_at_last = int(data), told
        await writing


async def test_a_watch_of_a_cancelled_read_is_known(zk: Session) -> None:
    """The server has armed it whether or not somebody waits; a reconnect must arm it too."""
    await zk.create("/a")
    waiting = asyncio.ensure_future(zk.get("/a", watch=True))
    await asyncio.sleep(0)
    waiting.cancel()
    await zk.sync()
    assert list(zk._watches.data) == [zk._chroot.full("/a")]
