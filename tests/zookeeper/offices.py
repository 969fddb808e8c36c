"""A store that rules, a client whose replies get lost, and a kazoo that looks at what is there."""

import json
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from aiozk import ACL
from kazoo.client import KazooClient

from kctl.messages import effects as ef
from kctl.model.codes import Code
from kctl.model.names import TopicPartition
from kctl.model.rows import Assignment, Leadership
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.client import Client
from kctl.zookeeper.multi import Children, Operation, OpResult, Read
from kctl.zookeeper.store import Store
from kctl.zookeeper.wire import ANY_VERSION, OPEN_ACL, Created, CreateMode, Stat, WatchKind

T = TypeVar("T")

US = 1000


async def ruling(client: Client, **options: Any) -> Store:
    """A store on a fresh chroot that has claimed the controllership, with epoch 1."""
    store = Store(client, US, **options)
    assert await store.perform(ef.Bootstrap()) is Code.OK
    assert await store.perform(ef.CreateControllerEpoch()) is Code.OK
    assert await store.perform(ef.ClaimControllership(1, 0, None)) is Code.OK
    return store


@contextmanager
def kazoo(connect_string: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts=connect_string)
    client.start(timeout=30)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def leadership(leader: int = 1, zk_version: int = 0, leader_epoch: int = 0) -> Leadership:
    return Leadership(leader, (1, 2), leader_epoch, 1, zk_version)


def partitions(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, p) for p in range(count)]


def topic_node(count: int, zk_version: int = 0) -> ef.TopicNode:
    return ef.TopicNode({p: Assignment((1, 2)) for p in range(count)}, None, zk_version)


async def make_topic(store: Store, topic: str, count: int) -> list[TopicPartition]:
    """A topic with states, as the store makes it."""
    new = {topic: ef.TopicToCreate(topic_node(count), {})}
    assert await store.perform(ef.CreateTopicNodes(new)) == {topic: Code.OK}
    tps = partitions(topic, count)
    made = await store.perform(ef.CreatePartitionStates({tp: leadership() for tp in tps}))
    assert made == dict.fromkeys(tps, Code.OK)
    return tps


def leaders(kz: KazooClient, tps: Sequence[TopicPartition]) -> list[int]:
    return [json.loads(kz.get(paths.partition_state(tp))[0])["leader"] for tp in tps]


def set_state(kz: KazooClient, tp: TopicPartition, leader: int) -> None:
    """As a broker older than 2.7 changes it."""
    kz.set(paths.partition_state(tp), znodes.encode_state(leadership(leader)))


class Between:
    """Stands between store and client, and can do something before or after a call."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.before: Callable[[str], None] = lambda _: None
        self.after: Callable[[str], None] = lambda _: None
        self.multis: list[Sequence[Operation]] = []
        self.calls: list[str] = []

    async def _call(self, name: str, call: Coroutine[object, object, T]) -> T:
        self.calls.append(name)
        try:
            self.before(name)
        except BaseException:
            call.close()
            raise
        result = await call
        self.after(name)
        return result

    @property
    def session_id(self) -> int:
        return self._client.session_id

    async def get(self, path: str, watch: bool = False) -> tuple[bytes, Stat]:
        return await self._call("get", self._client.get(path, watch))

    async def exists(self, path: str, watch: bool = False) -> Stat | None:
        return await self._call("exists", self._client.exists(path, watch))

    async def children(self, path: str, watch: bool = False) -> list[str]:
        return await self._call("children", self._client.children(path, watch))

    async def create(
        self,
        path: str,
        data: bytes | None = b"",
        mode: CreateMode = CreateMode.PERSISTENT,
        acl: Sequence[ACL] = OPEN_ACL,
    ) -> Created:
        return await self._call("create", self._client.create(path, data, mode, acl))

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        return await self._call("set", self._client.set(path, data, version))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._call("delete", self._client.delete(path, version))

    async def multi(self, operations: Sequence[Operation]) -> list[OpResult]:
        self.multis.append(operations)
        return await self._call("multi", self._client.multi(operations))

    async def read_many(self, paths: Sequence[str]) -> list[Read]:
        return await self._call("read_many", self._client.read_many(paths))

    async def children_many(self, paths: Sequence[str]) -> list[Children]:
        return await self._call("children_many", self._client.children_many(paths))

    async def sync(self, path: str = "/") -> None:
        await self._call("sync", self._client.sync(path))

    async def remove_watches(self, path: str, kind: WatchKind) -> None:
        await self._call("remove_watches", self._client.remove_watches(path, kind))
