"""Shadow: a controller's decisions beside those of this core, for the same input.

A model of the cluster is told what the controller is told, as soon as it is seen, and decides at
once. The controller takes its time; when ZooKeeper shows what the model shows, they agree, and the
model starts again from what is there. Equal means: the same topics, assignments, leaders and sets of
in-sync replicas. Epochs are not compared, nor ISRs of a topic that is being deleted.

Requests are not to be seen. When the two differ, requests that would explain it are tried on a copy
of the model: a preferred or unclean election, a controlled shutdown, a failed log dir. The core must
then decide exactly what was found; what no request explains is a divergence.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum

import attrs

from kctl.insight import inputs as told
from kctl.insight.comparison import Difference, compare
from kctl.insight.fork import PLANNER_ID, Fork, copied
from kctl.insight.inputs import Input
from kctl.insight.sightings import (
    ControllerSeen,
    DefaultConfigSeen,
    Seen,
    StateSeen,
    take_in,
)
from kctl.insight.snapshot import Snapshot
from kctl.messages.answers import PartitionErrors
from kctl.messages.effects import TopicNode
from kctl.messages.outbox import Story
from kctl.model.codes import KafkaError
from kctl.model.names import NO_LEADER, BrokerId, TopicPartition
from kctl.model.rows import Assignment, Leadership, Replicas
from kctl.model.settings import Settings
from kctl.simulation.memory import MemoryZooKeeper, Recorded
from kctl.zookeeper.config_changes import with_dynamic

SETTLE_S = 1.0
"""Nothing changes for so long: what is there now counts."""
BUSY_S = 10.0
"""It never comes to rest: what is there counts all the same."""
DIVERGED_AFTER_S = 10.0
"""A decision was taken, differs, and stays."""
STUCK_AFTER_S = 30.0
LISTED_MAX = 20
NO_MEMBER_LEFT = "no live member would be left"
OVERRIDDEN = "a reassignment is cancelled or overridden"
"""As `docs/deviations.md` calls it: refused here, while Kafka loses the partition."""

DECISIONS: Mapping[str, str] = {
    "partition initialised": "first leader",
    "leader elected": "leader elected",
    "leader moved": "leader moved by reassignment",
    "ISR shrunk": "ISR shrunk",
    "replicas offline": "replica offline",
    "assignment changed": "reassignment begun",
    "reassignment finished": "reassignment finished",
    "topic deleted": "topic deleted",
    "deletion on hold": "deletion on hold",
    "ISR changed": "ISR change allowed",
}
"""The core's stories that are decisions, by the name that they are counted under."""


class Verdict(Enum):
    AGREED = "agreed"
    DIVERGED = "diverged"
    STUCK = "stuck"
    ABSENT = "absent"
    EXPLAINED = "explained"
    """Different, as `docs/deviations.md` says."""


@attrs.frozen
class Finding:
    verdict: Verdict
    differences: tuple[Difference, ...] = ()
    trace: tuple[str, ...] = ()
    """What was told, and what the core made of it."""
    decisions: Mapping[str, int] = attrs.field(factory=dict)
    took_s: float = 0.0


@attrs.define
class Report:
    """What was found so far."""

    settled: int = 0
    """Times that the cluster came to rest after changes, and both agreed."""
    decisions: dict[str, int] = attrs.field(factory=dict)
    """Agreed, by kind."""
    findings: list[Finding] = attrs.field(factory=list)
    """Everything else, in order."""
    longest_s: float = 0.0
    """The longest time from the first change to the last, among those that agreed."""

    def add(self, finding: Finding) -> None:
        if finding.verdict is not Verdict.AGREED:
            self.findings.append(finding)
            return
        self.settled += 1
        self.longest_s = max(self.longest_s, finding.took_s)
        for kind, count in finding.decisions.items():
            self.decisions[kind] = self.decisions.get(kind, 0) + count

    def count(self, verdict: Verdict) -> int:
        return sum(f.verdict is verdict for f in self.findings)

    @property
    def first_divergence(self) -> Finding | None:
        return next((f for f in self.findings if f.verdict is Verdict.DIVERGED), None)


@attrs.define
class _Window:
    """From the first change to the moment when both agree."""

    opened_s: float
    base: Fork
    before: MemoryZooKeeper
    changed_s: float = 0.0
    inputs: list[Input] = attrs.field(factory=list)
    stories: list[Story] = attrs.field(factory=list)
    refused: dict[str, str] = attrs.field(factory=dict)
    failures: list[str] = attrs.field(factory=list)
    """Inputs that the core could not handle."""
    unseen: dict[TopicPartition, int] = attrs.field(factory=dict)
    found: list[Difference] | None = None
    """What differs, as long as nothing else is seen."""
    checked_s: float = 0.0

    def is_due(self, now_s: float) -> bool:
        """The cluster is still, or never comes to rest and has not been looked at for a while."""
        if now_s - self.changed_s >= SETTLE_S:
            return True
        return now_s - self.opened_s >= BUSY_S and now_s - self.checked_s >= SETTLE_S


class Shadow:
    def __init__(
        self, snapshot: Snapshot, now_s: float, *, stuck_after_s: float = STUCK_AFTER_S
    ) -> None:
        self.reality = copied(snapshot.zookeeper)
        self.controller_id = snapshot.controller_id
        self.stuck_after_s = stuck_after_s
        self._absent_since = now_s if snapshot.controller_id is None else None
        self._absence_told = False
        self._settings = snapshot.settings(PLANNER_ID)
        self._leaving: dict[BrokerId, int] = {}
        self._failed_dirs: dict[tuple[BrokerId, int], tuple[TopicPartition, ...]] = {}
        self._deleted: dict[TopicPartition, Replicas] = {}
        # What is due at the start must be done too, or nobody is at work.
        self._starting = True
        self._is_new = False
        self._model = Fork.taking_office(self.reality, self._settings)
        self._window: _Window | None = None
        self._since: dict[str, tuple[Difference, float]] = {}
        self._excused: dict[str, Difference] = {}
        self._told: dict[str, Difference] = {}
        self._open(now_s)

    # -- what comes in ------------------------------------------------------------------------

    def see(self, batch: Iterable[Seen], now_s: float) -> None:
        for seen in batch:
            if isinstance(seen, ControllerSeen):
                self._see_controller(seen, now_s)
                continue
            window = self._window or self._open(now_s)
            window.changed_s, window.found = now_s, None
            if isinstance(seen, DefaultConfigSeen):
                self._settings = with_dynamic(Settings(PLANNER_ID), seen.value)
            if isinstance(seen, StateSeen):
                self._note_unseen(window, seen)
            wanted = list(told.inputs_of(seen, self.reality))
            take_in(self.reality, seen)
            for one in wanted:
                self._tell(self._model, window, one)

    def _see_controller(self, seen: ControllerSeen, now_s: float) -> None:
        self.reality.epoch = seen.epoch
        self._is_new = not self._starting
        if self._window is not None:
            self._window.found = None
        self.controller_id = seen.controller_id
        if seen.controller_id is not None:
            self._absent_since, self._absence_told = None, False
        elif self._absent_since is None:
            self._absent_since = now_s

    def _note_unseen(self, window: _Window, seen: StateSeen) -> None:
        before, after = self.reality.states.get(seen.partition), seen.value
        if isinstance(before, Leadership) and isinstance(after, Leadership):
            count = told.unseen_writes(before, after)
            if after.leader_epoch != before.leader_epoch and count > 0:
                window.unseen[seen.partition] = window.unseen.get(seen.partition, 0) + count

    @staticmethod
    def _tell(model: Fork, window: _Window, one: Input) -> None:
        window.inputs.append(one)
        try:
            recorded = one.apply(model)
        except Exception as error:  # noqa: BLE001 a watcher that dies of what it watches is no use
            window.failures.append(f"{one.text}: {error!r}")
            return
        if recorded is not None:
            window.stories += recorded.stories
            window.refused |= _refusals(recorded)

    # -- what comes of it ---------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        return self._window is None

    def check(self, now_s: float) -> list[Finding]:
        """What can be said now."""
        findings = self._check_absence(now_s)
        window = self._window
        if window is None or not window.is_due(now_s):
            return findings
        window.checked_s = now_s
        if window.found is None:
            window.found = self._explain(window, self._compare(self._model, window))
        found = window.found
        if not found:
            findings.append(self._close(window, Verdict.AGREED, (), now_s))
            return findings
        self._since = {
            d.key: old if (old := self._since.get(d.key)) and old[0] == d else (d, now_s)
            for d in found
        }
        diverged = [d for d in found if d.decided and self._age(d, now_s) >= DIVERGED_AFTER_S]
        stuck = [d for d in found if self._age(d, now_s) >= self.stuck_after_s]
        if diverged and len(diverged) == len([d for d in found if d.decided]):
            known = all(d.deviation for d in diverged)
            verdict = Verdict.EXPLAINED if known else Verdict.DIVERGED
            findings.append(self._close(window, verdict, tuple(diverged), now_s))
        elif stuck and any(self._told.get(d.key) != d for d in stuck):
            if self._starting:
                findings.append(self._close(window, Verdict.STUCK, tuple(stuck), now_s))
            else:
                self._told = {d.key: d for d in stuck}
                findings.append(self._finding(window, Verdict.STUCK, tuple(stuck), now_s))
        return findings

    def _check_absence(self, now_s: float) -> list[Finding]:
        since = self._absent_since
        if since is None or self._absence_told or now_s - since < self.stuck_after_s:
            return []
        self._absence_told = True
        missing = Difference("/controller", "some controller", "none", decided=False)
        return [Finding(Verdict.ABSENT, (missing,), took_s=now_s - since)]

    def _age(self, difference: Difference, now_s: float) -> float:
        return now_s - self._since[difference.key][1]

    # -- windows ------------------------------------------------------------------------------

    def _open(self, now_s: float) -> _Window:
        window = _Window(now_s, self._model.fork(), copied(self.reality), now_s)
        self._window = window
        return window

    def _close(
        self, window: _Window, verdict: Verdict, differences: tuple[Difference, ...], now_s: float
    ) -> Finding:
        finding = self._finding(window, verdict, differences, now_s)
        self._remember()
        self._model = self._fresh_model()
        self._window, self._starting, self._is_new = None, False, False
        self._since, self._told = {}, {}
        # What differs right after a new start is what was just told; it is not told again.
        same = _Window(now_s, self._model, self.reality)
        self._excused = {}
        self._excused = {d.key: d for d in self._compare(self._model, same)}
        return finding

    def _finding(
        self, window: _Window, verdict: Verdict, differences: tuple[Difference, ...], now_s: float
    ) -> Finding:
        decisions: dict[str, int] = {}
        for story in window.stories:
            if kind := DECISIONS.get(story.what):
                decisions[kind] = decisions.get(kind, 0) + (len(story.changes) or 1)
        trace = () if verdict is Verdict.AGREED else tuple(_trace(window, differences))
        took_s = max(window.changed_s - window.opened_s, 0.0)
        if verdict is not Verdict.AGREED:
            took_s = now_s - window.opened_s
        return Finding(verdict, differences, trace, decisions, took_s)

    def _fresh_model(self) -> Fork:
        model = Fork(self.reality, self._settings, self._deleted)
        for broker, epoch in list(self._leaving.items()):
            known = model.cluster.brokers.get(broker)
            if known is None or known.epoch != epoch:
                del self._leaving[broker]
            else:
                told.controlled_shutdown(broker).apply(model)
        for (broker, epoch), tps in list(self._failed_dirs.items()):
            known = model.cluster.brokers.get(broker)
            if known is None or known.epoch != epoch:
                del self._failed_dirs[broker, epoch]
            else:
                told.log_dir_failure(broker, tps).apply(model)
        return model

    def _remember(self) -> None:
        """What a controller knows and ZooKeeper does not."""
        cluster = self._model.cluster
        self._deleted = self._model.deleted_replicas()
        for broker in cluster.shutting_down:
            self._leaving[broker] = cluster.brokers[broker].epoch
        for broker, tps in cluster.offline_dirs.items():
            self._failed_dirs[broker, cluster.brokers[broker].epoch] = tuple(tps)

    # -- comparison ---------------------------------------------------------------------------

    def _compare(self, model: Fork, window: _Window) -> list[Difference]:
        found = []
        for difference in compare(model, self.reality, window.before):
            if NO_MEMBER_LEFT in window.refused.get(difference.key, ""):
                difference = attrs.evolve(difference, deviation=OVERRIDDEN)  # noqa: PLW2901
            if self._excused.get(difference.key) != difference:
                found.append(difference)
        return found

    def _explain(self, window: _Window, found: list[Difference]) -> list[Difference]:
        """Try the requests that might have been made, as long as each makes them more alike."""
        while found:
            best: tuple[list[Difference], Fork, Input] | None = None
            for one in self._hypotheses(window, found):
                model = self._model.fork()
                self._tell(model, _Window(0, model, window.before), one)
                left = self._compare(model, window)
                if len(left) < len(found if best is None else best[0]):
                    best = (left, model, one)
            if best is None:
                return self._seen_at_once(window, found)
            found = best[0]
            self._tell(self._model, window, best[2])
        return found

    def _seen_at_once(self, window: _Window, found: list[Difference]) -> list[Difference]:
        """The controller may have met several inputs as one: try them so."""
        tries = [(window.base.fork(), inputs) for inputs in _arrangements(window.inputs)]
        if self._is_new:
            # A new controller does not know what its predecessor knew.
            tries.append((Fork(window.before, self._settings), window.inputs))
        for model, inputs in tries:
            retold = _Window(window.opened_s, window.base, window.before, window.changed_s)
            for one in inputs:
                self._tell(model, retold, one)
            left = self._compare(model, window)
            if len(left) < len(found):
                self._model, found = model, left
                window.inputs, window.stories = retold.inputs, retold.stories
        return found

    def _hypotheses(self, window: _Window, found: list[Difference]) -> Iterator[Input]:
        # A request that was made has changed something.
        keys = {d.key: None for d in found if d.decided}
        rows = self._model.cluster.rows
        preferred: list[TopicPartition] = []
        unclean: list[TopicPartition] = []
        repeated: list[TopicPartition] = []
        lost: dict[BrokerId, list[TopicPartition]] = {}
        for tp, row in rows.items():
            state = self.reality.states.get(tp)
            if str(tp) not in keys or not isinstance(state, Leadership):
                continue
            if self._is_through(tp, row.assignment):
                joined = [b for b in row.assignment.target if b not in row.isr]
                if joined:
                    yield told.isr_change(tp, joined, ())
                else:
                    repeated.append(tp)
            if state.leader == row.replicas[0] != row.leader:
                preferred.append(tp)
            if row.leader == NO_LEADER != state.leader and state.isr == (state.leader,):
                unclean.append(tp)
            for broker in row.isr:
                moved = broker == row.leader != state.leader
                if (moved or broker not in state.isr) and broker in self._model.cluster.live:
                    lost.setdefault(broker, []).append(tp)
            shrunk = tuple(b for b in row.isr if b not in state.isr)
            if shrunk and row.leader == state.leader and window.unseen.get(tp):
                yield told.isr_change(tp, (), shrunk)
        if preferred:
            yield told.preferred_election(preferred, "asked for by request", inferred=True)
        if repeated:
            yield told.reassignment_again({tp: rows[tp].assignment.target for tp in repeated})
        for broker in lost:
            yield told.controlled_shutdown(broker)
        if unclean:
            yield told.unclean_election(unclean)
        for broker, tps in lost.items():
            yield told.log_dir_failure(broker, tps)
        yield from self._deletions_unseen()

    def _deletions_unseen(self) -> Iterator[Input]:
        """Topics that are gone: marked and deleted, or freed of a reassignment, in a moment."""
        for topic in self._model.zookeeper.topics:
            if topic in self.reality.topics:
                continue
            if topic not in self._model.zookeeper.deletions:
                yield told.deletion(topic, inferred=True)
                continue
            rows = {tp: self._model.cluster.rows[tp] for tp in self._held_by(topic)}
            if rows:
                yield told.caught_up({tp: row.assignment.target for tp, row in rows.items()})

    def _held_by(self, topic: str) -> list[TopicPartition]:
        return [tp for tp in self._model.cluster.reassigning if tp.topic == topic]

    def _is_through(self, tp: TopicPartition, ours: Assignment) -> bool:
        """In reality the reassignment was finished that goes on in the model."""
        node = self.reality.topics.get(tp.topic)
        found = node.partitions.get(tp.partition) if isinstance(node, TopicNode) else None
        return ours.is_reassigning and found is not None and found == ours.completed()


def _arrangements(inputs: list[Input]) -> Iterator[list[Input]]:
    """Controllers read all registrations together, and a config as it is when they come to it."""
    last = {one.config_of: one for one in inputs}
    current = [one for one in inputs if one.config_of is None or last[one.config_of] is one]
    if len(current) < len(inputs):
        yield current
    brokers = [one for one in inputs if one.broker is not None]
    if len(brokers) < 2:
        return
    registrations = {one.broker.broker: one.broker for one in brokers if one.broker is not None}
    merged = told.broker_change(list(registrations.values()))
    for place in (brokers[0], brokers[-1]):
        for arranged in (inputs, current):
            yield [
                merged if one is place else one
                for one in arranged
                if one is place or one.broker is None
            ]


def _refusals(recorded: Recorded) -> dict[str, str]:
    return {
        str(tp): error.message or error.code.name
        for answer in recorded.answers
        if isinstance(answer.value, PartitionErrors)
        for tp, error in answer.value.errors.items()
        if error.code not in (KafkaError.NONE, KafkaError.ELECTION_NOT_NEEDED)
    }


def _trace(window: _Window, differences: tuple[Difference, ...]) -> Iterator[str]:
    for one in window.inputs[-LISTED_MAX:]:
        yield ("inferred: " if one.inferred else "input: ") + one.text
    keys = {d.key: None for d in differences}
    for failure in window.failures:
        yield f"kctl failed: {failure}"
    for key, refusal in window.refused.items():
        if key in keys:
            yield f"kctl refused {key}: {refusal}"
    for story in window.stories:
        for tp, (before, after) in story.changes.items():
            if str(tp) in keys:
                old = "new" if before is None else f"leader {before.leader}, ISR {list(before.isr)}"
                new = "gone" if after is None else f"leader {after.leader}, ISR {list(after.isr)}"
                yield f"kctl: {tp} {story.what}: {old} -> {new} ({story.why})"
        if story.key in keys:
            yield f"kctl: {story.key} {story.what} ({story.why})"
    for difference in differences:
        yield str(difference)
        if difference.deviation:
            yield f"{difference.key}: a known deviation: {difference.deviation}"
