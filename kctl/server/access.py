"""What the server may do with the controller behind it: ask, look, and wait for the brokers."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

import attrs

from kctl.messages.answers import AnswerValue, ApiError, Refused
from kctl.messages.events import Caller, Event
from kctl.model.cluster import ClusterState
from kctl.model.codes import KafkaError
from kctl.model.names import BrokerId, TopicPartition
from kctl.server.limits import Limits
from kctl.server.rights import Rights

Ask = Callable[[Callable[[Caller], Event]], Awaitable[AnswerValue]]
"""Puts an event that carries a caller, and gives that caller's answer."""


class Acknowledgements(Protocol):
    """What the brokers have acknowledged; the channels know."""

    async def until_told(
        self, partitions: Collection[TopicPartition], timeout_s: float
    ) -> Collection[TopicPartition]:
        """Wait until every live broker has acknowledged the UpdateMetadata requests that were queued
        for it when this was called and that show one of these partitions, also as deleted.

        Gives those that it could not be said of when the time was up, or when the term ended.
        """
        ...


@attrs.frozen
class ControllerAccess:
    controller_id: BrokerId
    ask: Ask
    view: Callable[[], ClusterState | None]
    """The cluster, to be read only and not kept; None while standing by."""
    acknowledgements: Acknowledgements
    limits: Limits = attrs.field(factory=Limits)
    rights: Rights = attrs.field(factory=Rights)

    async def answer_to(
        self, event_for: Callable[[Caller], Event], timeout_ms: int = 0
    ) -> AnswerValue:
        """REQUEST_TIMED_OUT if the controller is busy for longer than the request allows.

        A request that allows very little still learns what became of it: Kafka, too, looks at the
        time only when it begins to wait for the brokers.
        """
        try:
            async with asyncio.timeout(max(self.patience_s(timeout_ms), self.limits.ask_s)):
                return await self.ask(event_for)
        except TimeoutError:
            return Refused(ApiError(KafkaError.REQUEST_TIMED_OUT, "the controller is busy"))

    def patience_s(self, timeout_ms: int) -> float:
        """What a request allows, within reason."""
        return min(timeout_ms / 1000, self.limits.wait_s)
