"""Elections on request and by the balance timer."""

from collections.abc import Iterable

from kctl.logic.chunks import paced
from kctl.logic.elections import Strategy
from kctl.logic.partitions import NO_ELIGIBLE_LEADER, elect_leaders, trigger_online
from kctl.logic.topics import quarantine
from kctl.messages.answers import OK, ApiError, PartitionErrors
from kctl.messages.effects import Flush, ReadPreferredElection, RemovePreferredElection
from kctl.messages.events import (
    AutoPreferredReplicaLeaderElection,
    ElectionTrigger,
    ElectionType,
    ReplicaLeaderElection,
)
from kctl.messages.outbox import Outbox, StartTimer
from kctl.model.cluster import ClusterState
from kctl.model.codes import Code, KafkaError, Malformed
from kctl.model.names import BrokerId, TopicPartition

NODE = "/admin/preferred_replica_election"
BALANCE_TIMER = "leader balance"


async def on_replica_leader_election(
    cluster: ClusterState, event: ReplicaLeaderElection, outbox: Outbox
) -> None:
    if event.trigger is ElectionTrigger.ZK:
        return await on_zk_election(cluster, outbox)
    asked = tuple(cluster.rows) if event.partitions is None else event.partitions
    errors = await elect(cluster, asked, event.election_type, outbox, "asked for by a client")
    if event.partitions is None:
        not_needed = KafkaError.ELECTION_NOT_NEEDED
        errors = {tp: error for tp, error in errors.items() if error.code is not not_needed}
    outbox.answer(event.caller, PartitionErrors(errors))
    return None


async def on_zk_election(
    cluster: ClusterState, outbox: Outbox, *, at_failover: bool = False
) -> None:
    node = await ReadPreferredElection()
    if isinstance(node, Malformed):
        quarantine(cluster, outbox, node.path, node.reason)
    else:
        cluster.heal(NODE)
    if isinstance(node, Code) and not at_failover:
        return
    if not isinstance(node, Code | Malformed):
        await elect(cluster, node, ElectionType.PREFERRED, outbox, "asked for by znode")
    if not isinstance(node, Code):
        code = await RemovePreferredElection()
        if code is Code.NO_AUTH:
            outbox.tell("znode not removed", f"it could not be removed: {code.value}", key=NODE)
        else:
            # Somebody may create it again at once: look, and arm the watch anew.
            outbox.events.append(ReplicaLeaderElection())


async def elect(
    cluster: ClusterState,
    asked: Iterable[TopicPartition],
    election_type: ElectionType,
    outbox: Outbox,
    why: str,
) -> dict[TopicPartition, ApiError]:
    """An outcome for each partition; one that cannot be elected does not hinder the others."""
    errors: dict[TopicPartition, ApiError] = {}
    due: list[TopicPartition] = []
    for pause, chunk in paced(dict.fromkeys(asked)):
        if pause:
            await Flush()
        for tp in chunk:
            error = _not_electable(cluster, tp, election_type)
            if error is None:
                due.append(tp)
            else:
                errors[tp] = error
    unclean = election_type is ElectionType.UNCLEAN
    strategy = Strategy.UNCLEAN if unclean else Strategy.PREFERRED
    outcome = await elect_leaders(cluster, due, strategy, outbox, why)
    for tp in due:
        reason = outcome.failed.get(tp)
        if reason is None:
            errors[tp] = OK
        elif reason == NO_ELIGIBLE_LEADER:
            errors[tp] = ApiError(
                KafkaError.ELIGIBLE_LEADERS_NOT_AVAILABLE
                if unclean
                else KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
                "no replica that may lead is alive and in sync",
            )
        else:
            errors[tp] = ApiError(KafkaError.UNKNOWN_SERVER_ERROR, reason)
    return errors


def _not_electable(
    cluster: ClusterState, tp: TopicPartition, election_type: ElectionType
) -> ApiError | None:
    row = cluster.rows.get(tp)
    if row is None:
        return ApiError(KafkaError.UNKNOWN_TOPIC_OR_PARTITION, f"partition {tp} does not exist")
    if tp.topic in cluster.deletions:
        return ApiError(KafkaError.INVALID_TOPIC_EXCEPTION, f"{tp.topic} is being deleted")
    if row.leadership is None or tp in cluster.poisoned:
        unclean = election_type is ElectionType.UNCLEAN
        return ApiError(
            KafkaError.ELIGIBLE_LEADERS_NOT_AVAILABLE
            if unclean
            else KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
            f"{tp} never had a leader" if row.leadership is None else f"{tp} is quarantined",
        )
    if election_type is ElectionType.PREFERRED:
        needed = row.leader != row.assignment.replicas[0]
    else:
        needed = row.leader not in cluster.live
    if needed:
        return None
    return ApiError(KafkaError.ELECTION_NOT_NEEDED, f"{tp} needs no election")


async def on_auto_balance(cluster: ClusterState, outbox: Outbox) -> None:
    """Brokers that lead too few of the partitions that prefer them get those back."""
    settings = cluster.settings
    if not settings.auto_leader_rebalance:
        return
    schedule_balance(cluster, outbox, settings.leader_imbalance_check_interval_ms)
    lost: dict[BrokerId, list[TopicPartition]] = {}
    for pause, chunk in paced(cluster.unbalanced):
        if pause:
            await Flush()
        for tp in chunk:
            if tp.topic not in cluster.deletions:
                lost.setdefault(cluster.rows[tp].assignment.replicas[0], []).append(tp)
    due: list[TopicPartition] = []
    for broker, tps in lost.items():
        preferring = await _count_preferring(cluster, broker)
        if len(tps) * 100 > preferring * settings.leader_imbalance_per_broker_percentage:
            for pause, chunk in paced(tps):
                if pause:
                    await Flush()
                due += [
                    tp
                    for tp in chunk
                    if cluster.is_online(broker, tp)
                    and broker in cluster.rows[tp].isr
                    and tp not in cluster.poisoned
                ]
    await elect_leaders(cluster, due, Strategy.PREFERRED, outbox, "leaders out of balance")


async def _count_preferring(cluster: ClusterState, broker: BrokerId) -> int:
    """Partitions whose first replica this is."""
    count = 0
    for pause, chunk in paced(cluster.partitions_on(broker)):
        if pause:
            await Flush()
        for tp in chunk:
            if cluster.rows[tp].assignment.replicas[0] == broker:
                count += tp.topic not in cluster.deletions
    return count


def schedule_balance(cluster: ClusterState, outbox: Outbox, delay_ms: int) -> None:
    if cluster.settings.auto_leader_rebalance:
        event = AutoPreferredReplicaLeaderElection()
        outbox.timers.append(StartTimer(BALANCE_TIMER, delay_ms, event))


async def on_unclean_enabled(
    cluster: ClusterState, outbox: Outbox, topic: str | None = None
) -> None:
    """Partitions that waited for it may now have a leader. The rule itself is read again."""
    if topic is None or topic in cluster.topics:
        await trigger_online(cluster, outbox, "unclean election was enabled", topic)
