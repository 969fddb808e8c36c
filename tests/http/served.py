"""What a client sees of a controller's HTTP server, and clusters made by hand."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import attrs
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

import kctl
from kctl.http import Http
from kctl.model.brokers import Broker
from kctl.model.cluster import ClusterState
from kctl.model.names import NO_LEADER, TopicPartition
from kctl.model.rows import Assignment, Leadership, Row
from kctl.model.settings import Settings
from kctl.model.states import PartitionState, ReplicaState
from kctl.runtime.controller import Controller
from kctl.zookeeper.embedded import free_ports


@attrs.define
class Served:
    controller: Controller
    http: Http
    client: aiohttp.ClientSession

    @classmethod
    @asynccontextmanager
    async def open(cls, controller: Controller, http: Http) -> AsyncIterator["Served"]:
        async with aiohttp.ClientSession() as client:
            yield cls(controller, http, client)

    def holds(self, cluster: ClusterState | None) -> None:
        """As if it had been elected and had found this."""
        self.controller._node.cluster = cluster
        self.controller._node.active_id = None if cluster is None else 1000

    async def get(self, path: str) -> tuple[int, str]:
        async with self.client.get(self.http.url + path) as answer:
            return answer.status, await answer.text()

    async def json(self, path: str, status: int = 200) -> Any:
        found, text = await self.get(path)
        assert found == status, text
        return json.loads(text)

    async def metrics(self) -> dict[str, Metric]:
        """Families by name, as a scraper understands them."""
        status, text = await self.get("metrics")
        assert status == 200
        return {family.name: family for family in text_string_to_metric_families(text)}


@asynccontextmanager
async def standing_alone() -> AsyncIterator[Served]:
    """No ZooKeeper is there: its cluster is what the test puts into it."""
    (port,) = free_ports(1)
    config = kctl.Config(zookeeper_connect=f"127.0.0.1:{port}")
    async with (
        Controller(config) as controller,
        Http(controller) as http,
        Served.open(controller, http) as served,
    ):
        yield served


def values(families: Mapping[str, Metric]) -> dict[str, float]:
    """Samples without labels."""
    return {s.name: s.value for f in families.values() for s in f.samples if not s.labels}


def cluster_of(
    rows: Mapping[str, tuple[Sequence[int], int, Sequence[int]]], *, alive: Sequence[int]
) -> ClusterState:
    """`{"orders-0": ((1, 2, 3), 1, (1, 2))}`: replicas, leader (-1: none) and ISR."""
    cluster = ClusterState(Settings(controller_id=1000), epoch=7, epoch_zk_version=7)
    for broker in alive:
        cluster.add_broker(Broker(broker, epoch=broker, rack=f"rack-{broker}"))
    for name, (replicas, leader, isr) in rows.items():
        tp = TopicPartition.parse(name)
        if tp.topic not in cluster.topics:
            cluster.add_topic(tp.topic, None, 0)
        states = tuple(
            ReplicaState.ONLINE if b in alive else ReplicaState.OFFLINE for b in replicas
        )
        state = PartitionState.OFFLINE if leader == NO_LEADER else PartitionState.ONLINE
        leadership = Leadership(leader, tuple(isr), 3, 7, 5)
        cluster.put(tp, Row(Assignment(tuple(replicas)), leadership, state, states))
    return cluster


def topics_of(count: int, partitions: int, brokers: int = 3) -> ClusterState:
    """`t00000` and so on, each led by its first replica."""
    rows = {
        f"t{t:05}-{p}": (ids, ids[0], ids)
        for t in range(count)
        for p in range(partitions)
        if (ids := tuple((t + p + r) % brokers + 1 for r in range(min(3, brokers))))
    }
    return cluster_of(rows, alive=range(1, brokers + 1))
