"""One TCP connection to one server: frames, replies in order, heartbeat and back-pressure.

A connection lives once. When it ends, every request in flight fails with ConnectionLoss and nothing
is sent again; the session makes another connection.

Two times are kept. *Heard* is when bytes last came in: silence for 2/3 of the timeout ends the
connection. *Vouched* is when the last message that has been answered was sent: the server's own
timer for the session started after that, so the session can be trusted until vouched + timeout.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar, cast

import attrs

from kctl.zookeeper.errors import (
    ConnectionLoss,
    ErrorCode,
    MultiError,
    ProtocolError,
    ReplyTooLarge,
    RequestTooLarge,
    code_of,
    error_of,
)
from kctl.zookeeper.wire import (
    AUTH_XID,
    INT,
    NOTIFICATION_XID,
    PING_XID,
    REPLY_HEADER,
    REQUEST_HEADER,
    SET_WATCHES_XID,
    ConnectReply,
    Op,
    Request,
    WatchEvent,
    read_connect_reply,
    read_event,
)

T = TypeVar("T")

IN_FLIGHT_MAX_BYTES: Final = 4 << 20
REPLY_MAX_BYTES: Final = 64 << 20
REQUEST_MAX_BYTES: Final = 0xFFFFF  # a server's default jute.maxbuffer
WRITE_BUFFER_BYTES: Final = 256 << 10
XID_MAX: Final = (1 << 31) - 1
LATENCIES_MAX: Final = 2_048
_BATCHES: Final = (Op.MULTI, Op.MULTI_READ)
_PING: Final = REQUEST_HEADER.pack(8, PING_XID, Op.PING)


class Listener(Protocol):
    """What the session wants to know, told at once and in the order of the wire."""

    def on_connect_reply(self, connection: "Connection", reply: ConnectReply) -> None: ...
    def on_auth_reply(self, connection: "Connection", err: int) -> None: ...
    def on_watch_event(self, event: WatchEvent) -> None: ...
    def on_session_expired(self) -> None: ...
    def on_wake_up_late(self, connection: "Connection") -> None: ...
    def on_connection_lost(self, connection: "Connection", reason: Exception) -> None: ...


@attrs.define
class Traffic:
    """What went over the wire, of all connections that share this."""

    requests: int = 0
    """Without heartbeats."""
    batches: int = 0
    """Requests of many operations or reads in one."""
    bytes_sent: int = 0
    bytes_received: int = 0
    refused_credentials: int = 0
    answered: int = 0
    latency_total_s: float = 0.0
    latencies_s: deque[float] = attrs.field(factory=lambda: deque(maxlen=LATENCIES_MAX))
    """Of the last answered requests, from sending to receiving."""

    def answer(self, latency_s: float) -> None:
        self.answered += 1
        self.latency_total_s += latency_s
        self.latencies_s.append(latency_s)

    @property
    def bytes(self) -> int:
        return self.bytes_sent + self.bytes_received


@attrs.define(eq=False)
class _InFlight:
    xid: int
    read: Callable[[bytes], Any]
    future: asyncio.Future[Any]
    size: int
    sent_at: float
    on_reply: Callable[[int], None] | None
    as_code: bool


class Connection(asyncio.Protocol):
    """An asyncio protocol that speaks ZooKeeper. Not shared, not reused."""

    def __init__(
        self,
        listener: Listener,
        clock: Callable[[], float],
        connect_body: bytes,
        *,
        first_xid: int = 1,
        request_max_bytes: int = REQUEST_MAX_BYTES,
        reply_max_bytes: int = REPLY_MAX_BYTES,
        in_flight_max_bytes: int = IN_FLIGHT_MAX_BYTES,
        traffic: Traffic | None = None,
    ) -> None:
        self._listener = listener
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._connect_body = connect_body
        self._request_max_bytes = request_max_bytes
        self._reply_max_bytes = reply_max_bytes
        self._in_flight_max_bytes = in_flight_max_bytes
        self._traffic = traffic or Traffic()
        self._next_xid = first_xid
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._skip_bytes = 0
        self._out: list[bytes] = []
        self._flush_planned = False
        self._paused = False
        self._in_flight: deque[_InFlight] = deque()
        self._in_flight_bytes = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._pings_sent_at: deque[float] = deque()
        self._heartbeat: asyncio.TimerHandle | None = None
        self._timeout_s = 0.0
        self._heard_at = 0.0
        self._sent_at = 0.0
        self.established = False
        self.made_at = clock()
        self.vouched_at = 0.0
        self.last_zxid = 0
        self.settled: asyncio.Future[None] = self._loop.create_future()
        """Done when the connect reply came, or when the connection ended before."""
        self.ended: asyncio.Future[None] = self._loop.create_future()

    # --- asyncio's side --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the session at once."""
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        if self.ended.done():
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._sent_at = self._heard_at = self.vouched_at = self._clock()
        self._transport.write(INT.pack(len(self._connect_body)) + self._connect_body)

    def data_received(self, data: bytes) -> None:
        """Take whole frames out of the stream."""
        if self.ended.done():
            return
        now = self._clock()
        if self.established and now - self.vouched_at >= self._timeout_s:
            # We were asleep; these bytes may be as old as our sleep is long.
            self._listener.on_wake_up_late(self)
            return
        self._heard_at = now
        self._traffic.bytes_received += len(data)
        self._buffer += data
        try:
            self._take_frames()
        except (ProtocolError, struct.error, IndexError, ValueError) as error:
            self.drop(error if isinstance(error, ProtocolError) else ProtocolError(repr(error)))
            return
        self._let_next_send()

    def _take_frames(self) -> None:
        buffer = self._buffer
        at, size = min(self._skip_bytes, len(buffer)), len(buffer)
        self._skip_bytes -= at
        while size - at >= 4:
            (length,) = INT.unpack_from(buffer, at)
            end = at + 4 + length
            if not 0 <= length <= self._reply_max_bytes:
                if length < 0 or not self.established:
                    raise ProtocolError(f"frame of {length} bytes")
                if size - at < 4 + REPLY_HEADER.size:
                    break
                self._on_oversized(buffer, at + 4, length)
                at = min(end, size)
                self._skip_bytes = end - at
                continue
            if end > size:
                break
            with memoryview(buffer) as view:
                frame = bytes(view[at + 4 : end])
            at = end
            self._on_frame(frame)
            if self.ended.done():
                return
        del buffer[:at]

    def eof_received(self) -> None:
        """The server hung up."""
        self.drop(ConnectionResetError("the server closed the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone."""
        self.drop(exc or ConnectionResetError("the connection was closed"))

    def pause_writing(self) -> None:
        """The socket's buffer is full: requests wait."""
        self._paused = True

    def resume_writing(self) -> None:
        """The socket's buffer has room again."""
        self._paused = False
        self._let_next_send()

    # --- the session's side ----------------------------------------------------------------------

    async def request(
        self, request: Request[T], on_reply: Callable[[int], None] | None = None
    ) -> T:
        """Send and wait for the reply."""
        return await (await self.submit(request, on_reply))

    async def submit(
        self, request: Request[T], on_reply: Callable[[int], None] | None = None
    ) -> asyncio.Future[T]:
        """Send, waiting only while too much is in flight; the future is the reply.

        ``on_reply`` gets the error number as soon as the reply is read, before any later message,
        whether or not somebody still waits for the future.
        """
        await self._room_for(request)
        return self._send(request, on_reply, as_code=False)

    async def submit_coded(self, request: Request[T]) -> asyncio.Future[T | ErrorCode]:
        """As `submit`, but an error is the future's result, not its exception."""
        await self._room_for(request)
        return self._send(request, None, as_code=True)

    def write_auth(self, bodies: Sequence[bytes]) -> None:
        """Send credentials; each is answered through the listener."""
        for body in bodies:
            self._write(AUTH_XID, Op.AUTH, body)

    def write_set_watches(self, opcode: Op, body: bytes) -> None:
        """Re-arm watches."""
        self._write(SET_WATCHES_XID, opcode, body)

    def drop(self, reason: Exception) -> None:
        """End the connection now: what is in flight or waits to be sent fails, once."""
        if self._transport is not None:
            self._transport.abort()
        if self.ended.done():
            return
        self.ended.set_result(None)
        if not self.settled.done():
            self.settled.set_result(None)
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        self._out.clear()
        self._buffer.clear()
        for entry in self._in_flight:
            if not entry.future.done():
                entry.future.set_exception(ConnectionLoss())
        self._in_flight.clear()
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(ConnectionLoss())
        self._listener.on_connection_lost(self, reason)

    # --- sending ---------------------------------------------------------------------------------

    @property
    def _has_room(self) -> bool:
        return self._in_flight_bytes < self._in_flight_max_bytes and not self._paused

    async def _room_for(self, request: Request[T]) -> None:
        if len(request.body) + 8 > self._request_max_bytes:
            raise RequestTooLarge(
                f"{len(request.body) + 8} bytes, the limit is {self._request_max_bytes}"
            )
        if self._waiting or not self._has_room:
            turn: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(turn)
            try:
                await turn
            finally:
                self._waiting.remove(turn)
                # Also if this one was cancelled after its turn had come.
                self._loop.call_soon(self._let_next_send)
        if self.ended.done():
            raise ConnectionLoss

    def _let_next_send(self) -> None:
        if self._waiting and self._has_room and not self._waiting[0].done():
            self._waiting[0].set_result(None)

    def _send(
        self, request: Request[Any], on_reply: Callable[[int], None] | None, *, as_code: bool
    ) -> asyncio.Future[Any]:
        xid = self._next_xid
        self._next_xid = xid + 1 if xid < XID_MAX else 1
        body = request.body
        future: asyncio.Future[Any] = self._loop.create_future()
        self._write(xid, request.opcode, body)
        size = len(body) + 8
        entry = _InFlight(xid, request.read, future, size, self._sent_at, on_reply, as_code)
        self._in_flight.append(entry)
        self._in_flight_bytes += size
        return future

    def _write(self, xid: int, opcode: int, body: bytes) -> None:
        self._sent_at = self._clock()
        self._traffic.requests += 1
        self._traffic.batches += opcode in _BATCHES
        self._traffic.bytes_sent += len(body) + REQUEST_HEADER.size
        self._out.append(REQUEST_HEADER.pack(len(body) + 8, xid, opcode))
        self._out.append(body)
        if not self._flush_planned:
            # Requests made in one turn of the loop leave in one system call.
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_planned = False
        if self._out and self._transport is not None and not self.ended.done():
            out = b"".join(self._out)
            self._out.clear()
            self._transport.write(out)

    # --- receiving -------------------------------------------------------------------------------

    def _on_frame(self, frame: bytes) -> None:
        if not self.established:
            reply = read_connect_reply(frame)
            self.established = True
            self._timeout_s = reply.timeout_ms / 1000
            self._listener.on_connect_reply(self, reply)
            if not self.ended.done():
                self._beat()
            if not self.settled.done():
                self.settled.set_result(None)
            return
        xid, zxid, err = REPLY_HEADER.unpack_from(frame)
        match xid:
            case _ if xid >= 0:
                self._on_reply(xid, zxid, err, frame)
            case x if x == NOTIFICATION_XID:
                self._listener.on_watch_event(read_event(frame))
            case x if x == PING_XID:
                self.vouched_at = max(self.vouched_at, self._pings_sent_at.popleft())
            case x if x == AUTH_XID:
                self._listener.on_auth_reply(self, err)
            case x if x == SET_WATCHES_XID:
                if err:
                    raise ProtocolError(f"the watches were refused: {error_of(err)}")
            case _:
                raise ProtocolError(f"reply with xid {xid}")

    def _on_reply(self, xid: int, zxid: int, err: int, frame: bytes) -> None:
        entry = self._answered(xid, zxid)
        result: Any = None
        error: Exception | None = None
        if err == 0:
            try:
                result = entry.read(frame)
            except MultiError as refusal:
                error = refusal
        elif entry.as_code:
            result = code_of(err)
        else:
            error = error_of(err)
        if entry.on_reply is not None:
            entry.on_reply(err)
        self._in_flight.popleft()
        if not entry.future.done():
            if error is None:
                entry.future.set_result(result)
            else:
                entry.future.set_exception(error)
        if err == ErrorCode.SESSION_EXPIRED:
            self._listener.on_session_expired()

    def _on_oversized(self, buffer: bytearray, at: int, length: int) -> None:
        """Fail the request whose reply starts here; its bytes are skipped as they come."""
        xid, zxid, _ = REPLY_HEADER.unpack_from(buffer, at)
        entry = self._answered(xid, zxid)
        self._in_flight.popleft()
        if not entry.future.done():
            entry.future.set_exception(ReplyTooLarge(f"{length} bytes"))

    def _answered(self, xid: int, zxid: int) -> _InFlight:
        # An entry stays in flight until its reply is read: if that fails, it fails with the rest.
        entry = self._in_flight[0] if self._in_flight else None
        if entry is None or entry.xid != xid:
            raise ProtocolError(f"reply {xid} is not for the oldest request")
        if zxid > 0:
            self.last_zxid = zxid
        self._in_flight_bytes -= entry.size
        self.vouched_at = max(self.vouched_at, entry.sent_at)
        self._traffic.answer(self._heard_at - entry.sent_at)
        return entry

    # --- heartbeat -------------------------------------------------------------------------------

    def _beat(self) -> None:
        """Ping after a third of the timeout without sending; give up after two thirds of silence.

        Both deadlines only ever move later, so one timer at the earlier of the two is exact.
        """
        if self.ended.done():
            return
        now = self._clock()
        third = self._timeout_s / 3
        silent_at = self._heard_at + 2 * third
        if now >= silent_at:
            self.drop(TimeoutError(f"the server was silent for {now - self._heard_at:.3f} s"))
            return
        if now >= self._sent_at + third:
            self._pings_sent_at.append(now)
            self._sent_at = now
            assert self._transport is not None
            self._transport.write(_PING)
        wake_at = min(silent_at, self._sent_at + third)
        # A timer may fire a fraction of a millisecond early (uvloop rounds): never spin.
        self._heartbeat = self._loop.call_later(max(wake_at - now, 0.001), self._beat)
