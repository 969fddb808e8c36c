"""A session's life over many connections: dialling, resuming, fencing, expiry.

::

    CONNECTING -> CONNECTED <-> SUSPENDED -> FENCED        EXPIRED and CLOSED are final;
                      ^            |           |           every state but these two
                      +------------+-----------+           may turn into them
"""

import asyncio
import enum
import socket
import ssl as tls
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, Self

import attrs

from kctl.zookeeper import wire
from kctl.zookeeper.connection import (
    REPLY_MAX_BYTES,
    REQUEST_MAX_BYTES,
    Connection,
    Traffic,
)
from kctl.zookeeper.ensemble import DialOrder, Server, parse_connect_string
from kctl.zookeeper.errors import (
    ConnectionLoss,
    NoServers,
    ProtocolError,
    SessionExpired,
    Unimplemented,
    error_of,
)
from kctl.zookeeper.multi import multi_get_data
from kctl.zookeeper.watch_registry import WatchRegistry

DIAL_BOUND_MIN_S: Final = 0.25
BACKOFF_MIN_S: Final = 0.05
BACKOFF_MAX_S: Final = 1.0
CLOSE_BOUND_S: Final = 2.0


class State(enum.Enum):
    """What a session can say of itself."""

    CONNECTING = "connecting"
    """No server has answered yet."""
    CONNECTED = "connected"
    """A server serves us, and heard from us less than the timeout ago."""
    SUSPENDED = "suspended"
    """No connection; the session lives for sure, for a while."""
    FENCED = "fenced"
    """The ensemble may have expired the session: nothing that it held can be trusted. A server's
    word decides between CONNECTED and EXPIRED."""
    EXPIRED = "expired"
    """The ensemble expired the session. A new session is a new object."""
    CLOSED = "closed"
    """We ended it."""


FINAL: Final = (State.EXPIRED, State.CLOSED)


@attrs.frozen
class Capabilities:
    """What the servers know beyond the protocol of 3.5."""

    multi_read: bool
    add_watch: bool


class SessionLink:
    """The session without its requests; `ReadOnlySession` and `Session` add those.

    Callbacks run on the event loop: they must be short and must not raise.
    """

    def __init__(
        self,
        connect_string: str,
        *,
        timeout_ms: int = 18_000,
        ssl: tls.SSLContext | None = None,
        auth: Sequence[tuple[str, bytes]] = (),
        rng: Random | None = None,
        request_max_bytes: int = REQUEST_MAX_BYTES,
        reply_max_bytes: int = REPLY_MAX_BYTES,
        clock: Callable[[], float] = time.monotonic,
        traffic: Traffic | None = None,
    ) -> None:
        servers, self._chroot = parse_connect_string(connect_string)
        self._connect_string = connect_string
        self._rng = rng or Random()  # noqa: S311 - order of servers and jitter, no secrets
        self._dial_order = DialOrder(servers, self._rng)
        self._asked_timeout_ms = timeout_ms
        self._timeout_s = timeout_ms / 1000
        self._ssl = ssl
        self._auth = [wire.auth_body(scheme, credentials) for scheme, credentials in auth]
        self._request_max_bytes = request_max_bytes
        self._reply_max_bytes = reply_max_bytes
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._state = State.CONNECTING
        self._session_id = 0
        self._password = bytes(16)
        self._last_zxid = 0
        self._vouched_at = 0.0
        self._connection: Connection | None = None
        self._auth_replies_due = 0
        self._watches_written = False
        self._failed_in_a_row = 0
        self._late_in_a_row = 0
        self._dials: dict[Server, int] = {}
        self._fence: asyncio.TimerHandle | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._state_callbacks: list[Callable[[State], None]] = []
        self._event_callbacks: list[Callable[[wire.WatchEvent], None]] = []
        self._state_waiters: list[asyncio.Future[None]] = []
        self._watches = WatchRegistry()
        self.capabilities = Capabilities(multi_read=True, add_watch=True)
        self.traffic = traffic or Traffic()
        self.last_error: Exception | None = None
        """Why the last connection ended or could not be made."""

    # --- what others see -------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state now, by the clock too: a process that slept too long is FENCED at once."""
        self._check_clock()
        return self._state

    @property
    def session_id(self) -> int:
        """The id that ZooKeeper gave; ``ephemeral_owner`` of our ephemeral znodes."""
        return self._session_id

    @property
    def timeout_ms(self) -> int:
        """The session timeout that the server granted."""
        return round(self._timeout_s * 1000)

    @property
    def last_zxid(self) -> int:
        """The newest transaction that a reply to us was based on."""
        connection = self._connection
        return max(self._last_zxid, connection.last_zxid if connection is not None else 0)

    @property
    def trusted_until(self) -> float:
        """Until then (monotonic clock) the ensemble cannot have expired the session."""
        connection = self._connection
        vouched = connection.vouched_at if connection is not None else self._vouched_at
        return max(self._vouched_at, vouched) + self._timeout_s

    def on_state(self, callback: Callable[[State], None]) -> None:
        """Call this with each new state."""
        self._state_callbacks.append(callback)

    def on_event(self, callback: Callable[[wire.WatchEvent], None]) -> None:
        """Call this with each event of a watch, in the order of the wire: after a task that awaits
        an earlier reply has run on, and before one that awaits a later reply does."""
        self._event_callbacks.append(callback)

    async def wait_connected(self) -> None:
        """Return when connected; raises SessionExpired or ConnectionLoss if the session has ended."""
        while self.state is not State.CONNECTED:
            if self._state in FINAL:
                raise self._unavailable()
            await self._next_state()

    @classmethod
    async def connect(
        cls, connect_string: str, *, connect_timeout_ms: int | None = None, **options: Any
    ) -> Self:
        """Make a session and wait for a server that serves it; the caller closes it."""
        session = cls(connect_string, **options)
        session._start()
        bound_ms = session._asked_timeout_ms if connect_timeout_ms is None else connect_timeout_ms
        try:
            async with asyncio.timeout(bound_ms / 1000):
                await session._probe()
        except TimeoutError:
            cause = session.last_error
            await session.close()
            raise NoServers(
                f"no server of {connect_string} served us within {bound_ms} ms (last: {cause!r})"
            ) from cause
        except BaseException:
            await session.close()
            raise
        return session

    def _start(self) -> None:
        self._keeper = self._loop.create_task(self._keep_connected())
        self._keeper.add_done_callback(self._on_keeper_done)

    async def close(self) -> None:
        """End the session: at the server too, if it can be reached, so ephemerals go at once."""
        try:
            if self._state is State.CONNECTED and self._connection is not None:
                request = wire.Request(wire.Op.CLOSE, b"", lambda _: None)
                async with asyncio.timeout(min(CLOSE_BOUND_S, self._timeout_s)):
                    await self._connection.request(request)
        except (TimeoutError, ConnectionLoss):
            pass  # the server will expire it
        finally:
            self._end(State.CLOSED)
            keeper, self._keeper = self._keeper, None
            if keeper is not None:
                keeper.cancel()
        if keeper is not None:
            await asyncio.wait([keeper])

    # --- for the requests ------------------------------------------------------------------------

    async def _served_by(self) -> Connection:
        """The connection to send on. Waits while suspended, which the fence bounds."""
        while (state := self.state) is not State.CONNECTED:
            if state is not State.SUSPENDED:
                raise self._unavailable()
            await self._next_state()
        assert self._connection is not None
        return self._connection

    async def _next_state(self) -> None:
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._state_waiters.append(waiter)
        try:
            await waiter
        finally:
            self._state_waiters.remove(waiter)

    def _unavailable(self) -> Exception:
        error: Exception = SessionExpired() if self._state is State.EXPIRED else ConnectionLoss()
        return error

    # --- dialling --------------------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        while self._state not in FINAL:
            round_number, place = divmod(self._failed_in_a_row, len(self._dial_order))
            if round_number > 0 and place == 0:
                # The back-off, too, must leave the session time for several tries.
                longest_s = min(BACKOFF_MAX_S, self._timeout_s / 12)
                backoff_s = min(BACKOFF_MIN_S * 2 ** min(round_number - 1, 10), longest_s)
                await asyncio.sleep(backoff_s * self._rng.uniform(0.5, 1.0))
            server = self._dial_order.first
            connection = await self._dial(server)
            self._dial_order.failed(server)
            self._failed_in_a_row += 1
            if connection is not None:
                self._late_in_a_row = 0
                if self._clock() - connection.made_at > self._timeout_s / 3:
                    # It served for a while; a server that drops us at once counts as failed.
                    self._failed_in_a_row = 0
            elif isinstance(self.last_error, TimeoutError):
                self._late_in_a_row += 1

    async def _dial(self, server: Server) -> Connection | None:
        """Try one server, and stay until its connection ends; None if it gave no session."""
        # All servers can be tried once in the third of the timeout that is left after a silence.
        # A slow ensemble gets longer with each round of late answers; refusals do not count, for a
        # server that starts refuses for a while, and may then leave its first client hanging.
        share_s = max(self._timeout_s / 3 / len(self._dial_order), DIAL_BOUND_MIN_S)
        rounds = min(self._late_in_a_row // len(self._dial_order), 10)
        bound_s = min(share_s * 2**rounds, max(self._timeout_s, share_s))
        connection = Connection(
            self,
            self._clock,
            wire.connect_body(
                self._last_zxid, self._asked_timeout_ms, self._session_id, self._password
            ),
            request_max_bytes=self._request_max_bytes,
            reply_max_bytes=self._reply_max_bytes,
            traffic=self.traffic,
        )
        try:
            try:
                async with asyncio.timeout(bound_s):
                    await self._open_transport(server, connection)
                    await asyncio.wait([connection.settled])
            # Refused, unreachable, no TLS, too late, no such name: a failed try, nothing more.
            except (OSError, UnicodeError) as error:
                if not connection.established:
                    connection.drop(error)
                    return None
            await self._set_watches(connection)
            await asyncio.wait([connection.ended])
            return connection if connection.established else None
        finally:
            connection.drop(ConnectionResetError("given up"))

    async def _set_watches(self, connection: Connection) -> None:
        """Arm all watches at the new server; only then is it used for anything else."""
        for opcode, body in self._watches.set_watches(self._last_zxid):
            if connection is not self._connection:
                return
            connection.write_set_watches(opcode, body)
            await asyncio.sleep(0)  # 100,000 watches take a while to pack
        if connection is self._connection:
            self._watches_written = True
            self._serve_if_resumed()

    def _serve_if_resumed(self) -> None:
        if self._watches_written and self._auth_replies_due == 0:
            self._become(State.CONNECTED)

    async def _open_transport(self, server: Server, connection: Connection) -> None:
        """Connect to any address of the server's name, each time beginning with the next one."""
        found = await self._loop.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
        first = self._dials.get(server, 0) % len(found)
        self._dials[server] = self._dials.get(server, 0) + 1
        name = server.host if self._ssl is not None else None
        errors: list[OSError] = []
        for *_, address in found[first:] + found[:first]:
            try:
                await self._loop.create_connection(
                    lambda: connection, *address[:2], ssl=self._ssl, server_hostname=name
                )
            except TimeoutError:
                raise
            except OSError as error:
                errors.append(error)
            else:
                return
        raise errors[-1]

    async def _probe(self) -> None:
        """Find out once whether the servers know the requests that came with 3.6.

        An older server answers Unimplemented and hangs up; the session goes on elsewhere.
        """
        while True:
            await self.wait_connected()
            connection = self._connection
            assert connection is not None
            try:
                await connection.request(multi_get_data(["/"]))
            except Unimplemented:
                self._found_older_server(connection)
                await self.wait_connected()
                return
            except ConnectionLoss:
                continue
            return

    def _found_older_server(self, connection: Connection) -> None:
        self.capabilities = Capabilities(multi_read=False, add_watch=False)
        connection.drop(ConnectionResetError("a server before 3.6 hangs up over such a request"))

    # --- the connection's listener ---------------------------------------------------------------

    def on_connect_reply(self, connection: Connection, reply: wire.ConnectReply) -> None:
        """A server resumed the session, made one, or says that it expired."""
        if self._state in FINAL:
            connection.drop(ConnectionResetError("the session has ended"))
            return
        if reply.timeout_ms <= 0 or reply.session_id != (self._session_id or reply.session_id):
            if self._session_id:
                # Another id would be a new session, without our ephemerals: never take it silently.
                self._end(State.EXPIRED)
            connection.drop(ProtocolError("the server gave no session"))
            return
        if self._clock() - connection.vouched_at >= reply.timeout_ms / 1000:
            connection.drop(TimeoutError("the connect reply was read too late to be trusted"))
            return
        self._session_id = reply.session_id
        self._password = reply.password
        self._timeout_s = reply.timeout_ms / 1000
        self._connection = connection
        if self._fence is None:
            self._watch_clock()
        connection.write_auth(self._auth)
        self._auth_replies_due = len(self._auth)
        self._watches_written = False

    def on_auth_reply(self, connection: Connection, err: int) -> None:
        """Served only when all credentials are accepted; a refusal is tried again, with back-off."""
        if err:
            self.traffic.refused_credentials += 1
            connection.drop(error_of(err))
            return
        self._auth_replies_due -= 1
        self._serve_if_resumed()

    def on_watch_event(self, event: wire.WatchEvent) -> None:
        """Hand a change on."""
        self._watches.fired(event)
        # A task that waits for an earlier reply is due to run before this, one that waits for a
        # later reply after it.
        seen = wire.WatchEvent(event.type, self._chroot.relative(event.path))
        self._loop.call_soon(self._tell, seen)

    def _tell(self, event: wire.WatchEvent) -> None:
        for callback in tuple(self._event_callbacks):
            self._call(callback, event)

    def on_session_expired(self) -> None:
        """A server that still talks to us says that the session is gone."""
        self._end(State.EXPIRED)

    def on_wake_up_late(self, connection: Connection) -> None:
        """Bytes came in after we were silent for longer than the timeout."""
        self._check_clock()
        connection.drop(TimeoutError("this process did not run for longer than the timeout"))

    def on_connection_lost(self, connection: Connection, reason: Exception) -> None:
        """Keep what the session needs of it."""
        self.last_error = reason
        if connection is not self._connection:
            return
        self._last_zxid = self.last_zxid
        self._vouched_at = max(self._vouched_at, connection.vouched_at)
        self._connection = None
        if self._state is State.CONNECTED:
            self._check_clock()
        if self._state is State.CONNECTED:
            self._become(State.SUSPENDED)

    def _on_keeper_done(self, keeper: asyncio.Task[None]) -> None:
        """Only a bug ends the task with an exception; a session that nobody keeps must not linger."""
        if not keeper.cancelled() and (error := keeper.exception()) is not None:
            self._loop.call_exception_handler(
                {"message": "a ZooKeeper session cannot be kept", "exception": error}
            )
            self._end(State.EXPIRED)

    # --- state -----------------------------------------------------------------------------------

    def _check_clock(self) -> None:
        """Fence ourselves if the timeout has passed, however this process came to not notice."""
        if self._state not in {State.CONNECTED, State.SUSPENDED}:
            return
        if self._clock() >= self.trusted_until:
            self._become(State.FENCED)
            if self._connection is not None:
                self._connection.drop(TimeoutError("no answer for the whole session timeout"))

    def _watch_clock(self) -> None:
        if self._state in FINAL:
            return
        self._check_clock()
        # After a fence there is nothing to watch until a server resumes the session; look again
        # after a timeout at the latest.
        left_s = self.trusted_until - self._clock()
        delay_s = max(left_s, 0.001) if self._state is not State.FENCED else self._timeout_s
        self._fence = self._loop.call_later(delay_s, self._watch_clock)

    def _become(self, state: State) -> None:
        if state is self._state or self._state in FINAL:
            return
        self._state = state
        for waiter in self._state_waiters:
            if not waiter.done():
                waiter.set_result(None)
        for callback in tuple(self._state_callbacks):
            self._call(callback, state)

    def _end(self, state: State) -> None:
        """The session is over; says so before the connection's requests fail."""
        self._become(state)
        if self._fence is not None:
            self._fence.cancel()
        if self._connection is not None:
            self._connection.drop(ConnectionResetError("the session has ended"))

    def _call(self, callback: Callable[[Any], None], value: object) -> None:
        try:
            callback(value)
        except Exception as error:  # noqa: BLE001 - one listener must not cut off the others
            self._loop.call_exception_handler(
                {"message": "a ZooKeeper callback raised", "exception": error}
            )
