"""Hooks: what becomes of chosen requests between a controller, its brokers and clients.

A hook matches requests by broker, API and topic, and says what happens to them: `Drop`, `Delay`,
`Fail`, or one of the stranger mishaps of simulated brokers. The first hook that matches decides.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final, Self
from weakref import WeakKeyDictionary

import attrs

from kctl.brokers.simulated import CONTROL, Frame, Mishap, SharedDecoder, SimulatedBroker
from kctl.brokers.simulated_belief import leader_and_isr_states, metadata_states, stops_in
from kctl.model.codes import KafkaError
from kctl.wire import apis, client
from kctl.wire import control_plane as cp
from kctl.wire.primitives import WireError
from kctl.wire.schema import Struct

TO_BROKERS: Final = ("LeaderAndIsr", "UpdateMetadata", "StopReplica", "Metadata", "ApiVersions")
TO_CONTROLLER: Final = ("AlterPartition", "ControlledShutdown")


@attrs.frozen
class Drop:
    """The request is lost before anybody looks at it, and its connection with it.

    A controller connects again and sends what is still true; a broker tries again after a while.
    """


@attrs.frozen
class Delay:
    """The request arrives so much later, and those behind it on its connection with it."""

    seconds: float = attrs.field(validator=attrs.validators.gt(0))


def _error(value: "KafkaError | str") -> KafkaError:
    if isinstance(value, KafkaError):
        return value
    try:
        return KafkaError[value]
    except KeyError:
        raise ValueError(
            f"{value!r} is no error of Kafka's protocol that kctl knows; for example"
            " KAFKA_STORAGE_ERROR"
        ) from None


@attrs.frozen
class Fail:
    """The request is refused with this error, and nothing of it is applied.

    Answers to Metadata and ApiVersions have no place for an error: those are dropped.
    """

    error: KafkaError = attrs.field(converter=_error)


Action = Drop | Delay | Fail | Mishap


@attrs.frozen
class Request:
    """A request on its way, as a hook sees it."""

    broker: int
    """Who is asked; or who asks, for AlterPartition and ControlledShutdown."""
    api: str
    """Kafka's name, such as LeaderAndIsr."""
    topics: tuple[str, ...] = ()
    """Whose partitions it is about; none for those about all topics or about no topic."""
    body: object = attrs.field(default=None, repr=False, eq=False)
    """As it was decoded, if it was on the wire."""


@attrs.define(eq=False)
class Hook:
    """One rule; made by `Cluster.on_request`. As a context manager it ends with its block."""

    action: Action | Callable[[Request], Action | None]
    broker: int | None
    api: str | None
    topic: str | None
    times: int | None
    seen: list[Request] = attrs.field(factory=list)
    """The requests that it decided about, in order."""
    _owner: "Hooks | None" = attrs.field(default=None, repr=False)

    def judge(self, request: Request) -> Action | None:
        if (
            (self.times is not None and len(self.seen) >= self.times)
            or (self.broker is not None and request.broker != self.broker)
            or (self.api is not None and request.api != self.api)
            or (self.topic is not None and self.topic not in request.topics)
        ):
            return None
        action = self.action(request) if callable(self.action) else self.action
        if action is not None:
            self.seen.append(request)
        return action

    def remove(self) -> None:
        """From now on it decides nothing."""
        owner, self._owner = self._owner, None
        if owner is not None:
            owner.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_problem: object) -> None:
        self.remove()

    def __str__(self) -> str:
        chosen = [
            self.api or "any request",
            "" if self.broker is None else f"broker {self.broker}",
            "" if self.topic is None else f"topic {self.topic}",
        ]
        what = "a function" if callable(self.action) else repr(self.action)
        return f"{what} for {', '.join(filter(None, chosen))}: {len(self.seen)} so far"


class Hooks:
    """All hooks of one cluster, oldest first."""

    def __init__(self) -> None:
        self._hooks: dict[Hook, None] = {}
        self._decoder = SharedDecoder()
        self._decided: WeakKeyDictionary[Frame, Action] = WeakKeyDictionary()
        self.error: Exception | None = None
        """The first one that a function of a test raised."""

    def __iter__(self) -> Iterator[Hook]:
        return iter(self._hooks)

    def add(
        self,
        action: Action | Callable[[Request], Action | None],
        *,
        broker: int | None,
        api: str | None,
        topic: str | None,
        times: int | None,
    ) -> Hook:
        if isinstance(action, type):
            raise TypeError(f"an action is a value: write {action.__name__}(...)")
        if api is not None and api not in TO_BROKERS + TO_CONTROLLER:
            raise ValueError(
                f"no requests {api!r}; there are {', '.join(TO_BROKERS + TO_CONTROLLER)}"
            )
        hook = Hook(action, broker, api, topic, times, owner=self)
        self._hooks[hook] = None
        return hook

    def remove(self, hook: Hook) -> None:
        self._hooks.pop(hook, None)

    def judge(self, request: Request) -> Action | None:
        try:
            judged = (hook.judge(request) for hook in tuple(self._hooks))
            return next((action for action in judged if action is not None), None)
        except Exception as error:  # noqa: BLE001 a test's own function: the test must hear of it
            self.error = self.error or error
            return Drop()

    # -- requests to brokers --------------------------------------------------------------------

    def attach(self, broker: SimulatedBroker) -> None:
        """Let the hooks decide about what reaches this broker."""

        def held_s(frame: Frame) -> float:
            action = self.judge(self._request(broker.id, frame)) if self._hooks else None
            if isinstance(action, Delay):
                return action.seconds
            if action is not None:
                self._decided[frame] = action
            return 0.0

        def mishap(frame: Frame) -> Mishap | None:
            action = self._decided.pop(frame, None)
            broker.errors.clear()
            if isinstance(action, Fail) and frame.key in CONTROL:
                broker.errors[frame.key] = action.error
                return None
            if isinstance(action, Drop | Fail):
                return Mishap.CUT_BEFORE
            return action if isinstance(action, Mishap) else None

        broker.held_s = held_s
        broker.mishap = mishap

    def _request(self, broker: int, frame: Frame) -> Request:
        api = apis.APIS.get(frame.key)
        if api is None:
            return Request(broker, f"key {frame.key}")
        try:
            body = self._decoder.request(frame)
        except WireError:
            return Request(broker, api.name)
        return Request(broker, api.name, _topics_of(body), body)

    # -- requests to the controller -------------------------------------------------------------

    async def arrives(self, request: Request) -> bool:
        """Whether a broker's request reaches the controller, after the delay that it may have."""
        action = self.judge(request)
        if isinstance(action, Delay):
            await asyncio.sleep(action.seconds)
            return True
        return action is None


def _topics_of(body: Struct) -> tuple[str, ...]:
    match body:
        case cp.LeaderAndIsrRequest():
            names = [tp.topic for tp, _id, _state in leader_and_isr_states(body)]
        case cp.UpdateMetadataRequest():
            names = [tp.topic for tp, _state in metadata_states(body)]
        case cp.StopReplicaRequest():
            names = [tp.topic for tp, _epoch, _delete in stops_in(body)]
        case client.MetadataRequest():
            names = [topic.name for topic in body.topics or () if topic.name is not None]
        case _:
            names = []
    return tuple(dict.fromkeys(names))
