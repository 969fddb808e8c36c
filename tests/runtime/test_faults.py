"""Sessions that break, expire and come back; writes that lose; handlers that fail."""

import asyncio
import json
import random
from collections.abc import Callable

import anyio
import pytest
from structlog.typing import EventDict

from kctl.logic import broker_changes
from kctl.messages import events as ev
from kctl.messages.answers import Refused
from kctl.messages.outbox import Outbox
from kctl.model.cluster import ClusterState
from kctl.model.codes import KafkaError
from kctl.model.invariants import violations
from kctl.model.names import TopicPartition
from kctl.runtime import faults
from kctl.runtime.controller import Controller
from kctl.zookeeper.session import Session
from kctl.zookeeper.watches import Watches
from tests.runtime.surroundings import (
    Surroundings,
    cluster_has,
    row_is,
    until_settled,
)
from tests.zookeeper.fault_proxy import FaultProxy

pytestmark = [pytest.mark.zookeeper, pytest.mark.asyncio, pytest.mark.timeout(120)]


def is_active(controller: Controller) -> bool:
    return controller.is_active


def through(proxy: FaultProxy, around: Surroundings) -> str:
    return f"{proxy.address}/{around.connect.partition('/')[2]}"


async def end_session(around: Surroundings, controller: Controller) -> None:
    """As if the ensemble had expired it: somebody else closes it. It notices by itself."""
    session = controller._campaign.session
    assert session is not None
    twin = Session(around.connect, timeout_ms=session.timeout_ms)
    twin._session_id, twin._password = session.session_id, session._password
    twin._keeper = asyncio.get_running_loop().create_task(twin._keep_connected())
    await twin.wait_connected()
    await twin.close()


# -- sessions ---------------------------------------------------------------------------------


async def test_after_an_expired_session_a_new_term_knows_everything(around: Surroundings) -> None:
    """KAFKA-928, 1578: the same process, elected again and again, handles every kind of change."""
    await around.start_brokers(1, 2, 3)
    await around.create_topic("old", {0: [1, 2, 3]})
    async with around.controller() as controller:
        for round_number in range(1, 6):
            await controller.until(
                lambda c, n=round_number: c.is_active and c.state.epoch >= n  # type: ignore[misc]
            )
            name = f"t{round_number}"
            await around.create_topic(name, {0: [1, 2]})
            await controller.until(row_is(name, leader=1))
            await around.stop_brokers(1)
            await controller.until(row_is(name, leader=2))
            await around.start_brokers(1)
            await around.make(f"/admin/delete_topics/{name}")
            await controller.until(cluster_has(lambda c, t=name: t not in c.topics))  # type: ignore[misc]
            await until_settled(around, controller)
            before = controller.session_id
            await end_session(around, controller)
            await controller.until(lambda c, b=before: c.is_active and c.session_id != b)  # type: ignore[misc]
        assert controller.meters.faults == 0
        assert controller.meters.elections_won == 6
        assert violations(controller.state) == []  # type: ignore[arg-type]


async def test_an_expiry_in_the_middle_of_a_failover(around: Surroundings) -> None:
    await around.start_brokers(1, 2, 3)
    await around.create_led_topics(20, 50, 3)
    async with around.controller() as controller:
        await controller.until(is_active)
        for _ in range(3):
            await around.stop_brokers(1)
            await end_session(around, controller)
            await around.start_brokers(1)
            await until_settled(around, controller)
        assert controller.meters.faults == 0


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_no_change_is_missed_while_connections_break(
    around: Surroundings, proxy: FaultProxy, seed: int
) -> None:
    """Changes go on while the controller's connection is cut at any moment: none is lost."""
    chance = random.Random(seed)
    await around.start_brokers(1, 2, 3)
    await around.create_led_topics(5, 4, 3)
    done = asyncio.Event()

    async def break_connections() -> None:
        while not done.is_set():
            await asyncio.sleep(chance.uniform(0.0, 0.15))
            chance.choice([proxy.cut_fin, proxy.cut_rst])()

    async with around.controller(zookeeper_connect=through(proxy, around)) as controller:
        await controller.until(is_active)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(break_connections())
            for number in range(12):
                await change_something(around, chance, number)
                await asyncio.sleep(chance.uniform(0.0, 0.1))
            done.set()
        await until_settled(around, controller)
        assert controller.meters.faults == 0
        assert controller.state is not None
        assert violations(controller.state) == []


async def change_something(around: Surroundings, chance: random.Random, number: int) -> None:
    match chance.randrange(4):
        case 0:
            await around.create_topic(f"new{number}", {0: [1, 2], 1: [2, 3]})
        case 1:
            broker = chance.choice([1, 2, 3])
            await around.stop_brokers(broker)
            await asyncio.sleep(chance.uniform(0.0, 0.1))
            await around.start_brokers(broker)
        case 2:
            name = f"t{chance.randrange(5):05}"
            if await around.exists(f"/brokers/topics/{name}"):
                await around.make(f"/admin/delete_topics/{name}")
        case 3:
            name = f"t{chance.randrange(5):05}"
            if await around.exists(f"/brokers/topics/{name}"):
                await grow(around, name)


async def grow(around: Surroundings, name: str) -> None:
    """As a broker does: it reads and writes the topic under its version."""
    data, stat = await around.zk.get(f"/brokers/topics/{name}")
    content = json.loads(data)
    content["partitions"][str(len(content["partitions"]))] = [3, 1, 2]
    try:
        await around.zk.set(f"/brokers/topics/{name}", json.dumps(content).encode(), stat.version)
    except Exception:  # noqa: BLE001 the controller was first, or deletes it
        return


@pytest.mark.parametrize("seconds", [1.0, 4.0])
async def test_a_silence_longer_than_the_session(
    around: Surroundings, proxy: FaultProxy, seconds: float
) -> None:
    """It fences itself before the ensemble expires it, and comes back with a new session."""
    await around.start_brokers(1, 2, 3)
    await around.create_led_topics(5, 4, 3)
    connect = through(proxy, around)
    async with around.controller(
        zookeeper_connect=connect, zookeeper_session_timeout_ms=1_000
    ) as controller:
        await controller.until(is_active)
        proxy.stall()
        await around.stop_brokers(1)
        await asyncio.sleep(seconds)
        proxy.flow()
        await until_settled(around, controller)
        await around.start_brokers(1)
        await until_settled(around, controller)
        assert controller.meters.faults == 0


async def test_a_fenced_session_that_lives_after_all_is_watched_again(
    around: Surroundings, proxy: FaultProxy
) -> None:
    """Only this side lost its trust. Topics and configs that change later must still be seen."""
    await around.start_brokers(1, 2, 3)
    await around.create_led_topics(3, 2, 3)
    async with around.controller(zookeeper_connect=through(proxy, around)) as controller:
        await controller.until(is_active)
        session = controller._campaign.session
        assert session is not None
        before, terms = session.session_id, controller.meters.elections_won
        # The clock says that nothing was heard for the whole timeout; the ensemble knows better.
        clock = session._clock
        session._clock = lambda: clock() + 60
        assert session.state.value == "fenced"
        session._clock = clock
        await controller.until(lambda c: c.is_active and c.meters.elections_won > terms)
        assert controller.session_id == before
        await grow(around, "t00000")
        await controller.until(row_is("t00000", 2, leader=3))
        config = {"version": 1, "config": {"unclean.leader.election.enable": "true"}}
        await around.put("/config/brokers/<default>", json.dumps(config).encode())
        await controller.until(cluster_has(lambda c: c.settings.unclean_leader_election))


async def test_somebody_deletes_the_controller_znode(around: Surroundings) -> None:
    """KAFKA-2437: the one who had it resigns or takes it again; two never rule."""
    await around.start_brokers(1, 2)
    async with around.controller() as first, around.controller(broker_id=1001) as second:

        def terms(_: Controller) -> int:
            return first.meters.elections_won + second.meters.elections_won

        for number in range(1, 21):
            await until_either(first, second, lambda c, n=number: terms(c) >= n)  # type: ignore[misc]
            await around.zk.delete("/controller")
        await until_either(first, second, lambda c: terms(c) >= 21)
        await around.create_topic("t", {0: [1, 2]})
        await until_either(first, second, row_is("t", leader=1))
        assert first.is_active != second.is_active
        assert first.meters.faults == second.meters.faults == 0


async def until_either(
    first: Controller, second: Controller, condition: Callable[[Controller], bool]
) -> None:
    async with anyio.create_task_group() as group:

        async def wait(controller: Controller) -> None:
            await controller.until(condition)
            group.cancel_scope.cancel()

        group.start_soon(wait, first)
        group.start_soon(wait, second)


# -- writes that lose -------------------------------------------------------------------------


async def test_half_of_the_rows_were_written_by_somebody_else(around: Surroundings) -> None:
    """D2, D3: written from the cache, and only the rows that lost are read again."""
    tps = [TopicPartition(f"t{n:02}", p) for n in range(20) for p in range(50)]
    await around.start_brokers(1, 2, 3)
    await around.create_topics_led_by(1, [f"t{n:02}" for n in range(20)], 50)
    async with around.controller() as controller:
        await controller.until(row_is("t19", 49, leader=1))
        async with asyncio.TaskGroup() as writers:
            for tp in tps[::2]:
                writers.create_task(around.write_state(tp.topic, tp.partition, isr=[1, 3]))
        await around.stop_brokers(1)
        await controller.until(lambda c: all(row_is(*tp, leader=3)(c) for tp in tps[::2]))
        await controller.until(lambda c: all(row_is(*tp, leader=2)(c) for tp in tps[1::2]))
        await until_settled(around, controller)
        assert {row.isr for row in controller.state.rows.values()} == {(3,), (2, 3)}  # type: ignore[union-attr]
        # One read of those that lost, not a read for each.
        assert controller.meters.effects["ReadPartitions"] <= 6


# -- handlers that fail -----------------------------------------------------------------------


async def test_a_handler_that_always_fails_stands_down(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch, logged: list[EventDict]
) -> None:
    """Three terms, then an alarm; `/controller` is left to others, and nothing spins."""
    monkeypatch.setattr(faults, "BACKOFF_MIN_MS", 10)
    await around.start_brokers(1, 2)
    await around.create_topic("t", {0: [1, 2]})

    async def fails(cluster: ClusterState, outbox: Outbox) -> None:
        raise RuntimeError(f"planted, with {len(cluster.brokers)} brokers and {outbox!r}"[:30])

    async with around.controller() as controller:
        await controller.until(row_is("t", leader=1))
        monkeypatch.setattr(broker_changes, "on_broker_change", fails)
        while controller.stood_down is None:
            controller.put(ev.BrokerChange())
            await asyncio.sleep(0.01)
        assert controller.meters.faults == 3
        assert controller.meters.elections_won == 3
        alarms = [line for line in logged if line["log_level"] == "critical"]
        assert len(alarms) == 1
        assert "stood down" in alarms[0]["event"]
        assert await around.controller_id() is None
        answer = await controller.ask(ev.ListPartitionReassignments)
        assert isinstance(answer, Refused)
        assert answer.error.code is KafkaError.NOT_CONTROLLER
        monkeypatch.undo()
        handled = sum(t.count for t in controller.meters.handled.values())
        async with around.controller(broker_id=1001) as other:
            await other.until(row_is("t", leader=1))
            await around.stop_brokers(1)
            await other.until(row_is("t", leader=2))
        assert sum(t.count for t in controller.meters.handled.values()) == handled
        assert controller.meters.elections_won == 3


async def test_a_fault_now_and_then_is_survived(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It resigns and loads everything anew: what was wrong in memory is gone with the term."""
    monkeypatch.setattr(faults, "BACKOFF_MIN_MS", 10)
    await around.start_brokers(1, 2)
    await around.create_topic("t", {0: [1, 2]})
    right = broker_changes.on_broker_change
    failures = 2

    async def fails_twice(cluster: ClusterState, outbox: Outbox) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise RuntimeError("planted")
        await right(cluster, outbox)

    monkeypatch.setattr(broker_changes, "on_broker_change", fails_twice)
    async with around.controller() as controller:
        for broker in (1, 2):
            await controller.until(is_active)
            await around.stop_brokers(broker)
            await until_settled(around, controller)
            await around.start_brokers(broker)
            await until_settled(around, controller)
        assert controller.meters.faults == 2
        assert controller.stood_down is None


async def test_watches_that_fail_end_the_term(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes would go by unseen. It is a fault like that of a handler."""
    monkeypatch.setattr(faults, "BACKOFF_MIN_MS", 10)
    monkeypatch.setattr("kctl.runtime.campaign.RETRY_MAX_S", 0.01)
    await around.start_brokers(1, 2)
    await around.create_topic("t", {0: [1, 2]})
    right = Watches.work

    async def fails_once(watches: Watches) -> None:
        monkeypatch.setattr(Watches, "work", right)
        raise RuntimeError("planted")

    async with around.controller() as controller:
        await controller.until(row_is("t", leader=1))
        monkeypatch.setattr(Watches, "work", fails_once)
        await grow_by_one(around, "t")
        await controller.until(row_is("t", 1, leader=2))
        assert controller.meters.faults == 1
        await grow_by_one(around, "t")
        await controller.until(row_is("t", 2, leader=2))


async def grow_by_one(around: Surroundings, name: str) -> None:
    content = json.loads((await around.zk.get(f"/brokers/topics/{name}"))[0])
    content["partitions"][str(len(content["partitions"]))] = [2, 1]
    await around.put(f"/brokers/topics/{name}", json.dumps(content).encode())


async def test_a_broker_with_the_controllers_id(around: Surroundings) -> None:
    await around.start_brokers(1, 1000)
    async with around.controller() as controller:
        while controller.stood_down is None:  # noqa: ASYNC110 nothing is handled after that
            await asyncio.sleep(0.01)
        assert "1000" in controller.stood_down
        assert await around.controller_id() is None
