"""ZooKeeper's wire protocol, versions 3.5 to 3.9, without I/O.

A request is a value: its opcode, its encoded body, and the function that reads the body of its
reply. Frames are the connection's business. Everything is big-endian; a string or buffer is preceded
by its length as an int, and -1 stands for null. The bulk requests are in `multi`.
"""

import enum
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
from aiozk import ACL
from aiozk.protocol.acl import AUTHED_UNRESTRICTED, ID, UNRESTRICTED_ACCESS, WORLD_READABLE

T = TypeVar("T")

ANY_VERSION: Final = -1
"""In place of a znode version: whatever it is."""


class Op(enum.IntEnum):
    """Opcodes."""

    ERROR = -1
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    SYNC = 9
    GET_CHILDREN = 8
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    CLOSE = -11


NOTIFICATION_XID: Final = -1
PING_XID: Final = -2
AUTH_XID: Final = -4
SET_WATCHES_XID: Final = -8

INT: Final = struct.Struct(">i")
REQUEST_HEADER: Final = struct.Struct(">iii")  # frame length, xid, opcode
REPLY_HEADER: Final = struct.Struct(">iqi")  # xid, zxid, error
STAT: Final = struct.Struct(">qqqqiiiqiiq")
_CONNECT: Final = struct.Struct(">iqiqi")
_CONNECTED: Final = struct.Struct(">iiqi")
_EVENT: Final = struct.Struct(">iii")
_LONG: Final = struct.Struct(">q")

BODY: Final = REPLY_HEADER.size
"""Where the body of a reply starts in its frame."""


class CreateMode(enum.IntEnum):
    """What kind of znode; the number is the wire's flags."""

    PERSISTENT = 0
    EPHEMERAL = 1
    PERSISTENT_SEQUENTIAL = 2
    EPHEMERAL_SEQUENTIAL = 3
    CONTAINER = 4
    PERSISTENT_WITH_TTL = 5
    PERSISTENT_SEQUENTIAL_WITH_TTL = 6

    @property
    def opcode(self) -> Op:
        """Containers and TTLs have requests of their own; the rest answers with a stat as create2."""
        match self:
            case CreateMode.CONTAINER:
                return Op.CREATE_CONTAINER
            case CreateMode.PERSISTENT_WITH_TTL | CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL:
                return Op.CREATE_TTL
            case _:
                return Op.CREATE2


class WatchMode(enum.IntEnum):
    """Modes of addWatch."""

    PERSISTENT = 0
    PERSISTENT_RECURSIVE = 1


class WatchKind(enum.IntEnum):
    """Which watches removeWatches removes."""

    CHILDREN = 1
    DATA = 2
    ANY = 3


class EventType(enum.IntEnum):
    """What a watch reports."""

    NONE = -1
    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4
    DATA_WATCH_REMOVED = 5
    CHILD_WATCH_REMOVED = 6
    PERSISTENT_WATCH_REMOVED = 7


class WatchEvent(NamedTuple):
    """A change that a watch reported."""

    type: EventType
    path: str


class Stat(msgspec.Struct, frozen=True, gc=False):
    """What ZooKeeper knows of a znode besides its data. Times are in milliseconds since 1970."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


class Created(NamedTuple):
    """A znode that was made: its name (with the number, if sequential) and its stat.

    ZooKeeper 3.5 gives no stat for a create inside of a multi.
    """

    path: str
    stat: Stat | None


class ConnectReply(NamedTuple):
    """The server's answer to a connect request; a timeout of zero says that the session expired."""

    timeout_ms: int
    session_id: int
    password: bytes
    read_only: bool


OPEN_ACL: Final[tuple[ACL, ...]] = (UNRESTRICTED_ACCESS,)
CREATOR_ALL_ACL: Final[tuple[ACL, ...]] = (AUTHED_UNRESTRICTED,)
READ_ACL: Final[tuple[ACL, ...]] = (WORLD_READABLE,)


class Request(Generic[T]):
    """A request ready to be framed, and how to read its reply."""

    __slots__ = ("body", "opcode", "read")

    def __init__(self, opcode: int, body: bytes, read: Callable[[bytes], T]) -> None:
        self.opcode = opcode
        self.body = body
        self.read = read


# --- primitives ----------------------------------------------------------------------------------


def pack_buffer(data: bytes | None) -> bytes:
    """A length and its bytes; None is null, which is not the same as empty."""
    return INT.pack(-1) if data is None else INT.pack(len(data)) + data


def pack_string(text: str) -> bytes:
    """A length and the text in UTF-8."""
    raw = text.encode()
    return INT.pack(len(raw)) + raw


def unpack_buffer(frame: bytes, at: int) -> tuple[bytes, int]:
    """The buffer at this place and the place behind it; null reads as empty."""
    (length,) = INT.unpack_from(frame, at)
    at += 4
    if length <= 0:
        return b"", at
    return frame[at : at + length], at + length


def unpack_string(frame: bytes, at: int) -> tuple[str, int]:
    """The string at this place and the place behind it."""
    raw, at = unpack_buffer(frame, at)
    # A name that is not UTF-8 must not hide its siblings.
    return raw.decode("utf-8", "replace"), at


def unpack_strings(frame: bytes, at: int) -> tuple[list[str], int]:
    """The vector of strings at this place and the place behind it."""
    unpack = INT.unpack_from
    (count,) = unpack(frame, at)
    at += 4
    texts: list[str] = []
    append = texts.append
    for _ in range(count):
        (length,) = unpack(frame, at)
        at += 4
        append(frame[at : at + length].decode("utf-8", "replace"))
        at += length
    return texts, at


def unpack_stat(frame: bytes, at: int) -> Stat:
    """The stat at this place."""
    return Stat(*STAT.unpack_from(frame, at))


def pack_acl(acl: Iterable[ACL]) -> bytes:
    """A vector of ACL entries."""
    if acl is OPEN_ACL:
        return _OPEN_ACL_BYTES
    return _encode_acl(acl)


def _encode_acl(acl: Iterable[ACL]) -> bytes:
    entries = [
        INT.pack(entry.perms) + pack_string(entry.id.scheme) + pack_string(entry.id.id)
        for entry in acl
    ]
    return INT.pack(len(entries)) + b"".join(entries)


_OPEN_ACL_BYTES: Final = _encode_acl(OPEN_ACL)


def unpack_acl(frame: bytes, at: int) -> tuple[tuple[ACL, ...], int]:
    """The ACL at this place and the place behind it."""
    (count,) = INT.unpack_from(frame, at)
    at += 4
    entries: list[Any] = []
    for _ in range(count):
        (perms,) = INT.unpack_from(frame, at)
        scheme, at = unpack_string(frame, at + 4)
        identity, at = unpack_string(frame, at)
        entries.append(ACL(perms=perms, id=ID(scheme=scheme, id=identity)))
    return tuple(entries), at


# --- the session's own messages ------------------------------------------------------------------


def connect_body(last_zxid: int, timeout_ms: int, session_id: int, password: bytes) -> bytes:
    """The connect request; session 0 asks for a new one. It has no header."""
    head = _CONNECT.pack(0, last_zxid, timeout_ms, session_id, len(password))
    return head + password + b"\0"  # not for a server that serves only reads


def read_connect_reply(frame: bytes) -> ConnectReply:
    """The answer to `connect_body`."""
    _, timeout_ms, session_id, length = _CONNECTED.unpack_from(frame)
    end = _CONNECTED.size + max(length, 0)
    password = frame[_CONNECTED.size : end]
    return ConnectReply(timeout_ms, session_id, password, frame[end : end + 1] == b"\1")


def auth_body(scheme: str, credentials: bytes) -> bytes:
    """Credentials for this connection, as ``digest`` with ``user:password``."""
    return INT.pack(0) + pack_string(scheme) + pack_buffer(credentials)


def read_event(frame: bytes) -> WatchEvent:
    """The body of a notification."""
    kind, _, length = _EVENT.unpack_from(frame, BODY)
    at = BODY + _EVENT.size
    return WatchEvent(EventType(kind), frame[at : at + length].decode("utf-8", "replace"))


def set_watches_body(last_zxid: int, kinds: Sequence[Sequence[bytes]]) -> bytes:
    """SetWatches with three lists (data, exists, children) or SetWatches2 with two more.

    The paths come from `pack_string`.
    """
    lists = [INT.pack(len(paths)) + b"".join(paths) for paths in kinds]
    return _LONG.pack(last_zxid) + b"".join(lists)


# --- requests ------------------------------------------------------------------------------------


def _nothing(_frame: bytes) -> None:
    return None


def _stat(frame: bytes) -> Stat:
    return Stat(*STAT.unpack_from(frame, BODY))


def _created(frame: bytes) -> Created:
    path, at = unpack_string(frame, BODY)
    return Created(path, unpack_stat(frame, at))


def _data_and_stat(frame: bytes) -> tuple[bytes, Stat]:
    data, at = unpack_buffer(frame, BODY)
    return data, unpack_stat(frame, at)


def _children_and_stat(frame: bytes) -> tuple[list[str], Stat]:
    children, at = unpack_strings(frame, BODY)
    return children, unpack_stat(frame, at)


def _children(frame: bytes) -> list[str]:
    return unpack_strings(frame, BODY)[0]


def _acl_and_stat(frame: bytes) -> tuple[tuple[ACL, ...], Stat]:
    acl, at = unpack_acl(frame, BODY)
    return acl, unpack_stat(frame, at)


def create_body(
    path: str, data: bytes | None, acl: Iterable[ACL], mode: CreateMode, ttl_ms: int
) -> bytes:
    """The same for all kinds of create; only a TTL adds a field."""
    ttl = _LONG.pack(ttl_ms) if mode.opcode is Op.CREATE_TTL else b""
    return pack_string(path) + pack_buffer(data) + pack_acl(acl) + INT.pack(mode) + ttl


def create(
    path: str, data: bytes | None, acl: Iterable[ACL], mode: CreateMode, ttl_ms: int = 0
) -> Request[Created]:
    """Make a znode."""
    return Request(mode.opcode, create_body(path, data, acl, mode, ttl_ms), _created)


def delete(path: str, version: int) -> Request[None]:
    """Remove a znode without children."""
    return Request(Op.DELETE, pack_string(path) + INT.pack(version), _nothing)


def exists(path: str, watch: bool = False) -> Request[Stat]:
    """The stat alone."""
    return Request(Op.EXISTS, pack_string(path) + (b"\1" if watch else b"\0"), _stat)


def get_data(path: str, watch: bool = False) -> Request[tuple[bytes, Stat]]:
    """Data and stat."""
    return Request(Op.GET_DATA, pack_string(path) + (b"\1" if watch else b"\0"), _data_and_stat)


def set_data(path: str, data: bytes | None, version: int) -> Request[Stat]:
    """Replace the data."""
    return Request(Op.SET_DATA, pack_string(path) + pack_buffer(data) + INT.pack(version), _stat)


def get_children(path: str, watch: bool = False) -> Request[list[str]]:
    """The children's names."""
    return Request(Op.GET_CHILDREN, pack_string(path) + (b"\1" if watch else b"\0"), _children)


def get_children2(path: str, watch: bool = False) -> Request[tuple[list[str], Stat]]:
    """The children's names and the stat of the parent."""
    return Request(
        Op.GET_CHILDREN2, pack_string(path) + (b"\1" if watch else b"\0"), _children_and_stat
    )


def get_acl(path: str) -> Request[tuple[tuple[ACL, ...], Stat]]:
    """The ACL and the stat."""
    return Request(Op.GET_ACL, pack_string(path), _acl_and_stat)


def set_acl(path: str, acl: Iterable[ACL], version: int) -> Request[Stat]:
    """Replace the ACL; the version is the ACL's own (``aversion``)."""
    return Request(Op.SET_ACL, pack_string(path) + pack_acl(acl) + INT.pack(version), _stat)


def sync(path: str) -> Request[None]:
    """Let the server catch up with its leader before it answers what follows."""
    return Request(Op.SYNC, pack_string(path), _nothing)


def add_watch(path: str, mode: WatchMode) -> Request[None]:
    """A watch that stays; needs ZooKeeper 3.6."""
    return Request(Op.ADD_WATCH, pack_string(path) + INT.pack(mode), _nothing)


def remove_watches(path: str, kind: WatchKind) -> Request[None]:
    """Take watches of this session back."""
    return Request(Op.REMOVE_WATCHES, pack_string(path) + INT.pack(kind), _nothing)
