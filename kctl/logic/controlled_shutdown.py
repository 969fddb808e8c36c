"""A broker asks to leave: its leaderships move, its replicas stop, and it is told what remains."""

from kctl.logic.chunks import CHUNK, paced
from kctl.logic.elections import Strategy
from kctl.logic.partitions import elect_leaders
from kctl.logic.quarantine import on_quarantine_check
from kctl.logic.replicas import take_offline
from kctl.messages.answers import ApiError, ControlledShutdownDone, Refused
from kctl.messages.effects import Flush
from kctl.messages.events import ControlledShutdown
from kctl.messages.outbox import Outbox
from kctl.model.cluster import ClusterState
from kctl.model.codes import KafkaError
from kctl.model.names import BrokerId, TopicPartition
from kctl.model.rows import Replicas

NO_EPOCH = -1
"""Sent by brokers older than 2.2, which know none."""


async def on_controlled_shutdown(
    cluster: ClusterState, event: ControlledShutdown, outbox: Outbox
) -> None:
    if cluster.quarantine:
        # What was repaired meanwhile may be led by this broker, and must not be left behind.
        await on_quarantine_check(cluster, outbox)
    broker = cluster.brokers.get(event.broker)
    if broker is None:
        return outbox.answer(event.caller, Refused(ApiError(KafkaError.BROKER_NOT_AVAILABLE)))
    if event.broker_epoch != NO_EPOCH and event.broker_epoch < broker.epoch:
        return outbox.answer(event.caller, Refused(ApiError(KafkaError.STALE_BROKER_EPOCH)))
    why = f"broker {event.broker} shuts down"
    outbox.tell("controlled shutdown", why, key=str(event.broker))
    cluster.begin_shutdown(event.broker)
    led, followed = await _movable(cluster, event.broker)
    await elect_leaders(cluster, led, Strategy.CONTROLLED_SHUTDOWN, outbox, why)
    await take_offline(cluster, followed, outbox, why, fenced={})
    remaining = tuple([tp for tp in led if cluster.rows[tp].leader == event.broker])
    outbox.answer(event.caller, ControlledShutdownDone(remaining))
    return None


async def _movable(
    cluster: ClusterState, broker: BrokerId
) -> tuple[list[TopicPartition], dict[TopicPartition, Replicas]]:
    """Partitions with another replica, led and followed; the others neither move nor count."""
    led: list[TopicPartition] = []
    followed: dict[TopicPartition, Replicas] = {}
    rows, alone = cluster.rows, (broker,)
    for pause, chunk in paced(cluster.partitions_on(broker), 2 * CHUNK):
        if pause:
            await Flush()
        for tp in chunk:
            row = rows[tp]
            leadership = row.leadership
            if leadership is None or len(row.assignment.replicas) == 1:
                continue
            if cluster.deletions and not cluster.is_led(tp):
                continue
            if leadership.leader == broker:
                led.append(tp)
            else:
                followed[tp] = alone
    return led, followed
