"""What only a look at every partition tells: who leads how many, and how each topic fares.

The look is taken in short steps while the controller works, so it is no single moment. It is
taken when somebody asks, and what it found is handed out again for a while: the larger the
cluster, the longer. With nobody looking it costs nothing.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

import attrs

from kctl.http.pacing import LOOKED_AT, Pace
from kctl.model.cluster import ClusterState
from kctl.model.names import NO_LEADER, BrokerId, TopicPartition
from kctl.model.rows import Row
from kctl.model.states import PartitionState
from kctl.runtime.meters import thread_cpu_s

VALID_MIN_S = 0.1
VALID_MAX_S = 30.0
COST_MAX = 1 / 40
"""Of the loop's time: a look that takes 0.5 s (at a million partitions) is good for 20 s."""


@attrs.define
class TopicCount:
    """The partitions of one topic."""

    partitions: int = 0
    offline: int = 0
    under_replicated: int = 0
    unbalanced: int = 0
    leaders: dict[BrokerId, int] = attrs.field(factory=dict)


@attrs.define
class Counts:
    number: int = 0
    """Rises with each look."""
    leaders: dict[BrokerId, int] = attrs.field(factory=dict)
    under_replicated: int = 0
    topics: dict[str, TopicCount] = attrs.field(factory=dict)


def is_offline(row: Row) -> bool:
    return row.state is PartitionState.OFFLINE


def is_under_replicated(row: Row) -> bool:
    return row.leadership is not None and len(row.leadership.isr) < len(row.assignment.replicas)


class Census:
    def __init__(self, state: Callable[[], ClusterState | None]) -> None:
        self._state = state
        self._taking = asyncio.Lock()
        self._cluster: ClusterState | None = None
        self._counts = Counts()
        self._good_until = 0.0

    async def fresh(self) -> Counts:
        """Of the cluster as it is now, or was not long ago."""
        async with self._taking:
            cluster, clock = self._state(), asyncio.get_running_loop().time
            if cluster is not self._cluster or clock() >= self._good_until:
                began = thread_cpu_s()
                self._counts = await _count(cluster, self._counts.number + 1)
                self._cluster = cluster
                cost = thread_cpu_s() - began
                self._good_until = clock() + min(VALID_MAX_S, max(VALID_MIN_S, cost / COST_MAX))
            return self._counts

    @property
    def last(self) -> Counts:
        """What was found last; nothing yet of a cluster that is new."""
        return self._counts if self._cluster is self._state() else Counts(self._counts.number)


async def _count(cluster: ClusterState | None, number: int) -> Counts:
    counts = Counts(number)
    pace = Pace()
    for name, topic in [] if cluster is None else list(cluster.topics.items()):
        assert cluster is not None
        of_topic = counts.topics[name] = TopicCount()
        partitions = iter(tuple(topic.partitions.values()))
        while portion := tuple(islice(partitions, LOOKED_AT)):
            _add(of_topic, cluster.rows, portion)
            await pace()
        for broker, led in of_topic.leaders.items():
            counts.leaders[broker] = counts.leaders.get(broker, 0) + led
        counts.under_replicated += of_topic.under_replicated
        await pace()
    return counts


def _add(
    count: TopicCount, rows: Mapping[TopicPartition, Row], partitions: Iterable[TopicPartition]
) -> None:
    leaders = count.leaders
    for tp in partitions:
        row = rows.get(tp)
        if row is None:
            continue
        count.partitions += 1
        leadership = row.leadership
        if leadership is None:
            continue
        replicas, leader = row.assignment.replicas, leadership.leader
        if leader != NO_LEADER:
            leaders[leader] = leaders.get(leader, 0) + 1
        if leader != replicas[0]:
            count.unbalanced += 1
        if len(leadership.isr) < len(replicas):
            count.under_replicated += 1
        if row.state is PartitionState.OFFLINE:
            count.offline += 1
