"""`/feature` and producer ids: small duties of the controller that touch no partition.

Brokers in ZooKeeper mode support no feature at all, and one that finds a finalized feature which it
does not know ends itself. So the features are kept empty.
"""

from kctl.messages.answers import ApiError, FeatureErrors, ProducerIdBlock, Refused
from kctl.messages.effects import (
    FeatureNode,
    ReadFeatures,
    ReadProducerIds,
    WriteFeatures,
    WriteProducerIds,
)
from kctl.messages.events import AllocateProducerIds, UpdateFeatures
from kctl.messages.outbox import Outbox
from kctl.model.cluster import ClusterState
from kctl.model.codes import Code, KafkaError, Malformed
from kctl.model.settings import FEATURES_SINCE

FEATURES = "/feature"
BLOCK = 1_000
LAST_PRODUCER_ID = 2**63 - 1
ALLOCATION_ATTEMPTS_MAX = 10


async def set_up_features(cluster: ClusterState, outbox: Outbox) -> None:
    """Enabled and empty; disabled for brokers that are configured as older than 2.7."""
    release = cluster.settings.inter_broker_protocol
    enabled = release is None or release >= FEATURES_SINCE
    found = await ReadFeatures()
    if isinstance(found, Malformed):
        if cluster.quarantine.get(found.path) == found.reason:
            return
        cluster.quarantine[found.path] = found.reason
        outbox.tell("quarantined", found.reason, key=found.path)
        return
    cluster.heal(FEATURES)
    if isinstance(found, FeatureNode):
        if found.enabled == enabled and (enabled or not found.features):
            if found.features:
                outbox.tell("features found", "brokers in ZooKeeper mode know none", "/feature")
            return
        if found.features:
            outbox.tell("features dropped", "they were disabled", key="/feature")
    await WriteFeatures(FeatureNode(enabled, {}))


def on_update_features(cluster: ClusterState, event: UpdateFeatures, outbox: Outbox) -> None:
    """Refused one by one: no broker supports any."""
    release = cluster.settings.inter_broker_protocol
    if release is not None and release < FEATURES_SINCE:
        error = ApiError(KafkaError.INVALID_REQUEST, "features need Kafka 2.7 or later")
        return outbox.answer(event.caller, Refused(error))
    outbox.answer(
        event.caller,
        FeatureErrors(
            {
                update.feature: ApiError(
                    KafkaError.INVALID_REQUEST,
                    "a feature must have a name"
                    if not update.feature
                    else f"no broker in ZooKeeper mode supports the feature {update.feature}",
                )
                for update in event.updates
            }
        ),
    )
    return None


async def on_allocate_producer_ids(
    cluster: ClusterState, event: AllocateProducerIds, outbox: Outbox
) -> None:
    """The next thousand; never given twice, whatever becomes of the answer."""
    error = await _allocate(cluster, event, outbox)
    if error is not None:
        outbox.answer(event.caller, Refused(error))


async def _allocate(
    cluster: ClusterState, event: AllocateProducerIds, outbox: Outbox
) -> ApiError | None:
    broker = cluster.brokers.get(event.broker)
    if broker is None:
        return ApiError(KafkaError.BROKER_ID_NOT_REGISTERED)
    if broker.epoch != event.broker_epoch:
        return ApiError(KafkaError.STALE_BROKER_EPOCH)
    for _ in range(ALLOCATION_ATTEMPTS_MAX):
        latest = await ReadProducerIds()
        if isinstance(latest, Malformed):
            cluster.quarantine[latest.path] = latest.reason
            return ApiError(KafkaError.UNKNOWN_SERVER_ERROR, latest.reason)
        cluster.heal("/latest_producer_id_block")
        start = latest.end + 1
        if start > LAST_PRODUCER_ID - BLOCK:
            return ApiError(KafkaError.UNKNOWN_SERVER_ERROR, "all producer ids are used up")
        # An unknown outcome is simply tried again: a block that nobody got is no loss.
        code = await WriteProducerIds(event.broker, start, start + BLOCK - 1, latest.zk_version)
        if code is Code.OK:
            outbox.answer(event.caller, ProducerIdBlock(start, BLOCK))
            return None
    return ApiError(KafkaError.UNKNOWN_SERVER_ERROR, "the producer id znode kept changing")
