"""Electing, taking over, noticing the loss of it, and resigning."""

from kctl.messages.effects import (
    Bootstrap,
    ClaimControllership,
    ControllerNode,
    CreateControllerEpoch,
    ReadControllership,
    RegisterController,
    ReleaseControllership,
    UnregisterController,
)
from kctl.messages.events import Reelect
from kctl.messages.outbox import CancelTimers, Gathered, Outbox
from kctl.messages.requests import DisconnectAll
from kctl.model.cluster import ClusterState, Node
from kctl.model.codes import Code

LOST_RACE = (Code.BAD_VERSION, Code.NODE_EXISTS, Code.NO_NODE)
"""How a claim is answered when somebody else has claimed since we looked."""


async def elect(node: Node, outbox: Outbox) -> ClusterState | None:
    """Stand for election; the cluster, still empty, if this node is now the controller."""
    seen = await ReadControllership()
    if seen.epoch is None:
        await Bootstrap()
        await CreateControllerEpoch()
        seen = await ReadControllership()
    holder = seen.controller
    _remember(node, holder)
    if seen.epoch is None or (holder is not None and not _may_take(node, holder)):
        node.active_id = None if holder is None else holder.broker_id
        return None
    epoch = seen.epoch + 1
    code = await ClaimControllership(epoch, seen.epoch_zk_version, replaces=holder)
    if code is not Code.OK:
        # A lost reply may hide a success: then both the node and the epoch are as we wrote them.
        again = await ReadControllership()
        held = again.controller
        won = held is not None and held.ours and again.epoch == epoch
        won = won and again.epoch_zk_version == seen.epoch_zk_version + 1
        if not won:
            node.active_id = None if held is None else held.broker_id
            outbox.tell("election lost", f"the claim was answered: {code.value}")
            if code in LOST_RACE and held is not None and _may_take(node, held):
                # A broker was quicker, as it may be whenever an office is free.
                outbox.events.append(Reelect())
            return None
    node.active_id = node.settings.controller_id
    known = tuple(node.seen_controllers)
    node.cluster = ClusterState(node.settings, epoch, seen.epoch_zk_version + 1, known)
    outbox.tell("elected", f"controller epoch {epoch}", key=str(node.active_id))
    return node.cluster


def _may_take(node: Node, holder: ControllerNode) -> bool:
    settings = node.settings
    if holder.ours:
        return True  # left from a term of ours that ended while the session went on
    if holder.kctl:
        return settings.force_takeover
    return settings.takeover or settings.force_takeover


def _remember(node: Node, holder: ControllerNode | None) -> None:
    """Topics that brokers create before they hear of the next controller may name this one."""
    own = node.settings.controller_id
    if holder is not None and holder.kctl and not holder.ours and holder.broker_id != own:
        node.seen_controllers[holder.broker_id] = None


async def maybe_resign(node: Node, outbox: Outbox) -> bool:
    """Look who is controller, and arm the watch on it; resign if it was us and is no longer.

    Whether `/controller` is held by our session, active or not: then nobody else can take it.
    """
    seen = await ReadControllership()
    holder = seen.controller
    _remember(node, holder)
    ours = holder is not None and holder.ours
    if ours and node.cluster is not None and seen.epoch == node.cluster.epoch:
        return True
    node.active_id = None if holder is None else holder.broker_id
    if node.cluster is not None:
        resign(node, outbox, f"the controller is now {node.active_id}")
    await unregister(node)
    return ours


async def register(node: Node, outbox: Outbox) -> None:
    """Once, and only where a broker older than 3.0 lives."""
    cluster = node.cluster
    if cluster is None or node.registered or not node.settings.endpoints:
        return
    racks = [b.rack for b in cluster.brokers.values()]
    rack = racks[0] if racks and all(r is not None for r in racks) else None
    code = await RegisterController(node.settings.endpoints, rack)
    node.registered = True
    outbox.tell("registered", f"for brokers older than 3.0: {code.value}")


async def unregister(node: Node) -> None:
    if node.registered:
        node.registered = False
        await UnregisterController()


async def still_ours(cluster: ClusterState) -> bool:
    seen = await ReadControllership()
    held = seen.controller is not None and seen.controller.ours
    return held and seen.epoch == cluster.epoch


def resign(node: Node, outbox: Outbox, why: str) -> None:
    """Forget everything. What was not sent yet is dropped with it."""
    node.cluster = None
    outbox.gathered = Gathered()
    outbox.dispatches.append(DisconnectAll())
    outbox.timers.append(CancelTimers())
    outbox.tell("resigned", why, key=str(node.settings.controller_id))


async def hand_over(node: Node, outbox: Outbox) -> None:
    """Resign and free `/controller`, so that the next one starts within milliseconds."""
    cluster = node.cluster
    if cluster is None:
        return
    resign(node, outbox, "stopping")
    node.active_id = None
    await unregister(node)
    await ReleaseControllership(cluster.epoch_zk_version)
