"""`/healthz` and `/readyz`: is it alive, and is it of use."""

import attrs

from kctl.runtime.controller import Controller
from kctl.zookeeper.link import State

STUCK_AFTER_S = 60.0
"""Longer than the slowest event at a million partitions."""


@attrs.frozen
class Verdict:
    ok: bool
    reason: str


def health(controller: Controller) -> Verdict:
    """Whether its loop gets on with events. Whoever gets no answer at all has one, too."""
    if controller.has_ended:
        return Verdict(False, "stopped: no event is handled any more")
    meters = controller.meters
    # An event waits for ZooKeeper until the session expires.
    bound_s = max(STUCK_AFTER_S, 2 * controller.config.zookeeper_session_timeout_ms / 1000)
    if meters.under_way_s > bound_s:
        return Verdict(False, f"{meters.under_way} is under way for {meters.under_way_s:.0f} s")
    if controller.queue_age_s > bound_s:
        return Verdict(False, f"an event has waited for {controller.queue_age_s:.0f} s")
    return Verdict(True, "alive")


def readiness(controller: Controller) -> Verdict:
    """Whether it controls, or would take over: it needs a live session for either."""
    if controller.has_ended:
        return Verdict(False, "stopped")
    if controller.stood_down is not None:
        return Verdict(False, f"stood down: {controller.stood_down}")
    session = controller.session_state
    if session is None:
        why = controller.last_error
        return Verdict(False, "no ZooKeeper session" + (f": {why}" if why else " yet"))
    if session is not State.CONNECTED:
        return Verdict(False, f"the ZooKeeper session is {session.value}")
    if controller.is_active:
        return Verdict(True, "active controller")
    if controller.resting:
        return Verdict(False, "resting after a fault, it stands for election again soon")
    holder = controller.active_id
    return Verdict(
        True, "standing by" + ("" if holder is None else f", the controller is {holder}")
    )
