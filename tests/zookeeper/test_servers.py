"""The embedded servers themselves: life, data, ensembles, versions."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from kctl.zookeeper import embedded, jars
from kctl.zookeeper.embedded import (
    EmbeddedEnsemble,
    EmbeddedZooKeeper,
    four_letter_word,
    free_ports,
)
from kctl.zookeeper.errors import ConnectionLoss, ErrorCode, MultiError, Unimplemented
from kctl.zookeeper.jars import ServerUnavailable
from kctl.zookeeper.multi import Check, Create, SetData
from kctl.zookeeper.session import Session, State
from kctl.zookeeper.wire import CreateMode, EventType, Stat, WatchEvent, WatchMode
from tests.zookeeper.records import Record

pytestmark = pytest.mark.zookeeper

STARTER = """\
import sys, time
from kctl.zookeeper.embedded import EmbeddedZooKeeper
server = EmbeddedZooKeeper()
server.start()
print(server.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.asyncio
async def test_data_and_port_outlive_a_restart() -> None:
    async with EmbeddedZooKeeper(tick_time_ms=200) as server:
        port = server.port
        assert "imok" in four_letter_word(port, "ruok")
        assert "zk_version" in four_letter_word(port, "mntr")
        async with Session.open(server.connect_string, timeout_ms=10_000) as zk:
            await zk.create("/kept", b"x")
            server.pause()
            read = asyncio.ensure_future(zk.get("/kept"))
            await asyncio.sleep(0.2)
            assert not read.done()
            server.resume()
            assert (await read)[0] == b"x"
        await asyncio.to_thread(server.restart)
        assert server.port == port
        async with Session.open(server.connect_string, timeout_ms=10_000) as zk:
            assert (await zk.get("/kept"))[0] == b"x"
        folder, pid = server._folder, server.pid
    assert folder is not None
    assert not folder.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_port_that_is_taken_is_left_to_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another server answers there, which must not be mistaken for ours."""
    with EmbeddedZooKeeper() as owner:
        choices = iter([owner.port, *free_ports(1)])
        monkeypatch.setattr(embedded, "free_ports", lambda _: [next(choices)])
        with EmbeddedZooKeeper() as other:
            assert other.port != owner.port
            assert owner.mode() == other.mode() == "standalone"


def test_a_probe_that_reached_itself_leaves_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel may choose the very port that is probed, which then connects to itself."""
    (port,) = free_ports(1)
    connect = partial(socket.create_connection, source_address=(embedded.HOST, port))
    monkeypatch.setattr(socket, "create_connection", connect)
    assert four_letter_word(port, "ruok", timeout_s=1.0) == ""
    with socket.socket() as server:
        server.bind((embedded.HOST, port))


def gone(pid: int) -> bool:
    """Whether the process has ended; a zombie that nobody has waited for counts."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal")
def test_the_server_ends_with_a_killed_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert not gone(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    while not gone(pid):  # the test's timeout bounds this
        time.sleep(0.01)


def test_without_maven_the_message_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(jars, "_find_maven", lambda: None)
    monkeypatch.setattr(jars, "_pyspark_jars", list)
    with pytest.raises(ServerUnavailable, match="apt-get install maven"):
        jars.class_path()


def test_a_server_that_cannot_start_shows_its_log() -> None:
    server = EmbeddedZooKeeper(settings={"tickTime": "soon"})
    with pytest.raises(ServerUnavailable, match="soon"), server:
        pass


@pytest.mark.asyncio
async def test_the_ensembles_leader_is_lost() -> None:
    async with EmbeddedEnsemble(3) as ensemble:
        modes = sorted(server.mode() or "none" for server in ensemble.servers)
        assert modes == ["follower", "follower", "leader"]
        async with Session.open(ensemble.connect_string, timeout_ms=15_000) as zk:
            record = Record(zk)
            await zk.create("/held", b"x", CreateMode.EPHEMERAL)
            await zk.get("/held", watch=True)
            leader = ensemble.leader()
            await asyncio.to_thread(leader.kill)
            if zk.state is State.SUSPENDED or record.states:
                await record.until(lambda record: record.states[-1] is State.CONNECTED)
            for _ in range(100):
                try:
                    await zk.set("/held", b"y")
                    break
                except ConnectionLoss:
                    await asyncio.sleep(0.1)
            stat = await zk.exists("/held")
            assert stat is not None
            assert stat.ephemeral_owner == zk.session_id
            await record.until(lambda record: bool(record.events))
            assert record.events[0] == WatchEvent(EventType.DATA_CHANGED, "/held")
            assert State.FENCED not in record.states


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize("version", ["3.5.9", "3.6.4", "3.7.2", "3.9.3"])
async def test_versions(version: str) -> None:
    modern = version >= "3.6"
    async with (
        EmbeddedZooKeeper(version=version, tick_time_ms=200) as server,
        Session.open(server.connect_string, timeout_ms=10_000) as zk,
    ):
        assert (zk.capabilities.multi_read, zk.capabilities.add_watch) == (modern, modern)
        record = Record(zk)
        await zk.create("/a", b"1")
        await zk.create("/e", b"", CreateMode.EPHEMERAL)
        await zk.create("/c", b"", CreateMode.CONTAINER)
        _, changed, _ = await zk.multi([Create("/b", None), SetData("/a", b"2", 0), Check("/a", 1)])
        assert isinstance(changed, Stat)
        assert changed.version == 1
        with pytest.raises(MultiError) as refused:
            await zk.multi([Check("/a", 1), SetData("/b", b"", 4), Create("/x")])
        assert refused.value.codes == (0, -103, -2)
        paths = [f"/n{number}" for number in range(1200)]
        for at in range(0, 1200, 200):
            await zk.multi([Create(path, path.encode()) for path in paths[at : at + 200]])
        rows = await zk.read_many([*paths, "/none"])
        assert [row[0].decode() for row in rows if isinstance(row, tuple)] == paths
        assert rows[-1] is ErrorCode.NO_NODE
        assert await zk.children_many(["/n1", "/none"]) == [[], ErrorCode.NO_NODE]
        await zk.get("/a", watch=True)
        assert zk._connection is not None
        zk._connection.drop(ConnectionResetError("by the test"))
        await record.until_state(State.SUSPENDED, State.CONNECTED)
        await zk.set("/a", b"3")
        await record.until(lambda record: bool(record.events))
        assert record.events == [(EventType.DATA_CHANGED, "/a")]
        if modern:
            await zk.add_watch("/", WatchMode.PERSISTENT_RECURSIVE)
        else:
            with pytest.raises(Unimplemented):
                await zk.add_watch("/", WatchMode.PERSISTENT_RECURSIVE)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_moving_to_an_older_server_falls_back_to_single_reads() -> None:
    """As in the middle of an upgrade: the first bulk read is lost, the next is done one by one."""
    async with (
        EmbeddedZooKeeper(version="3.5.9", tick_time_ms=200) as server,
        Session.open(server.connect_string, timeout_ms=10_000) as zk,
    ):
        old = zk.capabilities
        zk.capabilities = type(old)(multi_read=True, add_watch=True)
        with pytest.raises(ConnectionLoss):
            await zk.read_many(["/"])
        assert zk.capabilities == old
        (row,) = await zk.read_many(["/"])
        assert isinstance(row, tuple)
