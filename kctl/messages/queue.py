"""The queue: events in order, one at a time, without I/O.

Events that a re-read covers anyway are merged while they wait; answers of brokers that say nothing
are not queued at all. Adjacent AlterPartition requests, and adjacent StopReplica answers, are taken
together so that one write serves many callers. Losing the session and stopping go to the front and
drop the rest; their callers are answered.
"""

from collections import deque

from kctl.messages import events as ev
from kctl.messages.answers import Answer, preempted
from kctl.model.codes import KafkaError

MERGED: tuple[type[ev.Event], ...] = (
    ev.BrokerChange,
    ev.TopicChange,
    ev.TopicDeletion,
    ev.IsrChangeNotification,
    ev.LogDirEventNotification,
    ev.PartitionModifications,
    ev.BrokerModifications,
    ev.QuarantineCheck,
    ev.Retry,
)
GROUPED: tuple[type[ev.Event], ...] = (
    ev.AlterPartitionReceived,
    ev.TopicDeletionStopReplicaResponseReceived,
)
GROUP_MAX = 500
"""Bounds how long a group keeps other events waiting."""


def says_nothing(event: ev.Event) -> bool:
    """An answer without any error. Every change brings one from each broker: they would only keep
    others waiting, and part those that can be taken together."""
    if isinstance(event, ev.UpdateMetadataResponseReceived):
        return event.error == KafkaError.NONE
    if isinstance(event, ev.LeaderAndIsrResponseReceived):
        return event.error == KafkaError.NONE and not event.partition_errors
    return False


class EventQueue:
    def __init__(self) -> None:
        self._events: deque[ev.Event] = deque()
        self._waiting: dict[ev.Event, None] = {}

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: ev.Event) -> None:
        if says_nothing(event):
            return
        if isinstance(event, MERGED):
            if event in self._waiting:
                return
            self._waiting[event] = None
        self._events.append(event)

    def take(self) -> tuple[ev.Event, ...]:
        """The next event, or a group of the same kind that can be committed together."""
        first = self._events.popleft()
        self._waiting.pop(first, None) if isinstance(first, MERGED) else None
        if not isinstance(first, GROUPED):
            return (first,)
        group = [first]
        while self._events and type(self._events[0]) is type(first) and len(group) < GROUP_MAX:
            group.append(self._events.popleft())
        return tuple(group)

    def clear_and_put(self, event: ev.Event) -> list[Answer]:
        """Drop everything for this event; what the waiting callers are to be told."""
        dropped = [answer for e in self._events if (answer := preempted(e)) is not None]
        self._events.clear()
        self._waiting.clear()
        self._events.append(event)
        return dropped
