"""ISR changes: proposed by leaders (AlterPartition), or written by old ones and notified.

Stricter than Kafka's controller, which looks at epochs only: a proposal counts only from the
leader, and its ISR must have the leader in it and stay within the replicas.
"""

from collections.abc import Iterable, Sequence

import attrs

from kctl.logic.chunks import SMALL, WRITE, chunks, paced
from kctl.logic.partitions import renew_leaderships, within_replicas
from kctl.logic.reassignment import complete_ready
from kctl.logic.recipients import flush, tell_metadata
from kctl.logic.replicas import take_offline
from kctl.logic.writing import refresh, tell_changes, write_leaderships
from kctl.messages.answers import AlteredPartitions, ApiError, Refused
from kctl.messages.effects import Flush, ReadIsrNotifications, ReadPartitions, RemoveNotifications
from kctl.messages.events import (
    AlterPartitionReceived,
    IsrProposal,
    PartitionReassignmentIsrChange,
)
from kctl.messages.outbox import NOTIFICATION_DROPPED, Outbox
from kctl.model.cluster import ClusterState
from kctl.model.codes import Code, KafkaError, Malformed
from kctl.model.names import TopicId, TopicPartition
from kctl.model.rows import Leadership, Replicas, Row

TOPICS = "/brokers/topics/"
INELIGIBLE_REPLICA_SINCE = 2
"""Version of AlterPartition; older leaders know only OPERATION_NOT_ATTEMPTED."""


@attrs.define
class _Request:
    """One caller's request while the group it came in is worked on."""

    event: AlterPartitionReceived
    refused: KafkaError | None = None
    outcomes: dict[TopicPartition, Leadership | KafkaError] = attrs.field(factory=dict)
    unknown_ids: dict[tuple[TopicId, int], KafkaError] = attrs.field(factory=dict)


async def on_alter_partitions(
    cluster: ClusterState, events: Sequence[AlterPartitionReceived], outbox: Outbox
) -> None:
    """A group of requests, each seeing what its predecessors changed, in as few writes as can be."""
    requests = [_Request(event) for event in events]
    proposals: dict[TopicPartition, Leadership] = {}
    waiting: dict[TopicPartition, _Request] = {}
    touched: dict[TopicPartition, None] = {}
    judged = 0
    for request in requests:
        request.refused = _refuse(cluster, request.event)
        if request.refused is not None:
            continue
        for tp, proposal in _by_name(cluster, request).items():
            touched[tp] = None
            if tp in proposals or len(proposals) >= WRITE:
                await _commit(cluster, proposals, waiting, outbox)
            judged += 1
            if judged % SMALL == 0:
                await Flush()
            outcome = judge(cluster, tp, request.event, proposal)
            if isinstance(outcome, KafkaError) or outcome is cluster.rows[tp].leadership:
                request.outcomes[tp] = outcome
            else:
                proposals[tp] = outcome
                waiting[tp] = request
    await _commit(cluster, proposals, waiting, outbox)
    for chunk in chunks(touched):
        tell_metadata(outbox, chunk)
        await flush(cluster, outbox)
    for request in requests:
        outbox.answer(
            request.event.caller,
            Refused(ApiError(request.refused))
            if request.refused is not None
            else AlteredPartitions(request.outcomes, request.unknown_ids),
        )
    await Flush()
    await renew_leaderships(cluster, _behind(cluster, requests), outbox, "its leader was behind")
    await complete_ready(cluster, touched, outbox)


def _behind(cluster: ClusterState, requests: Sequence[_Request]) -> dict[TopicPartition, None]:
    """Partitions whose leader knows the epoch but not the version: somebody else wrote the state.

    Refused, it would wait for a LeaderAndIsr that never comes.
    """
    behind = KafkaError.INVALID_UPDATE_VERSION
    return {
        tp: None
        for request in requests
        for tp, outcome in request.outcomes.items()
        if outcome is behind and tp in cluster.rows
    }


def _refuse(cluster: ClusterState, event: AlterPartitionReceived) -> KafkaError | None:
    broker = cluster.brokers.get(event.broker)
    if broker is None or broker.epoch != event.broker_epoch:
        return KafkaError.STALE_BROKER_EPOCH
    return None


def _by_name(cluster: ClusterState, request: _Request) -> dict[TopicPartition, IsrProposal]:
    named = dict(request.event.partitions)
    for (topic_id, partition), proposal in request.event.by_id.items():
        topic = cluster.topic_names.get(topic_id)
        if topic is None:
            error = KafkaError.UNKNOWN_TOPIC_ID
            if any(path.startswith(TOPICS) for path in cluster.quarantine):
                error = KafkaError.OPERATION_NOT_ATTEMPTED  # it may be the id of that one
            request.unknown_ids[topic_id, partition] = error
        else:
            named[TopicPartition(topic, partition)] = proposal
    return named


def judge(
    cluster: ClusterState,
    tp: TopicPartition,
    event: AlterPartitionReceived,
    proposal: IsrProposal,
) -> Leadership | KafkaError:
    """What to write, the committed leadership itself if there is nothing to do, or the error."""
    row = cluster.rows.get(tp)
    if tp in cluster.poisoned or (row is None and f"{TOPICS}{tp.topic}" in cluster.quarantine):
        # Told that it is unknown, a leader gives up for good; this it takes back and asks again.
        return KafkaError.OPERATION_NOT_ATTEMPTED
    if row is None or row.leadership is None:
        return KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    current = row.leadership
    if (
        proposal.partition_epoch > current.zk_version
        or proposal.leader_epoch > current.leader_epoch
    ):
        # The leader has heard of a newer controller than this one.
        return KafkaError.NOT_CONTROLLER
    if proposal.leader_epoch < current.leader_epoch:
        return KafkaError.FENCED_LEADER_EPOCH
    if event.broker != current.leader:
        return KafkaError.INVALID_REQUEST
    if set(proposal.isr) == set(current.isr) and proposal.recovering == current.recovering:
        return current
    if proposal.partition_epoch < current.zk_version:
        return KafkaError.INVALID_UPDATE_VERSION
    return _judge_isr(cluster, tp, row, event, proposal)


def _judge_isr(
    cluster: ClusterState,
    tp: TopicPartition,
    row: Row,
    event: AlterPartitionReceived,
    proposal: IsrProposal,
) -> Leadership | KafkaError:
    current = row.leadership
    assert current is not None
    isr = tuple(dict.fromkeys(proposal.isr))
    if event.broker not in isr or any(b not in row.assignment.replicas for b in isr):
        return KafkaError.INVALID_REQUEST
    if proposal.recovering and (len(isr) > 1 or not current.recovering):
        return KafkaError.INVALID_REQUEST
    if not all(cluster.is_online(b, tp) for b in isr):
        if event.version >= INELIGIBLE_REPLICA_SINCE:
            return KafkaError.INELIGIBLE_REPLICA
        return KafkaError.OPERATION_NOT_ATTEMPTED
    return Leadership(
        current.leader,
        isr,
        current.leader_epoch,
        cluster.epoch,
        current.zk_version,
        proposal.recovering,
    )


async def _commit(
    cluster: ClusterState,
    proposals: dict[TopicPartition, Leadership],
    waiting: dict[TopicPartition, _Request],
    outbox: Outbox,
) -> None:
    written = await write_leaderships(cluster, proposals)
    for tp, (_, row) in written.done.items():
        assert row.leadership is not None
        waiting[tp].outcomes[tp] = row.leadership
    for tp in written.stale:
        waiting[tp].outcomes[tp] = KafkaError.INVALID_UPDATE_VERSION
    for tp, reason in written.failed.items():
        waiting[tp].outcomes[tp] = KafkaError.UNKNOWN_SERVER_ERROR
        outbox.tell("ISR not changed", reason, key=str(tp))
    tell_changes(outbox, "ISR changed", "its leader asked for it", written.done)
    proposals.clear()
    waiting.clear()


# -- leaders that write ZooKeeper themselves -------------------------------------------------


async def on_isr_change_notification(cluster: ClusterState, outbox: Outbox) -> None:
    """Old leaders changed ISRs: read them again and tell everybody."""
    notifications = await ReadIsrNotifications()
    named: dict[TopicPartition, None] = {}
    for path, partitions in notifications.items():
        if isinstance(partitions, Malformed):
            outbox.tell(NOTIFICATION_DROPPED, partitions.reason, key=path)
            continue
        known = 0
        for pause, chunk in paced(partitions):
            if pause:
                await Flush()
            usable = dict.fromkeys([tp for tp in chunk if tp in cluster.rows])
            known += len(usable)
            named.update(usable)
        if not known:
            some = ", ".join(map(str, partitions[:3])) or "no partition"
            outbox.tell(NOTIFICATION_DROPPED, f"it names {some}, nothing that is known", key=path)
    await reread(cluster, tuple(named), outbox)
    await RemoveNotifications(tuple(notifications))
    await _drop_the_gone(cluster, named, outbox)
    await complete_ready(cluster, named, outbox)


async def _drop_the_gone(
    cluster: ClusterState, tps: Iterable[TopicPartition], outbox: Outbox
) -> None:
    """Out of ISRs into which an old leader took a replica back that was just leaving.

    Nobody else would take it out before the leader misses it, and till then whoever produces with
    acks=all waits.
    """
    gone: dict[TopicPartition, Replicas] = {}
    for pause, chunk in paced(tps):
        if pause:
            await Flush()
        for tp in chunk:
            row = cluster.rows.get(tp)
            isr = () if row is None else row.isr
            if row is None or cluster.online_replicas(tp, isr) == isr:
                continue
            dead = tuple([b for b in isr if b in row.replicas and not cluster.is_online(b, tp)])
            if dead and cluster.is_online(row.leader, tp) and cluster.is_led(tp):
                gone[tp] = dead
    await take_offline(cluster, gone, outbox, "its leader took it back as it left", fenced=gone)


async def on_reassignment_isr_change(
    cluster: ClusterState, event: PartitionReassignmentIsrChange, outbox: Outbox
) -> None:
    if event.partition in cluster.reassigning:
        await reread(cluster, (event.partition,), outbox)
        await complete_ready(cluster, (event.partition,), outbox)


async def reread(cluster: ClusterState, tps: Sequence[TopicPartition], outbox: Outbox) -> None:
    for batch in chunks(tps, WRITE):
        found = await ReadPartitions(batch)
        strangers: list[TopicPartition] = []
        for pause, chunk in paced(batch):
            if pause:
                await Flush()
            for tp in chunk:
                if tp not in cluster.rows:
                    continue
                reason = refresh(cluster, tp, found.get(tp, Code.NO_NODE))
                if reason is not None:
                    outbox.tell("state not read", reason, key=str(tp))
                row = cluster.rows[tp]
                if within_replicas(row) != row.isr:
                    strangers.append(tp)
        tell_metadata(outbox, batch)
        await flush(cluster, outbox)
        await renew_leaderships(cluster, strangers, outbox, "its ISR named a replica that left")
