"""Which rows go to which broker in which request.

Handlers gather rows while they work; `seal` makes requests of what was gathered. Per broker and
partition the last order wins, except that a deletion is never undone by a later LeaderAndIsr in
the same batch: it closes the batch. The order in a batch is: the live brokers, to those that do
not know them yet and are about to get a LeaderAndIsr (a follower whose leader it does not know is
not started, and the broker answers success all the same); LeaderAndIsr; UpdateMetadata;
StopReplica.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from kctl.logic.chunks import (
    ANNOUNCED,
    CHUNK,
    REQUEST,
    ROUND,
    chunks,
    for_brokers,
    mapping_chunks,
    paced,
)
from kctl.messages.effects import Flush
from kctl.messages.outbox import Gathered, Outbox
from kctl.messages.requests import (
    LeaderAndIsrRequest,
    StopReplicaPartition,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kctl.model.brokers import Broker
from kctl.model.cluster import ClusterState
from kctl.model.names import NO_LEADER, BrokerId, TopicId, TopicPartition
from kctl.model.rows import Assignment, Leadership, Replicas, Row
from kctl.model.states import PartitionState

EPOCH_DURING_DELETE = -2
"""Leader epoch in StopReplica while the topic is deleted: wins over any epoch the broker knows."""
EPOCH_UNKNOWN = -1
GONE = Row(Assignment(()), Leadership(NO_LEADER, (), 0, 0, 0), PartitionState.NON_EXISTENT, ())
"""Stands for a partition that is told with leader -2 and of which nothing else is known."""


def tell_leadership(
    cluster: ClusterState,
    outbox: Outbox,
    tp: TopicPartition,
    brokers: Iterable[BrokerId],
    *,
    is_new: bool = False,
) -> None:
    """LeaderAndIsr to these brokers, and UpdateMetadata to all."""
    gathered = outbox.gathered
    known = cluster.brokers
    for broker in brokers:
        if broker not in known:
            continue
        stopped = gathered.stop.get(broker)
        if stopped and tp in stopped:
            if stopped[tp]:
                seal(cluster, outbox)
                gathered = outbox.gathered
            else:
                del stopped[tp]
        orders = gathered.leader_and_isr.get(broker)
        if orders is None:
            gathered.leader_and_isr[broker] = {tp: is_new}
        elif is_new or tp not in orders:
            orders[tp] = is_new
    gathered.metadata[tp] = None


def tell_leaderships(
    cluster: ClusterState,
    outbox: Outbox,
    recipients: Iterable[tuple[TopicPartition, Iterable[BrokerId]]],
) -> None:
    """`tell_leadership` of many partitions, none of them new."""
    gathered, known = outbox.gathered, cluster.brokers
    for tp, brokers in recipients:
        for broker in brokers:
            if broker in gathered.stop:
                tell_leadership(cluster, outbox, tp, (broker,))
                gathered = outbox.gathered  # another one if that closed the batch
                continue
            orders = gathered.leader_and_isr.get(broker)
            if orders is not None:
                orders.setdefault(tp, False)
            elif broker in known:
                gathered.leader_and_isr[broker] = {tp: False}
        gathered.metadata[tp] = None


async def announce(
    cluster: ClusterState, outbox: Outbox, told: Mapping[TopicPartition, object]
) -> None:
    """All rows but those `told` already: LeaderAndIsr to their replicas, UpdateMetadata to all.

    What a failover ends with. Nothing is gathered row by row: there is nothing to merge it with.
    """
    await flush(cluster, outbox)
    for round_ in chunks(cluster.rows, for_brokers(ROUND, len(cluster.brokers), most=10)):
        rows: dict[TopicPartition, Row] = {}
        orders: dict[BrokerId, dict[TopicPartition, Row]] = {b: {} for b in cluster.brokers}
        topic_ids: dict[str, TopicId | None] = {}
        for pause, chunk in paced(round_, ANNOUNCED):
            if pause:
                await Flush()
            _order(cluster, chunk, told, rows, orders)
            topic_ids.update(_topic_ids(cluster, chunk))
        await _send(_announcements(cluster, outbox, rows, orders, topic_ids))


def _order(
    cluster: ClusterState,
    tps: Iterable[TopicPartition],
    told: Mapping[TopicPartition, object],
    rows: dict[TopicPartition, Row],
    orders: Mapping[BrokerId, dict[TopicPartition, Row]],
) -> None:
    """Enter those that have a leadership to be told: into `rows`, and for their brokers."""
    all_rows, in_deletion = cluster.rows, cluster.deletions
    order_of = orders.get
    for tp in tps:
        row = all_rows[tp]
        if row.leadership is None or tp in told or (in_deletion and not cluster.is_led(tp)):
            continue
        rows[tp] = row
        for broker in row.assignment.replicas:
            of_broker = order_of(broker)
            if of_broker is not None:
                of_broker[tp] = row


def _announcements(
    cluster: ClusterState,
    outbox: Outbox,
    rows: Mapping[TopicPartition, Row],
    orders: Mapping[BrokerId, Mapping[TopicPartition, Row]],
    topic_ids: Mapping[str, TopicId | None],
) -> Iterator[int]:
    live = live_brokers(cluster)
    for broker, of_broker in orders.items():
        for some in mapping_chunks(of_broker, REQUEST):
            _seal_rows(cluster, outbox, broker, some, new={}, topic_ids=topic_ids)
            yield len(some)
    for some in mapping_chunks(rows, for_brokers(REQUEST, len(cluster.brokers), most=4)):
        _seal_metadata(cluster, outbox, tuple(cluster.brokers), some, live)
        yield len(some)


def tell_metadata(outbox: Outbox, tps: Iterable[TopicPartition]) -> None:
    outbox.gathered.metadata.update(dict.fromkeys(tps))


def tell_live_brokers(outbox: Outbox, brokers: Iterable[BrokerId]) -> None:
    outbox.gathered.live_brokers_for.update(dict.fromkeys(brokers))


def tell_departed(cluster: ClusterState, outbox: Outbox, brokers: Iterable[BrokerId]) -> None:
    """Topics that are being deleted or were in this term, to brokers that may not have heard of it.

    An UpdateMetadata of everything that exists takes nothing out of a broker's cache. Of a topic
    that was created again only the partitions that it has not any more are told.
    """
    recipients = _incarnations(cluster, brokers)
    live = live_brokers(cluster)
    departed = {tp: GONE for tp in cluster.departed if tp not in cluster.rows}
    for topic, deletion in cluster.deletions.items():
        if deletion.started:
            departed.update(dict.fromkeys(cluster.partitions_of(topic), GONE))
    for rows in mapping_chunks(departed, REQUEST) if recipients else ():
        topic_ids = {tp.topic: cluster.departed.get(tp) for tp in rows}
        topic_ids.update({t: cluster.topics[t].id for t in topic_ids if t in cluster.topics})
        outbox.dispatches.append(
            UpdateMetadataRequest(
                recipients=recipients,
                controller_epoch=cluster.epoch,
                live_brokers=live,
                rows=rows,
                deleted=dict.fromkeys(topic_ids),
                topic_ids=topic_ids,
            )
        )
        cluster.told.update(dict.fromkeys(recipients, cluster.membership))


def stop_replica(
    cluster: ClusterState, outbox: Outbox, tp: TopicPartition, broker: BrokerId, *, delete: bool
) -> None:
    if broker not in cluster.brokers:
        return
    gathered = outbox.gathered
    orders = gathered.leader_and_isr.get(broker)
    if orders is not None:
        orders.pop(tp, None)
    stopped = gathered.stop.setdefault(broker, {})
    stopped[tp] = delete or stopped.get(tp, False)


async def flush(cluster: ClusterState, outbox: Outbox) -> None:
    """Send what was gathered so far. Also the pause between two chunks of a long handler."""
    if len(outbox.gathered.metadata) > CHUNK:
        await Flush()  # gathering so many took its time
    await _send(_requests(cluster, outbox))


async def _send(requests: Iterator[int]) -> None:
    """In pieces, so that making many requests keeps nobody waiting either."""
    rows = 0
    for told in requests:
        rows += told
        if rows >= ANNOUNCED:
            await Flush()
            rows = 0
    await Flush()


def seal(cluster: ClusterState, outbox: Outbox) -> None:
    for _ in _requests(cluster, outbox):
        pass


def _requests(cluster: ClusterState, outbox: Outbox) -> Iterator[int]:
    """Put the requests into the outbox, one at a time: how many rows each tells."""
    gathered = outbox.gathered
    if not gathered:
        return
    outbox.gathered = Gathered()
    live = live_brokers(cluster)
    _seal_live_brokers(cluster, outbox, gathered, live)
    for broker, orders in gathered.leader_and_isr.items():
        for some in mapping_chunks(orders, REQUEST) if broker in cluster.brokers else ():
            _seal_leader_and_isr(cluster, outbox, broker, some)
            yield len(some)
    for told in chunks(gathered.metadata, REQUEST):
        rows = _metadata_rows(cluster, told)
        _seal_metadata(cluster, outbox, tuple(cluster.brokers), rows, live)
        yield len(rows)
    for brokers, tps in _alike(gathered.metadata_for):
        rows = _metadata_rows(cluster, tps)
        _seal_metadata(cluster, outbox, brokers, rows, live)
        yield len(rows)
    for broker, stopped in gathered.stop.items():
        for stops in mapping_chunks(stopped, REQUEST) if broker in cluster.brokers else ():
            _seal_stop_replica(cluster, outbox, broker, stops)
            yield len(stops)


def _alike(
    wanted: Mapping[BrokerId, Mapping[TopicPartition, None]],
) -> Iterator[tuple[list[BrokerId], Mapping[TopicPartition, None]]]:
    """Brokers that are told the very same share one request, which is then encoded once."""
    brokers: dict[int, list[BrokerId]] = {}
    for broker, tps in wanted.items():
        brokers.setdefault(id(tps), []).append(broker)
    for together in brokers.values():
        yield together, wanted[together[0]]


def live_brokers(cluster: ClusterState) -> tuple[Broker, ...]:
    """All registered brokers and this controller: brokers find it nowhere else.

    It has a rack exactly if all brokers have one, or they could not place topics at all; it is
    that of a broker, because a rack of its own would attract a replica of every partition.
    """
    brokers = tuple(cluster.brokers.values())
    settings = cluster.settings
    if not settings.endpoints:
        return brokers
    racks = [b.rack for b in brokers]
    rack = racks[0] if racks and all(r is not None for r in racks) else None
    return (*brokers, Broker(settings.controller_id, -1, settings.endpoints, rack))


def _seal_live_brokers(
    cluster: ClusterState, outbox: Outbox, gathered: Gathered, live: tuple[Broker, ...]
) -> None:
    wanted = {**gathered.live_brokers_for, **dict.fromkeys(gathered.leader_and_isr)}
    behind = tuple(
        b for b in wanted if b in cluster.brokers and cluster.told.get(b) != cluster.membership
    )
    if behind:
        _seal_metadata(cluster, outbox, behind, {}, live)


def _seal_leader_and_isr(
    cluster: ClusterState, outbox: Outbox, broker: BrokerId, orders: Mapping[TopicPartition, bool]
) -> None:
    all_rows = cluster.rows
    rows = {
        tp: row
        for tp in orders
        if (row := all_rows.get(tp)) is not None and row.leadership is not None
    }
    new: dict[TopicPartition, None] = {}
    if True in orders.values():
        new = {tp: None for tp in rows if orders[tp]}
    if rows:
        ids = _topic_ids(cluster, rows)
        _seal_rows(cluster, outbox, broker, rows, new=new, topic_ids=ids)


def _seal_rows(
    cluster: ClusterState,
    outbox: Outbox,
    broker: BrokerId,
    rows: Mapping[TopicPartition, Row],
    *,
    new: Mapping[TopicPartition, None],
    topic_ids: Mapping[str, TopicId | None],
) -> None:
    """These have a leadership; `topic_ids` may name more topics than they are of."""
    leaders = dict.fromkeys(
        [led.leader for row in rows.values() if (led := row.leadership) is not None]
    )
    outbox.dispatches.append(
        LeaderAndIsrRequest(
            broker=broker,
            broker_epoch=cluster.brokers[broker].epoch,
            controller_epoch=cluster.epoch,
            rows=rows,
            new=new,
            topic_ids=topic_ids,
            live_leaders=tuple([cluster.brokers[b] for b in leaders if b in cluster.brokers]),
        )
    )


def _metadata_rows(
    cluster: ClusterState, tps: Iterable[TopicPartition]
) -> dict[TopicPartition, Row]:
    all_rows = cluster.rows
    rows = {}
    for tp in tps:
        row = all_rows.get(tp)
        if row is None:
            continue
        if row.leadership is not None:
            rows[tp] = row
        elif tp.topic in cluster.deletions:
            rows[tp] = GONE  # its state cannot be understood, but the brokers may know it
    return rows


def _seal_metadata(
    cluster: ClusterState,
    outbox: Outbox,
    brokers: Iterable[BrokerId],
    rows: Mapping[TopicPartition, Row],
    live: tuple[Broker, ...],
) -> None:
    recipients = _incarnations(cluster, brokers)
    if not recipients:
        return
    topic_ids = _topic_ids(cluster, rows)
    outbox.dispatches.append(
        UpdateMetadataRequest(
            recipients=recipients,
            controller_epoch=cluster.epoch,
            live_brokers=live,
            rows=rows,
            offline=_offline_replicas(cluster, rows),
            deleted={topic: None for topic in topic_ids if topic in cluster.deletions},
            topic_ids=topic_ids,
        )
    )
    for broker in recipients:
        cluster.told[broker] = cluster.membership


def _incarnations(cluster: ClusterState, brokers: Iterable[BrokerId]) -> dict[BrokerId, int]:
    return {b: cluster.brokers[b].epoch for b in brokers if b in cluster.brokers}


def _offline_replicas(
    cluster: ClusterState, rows: Mapping[TopicPartition, Row]
) -> dict[TopicPartition, Replicas]:
    offline: dict[TopicPartition, Replicas] = {}
    if cluster.offline_dirs:
        for tp, row in rows.items():
            gone = tuple(b for b in row.assignment.replicas if not cluster.is_online(b, tp))
            if gone:
                offline[tp] = gone
        return offline
    live = cluster.live
    if all(b in live for b, tps in cluster.by_broker.items() if tps):
        return offline
    # Many rows share an assignment, so liveness is looked up once for each of those.
    known: dict[Assignment, Replicas] = {}
    for tp, row in rows.items():
        assignment = row.assignment
        cached = known.get(assignment)
        if cached is None:
            cached = known[assignment] = tuple([b for b in assignment.replicas if b not in live])
        if cached:
            offline[tp] = cached
    return offline


def _seal_stop_replica(
    cluster: ClusterState, outbox: Outbox, broker: BrokerId, stopped: Mapping[TopicPartition, bool]
) -> None:
    all_rows, deletions = cluster.rows, cluster.deletions
    partitions = {}
    for tp, delete in stopped.items():
        row = all_rows.get(tp)
        if deletions and tp.topic in deletions:
            leader_epoch = EPOCH_DURING_DELETE
        elif row is None or (leadership := row.leadership) is None:
            leader_epoch = EPOCH_UNKNOWN
        else:
            leader_epoch = leadership.leader_epoch
        partitions[tp] = _stop_of(leader_epoch, delete)
    outbox.dispatches.append(
        StopReplicaRequest(broker, cluster.brokers[broker].epoch, cluster.epoch, partitions)
    )


@lru_cache(maxsize=1_024)
def _stop_of(leader_epoch: int, delete: bool) -> StopReplicaPartition:
    """Few epochs occur, and many partitions have each."""
    return StopReplicaPartition(leader_epoch, delete)


def _topic_ids(cluster: ClusterState, tps: Iterable[TopicPartition]) -> dict[str, TopicId | None]:
    topics = cluster.topics
    return {topic: topics[topic].id for topic in dict.fromkeys([tp[0] for tp in tps])}
