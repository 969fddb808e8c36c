"""Microseconds of CPU a partition state for encoding and decoding the controller's requests.

python bench/wire_encode.py [partitions]
"""

import struct
import sys
import time
from collections.abc import Callable

from kctl.messages.requests import (
    LeaderAndIsrRequest,
    StopReplicaPartition,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kctl.model.brokers import Broker, Endpoint
from kctl.model.names import TopicPartition, topic_id_from_bits
from kctl.model.rows import Assignment, Leadership, Row
from kctl.model.states import PartitionState, ReplicaState
from kctl.wire import apis, control_plane, primitives, requests

BROKERS = tuple(
    Broker(i, 100 + i, (Endpoint("PLAINTEXT", f"broker-{i}.example.com", 9092),)) for i in range(10)
)
REPEATS = 7


def rows_of(topics: int, partitions: int) -> dict[TopicPartition, Row]:
    assignments = [Assignment(tuple((i + k) % 10 for k in range(3))) for i in range(10)]
    online = (ReplicaState.ONLINE,) * 3
    return {
        TopicPartition(f"topic-{t}", p): Row(
            assignment := assignments[(t + p) % 10],
            Leadership(
                assignment.replicas[0], assignment.replicas[:1] + assignment.replicas[1:], 5, 3, 7
            ),
            PartitionState.ONLINE,
            online,
        )
        for t in range(topics)
        for p in range(partitions)
    }


def best_us(work: Callable[[], object], states: int) -> float:
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times) / states * 1e6


def measure(total: int, partitions: int) -> None:
    topics = total // partitions
    rows = rows_of(topics, partitions)
    ids = {f"topic-{t}": topic_id_from_bits(t * 7919 << 64 | t) for t in range(topics)}
    lisr = LeaderAndIsrRequest(1, 101, 3, rows, {}, ids, BROKERS)
    umr = UpdateMetadataRequest({1: 101}, 3, BROKERS, rows, {}, {}, ids)
    stop = StopReplicaRequest(1, 101, 3, {tp: StopReplicaPartition(-2, delete=True) for tp in rows})
    lisr_body = requests.finish(requests.leader_and_isr(lisr, 1000, 7))
    umr_body = struct.pack(">i?iq", 1000, False, 3, 101) + requests.finish(
        requests.update_metadata_body(umr, 8)
    )
    stop_body = requests.stop_replica(stop, 1000, 4)[0].body
    answer = control_plane.LeaderAndIsrResponse(
        topics=tuple(
            control_plane.LeaderAndIsrTopicError(
                primitives.topic_id_bytes(ids[f"topic-{t}"]),
                tuple(
                    control_plane.LeaderAndIsrPartitionError(partition_index=p)
                    for p in range(partitions)
                ),
            )
            for t in range(topics)
        )
    )
    answer_body = apis.encode(answer, 7)
    cases: list[tuple[str, Callable[[], object]]] = [
        (
            "encode LeaderAndIsr v7",
            lambda: requests.finish(requests.leader_and_isr(lisr, 1000, 7)),
        ),
        ("encode LeaderAndIsr v0", lambda: requests.finish(requests.leader_and_isr(lisr, 1000, 0))),
        (
            "encode UpdateMetadata v8",
            lambda: requests.finish(requests.update_metadata_body(umr, 8)),
        ),
        ("encode StopReplica v4", lambda: requests.stop_replica(stop, 1000, 4)),
        (
            "decode LeaderAndIsr v7",
            lambda: apis.decode(control_plane.LeaderAndIsrRequest, 7, lisr_body),
        ),
        (
            "decode UpdateMetadata v8",
            lambda: apis.decode(control_plane.UpdateMetadataRequest, 8, umr_body),
        ),
        (
            "decode StopReplica v4",
            lambda: apis.decode(control_plane.StopReplicaRequest, 4, stop_body),
        ),
        (
            "decode LeaderAndIsr answer v7",
            lambda: apis.decode(control_plane.LeaderAndIsrResponse, 7, answer_body),
        ),
    ]
    print(f"{topics} topics x {partitions} partitions, 3 replicas")
    for name, work in cases:
        print(f"  {name:30} {best_us(work, topics * partitions):6.2f} us a partition")


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    measure(wanted, 10)
    measure(wanted, 1)
