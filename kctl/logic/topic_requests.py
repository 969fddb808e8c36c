"""Topics made, grown and deleted through this controller.

Validated in Kafka's order, written under the fence, and brought online at once: the watch that
follows finds nothing new. Waiting until the brokers know is not done here but where the answer is
sent.
"""

import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence

from kctl.logic import deletion
from kctl.logic.chunks import CHUNK
from kctl.logic.partitions import initialize_partitions
from kctl.logic.placement import PartialRacks, assign_replicas
from kctl.logic.topic_configs import invalid_config
from kctl.logic.topics import add_partitions, add_topics, draw_topic_ids
from kctl.logic.writing import write_topics
from kctl.messages.answers import OK, ApiError, CreatedTopic, TopicResults
from kctl.messages.effects import (
    CreateTopicNodes,
    Draw,
    Flush,
    ListDeletions,
    MarkForDeletion,
    ReadTopics,
    TopicNode,
    TopicToCreate,
)
from kctl.messages.events import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewPartitions,
    NewTopic,
)
from kctl.messages.outbox import Outbox
from kctl.model.brokers import Broker
from kctl.model.cluster import ClusterState
from kctl.model.codes import Code, KafkaError
from kctl.model.names import TopicId
from kctl.model.rows import Assignment, Replicas

NAME = re.compile(r"[a-zA-Z0-9._-]+")
NAME_MAX = 249
DEFAULT = -1
PARTITIONS_MAX = 200_000
"""More do not fit into a topic's znode; asked for two billion, the answer must not take hours."""


# -- CreateTopics ----------------------------------------------------------------------------


async def on_create_topics(cluster: ClusterState, event: CreateTopics, outbox: Outbox) -> None:
    results: dict[str, CreatedTopic] = {}
    accepted: dict[str, tuple[NewTopic, dict[int, Replicas]]] = {}
    marked = dict.fromkeys(await ListDeletions())
    names = Counter(t.name for t in event.topics)
    taken = dict.fromkeys(map(folded, cluster.topics))
    for number, topic in enumerate(event.topics, 1):
        if number % CHUNK == 0:
            await Flush()
        if names[topic.name] > 1:
            error = ApiError(KafkaError.INVALID_REQUEST, f"{topic.name} is named twice")
            results[topic.name] = CreatedTopic(topic.name, error)
            continue
        outcome = await _plan(cluster, topic, marked, taken)
        if isinstance(outcome, ApiError):
            results[topic.name] = CreatedTopic(topic.name, outcome)
        else:
            accepted[topic.name] = (topic, outcome)
            taken[folded(topic.name)] = None
    if event.validate_only:
        for name, (_, assignment) in accepted.items():
            results[name] = _created(name, None, assignment)
    elif accepted:
        results.update(await _create(cluster, accepted, outbox))
    answered = tuple(results[name] for name in names)
    outbox.answer(event.caller, TopicResults(answered))


def folded(name: str) -> str:
    """Names that differ only in . and _ would be one in the names of metrics."""
    return name.replace(".", "_")


async def _plan(
    cluster: ClusterState, topic: NewTopic, marked: Mapping[str, None], taken: Container[str]
) -> dict[int, Replicas] | ApiError:
    """Kafka's checks in Kafka's order; the assignment if all of them pass."""
    name = topic.name
    if name == "__cluster_metadata":
        return ApiError(KafkaError.INVALID_REQUEST, f"{name} is reserved")
    if name in cluster.topics:
        return ApiError(KafkaError.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
    if any(value is None for value in topic.configs.values()):
        return ApiError(KafkaError.INVALID_CONFIG, invalid_config(topic.configs))
    manual = topic.assignments
    if manual and (topic.num_partitions != DEFAULT or topic.replication_factor != DEFAULT):
        return ApiError(KafkaError.INVALID_REQUEST, "give either an assignment or counts, not both")
    assignment = manual_assignment(cluster, manual) if manual else await _place(cluster, topic)
    if isinstance(assignment, ApiError) and not manual:
        return assignment
    error = _bad_name(cluster, name, marked, taken)
    if error is not None:
        return error
    if isinstance(assignment, ApiError):
        return assignment
    wrong = invalid_config(topic.configs)
    return assignment if wrong is None else ApiError(KafkaError.INVALID_CONFIG, wrong)


def manual_assignment(
    cluster: ClusterState, wanted: Mapping[int, Replicas]
) -> dict[int, Replicas] | ApiError:
    """Sound in itself; as in Kafka, brokers that are down may be named."""

    def wrong(message: str) -> ApiError:
        return ApiError(KafkaError.INVALID_REPLICA_ASSIGNMENT, message)

    if sorted(wanted) != list(range(len(wanted))):
        return wrong("partition ids must be consecutive from 0")
    counts = {len(replicas) for replicas in wanted.values()}
    if len(counts) != 1 or 0 in counts:
        return wrong("all partitions must have the same number of replicas, at least one")
    own = cluster.controller_ids
    for partition, replicas in sorted(wanted.items()):
        if len(set(replicas)) != len(replicas):
            return wrong(f"partition {partition} names a broker twice")
        if min(replicas) < 0:
            return wrong(f"partition {partition} names a negative broker id")
        named = [i for i in own if i in replicas]
        if named:
            return wrong(f"partition {partition} names {named[0]}, which is the controller")
    return {p: tuple(wanted[p]) for p in sorted(wanted)}


async def _place(cluster: ClusterState, topic: NewTopic) -> dict[int, Replicas] | ApiError:
    settings = cluster.settings
    partitions = (
        settings.num_partitions if topic.num_partitions == DEFAULT else topic.num_partitions
    )
    factor = (
        settings.default_replication_factor
        if topic.replication_factor == DEFAULT
        else topic.replication_factor
    )
    if partitions <= 0:
        return ApiError(KafkaError.INVALID_PARTITIONS, "the number of partitions must be positive")
    if partitions > PARTITIONS_MAX:
        return _too_many(partitions)
    brokers = [cluster.brokers[b] for b in sorted(cluster.live)]
    if factor <= 0 or factor > len(brokers):
        return ApiError(
            KafkaError.INVALID_REPLICATION_FACTOR,
            f"replication factor {factor} with {len(brokers)} live brokers",
        )
    start, shift = await Draw(2, len(brokers))
    return _assign(brokers, 0, partitions, factor, (start, shift))


def _too_many(partitions: int) -> ApiError:
    return ApiError(
        KafkaError.INVALID_PARTITIONS, f"{partitions} are more than {PARTITIONS_MAX} partitions"
    )


def _assign(
    brokers: Sequence[Broker], first: int, count: int, factor: int, start_shift: tuple[int, int]
) -> dict[int, Replicas] | ApiError:
    start, shift = start_shift
    try:
        return assign_replicas(
            brokers, count, factor, start_index=start, shift=shift, first_partition=first
        )
    except PartialRacks as racks:
        return ApiError(KafkaError.UNKNOWN_SERVER_ERROR, str(racks))


def _bad_name(
    cluster: ClusterState, name: str, marked: Mapping[str, None], taken: Container[str]
) -> ApiError | None:
    if name in ("", ".", "..") or len(name) > NAME_MAX or not NAME.fullmatch(name):
        return ApiError(
            KafkaError.INVALID_TOPIC_EXCEPTION,
            f"{name!r} is not a topic name: 1 to {NAME_MAX} of a-z A-Z 0-9 . _ -",
        )
    if name in marked or f"/brokers/topics/{name}" in cluster.quarantine:
        return ApiError(
            KafkaError.TOPIC_ALREADY_EXISTS, f"topic {name} exists, or is being deleted"
        )
    if folded(name) in taken:
        return ApiError(
            KafkaError.INVALID_TOPIC_EXCEPTION,
            f"topic {name} collides with one that differs only in . and _",
        )
    return None


async def _create(
    cluster: ClusterState,
    accepted: Mapping[str, tuple[NewTopic, dict[int, Replicas]]],
    outbox: Outbox,
) -> dict[str, CreatedTopic]:
    ids: list[TopicId | None] = [None] * len(accepted)
    if cluster.has_topic_ids:
        ids = list(await draw_topic_ids(len(accepted)))
    planned = {
        name: TopicToCreate(
            TopicNode({p: Assignment(r) for p, r in assignment.items()}, topic_id, 0),
            {key: value for key, value in topic.configs.items() if value is not None},
        )
        for (name, (topic, assignment)), topic_id in zip(accepted.items(), ids, strict=True)
    }
    codes = dict(await CreateTopicNodes(planned))
    await _resolve_unknown(planned, codes)
    results: dict[str, CreatedTopic] = {}
    created = []
    for name, plan in planned.items():
        code = codes.get(name, Code.UNKNOWN)
        if code is Code.OK:
            created.append(name)
            results[name] = _created(name, plan.node.topic_id, accepted[name][1])
        else:
            results[name] = CreatedTopic(name, _creation_error(name, code))
    await add_topics(cluster, created, outbox, "topic created by a client")
    return results


async def _resolve_unknown(planned: Mapping[str, TopicToCreate], codes: dict[str, Code]) -> None:
    """The connection broke: what is there with our content is ours."""
    unknown = tuple(name for name in planned if codes.get(name, Code.UNKNOWN) is Code.UNKNOWN)
    if unknown:
        found = await ReadTopics(unknown)
        for name in unknown:
            seen, plan = found.get(name), planned[name].node
            same = (
                isinstance(seen, TopicNode)
                and seen.topic_id == plan.topic_id
                and seen.partitions == plan.partitions
            )
            codes[name] = Code.OK if same else Code.UNKNOWN


def _creation_error(name: str, code: Code) -> ApiError:
    if code is Code.NODE_EXISTS:
        return ApiError(KafkaError.TOPIC_ALREADY_EXISTS, f"topic {name} already exists")
    if code is Code.TOO_LARGE:
        return ApiError(
            KafkaError.INVALID_PARTITIONS,
            f"topic {name} would not fit into its znode; give it fewer partitions",
        )
    return ApiError(KafkaError.UNKNOWN_SERVER_ERROR, f"topic {name}: {code.value}")


def _created(
    name: str, topic_id: TopicId | None, assignment: Mapping[int, Replicas]
) -> CreatedTopic:
    return CreatedTopic(name, OK, topic_id, len(assignment), len(assignment[0]))


# -- CreatePartitions ------------------------------------------------------------------------


async def on_create_partitions(
    cluster: ClusterState, event: CreatePartitions, outbox: Outbox
) -> None:
    results: dict[str, CreatedTopic] = {}
    planned: dict[str, dict[int, Replicas]] = {}
    names = Counter(t.name for t in event.topics)
    for number, topic in enumerate(event.topics, 1):
        if number % CHUNK == 0:
            await Flush()
        if names[topic.name] > 1:
            outcome: dict[int, Replicas] | ApiError = ApiError(
                KafkaError.INVALID_REQUEST, f"{topic.name} is named twice"
            )
        else:
            outcome = await _plan_growth(cluster, topic)
        if isinstance(outcome, ApiError):
            results[topic.name] = CreatedTopic(topic.name, outcome)
        else:
            results[topic.name] = CreatedTopic(topic.name, OK)
            planned[topic.name] = outcome
    if not event.validate_only and planned:
        for name, reason in (await _grow(cluster, planned, outbox)).items():
            error = ApiError(KafkaError.INVALID_PARTITIONS, reason)
            results[name] = CreatedTopic(name, error)
    answered = tuple(results[name] for name in names)
    outbox.answer(event.caller, TopicResults(answered))


async def _plan_growth(
    cluster: ClusterState, topic: NewPartitions
) -> dict[int, Replicas] | ApiError:
    name = topic.name
    if name in cluster.deletions:
        return ApiError(KafkaError.INVALID_TOPIC_EXCEPTION, f"{name} is being deleted")
    if name not in cluster.topics:
        return ApiError(KafkaError.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
    tps = list(cluster.partitions_of(name))
    if not tps:
        return ApiError(KafkaError.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} has no partitions")
    if topic.count > PARTITIONS_MAX:
        return _too_many(topic.count)
    if any(tp in cluster.reassigning for tp in tps):
        return ApiError(KafkaError.REASSIGNMENT_IN_PROGRESS, f"{name} is being reassigned")
    current = len(tps)
    if topic.count <= current:
        return ApiError(
            KafkaError.INVALID_PARTITIONS,
            f"topic {name} has {current} partitions, {topic.count} would not be more",
        )
    model = cluster.rows[min(tps)].assignment.replicas
    first, count = current, topic.count - current
    if topic.assignments is not None:
        return _manual_growth(cluster, topic.assignments, first, count, len(model))
    brokers = [cluster.brokers[b] for b in sorted(cluster.live)]
    if len(model) > len(brokers):
        return ApiError(
            KafkaError.INVALID_REPLICATION_FACTOR,
            f"replication factor {len(model)} with {len(brokers)} live brokers",
        )
    start = next((i for i, b in enumerate(brokers) if b.id >= model[0]), 0)
    # As in Kafka: the start is fixed by partition 0, and the shift starts there too.
    return _assign(brokers, first, count, len(model), (start, start))


def _manual_growth(
    cluster: ClusterState,
    wanted: Sequence[Replicas],
    first: int,
    count: int,
    replication_factor: int,
) -> dict[int, Replicas] | ApiError:
    def wrong(message: str) -> ApiError:
        return ApiError(KafkaError.INVALID_REPLICA_ASSIGNMENT, message)

    if len(wanted) != count:
        return wrong(f"{count} partitions are added, but {len(wanted)} assignments given")
    for replicas in wanted:
        if len(set(replicas)) != len(replicas):
            return wrong(f"{list(replicas)} names a broker twice")
        if len(replicas) != replication_factor:
            return wrong(f"{list(replicas)} must have {replication_factor} replicas")
        unknown = [b for b in replicas if b not in cluster.brokers]
        if unknown:
            return wrong(f"brokers {unknown} are not known")
    return {first + i: tuple(replicas) for i, replicas in enumerate(wanted)}


async def _grow(
    cluster: ClusterState, planned: Mapping[str, Mapping[int, Replicas]], outbox: Outbox
) -> dict[str, str]:
    added = {
        name: {p: Assignment(replicas) for p, replicas in partitions.items()}
        for name, partitions in planned.items()
    }
    failed = await write_topics(cluster, added, outbox)
    tps = [
        tp
        for name, partitions in added.items()
        if name not in failed
        for tp in add_partitions(cluster, name, partitions)
    ]
    await initialize_partitions(cluster, tps, outbox, "partitions added by a client")
    return failed


# -- DeleteTopics ----------------------------------------------------------------------------


async def on_delete_topics(cluster: ClusterState, event: DeleteTopics, outbox: Outbox) -> None:
    results: list[CreatedTopic] = []
    doomed: dict[str, None] = {}
    for name, topic_id in event.topics:
        resolved = name if name is not None else cluster.topic_names.get(topic_id or "")
        error = _not_deletable(cluster, name, topic_id, resolved)
        known_id = topic_id
        if error is OK and resolved is not None:
            doomed[resolved] = None
            known_id = cluster.topics[resolved].id
        results.append(CreatedTopic(resolved or "", error, known_id))
    if doomed:
        codes = await MarkForDeletion(tuple(doomed))
        done = (Code.OK, Code.NODE_EXISTS)
        for index, result in enumerate(results):
            code = codes.get(result.name, Code.OK)
            if result.error is OK and code not in done:
                error = ApiError(KafkaError.UNKNOWN_SERVER_ERROR, f"not marked: {code.value}")
                results[index] = CreatedTopic(result.name, error, result.topic_id)
        marked = [t for t in doomed if codes.get(t) in done]
        await deletion.queue(cluster, marked, outbox)
    outbox.answer(event.caller, TopicResults(tuple(results)))
    if doomed:
        await deletion.resume_deletions(cluster, outbox)


def _not_deletable(
    cluster: ClusterState, name: str | None, topic_id: TopicId | None, resolved: str | None
) -> ApiError:
    if not cluster.settings.delete_topic_enable:
        return ApiError(KafkaError.TOPIC_DELETION_DISABLED, "delete.topic.enable is false")
    if name is not None and topic_id is not None:
        return ApiError(KafkaError.INVALID_REQUEST, "give a name or an id, not both")
    if name is None and resolved is None:
        return ApiError(KafkaError.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
    if resolved not in cluster.topics:
        return ApiError(KafkaError.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
    return OK
