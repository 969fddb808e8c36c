"""What would happen? Events applied to a copy of a live cluster, by the core that decides live."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import attrs

from kctl.insight.snapshot import Snapshot
from kctl.messages import events as ev
from kctl.messages.answers import PartitionErrors
from kctl.messages.requests import (
    Dispatch,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kctl.model.cluster import ClusterState
from kctl.model.codes import KafkaError, Malformed
from kctl.model.names import NO_LEADER, BrokerId, TopicPartition
from kctl.model.rows import Replicas, Row
from kctl.model.settings import Settings
from kctl.simulation.memory import DryController, Recorded

PLANNER_ID = 2**31 - 1
"""Nobody's id: the planner must not look like a misplaced replica."""
MIN_ISR_CONFIG = "min.insync.replicas"


class PlanError(ValueError):
    """A step that makes no sense for this cluster, or a condition that cannot be read."""


@attrs.frozen
class Change:
    partition: TopicPartition
    before: Row
    after: Row


@attrs.frozen
class Outcome:
    """What a step, or all of them, would do."""

    changes: tuple[Change, ...]
    offline: tuple[TopicPartition, ...]
    under_min_isr: tuple[TopicPartition, ...]
    requests: dict[BrokerId, int]
    rows_told: dict[BrokerId, int]
    writes: int
    refused: dict[TopicPartition, str]

    @property
    def leaders_moved(self) -> int:
        return sum(c.before.leader != c.after.leader for c in self.changes)

    def counts(self) -> dict[str, int]:
        return {
            "offline": len(self.offline),
            "under_min_isr": len(self.under_min_isr),
            "leaders_moved": self.leaders_moved,
            "changed": len(self.changes),
            "writes": self.writes,
            "requests": sum(self.requests.values()),
            "refused": len(self.refused),
        }


class Plan:
    """`Plan(snapshot).kill(3)`; steps follow one another on the same copy."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._zookeeper = attrs.evolve(
            snapshot.zookeeper,
            controller=None,
            brokers=dict(snapshot.zookeeper.brokers),
            topics=dict(snapshot.zookeeper.topics),
            states=dict(snapshot.zookeeper.states),
            deletions=dict(snapshot.zookeeper.deletions),
        )
        self._controller = DryController.of(Settings(PLANNER_ID), self._zookeeper)
        # First let it settle: what is already due is not the fault of the plan.
        self._controller.run(ev.Startup())
        self._callers = 0
        self._before = dict(self.cluster.rows)
        self._recorded: list[Recorded] = []
        self._refused: dict[TopicPartition, str] = {}

    @property
    def cluster(self) -> ClusterState:
        return self._controller.cluster

    # -- steps --------------------------------------------------------------------------------

    def kill(self, *brokers: BrokerId) -> "Plan":
        """These brokers die at once."""
        for broker in brokers:
            self._must_be_alive(broker)
        for broker in brokers:
            del self._zookeeper.brokers[broker]
        self._run(ev.BrokerChange())
        return self

    def shutdown(self, broker: BrokerId) -> "Plan":
        """A controlled shutdown, and then it is gone."""
        self._must_be_alive(broker)
        self._run(ev.ControlledShutdown(self._caller(), broker))
        return self.kill(broker)

    def rack_loss(self, rack: str) -> "Plan":
        brokers = [b.id for b in self.cluster.brokers.values() if b.rack == rack]
        if not brokers:
            racks = sorted({b.rack for b in self.cluster.brokers.values() if b.rack})
            raise PlanError(
                f"no live broker is in rack {rack!r}; racks: {', '.join(racks) or 'none'}"
            )
        return self.kill(*brokers)

    def reassign(self, targets: dict[TopicPartition, Replicas]) -> "Plan":
        recorded = self._run(ev.ApiPartitionReassignment(self._caller(), dict(targets)))
        for answer in recorded.answers:
            if isinstance(answer.value, PartitionErrors):
                self._refused |= {
                    tp: error.message or error.code.name
                    for tp, error in answer.value.errors.items()
                    if error.code is not KafkaError.NONE
                }
        return self

    def elect_preferred(self) -> "Plan":
        self._run(
            ev.ReplicaLeaderElection(
                self._caller(), None, ev.ElectionType.PREFERRED, ev.ElectionTrigger.ADMIN_CLIENT
            )
        )
        return self

    # -- outcome ------------------------------------------------------------------------------

    def outcome(self) -> Outcome:
        cluster = self.cluster
        changes = [
            Change(tp, before, after)
            for tp, before in self._before.items()
            if (after := cluster.rows.get(tp)) is not None and _differs(before, after)
        ]
        requests: dict[BrokerId, int] = {}
        rows_told: dict[BrokerId, int] = {}
        for recorded in self._recorded:
            for dispatch in recorded.dispatches:
                for broker, rows in _recipients(dispatch):
                    requests[broker] = requests.get(broker, 0) + 1
                    rows_told[broker] = rows_told.get(broker, 0) + rows
        return Outcome(
            changes=tuple(changes),
            offline=tuple(tp for tp, row in cluster.rows.items() if row.leader == NO_LEADER),
            under_min_isr=tuple(self._under_min_isr()),
            requests=requests,
            rows_told=rows_told,
            writes=sum(_writes(recorded) for recorded in self._recorded),
            refused=self._refused,
        )

    def _under_min_isr(self) -> Iterable[TopicPartition]:
        for tp, row in self.cluster.rows.items():
            config = self._zookeeper.configs.get(tp.topic)
            value = None
            if config is not None and not isinstance(config, Malformed):
                value = config.get(MIN_ISR_CONFIG)
            needed = int(value) if value is not None and value.strip().isdecimal() else 1
            alive = [b for b in row.isr if b in self.cluster.brokers]
            if row.leader == NO_LEADER or len(alive) < needed:
                yield tp

    def _run(self, event: ev.Event) -> Recorded:
        recorded = self._controller.run(event)
        self._recorded.append(recorded)
        return recorded

    def _caller(self) -> int:
        self._callers += 1
        return self._callers

    def _must_be_alive(self, broker: BrokerId) -> None:
        if broker not in self.cluster.brokers:
            known = ", ".join(map(str, sorted(self.cluster.brokers)))
            raise PlanError(f"broker {broker} is not registered; registered: {known or 'none'}")


def _differs(before: Row, after: Row) -> bool:
    return (
        before.leader != after.leader
        or set(before.isr) != set(after.isr)
        or before.assignment != after.assignment
    )


def _recipients(dispatch: Dispatch) -> list[tuple[BrokerId, int]]:
    match dispatch:
        case LeaderAndIsrRequest(broker=broker, rows=rows):
            return [(broker, len(rows))]
        case UpdateMetadataRequest(recipients=recipients, rows=rows):
            return [(broker, len(rows)) for broker in recipients]
        case StopReplicaRequest(broker=broker, partitions=partitions):
            return [(broker, len(partitions))]
        case _:
            return []


def _writes(recorded: Recorded) -> int:
    total = 0
    for effect in recorded.effects:
        rows = getattr(effect, "rows", None)
        total += len(rows) if rows is not None else 0
    return total


# -- conditions and files --------------------------------------------------------------------

_OPERATORS: dict[str, Callable[[int, int], bool]] = {
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def condition(text: str) -> Callable[[Outcome], bool]:
    """`offline>0`: a count of the outcome, an operator and a number."""
    match = re.fullmatch(r"\s*(\w+)\s*(>=|<=|==|!=|>|<)\s*(\d+)\s*", text)
    names = ", ".join(EMPTY.counts())
    if match is None or match[1] not in EMPTY.counts():
        raise PlanError(f"{text!r} is not a condition such as offline>0; counts are {names}")
    name, operator, number = match[1], _OPERATORS[match[2]], int(match[3])
    return lambda outcome: operator(outcome.counts()[name], number)


def read_reassignment(file: Path) -> dict[TopicPartition, Replicas]:
    """The JSON that kafka-reassign-partitions takes."""
    try:
        content = json.loads(file.read_text("utf-8"))
        return {
            TopicPartition(str(entry["topic"]), int(entry["partition"])): tuple(
                int(b) for b in entry["replicas"]
            )
            for entry in content["partitions"]
        }
    except OSError as error:
        raise PlanError(f"cannot read {file}: {error}") from None
    except (ValueError, TypeError, KeyError) as error:
        raise PlanError(
            f"{file} is not a reassignment as kafka-reassign-partitions takes it ({error!r})"
        ) from None


EMPTY = Outcome((), (), (), {}, {}, 0, {})


def describe(outcome: Outcome, limit: int = 20) -> Sequence[str]:
    lines = []
    for change in outcome.changes[:limit]:
        before, after = change.before, change.after
        parts = []
        if before.leader != after.leader:
            parts.append(f"leader {before.leader} -> {after.leader}")
        if set(before.isr) != set(after.isr):
            parts.append(f"isr {list(before.isr)} -> {list(after.isr)}")
        if before.assignment != after.assignment:
            parts.append(f"replicas {list(before.replicas)} -> {list(after.replicas)}")
        lines.append(f"{change.partition}: {', '.join(parts)}")
    if len(outcome.changes) > limit:
        lines.append(f"and {len(outcome.changes) - limit} more")
    return lines
