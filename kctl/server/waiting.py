"""Answers wait until the brokers know what was done, as long as the request allows.

Never inside a handler: the controller goes on with other events meanwhile.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable

from kctl.model.cluster import ClusterState
from kctl.model.names import NO_LEADER, TopicPartition
from kctl.server.access import ControllerAccess

PAUSE_MIN_S = 0.01
PAUSE_MAX_S = 0.25

Ready = Callable[[ClusterState, TopicPartition], bool]


def has_leader(state: ClusterState, tp: TopicPartition) -> bool:
    row = state.rows.get(tp)
    return row is not None and row.leader != NO_LEADER


def always(_state: ClusterState, _tp: TopicPartition) -> bool:
    return True


async def not_known_in_time(
    access: ControllerAccess, partitions: Iterable[TopicPartition], ready: Ready, timeout_ms: int
) -> Collection[TopicPartition]:
    """Wait until these partitions are as they should be and all live brokers were told; those for
    which the time did not suffice.

    No time at all was allowed: none of them, although all may be done. The term ended: all of
    them, because what was committed stays so and the next controller tells the brokers.
    """
    wanted = dict.fromkeys(partitions)
    if timeout_ms <= 0 or not wanted:
        return wanted
    loop = asyncio.get_running_loop()
    deadline = loop.time() + access.patience_s(timeout_ms)
    pause = PAUSE_MIN_S
    unready = list(wanted)
    while (state := access.view()) is not None:
        unready = [tp for tp in unready if not ready(state, tp)]
        left = deadline - loop.time()
        if not unready or left <= 0:
            break
        await asyncio.sleep(min(pause, left))
        pause = min(2 * pause, PAUSE_MAX_S)
    else:
        return ()
    for tp in unready:
        del wanted[tp]
    untold: Collection[TopicPartition] = ()
    if wanted:
        left = max(0.0, deadline - loop.time())
        untold = await access.acknowledgements.until_told(tuple(wanted), left)
    return () if access.view() is None else {*unready, *untold}
