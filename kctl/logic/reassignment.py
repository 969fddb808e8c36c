"""Partition reassignment, in Kafka's steps and by Kafka's labels.

U   the topic znode takes the new value: target, then what is left of the origin
A   the target is not in sync yet: leader epoch raised, new replicas told to start
B   the target is in sync: leader moved into the target and the rest out of the ISR (B3, B4 in one
    write), removed replicas deleted (B5), the topic znode takes the final value (B6), the admin
    znode is cleared (B7), everybody is told (B8)

Each step is repeated from the top whenever something changes (ISR, brokers, failover), so every
step must be safe to repeat. In ZooKeeper the ISR never names a replica that the topic znode does
not: replicas that vanish leave the ISR first.
"""

from collections.abc import Iterable, Mapping

from kctl.logic import deletion
from kctl.logic.chunks import FEW, SMALL, chunks, mapping_chunks, paced
from kctl.logic.elections import bumped
from kctl.logic.partitions import initialize_partitions
from kctl.logic.recipients import flush, tell_leadership
from kctl.logic.replicas import begin_new_replicas, begin_service, retire
from kctl.logic.writing import (
    ATTEMPTS_MAX,
    refresh,
    retry_later,
    tell_changes,
    write_assignments,
    write_leaderships,
)
from kctl.messages.answers import OK, ApiError, PartitionErrors, Reassignments
from kctl.messages.effects import (
    Flush,
    ReadPartitions,
    ReadReassignments,
    WatchPartitions,
    WriteReassignments,
)
from kctl.messages.events import (
    ApiPartitionReassignment,
    ListPartitionReassignments,
    ZkPartitionReassignment,
)
from kctl.messages.outbox import Outbox
from kctl.model.cluster import ClusterState
from kctl.model.codes import Code, KafkaError, Malformed
from kctl.model.names import NO_LEADER, BrokerId, TopicPartition
from kctl.model.rows import Assignment, Leadership, Replicas, Row
from kctl.model.states import PartitionState, ReplicaState

NODE = "/admin/reassign_partitions"
QUARANTINED = "its state cannot be understood: who has its data is not known"


async def reassign(
    cluster: ClusterState, wanted: Mapping[TopicPartition, Assignment], outbox: Outbox
) -> dict[TopicPartition, str]:
    """Give these partitions new assignments and take each as far as it goes; the failed ones."""
    for tp in wanted:
        deletion.hold_for_reassignment(cluster, tp.topic, outbox)
    failed: dict[TopicPartition, str] = {}
    for chunk in mapping_chunks(wanted):
        failed.update(await _update(cluster, chunk, outbox))
        await advance(cluster, [tp for tp in chunk if tp not in failed], outbox)
    return failed


async def advance(cluster: ClusterState, tps: Iterable[TopicPartition], outbox: Outbox) -> None:
    """Complete those whose target is in sync, start or restart the others."""
    for chunk in chunks(tps):
        usable = [tp for tp in chunk if tp in cluster.rows and tp not in cluster.poisoned]
        await _advance(cluster, usable, outbox)


async def _advance(cluster: ClusterState, known: list[TopicPartition], outbox: Outbox) -> None:
    if not cluster.leaders_use_alter_partition and known:
        # Leaders write ISRs themselves; a watch tells when, a read tells what.
        await WatchPartitions(tuple(tp for tp in known if tp in cluster.reassigning))
        for tp, seen in (await ReadPartitions(tuple(known))).items():
            refresh(cluster, tp, seen)
    unborn = [tp for tp in known if cluster.rows[tp].leadership is None]
    await initialize_partitions(cluster, unborn, outbox, "reassigned")
    finished = {tp: None for tp in known if is_complete(cluster.rows[tp])}
    started = {
        tp: None for tp in known if tp not in finished and cluster.rows[tp].leadership is not None
    }
    await _start(cluster, started, outbox)
    await _finish(cluster, finished, outbox)


def is_complete(row: Row) -> bool:
    if not row.assignment.is_reassigning:
        return True
    return bool(row.isr) and all(b in row.isr for b in row.assignment.target)


# -- phase U ---------------------------------------------------------------------------------


async def _update(
    cluster: ClusterState, wanted: Mapping[TopicPartition, Assignment], outbox: Outbox
) -> dict[TopicPartition, str]:
    changed = {tp: a for tp, a in wanted.items() if cluster.rows[tp].assignment != a}
    failed = await _leave_isr(cluster, changed, outbox)
    changed = {tp: a for tp, a in changed.items() if tp not in failed}
    if changed:
        failed.update(await write_assignments(cluster, changed, outbox))  # U1
    changes: dict[TopicPartition, tuple[Row, Row]] = {}
    for pause, chunk in paced(changed, FEW):
        if pause:
            await Flush()
        for tp in chunk:
            if tp in failed:
                outbox.tell("reassignment failed", failed[tp], key=str(tp))
                continue
            before, assignment = cluster.rows[tp], changed[tp]
            vanished = tuple(b for b in before.replicas if b not in assignment.replicas)
            retire(cluster, outbox, tp, vanished)  # U3
            _put_assignment(cluster, tp, assignment)  # U2
            changes[tp] = (before, cluster.rows[tp])
    tell_changes(outbox, "assignment changed", "reassignment", changes)
    for tp in wanted:
        if tp not in failed:
            cluster.reassigning[tp] = None
    await flush(cluster, outbox)
    return failed


async def _leave_isr(
    cluster: ClusterState, changed: Mapping[TopicPartition, Assignment], outbox: Outbox
) -> dict[TopicPartition, str]:
    """Replicas that vanish with U1 (cancelled or overridden) leave the ISR before it."""
    failed: dict[TopicPartition, str] = {}
    pending = dict.fromkeys(changed)
    for _ in range(ATTEMPTS_MAX):
        proposals: dict[TopicPartition, Leadership] = {}
        for tp in pending:
            row = cluster.rows[tp]
            keep = changed[tp].replicas
            if row.leadership is None or all(b in keep for b in row.isr):
                continue
            proposal = _narrowed(cluster, tp, row.leadership, keep)
            if proposal is None:
                failed[tp] = (
                    f"of the ISR {list(row.isr)} no live member would be left in {list(keep)}"
                )
            else:
                proposals[tp] = proposal
        written = await write_leaderships(cluster, proposals)
        failed.update(written.failed)
        for tp, (before, _) in written.done.items():
            _come_online(cluster, tp)
            tell_leadership(cluster, outbox, tp, before.replicas)
        tell_changes(outbox, "ISR shrunk", "replicas leave the assignment", written.done)
        pending = written.stale
        if not pending:
            return failed
    failed.update(dict.fromkeys(pending, "its state kept changing"))
    return failed


def _narrowed(
    cluster: ClusterState, tp: TopicPartition, leadership: Leadership, keep: Replicas
) -> Leadership | None:
    """ISR within `keep`, led by a live member of it; an offline partition may stay without."""
    isr = tuple(b for b in leadership.isr if b in keep)
    if not isr:
        return None
    leader = leadership.leader
    if leader not in isr or not cluster.is_online(leader, tp):
        online = cluster.online_replicas(tp, tuple(b for b in keep if b in isr))
        if not online and leader != NO_LEADER:
            return None
        leader = online[0] if online else NO_LEADER
    return bumped(leadership, leader, isr, cluster.epoch)


def _come_online(cluster: ClusterState, tp: TopicPartition) -> None:
    row = cluster.rows[tp]
    if row.state is PartitionState.OFFLINE and row.leader != NO_LEADER:
        cluster.put(tp, row.in_state(PartitionState.ONLINE))


def _put_assignment(cluster: ClusterState, tp: TopicPartition, assignment: Assignment) -> None:
    """Replicas that come are New as soon as the topic znode names them, told or not."""
    row = cluster.rows[tp].reassigned(cluster.share(assignment))
    absent, deleted = ReplicaState.NON_EXISTENT, ReplicaState.DELETION_SUCCESSFUL
    # One that was deleted already and is wanted again begins anew.
    again = [b for b in assignment.target if row.replica_state(b) is deleted]
    if again:
        row = row.with_replicas_in(again, absent)
        cluster.put(tp, row)
    new = [b for b in assignment.replicas if row.replica_state(b) is absent]
    states = cluster.share_states(row.with_replicas_in(new, ReplicaState.NEW).replica_states)
    cluster.put(tp, Row(row.assignment, row.leadership, row.state, states))


# -- phase A ---------------------------------------------------------------------------------


async def _start(cluster: ClusterState, tps: Mapping[TopicPartition, None], outbox: Outbox) -> None:
    pending = dict(tps)
    for _ in range(ATTEMPTS_MAX):
        proposals = {}
        for tp in pending:
            leadership = cluster.rows[tp].leadership
            if leadership is not None:
                proposals[tp] = bumped(leadership, leadership.leader, leadership.isr, cluster.epoch)
        written = await write_leaderships(cluster, proposals)  # A1
        adding: dict[TopicPartition, Replicas] = {}
        for tp in written.done:
            assignment = cluster.rows[tp].assignment
            tell_leadership(cluster, outbox, tp, assignment.origin)
            if assignment.adding:
                adding[tp] = assignment.adding
        tell_changes(outbox, "reassignment under way", "target not in sync", written.done)
        await begin_new_replicas(cluster, adding, outbox)  # A2
        for tp, reason in written.failed.items():
            outbox.tell("reassignment waits", reason, key=str(tp))
        pending = written.stale
        if not pending:
            return
    retry_later(outbox)


# -- phase B ---------------------------------------------------------------------------------


async def _finish(
    cluster: ClusterState, tps: Mapping[TopicPartition, None], outbox: Outbox
) -> None:
    unborn = {tp: None for tp in tps if cluster.rows[tp].leadership is None}
    moved = await _move_leaders(cluster, [tp for tp in tps if tp not in unborn], outbox)
    # Where nobody leaves, as when only the order changes, no leader need be found first.
    ready = {
        tp: None
        for tp in tps
        if tp in moved or tp in unborn or not cluster.rows[tp].assignment.is_reassigning
    }
    if not ready:
        return
    for pause, chunk in paced(ready, FEW):
        if pause:
            await Flush()
        for tp in chunk:
            assignment = cluster.rows[tp].assignment
            begin_service(cluster, tp, assignment.adding)  # B1
            retire(cluster, outbox, tp, assignment.removing)  # B4, B5
    # Till B6 the assignment alone records the old replicas, so their StopReplicas leave first.
    await flush(cluster, outbox)
    final = {tp: cluster.rows[tp].assignment.completed() for tp in ready}
    needed = {tp: a for tp, a in final.items() if cluster.rows[tp].assignment != a}
    failed = await write_assignments(cluster, needed, outbox)  # B6
    done: dict[TopicPartition, tuple[Row, Row]] = {}
    for pause, chunk in paced(ready, FEW):
        if pause:
            await Flush()
        for tp in chunk:
            if tp in failed:
                outbox.tell("reassignment not finished", failed[tp], key=str(tp))
            else:
                before = cluster.rows[tp]
                _put_assignment(cluster, tp, final[tp])  # B2
                cluster.reassigning.pop(tp, None)
                done[tp] = (before, cluster.rows[tp])
            # A broker heeds a leader epoch once, so that of B3 is told with the final replicas.
            tell_leadership(cluster, outbox, tp, cluster.rows[tp].assignment.target)  # B8
    tell_changes(outbox, "reassignment finished", "target in sync", done)
    await flush(cluster, outbox)
    await _forget_admin_node(cluster, done, outbox)  # B7
    if not cluster.leaders_use_alter_partition:
        await WatchPartitions(tuple(done), watch=False)
    for topic in dict.fromkeys(tp.topic for tp in done):
        deletion.lift_hold(cluster, topic)
    if cluster.deletions:
        await deletion.resume_deletions(cluster, outbox)


async def _move_leaders(
    cluster: ClusterState, tps: Iterable[TopicPartition], outbox: Outbox
) -> dict[TopicPartition, None]:
    """B3 and B4 in one write: a leader in the target, and only target replicas in the ISR."""
    moved: dict[TopicPartition, None] = {}
    pending = dict.fromkeys(tps)
    for _ in range(ATTEMPTS_MAX):
        proposals: dict[TopicPartition, Leadership] = {}
        for tp in pending:
            row = cluster.rows[tp]
            if row.leadership is None or not is_complete(row):
                continue
            proposal = _narrowed(cluster, tp, row.leadership, row.assignment.target)
            if proposal is None:
                outbox.tell("reassignment waits", "no live leader in the target", key=str(tp))
            else:
                proposals[tp] = proposal
        written = await write_leaderships(cluster, proposals)
        moved.update(dict.fromkeys(written.done))
        for tp in written.done:
            _come_online(cluster, tp)
        for tp, reason in written.failed.items():
            outbox.tell("reassignment waits", reason, key=str(tp))
        tell_changes(outbox, "leader moved", "reassignment completes", written.done)
        pending = written.stale
        if not pending:
            return moved
    retry_later(outbox)
    return moved


async def _forget_admin_node(
    cluster: ClusterState, done: Iterable[TopicPartition], outbox: Outbox
) -> None:
    """B7: entries whose replicas are exactly what was reached; an emptied znode is deleted."""
    await _drop_from_admin_node({tp: cluster.rows[tp].assignment.replicas for tp in done}, outbox)


async def _drop_from_admin_node(
    entries: Mapping[TopicPartition, Replicas | None], outbox: Outbox
) -> None:
    node = await ReadReassignments()
    if isinstance(node, Code | Malformed):
        return
    left = {
        tp: replicas
        for tp, replicas in node.items()
        if tp not in entries or entries[tp] not in (None, replicas)
    }
    if len(left) != len(node):
        code = await WriteReassignments(left)
        if code in (Code.NO_AUTH, Code.TOO_LARGE):
            outbox.tell("znode not cleared", f"it could not be written: {code.value}", key=NODE)
        elif not left or code is not Code.OK:
            # Somebody may create it again at once: look, and arm the watch anew. Or it is not
            # known whether it was written: look too, or what is through would stay in it.
            outbox.events.append(ZkPartitionReassignment())


# -- who asks for it -------------------------------------------------------------------------


async def on_api_reassignment(
    cluster: ClusterState, event: ApiPartitionReassignment, outbox: Outbox
) -> None:
    errors: dict[TopicPartition, ApiError] = {}
    wanted: dict[TopicPartition, Assignment] = {}
    for pause, chunk in paced(event.targets, SMALL):
        if pause:
            await Flush()
        for tp in chunk:
            outcome = _validate(cluster, tp, event.targets[tp])
            if isinstance(outcome, ApiError):
                errors[tp] = outcome
            else:
                wanted[tp] = outcome
    if wanted:
        # The API beats the znode.
        await _drop_from_admin_node(dict.fromkeys(wanted), outbox)
        failed = await reassign(cluster, wanted, outbox)
        for tp in wanted:
            errors[tp] = (
                ApiError(KafkaError.INVALID_REPLICA_ASSIGNMENT, failed[tp]) if tp in failed else OK
            )
    outbox.answer(event.caller, PartitionErrors({tp: errors[tp] for tp in event.targets}))


def _validate(
    cluster: ClusterState, tp: TopicPartition, target: Replicas | None
) -> Assignment | ApiError:
    row = cluster.rows.get(tp)
    unknown = ApiError(KafkaError.UNKNOWN_TOPIC_OR_PARTITION, f"partition {tp} does not exist")
    if target is not None and (reason := _bad_replicas(cluster, row, target)) is not None:
        return ApiError(KafkaError.INVALID_REPLICA_ASSIGNMENT, reason)
    if row is None or tp.topic in cluster.deletions:
        return unknown
    if tp in cluster.poisoned:
        return ApiError(KafkaError.UNKNOWN_SERVER_ERROR, QUARANTINED)
    if target is not None:
        return row.assignment.reassign_to(target)
    if not row.assignment.is_reassigning:
        return ApiError(KafkaError.NO_REASSIGNMENT_IN_PROGRESS, f"{tp} is not being reassigned")
    return row.assignment.reassign_to(row.assignment.origin)


def _bad_replicas(cluster: ClusterState, row: Row | None, target: Replicas) -> str | None:
    reason = _nonsense(cluster, target)
    if reason is not None:
        return reason
    origin = () if row is None else row.assignment.origin
    missing = [b for b in target if b not in origin and b not in cluster.live]
    return f"brokers {missing} are not alive" if missing else None


def _nonsense(cluster: ClusterState, target: Replicas) -> str | None:
    if not target:
        return "the replica list is empty"
    if len(set(target)) != len(target):
        return f"the replica list {list(target)} has duplicates"
    if min(target) < 0:
        return f"the replica list {list(target)} has a negative broker id"
    named = [i for i in cluster.controller_ids if i in target]
    return f"{named[0]} is the controller and never a replica" if named else None


async def on_zk_reassignment(
    cluster: ClusterState, outbox: Outbox
) -> Mapping[TopicPartition, Assignment]:
    """The znode of old tools. Dead targets are accepted and waited for; nonsense is dropped.

    What it asked for, as far as it makes sense.
    """
    node = await ReadReassignments()
    if isinstance(node, Malformed):
        if cluster.quarantine.get(node.path) != node.reason:
            outbox.tell("quarantined", node.reason, key=node.path)
        cluster.quarantine[node.path] = node.reason
        return {}
    cluster.heal(NODE)
    if isinstance(node, Code):
        return {}
    if not node:
        await WriteReassignments({})  # it asks for nothing, and would block the next one
        return {}
    wanted: dict[TopicPartition, Assignment] = {}
    refused: dict[TopicPartition, None] = {}
    for tp, target in node.items():
        row = cluster.rows.get(tp)
        reason = _nonsense(cluster, target)
        if row is None or tp.topic in cluster.deletions:
            reason = "there is no such partition, or its topic is being deleted"
        elif tp in cluster.poisoned:
            reason = QUARANTINED
        if row is None or reason is not None:
            refused[tp] = None
            outbox.tell("reassignment refused", reason or "", key=str(tp))
        else:
            wanted[tp] = row.assignment.reassign_to(target)
    failed = await reassign(cluster, wanted, outbox)
    refused.update(dict.fromkeys(failed))
    if refused:
        await _drop_from_admin_node(dict.fromkeys(refused), outbox)
    return wanted


async def resume(cluster: ClusterState, outbox: Outbox) -> None:
    """At failover: the znode first, it wins; then whatever the topic znodes say is under way."""
    named = await on_zk_reassignment(cluster, outbox)
    under_way = [tp for tp in cluster.reassigning if tp not in named]
    for tp in under_way:
        deletion.hold_for_reassignment(cluster, tp.topic, outbox)
    await advance(cluster, under_way, outbox)


async def resume_on_brokers(cluster: ClusterState, ids: Iterable[BrokerId], outbox: Outbox) -> None:
    back = tuple(ids)
    concerned = [
        tp
        for tp in cluster.reassigning
        if any(b in cluster.rows[tp].assignment.target for b in back)
    ]
    if concerned:
        await advance(cluster, concerned, outbox)


async def complete_ready(
    cluster: ClusterState, tps: Iterable[TopicPartition], outbox: Outbox
) -> None:
    """ISRs changed: finish the reassignments that only waited for that."""
    if not cluster.reassigning:
        return
    ready = {
        tp: None
        for tp in tps
        if tp in cluster.reassigning
        and tp not in cluster.poisoned
        and is_complete(cluster.rows[tp])
    }
    for chunk in mapping_chunks(ready):
        await _finish(cluster, chunk, outbox)


def on_list_reassignments(
    cluster: ClusterState, event: ListPartitionReassignments, outbox: Outbox
) -> None:
    asked = cluster.reassigning if event.partitions is None else event.partitions
    outbox.answer(
        event.caller,
        Reassignments(
            {
                tp: row.assignment
                for tp in asked
                if (row := cluster.rows.get(tp)) is not None and row.assignment.is_reassigning
            }
        ),
    )
