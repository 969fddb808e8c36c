"""The outbox: what a handler leaves behind.

Nothing in it takes effect before the driver flushes it, and the driver flushes only what depends
on committed writes: persist before send. Requests are gathered here row by row; `logic.recipients`
turns them into whole requests when they are sealed.
"""

from collections.abc import Mapping

import attrs

from kctl.messages.answers import Answer, AnswerValue
from kctl.messages.events import Caller, Event
from kctl.messages.requests import Dispatch
from kctl.model.names import BrokerId, TopicPartition
from kctl.model.rows import Row

NOTIFICATION_DROPPED = "notification dropped"
"""The story of a notification that says nothing which can be used."""


@attrs.frozen
class StartTimer:
    """Fires `event` after the delay; a timer of the same tag is replaced."""

    tag: str
    delay_ms: int
    event: Event


@attrs.frozen
class CancelTimers:
    """All of them: the term is over."""


@attrs.frozen
class Story:
    """What changed and why. One for a batch: the lines are made when somebody reads them."""

    what: str
    why: str
    changes: Mapping[TopicPartition, tuple[Row | None, Row | None]] = attrs.field(factory=dict)
    """Before and after, where rows are concerned."""
    key: str | None = None
    """The topic, broker or path, where not rows are concerned."""


@attrs.define
class Gathered:
    """Requests under construction, merged by broker and partition; the last order wins."""

    leader_and_isr: dict[BrokerId, dict[TopicPartition, bool]] = attrs.field(factory=dict)
    """Value: isNew, true once true."""
    metadata: dict[TopicPartition, None] = attrs.field(factory=dict)
    """For all brokers."""
    metadata_for: dict[BrokerId, dict[TopicPartition, None]] = attrs.field(factory=dict)
    """For some: what a newly started broker gets."""
    live_brokers_for: dict[BrokerId, None] = attrs.field(factory=dict)
    stop: dict[BrokerId, dict[TopicPartition, bool]] = attrs.field(factory=dict)
    """Value: delete, true once true."""

    def __bool__(self) -> bool:
        return bool(
            self.leader_and_isr
            or self.metadata
            or self.metadata_for
            or self.live_brokers_for
            or self.stop
        )


@attrs.define
class Outbox:
    gathered: Gathered = attrs.field(factory=Gathered)
    dispatches: list[Dispatch] = attrs.field(factory=list)
    """In this order."""
    timers: list[StartTimer | CancelTimers] = attrs.field(factory=list)
    events: list[Event] = attrs.field(factory=list)
    answers: list[Answer] = attrs.field(factory=list)
    stories: list[Story] = attrs.field(factory=list)

    def answer(self, caller: Caller | None, value: AnswerValue) -> None:
        if caller is not None:
            self.answers.append(Answer(caller, value))

    def tell(self, what: str, why: str, key: str | None = None) -> None:
        self.stories.append(Story(what, why, key=key))
