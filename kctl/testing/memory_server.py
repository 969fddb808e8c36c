"""A ZooKeeper server in this process: no Java, nothing on disk, ready at once.

It speaks ZooKeeper's protocol on a port of 127.0.0.1, so everything above it is the real thing: the
controller with its session and store, the brokers' registrations, `kctl explain`, kazoo. It has
sessions that expire, ephemeral and sequential znodes, multis, and watches that fire once or stay. ::

    async with MemoryServer() as server:
        async with Session.open(server.connect_string) as zk: ...

It stands alone and trusts everybody: credentials are accepted, ACLs are not kept, containers and
TTLs are ordinary znodes. What a real server can do to its clients is the simulation's business.
"""

import asyncio
import struct
import time
from collections.abc import Callable, Mapping
from typing import Final, Self, cast

import attrs
import msgspec

from kctl.brokers.simulated_listener import HOST, Listener
from kctl.simulation.zookeeper_model import Server, Watcher
from kctl.simulation.zookeeper_tree import EVENTS, Change, Node, Refused, parent_of
from kctl.testing.memory_wire import (
    OPERATIONS,
    ConnectRequest,
    RequestBody,
    connected,
    multi_failed,
    multi_read_results,
    multi_results,
    notification,
    packed_acl,
    packed_children,
    packed_data,
    packed_stat,
    read_connect_request,
    reply,
)
from kctl.zookeeper.errors import ErrorCode
from kctl.zookeeper.multi import Delete, Operation
from kctl.zookeeper.wire import EventType, Op, Stat, WatchEvent, WatchKind, pack_string

TIMEOUT_MIN_MS: Final = 100
TIMEOUT_MAX_MS: Final = 60_000
FRAME_MAX_BYTES: Final = 4 << 20
FIRST_SESSION: Final = 0x1000_0000
_LENGTH: Final = struct.Struct(">i")


class _Fails(Exception):
    """The request is answered with this code."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


@attrs.define(eq=False)
class _Session:
    id: int
    password: bytes
    timeout_ms: int
    heard_at: float
    link: "_Link | None" = None
    timer: asyncio.TimerHandle | None = None


class MemoryServer:
    """Use it with `async with`; several of them live in one loop."""

    def __init__(self) -> None:
        self._znodes = Server("memory")
        self._times: dict[str, tuple[int, int]] = {}
        """By path: when it was made and last changed, in milliseconds since 1970."""
        self._sessions: dict[int, _Session] = {}
        self._links: dict[_Link, None] = {}
        self._last_session = FIRST_SESSION
        self._listener = Listener(lambda: _Link(self))
        self.port = 0
        self._performers: Mapping[int, Callable[[_Link, RequestBody], bytes]] = {
            Op.EXISTS: self._exists,
            Op.GET_DATA: self._get_data,
            Op.GET_CHILDREN: self._get_children,
            Op.GET_CHILDREN2: self._get_children2,
            Op.GET_ACL: self._get_acl,
            Op.SET_ACL: self._set_acl,
            Op.SYNC: self._sync,
            Op.MULTI: self._multi,
            Op.MULTI_READ: self._multi_read,
            Op.ADD_WATCH: self._add_watch,
            Op.REMOVE_WATCHES: self._remove_watches,
            Op.SET_WATCHES: self._set_watches,
            Op.SET_WATCHES2: self._set_watches,
            Op.PING: self._nothing,
            Op.AUTH: self._nothing,
            Op.CLOSE: self._close,
        }

    def __repr__(self) -> str:
        return f"<MemoryServer {self.connect_string} {len(self._znodes.tree.nodes)} znodes>"

    @property
    def connect_string(self) -> str:
        """For a client."""
        return f"{HOST}:{self.port}"

    async def __aenter__(self) -> Self:
        self.port = self._listener.open()
        return self

    async def __aexit__(self, *_problem: object) -> None:
        for session in self._sessions.values():
            if session.timer is not None:
                session.timer.cancel()
        self._sessions.clear()
        await self._listener.close(self._cut)

    def _cut(self) -> None:
        for link in tuple(self._links):
            link.abort()

    # -- sessions -----------------------------------------------------------------------------

    @property
    def sessions(self) -> tuple[int, ...]:
        """The ids of those that are alive."""
        return tuple(self._sessions)

    def expire(self, session_id: int) -> None:
        """End a session now, as if its client had been silent for too long."""
        session = self._sessions.get(session_id)
        if session is not None:
            link = session.link
            self._end(session)
            if link is not None:
                link.abort()

    def linked(self, link: "_Link") -> None:
        self._links[link] = None

    def unlinked(self, link: "_Link") -> None:
        self._links.pop(link, None)
        self._znodes.forget(link)
        if link.session is not None and link.session.link is link:
            link.session.link = None

    def connect(self, link: "_Link", asked: ConnectRequest) -> _Session | None:
        """A new session, or the one that the client had; None if that is over."""
        loop = asyncio.get_running_loop()
        if asked.session_id:
            known = self._sessions.get(asked.session_id)
            if known is None or known.password != asked.password:
                return None
            if known.link is not None:
                known.link.abort()
            session = known
        else:
            self._last_session += 1
            password = self._last_session.to_bytes(16, "big")
            timeout_ms = min(max(asked.timeout_ms, TIMEOUT_MIN_MS), TIMEOUT_MAX_MS)
            session = _Session(self._last_session, password, timeout_ms, loop.time())
            self._sessions[session.id] = session
            self._watch_clock(session)
        session.link = link
        session.heard_at = loop.time()
        return session

    def _watch_clock(self, session: _Session) -> None:
        loop = asyncio.get_running_loop()
        left_s = session.heard_at + session.timeout_ms / 1000 - loop.time()
        if left_s <= 0:
            self.expire(session.id)
        else:
            session.timer = loop.call_later(left_s, self._watch_clock, session)

    def _end(self, session: _Session) -> None:
        """It and its ephemerals are gone."""
        if self._sessions.pop(session.id, None) is None:
            return
        if session.timer is not None:
            session.timer.cancel()
        paths = self._znodes.tree.ephemerals_of(session.id)
        if paths:
            self._commit(session.id, [Delete(path) for path in paths])

    # -- requests -----------------------------------------------------------------------------

    def answer(self, link: "_Link", op: int, body: RequestBody) -> bytes:
        """Carry a request out; the body of its answer. `_Fails` if it is refused."""
        if op in OPERATIONS and op != Op.CHECK:
            return self._write(link, op, OPERATIONS[op](body))
        perform = self._performers.get(op)
        if perform is None:
            raise _Fails(ErrorCode.UNIMPLEMENTED)
        return perform(link, body)

    @property
    def zxid(self) -> int:
        return self._znodes.tree.zxid

    def _node(self, path: str) -> Node:
        node = self._znodes.tree.get(path)
        if node is None:
            raise _Fails(ErrorCode.NO_NODE)
        return node

    def _stat(self, path: str) -> Stat:
        made, changed = self._times.get(path, (0, 0))
        return msgspec.structs.replace(self._node(path).stat(), ctime=made, mtime=changed)

    def _exists(self, link: "_Link", body: RequestBody) -> bytes:
        path, watch = body.string(), body.flag()
        if watch:
            self._znodes.watch_data(path, link)
        return packed_stat(self._stat(path))

    def _get_data(self, link: "_Link", body: RequestBody) -> bytes:
        path, watch = body.string(), body.flag()
        node = self._node(path)
        if watch:
            self._znodes.watch_data(path, link)
        return packed_data(node.data, self._stat(path))

    def _get_children(self, link: "_Link", body: RequestBody) -> bytes:
        path, watch = body.string(), body.flag()
        node = self._node(path)
        if watch:
            self._znodes.watch_children(path, link)
        return packed_children(node.children)

    def _get_children2(self, link: "_Link", body: RequestBody) -> bytes:
        at = body.at
        children = self._get_children(link, body)
        body.at = at
        return children + packed_stat(self._stat(body.string()))

    def _multi_read(self, _link: "_Link", body: RequestBody) -> bytes:
        def read(op: int, path: str) -> bytes | ErrorCode:
            node = self._znodes.tree.get(path)
            if node is None:
                return ErrorCode.NO_NODE
            if op == Op.GET_DATA:
                return packed_data(node.data, self._stat(path))
            return packed_children(node.children)

        return multi_read_results([(op, read(op, path)) for op, path in body.reads()])

    def _get_acl(self, _link: "_Link", body: RequestBody) -> bytes:
        return packed_acl() + packed_stat(self._stat(body.string()))

    def _set_acl(self, _link: "_Link", body: RequestBody) -> bytes:
        return packed_stat(self._stat(body.string()))

    def _sync(self, _link: "_Link", body: RequestBody) -> bytes:
        return pack_string(body.string())

    def _write(self, link: "_Link", op: int, operation: Operation) -> bytes:
        try:
            (change,) = self._commit(link.session_id, [operation])
        except Refused as refused:
            raise _Fails(refused.code) from None
        return self._result(op, change)

    def _multi(self, link: "_Link", body: RequestBody) -> bytes:
        operations = body.operations()
        try:
            changes = self._commit(link.session_id, [operation for _, operation in operations])
        except Refused as refused:
            return multi_failed(refused.index, refused.code, len(operations))
        kinds = [op for op, _ in operations]
        return multi_results(
            [(op, self._result(op, change)) for op, change in zip(kinds, changes, strict=True)]
        )

    def _result(self, op: int, change: Change) -> bytes:
        match change.kind:
            case "create":
                # A later part of the same multi may have removed it again.
                there = change.path in self._znodes.tree.nodes
                stat = packed_stat(self._stat(change.path) if there else Node(b"", 0, 0).stat())
                return pack_string(change.path) + (b"" if op == Op.CREATE else stat)
            case "set":
                return packed_stat(self._stat(change.path))
            case _:
                return b""

    def _commit(self, session: int, operations: list[Operation]) -> tuple[Change, ...]:
        tree = self._znodes.tree
        transaction = tree.commit(tree.zxid + 1, session, operations)
        now_ms = time.time_ns() // 1_000_000
        for change in transaction.changes:
            if change.kind == "create":
                self._times[change.path] = (now_ms, now_ms)
            elif change.kind == "set":
                self._times[change.path] = (self._times.get(change.path, (0, 0))[0], now_ms)
            elif change.kind == "delete":
                self._times.pop(change.path, None)
        for change in transaction.changes:
            self._znodes.fire(change)
            for link in tuple(self._links):
                link.fire_lasting(change)
        return transaction.changes

    # -- watches ------------------------------------------------------------------------------

    def _add_watch(self, link: "_Link", body: RequestBody) -> bytes:
        path, mode = body.string(), body.number()
        (link.recursive if mode else link.persistent)[path] = None
        return b""

    def _remove_watches(self, link: "_Link", body: RequestBody) -> bytes:
        path, kind = body.string(), WatchKind(body.number())
        data, children = kind is not WatchKind.CHILDREN, kind is not WatchKind.DATA
        self._znodes.unwatch(path, link, data=data, children=children)
        if kind is WatchKind.ANY:
            link.persistent.pop(path, None)
            link.recursive.pop(path, None)
        return b""

    def _set_watches(self, link: "_Link", body: RequestBody) -> bytes:
        """After a reconnect: what changed since the client last heard is reported at once."""
        seen = body.long()
        tree = self._znodes.tree
        for path in body.strings():
            if (missed := tree.missed_change(path, seen)) is not None:
                link.event(WatchEvent(missed, path))
            else:
                self._znodes.watch_data(path, link)
        for path in body.strings():
            if (missed := tree.missed_creation(path)) is not None:
                link.event(WatchEvent(missed, path))
            else:
                self._znodes.watch_data(path, link)
        for path in body.strings():
            if (missed := tree.missed_children(path, seen)) is not None:
                link.event(WatchEvent(missed, path))
            else:
                self._znodes.watch_children(path, link)
        if body.left:
            link.persistent.update(dict.fromkeys(body.strings()))
            link.recursive.update(dict.fromkeys(body.strings()))
        return b""

    def _nothing(self, _link: "_Link", _body: RequestBody) -> bytes:
        return b""

    def _close(self, link: "_Link", _body: RequestBody) -> bytes:
        assert link.session is not None
        self._end(link.session)
        return b""


class _Link(Watcher, asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, server: MemoryServer) -> None:
        self._server = server
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self.session: _Session | None = None
        self.persistent: dict[str, None] = {}
        self.recursive: dict[str, None] = {}

    @property
    def session_id(self) -> int:
        assert self.session is not None, "requests come after the session"
        return self.session.id

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self._server.linked(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncio's signature
        self._server.unlinked(self)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            (size,) = _LENGTH.unpack_from(self._buffer)
            if not 0 <= size <= FRAME_MAX_BYTES:
                self.abort()
                return
            if len(self._buffer) < 4 + size:
                return
            frame = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            try:
                self._on_frame(frame)
            except (struct.error, ValueError, IndexError):
                self.abort()
                return

    def _on_frame(self, frame: bytes) -> None:
        if self.session is None:
            asked = read_connect_request(frame)
            self.session = self._server.connect(self, asked)
            session = self.session
            if session is None:
                self._send(connected(0, 0, bytes(16)))
                self._close()
            else:
                self._send(connected(session.timeout_ms, session.id, session.password))
            return
        self.session.heard_at = asyncio.get_running_loop().time()
        body = RequestBody(frame)
        xid, op = body.number(), body.number()
        code = ErrorCode.OK
        answer = b""
        if self.session.id not in self._server.sessions:
            code = ErrorCode.SESSION_EXPIRED
        else:
            try:
                answer = self._server.answer(self, op, body)
            except _Fails as fails:
                code = fails.code
        self._send(reply(xid, self._server.zxid, code, answer))
        if op == Op.CLOSE:
            self._close()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def event(self, event: WatchEvent) -> None:
        self._send(notification(event))

    def fire_lasting(self, change: Change) -> None:
        """Watches that stay: on a znode and its list of children, or on all below."""
        event = EVENTS.get(change.kind)
        if event is None or not (self.persistent or self.recursive):
            return
        path = change.path
        parent = parent_of(path)
        above = any(path == p or path.startswith(p.rstrip("/") + "/") for p in self.recursive)
        if above or path in self.persistent:
            self.event(WatchEvent(event, path))
        if event is not EventType.DATA_CHANGED and parent in self.persistent:
            self.event(WatchEvent(EventType.CHILDREN_CHANGED, parent))

    def _send(self, frame: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(_LENGTH.pack(len(frame)) + frame)
