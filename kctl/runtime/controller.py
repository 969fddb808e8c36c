"""`kctl.Controller`: a controller as an async context manager.

Several of them live in one loop; there is no global state, no signal handler and no logging set-up
in here. Leaving the context hands the controllership over and leaves no task behind.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import anyio
import structlog

from kctl.brokers.manager import ChannelManager
from kctl.messages.answers import AnswerValue, preempted
from kctl.messages.events import Caller, Event
from kctl.messages.outbox import Story
from kctl.model.cluster import ClusterState, Node
from kctl.model.digest import digest
from kctl.runtime.actor import Actor, Channels
from kctl.runtime.callers import Callers
from kctl.runtime.campaign import Campaign
from kctl.runtime.channels import RecordingChannels
from kctl.runtime.collector import Collector
from kctl.runtime.config import Config
from kctl.runtime.journal import Journal
from kctl.runtime.mailbox import Mailbox
from kctl.runtime.meters import Handled, Meters
from kctl.runtime.serving import open_channels, open_door
from kctl.runtime.state_change_log import log_story
from kctl.runtime.timers import Timers
from kctl.zookeeper.connection import Traffic
from kctl.zookeeper.link import State

log = structlog.get_logger("kctl.controller")

STOP_GRACE_S = 3.0
"""For the event under way; after that it ends at its next effect."""
STOP_BOUND_S = 10.0
"""For handing over; after that the end of the session must do."""
SUBSCRIBER_BACKLOG = 10_000
LAG_INTERVAL_S = 0.05


class Controller:
    """`async with Controller(Config(zookeeper_connect="127.0.0.1:2181")) as controller: ...`"""

    def __init__(
        self,
        config: Config | None = None,
        *,
        channels: Callable[[Callable[[Event], None]], Channels] | None = None,
        seed: int | None = None,
        tune_gc: bool = False,
    ) -> None:
        """`channels` makes the way to the brokers, given where its events go. `tune_gc` keeps the
        garbage collector off while a cluster is loaded and blind to it after that; it concerns the
        whole process."""
        self.config = config or Config()
        self._make_channels = channels
        self._seed = seed
        self._tune_gc = tune_gc
        self._stack = AsyncExitStack()
        self._subscribers: dict[asyncio.Queue[Handled], None] = {}
        self._handled_subscribers: dict[Callable[[Handled], None], None] = {}
        self._story_subscribers: dict[Callable[[Story], None], None] = {}
        self.meters = Meters()

    async def __aenter__(self) -> Self:
        # Topic ids are drawn from it too; a seed is for tests.
        chance = random.SystemRandom() if self._seed is None else random.Random(self._seed)  # noqa: S311
        settings = self.config.settings
        self._node = Node(settings)
        self._mailbox = Mailbox()
        self._callers = Callers(self.put)
        self._timers = Timers(self._mailbox.put)
        self._actor_done = asyncio.Event()
        self.journal = Journal(self._node, self.config.journal)
        await self._stack.__aenter__()
        try:
            await self._begin(chance)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._stack.aclose()
            self.journal.close()
            raise
        return self

    async def _begin(self, chance: random.Random) -> None:
        self.channels: Channels = await self._open_channels()
        self._actor = Actor(
            self._node,
            self._mailbox,
            self.channels,
            self._callers,
            self._timers,
            self.journal,
            self.meters,
            chance,
            self._publish,
            self._tell,
            Collector(self._tune_gc),
        )
        self._campaign = Campaign(self.config, self._node, self._actor, chance)
        if isinstance(self.channels, ChannelManager):
            await self._stack.enter_async_context(
                open_door(self.config, self.ask, lambda: self.state, self.channels)
            )
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._tasks.start_soon(self._act)
        self._tasks.start_soon(self._campaign.run)
        self._tasks.start_soon(self._measure_lag)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        with anyio.CancelScope(shield=True):
            await self._stop()
        self._tasks.cancel_scope.cancel()
        try:
            if kind is None or issubclass(kind, asyncio.CancelledError):
                return await self._stack.__aexit__(kind, error, trace)
            # An error of the body stays what it is: the task group would wrap it.
            await self._stack.__aexit__(None, None, None)
            return None
        finally:
            self.journal.close()

    # -- what it offers -----------------------------------------------------------------------

    @property
    def state(self) -> ClusterState | None:
        """The cluster as this controller knows it, to be read only; None while standing by."""
        return self._node.cluster

    @property
    def is_active(self) -> bool:
        return self._node.cluster is not None

    @property
    def active_id(self) -> int | None:
        """Who is controller, as far as this node has seen."""
        return self._node.active_id

    @property
    def stood_down(self) -> str | None:
        """Why this node does not campaign any more, or None."""
        return self._actor.stood_down

    @property
    def resting(self) -> bool:
        """Whether it leaves the controllership to others for a while, after a fault."""
        return self._actor.resting

    @property
    def has_ended(self) -> bool:
        """Whether no event is handled any more: it was stopped."""
        return self._actor_done.is_set()

    @property
    def queue_size(self) -> int:
        return len(self._mailbox)

    @property
    def queue_age_s(self) -> float:
        """How long the longest waiting event waits."""
        return self._mailbox.oldest_s

    @property
    def state_hash(self) -> str:
        """A digest of the cluster as it is known, the same in every process; see `kctl replay`."""
        return digest(self._node.cluster)

    async def first_attempt(self) -> bool:
        """Whether ZooKeeper gave a session at the first attempt; either way it goes on trying."""
        await self._campaign.attempted.wait()
        return self._campaign.connected.is_set()

    async def wait_connected(self) -> None:
        """Return when ZooKeeper has given a session, the first or any later one."""
        await self._campaign.connected.wait()

    @property
    def last_error(self) -> str | None:
        """Why there is no session, if there is none."""
        return self._campaign.last_error

    @property
    def traffic(self) -> Traffic:
        """With ZooKeeper, over all sessions."""
        return self._actor.traffic

    @property
    def session_state(self) -> State | None:
        """None if there is no session."""
        session = self._campaign.session
        return None if session is None else session.state

    @property
    def session_id(self) -> int | None:
        session = self._campaign.session
        return None if session is None else session.session_id

    async def ask(self, event_for: Callable[[Caller], Event]) -> AnswerValue:
        """Put a request to the controller and wait for its answer."""
        return await self._callers.ask(event_for)

    def put(self, event: Event) -> None:
        """Put an event into the queue, as watches and brokers do."""
        if self._actor_done.is_set():
            answer = preempted(event)
            if answer is not None:
                self._callers.answer(answer)
        else:
            self._mailbox.put(event)

    async def events(self) -> AsyncIterator[Handled]:
        """Each event after it was handled. A reader that falls behind loses the oldest."""
        queue: asyncio.Queue[Handled] = asyncio.Queue(SUBSCRIBER_BACKLOG)
        self._subscribers[queue] = None
        try:
            while True:
                yield await queue.get()
        finally:
            self._subscribers.pop(queue, None)

    def on_handled(self, callback: Callable[[Handled], None]) -> Callable[[], None]:
        """Call this with each event after it was handled; gives back how to end that."""
        self._handled_subscribers[callback] = None
        return lambda: self._handled_subscribers.pop(callback, None)

    def on_story(self, callback: Callable[[Story], None]) -> Callable[[], None]:
        """Call this with each story as it is told; gives back how to end that."""
        self._story_subscribers[callback] = None
        return lambda: self._story_subscribers.pop(callback, None)

    async def until(self, condition: Callable[["Controller"], bool]) -> None:
        """Wait until the condition holds; it is looked at after each event."""
        async for _ in self._looks():
            if condition(self):
                return

    async def _looks(self) -> AsyncIterator[None]:
        queue: asyncio.Queue[Handled] = asyncio.Queue(SUBSCRIBER_BACKLOG)
        self._subscribers[queue] = None
        try:
            while True:
                yield None
                await queue.get()
        finally:
            self._subscribers.pop(queue, None)

    # -- inside -------------------------------------------------------------------------------

    async def _open_channels(self) -> Channels:
        """To the brokers, where they can reach us in turn; else what they would be told is kept."""
        if self._make_channels is not None:
            return self._make_channels(self._mailbox.put)
        if not self.config.listeners:
            return RecordingChannels()
        return await self._stack.enter_async_context(open_channels(self.config, self._mailbox.put))

    async def _act(self) -> None:
        try:
            await self._actor.run()
        finally:
            self._actor_done.set()

    async def _stop(self) -> None:
        """Hand over if that is possible in good time, and go in any case."""
        self._actor.stop()
        with anyio.move_on_after(STOP_BOUND_S):
            with anyio.move_on_after(STOP_GRACE_S):
                await self._actor_done.wait()
            self._actor.interrupt()
            await self._actor_done.wait()
        self._timers.cancel()

    def _publish(self, done: Handled) -> None:
        for callback in self._handled_subscribers:
            callback(done)
        for queue in self._subscribers:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(done)

    def _tell(self, story: Story) -> None:
        log_story(self._node, story)
        for callback in self._story_subscribers:
            callback(story)

    async def _measure_lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_INTERVAL_S
            await anyio.sleep(LAG_INTERVAL_S)
            self.meters.lag(max(0.0, loop.time() - due))
