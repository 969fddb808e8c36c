"""The actor: takes events from one queue, one at a time, and drives their handlers.

Between two effects it holds the term in its hands: when the session is lost or another controller
was elected, the handler is closed, what it had not flushed is dropped, its callers are told
NOT_CONTROLLER, and the cluster is thrown away.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import attrs
import structlog

from kctl.logic.dispatch import handle
from kctl.messages import events as ev
from kctl.messages.answers import preempted
from kctl.messages.driver import Finished, Procedure, step
from kctl.messages.effects import Draw, Effect, Flush, ReleaseControllership
from kctl.messages.outbox import Outbox, Story
from kctl.messages.requests import DisconnectAll, Dispatch
from kctl.messages.term import SessionLost, TermOver
from kctl.model.cluster import ClusterState, Node
from kctl.runtime.callers import Callers
from kctl.runtime.collector import Collector
from kctl.runtime.faults import FaultHistory, Verdict, fingerprint, traceback_of
from kctl.runtime.journal import Journal
from kctl.runtime.mailbox import Mailbox
from kctl.runtime.meters import Handled, Meters, thread_cpu_s, wall_clock_ms
from kctl.runtime.quarantine_log import QuarantineLog
from kctl.runtime.timers import Timers
from kctl.zookeeper.connection import Traffic

log = structlog.get_logger("kctl.controller")

HEALTHY_AFTER_S = 300.0
"""A term that lasted so long without a fault ends a row of faults."""
BREATH_S = 0.005
"""Events that wait for nothing are handled in a row for so long, then others have their turn."""

ALWAYS_HANDLED = (ev.Expire, ev.ShutdownEventThread, ev.SettingsChange)
"""Also while this node rests after a fault, or has stood down."""
LOADING = (ev.Startup, ev.ControllerChange, ev.Reelect, ev.RegisterBrokerAndReelect)
"""Events that may end with a cluster in memory."""


class Channels(Protocol):
    """Where requests to brokers go. Never waits: a slow broker is the channel's business."""

    def send(self, dispatch: Dispatch) -> None: ...


Perform = Callable[[Effect[Any]], Awaitable[object]]


@attrs.define(eq=False)
class Actor:
    node: Node
    mailbox: Mailbox
    channels: Channels
    callers: Callers
    timers: Timers
    journal: Journal
    meters: Meters
    chance: random.Random
    on_handled: Callable[[Handled], None]
    on_story: Callable[[Story], None]
    collector: Collector

    stood_down: str | None = None
    """Why this node does not campaign any more."""
    expired: asyncio.Event = attrs.field(factory=asyncio.Event)
    """Set once the loss of a session has been dealt with."""
    traffic: Traffic = attrs.field(factory=Traffic)
    """Of the session that effects go to."""
    _perform: Perform | None = None
    _faults: FaultHistory = attrs.field(init=False)
    _quarantine_log: QuarantineLog = attrs.field(init=False)
    _elected_at: float = 0.0
    _rest: asyncio.TimerHandle | None = None
    """While it runs, this node leaves the controllership to others."""
    _doubts_session: bool = False
    """It rests for the sake of its session, and no longer than until the next one."""
    _reported: Exception | None = None
    _interrupted: bool = False

    def __attrs_post_init__(self) -> None:
        self._faults = FaultHistory(self.chance)
        self._quarantine_log = QuarantineLog(self.meters)

    # -- what the campaign says ---------------------------------------------------------------

    def attach(self, perform: Perform, first: ev.Event) -> None:
        """A session is there: effects go to it, and the first event is to look around."""
        self._perform = perform
        if self._doubts_session:
            self._stop_resting()
        self.expired.clear()
        self.mailbox.put(first)

    def lose_session(self) -> None:
        """Whatever is under way ends at its next effect; what is queued is dropped and answered."""
        self._perform = None
        for answer in self.mailbox.clear_and_put(ev.Expire()):
            self.callers.answer(answer)

    def report(self, error: Exception) -> None:
        """Something that the term depends on failed outside of a handler: it is a fault too."""
        self._reported = error
        self.mailbox.put(ev.ControllerChange())

    def unusable_config(self, path: str, reason: str | None) -> None:
        """A dynamic config cannot be read, or (None) can be again; what held so far holds on."""
        self._quarantine_log.config(path, reason)

    def stop(self) -> None:
        """After what is under way; what is queued is dropped and answered."""
        for answer in self.mailbox.clear_and_put(ev.ShutdownEventThread()):
            self.callers.answer(answer)

    def interrupt(self) -> None:
        """What is under way ends at its next effect. The end of the session frees `/controller`."""
        self._interrupted = True

    # -- the loop -----------------------------------------------------------------------------

    async def run(self) -> None:
        try:
            await self._take_turns()
        finally:
            self._stop_resting()
            for answer in self.mailbox.clear():
                self.callers.answer(answer)

    async def _take_turns(self) -> None:
        breath = time.monotonic()
        while True:
            if time.monotonic() - breath > BREATH_S:
                await asyncio.sleep(0)
                breath = time.monotonic()
            events, waited = await self.mailbox.take()
            if self._reported is not None:
                error, self._reported = self._reported, None
                await self._on_fault(error, events)
            elif (self.stood_down or self._rest) and not isinstance(events[0], ALWAYS_HANDLED):
                self._answer_in_our_place(events)
            else:
                await self._handle(events, waited)
            if isinstance(events[0], ev.Expire):
                self.expired.set()
            if isinstance(events[0], ev.ShutdownEventThread):
                return

    async def _handle(self, events: tuple[ev.Event, ...], waited: float) -> None:
        started = time.monotonic()
        before = self.node.cluster
        self.meters.begin(events[0])
        self.journal.event(events)
        outbox = Outbox()
        procedure = handle(self.node, events, outbox)
        effects, rows, longest = 0, 0, 0.0
        phases: dict[str, tuple[float, float]] = {}
        depth = len(self.mailbox)
        traffic = self.traffic
        requests, transferred = traffic.requests, traffic.bytes
        self.meters.event_lag_s = 0.0
        loading = isinstance(events[0], LOADING)
        if loading:
            self.collector.loading()
        try:
            reply: object = None
            while True:
                wanted, cpu = self._step(procedure, reply)
                longest = max(longest, cpu)
                if isinstance(wanted, Finished):
                    break
                effects += 1
                asked = time.monotonic() - started
                reply = await self._reply_to(wanted, outbox)
                _note_phase(phases, wanted, asked, time.monotonic() - started)
                rows += len(reply) if isinstance(reply, Mapping) else 0
                self.journal.reply(wanted, reply)
            self._flush(outbox)
        except TermOver as over:
            self.journal.over(type(over).__name__)
            self._end_term(events)
            log.info("term over", reason=str(over) or type(over).__name__)
            self._go_on_after(over)
        except Exception as error:  # noqa: BLE001 the fault table decides
            await self._on_fault(error, events)
        finally:
            procedure.close()
            self.meters.end()
            if loading:
                self.collector.loaded(active=self.node.cluster is not None)
        self._note_elections(before)
        self._quarantine_log.look(self.node.cluster)
        done = Handled(
            events[0],
            at_ms=wall_clock_ms(),
            queued_s=waited,
            took_s=time.monotonic() - started,
            effects=effects,
            longest_step_s=longest,
            events=len(events),
            queue_depth=depth,
            rows=rows,
            zookeeper_requests=traffic.requests - requests,
            zookeeper_bytes=traffic.bytes - transferred,
            loop_lag_s=self.meters.event_lag_s,
            phases=phases,
        )
        self.meters.record(done)
        self.on_handled(done)

    def _step(self, procedure: Procedure, reply: object) -> tuple[Effect[Any] | Finished, float]:
        before = thread_cpu_s()
        wanted = step(procedure, reply)
        cpu = thread_cpu_s() - before
        self.meters.steps.add(cpu)
        return wanted, cpu

    async def _reply_to(self, effect: Effect[Any], outbox: Outbox) -> object:
        if isinstance(effect, Draw):
            return tuple(self.chance.randrange(effect.below) for _ in range(effect.count))
        perform = self._in_office()
        reply: object = None
        if isinstance(effect, Flush):
            self._flush(outbox)
            await asyncio.sleep(0)
        else:
            self.meters.effect(type(effect).__name__)
            reply = await perform(effect)
        self._in_office()
        return reply

    def _in_office(self) -> Perform:
        """How effects are performed, while the term may go on."""
        if self._perform is None:
            raise SessionLost("the session ended while an event was handled")
        if self._interrupted:
            raise SessionLost("the controller is stopping")
        return self._perform

    def _flush(self, outbox: Outbox) -> None:
        for dispatch in outbox.dispatches:
            self.channels.send(dispatch)
        for timer in outbox.timers:
            self.timers.apply(timer)
        for event in outbox.events:
            self.mailbox.put(event)
        for answer in outbox.answers:
            self.callers.answer(answer)
        for story in outbox.stories:
            self.journal.story(story)
            self._quarantine_log.hear(story)
            self.on_story(story)
        outbox.dispatches.clear()
        outbox.timers.clear()
        outbox.events.clear()
        outbox.answers.clear()
        outbox.stories.clear()

    # -- when a term ends ---------------------------------------------------------------------

    def _end_term(self, events: tuple[ev.Event, ...]) -> None:
        """Nothing that is left of it takes effect."""
        if self.node.cluster is not None:
            self.node.cluster = None
            self.on_story(Story("resigned", "the term is over"))
        self.node.active_id = None
        self.channels.send(DisconnectAll())
        self.timers.cancel()
        self._answer_in_our_place(events)

    def _answer_in_our_place(self, events: tuple[ev.Event, ...]) -> None:
        for event in events:
            answer = preempted(event)
            if answer is not None:
                self.callers.answer(answer)

    def _go_on_after(self, over: TermOver) -> None:
        if self._faults.judge(over) is Verdict.RESIGN:
            # Looks who is controller now, and stands again if nobody is.
            self.mailbox.put(ev.Reelect())
        elif self._perform is not None and not self._interrupted:
            # Reading was cut off again and again, but the session lives, and `/controller` with
            # it: nobody else can follow. If it does not live after all, its loss comes first.
            self._rest_for(self._faults.backoff_ms())
            self._doubts_session = True

    async def _on_fault(self, error: Exception, events: tuple[ev.Event, ...]) -> None:
        self.meters.faults += 1
        self.journal.over(type(error).__name__)
        cluster = self.node.cluster
        verdict = self._faults.judge(error)
        log.error(
            "fault",
            fault=fingerprint(error),
            handling=type(events[0]).__name__,
            verdict=verdict.value,
            in_a_row=self._faults.in_a_row,
            journal=self.journal.tail(),
            # As text: a renderer that shows local variables would print the whole cluster.
            exception=traceback_of(error),
        )
        self._end_term(events)
        if cluster is not None and self._perform is not None:
            try:
                await self._perform(ReleaseControllership(cluster.epoch_zk_version))
            except TermOver:
                pass  # somebody else rules already, or the session is gone and the znode with it
            except Exception as second:  # noqa: BLE001 the session's end must do it
                log.error(  # noqa: TRY400 as above
                    "the controllership could not be released", exception=traceback_of(second)
                )
        if verdict is Verdict.STAND_DOWN:
            self.stood_down = str(error) or fingerprint(error)
            log.critical("stood down: not campaigning any more", reason=self.stood_down)
            self.on_story(Story("stood down", self.stood_down))
        else:
            self._rest_for(self._faults.backoff_ms())

    def _rest_for(self, delay_ms: int) -> None:
        """Others may take over meanwhile; after that, stand again if nobody has."""
        self._stop_resting()

        def wake() -> None:
            self._rest = None
            self.mailbox.put(ev.Reelect())

        self._rest = asyncio.get_running_loop().call_later(delay_ms / 1000, wake)

    @property
    def resting(self) -> bool:
        """Whether it leaves the controllership to others for a while, after a fault."""
        return self._rest is not None

    def _stop_resting(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        self._doubts_session = False

    def _note_elections(self, before: ClusterState | None) -> None:
        now = time.monotonic()
        self.meters.controller_is(self.node.active_id)
        if self.node.cluster is not None and self.node.cluster is not before:
            self.meters.elections_won += 1
            self._elected_at = now
        elif self.node.cluster is not None and now - self._elected_at > HEALTHY_AFTER_S:
            self._faults.forget()
        settings = self.node.settings
        if self.node.cluster is not None and settings.force_takeover:
            # Force is for taking it once: two that keep it would take it from each other for ever.
            self.mailbox.put(ev.SettingsChange(attrs.evolve(settings, force_takeover=False)))


def _note_phase(
    phases: dict[str, tuple[float, float]], effect: Effect[Any], asked: float, answered: float
) -> None:
    if not isinstance(effect, Flush):
        name = type(effect).__name__
        phases[name] = (phases[name][0] if name in phases else asked), answered
