"""A digest of a cluster: equal for equal states, in every process and whatever came first.

Two runs of the core that were told the same must arrive at the same digest; `kctl replay` compares
them. It covers what is known of the cluster, not the indexes that are made of it.
"""

import hashlib
import json
from collections.abc import Iterator

from kctl.model.cluster import ClusterState

STANDING_BY = "standing by"


def digest(cluster: ClusterState | None) -> str:
    """SHA-256 in hex, or a word where there is no cluster."""
    if cluster is None:
        return STANDING_BY
    sha = hashlib.sha256()
    for line in _lines(cluster):
        sha.update(json.dumps(line, separators=(",", ":")).encode())
        sha.update(b"\n")
    return sha.hexdigest()


def _lines(cluster: ClusterState) -> Iterator[list[object]]:
    yield ["epoch", cluster.epoch, cluster.epoch_zk_version, list(cluster.release)]
    for broker in sorted(cluster.brokers.values(), key=lambda b: b.id):
        endpoints = [[e.listener, e.host, e.port, e.security_protocol] for e in broker.endpoints]
        down = broker.id in cluster.shutting_down
        yield ["broker", broker.id, broker.epoch, broker.rack, endpoints, down]
        offline = sorted(map(str, cluster.offline_dirs.get(broker.id, ())))
        yield ["offline log dirs", broker.id, *offline]
    for name, topic in sorted(cluster.topics.items()):
        yield ["topic", name, topic.id, topic.zk_version]
        for partition, tp in sorted(topic.partitions.items()):
            row = cluster.rows[tp]
            assignment, led = row.assignment, row.leadership
            yield [
                partition,
                assignment.replicas,
                assignment.adding,
                assignment.removing,
                None
                if led is None
                else [
                    led.leader,
                    led.isr,
                    led.leader_epoch,
                    led.controller_epoch,
                    led.zk_version,
                    led.recovering,
                ],
                row.state,
                row.replica_states,
            ]
    yield ["reassigning", *sorted(map(str, cluster.reassigning))]
    for name, deletion in sorted(cluster.deletions.items()):
        yield ["deletion", name, deletion.started, deletion.ineligible]
    for path, reason in sorted(cluster.quarantine.items()):
        yield ["quarantine", path, reason]
