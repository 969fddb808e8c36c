"""S3 to S7: one partition's state before and after a write, with what the writer could know."""

from typing import TYPE_CHECKING

from kctl.messages.events import LeaderAndIsrResponseReceived
from kctl.model.codes import KafkaError
from kctl.model.names import NO_LEADER, BrokerId, TopicPartition
from kctl.model.settings import RECOVERY_STATE_SINCE
from kctl.simulation.ledger import STATE, Assigned, Ledger, State, TopicRecord
from kctl.simulation.zookeeper_tree import Transaction

if TYPE_CHECKING:
    from kctl.simulation.controllers import ControllerProcess
    from kctl.simulation.safety import Proposal, Safety

HEARSAY_MS = 15_000
"""So long a controller may believe in a config that was changed meanwhile."""
NEVER = -HEARSAY_MS - 1


def touched(ledger: Ledger, transaction: Transaction) -> dict[TopicPartition, State | None]:
    """The partitions whose state this writes, with what it was."""
    found = {}
    for change in transaction.changes:
        if change.kind != "check" and (match := STATE.match(change.path)):
            tp = TopicPartition(match[1], int(match[2]))
            found[tp] = ledger.states.get(tp)
    return found


def check(
    safety: "Safety",
    tp: TopicPartition,
    old: State | None,
    writer: "ControllerProcess | None",
    marked: dict[str, None],
) -> None:
    ledger = safety.ledger
    if tp not in ledger.states:
        if writer is not None:
            safety.check(
                "S15", tp.topic in marked, f"{writer.name} removes the state of {tp}", str(tp)
            )
        return
    new = ledger.states[tp]
    if new is None:
        safety.check("S4", writer is None, f"a controller wrote rubbish for {tp}", str(tp))
        return
    safety.told.add((tp, new))
    safety.check("S4", new.isr, f"{tp}: the ISR is empty", str(tp))
    safety.check("S4", new.leader == NO_LEADER or new.leader in new.isr, f"{tp}: {new}", str(tp))
    safety.check("S4", len(set(new.isr)) == len(new.isr), f"{tp}: {new}", str(tp))
    if old is not None:
        check_epochs(safety, tp, old, new)
    if writer is not None:
        check_decision(safety, tp, old, new, writer)


def check_epochs(safety: "Safety", tp: TopicPartition, old: State, new: State) -> None:
    change = f"{tp}: {old} became {new}"
    safety.check("S3", new.leader_epoch >= old.leader_epoch, change, str(tp))
    if new.leader != old.leader:
        safety.check("S3", new.leader_epoch > old.leader_epoch, change, str(tp))


def check_membership(
    safety: "Safety",
    states: dict[TopicPartition, State | None],
    topics: dict[str, TopicRecord | None],
    writer: "ControllerProcess | None",
) -> None:
    """S5: at this zxid every ISR is within its partition's replicas.

    A leader of an old release writes its ISR itself, and may not know yet which replicas have left;
    what it adds then is the controller's to take out again.
    """
    ledger = safety.ledger
    for tp in states:
        if writer is None:
            safety.added_by_old_leaders.add(tp)
        else:
            safety.added_by_old_leaders.discard(tp)
    concerned = dict.fromkeys(states)
    for topic in topics:
        record = ledger.topics.get(topic)
        if record is not None and record.partitions is not None:
            concerned.update(dict.fromkeys(TopicPartition(topic, p) for p in record.partitions))
    for tp in concerned:
        state, assigned = ledger.states.get(tp), ledger.assigned(tp)
        if state is not None and assigned is not None and tp not in safety.added_by_old_leaders:
            safety.check(
                "S5",
                all(b in assigned.replicas for b in state.isr),
                f"{tp}: ISR {state.isr} is not within {assigned}",
                str(tp),
            )


def check_decision(
    safety: "Safety",
    tp: TopicPartition,
    old: State | None,
    new: State,
    writer: "ControllerProcess",
) -> None:
    """A controller's own write: clean, by live replicas, and with a reason."""
    safety.check(
        "S2",
        new.controller_epoch == safety.ledger.epoch,
        f"{writer.name} writes {tp} with epoch {new.controller_epoch}",
        str(tp),
    )
    if old is None:
        for broker in new.isr:
            check_alive(safety, tp, broker, writer, f"{tp}: {new}")
        return
    change = f"{writer.name} made of {tp} {old}: {new}"
    leads_anew = new.leader not in {old.leader, NO_LEADER}
    unclean = leads_anew and new.leader not in old.isr
    if unclean:
        check_unclean(safety, tp, (old, new), writer, change)
    joined = [b for b in new.isr if b not in old.isr and not unclean]
    proposal = (tp, new.leader, new.leader_epoch, old.version, frozenset(new.isr))
    if joined or (new.leader_epoch == old.leader_epoch and set(new.isr) != set(old.isr)):
        safety.check("S6", proposal in safety.proposals, f"nobody proposed it: {change}", str(tp))
    if leads_anew:
        check_alive(safety, tp, new.leader, writer, change)
    for broker in joined:
        check_alive(safety, tp, broker, writer, change)
        check_same_life(safety, broker, proposal, writer, change)
    if not unclean and new.leader_epoch > old.leader_epoch:
        for broker in old.isr:
            if broker not in new.isr:
                check_loss(safety, tp, broker, writer, change)


def check_alive(
    safety: "Safety",
    tp: TopicPartition,
    broker: BrokerId,
    writer: "ControllerProcess",
    change: str,
) -> None:
    """S7: as far as the writer could know. It may still be at work on what it read before: like
    Kafka it handles bounced brokers first and dead ones then."""
    ledger = safety.ledger
    read = safety.knew(writer)
    about = (str(tp), f"broker-{broker}")
    safety.check(
        "S7", ledger.was_live_since(broker, read), f"{broker} is not alive: {change}", *about
    )
    epoch = ledger.brokers.get(broker, -1)
    safety.check(
        "S7", safety.leaving.get(broker) != epoch, f"{broker} is leaving: {change}", *about
    )
    offline = safety.offline.get((broker, epoch, tp))
    safety.check("S7", offline is None, f"{broker} has a failed log dir: {change}", *about)


def check_same_life(
    safety: "Safety",
    broker: BrokerId,
    proposal: "Proposal",
    writer: "ControllerProcess",
    change: str,
) -> None:
    """S7: nobody is taken into an ISR by a decision that was made before it restarted (KIP-903): it
    may have come back with an empty disk. That is asked only where the writer has seen the broker
    go or come; one that left by a controlled shutdown was fenced then."""
    ledger, tp = safety.ledger, proposal[0]
    decided = safety.decisions.get(proposal)
    registered = ledger.registered.get(broker, -1)
    noticed = safety.first_read() < registered <= safety.knew(writer)
    if decided is not None and noticed and broker not in safety.leaving:
        safety.check(
            "S7",
            decided >= registered or tp.topic in ledger.marked,
            f"{broker} restarted since its leader decided: {change}",
            str(tp),
            f"broker-{broker}",
        )


def check_loss(
    safety: "Safety",
    tp: TopicPartition,
    broker: BrokerId,
    writer: "ControllerProcess",
    change: str,
) -> None:
    """S14: a controller takes nobody out of an ISR who was there all the time and shall stay."""
    ledger = safety.ledger
    read_before = safety.knew(writer)
    assigned = ledger.assigned(tp)
    epoch = ledger.brokers.get(broker, -1)
    stays = (
        read_before > 0
        and ledger.lives_since(broker, read_before)
        and assigned is not None
        and broker in assigned.target
        and not shall_leave(safety, tp, broker, assigned)
        and tp.topic not in ledger.marked
        and not is_shutting_down(writer, broker)
        and (broker, epoch, tp) not in safety.offline
        and not has_failed_dir(safety, writer, broker, tp)
    )
    safety.check("S14", not stays, f"{broker} is alive and well: {change}", str(tp))


def shall_leave(safety: "Safety", tp: TopicPartition, broker: BrokerId, assigned: Assigned) -> bool:
    """Somebody asked for replicas without it: it leaves the ISR before the assignment."""
    return any(
        broker in assigned.adding if target is None else broker not in target
        for target in safety.targets.get(tp, ())
    )


def is_shutting_down(writer: "ControllerProcess", broker: BrokerId) -> bool:
    cluster = writer.node.cluster
    return cluster is not None and broker in cluster.shutting_down


def has_failed_dir(
    safety: "Safety", writer: "ControllerProcess", broker: BrokerId, tp: TopicPartition
) -> bool:
    """It has, or the answer that says so is being handled."""
    model = safety.world.brokers.get(broker)
    return (model is not None and tp in model.offline) or any(
        event.broker == broker and event.partition_errors.get(tp) == KafkaError.KAFKA_STORAGE_ERROR
        for event in writer.handling
        if isinstance(event, LeaderAndIsrResponseReceived)
    )


def check_unclean(
    safety: "Safety",
    tp: TopicPartition,
    states: tuple[State, State],
    writer: "ControllerProcess",
    change: str,
) -> None:
    """S6: only where it is allowed, alone in the ISR, and to be recovered from."""
    old, new = states
    since = writer.handling_since
    ledger = safety.ledger
    allowed = (
        tp.topic in ledger.unclean
        or safety.unclean_until.get(tp.topic, NEVER) >= since - HEARSAY_MS
        or ledger.unclean_default
        or safety.unclean_default_until >= since - HEARSAY_MS
        or safety.unclean_asked.get(tp, -1) >= 0
    )
    safety.check("S6", allowed, f"unclean: {change}", str(tp))
    safety.check("S6", new.isr == (new.leader,), f"unclean: {change}", str(tp))
    cluster = writer.node.cluster
    if cluster is not None and cluster.release >= RECOVERY_STATE_SINCE:
        safety.check("S6", new.recovering, f"unclean, but not to be recovered: {change}", str(tp))
    read_before = safety.knew(writer)
    for broker in old.isr:
        epoch = ledger.brokers.get(broker, -1)
        there = (
            read_before > 0
            and ledger.lives_since(broker, read_before)
            and not is_shutting_down(writer, broker)
            and (broker, epoch, tp) not in safety.offline
            and not has_failed_dir(safety, writer, broker, tp)
        )
        safety.check("S6", not there, f"unclean though {broker} is in sync: {change}", str(tp))
