"""ZooKeeper's protocol as a server reads and writes it; `kctl.zookeeper.wire` is the client's side."""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kctl.zookeeper.errors import ErrorCode
from kctl.zookeeper.multi import Check, Create, Delete, Operation, SetData
from kctl.zookeeper.wire import (
    INT,
    NOTIFICATION_XID,
    OPEN_ACL,
    REPLY_HEADER,
    STAT,
    CreateMode,
    Op,
    Stat,
    WatchEvent,
    pack_acl,
    pack_buffer,
    pack_string,
    unpack_acl,
    unpack_buffer,
    unpack_string,
    unpack_strings,
)

_CONNECT: Final = struct.Struct(">iqiq")
_CONNECTED: Final = struct.Struct(">iiq")
_EVENT: Final = struct.Struct(">ii")
_LONG: Final = struct.Struct(">q")
_MULTI_HEADER: Final = struct.Struct(">ibi")
_MULTI_END: Final = _MULTI_HEADER.pack(-1, 1, -1)
_SYNC_CONNECTED: Final = 3


class ConnectRequest(NamedTuple):
    timeout_ms: int
    session_id: int
    password: bytes


def read_connect_request(frame: bytes) -> ConnectRequest:
    _, _, timeout_ms, session_id = _CONNECT.unpack_from(frame)
    password, _ = unpack_buffer(frame, _CONNECT.size)
    return ConnectRequest(timeout_ms, session_id, password)


class RequestBody:
    """What is left to read of a request."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self.at = 0

    @property
    def left(self) -> bool:
        return self.at < len(self._frame)

    def number(self) -> int:
        (value,) = INT.unpack_from(self._frame, self.at)
        self.at += INT.size
        return int(value)

    def long(self) -> int:
        (value,) = _LONG.unpack_from(self._frame, self.at)
        self.at += _LONG.size
        return int(value)

    def flag(self) -> bool:
        self.at += 1
        return self._frame[self.at - 1] != 0

    def string(self) -> str:
        text, self.at = unpack_string(self._frame, self.at)
        return text

    def strings(self) -> list[str]:
        texts, self.at = unpack_strings(self._frame, self.at)
        return texts

    def buffer(self) -> bytes:
        data, self.at = unpack_buffer(self._frame, self.at)
        return data

    def create(self) -> Create:
        path, data = self.string(), self.buffer()
        _, self.at = unpack_acl(self._frame, self.at)
        mode = CreateMode(self.number())
        return Create(path, data, _KEPT_AS.get(mode, mode))

    def create_ttl(self) -> Create:
        made = self.create()
        self.long()
        return made

    def delete(self) -> Delete:
        return Delete(self.string(), self.number())

    def set_data(self) -> SetData:
        return SetData(self.string(), self.buffer(), self.number())

    def check(self) -> Check:
        return Check(self.string(), self.number())

    def operations(self) -> list[tuple[int, Operation]]:
        """Of a multi."""
        found = []
        while (op := self._next_header()) is not None:
            found.append((op, OPERATIONS[op](self)))
        return found

    def reads(self) -> list[tuple[int, str]]:
        """Of a multiRead."""
        found = []
        while (op := self._next_header()) is not None:
            found.append((op, self.string()))
            self.flag()
        return found

    def _next_header(self) -> int | None:
        op, done, _ = _MULTI_HEADER.unpack_from(self._frame, self.at)
        self.at += _MULTI_HEADER.size
        return None if done else int(op)


_KEPT_AS: Final = {
    CreateMode.CONTAINER: CreateMode.PERSISTENT,
    CreateMode.PERSISTENT_WITH_TTL: CreateMode.PERSISTENT,
    CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL: CreateMode.PERSISTENT_SEQUENTIAL,
}
OPERATIONS: Final[Mapping[int, Callable[[RequestBody], Operation]]] = {
    Op.CREATE: RequestBody.create,
    Op.CREATE2: RequestBody.create,
    Op.CREATE_CONTAINER: RequestBody.create,
    Op.CREATE_TTL: RequestBody.create_ttl,
    Op.DELETE: RequestBody.delete,
    Op.SET_DATA: RequestBody.set_data,
    Op.CHECK: RequestBody.check,
}


# -- answers ---------------------------------------------------------------------------------


def connected(timeout_ms: int, session_id: int, password: bytes) -> bytes:
    return _CONNECTED.pack(0, timeout_ms, session_id) + pack_buffer(password) + b"\0"


def reply(xid: int, zxid: int, code: ErrorCode, body: bytes) -> bytes:
    return REPLY_HEADER.pack(xid, zxid, code) + body


def notification(event: WatchEvent) -> bytes:
    head = REPLY_HEADER.pack(NOTIFICATION_XID, -1, 0)
    return head + _EVENT.pack(event.type, _SYNC_CONNECTED) + pack_string(event.path)


def packed_stat(stat: Stat) -> bytes:
    return STAT.pack(
        stat.czxid,
        stat.mzxid,
        stat.ctime,
        stat.mtime,
        stat.version,
        stat.cversion,
        stat.aversion,
        stat.ephemeral_owner,
        stat.data_length,
        stat.num_children,
        stat.pzxid,
    )


def packed_data(data: bytes, stat: Stat) -> bytes:
    return pack_buffer(data) + packed_stat(stat)


def packed_children(names: Iterable[str]) -> bytes:
    packed = [pack_string(name) for name in names]
    return INT.pack(len(packed)) + b"".join(packed)


def packed_acl() -> bytes:
    return pack_acl(OPEN_ACL)


def multi_results(results: Sequence[tuple[int, bytes]]) -> bytes:
    parts = [_MULTI_HEADER.pack(op, 0, 0) + body for op, body in results]
    return b"".join(parts) + _MULTI_END


def multi_read_results(results: Sequence[tuple[int, bytes | ErrorCode]]) -> bytes:
    parts = [
        _failed(found) if isinstance(found, ErrorCode) else _MULTI_HEADER.pack(op, 0, 0) + found
        for op, found in results
    ]
    return b"".join(parts) + _MULTI_END


def multi_failed(index: int, code: ErrorCode, count: int) -> bytes:
    """Those before the one that failed are rolled back, those after it were not tried."""
    codes = [ErrorCode.OK] * index + [code]
    codes += [ErrorCode.RUNTIME_INCONSISTENCY] * (count - index - 1)
    return b"".join(map(_failed, codes)) + _MULTI_END


def _failed(code: ErrorCode) -> bytes:
    return _MULTI_HEADER.pack(Op.ERROR, 0, code) + INT.pack(code)
