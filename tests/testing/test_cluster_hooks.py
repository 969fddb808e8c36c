"""Requests that are dropped, delayed or failed on demand."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from kctl.testing import Cluster, Delay, Drop, Fail, Request
from kctl.testing.views import fetch_metadata

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(brokers=3, topics={"orders": 6}) as c:
        yield c


async def test_a_dropped_request_is_sent_again(cluster: Cluster) -> None:
    hook = cluster.on_request(Drop(), api="LeaderAndIsr", broker=1, topic="orders", times=1)
    await cluster.kill(2)
    await cluster.settle()
    assert [(r.broker, r.api, r.topics) for r in hook.seen] == [(1, "LeaderAndIsr", ("orders",))]
    assert all(p.leader not in (None, 2) for p in cluster.topics["orders"])


async def test_a_replica_that_is_not_told_to_follow_does_not_catch_up(cluster: Cluster) -> None:
    await cluster.kill(2)
    await cluster.settle()
    with cluster.on_request(Drop(), api="LeaderAndIsr", broker=2) as hook:
        await cluster.restart(2)
        await cluster.until(lambda: len(hook.seen) >= 2)
        assert all(p.under_replicated for p in cluster.topics["orders"])
    await cluster.settle()
    assert not any(p.under_replicated for p in cluster.topics["orders"])


async def test_a_hook_is_for_one_topic(cluster: Cluster) -> None:
    await cluster.create_topic("other", 2)
    await cluster.settle()
    await cluster.kill(3)
    await cluster.settle()
    with cluster.on_request(Drop(), api="AlterPartition", topic="orders"):
        await cluster.restart(3)
        await cluster.until(lambda c: not any(p.under_replicated for p in c.topics["other"]))
        assert all(p.under_replicated for p in cluster.topics["orders"])
    await cluster.settle()


async def topics_at(cluster: Cluster, broker: int) -> set[str | None]:
    """As a client sees them that asks exactly this broker."""
    metadata = await fetch_metadata(cluster.brokers[broker].address)
    return {topic.name for topic in metadata.topics}


async def test_a_failed_request_changes_nothing(cluster: Cluster) -> None:
    with cluster.on_request(Fail("STALE_BROKER_EPOCH"), api="UpdateMetadata", broker=1) as hook:
        await cluster.create_topic("new", 1)
        await cluster.until(lambda: any("new" in request.topics for request in hook.seen))

        async def known_at_2() -> bool:
            return "new" in await topics_at(cluster, 2)

        await cluster.until(known_at_2)
        assert await topics_at(cluster, 1) == {"orders"}
    await cluster.restart(1)
    await cluster.settle()
    assert await topics_at(cluster, 1) == {"orders", "new"}


async def test_an_error_that_kafka_does_not_have() -> None:
    with pytest.raises(ValueError, match=r"'OOPS' is no error of Kafka"):
        Fail("OOPS")


async def test_a_delayed_request_arrives_late(cluster: Cluster) -> None:
    loop = asyncio.get_running_loop()
    with cluster.on_request(Delay(0.3), api="UpdateMetadata", broker=3) as hook:
        began = loop.time()
        await cluster.create_topic("new", 1)
        await cluster.until(lambda: bool(hook.seen))
        await cluster.settle()
        # The one thing that a delay must do; how much longer it takes is nobody's business.
        assert loop.time() - began >= 0.3


async def test_a_function_decides(cluster: Cluster) -> None:
    seen: list[Request] = []

    def watch(request: Request) -> Drop | None:
        seen.append(request)
        return Drop() if request.broker == 3 and len(seen) < 3 else None

    hook = cluster.on_request(watch)
    await cluster.stop(1)
    await cluster.settle()
    assert {"ControlledShutdown", "LeaderAndIsr", "UpdateMetadata"} <= {r.api for r in seen}
    assert all(r.broker == 3 for r in hook.seen)
    count = len(seen)
    hook.remove()
    await cluster.restart(1)
    await cluster.settle()
    assert len(seen) == count


async def test_a_shutdown_that_is_not_heard(cluster: Cluster) -> None:
    """The broker asks three times, then goes as if killed."""
    with cluster.on_request(Drop(), api="ControlledShutdown") as hook:
        await cluster.stop(1)
    assert len(hook.seen) == 3
    await cluster.until(lambda: all(p.leader not in (None, 1) for p in cluster.topics["orders"]))


async def test_a_function_that_fails_fails_the_test(cluster: Cluster) -> None:
    def wrong(_request: Request) -> Drop:
        raise ZeroDivisionError

    with cluster.on_request(wrong):
        await cluster.kill(2)
        with pytest.raises(ZeroDivisionError):
            await cluster.settle()
    await cluster.settle()


async def test_a_function_that_fails_is_not_forgotten_at_the_end() -> None:
    def wrong(_request: Request) -> Drop:
        raise ZeroDivisionError

    async def stops_a_broker() -> None:
        async with Cluster(brokers=1, topics={"t": 1}) as c:
            c.on_request(wrong, api="ControlledShutdown")
            await c.stop(1)

    with pytest.raises(ZeroDivisionError):
        await stops_a_broker()


async def test_an_action_is_a_value(cluster: Cluster) -> None:
    with pytest.raises(TypeError, match=r"write Drop\(\.\.\.\)"):
        cluster.on_request(Drop)  # type: ignore[arg-type]


async def test_requests_that_do_not_exist(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match=r"no requests 'LeaderAndISR'; there are LeaderAndIsr,"):
        cluster.on_request(Drop(), api="LeaderAndISR")
