"""Real brokers under their own controller, and an administrator who does things at random."""

import asyncio
import random
import struct
from collections.abc import Awaitable, Callable

import attrs

from kctl.insight.following import Follower
from kctl.insight.shadow import Report, Shadow, Verdict
from kctl.insight.snapshot import open_reader
from kctl.messages.effects import TopicNode
from kctl.model.names import TopicPartition
from kctl.model.rows import Leadership
from kctl.simulation.memory import MemoryZooKeeper
from kctl.testing.kafka import KafkaBrokers
from kctl.wire import admin, apis
from kctl.wire.schema import Struct

BOUND_S = 60.0
SESSION_TIMEOUT_MS = 4_000
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "min.insync.replicas": "1",
    "replica.lag.time.max.ms": "4000",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
}
UNCLEAN = "unclean.leader.election.enable"


async def call(address: str, request: Struct, version: int, response: type[Struct]) -> Struct:
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(30):
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(apis.framed(apis.encode_request(request, version, 1, "kctl-tests")))
            await writer.drain()
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            answer = await reader.readexactly(size)
        finally:
            writer.close()
    return apis.decode_response(response, version, answer)[1]


@attrs.define
class Beside:
    """A shadow at work, and what it has found."""

    shadow: Shadow
    report: Report = attrs.field(factory=Report)
    seen: int = 0

    @property
    def reality(self) -> MemoryZooKeeper:
        return self.shadow.reality

    async def run(self, follower: Follower) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            batch = await follower.next(self.reality, 0.2)
            self.seen += len(batch)
            self.shadow.see(batch, clock())
            for finding in self.shadow.check(clock()):
                self.report.add(finding)

    async def until(self, condition: Callable[[], bool], bound_s: float = BOUND_S) -> None:
        try:
            async with asyncio.timeout(bound_s):
                while not condition():  # noqa: ASYNC110 what it waits for has no event
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"not so after {bound_s} s: {self.reality!r:.2000}") from None

    async def until_settled(self) -> None:
        await self.until(lambda: self.shadow.is_settled or self.has_failed)

    @property
    def has_failed(self) -> bool:
        return any(f.verdict is not Verdict.EXPLAINED for f in self.report.findings)

    def states(self) -> dict[TopicPartition, Leadership]:
        return {tp: s for tp, s in self.reality.states.items() if isinstance(s, Leadership)}


@attrs.define
class Administrator:
    brokers: KafkaBrokers
    beside: Beside
    chance: random.Random
    done: list[str] = attrs.field(factory=list)
    topics_made: int = 0

    @property
    def alive(self) -> list[int]:
        return [b for b, broker in self.brokers.brokers.items() if broker.running]

    @property
    def dead(self) -> list[int]:
        return [b for b, broker in self.brokers.brokers.items() if not broker.running]

    def topics(self) -> list[str]:
        reality = self.beside.reality
        return [t for t in reality.topics if t not in reality.deletions]

    def partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic, p)
            for topic in self.topics()
            if isinstance(node := self.beside.reality.topics[topic], TopicNode)
            for p in node.partitions
        ]

    async def to_controller(
        self, request: Struct, version: int, response: type[Struct]
    ) -> Struct | None:
        """None if there is no controller to answer at the moment."""
        holder = self.beside.shadow.controller_id
        if holder not in self.brokers.brokers or not self.brokers[holder].running:
            return None
        try:
            return await call(self.brokers[holder].address, request, version, response)
        except (OSError, EOFError, TimeoutError):
            return None

    # -- what can be done ---------------------------------------------------------------------

    async def kill(self) -> None:
        if len(self.alive) < 2:
            return await self.start()
        broker = self.chance.choice(self.alive)
        self.done.append(f"kill {broker}")
        await asyncio.to_thread(self.brokers[broker].kill)
        await self.beside.until(lambda: broker not in self.beside.reality.brokers)
        return None

    async def shut_down(self) -> None:
        if len(self.alive) < 2:
            return await self.start()
        broker = self.chance.choice(self.alive)
        self.done.append(f"shut down {broker}")
        await asyncio.to_thread(self.brokers[broker].terminate)
        await self.beside.until(lambda: broker not in self.beside.reality.brokers)
        return None

    async def start(self) -> None:
        if not self.dead:
            return await self.create()
        broker = self.chance.choice(self.dead)
        self.done.append(f"start {broker}")
        self.brokers[broker].spawn()
        await asyncio.to_thread(self.brokers[broker].wait_ready)
        await self.beside.until(lambda: broker in self.beside.reality.brokers)
        return None

    async def create(self) -> None:
        self.topics_made += 1
        name = f"t{self.topics_made}"
        alive = self.alive
        if self.chance.random() < 0.5:
            factor = self.chance.randint(1, len(alive))
            topic = admin.CreatableTopic(name, self.chance.randint(1, 4), factor)
        else:
            topic = admin.CreatableTopic(
                name,
                -1,
                -1,
                tuple(
                    admin.CreatableReplicaAssignment(p, self.some_brokers(alive))
                    for p in range(self.chance.randint(1, 3))
                ),
                (admin.CreatableTopicConfig(UNCLEAN, self.chance.choice(["true", "false"])),),
            )
        self.done.append(f"create {topic}")
        request = admin.CreateTopicsRequest((topic,), timeout_ms=5_000)
        await self.to_controller(request, 5, admin.CreateTopicsResponse)

    def some_brokers(self, among: list[int]) -> tuple[int, ...]:
        return tuple(self.chance.sample(among, self.chance.randint(1, len(among))))

    async def grow(self) -> None:
        if not (topics := self.topics()):
            return await self.create()
        name = self.chance.choice(topics)
        node = self.beside.reality.topics[name]
        assert isinstance(node, TopicNode)
        count = len(node.partitions) + self.chance.randint(1, 2)
        self.done.append(f"grow {name} to {count}")
        wanted = admin.CreatePartitionsTopic(name, count, None)
        request = admin.CreatePartitionsRequest((wanted,), timeout_ms=5_000)
        await self.to_controller(request, 2, admin.CreatePartitionsResponse)
        return None

    async def delete(self) -> None:
        if len(topics := self.topics()) < 3:
            return await self.create()
        name = self.chance.choice(topics)
        self.done.append(f"delete {name}")
        request = admin.DeleteTopicsRequest(topic_names=(name,), timeout_ms=5_000)
        await self.to_controller(request, 4, admin.DeleteTopicsResponse)
        return None

    async def elect(self) -> None:
        kind = 1 if self.chance.random() < 0.25 else 0
        self.done.append(f"elect {'unclean' if kind else 'preferred'}")
        request = admin.ElectLeadersRequest(kind, None, 5_000)
        if self.chance.random() < 0.5 and (tps := self.partitions()):
            some = self.chance.sample(tps, min(3, len(tps)))
            named = tuple(admin.TopicPartitions(tp.topic, (tp.partition,)) for tp in some)
            request = admin.ElectLeadersRequest(kind, named, 5_000)
        await self.to_controller(request, 2, admin.ElectLeadersResponse)

    async def reassign(self) -> None:
        if not (tps := self.partitions()):
            return await self.create()
        some = self.chance.sample(tps, min(self.chance.randint(1, 3), len(tps)))
        topics = []
        for tp in some:
            cancel = self.chance.random() < 0.1
            replicas = None if cancel else self.some_brokers(self.alive)
            self.done.append(f"reassign {tp} to {replicas}")
            one = admin.ReassignablePartition(tp.partition, replicas)
            topics.append(admin.ReassignableTopic(tp.topic, (one,)))
        request = admin.AlterPartitionReassignmentsRequest(5_000, tuple(topics))
        await self.to_controller(request, 0, admin.AlterPartitionReassignmentsResponse)
        return None

    async def configure(self) -> None:
        if not (topics := self.topics()):
            return await self.create()
        name = self.chance.choice(topics)
        key = self.chance.choice([UNCLEAN, UNCLEAN, "retention.ms"])
        value = "60000" if key == "retention.ms" else self.chance.choice(["true", "false"])
        self.done.append(f"configure {name} {key}={value}")
        resource = admin.IncrementalAlterConfigsResource(
            2, name, (admin.IncrementalAlterableConfig(key, 0, value),)
        )
        request = admin.IncrementalAlterConfigsRequest((resource,))
        await self.to_controller(request, 1, admin.IncrementalAlterConfigsResponse)
        return None

    async def do_something(self) -> None:
        deeds: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (2, self.kill),
            (1, self.shut_down),
            (3 if self.dead else 0, self.start),
            (3, self.create),
            (2, self.grow),
            (2, self.delete),
            (3, self.elect),
            (4, self.reassign),
            (2, self.configure),
        ]
        weights = [weight for weight, _ in deeds]
        (deed,) = self.chance.choices([deed for _, deed in deeds], weights)
        await deed()


async def shadow_random_events(zookeeper: str, events: int, seed: int) -> tuple[Report, list[str]]:
    """So many deeds beside Kafka's own controller; what the shadow found, and what was done."""
    async with (
        KafkaBrokers(3, zookeeper, settings=SETTINGS) as brokers,
        open_reader(zookeeper) as session,
        asyncio.TaskGroup() as group,
    ):
        follower = Follower(session)
        snapshot = await follower.start()
        beside = Beside(Shadow(snapshot, asyncio.get_running_loop().time()))
        task = group.create_task(beside.run(follower))
        administrator = Administrator(brokers, beside, random.Random(seed))
        await beside.until(lambda: len(beside.reality.brokers) == 3)
        for _ in range(events):
            await administrator.do_something()
            if administrator.chance.random() < 0.7:
                await beside.until_settled()
            if beside.has_failed:
                break
        await beside.until_settled()
        task.cancel()
    return beside.report, administrator.done
