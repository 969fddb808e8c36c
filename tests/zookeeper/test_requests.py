"""Every request against a real server."""

import asyncio

import pytest
from aiozk import ACL

from kctl.zookeeper.client import Client
from kctl.zookeeper.errors import (
    BadVersion,
    ErrorCode,
    MultiError,
    NoAuth,
    NodeExists,
    NoNode,
    NotEmpty,
    ReplyTooLarge,
    RequestTooLarge,
)
from kctl.zookeeper.multi import Check, Create, Delete, SetData
from kctl.zookeeper.session import ReadOnlySession, Session, State
from kctl.zookeeper.wire import (
    CREATOR_ALL_ACL,
    OPEN_ACL,
    Created,
    CreateMode,
    Stat,
)

pytestmark = [pytest.mark.zookeeper, pytest.mark.asyncio]


async def test_the_session_is_a_client_for_the_store(zk: Session) -> None:
    client: Client = zk
    assert client.session_id == zk.session_id != 0


async def test_a_znode_from_creation_to_deletion(zk: Session) -> None:
    created = await zk.create("/a", b"one")
    assert created.path == "/a"
    assert created.stat is not None
    assert created.stat.version == 0
    assert await zk.get("/a") == (b"one", created.stat)
    assert await zk.exists("/a") == created.stat
    changed = await zk.set("/a", b"three", version=0)
    assert (changed.version, changed.data_length, changed.czxid) == (1, 5, created.stat.czxid)
    assert changed.mzxid > changed.czxid
    with pytest.raises(BadVersion):
        await zk.set("/a", b"x", version=0)
    with pytest.raises(BadVersion):
        await zk.delete("/a", version=0)
    with pytest.raises(NodeExists):
        await zk.create("/a")
    await zk.create("/a/b")
    assert await zk.children("/a") == ["b"]
    names, stat = await zk.children_and_stat("/a")
    assert (names, stat.num_children, stat.cversion) == (["b"], 1, 1)
    with pytest.raises(NotEmpty):
        await zk.delete("/a")
    await zk.delete("/a/b", version=0)
    await zk.delete("/a", version=1)
    assert await zk.exists("/a") is None
    for call in (zk.get("/a"), zk.children("/a"), zk.set("/a", b""), zk.delete("/a")):
        with pytest.raises(NoNode):
            await call


async def test_null_data_reads_as_empty(zk: Session) -> None:
    await zk.create("/null", None)
    await zk.create("/empty", b"")
    assert (await zk.get("/null"))[0] == (await zk.get("/empty"))[0] == b""
    assert [
        row[0] for row in await zk.read_many(["/null", "/empty"]) if isinstance(row, tuple)
    ] == [
        b"",
        b"",
    ]


async def test_kinds_of_znodes(zk: Session) -> None:
    ephemeral = await zk.create("/e", mode=CreateMode.EPHEMERAL)
    assert ephemeral.stat is not None
    assert ephemeral.stat.ephemeral_owner == zk.session_id
    first = await zk.create("/s-", mode=CreateMode.PERSISTENT_SEQUENTIAL)
    second = await zk.create("/s-", mode=CreateMode.EPHEMERAL_SEQUENTIAL)
    assert first.path < second.path
    assert len(first.path) == len("/s-") + 10


async def test_containers_and_ttls_are_removed_by_the_server(zk: Session) -> None:
    deleted: asyncio.Queue[str] = asyncio.Queue()
    zk.on_event(lambda event: deleted.put_nowait(event.path))
    await zk.create("/plain")
    await zk.create("/container", mode=CreateMode.CONTAINER)
    await zk.create("/timed", mode=CreateMode.PERSISTENT_WITH_TTL, ttl_ms=100)
    numbered = await zk.create("/n-", mode=CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL, ttl_ms=100)
    going = ["/container", "/timed", numbered.path]
    for path in ["/plain", *going]:
        await zk.exists(path, watch=True)
    await zk.create("/container/child")
    await zk.delete("/container/child")
    assert {await deleted.get() for _ in going} == set(going)
    assert await zk.children("/") == ["plain"]


async def test_ephemerals_end_with_close(zk: Session, chroot: str) -> None:
    async with Session.open(chroot, timeout_ms=10_000) as other:
        await other.create("/e", mode=CreateMode.EPHEMERAL)
        assert await zk.exists("/e") is not None
    await zk.sync()
    assert await zk.exists("/e") is None


async def test_a_multi_is_done_as_a_whole(zk: Session) -> None:
    await zk.create("/epoch", b"7")
    results = await zk.multi(
        [
            Check("/epoch", 0),
            Create("/a", b"x"),
            Create("/a/s-", b"", CreateMode.PERSISTENT_SEQUENTIAL),
            SetData("/a", b"yy", 0),
            Create("/c", b"", CreateMode.CONTAINER),
            Create("/t", b"", CreateMode.PERSISTENT_WITH_TTL, ttl_ms=1000),
            Delete("/c", 0),
        ]
    )
    check, a, numbered, changed, _, _, deleted = results
    assert check is None
    assert deleted is None
    assert isinstance(a, Created)
    assert isinstance(numbered, Created)
    assert isinstance(changed, Stat)
    assert (a.path, numbered.path) == ("/a", "/a/s-0000000000")
    assert (changed.version, changed.data_length) == (1, 2)
    assert await zk.get("/a") == (b"yy", (await zk.exists("/a")))
    assert await zk.multi([]) == []


@pytest.mark.parametrize(
    "failing, code",
    [
        (Check("/epoch", 3), ErrorCode.BAD_VERSION),
        (SetData("/epoch", b"", 3), ErrorCode.BAD_VERSION),
        (SetData("/none", b""), ErrorCode.NO_NODE),
        (Delete("/none"), ErrorCode.NO_NODE),
        (Create("/epoch"), ErrorCode.NODE_EXISTS),
        (Create("/none/below"), ErrorCode.NO_NODE),
    ],
)
async def test_a_refused_multi_names_its_first_failure(
    zk: Session, failing: Check | SetData | Delete | Create, code: ErrorCode
) -> None:
    await zk.create("/epoch", b"7")
    with pytest.raises(MultiError) as refused:
        await zk.multi([Create("/before"), failing, Create("/after"), Check("/epoch", 9)])
    error = refused.value
    skipped = ErrorCode.RUNTIME_INCONSISTENCY
    assert error.codes == (ErrorCode.OK, code, skipped, skipped)
    assert (error.index, error.code) == (1, code)
    assert await zk.children("/") == ["epoch"]
    assert zk.state is State.CONNECTED


async def test_reading_many(zk: Session) -> None:
    paths = [f"/n{number}" for number in range(1300)]
    for at in range(0, len(paths), 250):
        await zk.multi([Create(path, path.encode()) for path in paths[at : at + 250]])
    asked = [*paths[:700], "/missing", *paths[700:]]
    rows = await zk.read_many(asked)
    assert rows[700] is ErrorCode.NO_NODE
    assert [row[0].decode() for row in rows if isinstance(row, tuple)] == paths
    assert rows[5] == await zk.get("/n5")
    assert await zk.read_many([]) == []
    children = await zk.children_many(["/", "/missing", "/n0"])
    assert isinstance(children[0], list)
    assert sorted(children[0]) == sorted(path[1:] for path in paths)
    assert children[1:] == [ErrorCode.NO_NODE, []]


async def test_a_reply_over_the_limit_is_read_again_in_portions(zk: Session, chroot: str) -> None:
    """What one reply cannot hold fails alone: the connection goes on, bulk reads get smaller."""
    for number in range(20):
        await zk.create(f"/large{number}", bytes([number]) * 100_000)
    async with Session.open(chroot, timeout_ms=10_000, reply_max_bytes=150_000) as small:
        states: list[State] = []
        small.on_state(states.append)
        rows = await small.read_many([f"/large{number}" for number in range(20)])
        assert [row[0][-1] for row in rows if isinstance(row, tuple)] == list(range(20))
        assert states == []
    async with Session.open(chroot, timeout_ms=10_000, reply_max_bytes=50_000) as tiny:
        with pytest.raises(ReplyTooLarge):
            await tiny.read_many(["/large1"])
        with pytest.raises(ReplyTooLarge):
            await tiny.get("/large1")
        assert await tiny.exists("/large1") is not None


async def test_acls(zk: Session, chroot: str) -> None:
    await zk.create("/a")
    acl, stat = await zk.get_acl("/a")
    assert acl == OPEN_ACL
    readable = ACL.make("world", "anyone", read=True, admin=True)
    changed = await zk.set_acl("/a", [readable], version=stat.aversion)
    assert changed.aversion == 1
    assert (await zk.get_acl("/a"))[0] == (readable,)
    with pytest.raises(NoAuth):
        await zk.set("/a", b"")
    with pytest.raises(BadVersion):
        await zk.set_acl("/a", OPEN_ACL, version=0)
    who = ("digest", b"kctl:secret")
    async with Session.open(chroot, timeout_ms=10_000, auth=[who]) as owner:
        await owner.create("/mine", b"secret", acl=CREATOR_ALL_ACL)
        assert (await owner.get("/mine"))[0] == b"secret"
        ((entry,), _) = await owner.get_acl("/mine")
        assert entry.id.scheme == "digest"
        assert entry.id.id.startswith("kctl:")
    with pytest.raises(NoAuth):
        await zk.get("/mine")
    assert await zk.read_many(["/mine", "/a"]) == [ErrorCode.NO_AUTH, await zk.get("/a")]


async def test_an_oversized_request_is_refused_here(zk: Session) -> None:
    """The server would answer it by dropping the connection."""
    before = zk.session_id
    with pytest.raises(RequestTooLarge):
        await zk.create("/a", bytes(1 << 20))
    await zk.create("/a", bytes((1 << 20) - 1000))
    assert (zk.state, zk.session_id) == (State.CONNECTED, before)


async def test_a_chroot_has_a_boundary(zk: Session, chroot: str) -> None:
    await zk.create("/kafka", b"inside")
    await zk.create("/kafkaesque", b"outside")
    async with Session.open(chroot + "/kafka", timeout_ms=10_000) as inner:
        assert (await inner.get("/"))[0] == b"inside"
        assert (await inner.create("/x")).path == "/x"
        (made,) = await inner.multi([Create("/y")])
        assert isinstance(made, Created)
        assert made.path == "/y"
        with pytest.raises(ValueError, match="slash"):
            await inner.get("esque")
        assert sorted(await inner.children("/")) == ["x", "y"]
        assert (await inner.read_many(["/", "/esque"]))[1] is ErrorCode.NO_NODE
    assert sorted(await zk.children("/kafka")) == ["x", "y"]


async def test_a_read_only_session_has_no_writes(chroot: str) -> None:
    writes = {"create", "set", "delete", "set_acl", "multi"}
    assert not writes & set(dir(ReadOnlySession))
    assert writes <= set(dir(Session))
    async with ReadOnlySession.open(chroot, timeout_ms=10_000) as reader:
        assert await reader.children("/") == []
        await reader.sync()


async def test_a_cancelled_request_leaves_the_others_alone(zk: Session) -> None:
    await zk.create("/a", b"x")
    waiting = asyncio.ensure_future(zk.get("/a"))
    await asyncio.sleep(0)
    waiting.cancel()
    assert (await zk.get("/a"))[0] == b"x"
    assert waiting.cancelled()


async def test_nothing_is_left_after_close(chroot: str) -> None:
    before = asyncio.all_tasks()
    async with Session.open(chroot, timeout_ms=10_000) as session:
        await session.create("/a")
    assert session.state is State.CLOSED
    assert asyncio.all_tasks() == before
    await session.close()
