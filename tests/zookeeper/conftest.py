"""A real ZooKeeper for the tests: one server for the run, a chroot of its own for each test."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import pytest_asyncio
import uvloop

from kctl.zookeeper.embedded import EmbeddedZooKeeper
from kctl.zookeeper.session import Session
from tests.zookeeper.fault_proxy import FaultProxy

_numbers = itertools.count(1)


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """A module that sets ON_BOTH_LOOPS is tested with uvloop too."""
    if isinstance(item, pytest.Function) and getattr(item.module, "ON_BOTH_LOOPS", False):
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[EmbeddedZooKeeper]:
    """A server that all tests share; a test that hurts its server starts one of its own."""
    with EmbeddedZooKeeper(
        tick_time_ms=100,  # allows session timeouts from 200 ms
        settings={"extendedTypesEnabled": "true"},  # znodes with a TTL
        jvm_options=["-Dznode.container.checkIntervalMs=100"],
    ) as server:
        yield server


@pytest.fixture
def chroot(zookeeper: EmbeddedZooKeeper) -> str:
    """A connect string whose root is empty and belongs to this test."""
    path = f"/test-{next(_numbers)}"

    async def create() -> None:
        async with Session.open(zookeeper.connect_string, timeout_ms=10_000) as zk:
            await zk.create(path)

    asyncio.run(create())
    return zookeeper.connect_string + path


@pytest_asyncio.fixture
async def zk(chroot: str) -> AsyncIterator[Session]:
    """A session on the test's chroot."""
    async with Session.open(chroot, timeout_ms=10_000) as session:
        yield session


@pytest_asyncio.fixture
async def proxy(zookeeper: EmbeddedZooKeeper) -> AsyncIterator[FaultProxy]:
    """A proxy in front of the server that makes faults on demand."""
    async with FaultProxy(zookeeper.port) as faults:
        yield faults
