"""Trees of znodes in bulk, on a real ZooKeeper: what the Spark data source does in its tasks."""

import asyncio
from collections.abc import Iterator, Sequence

import pytest
from aiozk import ACL

from kctl.bench import zookeeper_io
from kctl.bench.zookeeper_io import (
    CannotWrite,
    Target,
    Written,
    ZooKeeperGone,
    read,
    subtrees,
    write,
)
from kctl.zookeeper.embedded import EmbeddedZooKeeper
from kctl.zookeeper.errors import SessionExpired
from kctl.zookeeper.multi import Operation, OpResult
from kctl.zookeeper.session import Session

pytestmark = pytest.mark.zookeeper

ROWS = [("/a", b"1"), *((f"/a/{n:03}/x", b"%d" % n) for n in range(300))]


def tree(target: Target, root: str = "/", wanted: int = 16) -> dict[str, bytes | None]:
    return {z.path: z.data for part in read(target, *subtrees(target, root, wanted)) for z in part}


def test_written_is_read_back_whatever_the_number_of_subtrees(
    zookeeper: EmbeddedZooKeeper,
) -> None:
    target = Target(zookeeper.connect_string, max_bytes=2_000)
    assert write(target, ROWS) == Written(created=301)
    expected = {"/": None, **{f"/a/{n:03}": None for n in range(300)}, **dict(ROWS)}
    for wanted in (1, 2, 100, 10_000):
        assert tree(target, wanted=wanted) == expected
    assert tree(target, "/a/007") == {"/a/007": None, "/a/007/x": b"7"}
    assert tree(target, "/nothing") == {}


def test_writing_again_changes_nothing_but_what_differs(zookeeper: EmbeddedZooKeeper) -> None:
    target = Target(f"{zookeeper.connect_string}/below/a/chroot")
    plain = Target(zookeeper.connect_string)
    write(plain, [("/below/a/chroot", None)])
    assert write(target, ROWS) == Written(created=301)
    assert write(target, ROWS) == Written(unchanged=301)
    changed = [(path, b"new" if path == "/a/005/x" else data) for path, data in ROWS]
    changed.append(("/b", b"more"))
    assert write(target, changed) == Written(created=1, changed=1, unchanged=300)
    assert tree(target)["/a/005/x"] == b"new"
    assert tree(plain)["/below/a/chroot/b"] == b"more"
    versions = {z.path: z.stat.version for part in read(target, [], ["/a"]) for z in part if z.stat}
    assert versions.pop("/a/005/x") == 1
    assert set(versions.values()) == {0}


def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(ZooKeeperGone, match=r"ZooKeeper at 127\.0\.0\.1:1 does not answer"):
        tree(Target("127.0.0.1:1", session_timeout_ms=500))


def test_children_before_their_parents_are_written_all_the_same(
    zookeeper: EmbeddedZooKeeper,
) -> None:
    """As tasks do that each have a part of the tree: the parent is made without data, then set."""
    target = Target(zookeeper.connect_string, max_bytes=1_000)
    write(target, reversed(ROWS))
    assert tree(target, "/a")["/a"] == b"1"


def test_a_znode_that_no_server_takes_is_named(zookeeper: EmbeddedZooKeeper) -> None:
    target = Target(zookeeper.connect_string)
    with pytest.raises(CannotWrite, match=r"/too/large is larger"):
        write(target, [("/small", b""), ("/too/large", bytes(2 << 20))])
    with pytest.raises(CannotWrite, match=r"/zookeeper/quota belongs to ZooKeeper"):
        write(target, [("/zookeeper/quota", b"")])


def test_what_may_not_be_read_is_named_and_the_rest_is_read(zookeeper: EmbeddedZooKeeper) -> None:
    async def protect() -> None:
        nobody = ACL.make(scheme="ip", id="192.0.2.1", read=True)
        async with Session.open(zookeeper.connect_string) as zk:
            await zk.create("/open", b"1")
            await zk.create("/secret", b"2", acl=[nobody])

    asyncio.run(protect())
    target = Target(zookeeper.connect_string)
    found = {
        z.path: (z.data, z.error) for part in read(target, *subtrees(target, "/", 3)) for z in part
    }
    assert found == {"/": (None, None), "/open": (b"1", None), "/secret": (None, "NO_AUTH")}


def test_a_server_that_goes_in_the_middle_is_reported_and_the_rest_written_later(
    zookeeper: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_io, "IN_FLIGHT", 1)
    target = Target(zookeeper.connect_string, session_timeout_ms=2_000, max_bytes=1_000)

    def rows() -> Iterator[tuple[str, bytes | None]]:
        for number, row in enumerate(ROWS):
            if number == 100:
                zookeeper.kill()
            yield row

    with pytest.raises(ZooKeeperGone, match=f"ZooKeeper at {zookeeper.connect_string}"):
        write(target, rows())
    zookeeper.spawn()
    zookeeper.wait_ready()
    before = len(tree(target, "/a"))
    assert 0 < before < 600
    done = write(target, ROWS)
    assert done.created > 0
    assert done.unchanged > 0
    assert {path: data for path, data in tree(target, "/a").items() if data} == dict(ROWS)


def test_a_session_that_expires_is_followed_by_another(
    zookeeper: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server slept so long, or we did, that the session is over; what was sent may be done."""
    multi, calls = Session.multi, 0

    async def expiring(self: Session, operations: Sequence[Operation]) -> list[OpResult]:
        nonlocal calls
        calls += 1
        expires = calls in (3, 9)
        result = await multi(self, operations)
        if expires:
            raise SessionExpired
        return result

    monkeypatch.setattr(Session, "multi", expiring)
    target = Target(zookeeper.connect_string, max_bytes=2_000)
    done = write(target, ROWS)
    assert done.created + done.unchanged == len(ROWS)
    assert done.unchanged > 0
    assert {path: data for path, data in tree(target, "/a").items() if data} == dict(ROWS)
