"""The log of one replica: records with the epoch of the leader that appended them.

A follower that meets a new leader cuts its log back to what both have in common, as brokers do with
the help of leader epochs, and copies the rest.
"""

import attrs

from kctl.model.names import TopicId

Record = tuple[int, int]
"""Leader epoch and a number that is given only once."""


@attrs.define
class ReplicaLog:
    topic_id: TopicId | None
    records: list[Record] = attrs.field(factory=list)
    born: int = 0
    """The zxid at which the topic was created, which tells it from another one of its name."""

    @property
    def end(self) -> int:
        return len(self.records)

    def in_common(self, other: "ReplicaLog") -> int:
        """How many records both logs begin with."""
        shorter = min(len(self.records), len(other.records))
        if self.records[:shorter] == other.records[:shorter]:
            return shorter
        return next(
            i for i, (a, b) in enumerate(zip(self.records, other.records, strict=False)) if a != b
        )

    def continues(self, source: "ReplicaLog") -> bool:
        """Whether fetching from here is right; else the source's log was lost and began anew."""
        end = len(self.records)
        return end == 0 or (end <= source.end and self.records[-1] == source.records[end - 1])

    def cut(self, end: int) -> None:
        del self.records[end:]
