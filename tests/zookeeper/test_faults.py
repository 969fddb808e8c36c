"""The session under faults: kept through all that it can survive, and honest about the rest."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest
import pytest_asyncio

from kctl.zookeeper.embedded import HOST, EmbeddedZooKeeper, free_ports
from kctl.zookeeper.errors import ConnectionLoss, NoServers, SessionExpired
from kctl.zookeeper.session import Session, State
from kctl.zookeeper.wire import CREATOR_ALL_ACL, CreateMode, EventType, Op, WatchEvent, WatchMode
from tests.zookeeper.fault_proxy import FaultProxy
from tests.zookeeper.frames import last_zxid_of_connect, sent_frames
from tests.zookeeper.records import Record

pytestmark = [pytest.mark.zookeeper, pytest.mark.asyncio]

ON_BOTH_LOOPS = True
TIMEOUT_MS = 2000
CONNECTED, SUSPENDED = State.CONNECTED, State.SUSPENDED
FENCED, EXPIRED = State.FENCED, State.EXPIRED


@pytest.fixture
def through(proxy: FaultProxy, chroot: str) -> str:
    """The test's chroot, by way of the proxy."""
    return f"{proxy.address}/{chroot.partition('/')[2]}"


class Holder:
    """A session that holds an ephemeral znode, as a controller does."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.record = Record(session)
        self.id = session.session_id

    async def still_holds(self) -> bool:
        stat = await self.session.exists("/held")
        return (
            stat is not None
            and stat.ephemeral_owner == self.id == self.session.session_id
            and self.session.state is CONNECTED
        )


@pytest_asyncio.fixture
async def holder(through: str) -> AsyncIterator[Holder]:
    async with Session.open(through, timeout_ms=TIMEOUT_MS) as session:
        await session.create("/held", mode=CreateMode.EPHEMERAL)
        yield Holder(session)


# --- what a session survives ---------------------------------------------------------------------


@pytest.mark.parametrize("cut", [FaultProxy.cut_fin, FaultProxy.cut_rst], ids=["fin", "rst"])
async def test_a_cut_connection_is_made_again(
    holder: Holder, proxy: FaultProxy, cut: Callable[[FaultProxy], None]
) -> None:
    cut(proxy)
    await holder.record.until_state(SUSPENDED, CONNECTED)
    assert await holder.still_holds()
    assert holder.record.states == [SUSPENDED, CONNECTED]


async def test_a_frozen_server_is_left_for_another(
    zookeeper: EmbeddedZooKeeper, proxy: FaultProxy, chroot: str
) -> None:
    async with FaultProxy(zookeeper.port) as second:
        proxies = [proxy, second]
        servers = f"{proxy.address},{second.address}/{chroot.partition('/')[2]}"
        async with Session.open(servers, timeout_ms=TIMEOUT_MS, rng=Random(1)) as session:
            await session.create("/held", mode=CreateMode.EPHEMERAL)
            holder = Holder(session)
            (frozen,) = [one for one in proxies if one.accepted]
            (other,) = [one for one in proxies if not one.accepted]
            frozen.stall()
            await holder.record.until_state(SUSPENDED, CONNECTED)
            assert await holder.still_holds()
            assert holder.record.states == [SUSPENDED, CONNECTED]
            assert (frozen.accepted, other.accepted) == (1, 1)


async def test_refused_reconnects_are_failed_tries(holder: Holder, proxy: FaultProxy) -> None:
    proxy.refuse_next = 4
    proxy.cut_rst()
    await holder.record.until_state(SUSPENDED, CONNECTED)
    assert await holder.still_holds()
    assert (proxy.refuse_next, proxy.accepted) == (0, 6)


async def test_nobody_listens_for_a_while(holder: Holder, proxy: FaultProxy) -> None:
    await proxy.stop_listening()
    proxy.cut_fin()
    await holder.record.until_state(SUSPENDED)
    await asyncio.sleep(0.3)
    await proxy.listen()
    await holder.record.until_state(SUSPENDED, CONNECTED)
    assert await holder.still_holds()


async def test_a_late_connect_reply_is_a_failed_try(holder: Holder, proxy: FaultProxy) -> None:
    proxy.delay_next_s = 10 * TIMEOUT_MS / 1000
    proxy.cut_rst()
    await holder.record.until_state(SUSPENDED, CONNECTED)
    assert await holder.still_holds()
    assert proxy.accepted == 3


async def test_a_server_that_starts_refuses_and_then_hangs(
    holder: Holder, proxy: FaultProxy
) -> None:
    """Seen of ZooKeeper itself: it accepts before it can answer. One such try must not cost all."""
    proxy.refuse_next = 6
    proxy.delay_next_s = 10 * TIMEOUT_MS / 1000
    proxy.cut_rst()
    await holder.record.until(lambda record: record.states[-1:] in ([CONNECTED], [EXPIRED]))
    assert holder.record.states == [SUSPENDED, CONNECTED]
    assert await holder.still_holds()


async def test_a_slow_ensemble_is_reached_in_the_end(through: str, proxy: FaultProxy) -> None:
    """Each round waits longer, so a server that is always late is not refused for ever."""
    proxy.delay_all_s = 1.0
    async with Session.open(through, timeout_ms=TIMEOUT_MS, connect_timeout_ms=30_000) as session:
        assert proxy.accepted > 1
        assert session.state is CONNECTED


async def test_a_server_restarts() -> None:
    with EmbeddedZooKeeper(tick_time_ms=200) as server:
        async with Session.open(server.connect_string, timeout_ms=10_000) as session:
            await session.create("/held", mode=CreateMode.EPHEMERAL)
            holder = Holder(session)
            await asyncio.to_thread(server.kill)
            await holder.record.until_state(SUSPENDED)
            server.spawn()
            await holder.record.until_state(CONNECTED)
            assert await holder.still_holds()


async def test_all_addresses_of_a_name_are_tried(through: str, proxy: FaultProxy) -> None:
    """A name stands for two addresses, and nobody listens at the first."""
    loop = asyncio.get_running_loop()
    (dead,) = free_ports(1)
    resolve = loop.getaddrinfo

    async def two_addresses(_: str, port: int, **hints: int) -> list[Any]:
        return [
            *await resolve(HOST, dead, type=hints["type"]),
            *await resolve(HOST, port, type=hints["type"]),
        ]

    session = Session(through.replace(HOST, "zookeeper.test"), timeout_ms=TIMEOUT_MS)
    session._loop = Mock(wraps=loop, getaddrinfo=two_addresses)
    session._start()
    try:
        await session.wait_connected()
        assert await session.children("/") == []
    finally:
        await session.close()


# --- what it says of itself ----------------------------------------------------------------------


async def test_silence_fences_and_a_server_decides(holder: Holder, proxy: FaultProxy) -> None:
    """All servers freeze: after the timeout nothing is trusted, without any server's word."""
    proxy.stall()
    await holder.record.until_state(SUSPENDED, FENCED)
    with pytest.raises(ConnectionLoss):
        await holder.session.exists("/held")
    await asyncio.sleep(0.5)
    proxy.flow()
    await holder.record.until(lambda record: record.states[-1] in {CONNECTED, EXPIRED})
    # The server has not heard from us for longer than the timeout.
    assert holder.record.states == [SUSPENDED, FENCED, EXPIRED]
    with pytest.raises(SessionExpired):
        await holder.session.exists("/held")
    with pytest.raises(SessionExpired):
        await holder.session.wait_connected()


async def test_expiry_is_final_and_told_once(
    holder: Holder, through: str, proxy: FaultProxy
) -> None:
    """Somebody else ends the session: its connection is closed, the reconnect tells the rest."""
    session = holder.session
    twin = Session(through, timeout_ms=TIMEOUT_MS)
    twin._session_id, twin._password = session._session_id, session._password
    twin._start()
    await twin.wait_connected()
    await twin.close()
    await holder.record.until_state(EXPIRED)
    assert holder.record.states.count(EXPIRED) == 1
    accepted = proxy.accepted
    async with Session.open(through, timeout_ms=TIMEOUT_MS) as fresh:
        assert fresh.session_id != holder.id
        assert await fresh.exists("/held") is None
    assert proxy.accepted == accepted + 1
    assert session.state is EXPIRED


async def test_requests_in_flight_are_lost_and_not_sent_again(
    holder: Holder, proxy: FaultProxy
) -> None:
    proxy.stall()
    names = [f"/lost-{number}-" for number in range(3)]
    waiting = [
        asyncio.ensure_future(holder.session.create(name, mode=CreateMode.PERSISTENT_SEQUENTIAL))
        for name in names
    ]
    await asyncio.sleep(0.05)
    proxy.cut_rst()
    proxy.flow()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [ConnectionLoss] * 3
    await holder.record.until_state(SUSPENDED, CONNECTED)
    await holder.session.sync()
    assert await holder.session.children("/") == ["held"]
    assert b"/lost-" not in proxy.bytes_to_server[-1]


async def test_a_request_made_while_suspended_waits(holder: Holder, proxy: FaultProxy) -> None:
    await proxy.stop_listening()
    proxy.cut_fin()
    await holder.record.until_state(SUSPENDED)
    waiting = asyncio.ensure_future(holder.session.create("/late"))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await proxy.listen()
    assert (await waiting).path == "/late"


async def test_close_without_a_server_is_quick_and_clean(holder: Holder, proxy: FaultProxy) -> None:
    before = asyncio.all_tasks()
    await proxy.stop_listening()
    proxy.cut_fin()
    await holder.record.until_state(SUSPENDED)
    waiting = asyncio.ensure_future(holder.session.get("/held"))
    await asyncio.sleep(0)
    await holder.session.close()
    with pytest.raises(ConnectionLoss):
        await waiting
    assert holder.record.states == [SUSPENDED, State.CLOSED]
    assert holder.session._keeper is None
    assert len(asyncio.all_tasks()) <= len(before)


async def test_no_server_at_all(proxy: FaultProxy) -> None:
    await proxy.stop_listening()
    before = asyncio.all_tasks()
    with pytest.raises(NoServers, match=proxy.address):
        await Session.connect(proxy.address, timeout_ms=TIMEOUT_MS, connect_timeout_ms=300)
    assert asyncio.all_tasks() == before


# --- what a reconnect sends ----------------------------------------------------------------------


async def test_watches_are_set_again_in_chunks_before_anything_else(
    holder: Holder, proxy: FaultProxy, zk: Session
) -> None:
    session = holder.session
    paths = [f"/{'x' * 180}-{number:04}" for number in range(1500)]
    for path in paths:
        await session.exists(path, watch=True)
    await session.children("/", watch=True)
    zxid = session.last_zxid
    await proxy.stop_listening()
    proxy.cut_rst()
    await holder.record.until_state(SUSPENDED)
    await zk.create(paths[700])
    request = asyncio.ensure_future(session.get("/held"))
    await proxy.listen()
    await request
    stream = proxy.bytes_to_server[-1]
    frames = sent_frames(stream)
    chunks = [frame for frame in frames if frame.opcode == Op.SET_WATCHES]
    assert last_zxid_of_connect(stream) == zxid
    assert len(chunks) == 3
    assert frames[:3] == chunks
    assert all(len(chunk.body) <= 128 << 10 for chunk in chunks)
    assert {struct.unpack_from(">q", chunk.body)[0] for chunk in chunks} == {zxid}
    # What changed meanwhile is reported, and nothing else.
    await holder.record.until(lambda record: len(record.events) >= 2)
    changes = {(EventType.CREATED, paths[700]), (EventType.CHILDREN_CHANGED, "/")}
    assert set(holder.record.events) == changes
    # The rest is armed at the new connection.
    await zk.create(paths[3])
    await holder.record.until(lambda record: len(record.events) >= 3)
    assert holder.record.events[2:] == [WatchEvent(EventType.CREATED, paths[3])]


async def test_persistent_watches_are_set_again(
    holder: Holder, proxy: FaultProxy, zk: Session
) -> None:
    session = holder.session
    await zk.create("/tree")
    await session.add_watch("/tree", WatchMode.PERSISTENT_RECURSIVE)
    await session.add_watch("/held", WatchMode.PERSISTENT)
    proxy.cut_fin()
    await holder.record.until_state(SUSPENDED, CONNECTED)
    await session.sync()
    opcodes = [frame.opcode for frame in sent_frames(proxy.bytes_to_server[-1])]
    assert opcodes == [Op.SET_WATCHES2, Op.SYNC]
    for _ in range(2):
        await zk.create("/tree/a")
        await zk.set("/held", b"")
        await zk.delete("/tree/a")
    created = WatchEvent(EventType.CREATED, "/tree/a")
    changed = WatchEvent(EventType.DATA_CHANGED, "/held")
    deleted = WatchEvent(EventType.DELETED, "/tree/a")
    await holder.record.until(lambda record: len(record.events) >= 6)
    assert holder.record.events == [created, changed, deleted] * 2


async def test_credentials_are_sent_again_first(
    proxy: FaultProxy, through: str, zk: Session
) -> None:
    who = ("digest", b"kctl:secret")
    async with Session.open(through, timeout_ms=TIMEOUT_MS, auth=[who]) as session:
        record = Record(session)
        await session.create("/mine", b"x", acl=CREATOR_ALL_ACL)
        await session.get("/mine", watch=True)
        proxy.cut_rst()
        await record.until_state(SUSPENDED, CONNECTED)
        assert (await session.get("/mine"))[0] == b"x"
        opcodes = [frame.opcode for frame in sent_frames(proxy.bytes_to_server[-1])]
        assert opcodes[:3] == [Op.AUTH, Op.SET_WATCHES, Op.GET_DATA]


async def test_refused_credentials_are_told_and_tried_with_back_off(
    proxy: FaultProxy, through: str
) -> None:
    with pytest.raises(NoServers, match="AuthFailed"):
        await Session.connect(
            through, timeout_ms=TIMEOUT_MS, auth=[("nosuch", b"x")], connect_timeout_ms=1500
        )
    assert 2 <= proxy.accepted < 20


async def test_a_callback_that_raises_stops_nobody(holder: Holder, proxy: FaultProxy) -> None:
    reported: list[dict[str, object]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reported.append(context))

    def faulty(_: object) -> None:
        raise RuntimeError("a bug in a listener")

    holder.session._state_callbacks.insert(0, faulty)
    proxy.cut_fin()
    await holder.record.until_state(SUSPENDED, CONNECTED)
    assert await holder.still_holds()
    assert [str(context["exception"]) for context in reported] == ["a bug in a listener"] * 2
