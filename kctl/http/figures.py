"""The controller's gauges as Kafka defines them, from the indexes that the cluster keeps.

Nothing here looks at every partition: only at those that are not online, being reassigned, being
deleted or in quarantine. Where those are many, in short steps.
"""

import attrs

from kctl.http.pacing import paced
from kctl.model.cluster import ClusterState
from kctl.model.states import PartitionState, ReplicaState


@attrs.frozen
class Figures:
    """All zero while another node is controller, as in Kafka."""

    topics: int = 0
    partitions: int = 0
    """With a leadership, in office or vacant."""
    offline: int = 0
    """Except those of topics whose deletion has begun."""
    unbalanced: int = 0
    """Not led by their preferred replica, and not about to be deleted."""
    reassigning: int = 0
    topics_to_delete: int = 0
    replicas_to_delete: int = 0
    topics_ineligible: int = 0
    replicas_ineligible: int = 0
    brokers: int = 0
    quarantined: dict[str, int] = attrs.field(factory=dict)
    """By kind of znode."""


async def figures_of(cluster: ClusterState | None) -> Figures:
    if cluster is None:
        return Figures()
    offline, unborn = await _offline_and_unborn(cluster)
    replicas, ineligible_replicas, ineligible = 0, 0, 0
    async for portion in paced(list(cluster.deletions.values())):
        for deletion in portion:
            counts = deletion.counts
            replicas += sum(counts.values()) - counts.get(ReplicaState.DELETION_SUCCESSFUL, 0)
            ineligible_replicas += counts.get(ReplicaState.DELETION_INELIGIBLE, 0)
            ineligible += deletion.ineligible is not None
    return Figures(
        topics=len(cluster.topics),
        partitions=len(cluster.rows) - unborn,
        offline=offline,
        unbalanced=len(cluster.unbalanced) - await _balance_does_not_matter(cluster),
        reassigning=len(cluster.reassigning),
        topics_to_delete=len(cluster.deletions),
        replicas_to_delete=replicas,
        topics_ineligible=ineligible,
        replicas_ineligible=ineligible_replicas,
        brokers=len(cluster.brokers),
        quarantined=await _quarantined(cluster),
    )


async def _offline_and_unborn(cluster: ClusterState) -> tuple[int, int]:
    offline = unborn = 0
    async for portion in paced(list(cluster.not_online)):
        for tp in portion:
            row = cluster.rows.get(tp)
            if row is None:
                continue
            unborn += row.leadership is None
            if row.state is PartitionState.OFFLINE:
                deletion = cluster.deletions.get(tp.topic)
                offline += deletion is None or not deletion.started
    async for portion in paced(list(cluster.poisoned)):
        for tp in portion:
            row = cluster.rows.get(tp)
            # Never read, so no index of states knows it.
            unborn += row is not None and row.leadership is None and tp not in cluster.not_online
    return offline, unborn


async def _balance_does_not_matter(cluster: ClusterState) -> int:
    """Kafka does not count topics to be deleted, nor a preferred replica that is only joining."""
    without = 0
    async for topics in paced(list(cluster.deletions)):
        for name in topics:
            topic = cluster.topics.get(name)
            if topic is not None:
                without += sum(tp in cluster.unbalanced for tp in topic.partitions.values())
    async for partitions in paced(list(cluster.reassigning)):
        for tp in partitions:
            row = cluster.rows.get(tp)
            if row is None or tp not in cluster.unbalanced or tp.topic in cluster.deletions:
                continue
            preferred = row.assignment.replicas[0]
            without += preferred in row.assignment.adding and preferred not in row.isr
    return without


async def _quarantined(cluster: ClusterState) -> dict[str, int]:
    kinds: dict[str, int] = {}
    async for portion in paced(list(cluster.quarantine)):
        for path in portion:
            kind = kind_of(path)
            kinds[kind] = kinds.get(kind, 0) + 1
    return kinds


def kind_of(path: str) -> str:
    """What a znode describes: partition, topic, broker, config, or the name of its top folder."""
    parts = path.strip("/").split("/")
    match parts:
        case ["brokers", "topics", _, "partitions", *_]:
            return "partition"
        case ["brokers", "topics", *_]:
            return "topic"
        case ["brokers", "ids", *_]:
            return "broker"
    return parts[0] or "root"
