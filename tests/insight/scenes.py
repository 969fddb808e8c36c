"""Clusters in a few lines of text, as ZooKeeper would show them.

now 2026-11-18 10:30:00
controller 1 epoch=7 since=10:00:00            or: controller none epoch=7
broker 1 rack=a since=10:00:00
topic orders 0=1,2,3 1=2,3,1+4-2               1 is being reassigned: adding 4, removing 2
config orders min.insync.replicas=2
default unclean.leader.election.enable=true
state orders-0 leader=1 isr=1,2,3 epoch=3 controller=7 at=10:05:00
marked orders at=10:20:00
znode /brokers/topics/bad not json
"""

import datetime as dt
import json
import re
from collections.abc import Sequence
from typing import Any

import attrs

from kctl.zookeeper.errors import ErrorCode, NoNode
from kctl.zookeeper.multi import Children, Read
from kctl.zookeeper.wire import Stat, WatchKind


def stat(version: int = 0, at_ms: int = 0, children: int = 0, zxid: int = 1) -> Stat:
    return Stat(
        czxid=zxid,
        mzxid=zxid,
        ctime=at_ms,
        mtime=at_ms,
        version=version,
        cversion=0,
        aversion=0,
        ephemeral_owner=0,
        data_length=0,
        num_children=children,
        pzxid=zxid,
    )


@attrs.define
class WrittenZooKeeper:
    """A Reader of what was written down."""

    nodes: dict[str, tuple[bytes, Stat]] = attrs.field(factory=dict)
    now_ms: int = 0
    session_id: int = 1

    def put(self, path: str, data: bytes, at_ms: int = 0, version: int = 0) -> None:
        parent = path.rpartition("/")[0]
        if parent and parent not in self.nodes:
            self.put(parent, b"")
        self.nodes[path] = (data, stat(version, at_ms, zxid=len(self.nodes) + 1))

    async def get(self, path: str, watch: bool = False) -> tuple[bytes, Stat]:
        if path not in self.nodes:
            raise NoNode
        return self.nodes[path]

    async def exists(self, path: str, watch: bool = False) -> Stat | None:
        return self.nodes[path][1] if path in self.nodes else None

    async def children(self, path: str, watch: bool = False) -> list[str]:
        if path not in self.nodes:
            raise NoNode
        below = re.compile(re.escape(path) + r"/([^/]+)")
        return [found[1] for node in self.nodes if (found := below.fullmatch(node))]

    async def read_many(self, paths: Sequence[str]) -> list[Read]:
        return [self.nodes.get(path, ErrorCode.NO_NODE) for path in paths]

    async def children_many(self, paths: Sequence[str]) -> list[Children]:
        return [await self.children(path) for path in paths]

    async def sync(self, path: str = "/") -> None: ...

    async def remove_watches(self, path: str, kind: WatchKind) -> None: ...


def read_scene(text: str) -> WrittenZooKeeper:
    zookeeper = WrittenZooKeeper()
    for path in ("/brokers/ids", "/brokers/topics", "/admin/delete_topics", "/config/topics"):
        zookeeper.put(path, b"")
    day = "2026-11-18"
    for line in filter(None, (raw.strip() for raw in text.splitlines())):
        if line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        if word == "now":
            day = rest.split()[0]
            zookeeper.now_ms = _ms(rest.split()[1], day)
        elif word == "znode":
            path, _, data = rest.partition(" ")
            zookeeper.put(path, data.encode())
        else:
            name, *options = rest.split()
            given = dict(option.split("=", 1) for option in options)
            _WORDS[word](zookeeper, name, given, day)
    return zookeeper


def _ms(clock: str, day: str) -> int:
    at = dt.datetime.fromisoformat(f"{day} {clock}").replace(tzinfo=dt.UTC)
    return int(at.timestamp() * 1000)


def _at(given: dict[str, str], key: str, day: str) -> int:
    return _ms(given[key], day) if key in given else 0


def _controller(zk: WrittenZooKeeper, name: str, given: dict[str, str], day: str) -> None:
    if name != "none":
        claim = {"version": 2, "brokerid": int(name), "timestamp": "0"}
        if given.get("kctl"):
            claim["kctl"] = True
        zk.put("/controller", _json(claim), _at(given, "since", day))
    zk.put("/controller_epoch", given["epoch"].encode())


def _broker(zk: WrittenZooKeeper, name: str, given: dict[str, str], day: str) -> None:
    registration = {
        "version": 5,
        "host": "127.0.0.1",
        "port": 9000 + int(name),
        "endpoints": [f"PLAINTEXT://127.0.0.1:{9000 + int(name)}"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "features": {},
        "timestamp": "0",
    }
    if "rack" in given:
        registration["rack"] = given["rack"]
    zk.put(f"/brokers/ids/{name}", _json(registration), _at(given, "since", day))


def _topic(zk: WrittenZooKeeper, name: str, given: dict[str, str], day: str) -> None:
    node: dict[str, Any] = {"version": 3, "topic_id": "pZqL3BQuSGmvbzeJcJsGrw"}
    node["topic_id"] = (name.replace("-", "") + "A" * 21)[:21] + "w"
    node |= {"partitions": {}, "adding_replicas": {}, "removing_replicas": {}}
    for partition, replicas in given.items():
        found = re.fullmatch(r"([\d,]+)(?:\+([\d,]+))?(?:-([\d,]+))?", replicas)
        assert found, replicas
        for key, part in zip(
            ("partitions", "adding_replicas", "removing_replicas"), found.groups(), strict=True
        ):
            if part is not None:
                node[key][partition] = [int(b) for b in part.split(",")]
    zk.put(f"/brokers/topics/{name}", _json(node))


def _state(zk: WrittenZooKeeper, name: str, given: dict[str, str], day: str) -> None:
    topic, _, partition = name.rpartition("-")
    state = {
        "version": 1,
        "leader": int(given["leader"]),
        "isr": [int(b) for b in given["isr"].split(",") if b],
        "leader_epoch": int(given.get("epoch", "0")),
        "controller_epoch": int(given.get("controller", "1")),
    }
    if "recovering" in given:
        state["leader_recovery_state"] = 1
    path = f"/brokers/topics/{topic}/partitions/{partition}/state"
    zk.put(path, _json(state), _at(given, "at", day), version=int(given.get("epoch", "0")))


def _config(zk: WrittenZooKeeper, name: str, given: dict[str, str], day: str) -> None:
    zk.put(f"/config/topics/{name}", _json({"version": 1, "config": given}))


def _default(zk: WrittenZooKeeper, name: str, given: dict[str, str], day: str) -> None:
    key, _, value = name.partition("=")
    config = {"version": 1, "config": {key: value, **given}}
    zk.put("/config/brokers/<default>", _json(config))


def _marked(zk: WrittenZooKeeper, name: str, given: dict[str, str], day: str) -> None:
    zk.put(f"/admin/delete_topics/{name}", b"", _at(given, "at", day))


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


_WORDS = {
    "controller": _controller,
    "broker": _broker,
    "topic": _topic,
    "state": _state,
    "config": _config,
    "default": _default,
    "marked": _marked,
}
