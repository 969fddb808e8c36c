"""The leader election rules: pure, dull, and the same as Kafka's.

Each takes what is known of one partition and gives the leadership to write, or None when nobody
can be elected. Every result raises the leader epoch by one and keeps the znode's version, which is
the condition of the write.
"""

from collections.abc import Container, Iterable
from enum import Enum

from kctl.model.names import NO_LEADER, BrokerId
from kctl.model.rows import Assignment, Leadership, Replicas


class Strategy(Enum):
    OFFLINE = "offline partition"
    UNCLEAN = "offline partition, unclean by request"
    REASSIGN = "reassignment"
    PREFERRED = "preferred replica"
    CONTROLLED_SHUTDOWN = "controlled shutdown"


def elect_offline(
    assignment: Assignment,
    leadership: Leadership,
    online: Replicas,
    controller_epoch: int,
    *,
    unclean: bool,
    marks_recovery: bool,
) -> Leadership | None:
    """The first assigned replica that is online and in sync; else, if allowed, the first online.

    An unclean leader is alone in its ISR, and is marked as recovering where brokers know that.
    """
    isr = leadership.isr
    for broker in assignment.replicas:
        if broker in online and broker in isr:
            in_sync = tuple([b for b in isr if b in online])
            return bumped(leadership, broker, in_sync, controller_epoch)
    if not unclean or not online:
        return None
    return Leadership(
        online[0],
        (online[0],),
        leadership.leader_epoch + 1,
        controller_epoch,
        leadership.zk_version,
        True if marks_recovery else leadership.recovering,
    )


def elect_reassigned(
    target: Replicas, leadership: Leadership, online: Replicas, controller_epoch: int
) -> Leadership | None:
    """The first target replica that is online and in sync; the ISR stays."""
    for broker in target:
        if broker in online and broker in leadership.isr:
            return bumped(leadership, broker, leadership.isr, controller_epoch)
    return None


def elect_preferred(
    assignment: Assignment, leadership: Leadership, online: Replicas, controller_epoch: int
) -> Leadership | None:
    """The first assigned replica, if it is online and in sync; the ISR stays."""
    preferred = assignment.replicas[0]
    if preferred in online and preferred in leadership.isr:
        return bumped(leadership, preferred, leadership.isr, controller_epoch)
    return None


def elect_for_controlled_shutdown(
    assignment: Assignment,
    leadership: Leadership,
    reachable: Replicas,
    shutting_down: Container[BrokerId],
    controller_epoch: int,
) -> Leadership | None:
    """The first in-sync replica that stays; those that are leaving leave the ISR with this write.

    `reachable` are the replicas on live or leaving brokers with a working log dir.
    """
    for broker in assignment.replicas:
        if broker in reachable and broker in leadership.isr and broker not in shutting_down:
            staying = tuple([b for b in leadership.isr if b not in shutting_down])
            return bumped(leadership, broker, staying, controller_epoch)
    return None


def bumped(
    leadership: Leadership, leader: BrokerId, isr: Replicas, controller_epoch: int
) -> Leadership:
    return Leadership(
        leader,
        isr,
        leadership.leader_epoch + 1,
        controller_epoch,
        leadership.zk_version,
        leadership.recovering,
    )


def removed_from_isr(
    leadership: Leadership, gone: Iterable[BrokerId], controller_epoch: int
) -> Leadership | None:
    """Without the replicas that went offline, or None if none of them is in the ISR.

    The last member stays, dead or not: it alone is known to have every acknowledged record. Where
    several go at once they are taken one by one in the order of their ids, as Kafka does.
    """
    isr = leadership.isr
    leader = leadership.leader
    for broker in sorted(gone):
        if broker not in isr:
            continue
        if broker == leader:
            leader = NO_LEADER
        if len(isr) > 1:
            isr = tuple([b for b in isr if b != broker])
    if isr is leadership.isr and leader == leadership.leader:
        return None
    return bumped(leadership, leader, isr, controller_epoch)
