"""Work that was given up after some attempts, because its znodes kept changing or stayed unknown.

What is left to do is found in the rows, not remembered: partitions without a leader, replicas in
service on brokers that are gone, reassignments that are not through.
"""

from kctl.logic import deletion, reassignment
from kctl.logic.partitions import trigger_online
from kctl.logic.replicas import CAN_GO_OFFLINE, take_offline
from kctl.messages.outbox import Outbox
from kctl.model.cluster import ClusterState
from kctl.model.names import TopicPartition
from kctl.model.rows import Replicas

WHY = "tried again"


async def on_retry(cluster: ClusterState, outbox: Outbox) -> None:
    elected = await trigger_online(cluster, outbox, WHY)
    await take_offline(cluster, _left_in_service(cluster), outbox, WHY, fenced=elected)
    await reassignment.advance(cluster, list(cluster.reassigning), outbox)
    await deletion.try_refused_again(cluster, outbox)


def _left_in_service(cluster: ClusterState) -> dict[TopicPartition, Replicas]:
    """Replicas that cannot serve, and have not been taken offline."""
    found: dict[TopicPartition, Replicas] = {}
    for broker, tps in cluster.by_broker.items():
        alive = broker in cluster.brokers
        for tp in cluster.offline_dirs.get(broker, ()) if alive else tps:
            row = cluster.rows[tp]
            if (
                row.leadership is not None
                and cluster.is_led(tp)
                and tp not in cluster.poisoned
                and row.replica_state(broker) in CAN_GO_OFFLINE
            ):
                found[tp] = (*found.get(tp, ()), broker)
    return found
