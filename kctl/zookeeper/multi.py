"""The bulk requests: multi (all or nothing) and multiRead (each read for itself).

These carry every partition of the cluster, so they are packed and unpacked by hand: one precompiled
struct per operation, no objects beside the result. A reply is a chain of (type, done, error) headers,
each followed by that operation's own body; a failed operation is a header of type -1 and its code.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import msgspec
from aiozk import ACL

from kctl.zookeeper.errors import ErrorCode, MultiError, ProtocolError, code_of
from kctl.zookeeper.wire import (
    ANY_VERSION,
    BODY,
    INT,
    OPEN_ACL,
    STAT,
    Created,
    CreateMode,
    Op,
    Request,
    Stat,
    create_body,
    unpack_stat,
    unpack_string,
    unpack_strings,
)


class Create(msgspec.Struct, frozen=True, gc=False):
    """Make a znode; its result is `Created`."""

    path: str
    data: bytes | None = b""
    mode: CreateMode = CreateMode.PERSISTENT
    acl: Sequence[ACL] = OPEN_ACL
    ttl_ms: int = 0


class Delete(msgspec.Struct, frozen=True, gc=False):
    """Remove a znode without children; its result is None."""

    path: str
    version: int = ANY_VERSION


class SetData(msgspec.Struct, frozen=True, gc=False):
    """Replace the data; its result is the new `Stat`."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


class Check(msgspec.Struct, frozen=True, gc=False):
    """Fail the whole multi unless the znode has this version; its result is None."""

    path: str
    version: int


Operation: TypeAlias = Create | Delete | SetData | Check
OpResult: TypeAlias = Created | Stat | None
Read: TypeAlias = tuple[bytes, Stat] | ErrorCode
Children: TypeAlias = list[str] | ErrorCode

# An enum's member costs more to look up than an operation to read.
_CREATE: Final = int(Op.CREATE)
_CREATE2: Final = int(Op.CREATE2)
_DELETE: Final = int(Op.DELETE)
_CHECK: Final = int(Op.CHECK)
_SET_DATA: Final = int(Op.SET_DATA)
_GET_DATA: Final = int(Op.GET_DATA)
_GET_CHILDREN: Final = int(Op.GET_CHILDREN)
_ERROR: Final = int(Op.ERROR)

_HEADER: Final = struct.Struct(">ibi")  # type, done, error
_HEADER_INT: Final = struct.Struct(">ibii")  # a header and the int behind it
_END: Final = _HEADER.pack(-1, 1, -1)
_DONE_AT: Final = 4
OP_OVERHEAD_BYTES: Final = 96
"""More than an operation adds to its path and data: headers, version, an open ACL."""


def operation_bytes(operation: Operation) -> int:
    """At most how much an operation with an ordinary ACL adds to a multi, without the chroot."""
    # Three bytes a character hold any path that ZooKeeper accepts.
    size = OP_OVERHEAD_BYTES + 3 * len(operation.path)
    match operation:
        case Create(data=data, acl=acl):
            return size + len(data or b"") + 64 * (len(acl) - 1)
        case SetData(data=data):
            return size + len(data or b"")
        case _:
            return size


def multi(
    operations: Sequence[Operation], full_path: Callable[[str], str] | None = None
) -> Request[list[OpResult]]:
    """All of these or none; ``full_path`` puts the chroot in front."""
    out: list[bytes] = []
    append = out.append
    head, pack_int = _HEADER_INT.pack, INT.pack
    for operation in operations:
        text = operation.path if full_path is None else full_path(operation.path)
        path = text.encode()
        if type(operation) is SetData:
            data = operation.data
            append(head(_SET_DATA, 0, -1, len(path)))
            append(path)
            if data is None:
                append(pack_int(-1))
            else:
                append(pack_int(len(data)))
                append(data)
            append(pack_int(operation.version))
        elif type(operation) is Create:
            mode = operation.mode
            append(_HEADER.pack(mode.opcode, 0, -1))
            append(create_body(text, operation.data, operation.acl, mode, operation.ttl_ms))
        else:
            assert isinstance(operation, Check | Delete)
            opcode = _CHECK if type(operation) is Check else _DELETE
            append(head(opcode, 0, -1, len(path)))
            append(path)
            append(pack_int(operation.version))
    append(_END)
    return Request(Op.MULTI, b"".join(out), _read_multi)


def _read_multi(frame: bytes) -> list[OpResult]:
    """The operations' results; raises `MultiError` if the multi was refused."""
    results: list[OpResult] = []
    append = results.append
    unpack_header, unpack_of_stat = _HEADER.unpack_from, STAT.unpack_from
    at = BODY
    codes: list[ErrorCode] = []
    while True:
        kind, done, err = unpack_header(frame, at)
        if done:
            break
        at += _HEADER.size
        if kind == _SET_DATA:
            append(Stat(*unpack_of_stat(frame, at)))
            at += STAT.size
        elif kind == _CREATE2:
            path, at = unpack_string(frame, at)
            append(Created(path, unpack_stat(frame, at)))
            at += STAT.size
        elif kind == _CREATE:
            path, at = unpack_string(frame, at)
            append(Created(path, None))
        elif kind == _ERROR:
            codes.append(code_of(INT.unpack_from(frame, at)[0]))
            at += INT.size
        elif kind in {_CHECK, _DELETE}:
            append(None)
        else:
            raise ProtocolError(f"multi: result of type {kind}, error {err}")
    _expect_end(frame, at)
    if codes:
        raise MultiError(codes)
    return results


def _read_body(opcode: int, paths: Sequence[str]) -> bytes:
    head = _HEADER_INT.pack
    out: list[bytes] = []
    append = out.append
    for path in paths:
        raw = path.encode()
        append(head(opcode, 0, -1, len(raw)))
        append(raw)
        append(b"\0")  # the server ignores watches here
    append(_END)
    return b"".join(out)


def multi_get_data(paths: Sequence[str]) -> Request[list[Read]]:
    """Data and stat, or a code, of each path; needs ZooKeeper 3.6."""
    return Request(Op.MULTI_READ, _read_body(_GET_DATA, paths), _read_datas)


def multi_get_children(paths: Sequence[str]) -> Request[list[Children]]:
    """Children, or a code, of each path; needs ZooKeeper 3.6."""
    return Request(Op.MULTI_READ, _read_body(_GET_CHILDREN, paths), _read_childrens)


def _read_datas(frame: bytes) -> list[Read]:
    results: list[Read] = []
    append = results.append
    unpack, stat = _HEADER_INT.unpack_from, STAT.unpack_from
    at = BODY
    # The closing header is shorter than a header and an int: look at its flag first.
    while not frame[at + _DONE_AT]:
        kind, _, _, number = unpack(frame, at)
        at += 13
        if kind == _GET_DATA:
            end = at + number if number > 0 else at
            append((frame[at:end], Stat(*stat(frame, end))))
            at = end + 68
        else:
            append(code_of(number))
    _expect_end(frame, at)
    return results


def _read_childrens(frame: bytes) -> list[Children]:
    results: list[Children] = []
    at = BODY
    while not frame[at + _DONE_AT]:
        kind, _, _ = _HEADER.unpack_from(frame, at)
        at += _HEADER.size
        if kind == _GET_CHILDREN:
            children, at = unpack_strings(frame, at)
            results.append(children)
        else:
            results.append(code_of(INT.unpack_from(frame, at)[0]))
            at += INT.size
    _expect_end(frame, at)
    return results


def _expect_end(frame: bytes, at: int) -> None:
    if at + _HEADER.size != len(frame):
        raise ProtocolError(f"multi: {len(frame) - at} bytes left at its end")
