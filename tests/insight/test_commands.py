"""The questions as commands: what they print, their exit codes, and that they cannot write."""

import asyncio
import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiozk import ACL
from typer.testing import CliRunner, Result

from kctl.cli import app
from kctl.insight import snapshot
from kctl.zookeeper.embedded import free_ports
from kctl.zookeeper.session import ReadOnlySession, Session
from kctl.zookeeper.wire import CREATOR_ALL_ACL, Op
from tests.insight.scenes import read_scene
from tests.insight.test_plan import SCENE
from tests.zookeeper.fault_proxy import FaultProxy

pytestmark = [pytest.mark.zookeeper, pytest.mark.asyncio]

READS = {
    Op.EXISTS,
    Op.GET_DATA,
    Op.GET_CHILDREN,
    Op.GET_CHILDREN2,
    Op.GET_ACL,
    Op.SYNC,
    Op.MULTI_READ,
    Op.PING,
    Op.ADD_WATCH,
    Op.REMOVE_WATCHES,
    Op.SET_WATCHES,
    Op.SET_WATCHES2,
    Op.CLOSE,
    Op.AUTH,
}
QUESTIONS = (
    ["explain", "orders-0"],
    ["plan", "--kill", "3"],
    ["shadow", "--for", "0.5"],
)


async def kctl(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, app, list(arguments))


async def fill(zk: Session, scene: str = SCENE) -> None:
    for path, (data, _) in read_scene(scene).nodes.items():
        await zk.create(path, data)


async def tree(zk: Session, path: str = "") -> dict[str, tuple[int, int, int]]:
    """Every znode with its versions and last transaction."""
    _, stat = await zk.get(path or "/")
    found = {path: (stat.version, stat.cversion, stat.mzxid)}
    for child in await zk.children(path or "/"):
        found |= await tree(zk, f"{path}/{child}")
    return found


# -- they cannot write -----------------------------------------------------------------------


def opcodes(sent: bytes) -> Iterator[int]:
    """Of everything after the connect request, which has none."""
    at = 4 + struct.unpack_from(">i", sent)[0]
    while at + 12 <= len(sent):
        size, _, opcode = struct.unpack_from(">iii", sent, at)
        yield opcode
        at += 4 + size


async def test_not_one_request_that_writes_is_sent(
    zk: Session, chroot: str, proxy: FaultProxy
) -> None:
    await fill(zk)
    before = await tree(zk)
    address = proxy.address + "/" + chroot.partition("/")[2]
    for question in QUESTIONS:
        asked = await kctl(*question, "--zookeeper", address, "--json")
        assert asked.exit_code == 0, asked.output
    sent = {opcode for one in proxy.bytes_to_server for opcode in opcodes(one)}
    assert {Op.GET_DATA, Op.MULTI_READ, Op.ADD_WATCH} <= sent
    assert sent <= {int(op) for op in READS}
    assert await tree(zk) == before


async def test_the_session_that_they_use_has_no_such_request() -> None:
    writes = {"create", "set", "delete", "multi", "set_acl", "reconfigure"}
    assert not [name for name in dir(ReadOnlySession) if name in writes]
    assert {name for name in dir(Session) if name in writes} >= {"create", "set", "delete"}
    for file in Path(snapshot.__file__).parent.glob("*.py"):
        text = file.read_text("utf-8")
        assert not re.search(r"\bSession\b|zookeeper\.(store|writing|batches)", text), file


# -- what they say ---------------------------------------------------------------------------


async def test_explain(zk: Session, chroot: str) -> None:
    await fill(zk)
    told = await kctl("explain", "orders-2", "-z", chroot)
    assert told.exit_code == 0
    assert told.output.startswith("orders-2: led by 3, all replicas in sync; under min ISR: 1 of 2")
    found = json.loads((await kctl("explain", "broker", "1", "-z", chroot, "--json")).output)
    assert found["subject"] == "broker 1"
    assert {"verdict", "because", "until", "advice", "healthy"} <= set(found)
    unknown = await kctl("explain", "nothing", "-z", chroot)
    assert unknown.exit_code == 5
    assert "no topic or partition is called 'nothing'" in one_line(unknown)


async def test_what_stands_in_the_brokers_files(zk: Session, chroot: str, tmp_path: Path) -> None:
    """Unclean election and min ISR are often set there, and nowhere in ZooKeeper."""
    scene = SCENE.replace("broker 3 rack=b\n", "").replace(
        "config orders min.insync.replicas=2\n", ""
    )
    await fill(zk, scene.replace("leader=3 isr=3", "leader=-1 isr=3").replace("2=3", "2=3,1"))
    unknown = await kctl("explain", "orders-2", "-z", chroot)
    assert "unclean election is off by Kafka's default" in unknown.output
    file = tmp_path / "server.properties"
    file.write_text("unclean.leader.election.enable=true\nmin.insync.replicas=3\n")
    known = await kctl("explain", "orders-2", "-z", chroot, "--config", str(file))
    assert "unclean election is on by the brokers' default" in known.output
    arguments = ("plan", "--kill", "2", "-z", chroot, "--config", str(file), "--json")
    found = json.loads((await kctl(*arguments)).output)
    assert {c["partition"]: c["leader"][1] for c in found["changes"]}["orders-2"] == 1
    assert found["under_min_isr"] == 3


async def test_plan_in_the_order_of_the_command_line(zk: Session, chroot: str) -> None:
    await fill(zk)
    arguments = ("--kill", "3", "--rack-loss=a", "-z", chroot, "--json")
    found = json.loads((await kctl("plan", *arguments)).output)
    assert found["steps"] == ["kill 3", "lose rack a (brokers 1, 2)"]
    assert found["offline"] == 3
    assert set(found["bytes_by_broker"]) == {"1", "2"}
    turned = json.loads((await kctl("plan", arguments[2], *arguments[:2], *arguments[3:])).output)
    assert turned["steps"] == ["lose rack a (brokers 1, 2)", "kill 3"]


async def test_plan_fails_if_told_to(zk: Session, chroot: str) -> None:
    await fill(zk)
    refused = await kctl("plan", "--shutdown", "3", "--fail-if", "offline>0", "-z", chroot)
    assert refused.exit_code == 1
    assert "do not do this: offline>0 (offline is 1)" in refused.stderr
    assert "orders-2: leader 3 -> none" in refused.stdout
    allowed = await kctl("plan", "--shutdown", "1", "--fail-if", "newly_offline>0", "-z", chroot)
    assert allowed.exit_code == 0
    assert "orders-0: leader 1 -> 2, ISR [1, 2, 3] -> [2, 3]" in allowed.stdout


async def test_plan_of_a_reassignment_and_an_election(
    zk: Session, chroot: str, tmp_path: Path
) -> None:
    await fill(zk)
    file = tmp_path / "moves.json"
    moves = {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [2, 1]}]}
    file.write_text(json.dumps(moves))
    arguments = ("plan", "--reassign", str(file), "--elect", "preferred", "-z", chroot, "--json")
    (change,) = json.loads((await kctl(*arguments)).output)["changes"]
    assert change["replicas"] == [[1, 2, 3], [2, 1]]
    assert change["leader"] == [1, 2]


async def test_shadow_says_when_nobody_reacts(zk: Session, chroot: str) -> None:
    """This cluster has a controller by name only: a leader is gone, and nothing happens."""
    await fill(zk)
    await zk.delete("/brokers/ids/1")
    watched = await kctl("shadow", "-z", chroot, "--for", "5", "--stuck-after", "1", "--json")
    assert watched.exit_code == 6
    found = json.loads(watched.stdout)
    assert (found["stuck"], found["diverged"]) == (1, 0)
    (finding,) = found["findings"]
    assert [d["key"] for d in finding["differences"]] == ["orders-0"]
    await zk.delete("/controller")
    watched = await kctl("shadow", "-z", chroot, "--for", "3", "--stuck-after", "1")
    assert watched.exit_code == 6
    assert "there is no controller" in watched.stderr


# -- what goes wrong -------------------------------------------------------------------------


def one_line(result: Result) -> str:
    """What was printed to standard error: one line, and no traceback."""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("kctl: ")
    return lines[0]


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: q[0])
async def test_no_zookeeper(question: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "CONNECT_BOUND_MS", 300)
    (port,) = free_ports(1)
    asked = await kctl(*question, "-z", f"127.0.0.1:{port}")
    assert asked.exit_code == 4
    assert f"no ZooKeeper answers at 127.0.0.1:{port}" in one_line(asked)
    with_debug = await kctl(*question, "-z", f"127.0.0.1:{port}", "--debug")
    assert with_debug.exception is not None
    assert not isinstance(with_debug.exception, SystemExit)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: q[0])
async def test_an_empty_ensemble(question: list[str], chroot: str) -> None:
    asked = await kctl(*question, "-z", chroot)
    assert asked.exit_code == 4
    assert "an empty ensemble, another chroot, or a Kafka cluster in KRaft mode" in one_line(asked)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: q[0])
async def test_the_address_of_a_broker(
    question: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "CONNECT_BOUND_MS", 300)

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            frame = await reader.readexactly(size)
            key, _, correlation = struct.unpack_from(">hhi", frame)
            if key == 18:
                body = struct.pack(">ihihhh", correlation, 0, 1, 18, 0, 4)
                writer.write(struct.pack(">i", len(body)) + body)
                await writer.drain()
        except EOFError:
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(broker, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        asked = await kctl(*question, "-z", f"127.0.0.1:{port}")
    assert asked.exit_code == 4
    assert f"127.0.0.1:{port} is a Kafka broker, not a ZooKeeper server" in one_line(asked)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: q[0])
async def test_no_permission(question: list[str], zk: Session, chroot: str) -> None:
    nobody = ACL.make("ip", "10.255.255.255", read=True)
    await zk.create("/brokers")
    await zk.create("/brokers/ids", acl=[nobody])
    asked = await kctl(*question, "-z", chroot)
    assert asked.exit_code == 7
    assert "NOAUTH" in one_line(asked)


async def test_a_file_with_the_credentials_opens_it(
    zk: Session, chroot: str, tmp_path: Path
) -> None:
    await fill(zk)
    async with Session.open(chroot, auth=[("digest", b"kafka:secret")]) as owner:
        for path in ("/brokers/topics", "/brokers/ids"):
            await owner.set_acl(path, CREATOR_ALL_ACL)
    closed = await kctl("explain", "orders-0", "-z", chroot)
    assert closed.exit_code == 7
    file = tmp_path / "server.properties"
    file.write_text(f"zookeeper.connect={chroot}\nkctl.zookeeper.auth=digest:kafka:secret\n")
    opened = await kctl("explain", "orders-0", "--config", str(file))
    assert opened.exit_code == 0, opened.output
    assert opened.output.startswith("orders-0: led by 1")
    nowhere = await kctl("explain", "orders-0", "--config", str(tmp_path / "nothing"))
    assert nowhere.exit_code == 2
    assert "cannot read" in one_line(nowhere)


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["plan"], 2, "nothing to plan: give --kill"),
        (["plan", "--kill", "9"], 2, "broker 9 is not registered; registered: 1, 2, 3"),
        (["plan", "--kill", "3", "--fail-if", "dead>1"], 2, "there is no count 'dead'"),
        (["plan", "--rack-loss", "z"], 2, "no live broker is in rack 'z'"),
        (["plan", "--elect", "any"], 2, "only preferred can be planned"),
        (["plan", "--reassign", "/nowhere.json"], 2, "cannot read /nowhere.json: No such file"),
        (["explain", "orders-9"], 5, "topic orders has no partition 9"),
        (["explain", "broker", "9"], 5, "broker 9 is not registered and has no replica"),
    ],
)
async def test_arguments_that_make_no_sense_here(
    arguments: list[str], code: int, message: str, zk: Session, chroot: str
) -> None:
    await fill(zk)
    asked = await kctl(*arguments, "-z", chroot)
    assert asked.exit_code == code
    assert message in one_line(asked)


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain"],
        ["explain", "t-0"],
        ["plan", "--kill", "x"],
        ["shadow"],
        ["replay"],
        ["plan", "-x"],
    ],
)
async def test_arguments_that_are_none(arguments: list[str]) -> None:
    asked = await kctl(*arguments)
    assert asked.exit_code == 2
    assert "Traceback" not in asked.output


@pytest.mark.parametrize("address", ["", "host:port", "h:1//x"])
async def test_addresses_that_are_none(address: str) -> None:
    asked = await kctl("explain", "t-0", "-z", address)
    assert asked.exit_code == 2
    assert one_line(asked)
