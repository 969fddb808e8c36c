"""The codec: requests against kazoo's encoder, replies against a plain encoder of their own."""

import struct
from collections.abc import Callable
from typing import Any

import pytest
from aiozk import ACL
from aiozk.protocol.acl import ID
from hypothesis import given
from hypothesis import strategies as st
from kazoo import security
from kazoo.protocol import serialization as kazoo

from kctl.zookeeper import multi, wire
from kctl.zookeeper.errors import ErrorCode, MultiError, ProtocolError
from kctl.zookeeper.watch_registry import CHUNK_MAX_BYTES, WatchRegistry
from kctl.zookeeper.wire import CreateMode, EventType, Op, Stat, WatchEvent, WatchKind, WatchMode

names = st.text(
    st.characters(codec="utf-8", exclude_characters="/\0", exclude_categories=["Cs", "Co", "Cc"]),
    min_size=1,
    max_size=12,
)
paths = st.lists(names, max_size=4).map(lambda parts: "/" + "/".join(parts))
datas = st.binary(max_size=64)
versions = st.integers(-1, 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
ints = st.integers(-(2**31), 2**31 - 1)
stats = st.builds(Stat, *[longs] * 4, *[ints] * 3, longs, *[ints] * 2, longs)
acl_parts = st.lists(st.tuples(st.integers(1, 31), names, names), max_size=3)
plain_modes = st.sampled_from(
    [
        CreateMode.PERSISTENT,
        CreateMode.EPHEMERAL,
        CreateMode.PERSISTENT_SEQUENTIAL,
        CreateMode.EPHEMERAL_SEQUENTIAL,
    ]
)


def acl_of(parts: list[tuple[int, str, str]]) -> list[ACL]:
    return [ACL(perms=perms, id=ID(scheme=scheme, id=who)) for perms, scheme, who in parts]


def kazoo_acl(parts: list[tuple[int, str, str]]) -> list[Any]:
    return [security.ACL(perms, security.Id(scheme, who)) for perms, scheme, who in parts]


# --- an encoder for the server's side ------------------------------------------------------------


def header(err: int = 0, xid: int = 1, zxid: int = 9) -> bytes:
    return struct.pack(">iqi", xid, zxid, err)


def buffer(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def text(value: str) -> bytes:
    return buffer(value.encode())


def texts(values: list[str]) -> bytes:
    return struct.pack(">i", len(values)) + b"".join(map(text, values))


def stat_bytes(stat: Stat) -> bytes:
    return struct.pack(
        ">qqqqiiiqiiq",
        *(stat.czxid, stat.mzxid, stat.ctime, stat.mtime),
        *(stat.version, stat.cversion, stat.aversion, stat.ephemeral_owner),
        *(stat.data_length, stat.num_children, stat.pzxid),
    )


def result(kind: int, body: bytes, err: int = 0) -> bytes:
    return struct.pack(">i?i", kind, False, err) + body


END = struct.pack(">i?i", -1, True, -1)


# --- requests ------------------------------------------------------------------------------------


@given(paths, datas, versions, st.booleans())
def test_requests_are_what_kazoo_sends(path: str, data: bytes, version: int, watch: bool) -> None:
    def watcher(_: object) -> None: ...

    seen = watcher if watch else None
    pairs: list[tuple[wire.Request[Any], Any]] = [
        (wire.get_data(path, watch), kazoo.GetData(path, seen)),
        (wire.exists(path, watch), kazoo.Exists(path, seen)),
        (wire.get_children(path, watch), kazoo.GetChildren(path, seen)),
        (wire.get_children2(path, watch), kazoo.GetChildren2(path, seen)),
        (wire.set_data(path, data, version), kazoo.SetData(path, data, version)),
        (wire.delete(path, version), kazoo.Delete(path, version)),
        (wire.sync(path), kazoo.Sync(path)),
        (wire.get_acl(path), kazoo.GetACL(path)),
    ]
    for ours, theirs in pairs:
        assert (ours.opcode, ours.body) == (theirs.type, bytes(theirs.serialize()))


@given(paths, datas, acl_parts, plain_modes, versions)
def test_creates_and_acls_are_what_kazoo_sends(
    path: str, data: bytes, acl: list[tuple[int, str, str]], mode: CreateMode, version: int
) -> None:
    ours = wire.create(path, data, acl_of(acl), mode)
    theirs = kazoo.Create2(path, data, kazoo_acl(acl), int(mode))
    assert (ours.opcode, ours.body) == (theirs.type, bytes(theirs.serialize()))
    changed = wire.set_acl(path, acl_of(acl), version)
    judged = kazoo.SetACL(path, kazoo_acl(acl), version)
    assert (changed.opcode, changed.body) == (judged.type, bytes(judged.serialize()))


def test_the_session_messages_are_what_kazoo_sends() -> None:
    judged = kazoo.Connect(0, 77, 6000, 0x1234, b"p" * 16, False).serialize()
    assert wire.connect_body(77, 6000, 0x1234, b"p" * 16) == bytes(judged)
    auth = kazoo.Auth(0, "digest", "kctl:secret").serialize()
    assert wire.auth_body("digest", b"kctl:secret") == bytes(auth)


operations = st.lists(
    st.one_of(
        st.builds(multi.SetData, paths, datas, versions),
        st.builds(multi.Delete, paths, versions),
        st.builds(multi.Check, paths, versions),
        st.builds(multi.Create, paths, datas, plain_modes),
    ),
    max_size=6,
)


def kazoo_operation(operation: multi.Operation) -> Any:
    match operation:
        case multi.SetData(path, data, version):
            return kazoo.SetData(path, data, version)
        case multi.Delete(path, version):
            return kazoo.Delete(path, version)
        case multi.Check(path, version):
            return kazoo.CheckVersion(path, version)
        case multi.Create(path, data, mode):
            anyone = [security.ACL(31, security.Id("world", "anyone"))]
            return kazoo.Create2(path, data, anyone, int(mode))


@given(operations)
def test_a_multi_is_what_kazoo_sends(ops: list[multi.Operation]) -> None:
    judged = kazoo.Transaction([kazoo_operation(operation) for operation in ops])
    request = multi.multi(ops)
    assert (request.opcode, request.body) == (judged.type, bytes(judged.serialize()))
    assert len(request.body) <= sum(map(multi.operation_bytes, ops)) + 9


def test_null_data_is_not_empty_data() -> None:
    empty, null = (multi.multi([multi.SetData("/a", data)]).body for data in (b"", None))
    assert empty[9 + 6 : 9 + 10] == struct.pack(">i", 0)
    assert null[9 + 6 : 9 + 10] == struct.pack(">i", -1)


@pytest.mark.parametrize(
    "mode, opcode, tail",
    [
        (CreateMode.CONTAINER, 19, struct.pack(">i", 4)),
        (CreateMode.PERSISTENT_WITH_TTL, 21, struct.pack(">iq", 5, 1234)),
        (CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL, 21, struct.pack(">iq", 6, 1234)),
    ],
)
def test_creates_with_an_opcode_of_their_own(mode: CreateMode, opcode: int, tail: bytes) -> None:
    request = wire.create("/c", b"", wire.OPEN_ACL, mode, 1234)
    assert request.opcode == opcode
    assert request.body.endswith(text("world") + text("anyone") + tail)


def test_requests_that_kazoo_does_not_know() -> None:
    assert wire.add_watch("/a", WatchMode.PERSISTENT_RECURSIVE).body == text("/a") + b"\0\0\0\1"
    assert wire.remove_watches("/a", WatchKind.ANY).body == text("/a") + b"\0\0\0\3"
    reads = multi.multi_get_data(["/a", "/b"])
    assert reads.opcode == 22
    one = struct.pack(">i?i", 4, False, -1)
    assert reads.body == one + text("/a") + b"\0" + one + text("/b") + b"\0" + END
    listed = multi.multi_get_children(["/a"])
    assert listed.body == struct.pack(">i?i", 8, False, -1) + text("/a") + b"\0" + END


# --- replies -------------------------------------------------------------------------------------


@given(paths, datas, st.lists(names, max_size=5), acl_parts, stats)
def test_replies_are_read_back(
    path: str, data: bytes, children: list[str], acl: list[tuple[int, str, str]], stat: Stat
) -> None:
    raw = stat_bytes(stat)
    assert wire.get_data("/").read(header() + buffer(data) + raw) == (data, stat)
    assert wire.get_data("/").read(header() + buffer(None) + raw) == (b"", stat)
    assert wire.exists("/").read(header() + raw) == stat
    assert wire.set_data("/", b"", 0).read(header() + raw) == stat
    assert wire.get_children("/").read(header() + texts(children)) == children
    assert wire.get_children2("/").read(header() + texts(children) + raw) == (children, stat)
    made = wire.create("/", b"", wire.OPEN_ACL, CreateMode.PERSISTENT)
    assert made.read(header() + text(path) + raw) == (path, stat)
    entries = b"".join(struct.pack(">i", p) + text(s) + text(i) for p, s, i in acl)
    acl_reply = header() + struct.pack(">i", len(acl)) + entries + raw
    assert wire.get_acl("/").read(acl_reply) == (tuple(acl_of(acl)), stat)


@given(st.lists(st.one_of(st.tuples(datas, stats), st.just(ErrorCode.NO_NODE)), max_size=6))
def test_bulk_reads_are_read_back(rows: list[multi.Read]) -> None:
    parts = [
        result(-1, struct.pack(">i", row), row)
        if isinstance(row, ErrorCode)
        else result(4, buffer(row[0]) + stat_bytes(row[1]))
        for row in rows
    ]
    frame = header() + b"".join(parts) + END
    assert multi.multi_get_data([]).read(frame) == rows


@given(st.lists(st.one_of(st.lists(names, max_size=3), st.just(ErrorCode.NO_AUTH)), max_size=5))
def test_bulk_lists_are_read_back(rows: list[multi.Children]) -> None:
    parts = [
        result(-1, struct.pack(">i", row), row)
        if isinstance(row, ErrorCode)
        else result(8, texts(row))
        for row in rows
    ]
    assert multi.multi_get_children([]).read(header() + b"".join(parts) + END) == rows


@given(st.lists(st.one_of(stats, st.tuples(paths, stats), st.sampled_from([2, 13])), max_size=6))
def test_results_of_a_multi_are_read_back(results: list[Any]) -> None:
    parts: list[bytes] = []
    expected: list[multi.OpResult] = []
    for one in results:
        match one:
            case Stat():
                parts.append(result(5, stat_bytes(one)))
                expected.append(one)
            case (path, stat):
                parts.append(result(15, text(path) + stat_bytes(stat)))
                expected.append(wire.Created(path, stat))
            case kind:
                parts.append(result(kind, b""))
                expected.append(None)
    assert multi.multi([]).read(header() + b"".join(parts) + END) == expected


def test_a_plain_create_in_a_multi_has_no_stat() -> None:
    assert multi.multi([]).read(header() + result(1, text("/a")) + END) == [("/a", None)]


def test_a_refused_multi_raises_with_every_code() -> None:
    codes = [0, -103, -2]
    parts = [result(-1, struct.pack(">i", code), code) for code in codes]
    with pytest.raises(MultiError) as refused:
        multi.multi([]).read(header() + b"".join(parts) + END)
    assert refused.value.codes == (0, -103, -2)
    assert (refused.value.index, refused.value.code) == (1, ErrorCode.BAD_VERSION)


def cut_short(read: Callable[[bytes], object], frame: bytes) -> None:
    for length in range(len(frame)):
        with pytest.raises((struct.error, IndexError, ProtocolError)):
            read(frame[:length])


def test_a_frame_cut_short_is_noticed() -> None:
    stat = stat_bytes(Stat(*range(11)))
    cut_short(multi.multi([]).read, header() + result(5, stat) + END)
    cut_short(multi.multi_get_data([]).read, header() + result(4, buffer(b"xy") + stat) + END)
    cut_short(wire.get_data("/").read, header() + buffer(b"xy") + stat)


def test_a_name_that_is_no_utf8_hides_nobody() -> None:
    frame = header() + struct.pack(">i", 2) + buffer(b"\xff") + text("good")
    assert wire.get_children("/").read(frame)[1] == "good"


def test_connect_replies_and_events() -> None:
    reply = struct.pack(">iiq", 0, 6000, 0x77) + buffer(b"p" * 16)
    assert wire.read_connect_reply(reply) == (6000, 0x77, b"p" * 16, False)
    assert wire.read_connect_reply(reply + b"\1").read_only
    event = header(xid=-1, zxid=-1) + struct.pack(">ii", 3, 3) + text("/a")
    assert wire.read_event(event) == WatchEvent(EventType.DATA_CHANGED, "/a")


# --- watches -------------------------------------------------------------------------------------


def read_set_watches(body: bytes, kinds: int) -> tuple[int, list[list[str]]]:
    (zxid,) = struct.unpack_from(">q", body)
    lists, at = [], 8
    for _ in range(kinds):
        found, at = wire.unpack_strings(body, at)
        lists.append(found)
    assert at == len(body)
    return zxid, lists


@given(
    st.lists(st.integers(1, 60_000), max_size=12),
    st.lists(st.integers(1, 60_000), max_size=4),
    st.booleans(),
)
def test_set_watches_has_everything_in_small_chunks(
    data: list[int], children: list[int], persistent: bool
) -> None:
    registry = WatchRegistry()
    for number, size in enumerate(data):
        registry.data[f"/{number}" + "d" * size] = None
    for number, size in enumerate(children):
        registry.children[f"/{number}" + "c" * size] = None
    if persistent:
        registry.added("/p", WatchMode.PERSISTENT)
        registry.added("/r", WatchMode.PERSISTENT_RECURSIVE)
    requests = list(registry.set_watches(42))
    bodies = [body for _, body in requests]
    assert {op for op, _ in requests} <= {Op.SET_WATCHES2 if persistent else Op.SET_WATCHES}
    kinds = 5 if persistent else 3
    merged: list[list[str]] = [[] for _ in range(kinds)]
    for body in bodies:
        assert len(body) <= CHUNK_MAX_BYTES
        zxid, lists = read_set_watches(body, kinds)
        assert zxid == 42
        for whole, part in zip(merged, lists, strict=True):
            whole.extend(part)
    assert merged == [list(kind) for kind in registry._kinds()[:kinds]]
    assert bool(bodies) == bool(len(registry))


@pytest.mark.parametrize(
    "event, left",
    [
        (EventType.CREATED, ["children", "persistent", "recursive"]),
        (EventType.DATA_CHANGED, ["children", "persistent", "recursive"]),
        (EventType.DELETED, ["persistent", "recursive"]),
        (EventType.CHILDREN_CHANGED, ["data", "exists", "persistent", "recursive"]),
    ],
)
def test_what_an_event_uses_up(event: EventType, left: list[str]) -> None:
    registry = WatchRegistry()
    for kind in registry._kinds():
        kind["/a"] = None
        kind["/b"] = None
    registry.fired(WatchEvent(event, "/a"))
    kinds = ["data", "exists", "children", "persistent", "recursive"]
    assert [kind for kind in kinds if "/a" in getattr(registry, kind)] == left
    assert all("/b" in kind for kind in registry._kinds())
    registry.removed("/b", WatchKind.ANY)
    assert not any("/b" in kind for kind in registry._kinds())
