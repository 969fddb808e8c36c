"""The server in memory beside a real one: the same requests, the same answers.

The script runs on the server in memory always, and on a real ZooKeeper in the tests that are marked
for it; what it tells must be the same, and both must be what is written here.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from kazoo.client import KazooClient

from kctl.testing.memory_server import MemoryServer
from kctl.zookeeper.embedded import EmbeddedZooKeeper
from kctl.zookeeper.errors import (
    BadVersion,
    MultiError,
    NodeExists,
    NoNode,
    NotEmpty,
    ZooKeeperError,
)
from kctl.zookeeper.link import State
from kctl.zookeeper.multi import Check, Create, Delete, SetData
from kctl.zookeeper.session import Session
from kctl.zookeeper.wire import CreateMode, Stat, WatchEvent, WatchKind, WatchMode

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def server() -> AsyncIterator[MemoryServer]:
    async with MemoryServer() as one:
        yield one


def shown(stat: Stat | None) -> object:
    """What does not depend on the server's past."""
    if stat is None:
        return None
    return (
        stat.version,
        stat.cversion,
        stat.data_length,
        stat.num_children,
        stat.ephemeral_owner != 0,
        stat.mzxid - stat.czxid,
        stat.ctime > 0,
    )


async def refusal(call: Awaitable[Any]) -> str:
    try:
        await call
    except MultiError as error:
        return " ".join(code.name for code in error.codes)
    except ZooKeeperError as error:
        return type(error).__name__
    return "done"


async def told(connect: str) -> list[object]:
    """A walk through everything that the store, the watches and the brokers use."""
    out: list[object] = []
    events: list[WatchEvent] = []
    async with (
        Session.open(connect, timeout_ms=10_000) as zk,
        Session.open(connect, timeout_ms=10_000) as other,
    ):
        zk.on_event(events.append)

        async def seen(count: int) -> None:
            async with asyncio.timeout(10):
                while len(events) < count:  # noqa: ASYNC110 events come by callback
                    await asyncio.sleep(0.001)
            out.append([(e.type.name, e.path) for e in events])
            events.clear()

        created = await zk.create("/a", "größe".encode())
        out += [created.path, shown(created.stat), shown(await zk.exists("/a"))]
        out.append((await zk.create("/a/s-", b"1", CreateMode.PERSISTENT_SEQUENTIAL)).path)
        out.append((await zk.create("/a/s-", None, CreateMode.EPHEMERAL_SEQUENTIAL)).path)
        out += [await zk.exists("/none", watch=True), shown(await zk.exists("/a", watch=True))]
        out.append(sorted(await zk.children("/a", watch=True)))
        await other.create("/none")
        await other.set("/a", b"2", 0)
        await other.create("/a/e", b"", CreateMode.EPHEMERAL)
        await seen(3)
        out.append([data for data, stat in [await zk.get("/a")]])
        for call in (
            zk.get("/nowhere"),
            zk.create("/a"),
            zk.create("/x/y"),
            zk.set("/a", b"", 0),
            zk.delete("/a"),
            zk.create("/a/e/below"),
            zk.delete("/nowhere"),
            zk.multi([Create("/m"), SetData("/a", b"3", 7), Delete("/none")]),
            zk.multi([Check("/a", 1), Create("/m"), SetData("/m", b"4", 0), Delete("/none")]),
        ):
            out.append(await refusal(call))
        results = await zk.multi([Create("/n", b"5"), SetData("/n", b"66"), Check("/n", 1)])
        out.append([shown(r) if isinstance(r, Stat) else type(r).__name__ for r in results])
        rows = await zk.read_many(["/n", "/nowhere", "/a"])
        out.append([r[0] if isinstance(r, tuple) else r.name for r in rows])
        lists = await zk.children_many(["/a", "/nowhere"])
        out.append([sorted(r) if isinstance(r, list) else r.name for r in lists])
        names, stat = await zk.children_and_stat("/a")
        out += [sorted(names), stat.num_children, len((await zk.get_acl("/a"))[0])]
        await zk.sync()
        await zk.exists("/n", watch=True)
        await zk.remove_watches("/n", WatchKind.DATA)
        await zk.add_watch("/a", WatchMode.PERSISTENT_RECURSIVE)
        await other.set("/n", b"7")
        await other.set("/a", b"8")
        await other.set("/a", b"9")
        await other.close()  # its ephemeral goes
        await seen(3)
    async with Session.open(connect, timeout_ms=10_000) as later:
        out.append(sorted(await later.children("/a")))
    return out


EXPECTED_REFUSALS = [
    NoNode.__name__,
    NodeExists.__name__,
    NoNode.__name__,
    BadVersion.__name__,
    NotEmpty.__name__,
    "NoChildrenForEphemerals",
    NoNode.__name__,
    "OK BAD_VERSION RUNTIME_INCONSISTENCY",
    "done",
]


async def test_it_answers_as_it_should(server: MemoryServer) -> None:
    out = await told(server.connect_string)
    assert out[3:5] == ["/a/s-0000000000", "/a/s-0000000001"]
    assert [text for text in out if isinstance(text, str)][3:] == EXPECTED_REFUSALS
    assert out[-1] == ["s-0000000000"]


@pytest.mark.zookeeper
async def test_it_answers_as_a_real_server_does(server: MemoryServer) -> None:
    async with EmbeddedZooKeeper() as real:
        assert await told(server.connect_string) == await told(real.connect_string)


async def test_a_silent_client_loses_its_session(server: MemoryServer) -> None:
    async with Session.open(server.connect_string, timeout_ms=10_000) as watcher:
        silent = await Session.connect(server.connect_string, timeout_ms=300)
        await silent.create("/e", b"", CreateMode.EPHEMERAL)
        assert await watcher.exists("/e", watch=True) is not None
        gone = asyncio.Event()
        watcher.on_event(lambda _event: gone.set())
        # Neither heartbeats nor a farewell.
        silent._keeper.cancel()  # type: ignore[union-attr]
        async with asyncio.timeout(10):
            await gone.wait()
        assert await watcher.exists("/e") is None
        assert server.sessions == (watcher.session_id,)
        await silent.close()


async def test_an_expired_client_is_told(server: MemoryServer) -> None:
    async with Session.open(server.connect_string, timeout_ms=10_000) as zk:
        expired = asyncio.Event()
        zk.on_state(lambda state: expired.set() if state is State.EXPIRED else None)
        server.expire(zk.session_id)
        async with asyncio.timeout(10):
            await expired.wait()


async def test_watches_outlive_a_connection(server: MemoryServer) -> None:
    """What changed while the client was away is reported when it is back."""
    events: list[WatchEvent] = []
    async with (
        Session.open(server.connect_string, timeout_ms=10_000) as zk,
        Session.open(server.connect_string, timeout_ms=10_000) as other,
    ):
        zk.on_event(events.append)
        await other.create("/a")
        await zk.get("/a", watch=True)
        await zk.children("/a", watch=True)
        await zk.exists("/b", watch=True)
        zk._connection.drop(ConnectionResetError("cut"))  # type: ignore[union-attr]
        await other.set("/a", b"1")
        await other.create("/a/c")
        await other.create("/b")
        async with asyncio.timeout(10):
            while len(events) < 3:  # noqa: ASYNC110 events come by callback
                await asyncio.sleep(0.001)
    assert sorted((e.type.name, e.path) for e in events) == [
        ("CHILDREN_CHANGED", "/a"),
        ("CREATED", "/b"),
        ("DATA_CHANGED", "/a"),
    ]


async def in_a_thread(work: Callable[[], object]) -> object:
    async with asyncio.timeout(15):
        return await asyncio.to_thread(work)


async def test_kazoo_gets_on_with_it(server: MemoryServer) -> None:
    def work() -> object:
        client = KazooClient(server.connect_string, timeout=10)
        client.start(timeout=10)
        try:
            client.ensure_path("/deep/er")
            client.create("/deep/er/e", b"1", ephemeral=True)
            transaction = client.transaction()
            transaction.create("/t", b"2")
            transaction.check("/deep", 9)
            failed = [type(result).__name__ for result in transaction.commit()]
            return client.get_children("/deep/er"), client.get("/deep/er/e")[0], failed
        finally:
            client.stop()
            client.close()

    assert await in_a_thread(work) == (["e"], b"1", ["RolledBackError", "BadVersionError"])
    async with Session.open(server.connect_string, timeout_ms=10_000) as zk:
        assert await zk.children("/deep/er") == []


@pytest.mark.parametrize(
    "junk", [b"\xff\xff\xff\xff", b"\0\0\0\x02ab", b"\x7f\xff\xff\xffGET / HTTP/1.1\r\n"]
)
async def test_junk_is_cut_off(server: MemoryServer, junk: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(junk)
    async with asyncio.timeout(10):
        try:
            assert await reader.read() == b""
        except ConnectionResetError:
            pass
    writer.close()
    async with Session.open(server.connect_string, timeout_ms=10_000) as zk:
        assert await zk.children("/") == []
