"""The two state machines, as tables.

A partition is New when it is known but has no leadership yet, Online when it has a leader, Offline
when its leader is gone, NonExistent before creation and while its topic is being deleted. A replica
additionally goes through deletion: Started (StopReplica sent), Successful or Ineligible (put off),
and NonExistent. The tables say from which states a state may be entered; everything else is a bug
and is refused by `ClusterState.put`.
"""

from collections.abc import Mapping
from enum import IntEnum


class PartitionState(IntEnum):
    NEW = 0
    ONLINE = 1
    OFFLINE = 2
    NON_EXISTENT = 3


class ReplicaState(IntEnum):
    NEW = 1
    ONLINE = 2
    OFFLINE = 3
    DELETION_STARTED = 4
    DELETION_SUCCESSFUL = 5
    DELETION_INELIGIBLE = 6
    NON_EXISTENT = 7


_P = PartitionState
_SETTLED = frozenset({_P.NEW, _P.ONLINE, _P.OFFLINE})
PARTITION_CAME_FROM: Mapping[PartitionState, frozenset[PartitionState]] = {
    _P.NEW: frozenset({_P.NON_EXISTENT}),
    _P.ONLINE: _SETTLED,
    _P.OFFLINE: _SETTLED,
    _P.NON_EXISTENT: frozenset({_P.OFFLINE}),
}

_R = ReplicaState
_IN_SERVICE = frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE})
REPLICA_CAME_FROM: Mapping[ReplicaState, frozenset[ReplicaState]] = {
    _R.NEW: frozenset({_R.NON_EXISTENT}),
    _R.ONLINE: _IN_SERVICE,
    _R.OFFLINE: _IN_SERVICE,
    _R.DELETION_STARTED: frozenset({_R.OFFLINE}),
    _R.DELETION_SUCCESSFUL: frozenset({_R.DELETION_STARTED}),
    _R.DELETION_INELIGIBLE: frozenset({_R.OFFLINE, _R.DELETION_STARTED}),
    _R.NON_EXISTENT: frozenset({_R.DELETION_SUCCESSFUL}),
}


class IllegalTransition(Exception):
    """Only a bug leads here; the row that it names keeps its old state."""
