"""What a simulated broker believes: the controller's requests, applied as real brokers apply them.

A broker obeys the highest controller epoch that it has seen, ignores requests for an earlier
incarnation of itself, takes a LeaderAndIsr only if it raises the leader epoch, and does not take
up that of a leader which it does not know, though it answers success all the same.
"""

from collections.abc import Iterator

import attrs

from kctl.model.codes import KafkaError
from kctl.model.names import BrokerId, TopicPartition
from kctl.wire import control_plane as cp
from kctl.wire.primitives import NULL_UUID

LEADER_DURING_DELETE = -2
EPOCH_DURING_DELETE = -2
EPOCH_UNKNOWN = -1


@attrs.frozen
class Hosted:
    """A replica on this broker."""

    state: cp.LeaderAndIsrPartitionState
    topic_id: bytes
    started: bool
    """Leads, or follows a leader that the broker knows. If not, only its log is there, and the same
    epoch can be told again."""


@attrs.define
class Belief:
    broker_id: BrokerId
    controller_id: BrokerId = -1
    controller_epoch: int = 0
    live: dict[BrokerId, cp.UpdateMetadataBroker] = attrs.field(factory=dict)
    metadata: dict[TopicPartition, cp.UpdateMetadataPartitionState] = attrs.field(factory=dict)
    topic_ids: dict[str, bytes] = attrs.field(factory=dict)
    hosted: dict[TopicPartition, Hosted] = attrs.field(factory=dict)
    deleted: dict[TopicPartition, None] = attrs.field(factory=dict)
    """Replicas that it was told to delete and has not got back since."""
    failed_dirs: dict[TopicPartition, None] = attrs.field(factory=dict)
    """Replicas whose log dir has failed: any order for them ends in a storage error."""

    # -- UpdateMetadata -----------------------------------------------------------------------

    def update_metadata(self, request: cp.UpdateMetadataRequest) -> int:
        if request.controller_epoch < self.controller_epoch:
            return KafkaError.STALE_CONTROLLER_EPOCH
        self.controller_id = request.controller_id
        self.controller_epoch = request.controller_epoch
        self.live = {b.id: b for b in request.live_brokers}
        for topic in request.topic_states:
            if topic.topic_id == NULL_UUID:
                self.topic_ids.pop(topic.topic_name, None)
            else:
                self.topic_ids[topic.topic_name] = topic.topic_id
        for tp, state in metadata_states(request):
            if state.leader == LEADER_DURING_DELETE:
                self.metadata.pop(tp, None)
            else:
                self.metadata[tp] = state
        return KafkaError.NONE

    # -- LeaderAndIsr -------------------------------------------------------------------------

    def leader_and_isr(
        self, request: cp.LeaderAndIsrRequest
    ) -> tuple[int, dict[TopicPartition, int]]:
        states = list(leader_and_isr_states(request))
        if request.controller_epoch < self.controller_epoch:
            stale = KafkaError.STALE_CONTROLLER_EPOCH
            return stale, {tp: stale for tp, _id, _state in states}
        self.controller_id = request.controller_id
        self.controller_epoch = request.controller_epoch
        return KafkaError.NONE, {
            tp: self._take_leadership(tp, topic_id, state) for tp, topic_id, state in states
        }

    def _take_leadership(
        self, tp: TopicPartition, topic_id: bytes, state: cp.LeaderAndIsrPartitionState
    ) -> int:
        if tp in self.failed_dirs:
            return KafkaError.KAFKA_STORAGE_ERROR
        known = self.hosted.get(tp)
        if known is not None:
            if NULL_UUID not in (topic_id, known.topic_id) and topic_id != known.topic_id:
                return KafkaError.INCONSISTENT_TOPIC_ID
            if known.started and state.leader_epoch <= known.state.leader_epoch:
                return KafkaError.STALE_CONTROLLER_EPOCH
        if self.broker_id not in state.replicas:
            return KafkaError.UNKNOWN_TOPIC_OR_PARTITION
        started = state.leader == self.broker_id or state.leader in self.live
        if started or known is None or not known.started:
            self.hosted[tp] = Hosted(state, topic_id, started)
        # Else it stays what it was: the epoch of a leader that it does not know is not taken up.
        self.deleted.pop(tp, None)
        return KafkaError.NONE

    # -- StopReplica --------------------------------------------------------------------------

    def stop_replica(self, request: cp.StopReplicaRequest) -> tuple[int, dict[TopicPartition, int]]:
        if request.controller_epoch < self.controller_epoch:
            return KafkaError.STALE_CONTROLLER_EPOCH, {}
        self.controller_epoch = request.controller_epoch
        return KafkaError.NONE, {
            tp: self._stop(tp, leader_epoch, delete=delete)
            for tp, leader_epoch, delete in stops_in(request)
        }

    def _stop(self, tp: TopicPartition, leader_epoch: int, *, delete: bool) -> int:
        if tp in self.failed_dirs:
            return KafkaError.KAFKA_STORAGE_ERROR
        known = self.hosted.get(tp)
        any_epoch = leader_epoch in (EPOCH_DURING_DELETE, EPOCH_UNKNOWN)
        if known is not None and not any_epoch and leader_epoch < known.state.leader_epoch:
            return KafkaError.FENCED_LEADER_EPOCH
        if delete:
            self.hosted.pop(tp, None)
            self.deleted[tp] = None
        elif known is not None:
            self.hosted[tp] = attrs.evolve(known, started=False)
        return KafkaError.NONE


# -- the entries of a request, whatever its version ------------------------------------------


def metadata_states(
    request: cp.UpdateMetadataRequest,
) -> Iterator[tuple[TopicPartition, cp.UpdateMetadataPartitionState]]:
    for state in request.ungrouped_partition_states:
        yield TopicPartition(state.topic_name, state.partition_index), state
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield TopicPartition(topic.topic_name, state.partition_index), state


def leader_and_isr_states(
    request: cp.LeaderAndIsrRequest,
) -> Iterator[tuple[TopicPartition, bytes, cp.LeaderAndIsrPartitionState]]:
    for state in request.ungrouped_partition_states:
        yield TopicPartition(state.topic_name, state.partition_index), NULL_UUID, state
    for topic in request.topic_states:
        for state in topic.partition_states:
            tp = TopicPartition(topic.topic_name, state.partition_index)
            yield tp, topic.topic_id, state


def stops_in(request: cp.StopReplicaRequest) -> Iterator[tuple[TopicPartition, int, bool]]:
    delete = request.delete_partitions
    for stop in request.ungrouped_partitions:
        yield TopicPartition(stop.topic_name, stop.partition_index), EPOCH_UNKNOWN, delete
    for topic in request.topics:
        for index in topic.partition_indexes:
            yield TopicPartition(topic.name, index), EPOCH_UNKNOWN, delete
    for states in request.topic_states:
        for state in states.partition_states:
            tp = TopicPartition(states.topic_name, state.partition_index)
            yield tp, state.leader_epoch, state.delete_partition
