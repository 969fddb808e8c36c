"""What is around a controller: registrations of brokers, topics, admin znodes, and a sink."""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import kctl
from kctl.messages import events as ev
from kctl.messages.requests import Dispatch, LeaderAndIsrRequest, StopReplicaRequest
from kctl.model.cluster import ClusterState
from kctl.model.names import TopicPartition
from kctl.runtime.channels import RecordingChannels
from kctl.runtime.controller import Controller
from kctl.zookeeper import paths
from kctl.zookeeper.errors import NodeExists, NoNode
from kctl.zookeeper.multi import Create
from kctl.zookeeper.session import Session
from kctl.zookeeper.wire import CreateMode

BATCH = 500
UNTIL_BOUND_S = 30


class AnsweringChannels(RecordingChannels):
    """Brokers that answer every request with success, one turn of the loop later."""

    def __init__(self, put: Callable[[ev.Event], None]) -> None:
        super().__init__()
        self._put = put
        self.silent: set[int] = set()
        """Brokers that do not answer."""

    def send(self, dispatch: Dispatch) -> None:
        super().send(dispatch)
        answer: ev.Event | None = None
        match dispatch:
            case StopReplicaRequest(broker, broker_epoch, _, partitions):
                deleted = {tp: 0 for tp, order in partitions.items() if order.delete}
                if deleted:
                    answer = ev.TopicDeletionStopReplicaResponseReceived(
                        broker, broker_epoch, 0, deleted
                    )
            case LeaderAndIsrRequest(broker, broker_epoch, _, rows):
                answer = ev.LeaderAndIsrResponseReceived(
                    broker, broker_epoch, 0, dict.fromkeys(rows, 0)
                )
        if answer is not None and broker not in self.silent:
            asyncio.get_running_loop().call_soon(self._put, answer)


class WatchedController(Controller):
    """A wait that takes too long says what the controller was doing."""

    async def until(self, condition: Callable[[Controller], bool]) -> None:
        try:
            async with asyncio.timeout(UNTIL_BOUND_S):
                await super().until(condition)
        except TimeoutError:
            tail = "\n".join(self.journal.tail()[-60:])
            quarantine = {} if self.state is None else self.state.quarantine
            raise AssertionError(
                f"not so after {UNTIL_BOUND_S} s; active {self.is_active}, stood down"
                f" {self.stood_down}, quarantine {quarantine}, journal:\n{tail}"
            ) from None


class Surroundings:
    def __init__(self, connect: str, session: Session) -> None:
        self.connect = connect
        self.zk = session

    def config(self, **settings: Any) -> kctl.Config:
        settings.setdefault("zookeeper_connect", self.connect)
        settings.setdefault("zookeeper_session_timeout_ms", 10_000)
        return kctl.Config(**settings)

    def controller(self, **settings: Any) -> Controller:
        """One whose brokers answer."""
        seed = settings.pop("seed", None)
        return WatchedController(self.config(**settings), channels=AnsweringChannels, seed=seed)

    # -- brokers ------------------------------------------------------------------------------

    async def start_brokers(self, *brokers: int) -> None:
        await self.make("/brokers/ids")
        for broker in brokers:
            await self.zk.create(paths.broker(broker), registration(broker), CreateMode.EPHEMERAL)

    async def stop_brokers(self, *brokers: int) -> None:
        for broker in brokers:
            await self.zk.delete(paths.broker(broker))

    # -- topics -------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        assignment: Mapping[int, Sequence[int]],
        config: dict[str, str] | None = None,
    ) -> None:
        """As a broker or a tool does."""
        await self.make("/brokers/topics")
        await self.make("/config/topics")
        content = {"version": 1, "config": config or {}}
        await self.put(paths.topic_config(name), json.dumps(content).encode())
        await self.zk.create(paths.topic(name), topic(assignment))

    async def create_led_topics(
        self, topics: int, partitions: int, brokers: int, replicas: int = 3
    ) -> None:
        """Many topics with leaders already, as a controller before this one left them."""
        await self.make("/brokers/topics")
        operations: list[Create] = []
        for number in range(topics):
            name = f"t{number:05}"
            assignment = {
                p: [(number + p + r) % brokers + 1 for r in range(replicas)]
                for p in range(partitions)
            }
            operations.append(Create(paths.topic(name), topic(assignment)))
            operations.append(Create(f"{paths.topic(name)}/partitions", b""))
            for partition, ids in assignment.items():
                at = f"{paths.topic(name)}/partitions/{partition}"
                operations.append(Create(at, b""))
                operations.append(Create(f"{at}/state", state(ids[0], ids)))
        for start in range(0, len(operations), BATCH):
            await self.zk.multi(operations[start : start + BATCH])

    async def create_topics_led_by(
        self,
        leader: int,
        names: Sequence[str],
        partitions: int,
        replicas: Sequence[int] = (1, 2, 3),
    ) -> None:
        """All partitions on the same brokers, as nobody would have it: one broker's loss is all."""
        await self.make("/brokers/topics")
        for name in names:
            at = paths.topic(name)
            assignment = dict.fromkeys(range(partitions), replicas)
            operations = [Create(at, topic(assignment)), Create(f"{at}/partitions", b"")]
            for p in range(partitions):
                operations.append(Create(f"{at}/partitions/{p}", b""))
                content = state(leader, replicas, controller_epoch=0)
                operations.append(Create(f"{at}/partitions/{p}/state", content))
            await self.zk.multi(operations)

    async def state(self, name: str, partition: int = 0) -> dict[str, Any]:
        data, _ = await self.zk.get(paths.partition_state(TopicPartition(name, partition)))
        found: dict[str, Any] = json.loads(data)
        return found

    async def write_state(self, name: str, partition: int, **changes: Any) -> None:
        """As a leader older than 2.7, or somebody's hand, does."""
        content = await self.state(name, partition) | changes
        path = paths.partition_state(TopicPartition(name, partition))
        await self.zk.set(path, json.dumps(content).encode())

    # -- anything -----------------------------------------------------------------------------

    async def make(self, path: str, data: bytes = b"") -> None:
        """With its parents."""
        names = [name for name in path.split("/") if name]
        for depth in range(1, len(names) + 1):
            try:
                await self.zk.create(
                    "/" + "/".join(names[:depth]), data if depth == len(names) else b""
                )
            except NodeExists:
                continue

    async def put(self, path: str, data: bytes) -> None:
        """Create it or replace what it holds."""
        await self.make(path.rpartition("/")[0])
        try:
            await self.zk.create(path, data)
        except NodeExists:
            await self.zk.set(path, data)

    async def remove(self, path: str) -> None:
        for child in await self.zk.children(path):
            await self.remove(f"{path}/{child}")
        await self.zk.delete(path)

    async def exists(self, path: str) -> bool:
        return await self.zk.exists(path) is not None

    async def until_gone(self, path: str) -> None:
        while await self.exists(path):  # noqa: ASYNC110 it happens in another process
            await asyncio.sleep(0.01)

    async def controller_id(self) -> int | None:
        try:
            data, _ = await self.zk.get("/controller")
        except NoNode:
            return None
        return int(json.loads(data)["brokerid"])

    async def epoch(self) -> int:
        data, _ = await self.zk.get("/controller_epoch")
        return int(data)


def registration(broker: int) -> bytes:
    content = {
        "version": 5,
        "host": "127.0.0.1",
        "port": 9000 + broker,
        "jmx_port": -1,
        "timestamp": "1700000000000",
        "endpoints": [f"PLAINTEXT://127.0.0.1:{9000 + broker}"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "features": {},
    }
    return json.dumps(content).encode()


def topic(assignment: Mapping[int, Sequence[int]]) -> bytes:
    partitions = {str(p): list(ids) for p, ids in assignment.items()}
    content = {"version": 2, "partitions": partitions}
    content |= {"adding_replicas": {}, "removing_replicas": {}}
    return json.dumps(content).encode()


def state(leader: int, isr: Iterable[int], controller_epoch: int = 1) -> bytes:
    content = {"version": 1, "leader": leader, "leader_epoch": 0}
    content |= {"controller_epoch": controller_epoch, "isr": list(isr)}  # type: ignore[dict-item]
    return json.dumps(content).encode()


def row_is(name: str, partition: int = 0, **wanted: Any) -> Callable[[Controller], bool]:
    """A condition for `Controller.until`: the row has this leader and ISR."""

    def holds(controller: Controller) -> bool:
        cluster = controller.state
        row = None if cluster is None else cluster.rows.get(TopicPartition(name, partition))
        if row is None:
            return False
        return all(getattr(row, key) == value for key, value in wanted.items())

    return holds


def cluster_has(holds: Callable[[ClusterState], bool]) -> Callable[[Controller], bool]:
    """A condition on the cluster of an active controller."""
    return lambda controller: controller.state is not None and holds(controller.state)


def sent_by(controller: Controller) -> list[Dispatch]:
    """What its brokers were told."""
    assert isinstance(controller.channels, RecordingChannels)
    return list(controller.channels.sent)


async def differences(around: Surroundings, cluster: ClusterState) -> list[str]:
    """Where a controller's memory and ZooKeeper differ."""
    zk, found = around.zk, []
    live = {
        int(name): await zk.exists(paths.broker(int(name)))
        for name in await zk.children("/brokers/ids")
    }
    epochs = {broker: stat.czxid for broker, stat in live.items() if stat is not None}
    known = {broker.id: broker.epoch for broker in cluster.brokers.values()}
    if epochs != known:
        found.append(f"brokers are {epochs}, known are {known}")
    topics = sorted(await zk.children(paths.TOPICS))
    if topics != sorted(cluster.topics):
        found.append(f"topics are {topics}, known are {sorted(cluster.topics)}")
        return found
    for name in topics:
        content = json.loads((await zk.get(paths.topic(name)))[0])
        partitions = {int(p): tuple(ids) for p, ids in content["partitions"].items()}
        rows = {p: cluster.rows[tp].replicas for p, tp in cluster.topics[name].partitions.items()}
        if partitions != rows:
            found.append(f"partitions of {name} are {partitions}, known are {rows}")
            continue
        tps = [TopicPartition(name, p) for p in partitions]
        reads = await zk.read_many([paths.partition_state(tp) for tp in tps])
        for tp, read in zip(tps, reads, strict=True):
            led = cluster.rows[tp].leadership
            if not isinstance(read, tuple):
                found.append(f"{tp} has no state, known is {led}")
                continue
            there = json.loads(read[0])
            if led is None or (there["leader"], tuple(there["isr"]), read[1].version) != (
                led.leader,
                led.isr,
                led.zk_version,
            ):
                found.append(f"{tp} is {there}, known is {led}")
    return found


async def until_settled(around: Surroundings, controller: Controller) -> None:
    """Until the controller's memory is what ZooKeeper holds, and nothing is queued."""
    found: list[str] = ["not active"]
    try:
        async with asyncio.timeout(UNTIL_BOUND_S):
            while found:
                await asyncio.sleep(0.02)
                cluster = controller.state
                if (
                    cluster is not None
                    and not controller.queue_size
                    and not controller.meters.state
                ):
                    found = await differences(around, cluster)
    except TimeoutError:
        tail = "\n".join(controller.journal.tail()[-60:])
        raise AssertionError(f"{found}, journal:\n{tail}") from None
