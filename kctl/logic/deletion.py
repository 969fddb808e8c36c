"""Topic deletion: queued, put on hold, started, answered, completed.

A topic is *queued* from the moment its marker is seen until it is gone. It is *ineligible* while
something stands in the way: a replica that cannot be reached, a reassignment, a refusal. It is
*started* once its partitions were moved to NonExistent. `resume_deletions` runs after every change
that could matter and looks at counters, not at rows.
"""

from collections.abc import Iterable, Mapping, Sequence

from kctl.logic.chunks import chunks, paced, paced_by
from kctl.logic.controllership import still_ours
from kctl.logic.recipients import flush, tell_metadata
from kctl.logic.replicas import (
    finish_deletion,
    make_ineligible,
    start_deletion,
    to_offline,
)
from kctl.logic.writing import retry_later
from kctl.messages.effects import (
    Flush,
    RemovePartitionNodes,
    RemoveTopicNodes,
    UnmarkForDeletion,
)
from kctl.messages.events import (
    TopicDeletion,
    TopicDeletionStopReplicaResponseReceived,
)
from kctl.messages.outbox import Outbox, StartTimer
from kctl.messages.term import ControllerMoved
from kctl.model.cluster import ClusterState, Deletion
from kctl.model.codes import Code, KafkaError
from kctl.model.names import BrokerId, TopicPartition
from kctl.model.rows import Replicas
from kctl.model.states import PartitionState, ReplicaState

REMOVAL_ATTEMPTS_MAX = 3
REMOVAL_RETRY_MS = 1_000
REASSIGNMENT_IN_PROGRESS = "one of its partitions is being reassigned"
REFUSED = "a broker refused to delete a replica"


async def queue(cluster: ClusterState, marked: Iterable[str], outbox: Outbox) -> None:
    """Markers of topics that do not exist are removed; with deletion switched off, all are."""
    names = dict.fromkeys(marked)
    if cluster.settings.delete_topic_enable:
        unwanted = [t for t in names if t not in cluster.topics and not _in_quarantine(cluster, t)]
    else:
        unwanted = list(names)
    for chunk in chunks(unwanted):
        await UnmarkForDeletion(chunk)
        for topic in chunk:
            outbox.tell("deletion refused", "no such topic, or deletion is disabled", key=topic)
    if cluster.settings.delete_topic_enable:
        reassigned = {tp.topic: None for tp in cluster.reassigning}
        for topic in [t for t in names if t in cluster.topics]:
            cluster.queue_deletion(topic)
            if topic in reassigned:
                hold_for_reassignment(cluster, topic, outbox)


def _in_quarantine(cluster: ClusterState, topic: str) -> bool:
    return f"/brokers/topics/{topic}" in cluster.quarantine


async def resume_deletions(cluster: ClusterState, outbox: Outbox) -> None:
    complete: list[str] = []
    retry: list[str] = []
    start: list[str] = []
    for topic, deletion in cluster.deletions.items():
        counts = deletion.counts
        started = counts.get(ReplicaState.DELETION_STARTED, 0)
        if sum(counts.values()) == counts.get(ReplicaState.DELETION_SUCCESSFUL, 0):
            complete.append(topic)
            continue
        if not started and counts.get(ReplicaState.DELETION_INELIGIBLE, 0):
            retry.append(topic)
        if not started and deletion.ineligible is None:
            start.append(topic)
    for topic in retry:
        for tp in cluster.partitions_of(topic):
            row = cluster.rows[tp]
            ineligible = ReplicaState.DELETION_INELIGIBLE
            waiting = [b for b in row.replicas if row.replica_state(b) is ineligible]
            to_offline(cluster, tp, tuple(waiting))
    if start:
        await _start(cluster, start, outbox)
    if complete:
        await _complete(cluster, complete, outbox)


async def _start(cluster: ClusterState, topics: Sequence[str], outbox: Outbox) -> None:
    doomed = [tp for topic in topics for tp in cluster.partitions_of(topic)]
    for chunk in chunks(doomed):
        for tp in chunk:
            if not cluster.deletions[tp.topic].started:
                for state in (PartitionState.OFFLINE, PartitionState.NON_EXISTENT):
                    cluster.put(tp, cluster.rows[tp].in_state(state))
        # Told with leader -2: the brokers drop the topic from their caches.
        tell_metadata(outbox, chunk)
        await flush(cluster, outbox)
    for topic in topics:
        if not cluster.deletions[topic].started:
            cluster.deletions[topic].started = True
            outbox.tell("deletion started", "its marker was found", key=topic)
    dead: dict[TopicPartition, Replicas] = {}
    alive: dict[TopicPartition, Replicas] = {}
    successful = ReplicaState.DELETION_SUCCESSFUL
    for pause, chunk in paced(doomed):
        if pause:
            await Flush()
        for tp in chunk:
            row = cluster.rows[tp]
            states = zip(row.assignment.replicas, row.replica_states, strict=True)
            left = tuple([broker for broker, state in states if state is not successful])
            online = cluster.online_replicas(tp, left)
            if online:
                alive[tp] = online
            if len(online) < len(left):
                dead[tp] = tuple([b for b in left if b not in online])
    await make_ineligible(cluster, dead)
    for tp, brokers in dead.items():
        _hold(cluster, tp.topic, f"replica of {tp} on broker {brokers[0]} is offline", outbox)
    await start_deletion(cluster, alive, outbox)


def _hold(cluster: ClusterState, topic: str, reason: str, outbox: Outbox) -> None:
    deletion = cluster.deletions.get(topic)
    if deletion is not None and deletion.ineligible is None:
        deletion.ineligible = reason
        outbox.tell("deletion on hold", reason, key=topic)


async def _complete(cluster: ClusterState, topics: Sequence[str], outbox: Outbox) -> None:
    """Children first in bounded steps; the last step takes topic, config and marker together."""
    left = dict.fromkeys(topics)
    for _ in range(REMOVAL_ATTEMPTS_MAX):
        doomed = [tp for topic in left for tp in cluster.partitions_of(topic)]
        for chunk in chunks(doomed):
            await RemovePartitionNodes(chunk)
        for some in chunks(list(left)):
            codes = await RemoveTopicNodes(some)
            gone = [t for t in some if codes.get(t, Code.UNKNOWN) in (Code.OK, Code.NO_NODE)]
            for pause, topic in paced_by(gone, lambda t: len(cluster.topics[t].partitions)):
                if pause:
                    await Flush()
                del left[topic]
                cluster.depart(topic)
                outbox.tell("topic deleted", "all its replicas are gone", key=topic)
        if not left:
            return
    for topic in left:
        outbox.tell("deletion not finished", "its znodes could not be removed yet", key=topic)
    outbox.timers.append(StartTimer("deletion", REMOVAL_RETRY_MS, TopicDeletion()))


async def on_stop_replica_responses(
    cluster: ClusterState,
    events: Sequence[TopicDeletionStopReplicaResponseReceived],
    outbox: Outbox,
) -> None:
    """Many answers, one look at what they make possible."""
    deleted: dict[TopicPartition, Replicas] = {}
    refused: dict[TopicPartition, Replicas] = {}
    for pause, event in paced_by(events, lambda e: len(e.partition_errors)):
        if pause:
            await Flush()
        broker = cluster.brokers.get(event.broker)
        if broker is None or broker.epoch != event.broker_epoch:
            continue  # of an older incarnation, whose failure was or will be handled
        errors = event.partition_errors
        if event.error != KafkaError.NONE and not errors:
            # Refused as a whole, without a word on any partition: none of them was deleted.
            errors = dict.fromkeys(started_on(cluster, event.broker), event.error)
        if event.error == KafkaError.STALE_CONTROLLER_EPOCH and not await still_ours(cluster):
            raise ControllerMoved(f"broker {event.broker} obeys a newer controller")
        for tp, error in errors.items():
            if tp.topic not in cluster.deletions or tp not in cluster.rows:
                continue
            if event.error == KafkaError.NONE and error == KafkaError.NONE:
                deleted[tp] = (*deleted.get(tp, ()), event.broker)
            else:
                refused[tp] = (*refused.get(tp, ()), event.broker)
    for pause, chunk in paced(deleted):
        if pause:
            await Flush()
        for tp in chunk:
            finish_deletion(cluster, tp, deleted[tp])
    if refused:
        await fail_replicas(cluster, refused, outbox, REFUSED)
        retry_later(outbox)
    else:
        await resume_deletions(cluster, outbox)


async def fail_replicas(
    cluster: ClusterState, replicas: Mapping[TopicPartition, Replicas], outbox: Outbox, why: str
) -> None:
    """Deletion of these replicas has failed: their topics wait until something changes."""
    failed: dict[TopicPartition, Replicas] = {}
    for tp, brokers in replicas.items():
        row = cluster.rows[tp]
        undone = tuple(
            b
            for b in brokers
            if row.replica_state(b)
            not in (ReplicaState.DELETION_SUCCESSFUL, ReplicaState.NON_EXISTENT)
        )
        if undone:
            failed[tp] = undone
    await make_ineligible(cluster, failed)
    for tp in failed:
        _hold(cluster, tp.topic, why, outbox)
    await resume_deletions(cluster, outbox)


async def try_refused_again(cluster: ClusterState, outbox: Outbox) -> None:
    """A broker that refused once may have had its reasons; nothing else would ask it again."""
    refused = [t for t, deletion in cluster.deletions.items() if deletion.ineligible == REFUSED]
    for topic in refused:
        lift_hold(cluster, topic)
    if refused:
        await resume_deletions(cluster, outbox)


async def resume_on_brokers(cluster: ClusterState, ids: Iterable[BrokerId], outbox: Outbox) -> None:
    """A broker that hosts replicas of theirs is back."""
    back = tuple(ids)
    for topic in list(cluster.deletions):
        if any(b in cluster.rows[tp].replicas for tp in cluster.partitions_of(topic) for b in back):
            lift_hold(cluster, topic)
    if cluster.deletions:
        await resume_deletions(cluster, outbox)


def lift_hold(cluster: ClusterState, topic: str) -> None:
    deletion: Deletion | None = cluster.deletions.get(topic)
    if deletion is not None and not any(tp.topic == topic for tp in cluster.reassigning):
        deletion.ineligible = None


def hold_for_reassignment(cluster: ClusterState, topic: str, outbox: Outbox) -> None:
    _hold(cluster, topic, REASSIGNMENT_IN_PROGRESS, outbox)


def started_on(cluster: ClusterState, broker: BrokerId) -> list[TopicPartition]:
    """Deletions that this broker has been told and has not answered."""
    return [
        tp
        for tp in cluster.partitions_on(broker)
        if tp.topic in cluster.deletions
        and cluster.rows[tp].replica_state(broker) is ReplicaState.DELETION_STARTED
    ]
