"""What brokers answer to LeaderAndIsr and UpdateMetadata, and the failed log dirs that show there."""

from kctl.logic.broker_changes import replicas_become_offline, resync_later
from kctl.logic.chunks import chunks
from kctl.logic.controllership import still_ours
from kctl.logic.recipients import flush, tell_leadership
from kctl.logic.replicas import take_online
from kctl.messages.effects import ReadLogDirNotifications, RemoveNotifications
from kctl.messages.events import (
    LeaderAndIsrResponseReceived,
    UpdateMetadataResponseReceived,
)
from kctl.messages.outbox import NOTIFICATION_DROPPED, Outbox
from kctl.messages.term import ControllerMoved
from kctl.model.cluster import ClusterState
from kctl.model.codes import KafkaError, Malformed
from kctl.model.names import TopicPartition

REPORTED = (KafkaError.FENCED_LEADER_EPOCH, KafkaError.INCONSISTENT_TOPIC_ID)
"""Partition errors that a person should hear of; the rest is normal, or acted on."""


async def on_leader_and_isr_response(
    cluster: ClusterState, event: LeaderAndIsrResponseReceived, outbox: Outbox
) -> None:
    broker = cluster.brokers.get(event.broker)
    if broker is None or broker.epoch != event.broker_epoch:
        return
    if event.error != KafkaError.NONE:
        await _on_refusal(cluster, event.broker, event.error, outbox)
        return
    dirs = cluster.offline_dirs.get(event.broker, {})
    offline: dict[TopicPartition, tuple[int, ...]] = {}
    back: dict[TopicPartition, tuple[int, ...]] = {}
    for tp, error in event.partition_errors.items():
        if tp not in cluster.partitions_on(event.broker):
            continue
        if error == KafkaError.KAFKA_STORAGE_ERROR and tp not in dirs:
            offline[tp] = (event.broker,)
        elif error == KafkaError.NONE and tp in dirs:
            back[tp] = (event.broker,)
        elif error in REPORTED:
            outbox.tell(
                "broker refused a partition",
                f"broker {event.broker} answered {KafkaError(error).name}",
                key=str(tp),
            )
    if back:
        cluster.offline_dirs[event.broker] = {tp: None for tp in dirs if tp not in back}
        if not cluster.offline_dirs[event.broker]:
            del cluster.offline_dirs[event.broker]
        await take_online(cluster, back, outbox)
    if offline:
        cluster.offline_dirs.setdefault(event.broker, {}).update(dict.fromkeys(offline))
        why = f"a log dir of broker {event.broker} failed"
        outbox.tell("log dir failed", f"{len(offline)} replicas are offline", key=str(event.broker))
        await replicas_become_offline(cluster, offline, outbox, why, {})


async def on_update_metadata_response(
    cluster: ClusterState, event: UpdateMetadataResponseReceived, outbox: Outbox
) -> None:
    broker = cluster.brokers.get(event.broker)
    if broker is None or broker.epoch != event.broker_epoch or event.error == KafkaError.NONE:
        return
    await _on_refusal(cluster, event.broker, event.error, outbox)


async def _on_refusal(cluster: ClusterState, broker: int, error: int, outbox: Outbox) -> None:
    if error == KafkaError.STALE_CONTROLLER_EPOCH:
        # It has heard of a newer controller. If there is none in ZooKeeper, it is to be told again.
        if not await still_ours(cluster):
            raise ControllerMoved(f"broker {broker} obeys a newer controller")
    elif error == KafkaError.STALE_BROKER_EPOCH:
        return  # it restarted: BrokerChange is on its way
    outbox.tell("request refused", f"broker {broker} answered error {error}", key=str(broker))
    resync_later(cluster, broker, outbox)


async def on_log_dir_notification(cluster: ClusterState, outbox: Outbox) -> None:
    """A log dir failed somewhere on these brokers: their answers to LeaderAndIsr will tell where."""
    notifications = await ReadLogDirNotifications()
    brokers: dict[int, None] = {}
    for path, broker in notifications.items():
        if isinstance(broker, Malformed):
            outbox.tell(NOTIFICATION_DROPPED, broker.reason, key=path)
        elif broker in cluster.brokers:
            brokers[broker] = None
        else:
            outbox.tell(NOTIFICATION_DROPPED, f"broker {broker} is not known", key=path)
    for broker in brokers:
        for chunk in chunks(list(cluster.partitions_on(broker))):
            for tp in chunk:
                if cluster.rows[tp].leadership is not None and cluster.is_led(tp):
                    tell_leadership(cluster, outbox, tp, (broker,))
            await flush(cluster, outbox)
    await RemoveNotifications(tuple(notifications))
