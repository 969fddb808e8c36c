"""Why is it so? The state of a partition, topic or broker, and the rules that lead there.

The rules are not repeated here: the core's own decision is asked for, and what it looked at is
written down.
"""

from collections.abc import Iterable

import attrs

from kctl.insight.snapshot import Snapshot
from kctl.logic.elections import Strategy
from kctl.logic.partitions import UNCLEAN_CONFIG, decide
from kctl.logic.reassignment import is_complete
from kctl.model.cluster import ClusterState
from kctl.model.codes import Malformed
from kctl.model.names import NO_LEADER, BrokerId, TopicPartition
from kctl.model.rows import Row
from kctl.zookeeper import paths

LISTED_MAX = 10


class Unknown(Exception):
    """There is no such partition, topic or broker; the message says what there is."""


@attrs.frozen
class Explanation:
    subject: str
    verdict: str
    """One line: how it stands."""
    because: tuple[str, ...] = ()
    """The trace of rules that leads there."""
    until: tuple[str, ...] = ()
    """What would change it."""
    healthy: bool = True

    def __str__(self) -> str:
        lines = [f"{self.subject}: {self.verdict}"]
        lines += [f"  because {line}" for line in self.because]
        lines += [f"  until   {line}" for line in self.until]
        return "\n".join(lines)


def explain(snapshot: Snapshot, subject: str) -> Explanation:
    """`orders-17`, `orders` or `broker 4`."""
    cluster = snapshot.cluster()
    kind, _, number = subject.partition(" ")
    if kind == "broker" and number.strip().isdecimal():
        return explain_broker(snapshot, cluster, int(number))
    if subject in cluster.topics or paths.topic(subject) in cluster.quarantine:
        return explain_topic(snapshot, cluster, subject)
    try:
        tp = TopicPartition.parse(subject)
    except ValueError:
        raise Unknown(_no_such_topic(cluster, subject)) from None
    if tp in cluster.rows:
        return explain_partition(snapshot, cluster, tp)
    if tp.topic in cluster.topics:
        count = len(cluster.topics[tp.topic].partitions)
        raise Unknown(f"topic {tp.topic} has no partition {tp.partition}; it has {count}")
    raise Unknown(_no_such_topic(cluster, subject))


def _no_such_topic(cluster: ClusterState, subject: str) -> str:
    near = [t for t in cluster.topics if subject.lower() in t.lower() or t in subject][:3]
    hint = f" (near: {', '.join(near)})" if near else ""
    return (
        f"no topic or partition is called {subject!r} among {len(cluster.topics)} topics{hint}; "
        "ask for TOPIC-PARTITION, TOPIC or: broker ID"
    )


# -- partitions ------------------------------------------------------------------------------


def explain_partition(snapshot: Snapshot, cluster: ClusterState, tp: TopicPartition) -> Explanation:
    row = cluster.rows[tp]
    because: list[str] = [_assigned(cluster, row)]
    until: list[str] = []
    if tp in cluster.poisoned:
        path = cluster.poisoned[tp]
        return Explanation(
            str(tp),
            "left alone: its state znode cannot be understood",
            (*because, f"{path}: {cluster.quarantine[path]}"),
            ("somebody repairs or removes that znode",),
            healthy=False,
        )
    if tp.topic in cluster.deletions:
        because.append(f"{paths.deletion(tp.topic)} marks the topic for deletion")
        verdict = "being deleted with its topic; it gets no leader any more"
        waits = explain_topic(snapshot, cluster, tp.topic)
        return Explanation(str(tp), verdict, (*because, *waits.because), waits.until, healthy=False)
    leadership = row.leadership
    if leadership is None:
        return _never_led(cluster, tp, row, because)
    because.append(
        f"its state znode says leader {leadership.leader}, ISR {_ids(leadership.isr)}, "
        f"leader epoch {leadership.leader_epoch}, version {leadership.zk_version}"
    )
    _explain_reassignment(cluster, row, because, until)
    if leadership.leader == NO_LEADER or not cluster.is_online(leadership.leader, tp):
        return _leaderless(snapshot, cluster, tp, because, until)
    missing = [b for b in row.replicas if b not in leadership.isr]
    if missing:
        for broker in missing:
            alive = "alive but not in sync" if broker in cluster.brokers else "not registered"
            because.append(f"broker {broker} is {alive}")
            if broker in cluster.brokers:
                until.append(f"broker {broker} catches up and its leader takes it into the ISR")
            else:
                until.append(f"broker {broker} returns and catches up")
        verdict = f"led by {leadership.leader}, under-replicated: {_ids(missing)} not in the ISR"
        return Explanation(str(tp), verdict, tuple(because), tuple(until), healthy=False)
    if leadership.recovering:
        because.append("its leader was elected uncleanly and has not reported its recovery yet")
    verdict = f"led by {leadership.leader}, all replicas in sync"
    if leadership.leader != row.replicas[0]:
        verdict += f"; preferred is {row.replicas[0]}"
        until.append("a preferred leader election, asked for or by the balance timer")
    return Explanation(str(tp), verdict, tuple(because), tuple(until), healthy=not until)


def _assigned(cluster: ClusterState, row: Row) -> str:
    alive = [b for b in row.replicas if b in cluster.brokers]
    gone = [b for b in row.replicas if b not in cluster.brokers]
    text = f"it is assigned to {_ids(row.replicas)}"
    if not gone:
        return f"{text}, all registered"
    return f"{text}; registered {_ids(alive)}, not registered {_ids(gone)}"


def _never_led(
    cluster: ClusterState, tp: TopicPartition, row: Row, because: list[str]
) -> Explanation:
    because.append("it has no state znode: no controller has ever given it a leader")
    online = cluster.online_replicas(tp, row.replicas)
    if online:
        until = (f"the controller handles it: it would make {online[0]} the leader",)
        verdict = "new, without a leader although a replica is alive: the controller is behind"
    else:
        until = (f"one of the brokers {_ids(row.replicas)} starts",)
        verdict = "new, without a leader: none of its replicas is alive"
    return Explanation(str(tp), verdict, tuple(because), until, healthy=False)


def _leaderless(
    snapshot: Snapshot,
    cluster: ClusterState,
    tp: TopicPartition,
    because: list[str],
    until: list[str],
) -> Explanation:
    row = cluster.rows[tp]
    leadership = row.leadership
    assert leadership is not None
    if leadership.leader != NO_LEADER:
        because.append(f"broker {leadership.leader}, the leader, is not registered")
    clean = decide(cluster, tp, Strategy.OFFLINE)
    if clean is not None:
        because.append(f"by the rules broker {clean.leader} can lead: alive and in the ISR")
        until.insert(0, "the controller elects it; if that does not happen, it is stuck or absent")
        verdict = f"without a live leader; {clean.leader} would be elected"
        return Explanation(str(tp), verdict, tuple(because), tuple(until), healthy=False)
    isr_gone = [b for b in leadership.isr if not cluster.is_online(b, tp)]
    because.append(f"of the ISR {_ids(leadership.isr)} nobody is alive")
    until += [f"broker {b}, a member of the ISR, returns" for b in isr_gone]
    outsiders = [b for b in row.replicas if cluster.is_online(b, tp) and b not in leadership.isr]
    allowed, source = unclean_setting(snapshot, tp.topic)
    if not outsiders:
        because.append("no other replica is alive either")
    else:
        because.append(f"brokers {_ids(outsiders)} are alive but not in the ISR")
        because.append(f"unclean election is {'on' if allowed else 'off'} by {source}")
        if allowed:
            until.insert(0, f"the controller elects {outsiders[0]} uncleanly, by configuration")
        else:
            until.append(
                f"an unclean election makes {outsiders[0]} the leader, "
                "which loses the records that only the ISR has"
            )
    return Explanation(str(tp), "no leader", tuple(because), tuple(until), healthy=False)


def unclean_setting(snapshot: Snapshot, topic: str) -> tuple[bool, str]:
    config = snapshot.zookeeper.configs.get(topic)
    if isinstance(config, Malformed):
        return False, f"an unreadable topic config ({config.reason})"
    value = None if config is None else config.get(UNCLEAN_CONFIG)
    if value is None:
        return False, "default (the brokers' own files may say otherwise)"
    return value.strip().lower() == "true", "topic config"


def _explain_reassignment(
    cluster: ClusterState, row: Row, because: list[str], until: list[str]
) -> None:
    assignment = row.assignment
    if not assignment.is_reassigning:
        return
    because.append(
        f"a reassignment runs: adding {_ids(assignment.adding)}, "
        f"removing {_ids(assignment.removing)}"
    )
    if is_complete(row):
        until.append("the controller finishes the reassignment: its target is in sync")
    for broker in assignment.target:
        if broker in row.isr:
            continue
        if broker in cluster.brokers:
            until.append(f"target broker {broker} catches up and joins the ISR")
        else:
            until.append(f"target broker {broker} starts; it is not registered")


# -- topics ----------------------------------------------------------------------------------


def explain_topic(snapshot: Snapshot, cluster: ClusterState, topic: str) -> Explanation:
    path = paths.topic(topic)
    if topic not in cluster.topics:
        return Explanation(
            topic,
            "left alone: its znode cannot be understood",
            (f"{path}: {cluster.quarantine[path]}",),
            ("somebody repairs or removes that znode",),
            healthy=False,
        )
    tps = list(cluster.partitions_of(topic))
    if topic in cluster.deletions:
        return _explain_deletion(cluster, topic, tps)
    sick = [e for e in (explain_partition(snapshot, cluster, tp) for tp in tps) if not e.healthy]
    verdict = f"{len(tps)} partitions, {len(tps) - len(sick)} in order"
    because = [f"{e.subject}: {e.verdict}" for e in sick[:LISTED_MAX]]
    if len(sick) > LISTED_MAX:
        because.append(f"and {len(sick) - LISTED_MAX} more")
    until = tuple(dict.fromkeys(line for e in sick for line in e.until))[:LISTED_MAX]
    return Explanation(topic, verdict, tuple(because), until, healthy=not sick)


def _explain_deletion(
    cluster: ClusterState, topic: str, tps: Iterable[TopicPartition]
) -> Explanation:
    because = [f"{paths.deletion(topic)} marks it for deletion"]
    gone: dict[BrokerId, int] = {}
    moving = []
    for tp in tps:
        row = cluster.rows[tp]
        if row.assignment.is_reassigning:
            moving.append(str(tp))
        for broker in row.replicas:
            if broker not in cluster.brokers:
                gone[broker] = gone.get(broker, 0) + 1
    until = []
    for broker, count in gone.items():
        because.append(f"broker {broker} is not registered and has {count} of its replicas")
        until.append(f"broker {broker} returns and deletes them")
    if moving:
        because.append(f"{', '.join(moving[:LISTED_MAX])} are being reassigned")
        until.append("those reassignments finish")
    if not until:
        until.append("its brokers have answered StopReplica; nothing stands in the way")
    return Explanation(topic, "being deleted", tuple(because), tuple(until), healthy=False)


# -- brokers ---------------------------------------------------------------------------------


def explain_broker(snapshot: Snapshot, cluster: ClusterState, broker: BrokerId) -> Explanation:
    tps = list(cluster.partitions_on(broker))
    path = paths.broker(broker)
    subject = f"broker {broker}"
    if broker not in cluster.brokers and not tps and path not in cluster.quarantine:
        known = _ids(sorted(cluster.brokers))
        raise Unknown(f"broker {broker} is not registered and has no replica; registered: {known}")
    leads = [tp for tp in tps if cluster.rows[tp].leader == broker]
    behind = [tp for tp in tps if broker not in cluster.rows[tp].isr]
    because = [f"it has {len(tps)} replicas, leads {len(leads)}, is out of sync in {len(behind)}"]
    if path in cluster.quarantine:
        because.append(f"{path}: {cluster.quarantine[path]}")
        verdict = "left alone: its registration cannot be understood"
        until = ("it registers again, or somebody repairs that znode",)
        return Explanation(subject, verdict, tuple(because), until, healthy=False)
    if broker not in cluster.brokers:
        offline = [
            tp for tp in tps if not any(cluster.is_online(b, tp) for b in cluster.rows[tp].isr)
        ]
        if offline:
            named = ", ".join(map(str, offline[:LISTED_MAX]))
            because.append(f"{len(offline)} partitions have no live ISR member, such as {named}")
        return Explanation(subject, "not registered", tuple(because), ("it starts",), healthy=False)
    registration = cluster.brokers[broker]
    rack = f" in rack {registration.rack}" if registration.rack else ""
    role = ", the controller" if snapshot.controller_id == broker else ""
    alone = [tp for tp in leads if len(cluster.rows[tp].isr) == 1]
    if alone:
        named = ", ".join(map(str, alone[:LISTED_MAX]))
        because.append(
            f"it is the only member of the ISR of {len(alone)} partitions, such as {named}: "
            "stopping it takes them offline"
        )
    verdict = f"registered{rack}{role}, epoch {registration.epoch}"
    return Explanation(subject, verdict, tuple(because), healthy=not behind and not alone)


def _ids(brokers: Iterable[BrokerId]) -> str:
    return f"[{', '.join(map(str, brokers))}]"
