"""The replica state machine: what entering each state does.

Replicas are named as a mapping from partition to brokers, so that several replicas of one
partition cost one write.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from kctl.logic.chunks import REQUEST, ROUND, SMALL, WRITE, chunks, mapping_chunks, paced
from kctl.logic.elections import bumped, removed_from_isr
from kctl.logic.recipients import flush, stop_replica, tell_leadership, tell_leaderships
from kctl.logic.writing import (
    ATTEMPTS_MAX,
    retry_later,
    states_offline,
    tell_changes,
    write_leaderships,
)
from kctl.messages.effects import Flush
from kctl.messages.outbox import Outbox
from kctl.model.cluster import ClusterState
from kctl.model.names import BrokerId, TopicPartition
from kctl.model.rows import Leadership, Replicas, Row
from kctl.model.states import ReplicaState

CAN_GO_OFFLINE = (ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.DELETION_INELIGIBLE)
CAN_GO_ONLINE = (*CAN_GO_OFFLINE, ReplicaState.OFFLINE)


async def replicas_on(
    cluster: ClusterState, brokers: Iterable[BrokerId]
) -> dict[TopicPartition, Replicas]:
    """With a pause for each broker but the first: a rack may come or go at once."""
    found: dict[TopicPartition, Replicas] = {}
    for broker in brokers:
        on_it = cluster.partitions_on(broker)
        if not found:
            found = dict.fromkeys(on_it, (broker,))
        else:
            await Flush()
            found.update([(tp, (*found.get(tp, ()), broker)) for tp in on_it])
    return found


async def take_online(
    cluster: ClusterState, replicas: Mapping[TopicPartition, Replicas], outbox: Outbox
) -> None:
    """OnlineReplica: each is told the current leadership. Those in deletion are left to it."""
    for round_ in chunks(replicas, ROUND):
        for pause, chunk in paced(round_):
            if pause:
                await Flush()
            ready: dict[TopicPartition, Replicas] = {}
            for tp in chunk:
                row, brokers = cluster.rows[tp], replicas[tp]
                able, states = _with_online(row.assignment.replicas, row.replica_states, brokers)
                if not able:
                    continue
                if states is not row.replica_states:
                    row = Row(row.assignment, row.leadership, row.state, states)
                    cluster.put(tp, row)
                if row.leadership is not None and cluster.is_led(tp):
                    ready[tp] = able
            tell_leaderships(cluster, outbox, ready.items())
        await flush(cluster, outbox)


@lru_cache(maxsize=4_096)
def _with_online(
    replicas: Replicas, states: tuple[ReplicaState, ...], brokers: Replicas
) -> tuple[Replicas, tuple[ReplicaState, ...]]:
    """Those of the brokers that can go online, and the states with them there; many rows share it."""
    able = tuple(
        replica
        for replica, state in zip(replicas, states, strict=True)
        if replica in brokers and state in CAN_GO_ONLINE
    )
    online = tuple(
        ReplicaState.ONLINE if replica in able else state
        for replica, state in zip(replicas, states, strict=True)
    )
    return able, states if online == states else online


async def take_offline(
    cluster: ClusterState,
    replicas: Mapping[TopicPartition, Replicas],
    outbox: Outbox,
    why: str,
    *,
    fenced: Mapping[TopicPartition, object],
) -> dict[TopicPartition, None]:
    """OfflineReplica: out of the ISR, stopped where reachable, the others told; what was written.

    A replica that was outside the ISR costs an epoch too, unless the partition is in `fenced`
    (its epoch rose already, and everybody was told): a leader's delayed proposal to take that
    replica into the ISR could otherwise still be accepted after the broker came back with an empty
    disk.
    """
    told: dict[TopicPartition, None] = {}
    for chunk in mapping_chunks(replicas, WRITE):
        told.update(await _take_chunk_offline(cluster, chunk, outbox, why, fenced))
        await flush(cluster, outbox)
    return told


async def _take_chunk_offline(
    cluster: ClusterState,
    replicas: Mapping[TopicPartition, Replicas],
    outbox: Outbox,
    why: str,
    fenced: Mapping[TopicPartition, object],
) -> dict[TopicPartition, None]:
    told: dict[TopicPartition, None] = {}
    pending: dict[TopicPartition, None] = dict.fromkeys(replicas)
    for _ in range(ATTEMPTS_MAX):
        proposals: dict[TopicPartition, Leadership] = {}
        for pause, chunk in paced(pending):
            if pause:
                await Flush()
            for tp in chunk:
                row, gone = cluster.rows[tp], replicas[tp]
                proposal = _without(cluster, row, gone, fenced=tp in fenced)
                if proposal is not None:
                    proposals[tp] = proposal
                    continue
                states = states_offline(row, gone)
                if states is not row.replica_states:
                    row = Row(row.assignment, row.leadership, row.state, states)
                    cluster.put(tp, row)
                _stop(cluster, outbox, tp, row, gone)
        written = await write_leaderships(cluster, proposals, offline=replicas)
        for pause, done in paced(written.done.items()):
            if pause:
                await Flush()
            for tp, (_, row) in done:
                _stop(cluster, outbox, tp, row, replicas[tp])
            tell_leaderships(cluster, outbox, _to_those_left(done, replicas))
        told.update(dict.fromkeys(written.done))
        tell_changes(outbox, "replicas offline", why, written.done)
        for tp, reason in written.failed.items():
            outbox.tell("replica not taken offline", reason, key=str(tp))
        pending = written.stale
        if not pending:
            return told
    for tp in pending:
        outbox.tell("replica not taken offline", "its state kept changing", key=str(tp))
    retry_later(outbox)
    return told


def _to_those_left(
    done: Iterable[tuple[TopicPartition, tuple[Row, Row]]],
    replicas: Mapping[TopicPartition, Replicas],
) -> Iterator[tuple[TopicPartition, Iterable[BrokerId]]]:
    for tp, (_, row) in done:
        gone = replicas[tp]
        yield tp, [b for b in row.assignment.replicas if b not in gone]


def _without(cluster: ClusterState, row: Row, gone: Replicas, *, fenced: bool) -> Leadership | None:
    """The leadership without these replicas, or only at a new epoch; None if it can stay."""
    leadership = row.leadership
    if leadership is None:
        return None
    proposal = removed_from_isr(leadership, gone, cluster.epoch)
    if proposal is None and not fenced:
        return bumped(leadership, leadership.leader, leadership.isr, cluster.epoch)
    return proposal


def _stop(
    cluster: ClusterState, outbox: Outbox, tp: TopicPartition, row: Row, gone: Replicas
) -> None:
    """Those that are reachable; one that is deleted already needs no word."""
    brokers = cluster.brokers
    for broker in gone:
        if broker in brokers and row.replica_state(broker) is ReplicaState.OFFLINE:
            stop_replica(cluster, outbox, tp, broker, delete=False)


async def begin_new_replicas(
    cluster: ClusterState, replicas: Mapping[TopicPartition, Replicas], outbox: Outbox
) -> None:
    """NewReplica: told the leadership with isNew, so that the broker may create the log."""
    for chunk in mapping_chunks(replicas):
        for tp, brokers in chunk.items():
            tell_leadership(cluster, outbox, tp, brokers, is_new=True)
        await flush(cluster, outbox)


def begin_service(cluster: ClusterState, tp: TopicPartition, brokers: Replicas) -> None:
    """OnlineReplica of new replicas that are told in another way; one that is in deletion is not."""
    row = cluster.rows[tp]
    absent = tuple(b for b in brokers if row.replica_state(b) is ReplicaState.NON_EXISTENT)
    _put_states(cluster, tp, row, absent, ReplicaState.NEW)
    row = cluster.rows[tp]
    ready = tuple(b for b in brokers if row.replica_state(b) in CAN_GO_ONLINE)
    _put_states(cluster, tp, row, ready, ReplicaState.ONLINE)


async def start_deletion(
    cluster: ClusterState, replicas: Mapping[TopicPartition, Replicas], outbox: Outbox
) -> None:
    """Offline, then ReplicaDeletionStarted: StopReplica with deletion."""
    for round_ in chunks(replicas, ROUND):
        for pause, chunk in paced(round_, SMALL):
            if pause:
                await Flush()
            for tp in chunk:
                brokers = replicas[tp]
                to_offline(cluster, tp, brokers)
                _put_states(cluster, tp, cluster.rows[tp], brokers, ReplicaState.DELETION_STARTED)
                for broker in brokers:
                    stop_replica(cluster, outbox, tp, broker, delete=True)
        await flush(cluster, outbox)


async def make_ineligible(
    cluster: ClusterState, replicas: Mapping[TopicPartition, Replicas]
) -> None:
    """ReplicaDeletionIneligible, through Offline where the table asks for it."""
    for tp, brokers in replicas.items():
        row = cluster.rows[tp]
        started = ReplicaState.DELETION_STARTED
        to_offline(cluster, tp, tuple(b for b in brokers if row.replica_state(b) is not started))
        row = cluster.rows[tp]
        _put_states(cluster, tp, row, brokers, ReplicaState.DELETION_INELIGIBLE)


def to_offline(cluster: ClusterState, tp: TopicPartition, brokers: Replicas) -> None:
    """In memory only: what a deletion does not need to write, and what nobody needs to be told."""
    row = cluster.rows[tp]
    due = tuple(b for b in brokers if row.replica_state(b) in CAN_GO_OFFLINE)
    if due:
        _put_states(cluster, tp, row, due, ReplicaState.OFFLINE)


def finish_deletion(cluster: ClusterState, tp: TopicPartition, brokers: Replicas) -> None:
    """ReplicaDeletionSuccessful."""
    row = cluster.rows[tp]
    started = tuple(b for b in brokers if row.replica_state(b) is ReplicaState.DELETION_STARTED)
    if started:
        _put_states(cluster, tp, row, started, ReplicaState.DELETION_SUCCESSFUL)


def retire(cluster: ClusterState, outbox: Outbox, tp: TopicPartition, brokers: Replicas) -> None:
    """Replicas that leave an assignment: stopped, deleted, and not waited for."""
    to_offline(cluster, tp, brokers)
    offline = tuple(b for b in brokers if cluster.rows[tp].replica_state(b) is ReplicaState.OFFLINE)
    for state in (ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL):
        _put_states(cluster, tp, cluster.rows[tp], offline, state)
    for broker in brokers:
        stop_replica(cluster, outbox, tp, broker, delete=True)


def _put_states(
    cluster: ClusterState, tp: TopicPartition, row: Row, brokers: Replicas, state: ReplicaState
) -> None:
    states = row.states_with(brokers, state)
    if states != row.replica_states:
        shared = cluster.share_states(states)
        cluster.put(tp, Row(row.assignment, row.leadership, row.state, shared))


async def tell_everything(
    cluster: ClusterState, brokers: Iterable[BrokerId], outbox: Outbox
) -> None:
    """UpdateMetadata of all partitions to these brokers: what a newly started one needs."""
    recipients = tuple(brokers)
    for chunk in chunks(cluster.rows, REQUEST):
        told = dict.fromkeys(chunk)
        if cluster.deletions:
            told = dict.fromkeys(tp for tp in chunk if tp.topic not in cluster.deletions)
        for broker in recipients if told else ():
            outbox.gathered.metadata_for[broker] = told
        await flush(cluster, outbox)
