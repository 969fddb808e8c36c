"""Effects, requests, answers and stories in words, one line for each thing."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, assert_never

from kctl.messages import answers as an
from kctl.messages import effects as ef
from kctl.messages.outbox import CancelTimers, StartTimer, Story
from kctl.messages.requests import (
    Connect,
    Disconnect,
    DisconnectAll,
    Dispatch,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kctl.model.codes import Code, KafkaError, Malformed
from kctl.model.names import TopicPartition
from kctl.model.rows import Assignment, Leadership, Row
from kctl.simulation.memory import MemoryZooKeeper


def listed(items: Iterable[object]) -> str:
    return ",".join(map(str, items))


def under(head: str, rest: Iterable[str]) -> list[str]:
    """On one line if it is one, else indented below."""
    lines = list(rest) or ["nothing"]
    if len(lines) == 1:
        return [f"{head} {lines[0]}"]
    return [head, *(f"     {line}" for line in lines)]


# -- values ----------------------------------------------------------------------------------


def leadership(value: Leadership) -> str:
    text = f"leader={value.leader} isr={listed(value.isr)} epoch={value.leader_epoch}"
    return f"{text} recovering" if value.recovering else text


def assignment(value: Assignment) -> str:
    text = listed(value.replicas)
    if value.adding:
        text += f" adding={listed(value.adding)}"
    if value.removing:
        text += f" removing={listed(value.removing)}"
    return text


def row(tp: TopicPartition, value: Row) -> str:
    text = f"{tp} {value.state.name.capitalize()}"
    if value.leadership is not None:
        text += f" {leadership(value.leadership)} version={value.leadership.zk_version}"
    states = (
        f"{b}:{s.name.capitalize()}"
        for b, s in zip(value.replicas, value.replica_states, strict=True)
    )
    text += f" replicas {' '.join(states)}"
    if value.assignment.is_reassigning:
        text += f" ({assignment(value.assignment)})"
    return text


def change(before: Leadership, after: Leadership) -> str:
    """Only what differs, before -> after."""

    def show(name: str, of: Callable[[Leadership], str]) -> str:
        old, new = of(before), of(after)
        return f" {name} {old} -> {new}" if old != new else ""

    return (
        show("leader", lambda v: str(v.leader))
        + show("isr", lambda v: listed(v.isr))
        + show("epoch", lambda v: str(v.leader_epoch))
        + show("recovering", lambda v: str(v.recovering).lower())
    ) or show("controller-epoch", lambda v: str(v.controller_epoch))


# -- effects ---------------------------------------------------------------------------------


def effect(wanted: ef.Effect[Any], zookeeper: MemoryZooKeeper) -> list[str]:
    """What is about to be read or written; writes as what is there -> what will be."""
    match wanted:
        case ef.Flush() | ef.Draw() | ef.Bootstrap() | ef.WatchPartitions(partitions=()):
            return []
        case ef.WatchPartitions(partitions=tps, watch=watch):
            return [f"{'watch' if watch else 'unwatch'} state of {listed(tps)}"]
        case ef.ReadControllership():
            return ["read /controller, /controller_epoch"]
        case ef.CreateControllerEpoch():
            return ["create /controller_epoch"]
        case ef.ClaimControllership(epoch=epoch, replaces=replaces):
            old = "" if replaces is None else f", instead of {replaces.broker_id}"
            return [f"claim /controller with epoch {epoch}{old}"]
        case ef.ReleaseControllership():
            return ["delete /controller"]
        case ef.RegisterController():
            return ["register the controller in /brokers/ids"]
        case ef.UnregisterController():
            return ["unregister the controller in /brokers/ids"]
        case ef.ReadBrokers():
            return ["read /brokers/ids"]
        case ef.ListTopics():
            return ["list /brokers/topics"]
        case ef.ReadTopics(topics=topics):
            return [f"read topic {listed(topics)}"]
        case ef.WriteTopics(topics=nodes):
            return [line for t, node in nodes.items() for line in _topic(t, node, zookeeper)]
        case ef.CreateTopicNodes(topics=planned):
            return [f"create topic {t}: {_partitions(p.node)}" for t, p in planned.items()]
        case ef.ReadTopicConfigs(topics=topics):
            return [f"read config of {listed(topics)}"]
        case ef.ReadPartitions(partitions=tps):
            return [f"read state of {listed(tps)}"]
        case ef.WritePartitions(rows=rows):
            return [_write(tp, new, zookeeper.states.get(tp)) for tp, new in rows.items()]
        case ef.CreatePartitionStates(rows=rows):
            return [f"create state of {tp}: {leadership(new)}" for tp, new in rows.items()]
        case ef.ListDeletions():
            return ["list /admin/delete_topics"]
        case ef.MarkForDeletion(topics=topics):
            return [f"create /admin/delete_topics/{t}" for t in topics]
        case ef.UnmarkForDeletion(topics=topics):
            return [f"delete /admin/delete_topics/{t}" for t in topics]
        case ef.RemovePartitionNodes(partitions=tps):
            return [f"delete state of {listed(tps)}"]
        case ef.RemoveTopicNodes(topics=topics):
            return [f"delete topic {t}, its config and its marker" for t in topics]
        case ef.ReadReassignments():
            return ["read /admin/reassign_partitions"]
        case ef.WriteReassignments(targets=targets):
            left = listed(f"{tp} to {listed(bs)}" for tp, bs in targets.items())
            verb = f"write /admin/reassign_partitions: {left}"
            return [verb if targets else "delete /admin/reassign_partitions"]
        case ef.ReadPreferredElection():
            return ["read /admin/preferred_replica_election"]
        case ef.RemovePreferredElection():
            return ["delete /admin/preferred_replica_election"]
        case ef.ReadIsrNotifications():
            return ["read /isr_change_notification"]
        case ef.ReadLogDirNotifications():
            return ["read /log_dir_event_notification"]
        case ef.RemoveNotifications(paths=paths):
            return [f"delete {path}" for path in paths]
        case ef.ReadFeatures():
            return ["read /feature"]
        case ef.WriteFeatures(node=node):
            return [f"write /feature: {'enabled' if node.enabled else 'disabled'}, empty"]
        case ef.ReadProducerIds():
            return ["read /latest_producer_id_block"]
        case ef.WriteProducerIds(start=start, end=end):
            return [f"write /latest_producer_id_block: {start} to {end}"]
        case _:
            raise AssertionError(f"no words for {wanted}")


def _topic(topic: str, node: ef.TopicNode, zookeeper: MemoryZooKeeper) -> list[str]:
    known = zookeeper.topics.get(topic)
    lines = []
    old: Mapping[int, Assignment] = {}
    if isinstance(known, ef.TopicNode):
        old = known.partitions
        if known.topic_id != node.topic_id:
            lines.append(f"write topic {topic}: its id")
    for partition, new in node.partitions.items():
        before = old.get(partition)
        if before != new:
            was = "" if before is None else f"{assignment(before)} -> "
            lines.append(f"write topic {topic}: partition {partition} {was}{assignment(new)}")
    lines += [
        f"write topic {topic}: partition {p} removed" for p in old if p not in node.partitions
    ]
    return lines or [f"write topic {topic}: as it is"]


def _partitions(node: ef.TopicNode) -> str:
    return " ".join(f"{p}:{assignment(a)}" for p, a in node.partitions.items())


def _write(tp: TopicPartition, new: Leadership, known: Leadership | Malformed | None) -> str:
    if not isinstance(known, Leadership):
        return f"write state of {tp}: {leadership(new)}"
    if known.zk_version != new.zk_version:
        return f"write state of {tp}: {leadership(new)} (expects version {new.zk_version})"
    return f"write state of {tp}:{change(known, new)}"


def refusals(reply: object) -> list[str]:
    """Codes in a reply to a write that are not OK. Reads say NO_NODE in their own way."""
    if isinstance(reply, Code) and reply is not Code.OK:
        return [f"     refused: {reply.value}"]
    if isinstance(reply, Mapping):
        return [
            f"     {key} refused: {code.value}"
            for key, code in reply.items()
            if isinstance(code, Code) and code is not Code.OK
        ]
    return []


# -- what leaves -----------------------------------------------------------------------------


def dispatches(sent: Iterable[Dispatch]) -> list[str]:
    """In order; brokers that are told the same one after the other share a line."""
    lines: list[str] = []
    told: list[tuple[str, list[str]]] = []

    def close() -> None:
        if told:
            brokers = listed(broker for broker, _ in told)
            first, *rest = told[0][1]
            lines.extend([f"-> {brokers} {first}", *rest])
            told.clear()

    for value in sent:
        if isinstance(value, LeaderAndIsrRequest | StopReplicaRequest):
            body = _order(value)
            if told and told[0][1] != body:
                close()
            told.append((str(value.broker), body))
        else:
            close()
            lines += _dispatch(value)
    close()
    return lines


def _order(sent: LeaderAndIsrRequest | StopReplicaRequest) -> list[str]:
    if isinstance(sent, LeaderAndIsrRequest):
        return under(
            "LeaderAndIsr",
            (f"{_told(tp, r)}{' new' if tp in sent.new else ''}" for tp, r in sent.rows.items()),
        )
    return under(
        "StopReplica",
        (
            f"{tp} epoch={p.leader_epoch}{' delete' if p.delete else ''}"
            for tp, p in sent.partitions.items()
        ),
    )


def _dispatch(sent: Connect | Disconnect | DisconnectAll | UpdateMetadataRequest) -> list[str]:
    match sent:
        case Connect(broker=broker):
            return [f"connect {broker.id}"]
        case Disconnect(broker=broker_id):
            return [f"disconnect {broker_id}"]
        case DisconnectAll():
            return ["disconnect all"]
        case UpdateMetadataRequest():
            return _metadata(sent)
        case _:
            assert_never(sent)


def _told(tp: TopicPartition, value: Row) -> str:
    assert value.leadership is not None
    text = f"{tp} {leadership(value.leadership)}"
    if value.assignment.is_reassigning:
        text += f" replicas={assignment(value.assignment)}"
    return text


def _metadata(sent: UpdateMetadataRequest) -> list[str]:
    head = f"-> {listed(sent.recipients)} UpdateMetadata"
    if not sent.rows:
        return [f"{head} of live brokers {listed(b.id for b in sent.live_brokers)}"]
    lines = []
    for tp, value in sent.rows.items():
        if tp.topic in sent.deleted:
            lines.append(f"{tp} leader=-2")
        else:
            offline = sent.offline.get(tp, ())
            gone = f" offline={listed(offline)}" if offline else ""
            assert value.leadership is not None
            lines.append(
                f"{tp} {leadership(value.leadership)} replicas={listed(value.replicas)}{gone}"
            )
    return under(head, lines)


def timer(value: StartTimer | CancelTimers) -> str:
    if isinstance(value, CancelTimers):
        return "timers cancelled"
    return f"timer {value.tag} in {value.delay_ms} ms"


def story(value: Story) -> str:
    about = listed(value.changes) if value.changes else value.key
    text = f"story {value.what}" + (f" {about}" if about else "")
    return f"{text}: {value.why}"


# -- answers ---------------------------------------------------------------------------------


def answer(value: an.AnswerValue) -> list[str]:
    match value:
        case an.Refused(error=error):
            return [f"answer {_error(error)}"]
        case an.ControlledShutdownDone(remaining=tps):
            return [f"answer remaining {listed(tps) or 'none'}"]
        case an.PartitionErrors(errors=errors):
            return under("answer", (f"{tp} {_error(e)}" for tp, e in errors.items()))
        case an.Reassignments(partitions=tps):
            return under("answer", (f"{tp} {assignment(a)}" for tp, a in tps.items()))
        case an.AlteredPartitions(partitions=tps, unknown_ids=ids):
            return under(
                "answer",
                [
                    *(f"{tp} {_altered(outcome)}" for tp, outcome in tps.items()),
                    *(f"{topic_id} {e.name}" for (topic_id, _), e in ids.items()),
                ],
            )
        case an.TopicResults(topics=topics):
            return under("answer", (f"{t.name} {_error(t.error)}" for t in topics))
        case an.FeatureErrors(errors=features):
            return under("answer", (f"{name} {_error(e)}" for name, e in features.items()))
        case an.UserErrors(errors=users):
            return under("answer", (f"{name} {_error(e)}" for name, e in users.items()))
        case an.ProducerIdBlock(start=start, length=length):
            return [f"answer producer ids {start} to {start + length - 1}"]
        case _:
            assert_never(value)


def _altered(outcome: Leadership | KafkaError) -> str:
    if isinstance(outcome, KafkaError):
        return outcome.name
    return f"{leadership(outcome)} version={outcome.zk_version}"


def _error(error: an.ApiError) -> str:
    if error.code is KafkaError.NONE:
        return "ok"
    return error.code.name + (f" ({error.message})" if error.message else "")
