"""The map: one cell a partition, or one a topic where there are too many partitions to draw."""

from collections.abc import Iterable
from heapq import nlargest
from operator import itemgetter

from kctl.http.census import Counts, is_offline, is_under_replicated
from kctl.http.pacing import paced
from kctl.model.cluster import ClusterState
from kctl.model.names import TopicPartition
from kctl.model.states import PartitionState

CELLS_MAX = 4_000
LEADERS_SHOWN = 6
"""Of a topic, those that lead the most."""

OFFLINE = 1
UNDER_REPLICATED = 2
NOT_PREFERRED = 4
REASSIGNING = 8
DELETING = 16
QUARANTINED = 32
NEW = 64

Cell = tuple[int, int, int]
"""Partition, leader (-1: none) and the marks above."""


def cell(cluster: ClusterState, tp: TopicPartition) -> Cell | None:
    row = cluster.rows.get(tp)
    if row is None:
        return None
    marks = (
        OFFLINE * is_offline(row)
        | UNDER_REPLICATED * is_under_replicated(row)
        | NOT_PREFERRED * (tp in cluster.unbalanced)
        | REASSIGNING * (tp in cluster.reassigning)
        | DELETING * (tp.topic in cluster.deletions)
        | QUARANTINED * (tp in cluster.poisoned)
        | NEW * (row.leadership is None or row.state is PartitionState.NEW)
    )
    return tp.partition, row.leader, marks


async def partition_cells(cluster: ClusterState) -> dict[str, object]:
    topics = []
    async for portion in paced(sorted(cluster.topics)):
        for name in portion:
            topic = cluster.topics.get(name)
            if topic is not None:
                found = (cell(cluster, topic.partitions[p]) for p in sorted(topic.partitions))
                topics.append([name, [c for c in found if c is not None]])
    return {"mode": "partitions", "topics": topics}


async def topic_cells(cluster: ClusterState, counts: Counts) -> dict[str, object]:
    """Those in trouble come first where not all can be shown."""
    names: Iterable[str] = counts.topics
    if len(counts.topics) > CELLS_MAX:
        troubled = [n for n, c in counts.topics.items() if c.offline or c.under_replicated]
        chosen = dict.fromkeys(troubled[:CELLS_MAX])
        for name in counts.topics:
            if len(chosen) == CELLS_MAX:
                break
            chosen[name] = None
        names = chosen
    topics = []
    async for portion in paced(sorted(names)):
        for name in portion:
            count = counts.topics[name]
            topics.append(
                [
                    name,
                    count.partitions,
                    sorted(nlargest(LEADERS_SHOWN, count.leaders.items(), key=itemgetter(1))),
                    count.offline,
                    count.under_replicated,
                    count.unbalanced,
                    int(name in cluster.deletions),
                ]
            )
    return {"mode": "topics", "topics": topics, "topic_count": len(counts.topics)}
