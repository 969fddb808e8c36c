"""A notation for clusters, so that tests read like the rules they are about.

    orders-0: 1*,2,3 isr=1,2 epoch=5

is partition 0 of topic orders on brokers 1, 2 and 3, led by 1, with 1 and 2 in sync. Further words:
`adding=4`, `removing=1`, `version=9` (of the state znode), `written-by=7` (controller epoch),
`recovering`, and `new` for a partition without a state znode. Without a star nobody leads; without
`isr` all replicas are in sync.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import attrs

from kctl.messages import effects as ef
from kctl.messages.driver import Finished, Procedure, step
from kctl.messages.requests import (
    Connect,
    Disconnect,
    Dispatch,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kctl.model.brokers import Broker, Endpoint
from kctl.model.cluster import ClusterState
from kctl.model.codes import Code
from kctl.model.names import (
    NO_LEADER,
    BrokerId,
    TopicId,
    TopicPartition,
    topic_id_from_bits,
)
from kctl.model.rows import Assignment, Leadership, Replicas, Row
from kctl.model.settings import LATEST_RELEASE, Settings
from kctl.model.states import PartitionState, ReplicaState

CONTROLLER = 1000
EPOCH = 7
"""Controller epoch of clusters that are built ready; a `World` is elected to it."""

T = TypeVar("T")


@attrs.frozen
class Line:
    tp: TopicPartition
    assignment: Assignment
    leadership: Leadership | None


def tp_of(text: str) -> TopicPartition:
    return TopicPartition.parse(text)


def tps(*texts: str) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition.parse(text) for text in texts)


def ids(text: str) -> Replicas:
    return tuple(int(part) for part in text.split(",") if part)


def parse(text: str) -> Line:
    name, _, rest = text.partition(":")
    replicas_text, *words = rest.split()
    fields = dict(word.partition("=")[::2] for word in words)
    starred = [part for part in replicas_text.split(",") if part.endswith("*")]
    replicas = ids(replicas_text.replace("*", ""))
    unknown = fields.keys() - {
        *("isr", "epoch", "version", "written-by", "adding", "removing", "recovering", "new")
    }
    assert not unknown, f"{text!r}: unknown words {unknown}"
    leadership = Leadership(
        leader=int(starred[0].rstrip("*")) if starred else NO_LEADER,
        isr=ids(fields["isr"]) if "isr" in fields else replicas,
        leader_epoch=int(fields.get("epoch", 0)),
        controller_epoch=int(fields.get("written-by", 1)),
        zk_version=int(fields.get("version", fields.get("epoch", 0))),
        recovering="recovering" in fields,
    )
    return Line(
        tp_of(name.strip()),
        Assignment(replicas, ids(fields.get("adding", "")), ids(fields.get("removing", ""))),
        None if "new" in fields else leadership,
    )


def show(assignment: Assignment, leadership: Leadership | None) -> str:
    """The same notation, for what is expected: replicas, leader, ISR and epoch, always all."""
    leader = NO_LEADER if leadership is None else leadership.leader
    words = [",".join(f"{b}*" if b == leader else str(b) for b in assignment.replicas)]
    if assignment.adding:
        words.append(f"adding={_commas(assignment.adding)}")
    if assignment.removing:
        words.append(f"removing={_commas(assignment.removing)}")
    if leadership is None:
        words.append("new")
    else:
        words += [f"isr={_commas(leadership.isr)}", f"epoch={leadership.leader_epoch}"]
        if leadership.recovering:
            words.append("recovering")
    return " ".join(words)


def _commas(items: Iterable[object]) -> str:
    return ",".join(map(str, items))


def broker(number: BrokerId, epoch: int | None = None, rack: str | None = None) -> Broker:
    endpoint = Endpoint("PLAINTEXT", f"broker-{number}", 9092)
    return Broker(number, 100 + number if epoch is None else epoch, (endpoint,), rack)


def topic_id(topic: str) -> TopicId:
    """The same id for the same name, as if it had been drawn."""
    found = topic_id_from_bits(int.from_bytes(topic.encode().ljust(16, b"~")[:16], "big"))
    assert found is not None
    return found


def settings(**changes: Any) -> Settings:
    return attrs.evolve(Settings(CONTROLLER, inter_broker_protocol=LATEST_RELEASE), **changes)


def build_cluster(
    *lines: str,
    dead: Iterable[BrokerId] = (),
    brokers: Iterable[BrokerId] = (),
    shutting_down: Iterable[BrokerId] = (),
    offline_dirs: Mapping[BrokerId, tuple[str, ...]] | None = None,
    **changes: Any,
) -> ClusterState:
    """A loaded cluster: partitions whose leader is alive are Online, the others Offline or New."""
    parsed = [parse(line) for line in lines]
    cluster = ClusterState(settings(**changes), EPOCH, EPOCH)
    assigned = (b for line in parsed for b in line.assignment.replicas)
    for number in sorted({*assigned, *brokers} - {*dead}):
        cluster.add_broker(broker(number))
    for number in shutting_down:
        cluster.begin_shutdown(number)
    for number, failed in (offline_dirs or {}).items():
        cluster.offline_dirs[number] = dict.fromkeys(map(tp_of, failed))
    for line in parsed:
        if line.tp.topic not in cluster.topics:
            cluster.add_topic(line.tp.topic, topic_id(line.tp.topic), 0)
        cluster.put(line.tp, row_of(cluster, line))
    return cluster


def row_of(cluster: ClusterState, line: Line) -> Row:
    replicas = line.assignment.replicas
    if line.leadership is None:
        states = (ReplicaState.NEW,) * len(replicas)
        return Row(line.assignment, None, PartitionState.NEW, states)
    states = tuple(
        ReplicaState.ONLINE if cluster.is_online(b, line.tp) else ReplicaState.OFFLINE
        for b in replicas
    )
    leader = line.leadership.leader
    state = PartitionState.ONLINE if leader in cluster.brokers else PartitionState.OFFLINE
    return Row(line.assignment, line.leadership, state, states)


# -- effects: what a procedure wants, matched by what it names ---------------------------------


@attrs.frozen(eq=False)
class Wants:
    """Equal to an effect of this kind that names these partitions or topics, in this order."""

    kind: type[ef.Effect[Any]]
    names: tuple[str, ...]

    def __eq__(self, other: object) -> bool:
        return type(other) is self.kind and names_of(other) == self.names

    __hash__ = None  # type: ignore[assignment]


def wants(kind: type[ef.Effect[Any]], *names: str) -> Wants:
    return Wants(kind, names)


def names_of(effect: object) -> tuple[str, ...]:
    for field in ("rows", "partitions", "topics", "targets", "paths"):
        named = getattr(effect, field, None)
        if named is not None:
            return tuple(map(str, named))
    return ()


def found(*lines: str) -> dict[TopicPartition, Leadership]:
    """The reply of a read: these states."""
    seen = {}
    for line in map(parse, lines):
        assert line.leadership is not None
        seen[line.tp] = line.leadership
    return seen


def codes(code: Code, *names: str) -> dict[TopicPartition, Code]:
    return dict.fromkeys(tps(*names), code)


def ok(*names: str) -> dict[TopicPartition, Code]:
    return codes(Code.OK, *names)


def unknown(*names: str) -> dict[TopicPartition, Code]:
    """The reply of a write whose connection was lost: it may have landed."""
    return codes(Code.UNKNOWN, *names)


def stale(*names: str) -> dict[TopicPartition, Code]:
    return codes(Code.BAD_VERSION, *names)


def finish(procedure: Procedure, reply: object = None) -> Any:
    """Feed the last reply, let it flush what it likes, and take what it returns."""
    wanted = step(procedure, reply)
    while isinstance(wanted, ef.Flush):
        wanted = step(procedure)
    assert isinstance(wanted, Finished), f"it still wants {wanted!r}"
    return wanted.value


# -- requests ----------------------------------------------------------------------------------


def describe(dispatch: Dispatch) -> str:
    """One line for what leaves: `LeaderAndIsr to 2: t-0(new)`, `StopReplica to 1: t-0(delete)`."""
    match dispatch:
        case LeaderAndIsrRequest(broker=to, rows=rows, new=new):
            named = ", ".join(f"{tp}(new)" if tp in new else str(tp) for tp in rows)
            return f"LeaderAndIsr to {to}: {named}"
        case UpdateMetadataRequest(recipients=recipients, rows=rows, deleted=deleted):
            told = [f"{tp}(deleted)" if tp.topic in deleted else str(tp) for tp in rows]
            to_all = ",".join(map(str, sorted(recipients)))
            return f"UpdateMetadata to {to_all}: {', '.join(told) or 'live brokers'}"
        case StopReplicaRequest(broker=to, partitions=stopped):
            orders = [f"{tp}(delete)" if s.delete else str(tp) for tp, s in stopped.items()]
            return f"StopReplica to {to}: {', '.join(orders)}"
        case Connect(broker=to_connect):
            return f"Connect {to_connect.id}"
        case Disconnect(broker=number):
            return f"Disconnect {number}"
        case _:
            return type(dispatch).__name__


MakeCluster = Callable[..., ClusterState]
"""The fixture `cluster`."""
