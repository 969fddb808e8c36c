"""Channels and connections are tested with both event loops."""

import asyncio
from collections.abc import Callable

import pytest
import uvloop


def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """A module that sets ON_BOTH_LOOPS is tested with uvloop too."""
    if isinstance(item, pytest.Function) and getattr(item.module, "ON_BOTH_LOOPS", False):
        return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    return {"asyncio": asyncio.new_event_loop}
