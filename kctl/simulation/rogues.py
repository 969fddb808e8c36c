"""Brokers gone wrong: AlterPartition requests with true epochs that no leader would send.

The controller must refuse every one of them. One alone can become right while it is under way: a
broker that was no replica may have become one; whatever else would make one right raises the leader
epoch.
"""

from kctl.messages import events as ev
from kctl.messages.answers import AlteredPartitions, AnswerValue
from kctl.model.names import NO_LEADER, BrokerId, TopicPartition
from kctl.model.rows import Leadership, Replicas
from kctl.simulation.controllers import ControllerHost
from kctl.simulation.ledger import State
from kctl.simulation.surroundings import Surroundings

PROPOSALS_MAX = 4
TIMEOUT_MS = 3_000


def propose(world: Surroundings, target: ControllerHost) -> None:
    chance, ledger = world.chance, world.safety.ledger
    led = [
        (tp, state)
        for tp, state in ledger.states.items()
        if state is not None and state.leader in ledger.brokers
    ]
    for tp, state in chance.sample(led, min(len(led), PROPOSALS_MAX)):
        sender, asked, what = chance.choice(wrong_proposals(world, tp, state))
        world.mishap("rogue proposal", f"{what}: {asked} of broker {sender}", str(tp))
        _send(world, target, sender, tp, asked)


def wrong_proposals(
    world: Surroundings, tp: TopicPartition, state: State
) -> list[tuple[BrokerId, ev.IsrProposal, str]]:
    """Sender, proposal, and what is wrong with it."""
    ledger = world.safety.ledger
    leader, isr, epoch = state.leader, state.isr, state.leader_epoch
    assert leader != NO_LEADER
    assigned = ledger.assigned(tp)
    outsiders = [
        b
        for b in ledger.brokers
        if b in world.brokers and assigned is not None and b not in assigned.replicas
    ]
    others = [b for b in ledger.brokers if b in world.brokers and b != leader]

    def of(members: Replicas, leader_epoch: int = epoch) -> ev.IsrProposal:
        return ev.IsrProposal(members, leader_epoch, state.version)

    wrong = [(leader, of(()), "nobody in sync"), (leader, of((leader,), epoch - 1), "old epoch")]
    wrong += [(b, of((b,)), "not the leader") for b in others]
    wrong += [(b, of((*isr, b)), "not the leader") for b in others if b not in isr]
    wrong += [(leader, of((*isr, b)), "not a replica") for b in outsiders]
    if len(isr) > 1:
        wrong.append((leader, of(tuple(b for b in isr if b != leader)), "without its leader"))
    return wrong


def _send(
    world: Surroundings,
    target: ControllerHost,
    sender: BrokerId,
    tp: TopicPartition,
    asked: ev.IsrProposal,
) -> None:
    epoch = world.safety.ledger.brokers[sender]

    def event(caller: ev.Caller) -> ev.Event:
        return ev.AlterPartitionReceived(caller, sender, epoch, 1, partitions={tp: asked})

    def answered(value: AnswerValue | None) -> None:
        result = value.partitions.get(tp) if isinstance(value, AlteredPartitions) else None
        assigned = world.safety.ledger.assigned(tp)
        joined = [] if assigned is None else [b for b in assigned.replicas if b in asked.isr]
        right = sender in asked.isr and len(joined) == len(asked.isr)
        taken = isinstance(result, Leadership) and not (right and result.leader == sender)
        message = f"{tp}: {asked} of broker {sender} was taken: {result}"
        world.safety.check("S6", not taken, message, str(tp))

    world.callers.ask(target, event, answered, world.chance.randint(0, 5), TIMEOUT_MS)
