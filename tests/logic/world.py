"""The core on an in-memory ZooKeeper, with verbs for what happens to a cluster.

`World` is a controller that was elected over a cluster in the notation. Brokers obey: `settle` lets
them answer StopReplicas and lets leaders take caught-up replicas into their ISRs.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from kctl.logic.dispatch import handle
from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.messages.answers import AnswerValue, preempted
from kctl.messages.driver import Finished, step
from kctl.messages.effects import ControllerNode, TopicNode
from kctl.messages.outbox import Outbox, StartTimer
from kctl.messages.queue import EventQueue
from kctl.messages.requests import LeaderAndIsrRequest, StopReplicaRequest
from kctl.messages.term import ControllerMoved
from kctl.model.cluster import ClusterState, Node
from kctl.model.codes import Malformed
from kctl.model.invariants import violations
from kctl.model.names import BrokerId, TopicPartition
from kctl.model.rows import Assignment, Leadership
from kctl.simulation.memory import MemoryZooKeeper, Recorded
from tests.logic.notation import broker, describe, parse, settings, show, topic_id, tp_of

EVENTS_MAX = 1_000
"""A run that takes more than this goes round in circles."""
ROUNDS_MAX = 50


@attrs.define
class Interrupted(Exception):
    """The term was cut off at an effect, as a test wished."""

    recorded: Recorded


def build_zookeeper(
    *lines: str, dead: Iterable[BrokerId] = (), brokers: Iterable[BrokerId] = ()
) -> MemoryZooKeeper:
    zookeeper = MemoryZooKeeper(epoch=6, epoch_zk_version=6)
    topics: dict[str, dict[int, Assignment]] = {}
    assigned = set(brokers)
    for line in map(parse, lines):
        topics.setdefault(line.tp.topic, {})[line.tp.partition] = line.assignment
        assigned.update(line.assignment.replicas)
        if line.leadership is not None:
            zookeeper.states[line.tp] = line.leadership
    for topic, partitions in topics.items():
        zookeeper.topics[topic] = TopicNode(partitions, topic_id(topic), 0)
    for number in sorted(assigned - {*dead}):
        zookeeper.brokers[number] = broker(number)
    return zookeeper


@attrs.define
class World:
    zk: MemoryZooKeeper
    node: Node
    queue: EventQueue = attrs.field(factory=EventQueue)
    timers: dict[str, StartTimer] = attrs.field(factory=dict)
    log: Recorded = attrs.field(factory=Recorded)
    """Everything since the beginning."""
    callers: int = 0

    @classmethod
    def over(cls, zk: MemoryZooKeeper, **changes: Any) -> "World":
        return cls(zk, Node(settings(**changes)))

    @property
    def cluster(self) -> ClusterState:
        assert self.node.cluster is not None, "not the active controller"
        return self.node.cluster

    # -- looking -------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> str:
        """The partition as ZooKeeper has it, in the notation."""
        tp = tp_of(name)
        topic, state = self.zk.topics[tp.topic], self.zk.states.get(tp)
        assert isinstance(topic, TopicNode)
        assert not isinstance(state, Malformed), f"{name} is malformed"
        return show(topic.partitions[tp.partition], state)

    def problems(self) -> list[str]:
        """Broken invariants, and rows that are not what ZooKeeper holds."""
        if self.node.cluster is None:
            return []
        cluster = self.cluster
        problems = violations(cluster)
        for tp, row in cluster.rows.items():
            stored = self.zk.states.get(tp)
            if tp not in cluster.poisoned and row.leadership != stored:
                problems.append(f"{tp} is {row.leadership} in memory and {stored} in ZooKeeper")
            topic = self.zk.topics.get(tp.topic)
            stored_topic = topic.partitions.get(tp.partition) if isinstance(topic, TopicNode) else 0
            if stored_topic not in (0, row.assignment):
                problems.append(f"{tp} is {row.assignment} in memory, {stored_topic} in ZooKeeper")
        if len(self.queue):
            problems.append("events are left in the queue")
        return problems

    def told(self, what: str) -> list[str]:
        """The stories of this name so far."""
        return [
            s.why if s.key is None else f"{s.key}: {s.why}"
            for s in self.log.stories
            if s.what == what
        ]

    # -- what happens --------------------------------------------------------------------------

    def run(self, *events: ev.Event) -> Recorded:
        """Handle these events and all that follow from them; what came out of that."""
        for event in events:
            self.queue.put(event)
        recorded = Recorded()
        for _ in range(EVENTS_MAX):
            if not len(self.queue):
                return recorded
            self._handle(self.queue.take(), recorded)
        raise AssertionError(f"after {EVENTS_MAX} events there is no end in sight")

    def ask(self, event: ev.Event) -> AnswerValue:
        """Handle a request; its one answer."""
        caller: int = event.caller  # type: ignore[attr-defined]
        return self.run(event).answer_to(caller)

    def sent(self, *events: ev.Event) -> list[str]:
        return [describe(d) for d in self.run(*events).dispatches]

    def kill(self, *brokers: BrokerId) -> Recorded:
        for number in brokers:
            del self.zk.brokers[number]
        return self.run(ev.BrokerChange())

    def start(self, *brokers: BrokerId, epoch: int | None = None) -> Recorded:
        for number in brokers:
            self.zk.brokers[number] = broker(number, 500 + number if epoch is None else epoch)
        return self.run(ev.BrokerChange())

    def bounce(self, number: BrokerId) -> Recorded:
        """Restarted before anybody saw it go."""
        known = self.zk.brokers[number]
        assert not isinstance(known, Malformed)
        return self.start(number, epoch=known.epoch + 1)

    def delete(self, *topics: str) -> Recorded:
        """As old tools do: a marker in ZooKeeper."""
        self.zk.deletions.update(dict.fromkeys(topics))
        return self.run(ev.TopicDeletion())

    def reassign(self, **targets: tuple[int, ...] | None) -> AnswerValue:
        """By the API: `reassign(t_0=(1, 2))`."""
        wanted = {tp_of(name.replace("_", "-")): target for name, target in targets.items()}
        self.callers += 1
        return self.ask(ev.ApiPartitionReassignment(self.callers, wanted))

    def expire(self) -> Recorded:
        """The session is lost, /controller goes with it, a new session begins."""
        self.zk.controller = None
        return self.run(ev.Expire(), ev.RegisterBrokerAndReelect())

    def propose(self, name: str, *isr: BrokerId, **changes: Any) -> AnswerValue:
        """AlterPartition of the present leader, with the right epochs unless changed."""
        row = self.cluster.rows[tp_of(name)]
        assert row.leadership is not None
        sender = changes.pop("broker", row.leader)
        known = self.cluster.brokers.get(sender)
        epoch = changes.pop("broker_epoch", -1 if known is None else known.epoch)
        version = changes.pop("api_version", 1)
        proposal = attrs.evolve(
            ev.IsrProposal(isr, row.leadership.leader_epoch, row.leadership.zk_version), **changes
        )
        self.callers += 1
        return self.ask(
            ev.AlterPartitionReceived(self.callers, sender, epoch, version, {tp_of(name): proposal})
        )

    def settle(self) -> None:
        """Brokers answer what they were sent, and catch up, until nothing happens any more."""
        answered = 0
        for _ in range(ROUNDS_MAX):
            events: list[ev.Event] = []
            for dispatch in self.log.dispatches[answered:]:
                if isinstance(dispatch, StopReplicaRequest):
                    events += self._deleted(dispatch)
            answered = len(self.log.dispatches)
            events += self.caught_up()
            if not events:
                return
            self.run(*events)
        raise AssertionError("it does not settle")

    def _deleted(self, request: StopReplicaRequest) -> Iterable[ev.Event]:
        errors = {tp: 0 for tp, order in request.partitions.items() if order.delete}
        if errors:
            yield ev.TopicDeletionStopReplicaResponseReceived(
                request.broker, request.broker_epoch, 0, errors
            )

    def caught_up(self) -> Iterable[ev.Event]:
        for tp, row in self.cluster.rows.items():
            deletion = self.cluster.deletions.get(tp.topic)
            if row.leadership is None or (deletion is not None and deletion.started):
                continue
            caught_up = [b for b in row.replicas if self.cluster.is_online(b, tp)]
            if row.leader in caught_up and set(caught_up) - set(row.isr):
                self.callers += 1
                isr = (*row.isr, *(b for b in caught_up if b not in row.isr))
                proposal = ev.IsrProposal(
                    isr, row.leadership.leader_epoch, row.leadership.zk_version
                )
                epoch = self.cluster.brokers[row.leader].epoch
                yield ev.AlterPartitionReceived(self.callers, row.leader, epoch, 1, {tp: proposal})

    # -- the driver ----------------------------------------------------------------------------

    def _handle(
        self, events: tuple[ev.Event, ...], recorded: Recorded, stop_at: int | None = None
    ) -> None:
        outbox = Outbox()
        procedure = handle(self.node, events, outbox)
        wanted = step(procedure)
        performed = 0
        while not isinstance(wanted, Finished):
            if performed == stop_at:
                procedure.close()
                raise Interrupted(recorded)
            recorded.effects.append(wanted)
            if isinstance(wanted, ef.Flush):
                self._flush(outbox, recorded)
            reply = self.zk.perform(wanted)
            performed += 1
            try:
                wanted = step(procedure, reply)
            except ControllerMoved:
                self._term_over(events, recorded)
                return
        self._flush(outbox, recorded)

    def _term_over(self, events: tuple[ev.Event, ...], recorded: Recorded) -> None:
        """What is to be done when a term ends from outside."""
        self.node.cluster = None
        self.timers.clear()
        done = {answer.caller for answer in recorded.answers}
        late = [answer for answer in map(preempted, events) if answer is not None]
        recorded.answers += [answer for answer in late if answer.caller not in done]
        self.queue.put(ev.ControllerChange())

    def _flush(self, outbox: Outbox, recorded: Recorded) -> None:
        for log in (recorded, self.log):
            log.dispatches += outbox.dispatches
            log.answers += outbox.answers
            log.stories += outbox.stories
        for timer in outbox.timers:
            if isinstance(timer, StartTimer):
                self.timers[timer.tag] = timer
            else:
                self.timers.clear()
        for event in outbox.events:
            self.queue.put(event)
        for items in (outbox.dispatches, outbox.answers, outbox.stories, outbox.timers):
            items.clear()
        outbox.events.clear()

    def run_to(self, event: ev.Event, effects: int) -> Recorded:
        """Handle one event up to an effect, and end the term there: before that effect."""
        recorded = Recorded()
        try:
            self._handle((event,), recorded, stop_at=effects)
        except Interrupted:
            self.node.cluster = None
        return recorded

    def fire(self, tag: str) -> Recorded:
        """The timer of this name is due."""
        return self.run(self.timers.pop(tag).event)

    def last_told(self, number: BrokerId) -> dict[TopicPartition, Leadership | None]:
        """What this broker knows from LeaderAndIsr: it ignores epochs that did not rise."""
        known: dict[TopicPartition, Leadership | None] = {}
        for dispatch in self.log.dispatches:
            if isinstance(dispatch, LeaderAndIsrRequest) and dispatch.broker == number:
                for tp, row in dispatch.rows.items():
                    old = known.get(tp)
                    assert row.leadership is not None
                    if old is None or row.leadership.leader_epoch > old.leader_epoch:
                        known[tp] = row.leadership
        return known


def foreign_controller(number: BrokerId, *, kctl: bool = False) -> ControllerNode:
    return ControllerNode(number, ours=False, kctl=kctl)


def malformed(path: str, reason: str = "not JSON") -> Malformed:
    return Malformed(path, reason)


def notified(**named: Iterable[str]) -> Mapping[str, tuple[TopicPartition, ...]]:
    return {f"/isr_change_notification/{k}": tuple(map(tp_of, v)) for k, v in named.items()}


MakeWorld = Callable[..., World]
"""The fixture `world`."""
