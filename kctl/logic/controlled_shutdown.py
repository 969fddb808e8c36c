"""A broker asks to leave: its leaderships move, its replicas stop, and it is told what remains."""

from kctl.logic.chunks import paced
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
    led = await _movable(cluster, event.broker, led=True)
    await elect_leaders(cluster, led, Strategy.CONTROLLED_SHUTDOWN, outbox, why)
    followed = await _movable(cluster, event.broker, led=False)
    await Flush()  # looking for them took its time
    moved = dict.fromkeys(led)
    leaving = {tp: (event.broker,) for tp in followed if tp not in moved}
    await Flush()
    await take_offline(cluster, leaving, outbox, why, fenced={})
    remaining = tuple(await _movable(cluster, event.broker, led=True))
    outbox.answer(event.caller, ControlledShutdownDone(remaining))
    return None


async def _movable(cluster: ClusterState, broker: BrokerId, *, led: bool) -> list[TopicPartition]:
    """Partitions with another replica; the others neither move nor count."""
    movable: list[TopicPartition] = []
    for pause, chunk in paced(cluster.partitions_on(broker)):
        if pause:
            await Flush()
        movable += [
            tp
            for tp in chunk
            if (row := cluster.rows[tp]).leadership is not None
            and (row.leadership.leader == broker) is led
            and len(row.assignment.replicas) > 1
            and cluster.is_led(tp)
        ]
    return movable
