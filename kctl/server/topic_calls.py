"""CreateTopics, CreatePartitions and DeleteTopics."""

from collections.abc import Collection, Mapping, Sequence

import attrs

from kctl.messages.answers import AnswerValue, ApiError, CreatedTopic, Refused, TopicResults
from kctl.messages.events import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ListPartitionReassignments,
    NewPartitions,
    NewTopic,
)
from kctl.model.cluster import ClusterState, Topic
from kctl.model.codes import KafkaError
from kctl.model.names import TopicId, TopicPartition
from kctl.server.access import ControllerAccess
from kctl.server.limits import Limits
from kctl.server.topic_defaults import effective_configs
from kctl.server.waiting import has_leader, not_known_in_time
from kctl.wire.admin import (
    CreatableTopic,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kctl.wire.primitives import topic_id_bytes, topic_id_from_bytes

TOPIC_IDS_SINCE = 6
"""Version of DeleteTopics."""
DELETION_DISABLED_SINCE = 3
"""Version of DeleteTopics; older clients do not know this error."""

TIMED_OUT = ApiError(KafkaError.REQUEST_TIMED_OUT, "the brokers do not know of it yet")


def _results(answer: AnswerValue, asked: Sequence[CreatedTopic]) -> tuple[CreatedTopic, ...]:
    match answer:
        case TopicResults(topics=topics):
            return topics
        case Refused(error=error):
            return tuple(attrs.evolve(topic, error=error) for topic in asked)
    raise TypeError(f"a request about topics was answered with {answer!r}")


class _Allowance:
    """How much a request may still make: counted before any partition is placed."""

    def __init__(self, limits: Limits) -> None:
        self._of_topic = limits.partitions_per_topic_max
        self._left = limits.partitions_per_request_max
        self._topics = limits.topics_per_request_max

    def refuse(self, count: int) -> ApiError | None:
        if count > self._of_topic:
            return ApiError(
                KafkaError.INVALID_PARTITIONS,
                f"{count} partitions: a topic cannot have more than {self._of_topic}",
            )
        if count > self._left or not self._topics:
            return ApiError(KafkaError.INVALID_REQUEST, "too much for one request; send several")
        self._left -= max(0, count)
        self._topics -= 1
        return None


# -- CreateTopics ----------------------------------------------------------------------------


async def create_topics(
    access: ControllerAccess, request: CreateTopicsRequest, _version: int
) -> CreateTopicsResponse:
    allowance = _Allowance(access.limits)
    refused: dict[str, CreatedTopic] = {}
    new: list[NewTopic] = []
    for topic in request.topics:
        error = allowance.refuse(len(topic.assignments) or topic.num_partitions)
        if error is None:
            new.append(_new_topic(topic))
        else:
            refused[topic.name] = CreatedTopic(topic.name, error)
    results: tuple[CreatedTopic, ...] = ()
    if new or not refused:
        answer = await access.answer_to(
            lambda caller: CreateTopics(caller, tuple(new), request.validate_only),
            request.timeout_ms,
        )
        results = _results(answer, [CreatedTopic(topic.name, TIMED_OUT) for topic in new])
    if not request.validate_only:
        results = await _once_led(access, results, request.timeout_ms)
    configs = {topic.name: topic.configs for topic in new}
    return CreateTopicsResponse(
        topics=tuple(
            _creatable_result(result, configs.get(result.name, {}))
            for result in {**{r.name: r for r in results}, **refused}.values()
        )
    )


def _new_topic(topic: CreatableTopic) -> NewTopic:
    assignments = {a.partition_index: a.broker_ids for a in topic.assignments}
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        assignments or None,
        {config.name: config.value for config in topic.configs},
    )


async def _once_led(
    access: ControllerAccess, results: tuple[CreatedTopic, ...], timeout_ms: int
) -> tuple[CreatedTopic, ...]:
    """A topic is there for its user when the brokers know a leader for each of its partitions."""
    made = [
        TopicPartition(result.name, partition)
        for result in results
        if result.error.code == KafkaError.NONE
        for partition in range(result.num_partitions)
    ]
    late = {tp.topic for tp in await not_known_in_time(access, made, has_leader, timeout_ms)}
    return _timed_out(results, late)


def _timed_out(
    results: tuple[CreatedTopic, ...], late: Collection[str]
) -> tuple[CreatedTopic, ...]:
    return tuple(
        attrs.evolve(result, error=TIMED_OUT)
        if result.name in late and result.error.code == KafkaError.NONE
        else result
        for result in results
    )


def _creatable_result(
    result: CreatedTopic, configs: Mapping[str, str | None]
) -> CreatableTopicResult:
    if result.error.code != KafkaError.NONE:
        return CreatableTopicResult(
            result.name, error_code=result.error.code, error_message=result.error.message
        )
    return CreatableTopicResult(
        result.name,
        topic_id=topic_id_bytes(result.topic_id),
        num_partitions=result.num_partitions,
        replication_factor=result.replication_factor,
        configs=effective_configs(configs),
    )


# -- CreatePartitions ------------------------------------------------------------------------


async def create_partitions(
    access: ControllerAccess, request: CreatePartitionsRequest, _version: int
) -> CreatePartitionsResponse:
    allowance = _Allowance(access.limits)
    refused: dict[str, CreatedTopic] = {}
    grown: list[NewPartitions] = []
    for topic in request.topics:
        error = allowance.refuse(topic.count)
        if error is None:
            grown.append(_new_partitions(topic))
        else:
            refused[topic.name] = CreatedTopic(topic.name, error)
    results: tuple[CreatedTopic, ...] = ()
    if grown or not refused:
        answer = await access.answer_to(
            lambda caller: CreatePartitions(caller, tuple(grown), request.validate_only),
            request.timeout_ms,
        )
        results = _results(answer, [CreatedTopic(topic.name, TIMED_OUT) for topic in grown])
    if not request.validate_only:
        counts = {topic.name: topic.count for topic in grown}
        with_counts = tuple(attrs.evolve(r, num_partitions=counts[r.name]) for r in results)
        results = await _once_led(access, with_counts, request.timeout_ms)
    return CreatePartitionsResponse(
        results=tuple(
            CreatePartitionsTopicResult(result.name, result.error.code, result.error.message)
            for result in {**{r.name: r for r in results}, **refused}.values()
        )
    )


def _new_partitions(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = topic.assignments
    return NewPartitions(
        topic.name,
        topic.count,
        None if assignments is None else tuple(a.broker_ids for a in assignments),
    )


# -- DeleteTopics ----------------------------------------------------------------------------


async def delete_topics(
    access: ControllerAccess, request: DeleteTopicsRequest, version: int
) -> DeleteTopicsResponse:
    doomed: tuple[tuple[str | None, TopicId | None], ...]
    if version < TOPIC_IDS_SINCE:
        doomed = tuple((name, None) for name in request.topic_names)
    else:
        doomed = tuple((t.name, topic_id_from_bytes(t.topic_id)) for t in request.topics)
    before = _known(access.view(), doomed)
    answer = await access.answer_to(lambda caller: DeleteTopics(caller, doomed), request.timeout_ms)
    results = _results(answer, [CreatedTopic(name or "", TIMED_OUT, i) for name, i in doomed])
    marked = {r.name for r in results if r.error.code == KafkaError.NONE}
    gone = {name: topic for name, topic in before.items() if name in marked}
    late = await _not_gone(access, gone, request.timeout_ms)
    return DeleteTopicsResponse(
        responses=tuple(_deletable_result(result, version) for result in _timed_out(results, late))
    )


def _known(
    state: ClusterState | None, doomed: Sequence[tuple[str | None, TopicId | None]]
) -> dict[str, tuple[Topic, tuple[TopicPartition, ...]]]:
    """Topics as they are before they go; one created anew under the same name is another one."""
    known: dict[str, tuple[Topic, tuple[TopicPartition, ...]]] = {}
    if state is None:
        return known
    for name, topic_id in doomed:
        resolved = name if name is not None else state.topic_names.get(topic_id or "")
        topic = state.topics.get(resolved) if resolved is not None else None
        if resolved is not None and topic is not None:
            known[resolved] = (topic, tuple(topic.partitions.values()))
    return known


async def _not_gone(
    access: ControllerAccess,
    topics: Mapping[str, tuple[Topic, tuple[TopicPartition, ...]]],
    timeout_ms: int,
) -> set[str]:
    """A topic is gone for its user when it has left the brokers' caches; its files go later."""

    def left(state: ClusterState, tp: TopicPartition) -> bool:
        deletion = state.deletions.get(tp.topic)
        same = state.topics.get(tp.topic) is topics[tp.topic][0]
        return not same or (deletion is not None and deletion.started)

    if timeout_ms > 0 and topics:
        # The answer leaves with the first of the requests that tell the brokers. One event is
        # handled at a time, so when another one is answered all of them have left.
        await access.answer_to(lambda caller: ListPartitionReassignments(caller, ()), timeout_ms)
    partitions = [tp for _, tps in topics.values() for tp in tps]
    return {tp.topic for tp in await not_known_in_time(access, partitions, left, timeout_ms)}


def _deletable_result(result: CreatedTopic, version: int) -> DeletableTopicResult:
    code = result.error.code
    if code == KafkaError.TOPIC_DELETION_DISABLED and version < DELETION_DISABLED_SINCE:
        code = KafkaError.INVALID_REQUEST
    name: str | None = result.name
    if version >= TOPIC_IDS_SINCE and not name:
        name = None
    return DeletableTopicResult(name, topic_id_bytes(result.topic_id), code, result.error.message)
