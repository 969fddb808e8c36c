"""Clusters in the notation; when a test ends, the invariants of every one it built are checked."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kctl.messages.events import Startup
from kctl.model.cluster import ClusterState
from kctl.model.invariants import violations
from tests.logic.notation import build_cluster
from tests.logic.world import World, build_zookeeper


@pytest.fixture
def cluster() -> Iterator[Callable[..., ClusterState]]:
    """`cluster("t-0: 1*,2,3", dead={1})`: a loaded cluster state, for the procedures themselves."""
    built: list[ClusterState] = []

    def build(*lines: str, **options: Any) -> ClusterState:
        built.append(build_cluster(*lines, **options))
        return built[-1]

    yield build
    assert [line for state in built for line in violations(state)] == []


@pytest.fixture
def world() -> Iterator[Callable[..., World]]:
    """`world("t-0: 1*,2,3")`: the same cluster in ZooKeeper, and a controller elected over it."""
    built: list[World] = []

    def build(
        *lines: str,
        dead: tuple[int, ...] = (),
        brokers: tuple[int, ...] = (),
        elected: bool = True,
        **changes: Any,
    ) -> World:
        built.append(World.over(build_zookeeper(*lines, dead=dead, brokers=brokers), **changes))
        if elected:
            built[-1].run(Startup())
        return built[-1]

    yield build
    assert [line for one in built for line in one.problems()] == []
