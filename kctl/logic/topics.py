"""Topics that appear, grow, vanish, or come without what they need."""

from collections.abc import Iterable, Mapping

from kctl.logic import deletion, reassignment
from kctl.logic.chunks import CHUNK, SMALL, chunks, paced_by
from kctl.logic.partitions import initialize_partitions
from kctl.logic.recipients import flush
from kctl.logic.writing import retry_later, was_recreated, write_assignments, write_topics
from kctl.messages.effects import Draw, Flush, ListDeletions, ListTopics, ReadTopics, TopicNode
from kctl.messages.events import PartitionModifications, TopicDeletion, ZkPartitionReassignment
from kctl.messages.outbox import Outbox
from kctl.model.cluster import ClusterState
from kctl.model.codes import Code, Malformed
from kctl.model.names import ID_BITS, BrokerId, TopicId, TopicPartition, topic_id_from_bits
from kctl.model.rows import Assignment, Replicas, Row
from kctl.model.states import PartitionState, ReplicaState


async def on_topic_change(cluster: ClusterState, outbox: Outbox) -> None:
    names = dict.fromkeys(await ListTopics())
    for topic in [t for t in cluster.topics if t not in names]:
        if any(tp.topic == topic for tp in cluster.reassigning):
            # What the admin znode asks of it must not block that znode for others.
            outbox.events.append(ZkPartitionReassignment())
        cluster.remove_topic(topic)
        outbox.tell("topic gone", "its znode was removed by somebody else", key=topic)
    for path in [p for p in cluster.quarantine if (t := _topic_of(p)) and t not in names]:
        cluster.heal(path)
    new = [t for t in sorted(names) if t not in cluster.topics]
    await add_topics(cluster, new, outbox, "topic created")


async def on_topic_deletion(cluster: ClusterState, outbox: Outbox) -> None:
    """Markers in `/admin/delete_topics`."""
    marked = await ListDeletions()
    if any(topic not in cluster.topics for topic in marked):
        # Created and deleted faster than the watches tell: look before a marker is thrown away.
        await on_topic_change(cluster, outbox)
    await deletion.queue(cluster, marked, outbox)
    await deletion.resume_deletions(cluster, outbox)


async def add_topics(cluster: ClusterState, names: Iterable[str], outbox: Outbox, why: str) -> None:
    """Read, give them ids, keep ourselves out of their assignments, and bring them online."""
    for chunk in chunks(names, 2 * CHUNK):
        unusable = [t for t in chunk if f"/brokers/topics/{t}" in cluster.quarantine]
        added = await load_topics(cluster, await ReadTopics(chunk), outbox)
        if any(topic in added for topic in unusable):
            # One that was repaired may have been marked for deletion meanwhile.
            outbox.events.append(TopicDeletion())
        await mint_missing_topic_ids(cluster, outbox, added)
        await repair_assignments(cluster, outbox)
        new = [tp for topic in added for tp in cluster.partitions_of(topic)]
        await initialize_partitions(cluster, new, outbox, why)
        # A topic that was repaired may have been in the middle of one.
        under_way = [tp for tp in new if tp in cluster.reassigning]
        await reassignment.advance(cluster, under_way, outbox)


async def load_topics(
    cluster: ClusterState,
    found: Mapping[str, TopicNode | Code | Malformed],
    outbox: Outbox,
    *,
    unread: bool = False,
) -> list[str]:
    """Take topics into memory with their partitions in New, or still to be read; the usable ones."""
    added = []
    # Many indexes grow here at the same time, and growing costs: fewer rows between two pauses.
    for pause, (topic, node) in paced_by(found.items(), _rows_of, SMALL):
        if pause:
            await Flush()
        if isinstance(node, Malformed):
            quarantine(cluster, outbox, node.path, node.reason)
        elif isinstance(node, Code):
            continue
        elif node.topic_id is not None and cluster.topic_names.get(node.topic_id, topic) != topic:
            other = cluster.topic_names[node.topic_id]
            reason = f"its id {node.topic_id} is that of topic {other}"
            quarantine(cluster, outbox, f"/brokers/topics/{topic}", reason)
        else:
            path = f"/brokers/topics/{topic}"
            if path in cluster.quarantine:
                cluster.heal(path)
                outbox.tell("healed", "its znode can be used again", key=path)
            cluster.add_topic(topic, node.topic_id, node.zk_version)
            if unread:
                cluster.add_unread(topic, node.partitions)
            else:
                add_partitions(cluster, topic, node.partitions)
            added.append(topic)
    return added


def _rows_of(found: tuple[str, TopicNode | Code | Malformed]) -> int:
    return len(found[1].partitions) if isinstance(found[1], TopicNode) else 0


def add_partitions(
    cluster: ClusterState, topic: str, partitions: Mapping[int, Assignment]
) -> list[TopicPartition]:
    added = []
    for partition, found in partitions.items():
        assignment = cluster.share(found)
        states = cluster.share_states((ReplicaState.NEW,) * len(assignment.replicas))
        tp = TopicPartition(topic, partition)
        cluster.put(tp, Row(assignment, None, PartitionState.NEW, states))
        added.append(tp)
    return added


async def on_partition_modifications(
    cluster: ClusterState, event: PartitionModifications, outbox: Outbox
) -> None:
    """Partitions were added, or an old tool rewrote the znode. Our own writes end here too."""
    topic = event.topic
    if topic not in cluster.topics:
        # It is new, or was quarantined and may have been repaired.
        return await on_topic_change(cluster, outbox)
    node = (await ReadTopics((topic,))).get(topic, Code.NO_NODE)
    if isinstance(node, Malformed):
        return quarantine(cluster, outbox, node.path, node.reason)
    if isinstance(node, Code):
        return None
    if was_recreated(cluster, topic, node):
        outbox.tell("topic recreated", "its znode has another id", key=topic)
        cluster.remove_topic(topic)
        return await add_topics(cluster, (topic,), outbox, "topic recreated")
    known = cluster.topics[topic]
    if f"/brokers/topics/{topic}" in cluster.quarantine:
        cluster.heal(f"/brokers/topics/{topic}")
        retry_later(outbox)  # a reassignment may wait for a znode that can be written
    known.zk_version = node.zk_version
    if known.id is None and node.topic_id is not None:
        cluster.set_topic_id(topic, node.topic_id)
    added = {p: a for p, a in node.partitions.items() if p not in known.partitions}
    lost_id = known.id is not None and node.topic_id is None
    if topic in cluster.deletions:
        if added:
            outbox.tell("growth undone", "the topic is being deleted", key=topic)
            await write_topics(cluster, {topic: {}}, outbox)
        return None
    if lost_id:
        outbox.tell("topic id restored", "the znode was rewritten without it", key=topic)
        await write_topics(cluster, {topic: dict(added)}, outbox)
    if added:
        tps = add_partitions(cluster, topic, added)
        await repair_assignments(cluster, outbox)
        await initialize_partitions(cluster, tps, outbox, "partitions added")
    return None


async def mint_missing_topic_ids(
    cluster: ClusterState, outbox: Outbox, topics: Iterable[str] | None = None
) -> None:
    """Brokers since 2.8 know topics by id; never written while an older broker lives."""
    if not cluster.has_topic_ids:
        return
    candidates = list(cluster.topics if topics is None else topics)
    missing = [t for t in candidates if t in cluster.topics and cluster.topics[t].id is None]
    for chunk in chunks(missing):
        ids = dict(zip(chunk, await draw_topic_ids(len(chunk)), strict=True))
        failed = await write_topics(cluster, {t: {} for t in chunk}, outbox, ids)
        for topic, reason in failed.items():
            outbox.tell("topic id not written", reason, key=topic)


async def draw_topic_ids(count: int) -> list[TopicId]:
    ids: list[TopicId] = []
    while len(ids) < count:
        bits = await Draw(count - len(ids), 1 << ID_BITS)
        ids += [i for i in map(topic_id_from_bits, bits) if i is not None]
    return ids


# -- a controller is never a replica ---------------------------------------------------------


async def repair_assignments(
    cluster: ClusterState, outbox: Outbox, *, unborn_only: bool = False
) -> None:
    """Brokers that create topics themselves take a controller for a broker and place replicas.

    A partition without a state is simply given another assignment before its state is written; one
    that has lived already is reassigned. Without any live broker it must wait for one.
    """
    ids = cluster.controller_ids
    misplaced = dict.fromkeys(tp for i in ids for tp in cluster.partitions_on(i))
    if not misplaced or not cluster.live:
        return
    moves: dict[TopicPartition, Assignment] = {}
    unborn: dict[TopicPartition, Assignment] = {}
    for tp in misplaced:
        assignment = cluster.rows[tp].assignment
        repaired = assignment.target
        if tp.topic in cluster.deletions or tp in cluster.poisoned:
            continue
        for controller in ids:
            repaired = replace_replica(repaired, controller, tuple(cluster.live), tp.partition)
        if repaired == assignment.target:
            continue
        if cluster.rows[tp].leadership is None:
            unborn[tp] = Assignment(repaired)
        elif not unborn_only:
            moves[tp] = assignment.reassign_to(repaired)
    failed = await write_assignments(cluster, unborn, outbox) if unborn else {}
    for tp, assignment in unborn.items():
        if tp in failed:
            outbox.tell("assignment not repaired", failed[tp], key=str(tp))
            continue
        row = cluster.rows[tp]
        shared = cluster.share(assignment)
        # The replicas did not exist yet, neither the one that goes nor the one that comes.
        cluster.replace_unborn(
            tp,
            Row(
                shared,
                None,
                row.state,
                cluster.share_states((ReplicaState.NEW,) * len(shared.replicas)),
            ),
        )
        named = next(i for i in ids if i in row.replicas)
        outbox.tell("assignment repaired", f"it named the controller {named}", key=str(tp))
    await flush(cluster, outbox)
    if moves:
        await reassignment.reassign(cluster, moves, outbox)


def replace_replica(replicas: Replicas, own: BrokerId, live: Replicas, partition: int) -> Replicas:
    """Another live broker in our place, a different one for each partition; else one less."""
    if own not in replicas:
        return replicas
    free = [b for b in sorted(live) if b not in replicas]
    if free:
        substitute = free[partition % len(free)]
        return tuple(substitute if b == own else b for b in replicas)
    return tuple(b for b in replicas if b != own)


# -- quarantine ------------------------------------------------------------------------------


def quarantine(cluster: ClusterState, outbox: Outbox, path: str, reason: str) -> None:
    """Reported once, however often it is met."""
    if cluster.quarantine.get(path) != reason:
        cluster.quarantine[path] = reason
        outbox.tell("quarantined", reason, key=path)


def _topic_of(path: str) -> str:
    prefix = "/brokers/topics/"
    return path[len(prefix) :].partition("/")[0] if path.startswith(prefix) else ""
