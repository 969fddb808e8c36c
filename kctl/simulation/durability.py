"""S8: no acknowledged record is lost.

A record that was acknowledged by a leader with at least two replicas in sync is in the log of every
later leader, with these exceptions, in which Kafka loses it too:

- all members of the ISR lost their logs;
- an unclean election was allowed: it loses what only the former ISR has, also what a leader of an
  older epoch acknowledges before it hears of it (it cannot know, and its followers cut their logs);
- a broker lost its log while it counted as in sync, and who decides cannot know of it. The state of
  a partition names no broker epochs, so all that a controller has is the epochs that it saw before:
  a new one knows nothing of what happened before it first read the registrations, nor does one that
  could not use the partition's znodes at the time. That is the known limit of ZooKeeper mode
  (KIP-966).
"""

from typing import TYPE_CHECKING

import attrs

from kctl.model.names import NO_LEADER, BrokerId, TopicId, TopicPartition
from kctl.simulation.ledger import State

if TYPE_CHECKING:
    from kctl.simulation.controllers import ControllerProcess
    from kctl.simulation.safety import Safety

UNSEEN = 1 << 60
"""A zxid that nobody has read up to."""


@attrs.frozen
class Loss:
    """Of a log that counted as in sync."""

    zxid: int
    """The last one before it."""
    registered: bool
    """It was a failed log dir: no registration will tell of it, only the broker's answers."""

    @property
    def shown_after(self) -> int:
        return UNSEEN if self.registered else self.zxid


class Durability:
    def __init__(self, safety: "Safety") -> None:
        self._safety = safety
        self._acked: dict[TopicPartition, dict[int, None]] = {}
        self._born: dict[TopicPartition, int] = {}
        self._tainted: dict[TopicPartition, dict[BrokerId, Loss]] = {}
        """Members of the committed ISR whose log is gone."""
        self._unclean: dict[TopicPartition, int] = {}
        """The leader epoch of the last unclean election."""
        self.acknowledged_count = 0
        self.excused = 0

    def acknowledged(
        self, tp: TopicPartition, topic_id: TopicId | None, leader_epoch: int, number: int
    ) -> None:
        topic = self._safety.ledger.topics.get(tp.topic)
        if topic is None or (topic_id and topic.id and topic.id != topic_id):
            return
        if self._born.get(tp) != topic.born:
            self._acked.pop(tp, None)
            self._unclean.pop(tp, None)
            self._born[tp] = topic.born
        self.acknowledged_count += 1
        if leader_epoch >= self._unclean.get(tp, 0):
            self._acked.setdefault(tp, {})[number] = None

    def claimed(self) -> None:
        for tp in list(self._tainted):
            self._excuse(tp)

    def lost(self, broker: BrokerId, tps: list[TopicPartition]) -> None:
        for tp in tps:
            state = self._safety.ledger.states.get(tp)
            if state is None:
                self._excuse(tp)
                continue
            if broker in state.isr:
                registered = self._safety.world.brokers[broker].up
                loss = Loss(self._safety.ledger.zxid, registered)
                self._tainted.setdefault(tp, {})[broker] = loss
            if not self._survivors(tp, state):
                self._excuse(tp)

    def is_unclean(self, tp: TopicPartition, state: State) -> bool:
        """Whether this very leader was elected uncleanly."""
        return self._unclean.get(tp) == state.leader_epoch

    def deleted(self, broker: BrokerId, tp: TopicPartition) -> None:
        """By a controller's order; S15 says whether it was right."""

    def _survivors(self, tp: TopicPartition, state: State) -> list[BrokerId]:
        acked = self._acked.get(tp, {})
        return [b for b in state.isr if self.missing(tp, b, acked) == []]

    def missing(self, tp: TopicPartition, broker: BrokerId, acked: dict[int, None]) -> list[int]:
        model = self._safety.world.brokers.get(broker)
        log = None if model is None else model.logs.get(tp)
        kept = {number for _, number in log.records} if log is not None else set()
        return [number for number in acked if number not in kept]

    def _restarted(self, broker: BrokerId, tainted: dict[BrokerId, Loss]) -> bool:
        """It is registered, but not for as long as the lost log is lost."""
        registered = self._safety.ledger.registered.get(broker, -1)
        return registered >= min(loss.shown_after for loss in tainted.values())

    def _excuse_the_unknowable(self) -> None:
        """Losses that the controller at work cannot infer from the epochs it has seen."""
        first = self._safety.first_read()
        registered = self._safety.ledger.registered
        for tp, losses in list(self._tainted.items()):
            if self._is_unusable(tp) or any(
                loss.zxid < registered.get(broker, -1) <= first for broker, loss in losses.items()
            ):
                self._excuse(tp)
                del self._tainted[tp]

    def _is_unusable(self, tp: TopicPartition) -> bool:
        """A znode of its is malformed, or the controller at work takes it for that still."""
        process = self._safety.claimed_by.get(self._safety.ledger.epoch)
        cluster = None if process is None else process.node.cluster
        return self._safety.world.is_spoilt(tp.topic) or (
            cluster is not None
            and (tp in cluster.poisoned or f"/brokers/topics/{tp.topic}" in cluster.quarantine)
        )

    def _excuse(self, tp: TopicPartition) -> None:
        if self._acked.pop(tp, None):
            self.excused += 1
            self._safety.world.note("checker", "what was acknowledged is lost legally", str(tp))

    def committed(
        self, states: dict[TopicPartition, State | None], writer: "ControllerProcess | None"
    ) -> None:
        self._excuse_the_unknowable()
        seen = 0 if writer is None else self._safety.last_read(writer)
        for tp, old in states.items():
            new = self._safety.ledger.states.get(tp)
            if new is None:
                self._tainted.pop(tp, None)
                if tp not in self._safety.ledger.states:
                    self._acked.pop(tp, None)
                    self._unclean.pop(tp, None)
                continue
            tainted = self._tainted.get(tp, {})
            for broker in [b for b in tainted if b not in new.isr]:
                del tainted[broker]
            if not tainted:
                self._tainted.pop(tp, None)
            elif all(b in tainted and seen <= tainted[b].shown_after for b in new.isr) or (
                old is not None
                and all(b in tainted for b in new.isr)
                and all(self._restarted(b, tainted) for b in old.isr if b not in new.isr)
            ):
                # Who decided this could not know of the loss, or all came back at once and any of
                # them could have been the one that lost it.
                self._excuse(tp)
            if old is not None and new.leader not in {old.leader, NO_LEADER}:
                if new.leader not in old.isr:
                    self._excuse(tp)  # unclean: S6 says whether that was right
                    self._unclean[tp] = new.leader_epoch
                elif new.leader not in tainted and self._has_log(tp, new.leader):
                    # One that lost its log just now is not believed in for long: its epoch differs,
                    # or it answers that its log dir failed.
                    self._check_leader(tp, new)

    def _has_log(self, tp: TopicPartition, broker: BrokerId) -> bool:
        model = self._safety.world.brokers.get(broker)
        return model is not None and tp in model.logs

    def _check_leader(self, tp: TopicPartition, state: State) -> None:
        safety = self._safety
        if self._born.get(tp) != safety.ledger.born(tp.topic) or tp.topic in safety.ledger.marked:
            return
        missing = self.missing(tp, state.leader, self._acked.get(tp, {}))
        safety.check(
            "S8",
            not missing,
            f"{tp}: leader {state.leader} lacks acknowledged records {missing[:5]}",
            str(tp),
        )

    def check_all(self) -> None:
        """After healing: every leader has all that was acknowledged."""
        for tp in list(self._acked):
            state = self._safety.ledger.states.get(tp)
            if state is not None and state.leader != NO_LEADER:
                self._check_leader(tp, state)
