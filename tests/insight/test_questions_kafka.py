"""On real brokers of 3.9.1: what `plan` says is what then happens, and `explain` tells the truth.

Once with Kafka's own controller in charge and once with kctl; the questions do not care.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import attrs
import pytest
from typer.testing import CliRunner

from kctl.cli import app
from kctl.insight.explain import explain
from kctl.insight.following import follow
from kctl.insight.plan import Plan
from kctl.insight.shadow import Report
from kctl.insight.snapshot import Snapshot, open_reader, take_snapshot
from kctl.model.names import TopicPartition
from kctl.model.rows import Leadership
from kctl.testing.kafka import KafkaBrokers
from kctl.wire import admin
from kctl.wire.schema import Struct
from kctl.zookeeper.embedded import EmbeddedZooKeeper
from tests.insight.administration import SETTINGS, call
from tests.insight.random_clusters import Picture, picture
from tests.kafka.live import live_controller

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio, pytest.mark.timeout(400)]

BOUND_S = 90.0
RACKS = {1: "a", 2: "a", 3: "b"}


@attrs.define
class Brokers:
    zookeeper: str
    brokers: KafkaBrokers
    controller_address: Callable[[int], str]

    async def look(self) -> Snapshot:
        async with open_reader(self.zookeeper) as reader:
            return await take_snapshot(reader)

    async def until(self, condition: Callable[[Snapshot], bool], what: str) -> Snapshot:
        snapshot = await self.look()
        try:
            async with asyncio.timeout(BOUND_S):
                while not condition(snapshot):
                    await asyncio.sleep(0.2)
                    snapshot = await self.look()
        except TimeoutError:
            raise AssertionError(f"never {what}: {snapshot.zookeeper!r:.3000}") from None
        return snapshot

    async def until_in_sync(self) -> Snapshot:
        def in_sync(snapshot: Snapshot) -> bool:
            rows = snapshot.cluster().rows
            return all(len(r.isr) == len(r.replicas) and r.leader >= 0 for r in rows.values())

        return await self.until(in_sync, "in sync")

    async def until_as_planned(self, plan: Plan) -> None:
        """It gets there, and stays there."""
        wanted = picture(plan.zookeeper)
        await self.until(lambda s: seen(s) == wanted, f"as planned, {wanted}")
        await asyncio.sleep(1.5)
        assert seen(await self.look()) == wanted

    async def ask_controller(self, request: Struct, version: int, response: type[Struct]) -> None:
        holder = (await self.until(lambda s: s.controller_id is not None, "led")).controller_id
        assert holder is not None
        await call(self.controller_address(holder), request, version, response)

    async def create(self, name: str, replicas: list[tuple[int, ...]]) -> None:
        topic = admin.CreatableTopic(
            name,
            -1,
            -1,
            tuple(admin.CreatableReplicaAssignment(p, r) for p, r in enumerate(replicas)),
        )
        request = admin.CreateTopicsRequest((topic,), timeout_ms=20_000)
        await self.ask_controller(request, 5, admin.CreateTopicsResponse)

    async def start(self, *brokers: int) -> None:
        for broker in brokers:
            self.brokers[broker].spawn()
        for broker in brokers:
            await asyncio.to_thread(self.brokers[broker].wait_ready)

    async def not_controller(self) -> int:
        holder = (await self.look()).controller_id
        return next(b for b in self.brokers.brokers if b != holder)


def seen(snapshot: Snapshot) -> Picture:
    states = snapshot.zookeeper.states
    if not all(isinstance(states.get(tp), Leadership) for tp in snapshot.cluster().rows):
        return {}
    return picture(snapshot.zookeeper)


def in_racks(zookeeper: str) -> KafkaBrokers:
    brokers = KafkaBrokers(3, zookeeper, settings=SETTINGS)
    for broker, rack in RACKS.items():
        brokers[broker]._rack = rack
    return brokers


@asynccontextmanager
async def under_kafka(zookeeper: str) -> AsyncIterator[Brokers]:
    async with in_racks(zookeeper) as brokers:
        yield Brokers(zookeeper, brokers, lambda holder: brokers[holder].address)


@asynccontextmanager
async def under_kctl(zookeeper: str) -> AsyncIterator[Brokers]:
    async with live_controller(zookeeper) as controller:
        (listener,) = controller.config.listeners
        address = f"{listener.host}:{listener.port}"
        await controller.until(lambda c: c.is_active)
        async with in_racks(zookeeper) as brokers:
            yield Brokers(zookeeper, brokers, lambda _: address)


TOPICS: dict[str, list[tuple[int, ...]]] = {
    "all": [(1, 2, 3), (2, 3, 1), (3, 1, 2), (1, 3, 2)],
    "pairs": [(1, 2), (2, 3), (3, 1)],
    "single": [(1,), (2,), (3,)],
}


async def plan_and_do(cluster: Brokers) -> None:
    for name, replicas in TOPICS.items():
        await cluster.create(name, replicas)
    await cluster.until(lambda s: len(s.cluster().rows) == 10, "created")
    fine = await cluster.until_in_sync()
    assert explain(fine, "all-0").verdict == "led by 1, all replicas in sync"  # 1

    victim = await cluster.not_controller()
    plan = Plan(fine).kill(victim)
    assert plan.outcome().leaders_moved >= 2
    await asyncio.to_thread(cluster.brokers[victim].kill)
    await cluster.until_as_planned(plan)
    await explain_without(cluster, victim)

    await cluster.start(victim)
    await cluster.until(lambda s: "single" not in s.zookeeper.topics, "deleted")
    await cluster.create("single", TOPICS["single"])
    await cluster.until(lambda s: len(s.cluster().rows) == 10, "created again")
    returned = await cluster.until_in_sync()
    off = explain(returned, f"all-{victim - 1}")
    assert off.verdict.endswith(f"; preferred is {victim}")  # 5
    plan = Plan(returned).elect_preferred()
    request = admin.ElectLeadersRequest(0, None, 20_000)
    await cluster.ask_controller(request, 2, admin.ElectLeadersResponse)
    await cluster.until_as_planned(plan)

    plan = Plan(await cluster.until_in_sync()).shutdown(victim)
    assert await asyncio.to_thread(cluster.brokers[victim].terminate) in (0, 143)
    await cluster.until_as_planned(plan)
    await cluster.start(victim)

    moves = {TopicPartition("pairs", 0): (3, 2), TopicPartition("single", 0): (2, 3)}
    plan = Plan(await cluster.until_in_sync()).reassign(moves)
    topics = tuple(
        admin.ReassignableTopic(tp.topic, (admin.ReassignablePartition(tp.partition, to),))
        for tp, to in moves.items()
    )
    asked = admin.AlterPartitionReassignmentsRequest(20_000, topics)
    await cluster.ask_controller(asked, 0, admin.AlterPartitionReassignmentsResponse)
    await cluster.until_as_planned(plan)

    plan = Plan(await cluster.until_in_sync()).rack_loss("a")
    for broker in (1, 2):
        await asyncio.to_thread(cluster.brokers[broker].kill)
    await cluster.until_as_planned(plan)
    asked_again = await asyncio.to_thread(
        CliRunner().invoke,
        app,
        ["plan", "--kill", "3", "--fail-if", "offline>0", "-z", cluster.zookeeper, "--json"],
    )
    assert asked_again.exit_code == 1
    assert json.loads(asked_again.stdout)["offline"] == 10


async def explain_without(cluster: Brokers, victim: int) -> None:
    """While a broker is dead."""
    snapshot = await cluster.look()
    lonely = f"single-{victim - 1}"
    lost = explain(snapshot, lonely)
    assert lost.verdict == "no leader: all its replicas are gone"  # 2
    assert any(f"broker {victim} is not registered, since" in line for line in lost.because)
    assert lost.advice[0].do == f"start broker {victim} with its data; nothing is lost"
    dead = explain(snapshot, f"broker {victim}")
    assert dead.verdict.startswith("not registered, since 20")
    assert any(lonely in line for line in dead.because)
    behind = explain(snapshot, f"all-{victim - 1}")  # 3
    assert f"under-replicated: [{victim}] not in the ISR" in behind.verdict
    await cluster.create("doomed", [(victim % 3 + 1,)])
    await cluster.until(lambda s: TopicPartition("doomed", 0) in s.zookeeper.states, "created")
    request = admin.DeleteTopicsRequest(topic_names=("doomed", "single"), timeout_ms=3_000)
    await cluster.ask_controller(request, 4, admin.DeleteTopicsResponse)
    stuck = await cluster.until(
        lambda s: "doomed" not in s.zookeeper.topics and "single" in s.zookeeper.deletions,
        "deleted as far as can be",
    )
    waiting = explain(stuck, "single")  # 4
    assert waiting.verdict == f"being deleted, waiting for [{victim}]"
    assert waiting.advice[0].do == f"start broker {victim}: the deletion goes on by itself"


@pytest.mark.parametrize("under", [under_kafka, under_kctl])
async def test_what_is_planned_happens_and_the_shadow_agrees(
    under: Callable[[str], AbstractAsyncContextManager[Brokers]],
) -> None:
    report = Report()
    with EmbeddedZooKeeper() as zookeeper:
        async with under(zookeeper.connect_string) as cluster, asyncio.TaskGroup() as group:
            beside = group.create_task(watch(zookeeper.connect_string, report))
            await plan_and_do(cluster)
            beside.cancel()
    assert [f.trace for f in report.findings] == []
    for decision in ("first leader", "leader elected", "reassignment finished", "topic deleted"):
        assert report.decisions[decision]


async def watch(zookeeper: str, report: Report) -> None:
    async for finding in follow(zookeeper):
        report.add(finding)


async def test_the_port_of_a_real_broker() -> None:
    with (
        EmbeddedZooKeeper() as zookeeper,
        KafkaBrokers(1, zookeeper.connect_string, settings=SETTINGS) as brokers,
    ):
        asked = await asyncio.to_thread(
            CliRunner().invoke, app, ["explain", "controller", "-z", brokers[1].address]
        )
    assert asked.exit_code == 4
    assert f"{brokers[1].address} is a Kafka broker" in asked.stderr
