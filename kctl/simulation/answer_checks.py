"""S13 and S16: an answer of success is true, producer id blocks are given out once."""

from typing import TYPE_CHECKING

from kctl.messages import events as ev
from kctl.messages.answers import (
    AlteredPartitions,
    AnswerValue,
    ControlledShutdownDone,
    PartitionErrors,
    ProducerIdBlock,
    TopicResults,
)
from kctl.model.codes import KafkaError
from kctl.model.names import TopicPartition
from kctl.model.rows import Leadership
from kctl.simulation.ledger import Ledger, State

if TYPE_CHECKING:
    from kctl.simulation.callers import Asked
    from kctl.simulation.controllers import ControllerProcess
    from kctl.simulation.safety import Safety


def check(
    safety: "Safety", process: "ControllerProcess", asked: "Asked", value: AnswerValue
) -> None:
    match value:
        case ProducerIdBlock():
            check_block(safety, value)
        case AlteredPartitions():
            check_altered(safety, asked, value)
        case TopicResults():
            check_topics(safety, asked, value)
        case PartitionErrors():
            check_partitions(safety, asked, value)
        case ControlledShutdownDone():
            check_shutdown(safety, process, asked, value)
        case _:
            pass


def check_block(safety: "Safety", block: ProducerIdBlock) -> None:
    first, last = block.start, block.start + block.length - 1
    clash = [b for b in safety.blocks if b[0] <= last and first <= b[1]]
    safety.check("S13", not clash, f"producer ids {first}..{last} overlap {clash}")
    safety.check("S13", block.length > 0 and first >= 0, f"producer ids {first}..{last}")
    safety.blocks.append((first, last))


def check_altered(safety: "Safety", asked: "Asked", value: AlteredPartitions) -> None:
    proposals: dict[TopicPartition, ev.IsrProposal] = {}
    if isinstance(asked.event, ev.AlterPartitionReceived):
        proposals = safety.proposed_in(asked.event)
    for tp, result in value.partitions.items():
        if result is KafkaError.FENCED_LEADER_EPOCH:
            check_fenced(safety, tp, proposals[tp])
        if isinstance(result, Leadership):
            state = State(
                result.leader,
                result.isr,
                result.leader_epoch,
                result.controller_epoch,
                result.zk_version,
                result.recovering,
            )
            safety.check(
                "S11", (tp, state) in safety.told, f"{tp}: answered {state}: not committed", str(tp)
            )


def check_fenced(safety: "Safety", tp: TopicPartition, proposal: ev.IsrProposal) -> None:
    """A leader that is told so waits for a newer epoch: there must be one. A controller that was
    replaced may know only older ones, and has no say in it (KAFKA-14154). It cannot tell a topic
    from an older one of that name where topics have no ids."""
    ledger = safety.ledger
    state = ledger.states.get(tp)
    if state is not None and tp.topic not in safety.removed:
        safety.check(
            "S16",
            state.leader_epoch > proposal.leader_epoch,
            f"{tp}: fenced is {proposal}, but {state}",
            str(tp),
        )


def check_topics(safety: "Safety", asked: "Asked", value: TopicResults) -> None:
    """What was done may have been undone since: a topic that changed after the call is let pass."""
    ledger, event = safety.ledger, asked.event
    if isinstance(event, ev.CreateTopics | ev.CreatePartitions) and event.validate_only:
        return
    for result in value.topics:
        if result.error.code is not KafkaError.NONE:
            continue
        topic = result.name
        record = ledger.topics.get(topic)
        if isinstance(event, ev.CreateTopics):
            there = record is not None or topic in safety.removed
            safety.check("S16", there, f"{topic} was not created", topic)
        elif isinstance(event, ev.DeleteTopics):
            doomed = topic in ledger.marked or record is None or record.born > asked.zxid
            safety.check("S16", doomed, f"{topic} was not marked for deletion", topic)
        elif isinstance(event, ev.CreatePartitions):
            wanted = next(t.count for t in event.topics if t.name == topic)
            grown = record is None or len(record.partitions or ()) >= wanted
            grown = grown or topic in safety.removed
            safety.check("S16", grown, f"{topic} has no {wanted} partitions: {record}", topic)


def check_partitions(safety: "Safety", asked: "Asked", value: PartitionErrors) -> None:
    ledger, event = safety.ledger, asked.event
    for tp, error in value.errors.items():
        if error.code is not KafkaError.NONE:
            continue
        assigned, state = ledger.assigned(tp), ledger.states.get(tp)
        if isinstance(event, ev.ApiPartitionReassignment) and assigned is not None:
            wanted = event.targets.get(tp)
            if wanted is None:
                done = not assigned.adding and not assigned.removing
            else:
                done = set(assigned.target) == set(wanted)
            safety.check("S16", done, f"{tp}: asked for {wanted}, but it is {assigned}", str(tp))
        elif isinstance(event, ev.ReplicaLeaderElection) and state is not None:
            led = state.leader != -1
            if event.election_type is ev.ElectionType.PREFERRED and assigned is not None:
                led = state.leader == assigned.replicas[0]
            safety.check("S16", led, f"{tp}: elected, but {state} of {assigned}", str(tp))


def check_shutdown(
    safety: "Safety",
    process: "ControllerProcess",
    asked: "Asked",
    value: ControlledShutdownDone,
) -> None:
    """A broker that is told to go leads nothing that another one could lead."""
    ledger, event, cluster = safety.ledger, asked.event, process.node.cluster
    if not isinstance(event, ev.ControlledShutdown) or safety.epoch_of(process) != ledger.epoch:
        return
    assert cluster is not None
    for tp in led_by(ledger, event.broker):
        # What it cannot read it has looked at again just now, while it handled the request.
        unreadable = tp.topic not in cluster.topics or tp in cluster.poisoned
        if tp.topic not in ledger.marked and not unreadable:
            safety.check("S16", tp in value.remaining, f"{event.broker} still leads {tp}", str(tp))
    safety.orders.check_leave(process, event.broker)


def led_by(ledger: Ledger, broker: int) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    for tp, state in ledger.states.items():
        assigned = ledger.assigned(tp)
        movable = assigned is not None and len(assigned.replicas) > 1
        if state is not None and state.leader == broker and movable:
            found.append(tp)
    return found
