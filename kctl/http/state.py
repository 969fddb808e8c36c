"""`/state`: what the controller knows, as JSON, in answers of bounded size."""

from collections.abc import Iterable, Mapping
from heapq import nsmallest
from itertools import islice
from typing import TypeVar

import attrs

import kctl
from kctl.http.cells import CELLS_MAX, cell, partition_cells, topic_cells
from kctl.http.census import Census, Counts
from kctl.http.figures import figures_of
from kctl.http.pacing import paced
from kctl.http.stories import Stories
from kctl.model.cluster import ClusterState
from kctl.model.names import NO_LEADER, TopicPartition
from kctl.runtime.controller import Controller
from kctl.runtime.meters import wall_clock_ms

K = TypeVar("K", str, int)

PAGE_SIZE = 100
PAGE_MAX = 1_000
LISTED_MAX = 100
"""Of reassignments, deletions and quarantined znodes; the counts say how many there are."""
STORY_LINES = 50

Json = dict[str, object]


class NotFound(Exception):
    """There is no such topic or partition here."""


class Views:
    def __init__(self, controller: Controller, census: Census, stories: Stories) -> None:
        self._controller = controller
        self._census = census
        self._stories = stories

    # -- the whole ----------------------------------------------------------------------------

    async def overview(self, after: str | None, limit: int) -> Json:
        cluster = self._controller.state
        counts = await self._census.fresh()
        found: Json = {
            "controller": self.controller(),
            "queue": self.queue(),
            "counts": await self.counts(),
            "brokers": brokers(cluster, counts),
        }
        if cluster is None:
            return found | {"topics": [], "next": None} | _work(None)
        names, more = await _page(list(cluster.topics), after, limit)
        topics = [_topic_line(cluster, counts, name) for name in names if name in cluster.topics]
        return found | {"topics": topics, "next": more} | _work(cluster)

    def controller(self) -> Json:
        controller, meters = self._controller, self._controller.meters
        cluster, session = controller.state, controller.session_state
        return {
            "id": controller.config.broker_id,
            "version": kctl.__version__,
            "active": cluster is not None,
            "active_id": controller.active_id,
            "since_ms": meters.active_since_ms,
            "epoch": None if cluster is None else cluster.epoch,
            "stood_down": controller.stood_down,
            "resting": controller.resting,
            "session": None if session is None else session.value,
            "zookeeper": controller.config.zookeeper_connect,
            "error": controller.last_error,
            "started_ms": meters.started_ms,
            "now_ms": wall_clock_ms(),
            "terms": meters.elections_won,
            "faults": meters.faults,
        }

    def queue(self) -> Json:
        controller, meters = self._controller, self._controller.meters
        return {
            "size": controller.queue_size,
            "age_s": round(controller.queue_age_s, 6),
            "under_way": meters.under_way,
            "under_way_s": round(meters.under_way_s, 6),
        }

    async def counts(self) -> Json:
        cluster = self._controller.state
        figures = await figures_of(cluster)
        return {
            "topics": figures.topics,
            "partitions": 0 if cluster is None else len(cluster.rows),
            "brokers": figures.brokers,
            "offline": figures.offline,
            "under_replicated": self._census.last.under_replicated,
            "not_preferred": figures.unbalanced,
            "reassigning": figures.reassigning,
            "deleting": figures.topics_to_delete,
            "quarantined": sum(figures.quarantined.values()),
        }

    async def map(self) -> Json:
        cluster = self._controller.state
        if cluster is None:
            return {"mode": "none", "topics": []}
        if len(cluster.rows) <= CELLS_MAX:
            return await partition_cells(cluster)
        return await topic_cells(cluster, await self._census.fresh())

    # -- parts --------------------------------------------------------------------------------

    async def topic(self, name: str, after: int | None, limit: int) -> Json:
        cluster = self._cluster()
        topic = cluster.topics.get(name)
        if topic is None:
            raise NotFound(f"no topic is called {name!r}")
        numbers, more = await _page(list(topic.partitions), after, limit)
        deletion = cluster.deletions.get(name)
        rows = [_partition_line(cluster, TopicPartition(name, number)) for number in numbers]
        return {
            "name": name,
            "id": topic.id,
            "partition_count": len(topic.partitions),
            "deleting": deletion is not None,
            "deletion_waits": None if deletion is None else deletion.ineligible,
            "partitions": [row for row in rows if row is not None],
            "next": more,
        }

    def partition(self, tp: TopicPartition) -> Json:
        cluster = self._cluster()
        line = _partition_line(cluster, tp)
        if line is None:
            raise NotFound(f"there is no partition {tp}")
        row = cluster.rows[tp]
        path = cluster.poisoned.get(tp)
        deletion = cluster.deletions.get(tp.topic)
        return {
            "topic": tp.topic,
            "topic_id": cluster.topics[tp.topic].id,
            **line,
            "replica_states": {
                str(broker): {
                    "state": state.name.lower(),
                    "alive": broker in cluster.brokers,
                    "shutting_down": broker in cluster.shutting_down,
                    "in_sync": broker in row.isr,
                    "rack": _rack(cluster, broker),
                }
                for broker, state in zip(row.replicas, row.replica_states, strict=True)
            },
            "quarantine": None if path is None else [path, cluster.quarantine.get(path)],
            "deleting": deletion is not None,
            "deletion_waits": None if deletion is None else deletion.ineligible,
            "story": [attrs.asdict(line) for line in self._stories.of(tp, STORY_LINES)],
            "stories_since_ms": self._stories.since_ms,
        }

    def _cluster(self) -> ClusterState:
        cluster = self._controller.state
        if cluster is None:
            raise NotFound("this node is not the controller, so it knows no partitions")
        return cluster


def brokers(cluster: ClusterState | None, counts: Counts) -> list[Json]:
    """Those that are registered, and those that are not but have replicas."""
    if cluster is None:
        return []
    known = dict.fromkeys(cluster.brokers)
    known |= dict.fromkeys(b for b, tps in cluster.by_broker.items() if tps)
    return [
        {
            "id": broker,
            "alive": broker in cluster.brokers,
            "shutting_down": broker in cluster.shutting_down,
            "rack": _rack(cluster, broker),
            "endpoints": [
                f"{e.listener}://{e.host}:{e.port}" for e in cluster.brokers[broker].endpoints
            ]
            if broker in cluster.brokers
            else [],
            "leaders": counts.leaders.get(broker, 0),
            "replicas": len(cluster.partitions_on(broker)),
            "failed_dirs": len(cluster.offline_dirs.get(broker, ())),
        }
        for broker in sorted(known)
    ]


def _rack(cluster: ClusterState, broker: int) -> str | None:
    return cluster.brokers[broker].rack if broker in cluster.brokers else None


async def _page(items: list[K], after: K | None, limit: int) -> tuple[list[K], K | None]:
    """The next ones in their order, and where the page after this begins, if there is one."""
    found: list[K] = []
    async for portion in paced(items):
        found += [item for item in portion if after is None or item > after]
        found = nsmallest(limit + 1, found)
    return found[:limit], found[limit - 1] if len(found) > limit else None


def _topic_line(cluster: ClusterState, counts: Counts, name: str) -> Json:
    count = counts.topics.get(name)
    return {
        "name": name,
        "id": cluster.topics[name].id,
        "partitions": len(cluster.topics[name].partitions),
        "offline": 0 if count is None else count.offline,
        "under_replicated": 0 if count is None else count.under_replicated,
        "not_preferred": 0 if count is None else count.unbalanced,
        "deleting": name in cluster.deletions,
    }


def _partition_line(cluster: ClusterState, tp: TopicPartition) -> Json | None:
    found = cell(cluster, tp)
    if found is None:
        return None
    row = cluster.rows[tp]
    leadership = row.leadership
    return {
        "partition": tp.partition,
        "state": row.state.name.lower(),
        "leader": None if row.leader == NO_LEADER else row.leader,
        "preferred": row.replicas[0],
        "replicas": row.replicas,
        "isr": row.isr,
        "adding": row.assignment.adding,
        "removing": row.assignment.removing,
        "leader_epoch": None if leadership is None else leadership.leader_epoch,
        "zk_version": None if leadership is None else leadership.zk_version,
        "marks": found[2],
    }


def _work(cluster: ClusterState | None) -> Json:
    """What is under way or stuck, the first of each."""
    if cluster is None:
        return {"reassignments": [], "deletions": [], "quarantine": []}
    return {
        "reassignments": [
            {
                "partition": str(tp),
                "replicas": row.replicas,
                "adding": row.assignment.adding,
                "removing": row.assignment.removing,
                "isr": row.isr,
            }
            for tp in _first(cluster.reassigning)
            if (row := cluster.rows.get(tp)) is not None
        ],
        "deletions": [
            {
                "topic": name,
                "started": deletion.started,
                "waits": deletion.ineligible,
                "replicas": {s.name.lower(): n for s, n in deletion.counts.items() if n},
            }
            for name, deletion in islice(cluster.deletions.items(), LISTED_MAX)
        ],
        "quarantine": [
            {"path": path, "reason": reason}
            for path, reason in islice(cluster.quarantine.items(), LISTED_MAX)
        ],
    }


def _first(items: Mapping[TopicPartition, None]) -> Iterable[TopicPartition]:
    return islice(items, LISTED_MAX)
