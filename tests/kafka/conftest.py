"""Real Kafka clusters under kctl: one ZooKeeper for the run, a chroot of its own for each cluster."""

import itertools
from collections.abc import Iterator

import pytest

from kctl.zookeeper.embedded import EmbeddedZooKeeper

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper() as server:
        yield server


@pytest.fixture
def chroot(zookeeper: EmbeddedZooKeeper) -> str:
    """A connect string whose chroot nobody has created yet."""
    return f"{zookeeper.connect_string}/kafka-{next(_numbers)}"
