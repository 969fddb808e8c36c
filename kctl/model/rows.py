"""One partition in memory: assignment, leadership and the states of both state machines.

Rows are frozen and hold no reference that could form a cycle, so the garbage collector need not
know them (`gc=False`): a million of them cost nothing to collect. Assignments are shared between
rows, most rows of a topic have one of a few.
"""

from collections.abc import Container, Iterable, Iterator
from functools import lru_cache

import msgspec

from kctl.model.names import NO_LEADER, BrokerId, TopicPartition
from kctl.model.states import (
    REPLICA_CAME_FROM,
    IllegalTransition,
    PartitionState,
    ReplicaState,
)

Replicas = tuple[BrokerId, ...]


class Assignment(msgspec.Struct, frozen=True, gc=False):
    """All replicas, target first; those being added and removed while a reassignment runs."""

    replicas: Replicas
    adding: Replicas = ()
    removing: Replicas = ()

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> Replicas:
        """Before the reassignment: what a cancellation goes back to."""
        return tuple(b for b in self.replicas if b not in self.adding)

    @property
    def target(self) -> Replicas:
        return tuple(b for b in self.replicas if b not in self.removing)

    def reassign_to(self, target: Iterable[BrokerId]) -> "Assignment":
        wanted = tuple(dict.fromkeys(target))
        origin = self.origin
        replicas = tuple(dict.fromkeys((*wanted, *origin)))
        return Assignment(
            replicas=replicas,
            adding=tuple(b for b in replicas if b not in origin),
            removing=tuple(b for b in replicas if b not in wanted),
        )

    def completed(self) -> "Assignment":
        return Assignment(self.target)

    def without(self, broker: BrokerId) -> "Assignment":
        return Assignment(
            replicas=tuple(b for b in self.replicas if b != broker),
            adding=tuple(b for b in self.adding if b != broker),
            removing=tuple(b for b in self.removing if b != broker),
        )


class Leadership(msgspec.Struct, frozen=True, gc=False):
    """What the partition's state znode holds, with the version of that znode."""

    leader: BrokerId
    isr: Replicas
    leader_epoch: int
    controller_epoch: int
    zk_version: int
    recovering: bool = False
    """After an unclean election, until the leader reports that it has recovered."""

    def same_content(self, other: "Leadership") -> bool:
        """Equal but for the znode's version: a write that we sent and found in place has landed."""
        return (
            self.leader == other.leader
            and self.isr == other.isr
            and self.leader_epoch == other.leader_epoch
            and self.controller_epoch == other.controller_epoch
            and self.recovering == other.recovering
        )

    def written(self) -> "Leadership":
        """After a conditional write succeeded: ZooKeeper counts the version up by one."""
        return Leadership(
            self.leader,
            self.isr,
            self.leader_epoch,
            self.controller_epoch,
            self.zk_version + 1,
            self.recovering,
        )

    def with_shared(self, isr: Replicas) -> "Leadership":
        """The same, with an equal ISR that other rows have too."""
        if self.isr is isr:
            return self
        return Leadership(
            self.leader,
            isr,
            self.leader_epoch,
            self.controller_epoch,
            self.zk_version,
            self.recovering,
        )


class Row(msgspec.Struct, frozen=True, gc=False):
    assignment: Assignment
    leadership: Leadership | None
    state: PartitionState
    replica_states: tuple[ReplicaState, ...]
    """One for each of `assignment.replicas`, in that order."""

    @property
    def replicas(self) -> Replicas:
        return self.assignment.replicas

    @property
    def leader(self) -> BrokerId:
        return NO_LEADER if self.leadership is None else self.leadership.leader

    @property
    def isr(self) -> Replicas:
        return () if self.leadership is None else self.leadership.isr

    def replica_state(self, broker: BrokerId) -> ReplicaState:
        for replica, state in zip(self.assignment.replicas, self.replica_states, strict=True):
            if replica == broker:
                return state
        return ReplicaState.NON_EXISTENT

    def led(self, leadership: Leadership, state: PartitionState | None = None) -> "Row":
        return Row(
            self.assignment,
            leadership,
            self.state if state is None else state,
            self.replica_states,
        )

    def in_state(self, state: PartitionState) -> "Row":
        return Row(self.assignment, self.leadership, state, self.replica_states)

    def states_with(
        self, brokers: Container[BrokerId], state: ReplicaState
    ) -> tuple[ReplicaState, ...]:
        pairs = zip(self.assignment.replicas, self.replica_states, strict=True)
        return tuple([state if replica in brokers else old for replica, old in pairs])

    def with_replicas_in(self, brokers: Container[BrokerId], state: ReplicaState) -> "Row":
        states = self.states_with(brokers, state)
        return Row(self.assignment, self.leadership, self.state, states)

    def reassigned(self, assignment: Assignment) -> "Row":
        """Another assignment; replicas that stay keep their state, new ones do not exist yet."""
        return Row(
            assignment,
            self.leadership,
            self.state,
            tuple(self.replica_state(b) for b in assignment.replicas),
        )


@lru_cache(maxsize=4_096)
def may_follow(before: tuple[ReplicaState, ...], after: tuple[ReplicaState, ...]) -> bool:
    """Whether the same replicas may go from these states to those; a few pairs make up all."""
    pairs = zip(before, after, strict=True)
    return all(old is new or old in REPLICA_CAME_FROM[new] for old, new in pairs)


def check_replicas(tp: TopicPartition, old: Row, row: Row) -> None:
    """Refuse what the transition table does not allow, of replicas that stay, come or go."""
    for broker, before, after in _replica_changes(old, row):
        if after is not before and before not in REPLICA_CAME_FROM[after]:
            raise IllegalTransition(f"{tp}: replica {broker} from {before.name} to {after.name}")


def _replica_changes(old: Row, row: Row) -> Iterator[tuple[BrokerId, ReplicaState, ReplicaState]]:
    for broker, after in zip(row.assignment.replicas, row.replica_states, strict=True):
        yield broker, old.replica_state(broker), after
    for broker, before in zip(old.assignment.replicas, old.replica_states, strict=True):
        if broker not in row.assignment.replicas:
            yield broker, before, ReplicaState.NON_EXISTENT
