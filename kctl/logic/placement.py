"""Replica assignment for new partitions: Kafka's round robin, with and without racks.

For the same brokers, start index and shift the result is exactly Kafka's.
"""

from collections.abc import Mapping, Sequence

from kctl.model.brokers import Broker
from kctl.model.names import BrokerId
from kctl.model.rows import Replicas


class PartialRacks(ValueError):
    """Some brokers have a rack and some have none: nobody can place by racks then."""


def assign_replicas(
    brokers: Sequence[Broker],
    partitions: int,
    replication_factor: int,
    *,
    start_index: int,
    shift: int,
    first_partition: int = 0,
) -> dict[int, Replicas]:
    """`brokers` in the order in which Kafka lists them; the other numbers are drawn or fixed."""
    racks = {b.id: b.rack for b in brokers if b.rack is not None}
    if racks and len(racks) != len(brokers):
        without = sorted(b.id for b in brokers if b.rack is None)
        raise PartialRacks(f"brokers {without} have no rack, but others do")
    ids = [b.id for b in brokers] if not racks else alternate_racks(racks)
    assigned: dict[int, Replicas] = {}
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(ids) == 0:
            shift += 1
        first = (partition + start_index) % len(ids)
        if racks:
            assigned[partition] = _rack_aware(ids, racks, first, shift, replication_factor)
        else:
            assigned[partition] = (
                ids[first],
                *(
                    ids[_follower_index(first, shift, j, len(ids))]
                    for j in range(replication_factor - 1)
                ),
            )
    return assigned


def _follower_index(first: int, shift: int, follower: int, brokers: int) -> int:
    if brokers == 1:
        return first
    return (first + 1 + (shift + follower) % (brokers - 1)) % brokers


def alternate_racks(racks: Mapping[BrokerId, str]) -> list[BrokerId]:
    """One broker of each rack in turn: racks in order, brokers in order within their rack."""
    by_rack: dict[str, list[BrokerId]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    result: list[BrokerId] = []
    depth = 0
    while len(result) < len(racks):
        result += [queue[depth] for queue in queues if depth < len(queue)]
        depth += 1
    return result


def _rack_aware(
    ids: Sequence[BrokerId],
    racks: Mapping[BrokerId, str],
    first: int,
    shift: int,
    replication_factor: int,
) -> Replicas:
    """Skip a rack that has a replica while another has none, and a broker likewise."""
    rack_count = len(set(racks.values()))
    leader = ids[first]
    replicas = [leader]
    used_racks = {racks[leader]}
    used_brokers = {leader}
    k = 0
    for _ in range(replication_factor - 1):
        while True:
            broker = ids[_follower_index(first, shift * rack_count, k, len(ids))]
            k += 1
            rack_free = racks[broker] not in used_racks or len(used_racks) == rack_count
            broker_free = broker not in used_brokers or len(used_brokers) == len(ids)
            if rack_free and broker_free:
                break
        replicas.append(broker)
        used_racks.add(racks[broker])
        used_brokers.add(broker)
    return tuple(replicas)
