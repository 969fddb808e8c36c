"""Answers to callers. What is answered to an event that will never be handled is here too."""

from collections.abc import Mapping

import attrs

from kctl.messages import events as ev
from kctl.model.codes import KafkaError
from kctl.model.names import TopicId, TopicPartition
from kctl.model.rows import Assignment, Leadership


@attrs.frozen
class ApiError:
    code: KafkaError
    message: str | None = None


OK = ApiError(KafkaError.NONE)


@attrs.frozen
class Refused:
    """The whole request failed."""

    error: ApiError


@attrs.frozen
class ControlledShutdownDone:
    remaining: tuple[TopicPartition, ...]
    """Partitions that the broker still leads."""


@attrs.frozen
class PartitionErrors:
    """One outcome for each partition: ElectLeaders, AlterPartitionReassignments."""

    errors: Mapping[TopicPartition, ApiError]


@attrs.frozen
class Reassignments:
    partitions: Mapping[TopicPartition, Assignment]


@attrs.frozen
class AlteredPartitions:
    """AlterPartition: the committed leadership, or why it stays as it is."""

    partitions: Mapping[TopicPartition, Leadership | KafkaError]
    unknown_ids: Mapping[tuple[TopicId, int], KafkaError] = attrs.field(factory=dict)


@attrs.frozen
class CreatedTopic:
    name: str
    error: ApiError
    topic_id: TopicId | None = None
    num_partitions: int = -1
    replication_factor: int = -1


@attrs.frozen
class TopicResults:
    """CreateTopics, CreatePartitions and DeleteTopics: one result a topic, in order."""

    topics: tuple[CreatedTopic, ...]


@attrs.frozen
class FeatureErrors:
    errors: Mapping[str, ApiError]


@attrs.frozen
class UserErrors:
    """AlterUserScramCredentials: one outcome for each user."""

    errors: Mapping[str, ApiError]


@attrs.frozen
class ProducerIdBlock:
    start: int
    length: int


AnswerValue = (
    Refused
    | ControlledShutdownDone
    | PartitionErrors
    | Reassignments
    | AlteredPartitions
    | TopicResults
    | FeatureErrors
    | UserErrors
    | ProducerIdBlock
)


@attrs.frozen
class Answer:
    caller: ev.Caller
    value: AnswerValue


def preempted(event: ev.Event) -> Answer | None:
    """The answer to a caller whose event is thrown away, or arrives while standing by.

    Kafka leaves AlterPartition, UpdateFeatures and AllocateProducerIds unanswered here; their
    callers would wait for their time-out, so all of them are answered.
    """
    not_controller = ApiError(KafkaError.NOT_CONTROLLER)
    match event:
        case ev.ControlledShutdown(caller=caller):
            return Answer(caller, Refused(ApiError(KafkaError.STALE_CONTROLLER_EPOCH)))
        case ev.ReplicaLeaderElection(caller=int(caller), partitions=partitions):
            errors = dict.fromkeys(partitions or (), not_controller)
            return Answer(caller, PartitionErrors(errors))
        case ev.CreateTopics(caller=caller, topics=topics):
            return Answer(
                caller, TopicResults(tuple(CreatedTopic(t.name, not_controller) for t in topics))
            )
        case ev.CreatePartitions(caller=caller, topics=grown):
            return Answer(
                caller, TopicResults(tuple(CreatedTopic(t.name, not_controller) for t in grown))
            )
        case ev.DeleteTopics(caller=caller, topics=doomed):
            return Answer(
                caller,
                TopicResults(
                    tuple(CreatedTopic(name or "", not_controller, id_) for name, id_ in doomed)
                ),
            )
        case (
            ev.ApiPartitionReassignment(caller=caller)
            | ev.ListPartitionReassignments(caller=caller)
            | ev.AlterPartitionReceived(caller=caller)
            | ev.UpdateFeatures(caller=caller)
            | ev.AlterUserScramCredentials(caller=caller)
            | ev.AllocateProducerIds(caller=caller)
        ):
            return Answer(caller, Refused(not_controller))
        case _:
            return None
