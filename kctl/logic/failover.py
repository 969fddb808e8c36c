"""Failover: from winning the election to a working controller, in Kafka's steps.

Everything is read from ZooKeeper, in chunks, so that losing the controllership half-way ends it at
the next await. What was true before is not remembered: memory after an election is a function of
ZooKeeper alone.
"""

from collections.abc import Iterable, Mapping

from kctl.logic import deletion, reassignment
from kctl.logic.broker_changes import usable_brokers
from kctl.logic.chunks import ROUND, chunks, paced
from kctl.logic.features import set_up_features
from kctl.logic.partitions import trigger_online
from kctl.logic.preferred_leaders import on_zk_election, schedule_balance
from kctl.logic.recipients import announce, flush, tell_live_brokers
from kctl.logic.replicas import take_offline
from kctl.logic.topics import load_topics, mint_missing_topic_ids, repair_assignments
from kctl.messages.effects import (
    Bootstrap,
    Flush,
    ListDeletions,
    ListTopics,
    ReadBrokers,
    ReadIsrNotifications,
    ReadLogDirNotifications,
    ReadPartitions,
    ReadTopics,
    RemoveNotifications,
    RemoveTopicNodes,
)
from kctl.messages.events import QuarantineCheck
from kctl.messages.outbox import NOTIFICATION_DROPPED, Outbox, StartTimer
from kctl.messages.requests import Connect
from kctl.model.cluster import ClusterState
from kctl.model.codes import Code, Malformed
from kctl.model.names import TopicPartition
from kctl.model.rows import Assignment, Leadership, Replicas, Row
from kctl.model.states import PartitionState, ReplicaState

FIRST_BALANCE_MS = 5_000
QUARANTINE_TIMER = "quarantine"
_ONLINE, _INELIGIBLE = ReplicaState.ONLINE, ReplicaState.DELETION_INELIGIBLE
WHY = "a new controller took office"


class ControllerIdTaken(Exception):
    """A broker is registered under the controller's id. It would believe itself the controller."""


async def fail_over(cluster: ClusterState, outbox: Outbox) -> None:
    await Bootstrap()
    await set_up_features(cluster, outbox)
    logdirs = await ReadLogDirNotifications()
    isrs = await ReadIsrNotifications()
    for path, seen in (*logdirs.items(), *isrs.items()):
        if isinstance(seen, Malformed):
            outbox.tell(NOTIFICATION_DROPPED, seen.reason, key=path)
    await RemoveNotifications((*logdirs, *isrs))
    await _load_brokers(cluster, outbox)
    marked = await ListDeletions()
    await _load_topics(cluster, outbox)
    await _queue_deletions(cluster, marked, outbox)
    tell_live_brokers(outbox, cluster.brokers)
    await flush(cluster, outbox)
    elected = await trigger_online(cluster, outbox, WHY)
    offline = await take_offline(cluster, unreachable(cluster), outbox, WHY, fenced=elected)
    await announce(cluster, outbox, {**elected, **offline})
    outbox.tell(
        "ready",
        f"{len(cluster.brokers)} brokers, {len(cluster.topics)} topics, "
        f"{len(cluster.rows)} partitions",
    )
    await reassignment.resume(cluster, outbox)
    await repair_assignments(cluster, outbox)
    await deletion.resume_deletions(cluster, outbox)
    await on_zk_election(cluster, outbox, at_failover=True)
    schedule_balance(cluster, outbox, FIRST_BALANCE_MS)
    schedule_quarantine_check(cluster, outbox)


async def _load_brokers(cluster: ClusterState, outbox: Outbox) -> None:
    brokers = usable_brokers(cluster, await ReadBrokers(), outbox)
    own = cluster.settings.controller_id
    if own in brokers:
        raise ControllerIdTaken(
            f"a broker is registered under the controller's id {own}; "
            "give this controller another broker.id"
        )
    for broker in sorted(brokers):
        cluster.add_broker(brokers[broker])
        outbox.dispatches.append(Connect(brokers[broker]))


async def _load_topics(cluster: ClusterState, outbox: Outbox) -> None:
    for names in chunks(sorted(await ListTopics())):
        await load_topics(cluster, await ReadTopics(names), outbox, unread=True)
    while cluster.index_unread():
        await Flush()
    await mint_missing_topic_ids(cluster, outbox)
    for tps in chunks(cluster.rows, ROUND):
        found = await ReadPartitions(tps)
        for pause, chunk in paced(tps):
            if pause:
                await Flush()
            _load_states(cluster, chunk, found, outbox)
    # Before any state is written for partitions that have none yet.
    await repair_assignments(cluster, outbox, unborn_only=True)


def _load_states(
    cluster: ClusterState,
    tps: Iterable[TopicPartition],
    found: Mapping[TopicPartition, Leadership | Code | Malformed],
    outbox: Outbox,
) -> None:
    """Nearly all are healthy, and a failover waits for this: those take the short way."""
    rows, live = cluster.rows, cluster.live
    healthy: dict[int, tuple[ReplicaState, ...] | None] = {}
    """By assignment (its identity), the states of its replicas if all of them are alive."""
    for tp in tps:
        seen = found.get(tp, Code.NO_NODE)
        if isinstance(seen, Leadership) and seen.leader in live:
            assignment = rows[tp].assignment
            if seen.isr == assignment.replicas:
                try:
                    states = healthy[id(assignment)]
                except KeyError:
                    states = healthy[id(assignment)] = _all_online(cluster, assignment)
                if states is not None:
                    cluster.load_healthy(tp, assignment, seen, states)
                    continue
        load_state(cluster, tp, seen, outbox)


def _all_online(cluster: ClusterState, assignment: Assignment) -> tuple[ReplicaState, ...] | None:
    if cluster.offline_dirs or not all(b in cluster.live for b in assignment.replicas):
        return None
    return cluster.share_states((ReplicaState.ONLINE,) * len(assignment.replicas))


def load_state(
    cluster: ClusterState,
    tp: TopicPartition,
    seen: Leadership | Code | Malformed,
    outbox: Outbox,
) -> None:
    """The row's first states: by what ZooKeeper holds and who is online."""
    row = cluster.rows[tp]
    replicas = row.assignment.replicas
    online = cluster.online_replicas(tp, replicas)
    states = cluster.share_states(
        (ReplicaState.ONLINE,) * len(replicas)
        if len(online) == len(replicas)
        else tuple([_ONLINE if b in online else _INELIGIBLE for b in replicas])
    )
    if isinstance(seen, Malformed):
        cluster.poison(tp, seen.path, seen.reason)
        outbox.tell("quarantined", seen.reason, key=seen.path)
    if not isinstance(seen, Leadership):
        cluster.load(tp, Row(row.assignment, None, PartitionState.NEW, states))
        return
    if seen.isr != replicas and not all(b in replicas for b in seen.isr):
        path = f"/brokers/topics/{tp.topic}/partitions/{tp.partition}/state"
        outbox.tell("odd state", f"the ISR {list(seen.isr)} is not within the replicas", key=path)
    led = seen.leader in online or cluster.is_online(seen.leader, tp)
    state = PartitionState.ONLINE if led else PartitionState.OFFLINE
    shared = seen.with_shared(cluster.share_replicas(seen.isr))
    cluster.load(tp, Row(row.assignment, shared, state, states))


async def _queue_deletions(cluster: ClusterState, marked: tuple[str, ...], outbox: Outbox) -> None:
    """Markers without a topic are what an interrupted deletion left: finish it."""
    finished: dict[str, None] = {}
    if cluster.settings.delete_topic_enable:
        left_over = [
            t
            for t in marked
            if t not in cluster.topics and f"/brokers/topics/{t}" not in cluster.quarantine
        ]
        for chunk in chunks(left_over):
            codes = await RemoveTopicNodes(chunk)
            for topic in chunk:
                if codes.get(topic, Code.UNKNOWN) in (Code.OK, Code.NO_NODE):
                    finished[topic] = None
                    outbox.tell("topic deleted", "an earlier controller had begun", key=topic)
    await deletion.queue(cluster, [t for t in marked if t not in finished], outbox)


def unreachable(cluster: ClusterState) -> dict[TopicPartition, Replicas]:
    """Replicas that are not online and still have to leave their ISRs.

    Those of a topic in deletion stay: its brokers must not be told of partitions that go.
    """
    found: dict[TopicPartition, Replicas] = {}
    for broker, tps in cluster.by_broker.items():
        if broker in cluster.live and broker not in cluster.offline_dirs:
            continue
        for tp in tps:
            row = cluster.rows[tp]
            if not cluster.is_led(tp):
                continue
            if row.replica_state(broker) is ReplicaState.DELETION_INELIGIBLE:
                found[tp] = (*found.get(tp, ()), broker)
    return found


def schedule_quarantine_check(cluster: ClusterState, outbox: Outbox) -> None:
    delay = cluster.settings.quarantine_check_interval_ms
    outbox.timers.append(StartTimer(QUARANTINE_TIMER, delay, QuarantineCheck()))
