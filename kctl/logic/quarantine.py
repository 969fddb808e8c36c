"""Looking again at what could not be used: a repaired znode is picked up without a restart."""

from kctl.logic import reassignment
from kctl.logic.broker_changes import on_broker_change
from kctl.logic.failover import load_state, schedule_quarantine_check, unreachable
from kctl.logic.features import FEATURES, set_up_features
from kctl.logic.partitions import renew_leaderships, trigger_online
from kctl.logic.preferred_leaders import on_zk_election
from kctl.logic.replicas import take_offline
from kctl.logic.topics import on_partition_modifications, on_topic_change
from kctl.messages.effects import ReadPartitions, ReadTopicConfigs
from kctl.messages.events import PartitionModifications
from kctl.messages.outbox import Outbox
from kctl.model.cluster import ClusterState
from kctl.model.codes import Malformed
from kctl.model.names import TopicPartition
from kctl.model.states import PartitionState

TOPICS = "/brokers/topics/"
CONFIGS = "/config/topics/"


async def on_quarantine_check(cluster: ClusterState, outbox: Outbox) -> None:
    schedule_quarantine_check(cluster, outbox)
    if not cluster.quarantine:
        return
    paths = list(cluster.quarantine)
    await _recheck_states(cluster, outbox)
    if any(p.startswith("/brokers/ids/") for p in paths):
        await on_broker_change(cluster, outbox)
    topics = [p[len(TOPICS) :] for p in paths if p.startswith(TOPICS) and p.count("/") == 3]
    for topic in topics:
        if topic in cluster.topics:
            await on_partition_modifications(cluster, PartitionModifications(topic), outbox)
    if any(t not in cluster.topics for t in topics):
        await on_topic_change(cluster, outbox)
    if reassignment.NODE in paths:
        await reassignment.on_zk_reassignment(cluster, outbox)
    if "/admin/preferred_replica_election" in paths:
        await on_zk_election(cluster, outbox)
    if FEATURES in paths:
        await set_up_features(cluster, outbox)
    configs = [p[len(CONFIGS) :] for p in paths if p.startswith(CONFIGS)]
    if configs:
        await _recheck_configs(cluster, configs, outbox)


async def _recheck_states(cluster: ClusterState, outbox: Outbox) -> None:
    poisoned = tuple(tp for tp in cluster.poisoned if tp in cluster.rows)
    if not poisoned:
        return
    healed: dict[TopicPartition, None] = {}
    for tp, seen in (await ReadPartitions(poisoned)).items():
        path = cluster.poisoned[tp]
        if isinstance(seen, Malformed):
            cluster.quarantine[path] = seen.reason
            continue
        if cluster.is_led(tp):  # a deletion needs no state
            load_state(cluster, tp, seen, outbox)
        cluster.heal(path)
        outbox.tell("healed", "its znode can be used again", key=path)
        healed[tp] = None
    if healed:
        why = "a quarantined state was repaired"
        # Whoever repaired it, its version is not the one that its leader knows.
        led = [tp for tp in healed if cluster.rows[tp].state is PartitionState.ONLINE]
        await renew_leaderships(cluster, led, outbox, why)
        elected = await trigger_online(cluster, outbox, why)
        gone = {tp: bs for tp, bs in unreachable(cluster).items() if tp in healed}
        await take_offline(cluster, gone, outbox, why, fenced=elected)
        under_way = [tp for tp in healed if tp in cluster.reassigning]
        await reassignment.advance(cluster, under_way, outbox)


async def _recheck_configs(cluster: ClusterState, topics: list[str], outbox: Outbox) -> None:
    for topic, config in (await ReadTopicConfigs(tuple(topics))).items():
        if not isinstance(config, Malformed):
            cluster.heal(f"{CONFIGS}{topic}")
            await trigger_online(cluster, outbox, "a quarantined config was repaired", topic)
