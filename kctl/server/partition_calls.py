"""Reassignments and elections that admin clients ask for."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from kctl.messages.answers import ApiError, PartitionErrors, Reassignments, Refused
from kctl.messages.events import (
    ApiPartitionReassignment,
    ElectionTrigger,
    ElectionType,
    ListPartitionReassignments,
    ReplicaLeaderElection,
)
from kctl.model.codes import KafkaError
from kctl.model.names import TopicPartition
from kctl.server.access import ControllerAccess
from kctl.server.waiting import always, not_known_in_time
from kctl.wire.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    PartitionResult,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)

V = TypeVar("V")


def by_topic(partitions: Iterable[tuple[TopicPartition, V]]) -> dict[str, list[tuple[int, V]]]:
    grouped: dict[str, list[tuple[int, V]]] = {}
    for tp, value in partitions:
        grouped.setdefault(tp.topic, []).append((tp.partition, value))
    return grouped


async def alter_partition_reassignments(
    access: ControllerAccess, request: AlterPartitionReassignmentsRequest, _version: int
) -> AlterPartitionReassignmentsResponse:
    targets = {
        TopicPartition(topic.name, p.partition_index): p.replicas
        for topic in request.topics
        for p in topic.partitions
    }
    answer = await access.answer_to(
        lambda caller: ApiPartitionReassignment(caller, targets), request.timeout_ms
    )
    match answer:
        case PartitionErrors(errors=errors):
            return AlterPartitionReassignmentsResponse(
                responses=tuple(
                    ReassignableTopicResponse(
                        topic,
                        tuple(
                            ReassignablePartitionResponse(partition, error.code, error.message)
                            for partition, error in outcomes
                        ),
                    )
                    for topic, outcomes in by_topic(errors.items()).items()
                )
            )
        case Refused(error=error):
            return AlterPartitionReassignmentsResponse(
                error_code=error.code, error_message=error.message
            )
    raise TypeError(f"AlterPartitionReassignments was answered with {answer!r}")


async def list_partition_reassignments(
    access: ControllerAccess, request: ListPartitionReassignmentsRequest, _version: int
) -> ListPartitionReassignmentsResponse:
    asked = None
    if request.topics is not None:
        asked = tuple(
            TopicPartition(t.name, p) for t in request.topics for p in t.partition_indexes
        )
    answer = await access.answer_to(
        lambda caller: ListPartitionReassignments(caller, asked), request.timeout_ms
    )
    match answer:
        case Reassignments(partitions=partitions):
            return ListPartitionReassignmentsResponse(
                topics=tuple(
                    OngoingTopicReassignment(
                        topic,
                        tuple(
                            OngoingPartitionReassignment(
                                partition,
                                assignment.replicas,
                                assignment.adding,
                                assignment.removing,
                            )
                            for partition, assignment in ongoing
                        ),
                    )
                    for topic, ongoing in by_topic(partitions.items()).items()
                )
            )
        case Refused(error=error):
            return ListPartitionReassignmentsResponse(
                error_code=error.code, error_message=error.message
            )
    raise TypeError(f"ListPartitionReassignments was answered with {answer!r}")


async def elect_leaders(
    access: ControllerAccess, request: ElectLeadersRequest, _version: int
) -> ElectLeadersResponse:
    try:
        election_type = ElectionType(request.election_type)
    except ValueError:
        return _elected({}, KafkaError.INVALID_REQUEST)
    asked = None
    if request.topic_partitions is not None:
        asked = tuple(
            TopicPartition(t.topic, p) for t in request.topic_partitions for p in t.partitions
        )
    answer = await access.answer_to(
        lambda caller: ReplicaLeaderElection(
            caller, asked, election_type, ElectionTrigger.ADMIN_CLIENT
        ),
        request.timeout_ms,
    )
    match answer:
        case PartitionErrors(errors=errors):
            if asked is None and not errors and access.view() is None:
                # All partitions were meant, and a controller that stands by knows none to name.
                return _elected({}, KafkaError.NOT_CONTROLLER)
            elected = [tp for tp, error in errors.items() if error.code == KafkaError.NONE]
            late = await not_known_in_time(access, elected, always, request.timeout_ms)
            timed_out = ApiError(KafkaError.REQUEST_TIMED_OUT)
            return _elected({**errors, **dict.fromkeys(late, timed_out)})
        case Refused(error=error):
            return _elected(dict.fromkeys(asked or (), error), error.code)
    raise TypeError(f"ElectLeaders was answered with {answer!r}")


def _elected(
    errors: Mapping[TopicPartition, ApiError], error_code: int = KafkaError.NONE
) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        error_code=error_code,
        replica_election_results=tuple(
            ReplicaElectionResult(
                topic,
                tuple(
                    PartitionResult(partition, error.code, error.message)
                    for partition, error in outcomes
                ),
            )
            for topic, outcomes in by_topic(errors.items()).items()
        ),
    )
