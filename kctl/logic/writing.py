"""Conditional writes and what becomes of them.

Write from the cache, read only what lost. A row that was changed by somebody else is read again
and given back to be decided anew; a row whose write may or may not have landed is read back, and
has landed if it is what we wrote. The cache changes here, from replies, and nowhere else.
"""

from collections.abc import Mapping
from functools import lru_cache

import attrs

from kctl.logic.chunks import CHUNK, SMALL, paced, paced_by
from kctl.messages.effects import (
    Flush,
    ReadPartitions,
    ReadTopics,
    TopicNode,
    WritePartitions,
    WriteTopics,
)
from kctl.messages.events import Retry
from kctl.messages.outbox import Outbox, StartTimer, Story
from kctl.model.cluster import ClusterState
from kctl.model.codes import Code, Malformed
from kctl.model.names import NO_LEADER, TopicId, TopicPartition
from kctl.model.rows import Assignment, Leadership, Replicas, Row
from kctl.model.states import REPLICA_CAME_FROM, PartitionState, ReplicaState

ATTEMPTS_MAX = 5
"""Tries at one row before it is given up; old brokers change ISRs behind the controller's back."""


CAN_BE_OFFLINE = REPLICA_CAME_FROM[ReplicaState.OFFLINE]

WRITTEN_BY_A_NEWER_ONE = "its state was written by a newer controller, epoch"

RETRY_TIMER = "retry"
RETRY_MS = 500


@attrs.define
class Written:
    """What one attempt came to, and what the rows that were written enter with it."""

    state: PartitionState | None = None
    offline: Mapping[TopicPartition, Replicas] | None = None
    done: dict[TopicPartition, tuple[Row, Row]] = attrs.field(factory=dict)
    """Before and after."""
    stale: dict[TopicPartition, None] = attrs.field(factory=dict)
    """Changed by somebody else; the cache holds the fresh row: decide again."""
    failed: dict[TopicPartition, str] = attrs.field(factory=dict)


async def write_leaderships(
    cluster: ClusterState,
    proposals: Mapping[TopicPartition, Leadership],
    state: PartitionState | None = None,
    offline: Mapping[TopicPartition, Replicas] | None = None,
) -> Written:
    """One attempt for each row.

    Those that were written enter `state`, if one is given, and so do their replicas in `offline`
    enter OfflineReplica.
    """
    result = Written(state, offline)
    if not proposals:
        return result
    allowed: dict[TopicPartition, Leadership] = {}
    rows, epoch = cluster.rows, cluster.epoch
    for pause, chunk in paced(proposals.items(), 2 * CHUNK):
        if pause:
            await Flush()
        for tp, proposal in chunk:
            row = rows[tp]
            current = row.leadership
            if (
                current is not None
                and current.controller_epoch > epoch
                and not _asked_by_its_leader(current, proposal)
            ):
                result.failed[tp] = f"{WRITTEN_BY_A_NEWER_ONE} {current.controller_epoch}"
            elif proposal.isr is row.assignment.replicas:
                allowed[tp] = proposal
            else:
                allowed[tp] = _within(row, proposal)
    if not allowed:
        return result
    if len(allowed) > SMALL:
        await Flush()  # deciding on so many took its time
    codes = await WritePartitions(allowed)
    doubtful: dict[TopicPartition, Code] = {}
    for pause, written in paced(allowed.items()):
        if pause:
            await Flush()
        for tp, proposal in written:
            code = codes.get(tp, Code.UNKNOWN)
            if code is Code.OK:
                _settle(cluster, result, tp, proposal)
            elif code is Code.BAD_VERSION or code is Code.UNKNOWN:
                doubtful[tp] = code
            else:
                result.failed[tp] = f"the state znode could not be written: {code.value}"
    if doubtful:
        await _read_back(cluster, result, allowed, doubtful)
    if len(allowed) > SMALL:
        await Flush()
    return result


def _asked_by_its_leader(current: Leadership, proposal: Leadership) -> bool:
    """It leaves the leader epoch as it is, and is no decision of ours."""
    return proposal.leader_epoch == current.leader_epoch


def _within(row: Row, proposal: Leadership) -> Leadership:
    """Without members of the ISR that are no replicas: an old leader, late to learn who has left,
    may have written them, and a decision that keeps the ISR must not confirm that."""
    replicas, isr = row.assignment.replicas, proposal.isr
    for broker in isr:
        if broker not in replicas:
            break
    else:
        return proposal
    members = tuple([b for b in isr if b in replicas])
    if not members or proposal.leader not in (NO_LEADER, *members):
        return proposal
    return Leadership(
        proposal.leader,
        members,
        proposal.leader_epoch,
        proposal.controller_epoch,
        proposal.zk_version,
        proposal.recovering,
    )


async def _read_back(
    cluster: ClusterState,
    result: Written,
    proposals: Mapping[TopicPartition, Leadership],
    doubtful: Mapping[TopicPartition, Code],
) -> None:
    found = await ReadPartitions(tuple(doubtful), sync=Code.UNKNOWN in doubtful.values())
    for tp in doubtful:
        proposal = proposals[tp]
        seen = found.get(tp, Code.NO_NODE)
        if (
            isinstance(seen, Leadership)
            and seen.zk_version == proposal.zk_version + 1
            and seen.same_content(proposal)
        ):
            _settle(cluster, result, tp, proposal)
            continue
        reason = refresh(cluster, tp, seen)
        if reason is None:
            result.stale[tp] = None
        else:
            result.failed[tp] = reason


def refresh(
    cluster: ClusterState, tp: TopicPartition, seen: Leadership | Code | Malformed
) -> str | None:
    """Take what ZooKeeper holds into the cache, or say why it cannot be used."""
    if isinstance(seen, Malformed):
        cluster.poison(tp, seen.path, seen.reason)
        return f"its state cannot be understood: {seen.reason}"
    if isinstance(seen, Code):
        return f"its state znode could not be read: {seen.value}"
    if seen.controller_epoch > cluster.epoch:
        return f"{WRITTEN_BY_A_NEWER_ONE} {seen.controller_epoch}"
    row = cluster.rows[tp]
    if row.leadership != seen:
        state = row.state
        if state is PartitionState.NEW:
            # It has a history after all.
            online = seen.leader in seen.isr and cluster.is_online(seen.leader, tp)
            state = PartitionState.ONLINE if online else PartitionState.OFFLINE
        shared = seen.with_shared(cluster.share_replicas(seen.isr))
        cluster.replace(tp, row, Row(row.assignment, shared, state, row.replica_states))
    return None


def _settle(
    cluster: ClusterState, result: Written, tp: TopicPartition, proposal: Leadership
) -> None:
    """It was written: ZooKeeper has counted the version up by one."""
    before = cluster.rows[tp]
    states = before.replica_states
    if result.offline is not None:
        states = states_offline(before, result.offline[tp])
    leadership = Leadership(
        proposal.leader,
        cluster.share_replicas(proposal.isr),
        proposal.leader_epoch,
        proposal.controller_epoch,
        proposal.zk_version + 1,
        proposal.recovering,
    )
    entered = before.state if result.state is None else result.state
    after = Row(before.assignment, leadership, entered, states)
    cluster.replace(tp, before, after)
    result.done[tp] = (before, after)


def states_offline(row: Row, brokers: Replicas) -> tuple[ReplicaState, ...]:
    """With these replicas in Offline; one that waits to leave the assignment, deleted, stays so."""
    states = row.replica_states
    for broker in brokers:
        states = _with_offline(states, row.assignment.replicas.index(broker))
    return states


@lru_cache(maxsize=1_024)
def _with_offline(states: tuple[ReplicaState, ...], at: int) -> tuple[ReplicaState, ...]:
    """Few occur, and many rows have each: they share it."""
    if states[at] not in CAN_BE_OFFLINE:
        return states
    return (*states[:at], ReplicaState.OFFLINE, *states[at + 1 :])


def retry_later(outbox: Outbox) -> None:
    """Something was given up that must be done in the end: `retry` finds out what."""
    outbox.timers.append(StartTimer(RETRY_TIMER, RETRY_MS, Retry()))


# -- topic znodes ----------------------------------------------------------------------------


async def write_assignments(
    cluster: ClusterState, assignments: Mapping[TopicPartition, Assignment], outbox: Outbox
) -> dict[TopicPartition, str]:
    """Write topic znodes with these assignments; the partitions whose topic failed, and why.

    The znode holds a whole topic, so it is written under its version: partitions that somebody
    added meanwhile are kept. Rows are not touched; that is the caller's, once this has returned.
    """
    by_topic: dict[str, dict[int, Assignment]] = {}
    for tp, assignment in assignments.items():
        by_topic.setdefault(tp.topic, {})[tp.partition] = assignment
    failed = await write_topics(cluster, by_topic, outbox)
    return {tp: failed[tp.topic] for tp in assignments if tp.topic in failed}


async def write_topics(
    cluster: ClusterState,
    changes: Mapping[str, Mapping[int, Assignment]],
    outbox: Outbox,
    ids: Mapping[str, TopicId] | None = None,
) -> dict[str, str]:
    """Topic znodes as memory knows them, with these changes; the topics that failed, and why.

    `ids` are for topics that have none yet.
    """
    pending: dict[str, TopicNode] = {}
    for pause, topic in paced_by(changes, lambda t: len(cluster.topics[t].partitions)):
        if pause:
            await Flush()
        pending[topic] = with_id(compose(cluster, topic, changes[topic]), topic, ids)
    failed: dict[str, str] = {}
    for _ in range(ATTEMPTS_MAX):
        if not pending:
            return failed
        codes = await WriteTopics(pending)
        doubtful: dict[str, TopicNode] = {}
        for topic, node in pending.items():
            code = codes.get(topic, Code.UNKNOWN)
            if code is Code.OK:
                _topic_written(cluster, topic, node, node.zk_version + 1)
            elif code is Code.TOO_LARGE:
                failed[topic] = (
                    f"the znode of topic {topic} would be larger than ZooKeeper takes; "
                    "reassign fewer of its partitions at a time"
                )
            elif code is Code.BAD_VERSION or code is Code.UNKNOWN:
                doubtful[topic] = node
            else:
                failed[topic] = f"the znode of topic {topic} could not be written: {code.value}"
        again = await _reread_topics(cluster, doubtful, changes, failed) if doubtful else {}
        pending = {topic: with_id(node, topic, ids) for topic, node in again.items()}
    if pending:
        retry_later(outbox)
    for topic in pending:
        failed[topic] = f"the znode of topic {topic} kept changing"
        outbox.tell("topic not written", failed[topic], key=topic)
    return failed


def compose(cluster: ClusterState, topic: str, change: Mapping[int, Assignment]) -> TopicNode:
    known = cluster.topics[topic]
    partitions = {p: cluster.rows[tp].assignment for p, tp in known.partitions.items()}
    partitions.update(change)
    return TopicNode(partitions, known.id, known.zk_version)


def with_id(node: TopicNode, topic: str, ids: Mapping[str, TopicId] | None) -> TopicNode:
    if ids is None or node.topic_id is not None:
        return node
    return TopicNode(node.partitions, ids.get(topic), node.zk_version)


async def _reread_topics(
    cluster: ClusterState,
    doubtful: Mapping[str, TopicNode],
    changes: Mapping[str, Mapping[int, Assignment]],
    failed: dict[str, str],
) -> dict[str, TopicNode]:
    found = await ReadTopics(tuple(doubtful))
    again: dict[str, TopicNode] = {}
    for topic, node in doubtful.items():
        seen = found.get(topic, Code.NO_NODE)
        if isinstance(seen, Malformed):
            cluster.quarantine[seen.path] = seen.reason
            failed[topic] = f"the znode of topic {topic} cannot be understood: {seen.reason}"
        elif isinstance(seen, Code):
            failed[topic] = f"the znode of topic {topic} could not be read: {seen.value}"
        elif was_recreated(cluster, topic, seen):
            failed[topic] = f"topic {topic} was deleted and created again meanwhile"
        elif seen.partitions == node.partitions and seen.topic_id == node.topic_id:
            _topic_written(cluster, topic, seen, seen.zk_version)
        else:
            ours = compose(cluster, topic, changes[topic])
            partitions = {**seen.partitions, **ours.partitions}
            again[topic] = TopicNode(partitions, ours.topic_id or seen.topic_id, seen.zk_version)
    return again


def _topic_written(cluster: ClusterState, topic: str, node: TopicNode, zk_version: int) -> None:
    cluster.topics[topic].zk_version = zk_version
    if cluster.topics[topic].id is None and node.topic_id is not None:
        cluster.set_topic_id(topic, node.topic_id)


def was_recreated(cluster: ClusterState, topic: str, seen: TopicNode) -> bool:
    known = cluster.topics[topic].id
    return known is not None and seen.topic_id is not None and seen.topic_id != known


def tell_changes(
    outbox: Outbox, what: str, why: str, changes: Mapping[TopicPartition, tuple[Row, Row]]
) -> None:
    if changes:
        outbox.stories.append(Story(what, why, dict(changes)))
