"""One Spark for all tests here; tests that need it are skipped where it is not installed."""

import importlib.util
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kctl.zookeeper.embedded import EmbeddedZooKeeper

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HAS_SPARK = importlib.util.find_spec("pyspark") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    absent = pytest.mark.skip(reason="pyspark is not installed: scripts/env --spark installs it")
    for item in items:
        if item.get_closest_marker("spark"):
            # Spark's own Python code warns of things that its users cannot change.
            item.add_marker(pytest.mark.filterwarnings("default"))
            if not HAS_SPARK:
                item.add_marker(absent)


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    from kctl.bench.spark import spark_session  # noqa: PLC0415

    with spark_session("kctl tests", small=True) as session:
        yield session


@pytest.fixture
def zookeeper() -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(heap_mb=256) as server:
        yield server
