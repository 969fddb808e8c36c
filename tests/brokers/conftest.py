"""Simulated brokers and channels to them; both event loops for those who ask."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
import uvloop

from kctl.brokers.manager import ChannelManager
from kctl.brokers.simulated import SimulatedBrokers
from tests.brokers.recorder import SETTINGS, Recorder


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """A module that sets ON_BOTH_LOOPS is tested with uvloop too."""
    if isinstance(item, pytest.Function) and getattr(item.module, "ON_BOTH_LOOPS", False):
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}


@pytest_asyncio.fixture
async def brokers() -> AsyncIterator[SimulatedBrokers]:
    async with SimulatedBrokers((1, 2, 3)) as running:
        yield running


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest_asyncio.fixture
async def manager(recorder: Recorder) -> AsyncIterator[ChannelManager]:
    async with ChannelManager(SETTINGS, recorder) as channels:
        yield channels
