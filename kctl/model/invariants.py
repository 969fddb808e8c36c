"""What must hold of a cluster state between two events, checked by scanning all of it.

`violations` trusts nothing that the state keeps up to date by itself: each index is compared with
what a scan of the rows gives. It costs a walk over everything, so tests, the simulator and
debugging call it, and the controller does not.
"""

from collections.abc import Iterator

from kctl.model.cluster import ClusterState
from kctl.model.names import NO_LEADER, BrokerId, TopicPartition
from kctl.model.rows import Row
from kctl.model.states import PartitionState, ReplicaState

IN_DELETION = (
    ReplicaState.DELETION_STARTED,
    ReplicaState.DELETION_SUCCESSFUL,
)


def violations(cluster: ClusterState) -> list[str]:
    """One sentence for each broken invariant; none for a sound cluster."""
    return [
        *_brokers(cluster),
        *_topics(cluster),
        *_indexes(cluster),
        *_deletions(cluster),
        *(line for tp, row in cluster.rows.items() for line in _row(cluster, tp, row)),
    ]


def _brokers(cluster: ClusterState) -> Iterator[str]:
    live = {b for b in cluster.brokers if b not in cluster.shutting_down}
    if set(cluster.live) != live:
        yield f"live is {sorted(cluster.live)}, but by registrations {sorted(live)}"
    for broker in cluster.shutting_down:
        if broker not in cluster.brokers:
            yield f"broker {broker} is shutting down, but not registered"
    for broker, dirs in cluster.offline_dirs.items():
        if broker not in cluster.brokers:
            yield f"broker {broker} has failed log dirs, but is not registered"
        for tp in dirs:
            if tp not in cluster.partitions_on(broker):
                yield f"broker {broker} has {tp} on a failed log dir, but no replica of it"
    for broker, told in cluster.told.items():
        if broker not in cluster.brokers or told > cluster.membership:
            yield f"broker {broker} was told membership {told} of {cluster.membership}"
    if cluster.settings.controller_id in cluster.brokers:
        yield f"the controller {cluster.settings.controller_id} is listed as a broker"


def _topics(cluster: ClusterState) -> Iterator[str]:
    names = {topic.id: name for name, topic in cluster.topics.items() if topic.id is not None}
    if cluster.topic_names != names:
        yield f"topic names by id are {cluster.topic_names}, but by topics {names}"
    listed = {tp for topic in cluster.topics.values() for tp in topic.partitions.values()}
    for tp in listed ^ set(cluster.rows):
        yield f"{tp} is in one of topics and rows only"
    for name, topic in cluster.topics.items():
        for partition, tp in topic.partitions.items():
            if tp != TopicPartition(name, partition):
                yield f"topic {name} lists {tp} as its partition {partition}"


def _indexes(cluster: ClusterState) -> Iterator[str]:
    by_broker: dict[BrokerId, set[TopicPartition]] = {}
    not_online, unbalanced, reassigning = set(), set(), set()
    for tp, row in cluster.rows.items():
        for broker in row.assignment.replicas:
            by_broker.setdefault(broker, set()).add(tp)
        if row.state in (PartitionState.NEW, PartitionState.OFFLINE):
            not_online.add(tp)
        if row.leadership is not None and row.leader != row.assignment.replicas[0]:
            unbalanced.add(tp)
        if row.assignment.is_reassigning:
            reassigning.add(tp)
    indexed = {broker: set(tps) for broker, tps in cluster.by_broker.items() if tps}
    for broker in sorted(indexed.keys() | by_broker.keys()):
        yield from _difference(
            f"by_broker[{broker}]", indexed.get(broker, set()), by_broker.get(broker, set())
        )
    yield from _difference("not_online", set(cluster.not_online), not_online)
    yield from _difference("unbalanced", set(cluster.unbalanced), unbalanced)
    yield from _difference("reassigning", set(cluster.reassigning), reassigning)
    for tp, path in cluster.poisoned.items():
        if tp not in cluster.rows:
            yield f"{tp} is poisoned, but unknown"
        if path not in cluster.quarantine:
            yield f"{tp} is poisoned by {path}, which is not in quarantine"


def _difference(
    name: str, indexed: set[TopicPartition], scanned: set[TopicPartition]
) -> Iterator[str]:
    for tp in sorted(indexed - scanned):
        yield f"{name} holds {tp}, the rows do not say so"
    for tp in sorted(scanned - indexed):
        yield f"{name} lacks {tp}"


def _deletions(cluster: ClusterState) -> Iterator[str]:
    for topic, deletion in cluster.deletions.items():
        if topic not in cluster.topics:
            yield f"topic {topic} is queued for deletion, but unknown"
            continue
        counts: dict[ReplicaState, int] = {}
        for tp in cluster.partitions_of(topic):
            for state in cluster.rows[tp].replica_states:
                counts[state] = counts.get(state, 0) + 1
            gone = cluster.rows[tp].state is PartitionState.NON_EXISTENT
            if gone is not deletion.started:
                yield f"{tp} is {cluster.rows[tp].state.name}, started is {deletion.started}"
        if {state: n for state, n in deletion.counts.items() if n} != counts:
            yield f"deletion of {topic} counts {deletion.counts}, the rows say {counts}"


def _row(cluster: ClusterState, tp: TopicPartition, row: Row) -> Iterator[str]:
    replicas = row.assignment.replicas
    if len(row.replica_states) != len(replicas):
        yield f"{tp} has {len(replicas)} replicas and {len(row.replica_states)} replica states"
    if len(set(replicas)) != len(replicas):
        yield f"{tp} is assigned twice to a broker: {replicas}"
    for broker in (*row.assignment.adding, *row.assignment.removing):
        if broker not in replicas:
            yield f"{tp} adds or removes broker {broker}, which is not among its replicas"
    if set(row.assignment.adding) & set(row.assignment.removing):
        yield f"{tp} adds and removes the same broker: {row.assignment}"
    if ReplicaState.NON_EXISTENT in row.replica_states:
        yield f"{tp} is assigned to a replica that does not exist: {row.replica_states}"
    if row.state is PartitionState.NON_EXISTENT and tp.topic not in cluster.deletions:
        yield f"{tp} does not exist, but its topic is not being deleted"
    if row.state is PartitionState.NEW and row.leadership is not None:
        yield f"{tp} is New, but has a leadership"
    if row.state is PartitionState.ONLINE and tp.topic not in cluster.deletions:
        yield from _online(cluster, tp, row)
    if row.leadership is not None:
        yield from _leadership(tp, row)
    if tp.topic not in cluster.deletions and tp not in cluster.reassigning:
        for broker, state in zip(replicas, row.replica_states, strict=False):
            if state in IN_DELETION:
                yield f"{tp}: the replica on {broker} is {state.name}, nobody deletes it"


def _online(cluster: ClusterState, tp: TopicPartition, row: Row) -> Iterator[str]:
    if row.leadership is None or row.leader == NO_LEADER:
        yield f"{tp} is Online without a leader"
    elif row.leader not in cluster.brokers:
        yield f"{tp} is Online, but its leader {row.leader} is not registered"


def _leadership(tp: TopicPartition, row: Row) -> Iterator[str]:
    isr = row.isr
    if not isr:
        yield f"{tp} has an empty ISR"
    if len(set(isr)) != len(isr):
        yield f"{tp} lists a broker twice in its ISR: {isr}"
    if row.leader != NO_LEADER and row.leader not in isr:
        yield f"{tp}: leader {row.leader} is not in the ISR {isr}"
    outside = [b for b in isr if b not in row.assignment.replicas]
    if outside:
        yield f"{tp}: {outside} of the ISR {isr} are not among the replicas"
