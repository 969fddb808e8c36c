"""kazoo and aiozk, written by others, see what our session writes, and the other way round."""

from collections.abc import AsyncIterator, Iterator

import aiozk
import pytest
import pytest_asyncio
from kazoo.client import KazooClient

from kctl.zookeeper.errors import MultiError, NoNode
from kctl.zookeeper.multi import Check, Create, Delete, SetData
from kctl.zookeeper.session import Session
from kctl.zookeeper.wire import CreateMode, Stat

pytestmark = [pytest.mark.zookeeper, pytest.mark.asyncio]


@pytest.fixture
def kazoo(chroot: str) -> Iterator[KazooClient]:
    client = KazooClient(chroot, timeout=10)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest_asyncio.fixture
async def other(chroot: str) -> AsyncIterator[aiozk.ZKClient]:
    servers, _, path = chroot.partition("/")
    client = aiozk.ZKClient(servers, chroot="/" + path)
    await client.start()
    yield client
    await client.close()


def same(stat: Stat, judged: object) -> bool:
    """Our stat and kazoo's, field by field."""
    names = {"ephemeral_owner": "ephemeralOwner", "data_length": "dataLength"}
    names["num_children"] = "numChildren"
    return all(
        getattr(stat, field) == getattr(judged, names.get(field, field))
        for field in Stat.__struct_fields__
    )


async def test_kazoo_reads_what_we_write(zk: Session, kazoo: KazooClient) -> None:
    await zk.create("/a", "größe".encode())
    await zk.set("/a", b"changed")
    await zk.create("/e", b"", CreateMode.EPHEMERAL)
    await zk.multi([Create("/m", b"x"), SetData("/m", b"yy", 0), Check("/a", 1), Create("/d")])
    await zk.multi([Delete("/d")])
    kazoo.sync("/")
    assert sorted(kazoo.get_children("/")) == sorted(await zk.children("/")) == ["a", "e", "m"]
    for name in ("/a", "/e", "/m"):
        data, judged = kazoo.get(name)
        ours, stat = await zk.get(name)
        assert data == ours
        assert same(stat, judged)
    assert kazoo.exists("/e").ephemeralOwner == zk.session_id
    assert kazoo.get_acls("/a")[0][0].perms == (await zk.get_acl("/a"))[0][0].perms


async def test_we_read_what_kazoo_writes(zk: Session, kazoo: KazooClient) -> None:
    kazoo.create("/a", b"1")
    kazoo.create("/s-", b"2", sequence=True)
    transaction = kazoo.transaction()
    transaction.create("/t", b"3")
    transaction.set_data("/a", b"4")
    transaction.commit()
    kazoo.create("/e", ephemeral=True)
    await zk.sync()
    names = sorted(await zk.children("/"))
    assert names == ["a", "e", "s-0000000001", "t"]
    rows = await zk.read_many([f"/{name}" for name in names])
    for name, row in zip(names, rows, strict=True):
        assert isinstance(row, tuple)
        data, judged = kazoo.get(f"/{name}")
        assert row[0] == data
        assert same(row[1], judged)


async def test_refusals_are_the_same_as_kazoos(zk: Session, kazoo: KazooClient) -> None:
    kazoo.create("/a", b"1")
    transaction = kazoo.transaction()
    transaction.create("/x", b"")
    transaction.check("/a", 7)
    transaction.delete("/a")
    judged = [type(result).__name__ for result in transaction.commit()]
    with pytest.raises(MultiError) as refused:
        await zk.multi([Create("/x"), Check("/a", 7), Delete("/a")])
    ours = [code.name.title().replace("_", "") for code in refused.value.codes]
    assert judged == ["RolledBackError", "BadVersionError", "RuntimeInconsistency"]
    assert ours == ["Ok", "BadVersion", "RuntimeInconsistency"]


async def test_aiozk_reads_what_we_write_and_we_what_it_writes(
    zk: Session, other: aiozk.ZKClient
) -> None:
    await zk.create("/ours", b"1")
    assert await other.get_data("/ours") == b"1"
    await other.create("/theirs", b"2")
    await other.set_data("/ours", b"3")
    await zk.sync()
    assert (await zk.get("/theirs"))[0] == b"2"
    assert (await zk.get("/ours"))[0] == b"3"
    assert sorted(await other.get_children("/")) == sorted(await zk.children("/"))
    transaction = other.begin_transaction()
    transaction.create("/both", b"4")
    transaction.set_data("/theirs", b"5", version=0)
    await transaction.commit()
    await zk.sync()
    assert [
        row[0] for row in await zk.read_many(["/both", "/theirs"]) if isinstance(row, tuple)
    ] == [
        b"4",
        b"5",
    ]


async def test_the_exceptions_are_aiozks(zk: Session, other: aiozk.ZKClient) -> None:
    with pytest.raises(NoNode):
        await other.get_data("/none")
    with pytest.raises(aiozk.exc.NoNode):
        await zk.get("/none")
