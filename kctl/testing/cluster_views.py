"""What a test looks at: partitions and brokers as values, and the whole cluster as text."""

import linecache
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from kctl.model.cluster import ClusterState
from kctl.model.names import NO_LEADER, TopicPartition
from kctl.model.rows import Row
from kctl.runtime.controller import Controller

SHOWN_PARTITIONS_MAX = 40


@attrs.frozen
class Partition:
    """One partition at the moment of asking; ask again for a newer one."""

    topic: str
    partition: int
    leader: int | None
    """None if it has no leader."""
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    """The preferred leader first; during a reassignment old and new ones."""
    leader_epoch: int
    """-1 before its first leader."""
    state: str
    """new, online, offline or non-existent: the controller's state machine."""
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def under_replicated(self) -> bool:
        """Fewer in sync than there are replicas."""
        return len(self.isr) < len(self.replicas)

    def __str__(self) -> str:
        parts = [
            f"{self.topic}-{self.partition}",
            f"leader {'none' if self.leader is None else self.leader}",
            f"isr {_ids(self.isr)}",
            f"replicas {_ids(self.replicas)}",
            f"epoch {self.leader_epoch}",
            self.state,
        ]
        if self.is_reassigning:
            parts.append(f"adding {_ids(self.adding)} removing {_ids(self.removing)}")
        return "  ".join(parts)


@attrs.frozen
class Broker:
    """One simulated broker at the moment of asking."""

    id: int
    address: str
    rack: str | None
    is_up: bool
    """Registered in ZooKeeper and listening."""
    epoch: int
    """Of its registration; higher each time it comes back."""

    def __str__(self) -> str:
        rack = "" if self.rack is None else f" in {self.rack}"
        return f"{self.id}{rack} {'up' if self.is_up else 'DOWN'}"


def partition_of(tp: TopicPartition, row: Row) -> Partition:
    return Partition(
        topic=tp.topic,
        partition=tp.partition,
        leader=None if row.leader == NO_LEADER else row.leader,
        isr=row.isr,
        replicas=row.replicas,
        leader_epoch=-1 if row.leadership is None else row.leadership.leader_epoch,
        state=row.state.name.lower().replace("_", "-"),
        adding=row.assignment.adding,
        removing=row.assignment.removing,
    )


def partitions_by_topic(cluster: ClusterState) -> dict[str, tuple[Partition, ...]]:
    return {
        name: tuple(
            partition_of(tp, cluster.rows[tp]) for _, tp in sorted(topic.partitions.items())
        )
        for name, topic in cluster.topics.items()
    }


def described(
    brokers: Iterable[Broker], topics: Mapping[str, Sequence[Partition]], notes: Iterable[str]
) -> str:
    """The cluster as text, for the message of a test that failed."""
    partitions = [p for parts in topics.values() for p in parts]
    # What is wrong is what the reader looks for.
    partitions.sort(key=lambda p: (p.leader is not None, not p.under_replicated))
    lines = [
        f"  brokers: {', '.join(map(str, brokers))}",
        *(f"  {partition}" for partition in partitions[:SHOWN_PARTITIONS_MAX]),
    ]
    if len(partitions) > SHOWN_PARTITIONS_MAX:
        lines.append(f"  and {len(partitions) - SHOWN_PARTITIONS_MAX} more partitions")
    return "\n".join([*lines, *(f"  {note}" for note in notes)])


def controller_notes(controller: Controller) -> list[str]:
    """How the controller is, and what it has to do still."""
    state = controller.state
    term = (
        f"epoch {state.epoch}" if state else f"not active, {controller.stood_down or 'standing by'}"
    )
    notes = [
        f"controller {controller.config.broker_id}: {term}, {controller.queue_size} events queued"
    ]
    if controller.meters.faults:
        notes.append(f"FAULTS of the controller: {controller.meters.faults}, see its log")
    return notes + [f"being deleted: {topic}" for topic in (state.deletions if state else ())]


def source_of(condition: Callable[..., Any]) -> str:
    """For a message: the line of a lambda, the name of a function."""
    code = getattr(condition, "__code__", None)
    if code is None or code.co_name != "<lambda>":
        return str(getattr(condition, "__name__", None) or repr(condition))
    return linecache.getline(code.co_filename, code.co_firstlineno).strip() or "a lambda"


def _ids(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids)) or "none"
