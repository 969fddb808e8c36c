"""What would happen? Events applied to a copy of a live cluster, by the core that decides live."""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from kctl.insight.costs import Traffic, forecast_s
from kctl.insight.fork import PLANNER_ID, Fork
from kctl.insight.snapshot import Snapshot
from kctl.messages import events as ev
from kctl.messages.answers import PartitionErrors
from kctl.model.cluster import ClusterState
from kctl.model.codes import KafkaError, Malformed
from kctl.model.names import NO_LEADER, BrokerId, TopicPartition
from kctl.model.rows import Replicas, Row
from kctl.simulation.memory import MemoryZooKeeper, Recorded

MIN_ISR_CONFIG = "min.insync.replicas"


class PlanError(ValueError):
    """A step that makes no sense for this cluster, or a condition that cannot be read."""


@attrs.frozen
class Change:
    partition: TopicPartition
    before: Row
    after: Row

    def __str__(self) -> str:
        before, after = self.before, self.after
        parts = []
        if before.leader != after.leader:
            leader = "none" if after.leader == NO_LEADER else str(after.leader)
            parts.append(f"leader {before.leader} -> {leader}")
        if set(before.isr) != set(after.isr):
            parts.append(f"ISR {list(before.isr)} -> {list(after.isr)}")
        if before.assignment != after.assignment:
            parts.append(f"replicas {list(before.replicas)} -> {list(after.replicas)}")
        return f"{self.partition}: {', '.join(parts)}"


@attrs.frozen
class Outcome:
    """What the steps would do, all together."""

    changes: tuple[Change, ...] = ()
    offline: tuple[TopicPartition, ...] = ()
    newly_offline: tuple[TopicPartition, ...] = ()
    under_min_isr: tuple[TopicPartition, ...] = ()
    """In-sync replicas are fewer than `min.insync.replicas`, or there is no leader at all."""
    newly_under_min_isr: tuple[TopicPartition, ...] = ()
    traffic: Traffic = attrs.field(factory=Traffic)
    writes: int = 0
    forecast_s: float = 0.0
    """From the moment when the controller notices."""
    replicas_to_copy: int = 0
    refused: Mapping[TopicPartition, str] = attrs.field(factory=dict)
    steps: tuple[str, ...] = ()

    @property
    def leaders_moved(self) -> int:
        return sum(c.after.leader not in (c.before.leader, NO_LEADER) for c in self.changes)

    def counts(self) -> dict[str, int]:
        """What `--fail-if` can name."""
        return {
            "offline": len(self.offline),
            "newly_offline": len(self.newly_offline),
            "under_min_isr": len(self.under_min_isr),
            "newly_under_min_isr": len(self.newly_under_min_isr),
            "leaders_moved": self.leaders_moved,
            "changed": len(self.changes),
            "replicas_to_copy": self.replicas_to_copy,
            "writes": self.writes,
            "requests": sum(self.traffic.requests.values()),
            "bytes": sum(self.traffic.bytes.values()),
            "refused": len(self.refused),
        }


class Plan:
    """`Plan(snapshot).kill(3)`; steps follow one another on the same copy."""

    def __init__(self, snapshot: Snapshot) -> None:
        settings = snapshot.settings(PLANNER_ID)
        # Without a controller, what is already due is not the fault of the plan.
        begin = Fork if snapshot.controller_id is not None else Fork.taking_office
        self._fork = begin(snapshot.zookeeper, settings)
        self._default_config = snapshot.default_config
        self._by_kctl = snapshot.controller_is_kctl
        self._before = dict(self.cluster.rows)
        self._offline_before = dict.fromkeys(self._offline())
        self._under_before = dict.fromkeys(self._under_min_isr())
        self._recorded: list[Recorded] = []
        self._refused: dict[TopicPartition, str] = {}
        self._to_copy = 0
        self._steps: list[str] = []

    @property
    def cluster(self) -> ClusterState:
        return self._fork.cluster

    @property
    def zookeeper(self) -> MemoryZooKeeper:
        """What ZooKeeper would hold."""
        return self._fork.zookeeper

    # -- steps --------------------------------------------------------------------------------

    def kill(self, *brokers: BrokerId) -> "Plan":
        """These brokers die at once."""
        for broker in brokers:
            self._must_be_alive(broker)
        self._steps.append(f"kill {', '.join(map(str, brokers))}")
        self._go(brokers)
        return self

    def _go(self, brokers: Iterable[BrokerId]) -> None:
        for broker in brokers:
            del self._fork.zookeeper.brokers[broker]
        self._run(ev.BrokerChange())

    def shutdown(self, broker: BrokerId) -> "Plan":
        """A controlled shutdown, and then it is gone."""
        self._must_be_alive(broker)
        self._steps.append(f"shut down {broker}")
        self._run(ev.ControlledShutdown(self._fork.caller(), broker))
        self._go((broker,))
        return self

    def rack_loss(self, rack: str) -> "Plan":
        brokers = [b.id for b in self.cluster.brokers.values() if b.rack == rack]
        if not brokers:
            racks = sorted({b.rack for b in self.cluster.brokers.values() if b.rack})
            known = f"racks: {', '.join(racks)}" if racks else "no broker has a rack"
            raise PlanError(f"no live broker is in rack {rack!r}; {known}")
        self._steps.append(f"lose rack {rack} (brokers {', '.join(map(str, brokers))})")
        self._go(brokers)
        return self

    def reassign(self, targets: Mapping[TopicPartition, Replicas]) -> "Plan":
        """To the end: brokers that are alive copy what they are given."""
        self._steps.append(f"reassign {len(targets)} partitions")
        recorded = self._run(ev.ApiPartitionReassignment(self._fork.caller(), dict(targets)))
        for answer in recorded.answers:
            if isinstance(answer.value, PartitionErrors):
                self._refused |= {
                    tp: error.message or error.code.name
                    for tp, error in answer.value.errors.items()
                    if error.code is not KafkaError.NONE
                }
        for tp in targets:
            self._copy(tp)
        return self

    def _copy(self, tp: TopicPartition) -> None:
        row = self.cluster.rows.get(tp)
        if row is None or not row.assignment.is_reassigning:
            return
        target = row.assignment.target
        joined = [b for b in target if b not in row.isr and self.cluster.is_online(b, tp)]
        self._to_copy += len(joined)
        recorded = self._fork.change_isr(tp, joined, ())
        if recorded is not None:
            self._recorded.append(recorded)

    def elect_preferred(self) -> "Plan":
        self._steps.append("elect preferred leaders")
        kind, trigger = ev.ElectionType.PREFERRED, ev.ElectionTrigger.ADMIN_CLIENT
        self._run(ev.ReplicaLeaderElection(self._fork.caller(), None, kind, trigger))
        return self

    # -- outcome ------------------------------------------------------------------------------

    def outcome(self) -> Outcome:
        cluster = self.cluster
        changes = [
            Change(tp, before, after)
            for tp, before in self._before.items()
            if (after := cluster.rows.get(tp)) is not None and _differs(before, after)
        ]
        traffic = Traffic.of(self._recorded)
        writes = sum(_writes(recorded) for recorded in self._recorded)
        offline, under = tuple(self._offline()), tuple(self._under_min_isr())
        return Outcome(
            changes=tuple(changes),
            offline=offline,
            newly_offline=tuple(tp for tp in offline if tp not in self._offline_before),
            under_min_isr=under,
            newly_under_min_isr=tuple(tp for tp in under if tp not in self._under_before),
            traffic=traffic,
            writes=writes,
            forecast_s=forecast_s(writes, traffic, by_kctl=self._by_kctl),
            replicas_to_copy=self._to_copy,
            refused=self._refused,
            steps=tuple(self._steps),
        )

    def _offline(self) -> Iterable[TopicPartition]:
        for tp, row in self.cluster.rows.items():
            if tp.topic in self.cluster.deletions or tp in self.cluster.poisoned:
                continue
            if not self.cluster.is_online(row.leader, tp):
                yield tp

    def _under_min_isr(self) -> Iterable[TopicPartition]:
        offline = dict.fromkeys(self._offline())
        for tp, row in self.cluster.rows.items():
            if tp.topic in self.cluster.deletions or tp in self.cluster.poisoned:
                continue
            needed = min_isr(self._fork.zookeeper.configs, self._default_config, tp.topic)[0]
            if tp in offline or len(row.isr) < needed:
                yield tp

    def _run(self, event: ev.Event) -> Recorded:
        recorded = self._fork.run(event)
        self._recorded.append(recorded)
        return recorded

    def _must_be_alive(self, broker: BrokerId) -> None:
        if broker not in self.cluster.brokers:
            known = ", ".join(map(str, sorted(self.cluster.brokers)))
            raise PlanError(f"broker {broker} is not registered; registered: {known or 'none'}")


def min_isr(
    configs: Mapping[str, Mapping[str, str] | Malformed], default: Mapping[str, str], topic: str
) -> tuple[int, str]:
    """`min.insync.replicas` of a topic, and where it stands."""
    config = configs.get(topic)
    of_topic = None if config is None or isinstance(config, Malformed) else config
    for source, where in ((of_topic, "topic config"), (default, "the brokers' default")):
        value = None if source is None else source.get(MIN_ISR_CONFIG)
        if value is not None and value.strip().isdecimal():
            return int(value), where
    return 1, "Kafka's default (the brokers' own files may say otherwise)"


def _differs(before: Row, after: Row) -> bool:
    return (
        before.leader != after.leader
        or set(before.isr) != set(after.isr)
        or before.assignment != after.assignment
    )


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


@attrs.frozen
class Condition:
    """`offline>0`: a count of the outcome, an operator and a number."""

    text: str
    count: str
    operator: str
    number: int

    def __call__(self, outcome: Outcome) -> bool:
        return _OPERATORS[self.operator](outcome.counts()[self.count], self.number)


def condition(text: str) -> Condition:
    counts = list(Outcome().counts())
    match = re.fullmatch(r"\s*([A-Za-z_]*)\s*([<>=!]*)\s*(\S*)\s*", text)
    if match is None or not match[1]:
        raise PlanError(f"{text!r} is not COUNT OPERATOR NUMBER, such as offline>0")
    name, operator, number = match[1], match[2], match[3]
    if name not in counts:
        near = difflib.get_close_matches(name, counts, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise PlanError(f"{text!r}: there is no count {name!r}{hint} Counts: {', '.join(counts)}")
    if operator not in _OPERATORS:
        known = " ".join(_OPERATORS)
        raise PlanError(f"{text!r}: {operator or 'nothing'} is not an operator; these are: {known}")
    if not number.isdecimal():
        raise PlanError(f"{text!r}: {number or 'nothing'} is not a number")
    return Condition(text, name, operator, int(number))


def read_reassignment(file: Path) -> dict[TopicPartition, Replicas]:
    """The JSON that kafka-reassign-partitions takes."""
    try:
        content = json.loads(file.read_text("utf-8"))
        found = {
            TopicPartition(str(entry["topic"]), int(entry["partition"])): tuple(
                int(b) for b in entry["replicas"]
            )
            for entry in content["partitions"]
        }
    except OSError as error:
        raise PlanError(f"cannot read {file}: {error.strerror}") from None
    except (ValueError, TypeError, KeyError) as error:
        raise PlanError(
            f"{file} is not a reassignment as kafka-reassign-partitions takes it: "
            f'{{"version":1,"partitions":[{{"topic":"t","partition":0,"replicas":[1,2]}}]}} ({error})'
        ) from None
    if not found:
        raise PlanError(f"{file} names no partition")
    return found


def describe(outcome: Outcome, limit: int = 20) -> Sequence[str]:
    lines = [str(change) for change in outcome.changes[:limit]]
    if len(outcome.changes) > limit:
        lines.append(f"and {len(outcome.changes) - limit} more")
    return lines
