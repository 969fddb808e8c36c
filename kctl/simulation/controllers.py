"""Controller nodes: the live core and the live store, driven by the world.

A host runs one process at a time. A process can crash at any await, be paused while what arrives
piles up, and be stopped in good order. Its driver follows the rules of the live one: what ends the
term closes the handler, drops what was not flushed and answers the waiting callers.
"""

import traceback
from collections.abc import Callable
from random import Random
from typing import Any

from kctl.logic.dispatch import handle
from kctl.messages import events as ev
from kctl.messages.answers import Answer, preempted
from kctl.messages.driver import Finished, Procedure, step
from kctl.messages.effects import Draw, Effect, Flush
from kctl.messages.outbox import CancelTimers, Outbox
from kctl.messages.queue import EventQueue
from kctl.messages.requests import (
    Connect,
    Disconnect,
    DisconnectAll,
    Dispatch,
    Request,
    UpdateMetadataRequest,
)
from kctl.messages.term import ControllerMoved, SessionLost, TermOver
from kctl.model.cluster import Node
from kctl.model.names import BrokerId
from kctl.model.settings import Release, Settings
from kctl.simulation.channels import Channel
from kctl.simulation.offices import Office
from kctl.simulation.scheduler import Task, Timer, Waitable
from kctl.simulation.surroundings import Surroundings
from kctl.simulation.violations import Violation
from kctl.simulation.zookeeper_client import ModelClient

SESSION_TIMEOUT_MS = 6_000
CORE_STEPS_MAX = 20_000
"""Effects of one handler: more than that is a loop without a bound."""


class NextEvents(Waitable[tuple[ev.Event, ...]]):
    __slots__ = ("_process",)

    def __init__(self, process: "ControllerProcess") -> None:
        self._process = process

    def begin(self, task: Task) -> None:
        self._process.wait_for_events(task)


class Pause(Waitable[None]):
    """Let others go on."""

    __slots__ = ("_process",)

    def __init__(self, process: "ControllerProcess") -> None:
        self._process = process

    def begin(self, task: Task) -> None:
        self._process.world.scheduler.after(0, task.resume)


class ControllerHost:
    """A place where a controller runs, again and again."""

    def __init__(self, world: Surroundings, controller_id: BrokerId, settings: Settings) -> None:
        self.world = world
        self.id = controller_id
        self.name = f"kctl-{controller_id}"
        self.settings = settings
        self.lives = 0
        self.channel_bound = 1_000
        self.process: ControllerProcess | None = None

    def start(self) -> None:
        if self.process is None:
            self.lives += 1
            self.process = ControllerProcess(self)
            self.world.note(self.name, "starts", "*")
            self.process.start()

    def crash(self) -> None:
        if self.process is not None:
            self.process.die()
            self.process = None

    def stopped(self) -> None:
        self.process = None

    @property
    def active(self) -> bool:
        return self.process is not None and self.process.node.cluster is not None


class ControllerProcess:
    """One life: queue, driver loop, timers, channels, and a session after the other."""

    def __init__(self, host: ControllerHost) -> None:
        self.host = host
        self.world = host.world
        self.name = f"{host.name}.{host.lives}"
        self.alive = True
        self.paused = False
        self._backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._chance = Random(f"{self.world.seed} {self.name}")
        self.node = Node(host.settings)
        self.queue = EventQueue()
        self._outbox = Outbox()
        self._task = Task(self._run(), self.gate)
        self._idle: Task | None = None
        self._timers: dict[str, Timer] = {}
        self.channels: dict[BrokerId, Channel] = {}
        self._release: Release | None = None
        self.client: ModelClient
        self._office: Office
        self.handling: tuple[ev.Event, ...] = ()
        self.handling_since = 0
        self.effect: object = None
        self._answered: set[ev.Caller] = set()
        self._session_lost = False
        self._stopping = False

    # -- the host's side ------------------------------------------------------------------------

    def gate(self, call: Callable[..., None], *args: Any) -> None:
        """Everything that reaches this process comes through here."""
        if not self.alive:
            return
        if self.paused:
            self._backlog.append((call, args))
        else:
            call(*args)

    def start(self) -> None:
        self._open_session()
        self.queue.put(ev.Startup())
        self._task.start()

    def pause(self) -> None:
        self.paused = True
        self.client.fall_silent()

    def resume(self) -> None:
        """What piled up is worked off in order, with the old beliefs."""
        if not self.alive or not self.paused:
            return
        self.paused = False
        if self.client.connected:
            self.client.heard()
        backlog, self._backlog = self._backlog, []
        for call, args in backlog:
            self.gate(call, *args)

    def die(self) -> None:
        self.alive = False
        self._task.close()
        self._office.close()
        self.client.abandon()
        self._close_channels()
        self._cancel_timers()
        self.world.callers.broken(self)

    def stop(self) -> None:
        """In good order: resign, hand over, close the session."""
        if not self._stopping:
            self._stopping = True
            self._put_first(ev.ShutdownEventThread())

    def accept(self, event: ev.Event) -> None:
        if self._stopping:
            self._deliver(answer for answer in [preempted(event)] if answer is not None)
            return
        self.queue.put(event)
        self._wake()

    # -- sessions -------------------------------------------------------------------------------

    def _open_session(self) -> None:
        world = self.world
        self.client = ModelClient(
            world.ensemble,
            world.scheduler,
            self._chance,
            gate=self.gate,
            owner=self.name,
            timeout_ms=SESSION_TIMEOUT_MS,
        )
        self._session_lost = False
        self.client.on_expired = self._expired
        self._office = Office(
            self.client, self.node.settings, self.accept, self.gate, lambda: world.now
        )
        world.note(self.name, f"opens session {self.client.session_id}", "*")
        world.safety.opened(self, self.client.session_id)
        self._office.follow_configs()

    def _expired(self) -> None:
        self.world.note(self.name, f"lost session {self.client.session_id}", "*")
        self._session_lost = True
        self._office.close()
        if not self._stopping:
            self._put_first(ev.Expire())

    def _put_first(self, event: ev.Event) -> None:
        self._deliver(self.queue.clear_and_put(event))
        self._wake()

    # -- the driver -----------------------------------------------------------------------------

    def wait_for_events(self, task: Task) -> None:
        if len(self.queue):
            self.world.scheduler.after(0, task.resume)
        else:
            self._idle = task

    def _wake(self) -> None:
        if self._idle is not None and len(self.queue):
            task, self._idle = self._idle, None
            self.world.scheduler.after(0, task.resume)

    async def _run(self) -> None:
        while True:
            await NextEvents(self)
            if not len(self.queue):
                continue
            events = self.queue.take()
            await self._handle(events)
            if isinstance(events[0], ev.ShutdownEventThread):
                break
            if isinstance(events[0], ev.Expire):
                self._open_session()
                self.queue.put(ev.RegisterBrokerAndReelect())
        self.alive = False
        self._office.close()
        self.client.close()
        self._close_channels()
        self._cancel_timers()
        self.world.callers.broken(self)
        self.world.note(self.name, "stopped", "*")
        self.host.stopped()

    async def _handle(self, events: tuple[ev.Event, ...]) -> None:
        world = self.world
        self.handling, self.handling_since = events, world.now
        self._answered.clear()
        world.note(self.name, f"handles {events[0]}" + f" +{len(events) - 1}" * (len(events) > 1))
        procedure: Procedure = handle(self.node, events, self._outbox)
        try:
            await self._drive(procedure)
        except TermOver as over:
            procedure.close()
            self._end_term(events, over)
            if isinstance(over, ControllerMoved) and not self._stopping:
                self.queue.put(ev.Reelect())
        except Violation:
            raise
        except Exception as error:  # noqa: BLE001 any exception of the core is a violation
            where = "".join(traceback.format_exception(error)[-3:])
            world.safety.fail(
                "fault", f"{self.name} handling {events[0]}: {error!r}\n{where}", self.name
            )
        finally:
            self.handling = ()
        world.safety.handled(self, events)

    async def _drive(self, procedure: Procedure) -> None:
        reply: object = None
        for _ in range(CORE_STEPS_MAX):
            wanted = step(procedure, reply)
            if isinstance(wanted, Finished):
                self._flush()
                return
            self.effect = wanted
            self._hold_term()
            reply = await self._perform(wanted)
            self._hold_term()
        raise RuntimeError(f"more than {CORE_STEPS_MAX} effects in one handler")

    def _hold_term(self) -> None:
        if self._session_lost and not isinstance(self.handling[0], ev.Expire):
            raise SessionLost("the session is over")

    async def _perform(self, wanted: Effect[object]) -> object:
        if isinstance(wanted, Flush):
            self._flush()
            await Pause(self)
            return None
        if isinstance(wanted, Draw):
            return tuple(self._chance.randrange(wanted.below) for _ in range(wanted.count))
        return await self._office.perform(wanted)

    def _end_term(self, events: tuple[ev.Event, ...], over: TermOver) -> None:
        """Nothing that is left of the term takes effect; the waiting callers are told."""
        self.world.note(self.name, f"term over: {type(over).__name__} {over}", "*")
        self._outbox = Outbox()
        self.node.cluster = None
        self.node.active_id = None
        self._close_channels()
        self._cancel_timers()
        answers = [answer for event in events if (answer := preempted(event)) is not None]
        self._deliver(a for a in answers if a.caller not in self._answered)

    # -- the outbox -----------------------------------------------------------------------------

    def _flush(self) -> None:
        outbox = self._outbox
        for dispatch in outbox.dispatches:
            self._dispatch(dispatch)
        for order in outbox.timers:
            if isinstance(order, CancelTimers):
                self._cancel_timers()
            else:
                self._start_timer(order.tag, order.delay_ms, order.event)
        for event in outbox.events:
            self.accept(event)
        for story in outbox.stories:
            if story.what == "healed":
                self.world.healed[story.key or ""] = None
            self.world.note(self.name, f"{story.what}: {story.why}", story.key or "")
        self._deliver(outbox.answers)
        outbox.dispatches.clear()
        outbox.timers.clear()
        outbox.events.clear()
        outbox.stories.clear()
        outbox.answers.clear()

    def _dispatch(self, dispatch: Dispatch) -> None:
        if isinstance(dispatch, DisconnectAll):
            self._close_channels()
        elif isinstance(dispatch, Disconnect):
            self._close_channel(dispatch.broker)
        elif isinstance(dispatch, Connect):
            self._close_channel(dispatch.broker.id)
            channel = Channel(self, dispatch.broker, self.host.channel_bound)
            self.channels[dispatch.broker.id] = channel
            self.world.scheduler.after(20, self.gate, self._report_versions)
        else:
            self.world.safety.queued(self, dispatch)
            for broker in recipients_of(dispatch):
                if broker in self.channels:
                    self.channels[broker].send(dispatch)

    def _report_versions(self) -> None:
        """The oldest release among the brokers, as ApiVersions tells it."""
        releases = [broker.release for b in self.channels if (broker := self.world.brokers.get(b))]
        if releases and min(releases) != self._release:
            self._release = min(releases)
            self.accept(ev.BrokerVersions(self._release))

    def _deliver(self, answers: Any) -> None:
        answer: Answer
        for answer in answers:
            self._answered.add(answer.caller)
            self.world.callers.answer(self, answer)

    def _start_timer(self, tag: str, delay_ms: int, event: ev.Event) -> None:
        if tag in self._timers:
            self._timers[tag].cancel()
        self._timers[tag] = self.world.scheduler.after(delay_ms, self.gate, self._due, tag, event)

    def _due(self, tag: str, event: ev.Event) -> None:
        self._timers.pop(tag, None)
        self.accept(event)

    def _cancel_timers(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _close_channel(self, broker: BrokerId) -> None:
        channel = self.channels.pop(broker, None)
        if channel is not None:
            channel.close()

    def _close_channels(self) -> None:
        for broker in list(self.channels):
            self._close_channel(broker)
        self._release = None


def recipients_of(request: Request) -> tuple[BrokerId, ...]:
    if isinstance(request, UpdateMetadataRequest):
        return tuple(request.recipients)
    return (request.broker,)
