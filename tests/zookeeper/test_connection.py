"""A connection and its session against a server that follows a script, or a clock that jumps."""

import asyncio
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from unittest.mock import Mock

import pytest

from kctl.zookeeper.connection import IN_FLIGHT_MAX_BYTES, REQUEST_MAX_BYTES, XID_MAX, Connection
from kctl.zookeeper.embedded import EmbeddedZooKeeper
from kctl.zookeeper.errors import ConnectionLoss, NoServers
from kctl.zookeeper.session import Session, State
from kctl.zookeeper.wire import Op, set_data, sync
from tests.zookeeper.fault_proxy import HOST, FaultProxy
from tests.zookeeper.frames import sent_frames
from tests.zookeeper.records import Record

pytestmark = pytest.mark.asyncio

Script = Callable[["Peer"], Awaitable[None]]


class Peer:
    """The server's end of one connection, after the connect request was answered."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.pings = 0
        self.pinged_often = asyncio.Event()

    async def frame(self) -> bytes:
        (length,) = struct.unpack(">i", await self._reader.readexactly(4))
        return await self._reader.readexactly(length)

    def send(self, frame: bytes) -> None:
        self._writer.write(struct.pack(">i", len(frame)) + frame)

    async def request(self, *, answer_pings: bool = True) -> tuple[int, int]:
        """The next request that is no ping: its xid and opcode."""
        while True:
            xid, opcode = struct.unpack_from(">ii", await self.frame())
            if opcode != Op.PING:
                return xid, opcode
            self.pings += 1
            if self.pings == 10:
                self.pinged_often.set()
            if answer_pings:
                self.reply(xid)

    def reply(self, xid: int, err: int = 0, body: bytes = b"", zxid: int = 1) -> None:
        self.send(struct.pack(">iqi", xid, zxid, err) + body)

    async def probe(self) -> None:
        """Answer the question what this server knows: all of it."""
        xid, opcode = await self.request()
        assert opcode == Op.MULTI_READ
        self.reply(xid, body=struct.pack(">i?i", -1, True, -1))


@asynccontextmanager
async def scripted(script: Script, timeout_ms: int = 600) -> AsyncIterator[tuple[str, list[Peer]]]:
    """A server that grants a session and then follows the script on each connection."""
    peers: list[Peer] = []
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        peer = Peer(reader, writer)
        try:
            await peer.frame()
            peers.append(peer)
            peer.send(struct.pack(">iiqi", 0, timeout_ms, 77, 16) + bytes(17))
            await script(peer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    try:
        yield f"{HOST}:{server.sockets[0].getsockname()[1]}", peers
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_silent_server_is_pinged_and_then_left() -> None:
    async def script(peer: Peer) -> None:
        if len(peers) == 1:
            await peer.probe()
            await peer.request(answer_pings=False)
        await peer.request()

    async with scripted(script) as (address, peers), Session.open(address) as session:
        record = Record(session)
        await record.until_state(State.SUSPENDED, State.CONNECTED)
        assert record.states == [State.SUSPENDED, State.CONNECTED]
        assert peers[0].pings == 1
        assert isinstance(session.last_error, TimeoutError)


async def test_an_idle_session_lives_on_pings() -> None:
    async def script(peer: Peer) -> None:
        await peer.probe()
        await peer.request()

    async with scripted(script, timeout_ms=150) as (address, peers), Session.open(address) as zk:
        record = Record(zk)
        await peers[0].pinged_often.wait()
        assert (record.states, zk.state, len(peers)) == ([], State.CONNECTED, 1)


@pytest.mark.parametrize(
    "xid_offset, body",
    [(1, bytes(68)), (0, bytes(5)), (-1000, bytes(68))],
    ids=["another request's", "cut short", "unknown xid"],
)
async def test_a_wrong_reply_ends_the_connection(xid_offset: int, body: bytes) -> None:
    async def script(peer: Peer) -> None:
        if len(peers) == 1:
            await peer.probe()
            xid, _ = await peer.request()
            peer.reply(xid + xid_offset, body=body)
        await peer.request()

    async with scripted(script) as (address, peers), Session.open(address) as session:
        record = Record(session)
        with pytest.raises(ConnectionLoss):
            await session.exists("/a")
        await record.until_state(State.SUSPENDED, State.CONNECTED)
        assert session.session_id == 77


async def test_another_session_is_never_taken_for_ours() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        numbers.append(len(numbers) + 1)
        await peer.frame()
        peer.send(struct.pack(">iiqi", 0, 600, numbers[-1], 16) + bytes(17))
        if numbers[-1] == 1:
            await peer.probe()
        writer.close()

    numbers: list[int] = []
    server = await asyncio.start_server(serve, HOST, 0)
    address = f"{HOST}:{server.sockets[0].getsockname()[1]}"
    async with server, Session.open(address) as session:
        record = Record(session)
        await record.until(lambda record: State.EXPIRED in record.states)
        assert session.session_id == 1


async def test_something_else_answers_on_the_port() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    address = f"{HOST}:{server.sockets[0].getsockname()[1]}"
    async with server:
        with pytest.raises(NoServers, match="frame of"):
            await Session.connect(address, connect_timeout_ms=300)


@pytest.mark.zookeeper
async def test_xids_begin_again(zookeeper: EmbeddedZooKeeper, proxy: FaultProxy) -> None:
    async with Session.open(proxy.address, timeout_ms=10_000) as session:
        assert session._connection is not None
        session._connection._next_xid = XID_MAX - 2
        found = await asyncio.gather(*(session.children("/") for _ in range(6)))
        assert all("zookeeper" in names for names in found)
        xids = [frame.xid for frame in sent_frames(proxy.bytes_to_server[0])[1:]]
        assert xids == [XID_MAX - 2, XID_MAX - 1, XID_MAX, 1, 2, 3]


@pytest.mark.zookeeper
async def test_requests_wait_while_too_much_is_in_flight(
    proxy: FaultProxy, chroot: str, zk: Session
) -> None:
    await zk.create("/a")
    path = "/" + chroot.partition("/")[2]
    async with Session.open(proxy.address + path, timeout_ms=20_000) as session:
        connection = session._connection
        assert connection is not None
        proxy.stall()
        size = REQUEST_MAX_BYTES - 1000
        writes = [asyncio.ensure_future(session.set("/a", bytes(size))) for _ in range(12)]
        await asyncio.sleep(0.2)
        assert 0 < connection._in_flight_bytes <= IN_FLIGHT_MAX_BYTES + REQUEST_MAX_BYTES
        assert len(connection._waiting) >= 7
        writes[11].cancel()
        writes[3].cancel()
        proxy.flow()
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        lost = [one for one in outcomes if isinstance(one, BaseException)]
        assert [type(one) for one in lost] == [asyncio.CancelledError] * 2
        assert (connection._in_flight_bytes, len(connection._waiting)) == (0, 0)
        _, stat = await session.get("/a")
        # The fourth was cancelled: unsent, or sent and carried out.
        assert stat.version in {10, 11}


@pytest.mark.zookeeper
async def test_waiting_requests_fail_with_the_connection(
    proxy: FaultProxy, chroot: str, zk: Session
) -> None:
    await zk.create("/a")
    path = "/" + chroot.partition("/")[2]
    async with Session.open(proxy.address + path, timeout_ms=20_000) as session:
        proxy.stall()
        size = REQUEST_MAX_BYTES - 1000
        writes = [asyncio.ensure_future(session.set("/a", bytes(size))) for _ in range(12)]
        await asyncio.sleep(0.1)
        proxy.cut_rst()
        proxy.flow()
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        assert [type(one) for one in outcomes] == [ConnectionLoss] * 12


@pytest.mark.zookeeper
async def test_a_clock_that_jumped_fences_before_any_request(chroot: str) -> None:
    """As after a stop of the process: the first look at the session already says so."""
    jump_s = 0.0

    def clock() -> float:
        return time.monotonic() + jump_s

    async with Session.open(chroot, timeout_ms=5_000, clock=clock) as session:
        record = Record(session)
        await session.create("/a")
        jump_s = 4.0
        assert session.state is State.CONNECTED
        jump_s = 5.5
        with pytest.raises(ConnectionLoss):
            await session.set("/a", b"too late")
        assert record.states == [State.FENCED]
        # The server has kept it: no time has passed there.
        await record.until_state(State.FENCED, State.CONNECTED)
        assert (await session.get("/a"))[0] == b""


async def test_bytes_that_are_read_too_late_are_not_believed() -> None:
    """The answer lay in the socket while the process slept: the session may be gone since."""
    asked, woken = asyncio.Event(), asyncio.Event()
    jump_s = 0.0

    async def script(peer: Peer) -> None:
        if len(peers) == 1:
            await peer.probe()
            xid, _ = await peer.request()
            asked.set()
            await woken.wait()
            peer.reply(xid, body=bytes(68))
        await peer.request()

    def clock() -> float:
        return time.monotonic() + jump_s

    async with (
        scripted(script, timeout_ms=10_000) as (address, peers),
        Session.open(address, clock=clock) as session,
    ):
        record = Record(session)
        read = asyncio.ensure_future(session.exists("/a"))
        await asked.wait()
        jump_s = 10.5
        woken.set()
        with pytest.raises(ConnectionLoss):
            await read
        assert record.states[0] is State.FENCED


async def test_a_turn_that_nobody_takes_goes_to_the_next() -> None:
    """The one whose turn has come is cancelled, and nothing else is in flight to wake the next."""
    connection = Connection(Mock(), time.monotonic, b"", in_flight_max_bytes=100)
    connection.connection_made(Mock())
    connection.data_received(
        b"".join([struct.pack(">i", 37), struct.pack(">iiqi", 0, 10_000, 77, 16), bytes(17)])
    )
    large = await connection.submit(set_data("/a", bytes(100), 0))
    first, second = (asyncio.ensure_future(connection.submit(sync("/"))) for _ in range(2))
    await asyncio.sleep(0)
    connection.data_received(struct.pack(">iiqi", 84, 1, 9, 0) + bytes(68))
    assert large.done()
    assert first.cancel()
    await asyncio.wait([first, second], timeout=1)
    assert (first.cancelled(), second.done()) == (True, True)
    connection.drop(ConnectionResetError("by the test"))
    with pytest.raises(ConnectionLoss):
        await (await second)
