"""Safety: what must hold at every committed write, every request and every answer.

The invariants have the names S1 to S16. What is known of controllers comes from what they did: the
sessions they opened, what they read, what they were asked and what they sent. Checks of single
partition states are in `state_checks`, those of acknowledged records in `durability`.
"""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

from kctl.messages import events as ev
from kctl.messages.answers import AnswerValue, ControlledShutdownDone
from kctl.messages.requests import (
    LeaderAndIsrRequest,
    Request,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kctl.model.codes import KafkaError
from kctl.model.names import BrokerId, TopicId, TopicPartition
from kctl.model.rows import Leadership, Replicas, Row
from kctl.simulation import answer_checks, state_checks, topic_checks
from kctl.simulation.durability import Durability
from kctl.simulation.ledger import Ledger, State
from kctl.simulation.orders import Orders
from kctl.simulation.surroundings import Surroundings
from kctl.simulation.violations import Violation
from kctl.simulation.zookeeper_tree import Change, Transaction

if TYPE_CHECKING:
    from kctl.simulation.brokers_model import ModelBroker
    from kctl.simulation.callers import Asked
    from kctl.simulation.controllers import ControllerProcess

ROOTS = frozenset(
    {
        "/consumers",
        "/brokers",
        "/brokers/ids",
        "/brokers/topics",
        "/brokers/seqid",
        "/admin",
        "/admin/delete_topics",
        "/isr_change_notification",
        "/log_dir_event_notification",
        "/config",
        "/config/changes",
        "/config/topics",
        "/config/clients",
        "/config/users",
        "/config/brokers",
        "/config/ips",
    }
)
UNFENCED = frozenset({"/feature", "/latest_producer_id_block"})

Proposal = tuple[TopicPartition, BrokerId, int, int, frozenset[int]]
"""Partition, leader, leader epoch, partition epoch and ISR."""


class Safety:
    def __init__(self, world: Surroundings) -> None:
        self.world = world
        self.ledger = Ledger()
        self.durability = Durability(self)
        self.evaluated: Counter[str] = Counter()
        self.writes = 0
        self.claims = 0
        self.sessions: dict[int, ControllerProcess] = {}
        self._claimed_at = 0
        self.claimed_by: dict[int, ControllerProcess] = {}
        """Which process made an epoch."""
        self.proposals: set[Proposal] = set()
        self.decisions: dict[Proposal, int] = {}
        """The zxid at which a leader last decided to make a proposal."""
        self.unclean_until: dict[str, int] = {}
        """When unclean election was last allowed, for topics where it no longer is."""
        self.unclean_default_until = state_checks.NEVER
        self.added_by_old_leaders: set[TopicPartition] = set()
        self.unclean_asked: dict[TopicPartition, int] = {}
        """When an unclean election was last asked for by a caller."""
        self.leaving: dict[BrokerId, int] = {}
        """Broker epochs of those that were told that they may go, in the current term."""
        self.offline: dict[tuple[BrokerId, int, TopicPartition], int] = {}
        """Replicas on failed log dirs that the controller of this epoch knows of."""
        self.told: set[tuple[TopicPartition, State]] = set()
        """Every state that was ever committed, as it may be told."""
        self.assigned: set[tuple[TopicPartition, tuple[int, ...]]] = set()
        self.targets: dict[TopicPartition, list[tuple[int, ...] | None]] = {}
        """Replicas that people asked for; None is a cancellation."""
        self.claims_at_mark: dict[str, int] = {}
        """How many terms there had been when a topic was marked for deletion."""
        self._orders: dict[tuple[object, ...], tuple[int, int]] = {}
        self._greeted: set[tuple[int, BrokerId, int]] = set()
        self.topics = topic_checks.TopicHistory()
        self.orders = Orders(self)
        self._records = 0
        self.blocks: list[tuple[int, int]] = []
        self.removed: set[str] = set()
        """Names of topics that were removed at some time."""

    # -- judging --------------------------------------------------------------------------------

    def check(self, invariant: str, holds: object, message: str, *about: str) -> None:
        self.evaluated[invariant] += 1
        if not holds:
            self.fail(invariant, message, *about)

    def fail(self, invariant: str, message: str, *about: str) -> NoReturn:
        story = self.world.trace.story(*about)
        raise Violation(self.world.seed, invariant, message, story)

    # -- committed writes -----------------------------------------------------------------------

    def committed(self, transaction: Transaction) -> None:
        ledger = self.ledger
        writer = None if transaction.closing else self.sessions.get(transaction.session)
        self.writes += 1
        self._note(transaction)
        if writer is not None:
            self._check_fence(transaction, writer)
        states = state_checks.touched(ledger, transaction)
        topics = topic_checks.touched(ledger, transaction)
        unclean, default = dict(ledger.unclean), ledger.unclean_default
        marked = dict(ledger.marked)
        ledger.apply(transaction)
        for topic in unclean:
            if topic not in ledger.unclean:
                self.unclean_until[topic] = self.world.now
        if default:
            self.unclean_default_until = self.world.now
        for topic in ledger.marked:
            if topic not in marked:
                self.claims_at_mark[topic] = self.claims
        for tp, target in ledger.reassignments.items():
            self.targets.setdefault(tp, []).append(target)
        for topic, old in topics.items():
            if topic not in ledger.topics:
                self.removed.add(topic)
            self.topics.check(self, topic, old, writer=writer, marked=marked)
            if writer is not None:
                self.orders.reassigned(topic, old)
        for tp, before in states.items():
            state_checks.check(self, tp, before, writer, marked)
        state_checks.check_membership(self, states, topics, writer)
        self.durability.committed(states, writer)

    def _note(self, transaction: Transaction) -> None:
        who = self.world.ensemble.owner_of(transaction.session) or f"#{transaction.session}"
        for change in transaction.changes:
            if change.kind != "check":
                self.world.note(who, f"{change.kind} {told(change)}", key_of(change.path))

    def _check_fence(self, transaction: Transaction, writer: "ControllerProcess") -> None:
        """S1 and S2: one writer an epoch, and epochs made only by claiming the controllership."""
        ledger, changes = self.ledger, transaction.changes
        raised = [c for c in changes if c.path == "/controller_epoch" and c.kind == "set"]
        created = [c for c in changes if c.path == "/controller" and c.kind == "create"]
        if raised or created:
            epoch = int(raised[0].data or b"0") if raised else -1
            self.check("S2", raised and created, "an epoch without a claim, or a claim without one")
            self.check("S2", epoch == ledger.epoch + 1, f"epoch {ledger.epoch} became {epoch}")
            self.check("S2", created[0].owner == transaction.session, "/controller is no ephemeral")
            self.claimed_by[epoch] = writer
            self.claims += 1
            self._claimed_at = self.world.now
            self.leaving.clear()
            self.offline.clear()
            self.durability.claimed()
            self.orders.claimed()
            self.world.note(writer.name, f"claims epoch {epoch}", "*")
            return
        fenced = [c for c in changes if needs_fence(c) and not is_own(c, writer)]
        if fenced:
            checks = [c for c in changes if c.kind == "check" and c.path == "/controller_epoch"]
            key = key_of(fenced[0].path)
            self.check("S1", checks, f"{writer.name} writes {fenced[0].path} without a fence", key)
            self.check(
                "S1",
                ledger.claimant == transaction.session,
                f"{writer.name} writes {fenced[0].path} in the epoch of somebody else",
                key,
            )

    # -- controllers ----------------------------------------------------------------------------

    def opened(self, process: "ControllerProcess", session: int) -> None:
        self.sessions[session] = process

    def epoch_of(self, process: "ControllerProcess") -> int:
        return -1 if process.node.cluster is None else process.node.cluster.epoch

    def knew(self, process: "ControllerProcess") -> int:
        """The zxid at which it had last read the brokers when it began what it is doing; 0: never."""
        reads = self.world.ensemble.broker_reads.get(process.client.session_id, ())
        return next((zxid for at, zxid in reversed(reads) if at < process.handling_since), 0)

    def first_read(self) -> int:
        """The zxid at which the controller at work read the brokers first; -1: not yet."""
        reads = self.world.ensemble.broker_reads.get(self.ledger.claimant, ())
        return next((zxid for at, zxid in reads if at >= self._claimed_at), -1)

    def last_read(self, process: "ControllerProcess") -> int:
        reads = self.world.ensemble.broker_reads.get(process.client.session_id, ())
        return reads[-1][1] if reads else 0

    def handled(self, process: "ControllerProcess", events: tuple[ev.Event, ...]) -> None:
        epoch = self.epoch_of(process)
        if epoch != self.ledger.epoch:
            return
        self.orders.handled(process)
        for event in events:
            if isinstance(event, ev.LeaderAndIsrResponseReceived) and not event.error:
                for tp, error in event.partition_errors.items():
                    key = (event.broker, event.broker_epoch, tp)
                    if error == KafkaError.KAFKA_STORAGE_ERROR:
                        self.offline[key] = epoch
                    elif error == KafkaError.NONE:
                        self.offline.pop(key, None)

    def decided(
        self, tp: TopicPartition, leader: BrokerId, epochs: tuple[int, int], isr: Replicas
    ) -> None:
        """A leader will propose this, now or, if the request is late, at any later time."""
        self.decisions[tp, leader, *epochs, frozenset(isr)] = self.ledger.zxid

    def asked(self, process: "ControllerProcess", event: ev.Event) -> None:
        self.world.note(process.name, f"is asked: {event}")
        if isinstance(event, ev.AlterPartitionReceived):
            for tp, asked in self.proposed_in(event).items():
                self.proposals.add(
                    (
                        tp,
                        event.broker,
                        asked.leader_epoch,
                        asked.partition_epoch,
                        frozenset(asked.isr),
                    )
                )
        elif isinstance(event, ev.ReplicaLeaderElection):
            named = self.ledger.states if event.partitions is None else event.partitions
            if event.election_type is ev.ElectionType.UNCLEAN:
                self.unclean_asked.update(dict.fromkeys(named, self.world.now))
        elif isinstance(event, ev.ApiPartitionReassignment):
            for tp, target in event.targets.items():
                self.targets.setdefault(tp, []).append(target)

    def proposed_in(self, event: ev.AlterPartitionReceived) -> dict[TopicPartition, ev.IsrProposal]:
        names = self.world.topic_names
        by_id = {
            TopicPartition(names[topic_id], partition): proposal
            for (topic_id, partition), proposal in event.by_id.items()
        }
        return {**event.partitions, **by_id}

    def answered(self, process: "ControllerProcess", asked: "Asked", value: AnswerValue) -> None:
        event, cluster = asked.event, process.node.cluster
        if isinstance(event, ev.ControlledShutdown) and isinstance(value, ControlledShutdownDone):
            known = None if cluster is None else cluster.brokers.get(event.broker)
            # One that the controller has not seen yet starts anew in its eyes, as in Kafka's; and
            # of what a replaced one still answers the present one knows nothing.
            current = self.epoch_of(process) == self.ledger.epoch
            if current and known is not None and known.epoch == event.broker_epoch:
                self.leaving[event.broker] = event.broker_epoch
        answer_checks.check(self, process, asked, value)

    # -- requests -------------------------------------------------------------------------------

    def queued(self, process: "ControllerProcess", request: Request) -> None:
        """S2, S11, S14, S15: what a controller is about to tell brokers."""
        epoch = request.controller_epoch
        self.check(
            "S2",
            self.claimed_by.get(epoch) is process,
            f"{process.name} speaks with epoch {epoch}, which it did not make",
            process.name,
        )
        self.orders.queued(request)
        if isinstance(request, StopReplicaRequest):
            for tp, order in request.partitions.items():
                if order.delete:
                    self._check_deletion(process, request.broker, tp)
            return
        self._check_greeting(process, request)
        for tp, row in told_states(request):
            self._check_told(process, tp, row)

    def _check_greeting(
        self, process: "ControllerProcess", request: LeaderAndIsrRequest | UpdateMetadataRequest
    ) -> None:
        """S10: a broker hears of the live brokers before it is told to lead or to follow."""
        epoch = request.controller_epoch
        if isinstance(request, UpdateMetadataRequest):
            self._greeted.update((epoch, b, e) for b, e in request.recipients.items())
        else:
            self.check(
                "S10",
                (epoch, request.broker, request.broker_epoch) in self._greeted,
                f"{process.name} tells broker {request.broker} nothing of the live brokers first",
                f"broker-{request.broker}",
            )

    def _check_told(self, process: "ControllerProcess", tp: TopicPartition, row: Row) -> None:
        leadership = row.leadership
        assert leadership is not None
        state = as_state(leadership)
        self.check(
            "S11",
            (tp, state) in self.told,
            f"{process.name} tells {tp} {state}, which was never committed",
            str(tp),
        )
        self.check(
            "S11",
            (tp, row.assignment.replicas) in self.assigned,
            f"{process.name} tells {tp} replicas {row.assignment.replicas}: never committed",
            str(tp),
        )

    def _check_deletion(
        self, process: "ControllerProcess", broker: BrokerId, tp: TopicPartition
    ) -> None:
        """S14, S15: only what ZooKeeper shows as removed or doomed loses its data."""
        ledger = self.ledger
        if self.epoch_of(process) != ledger.epoch:
            return  # the brokers refuse it
        assigned = ledger.assigned(tp)
        removed = assigned is None or broker not in assigned.target
        self.check(
            "S15",
            removed or tp.topic in ledger.marked,
            f"{process.name} tells broker {broker} to delete {tp}: {assigned}, not marked",
            str(tp),
        )

    def delivered(
        self,
        broker: "ModelBroker",
        request: Request,
        meant_for: int,
        process: "ControllerProcess",
    ) -> None:
        """S10: nothing older after something newer."""
        if request.controller_epoch < broker.controller_epoch or meant_for < broker.epoch:
            return  # refused
        if isinstance(request, StopReplicaRequest):
            return
        kind = type(request).__name__
        for tp, row in told_states(request):
            assert row.leadership is not None
            topic_id: TopicId | None = request.topic_ids.get(tp.topic)
            key = (kind, process.name, broker.name, broker.incarnation, broker.epoch, tp, topic_id)
            now = (row.leadership.leader_epoch, row.leadership.zk_version)
            before = self._orders.get(key, (-1, -1))
            if topic_id is not None:
                self.check(
                    "S10", now >= before, f"{broker.name} gets {tp} {now} after {before}", str(tp)
                )
            self._orders[key] = now

    # -- records --------------------------------------------------------------------------------

    def next_record(self) -> int:
        self._records += 1
        return self._records

    def acknowledged(
        self, tp: TopicPartition, topic_id: TopicId | None, leader_epoch: int, number: int
    ) -> None:
        self.durability.acknowledged(tp, topic_id, leader_epoch, number)

    def logs_lost(self, broker: BrokerId, tps: list[TopicPartition]) -> None:
        self.durability.lost(broker, tps)

    def log_deleted(self, broker: BrokerId, tp: TopicPartition) -> None:
        """S15: a broker obeyed and removed a log. Nobody may still count on it.

        Only an unclean leader may be chosen while an older order to delete is on its way to it, as in
        Kafka: what it had is given up with the election.
        """
        state = self.ledger.states.get(tp)
        counted_on = (
            state is not None
            and broker in state.isr
            and tp.topic not in self.ledger.marked
            and tp not in self.added_by_old_leaders
            and not self.durability.is_unclean(tp, state)
        )
        self.check(
            "S15", not counted_on, f"broker {broker} deleted {tp} while in its ISR {state}", str(tp)
        )
        self.durability.deleted(broker, tp)


def told_states(
    request: LeaderAndIsrRequest | UpdateMetadataRequest,
) -> Iterator[tuple[TopicPartition, Row]]:
    """Those that brokers take over. Of a topic in deletion they take nothing but that it goes."""
    deleted = request.deleted if isinstance(request, UpdateMetadataRequest) else {}
    return ((tp, row) for tp, row in request.rows.items() if tp.topic not in deleted)


def is_own(change: Change, writer: "ControllerProcess") -> bool:
    """A controller may take its own registration back at any time."""
    return change.kind == "delete" and change.path == f"/brokers/ids/{writer.host.id}"


def needs_fence(change: Change) -> bool:
    if change.kind == "check" or change.path in UNFENCED:
        return False
    if change.kind == "create":
        return change.path not in ROOTS and change.path != "/controller_epoch"
    return True


def as_state(leadership: Leadership) -> State:
    return State(
        leadership.leader,
        leadership.isr,
        leadership.leader_epoch,
        leadership.controller_epoch,
        leadership.zk_version,
        leadership.recovering,
    )


def key_of(path: str) -> str:
    parts = path.split("/")
    if path.endswith("/state") and len(parts) > 5:
        return f"{parts[3]}-{parts[5]}"
    if path.startswith("/brokers/ids/"):
        return f"broker-{parts[3]}"
    return parts[3] if path.startswith("/brokers/topics/") else path


def told(change: Change) -> str:
    if change.kind == "delete":
        return change.path
    return f"{change.path} v{change.version} {(change.data or b'').decode(errors='replace')}"
