"""Topics from birth to death by Kafka's own tools, on each release of the brokers."""

import json

import pytest

from kctl.model.names import TopicPartition
from kctl.testing.kafka import VERSIONS
from tests.kafka.live import LiveCluster, live_cluster

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


@pytest.mark.parametrize("version", VERSIONS)
async def test_topics_from_birth_to_death(chroot: str, version: str) -> None:
    async with live_cluster(chroot, version=version) as cluster:
        await create_grow_and_describe(cluster)
        await reassign(cluster)
        await elect_preferred(cluster)
        await delete(cluster)
        await leave(cluster)
        assert cluster.broker_errors() == []


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
async def test_kctl_comes_to_brokers_that_rule_themselves(chroot: str, version: str) -> None:
    async with live_cluster(chroot, version=version, brokers_first=True) as cluster:
        await create_grow_and_describe(cluster)
        await delete(cluster)
        assert cluster.broker_errors() == []


@pytest.mark.slow
async def test_brokers_of_two_releases(chroot: str) -> None:
    """Half-way through an upgrade, when the newer ones must still speak the older protocol."""
    # Without it the newer ones cannot fetch from the older ones, whoever is the controller.
    older = {"inter.broker.protocol.version": "2.8"}
    async with live_cluster(chroot, versions=("2.8.2", "3.9.1"), settings=older) as cluster:
        await create_grow_and_describe(cluster)
        await reassign(cluster)
        await delete(cluster)
        assert cluster.broker_errors() == []


async def create_grow_and_describe(cluster: LiveCluster) -> None:
    await cluster.create("orders", partitions=3)
    await cluster.until_agreed()
    await cluster.tool("kafka-topics", "--alter", "--topic", "orders", "--partitions", "5")
    await cluster.until(lambda state: len(state.topics["orders"].partitions) == 5)
    await cluster.until_agreed()
    described = await cluster.tool("kafka-topics", "--describe", "--topic", "orders")
    assert described.count("Leader: ") == 5
    assert "Leader: none" not in described


async def reassign(cluster: LiveCluster) -> None:
    """RF 3 to RF 2 and back, started and verified by Kafka's tool."""
    for replicas in ([2, 3], [3, 1, 2]):
        plan = {
            "version": 1,
            "partitions": [
                {"topic": "orders", "partition": p, "replicas": replicas} for p in (0, 1)
            ],
        }
        file = cluster.brokers[1].folder / "reassign.json"
        file.write_text(json.dumps(plan))
        await cluster.tool(
            "kafka-reassign-partitions", "--reassignment-json-file", str(file), "--execute"
        )
        await cluster.until(lambda state: not state.reassigning)
        verified = await cluster.tool(
            "kafka-reassign-partitions", "--reassignment-json-file", str(file), "--verify"
        )
        assert verified.count("is complete") + verified.count("completed successfully") == 2
        for partition in (0, 1):
            row = cluster.state.rows[TopicPartition("orders", partition)]
            assert row.replicas == tuple(replicas)
    await cluster.until_agreed()


async def elect_preferred(cluster: LiveCluster) -> None:
    await cluster.until_in_sync()
    await cluster.tool(
        "kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions"
    )
    await cluster.until(lambda state: not state.unbalanced)
    await cluster.until_agreed()


async def delete(cluster: LiveCluster) -> None:
    await cluster.tool("kafka-topics", "--delete", "--topic", "orders")
    await cluster.until(lambda state: "orders" not in state.topics)
    await cluster.until_agreed()
    listed = await cluster.tool("kafka-topics", "--list")
    assert "orders" not in listed.split()


async def leave(cluster: LiveCluster) -> None:
    """A broker shuts down; those before 3.0 look for the controller in `/brokers/ids`."""
    await cluster.create("payments", partitions=6)
    await cluster.shut_down(3)
    rows = cluster.state.rows.values()
    assert all(row.leader in (1, 2) and 3 not in row.isr for row in rows)
    await cluster.until_agreed()
