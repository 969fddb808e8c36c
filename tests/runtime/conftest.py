"""The real ZooKeeper of `tests/zookeeper`, and a cluster's surroundings on it."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from structlog.testing import capture_logs
from structlog.typing import EventDict

from kctl.zookeeper.session import Session
from tests.runtime.surroundings import Surroundings
from tests.zookeeper.conftest import chroot, proxy, zk, zookeeper

__all__ = ["chroot", "proxy", "zk", "zookeeper"]


@pytest_asyncio.fixture
async def around(chroot: str) -> AsyncIterator[Surroundings]:
    """Brokers, topics and tools on an empty chroot."""
    async with Session.open(chroot, timeout_ms=30_000) as session:
        yield Surroundings(chroot, session)


@pytest.fixture
def logged() -> Iterator[list[EventDict]]:
    """What was logged during the test."""
    with capture_logs() as lines:
        yield lines
