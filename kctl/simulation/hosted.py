"""A partition as one broker holds it in memory: its role, and as a leader what it knows of others."""

import attrs

from kctl.model.names import BrokerId
from kctl.model.rows import Leadership, Replicas, Row

MIN_ISR = 2


@attrs.define
class Hosted:
    leader: BrokerId
    leader_epoch: int
    partition_epoch: int
    isr: Replicas
    replicas: Replicas
    leads: bool
    fetching: bool = False
    """A follower that was not stopped."""
    cut_back: bool = False
    epoch_start: int = 0
    high_watermark: int = 0
    ends: dict[BrokerId, int] = attrs.field(factory=dict)
    """As a leader: where each follower's log ended when it last fetched."""
    caught_up: dict[BrokerId, int] = attrs.field(factory=dict)
    """As a leader: when each follower last had everything."""
    unacknowledged: list[tuple[int, int]] = attrs.field(factory=list)
    """Offset and number of the records whose producers still wait."""
    proposed: Replicas | None = None
    """An ISR that was asked for and not answered yet."""
    proposal: int = 0
    """Counts the proposals, so that a late answer is recognised."""
    wait_until: int = 0

    @classmethod
    def led(cls, row: Row, led: Leadership, end: int) -> "Hosted":
        return cls(
            led.leader,
            led.leader_epoch,
            led.zk_version,
            led.isr,
            row.assignment.replicas,
            leads=True,
            epoch_start=end,
        )

    @classmethod
    def followed(cls, row: Row, led: Leadership) -> "Hosted":
        return cls(
            led.leader,
            led.leader_epoch,
            led.zk_version,
            led.isr,
            row.assignment.replicas,
            leads=False,
            fetching=True,
        )

    @property
    def maximal_isr(self) -> Replicas:
        """Those that may be in sync: the committed ISR and the one that was asked for."""
        return (
            self.isr if self.proposed is None else tuple(dict.fromkeys((*self.isr, *self.proposed)))
        )

    def advance(self, own: BrokerId, end: int) -> list[int]:
        """Raise the high watermark; the numbers of the records that are acknowledged by it."""
        ends = [end if b == own else self.ends.get(b, 0) for b in self.maximal_isr]
        self.high_watermark = max(self.high_watermark, min(ends, default=end))
        if len(self.isr) < MIN_ISR:
            # Kafka answers NOT_ENOUGH_REPLICAS_AFTER_APPEND: the producer counts it as failed.
            self.unacknowledged = [w for w in self.unacknowledged if w[0] >= self.high_watermark]
            return []
        done = [number for offset, number in self.unacknowledged if offset < self.high_watermark]
        if done:
            self.unacknowledged = [w for w in self.unacknowledged if w[0] >= self.high_watermark]
        return done
