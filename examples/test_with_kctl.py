"""Your own code against a cluster that breaks on command, in pytest. No Java, no containers.

    pip install kctl pytest pytest-asyncio
    pytest test_with_kctl.py

The fixture comes with kctl's plugin. Under anyio's plugin write `@pytest.mark.anyio` instead; in
pytest-asyncio's auto mode write nothing.
"""

from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaClient

from kctl.testing import Cluster, Drop

pytestmark = pytest.mark.asyncio

MakeCluster = Callable[..., Cluster]


async def live_brokers(bootstrap: str) -> set[int]:
    """The code under test: it asks a Kafka client."""
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    await client.bootstrap()
    try:
        # The controller shows itself among the nodes, as brokers in ZooKeeper mode would.
        return {node.nodeId for node in client.cluster.brokers()} - {1000}
    finally:
        await client.close()


async def test_a_dead_broker_is_noticed(kctl_cluster: MakeCluster) -> None:
    async with kctl_cluster(brokers=3, topics={"orders": 6}) as c:
        assert await live_brokers(c.bootstrap) == {1, 2, 3}
        await c.kill(2)
        await c.settle()
        assert await live_brokers(c.bootstrap) == {1, 3}
        assert all(p.leader != 2 for p in c.topics["orders"])


@pytest.mark.kctl(brokers=5, topics={"orders": {0: [4, 5]}})
async def test_a_slow_replica_does_not_lead(kctl_cluster: MakeCluster) -> None:
    """Broker 4 comes back, but its leader never says that it has caught up."""
    async with kctl_cluster() as c:
        await c.kill(4)
        with c.on_request(Drop(), api="AlterPartition", topic="orders"):
            await c.restart(4)
            assert c.partition("orders", 0).isr == (5,)
            await c.kill(5)
            assert c.partition("orders", 0).leader is None
