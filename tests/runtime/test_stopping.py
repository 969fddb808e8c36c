"""Starting, stopping, cancelling: nothing is left behind, and nobody is left waiting."""

import asyncio
import gc
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kctl.messages import events as ev
from kctl.runtime.controller import Controller
from tests.runtime.surroundings import Surroundings, cluster_has, row_is
from tests.runtime.test_faults import end_session, is_active, through
from tests.zookeeper.fault_proxy import FaultProxy

pytestmark = [pytest.mark.zookeeper, pytest.mark.asyncio, pytest.mark.timeout(120)]


@asynccontextmanager
async def nothing_left() -> AsyncIterator[None]:
    """No task more than before. Sockets that are left give warnings, which are errors."""
    before = len(asyncio.all_tasks())
    yield
    await asyncio.sleep(0)
    gc.collect()
    left = [t for t in asyncio.all_tasks() if not t.done() and "FaultProxy" not in repr(t)]
    assert len(left) <= before, left


async def cycles(around: Surroundings, count: int) -> None:
    await around.start_brokers(1)
    await around.create_topic("t", {0: [1]})
    async with nothing_left():
        for number in range(count):
            async with around.controller() as controller:
                if number % 5:
                    await controller.until(row_is("t", leader=1))
    assert await around.controller_id() is None


async def test_50_starts_and_stops(around: Surroundings) -> None:
    await cycles(around, 50)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_1000_starts_and_stops(around: Surroundings) -> None:
    await cycles(around, 1_000)


@pytest.mark.parametrize("seed", range(30))
async def test_cancelled_at_any_moment(around: Surroundings, seed: int) -> None:
    """L11: whatever it was doing, no task is left and `/controller` is free."""
    chance = random.Random(seed)
    await around.start_brokers(1, 2, 3)
    await around.create_led_topics(2, 20, 3)

    async def work(controller: Controller) -> None:
        async with controller:
            await controller.until(is_active)
            while True:
                await around.stop_brokers(1)
                answer = await controller.ask(
                    lambda c: ev.CreateTopics(c, (ev.NewTopic(f"n{c}", 5, 2),))
                )
                assert answer is not None
                await around.start_brokers(1)
                await controller.until(cluster_has(lambda c: 1 in c.live))

    async with nothing_left():
        task = asyncio.get_running_loop().create_task(work(around.controller()))
        for _ in range(chance.randrange(400)):
            await asyncio.sleep(0)
        await asyncio.sleep(chance.choice([0, 0, 0.01, 0.05]))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await around.controller_id() is None


async def test_an_error_of_the_body_stays_what_it_is(around: Surroundings) -> None:
    async def fail() -> None:
        async with around.controller() as controller:
            await controller.until(is_active)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await around.controller_id() is None


async def test_callers_of_a_term_that_ends_are_answered(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KAFKA-10193: queued, under way or late, each gets exactly one answer."""
    await around.start_brokers(1, 2)
    async with around.controller() as controller:
        await controller.until(is_active)

        async def ask(number: int) -> object:
            topics = (ev.NewTopic(f"n{number}", 50, 2),)
            return await controller.ask(lambda c: ev.CreateTopics(c, topics))

        async with asyncio.TaskGroup() as tasks:
            asked = [tasks.create_task(ask(n)) for n in range(40)]
            await asyncio.sleep(0)
            await end_session(around, controller)
        assert all(task.result() is not None for task in asked)
        assert "NOT_CONTROLLER" in repr(asked[-1].result())
        assert len(controller._callers) == 0
        await controller.until(is_active)
        waiting = asyncio.get_running_loop().create_task(ask(100))
        await asyncio.sleep(0)
    assert await waiting is not None


async def test_several_controllers_in_one_loop(around: Surroundings) -> None:
    """Of one cluster and of several: they know nothing of each other."""
    await around.start_brokers(1)
    elsewhere = f"{around.connect}/another"
    async with (
        around.controller(broker_id=1000) as a,
        around.controller(broker_id=1001) as b,
        around.controller(broker_id=1002) as c,
        around.controller(zookeeper_connect=elsewhere) as d,
    ):
        await d.until(is_active)
        await a.until(lambda _: sum(x.is_active for x in (a, b, c)) == 1)
        (active,) = [x for x in (a, b, c) if x.is_active]
        await active.until(cluster_has(lambda state: 1 in state.live))
        assert d.state is not None
        assert not d.state.brokers
        for other in (a, b, c):
            await other.until(lambda x, i=active.active_id: x.active_id == i)  # type: ignore[misc]


async def test_stopping_when_zookeeper_is_silent(
    around: Surroundings, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot hand over; it goes all the same, and the session's end does the rest."""
    monkeypatch.setattr("kctl.runtime.controller.STOP_GRACE_S", 0.1)
    monkeypatch.setattr("kctl.runtime.controller.STOP_BOUND_S", 0.2)
    async with (
        nothing_left(),
        around.controller(
            zookeeper_connect=through(proxy, around), zookeeper_session_timeout_ms=2_000
        ) as controller,
    ):
        await controller.until(is_active)
        proxy.stall()
    proxy.flow()
    await around.until_gone("/controller")
