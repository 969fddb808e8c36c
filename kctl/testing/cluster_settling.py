"""When a test cluster has come to rest: all is done that can be done with the brokers that are up."""

from kctl.model.cluster import ClusterState
from kctl.model.names import BrokerId
from kctl.model.rows import Row
from kctl.runtime.controller import Controller
from kctl.testing.cluster_replication import caught_up, knows
from kctl.testing.simulated import RegisteredBrokers


def is_settled(controller: Controller, brokers: RegisteredBrokers) -> bool:
    """Brokers are told, replicas are in sync, deletions and reassignments are over.

    What waits for a broker that is down is not waited for.
    """
    state, live = controller.state, brokers.live
    if state is None or controller.queue_size or sorted(state.live) != live:
        return False
    if any(_all_up(state, topic) for topic in state.deletions):
        return False
    if any(_can_move(state, state.rows[tp]) for tp in state.reassigning):
        return False
    return not caught_up(state, brokers) and all(_is_told(state, brokers, b) for b in live)


def _can_move(state: ClusterState, row: Row) -> bool:
    """Somebody leads, and all that shall have it are there to get it."""
    return row.leader in state.live and all(b in state.live for b in row.assignment.target)


def _all_up(state: ClusterState, topic: str) -> bool:
    rows = [state.rows[tp] for tp in state.partitions_of(topic)]
    return all(b in state.live for row in rows for b in row.replicas)


def _is_told(state: ClusterState, brokers: RegisteredBrokers, broker: BrokerId) -> bool:
    """It knows every partition as the controller does, and leads or follows where it should."""
    metadata = brokers[broker].belief.metadata
    if any(tp not in state.rows for tp in metadata):
        return False
    for tp, row in state.rows.items():
        led, told = row.leadership, metadata.get(tp)
        if led is None or tp.topic in state.deletions:
            continue
        if told is None or (told.leader, told.leader_epoch) != (led.leader, led.leader_epoch):
            return False
        if led.leader in state.live and (
            tuple(told.isr) != led.isr
            or (broker in row.replicas and not knows(brokers[broker], tp, led))
        ):
            return False
    return True
