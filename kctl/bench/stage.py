"""The stage on which controllers are measured: ZooKeeper, simulated brokers, and one controller.

A trial is one trigger and what the controller does about it. It is over when nothing moves any more
and everything that the scenario calls for is there; what is not there after a while is a failure.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

import attrs

from kctl.bench import loading
from kctl.bench.measuring import (
    QUIET_S,
    Sample,
    Watcher,
    counters,
    cpu_s,
    forget_peak,
    machine_s,
    peak_bytes,
)
from kctl.bench.shapes import Shape, brokers
from kctl.bench.subject import Record
from kctl.bench.systems import System
from kctl.bench.truth import Audience, Expected, Truth, read_truth
from kctl.messages.effects import TopicNode
from kctl.model.names import BrokerId, TopicPartition
from kctl.model.rows import Leadership
from kctl.testing.simulated import RegisteredBrokers
from kctl.wire.apis import APIS
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.embedded import EmbeddedZooKeeper
from kctl.zookeeper.multi import Delete, Operation, SetData
from kctl.zookeeper.session import Session
from kctl.zookeeper.wire import EventType, WatchEvent, WatchMode

TRIAL_BOUND_S = 600.0
LOOKS_MAX = 12
"""So often is a quiet system looked at before what is missing counts as missing."""
SESSION_TIMEOUT_MS = 60_000


class Incomplete(Exception):
    """A trial ended without everything that it calls for; it gives no figure."""


class NotApplicable(Exception):
    """This cluster has nothing that the scenario could happen to."""


@attrs.frozen
class Measurement:
    scenario: str
    system: str
    seconds: float
    """The figure: see each scenario for what ends it."""
    last_znode_s: float | None = None
    last_request_s: float | None = None
    cpu_s: float = 0.0
    zookeeper_cpu_s: float = 0.0
    simulator_cpu_s: float = 0.0
    peak_bytes: int = 0
    zookeeper_requests: int = 0
    transactions: int = 0
    requests: int = 0
    """Control requests that the simulated brokers received."""
    longest_step_s: float = 0.0
    stall_p99_s: float = 0.0
    stall_max_s: float = 0.0
    noise: float = 0.0
    rate: float | None = None
    """Of something a second, where that is the figure."""
    records: tuple[Record, ...] = attrs.field(default=(), repr=False)
    started_at: float = 0.0
    """Wall clock."""
    phases: tuple[tuple[str, float, float], ...] = ()
    """What was seen from outside: what, from when to when, in seconds from the trigger."""


@attrs.frozen
class Trial:
    """What is done, and what must come of it."""

    scenario: str
    trigger: Callable[[], Awaitable[float | None]]
    """May return when (monotonic clock) an answer was there."""
    expected: Callable[[Truth], Expected]
    """Given what ZooKeeper holds afterwards."""
    holds: Callable[[Truth], Iterable[str]] = lambda _: ()
    """What is wrong with that."""
    gone: Sequence[str] = ()
    """Znodes that are there before, and not after; the trigger may add those that it makes."""
    by_answer: bool = False
    """The answer ends it, whatever comes later."""
    count: Callable[[], int] | None = None
    """Of what there is a rate."""


@attrs.define
class Stage:
    server: EmbeddedZooKeeper
    session: Session
    brokers: RegisteredBrokers
    audience: Audience
    truth: Truth
    home: Truth
    """As it was loaded."""
    shape: Shape
    victim: BrokerId
    """The broker that things happen to."""
    system: System | None = None
    measured: list[Measurement] = attrs.field(factory=list)
    on_measured: Callable[[Measurement], None] = lambda _: None
    quiet_s: float = QUIET_S
    """Nothing moves for so long: time to look whether all is there."""
    profiled: frozenset[str] = frozenset()
    """Scenarios of which the controller makes a profile."""
    memory: dict[str, object] = attrs.field(factory=dict)
    """What one scenario leaves for another."""
    _gone_at: dict[str, float] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.session.on_event(self._note)

    def _note(self, event: WatchEvent) -> None:
        if event.type is EventType.DELETED:
            self._gone_at[event.path] = time.monotonic()

    # -- the controller -----------------------------------------------------------------------

    async def enter(self, system: System) -> Measurement:
        """Start a controller; measured from its election, when nobody else was there."""
        await asyncio.to_thread(self.audience.begin)
        self.system = system
        before = counters(self.server.port)
        zookeeper, own, machine = cpu_s(self.server.pid), cpu_s(os.getpid()), machine_s()
        await system.start(self.server.connect_string)
        watcher = self._watcher()
        # CPU time counts from the start of the process: there is nothing else to count it from.
        first = Sample(
            time.monotonic(), 0.0, zookeeper, own, before.received, before.zxid, 0, machine
        )
        watcher.samples.append(first)
        async with asyncio.timeout(TRIAL_BOUND_S):
            while (elected := await self.session.exists(paths.CONTROLLER)) is None:
                system.records()
                await asyncio.sleep(0.05)
            trial = Trial("cold_start", _nothing, self.everything)
            wall, monotonic = time.time(), time.monotonic()
            started = monotonic - (wall - elected.ctime / 1000)
            return await self._settle(trial, watcher, started, elected.czxid)

    async def leave(self) -> None:
        """Stop the controller and wait till the controllership is free."""
        system, self.system = self.system, None
        if system is not None:
            await system.stop()
        async with asyncio.timeout(TRIAL_BOUND_S):
            while await self.session.exists(paths.CONTROLLER) is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    def _watcher(self) -> Watcher:
        assert self.system is not None, "no controller"
        return Watcher(
            self.system.pid,
            self.server.pid,
            self.server.port,
            lambda: sum(len(broker.frames) for broker in self.brokers.values()),
        )

    # -- trials -------------------------------------------------------------------------------

    async def run(self, trial: Trial) -> Measurement:
        assert self.system is not None, "no controller"
        await asyncio.to_thread(self.audience.begin)
        self.system.records()
        self._gone_at.clear()
        for path in trial.gone:
            await self.note_removal(path)
        forget_peak(self.system.pid)
        profiled = trial.scenario in self.profiled
        if profiled:
            self.system.profile(begin=True)
        watcher = self._watcher()
        zxid = (await watcher.sample()).zxid
        started = time.monotonic()
        async with asyncio.timeout(TRIAL_BOUND_S):
            # What is sampled meanwhile tells CPU time up to the end.
            async with asyncio.TaskGroup() as group:
                sampling = group.create_task(self._sample(watcher))
                answered = await trial.trigger()
                sampling.cancel()
            try:
                return await self._settle(trial, watcher, started, zxid, answered)
            finally:
                if profiled:
                    self.system.profile(begin=False)

    async def note_removal(self, path: str) -> None:
        """Of a znode that is there, or has just been removed."""
        # One that is rewritten before it is removed is watched for good.
        once = path != paths.REASSIGN_PARTITIONS
        if await self.session.exists(path, watch=once) is None:
            self._gone_at[path] = time.monotonic()

    @staticmethod
    async def _sample(watcher: Watcher) -> None:
        while True:
            await asyncio.sleep(0.1)
            await watcher.sample()

    async def _settle(
        self,
        trial: Trial,
        watcher: Watcher,
        started: float,
        zxid: int,
        answered: float | None = None,
    ) -> Measurement:
        assert self.system is not None
        stamps: list[tuple[int, float]] = []
        complaints: list[str] = []
        for _ in range(LOOKS_MAX):
            await watcher.quiet(self.quiet_s)
            before = cpu_s(os.getpid())
            stamps += [(f.key, f.stamp_s) for b in self.brokers.values() for f in b.frames]
            await asyncio.to_thread(self.audience.listen)
            after = await read_truth(self.session)
            complaints = await asyncio.to_thread(self._complaints, trial, after)
            watcher.reading_s += cpu_s(os.getpid()) - before
            self.truth = after
            if not complaints:
                break
        else:
            raise Incomplete(
                f"{trial.scenario} of {self.system.name} is not complete: {'; '.join(complaints)}"
            )
        result = self._result(trial, watcher, started, zxid, answered=answered, stamps=stamps)
        self.measured.append(result)
        self.on_measured(result)
        return result

    def _complaints(self, trial: Trial, after: Truth) -> list[str]:
        left = [path for path in trial.gone if path not in self._gone_at]
        found = [f"{len(left)} znodes are still there ({left[0]}, ...)"] if left else []
        found += trial.holds(after)
        return found + self.audience.complaints(trial.expected(after), after, self.brokers.live)

    def _result(
        self,
        trial: Trial,
        watcher: Watcher,
        started: float,
        zxid: int,
        *,
        answered: float | None,
        stamps: Sequence[tuple[int, float]],
    ) -> Measurement:
        assert self.system is not None
        written = [self.truth.mtimes[tp] for tp in self.truth.changed_since(zxid)]
        offset = time.time() - time.monotonic()
        ends = {
            "request": max((at for _, at in stamps), default=None),
            "znode": max(written) / 1000 - offset if written else None,
            "gone": max((self._gone_at[path] for path in trial.gone), default=None),
            "answer": answered,
        }
        last = max((at for at in ends.values() if at is not None), default=started)
        if trial.by_answer:
            assert answered is not None
            end = answered
        else:
            end = last
        first, final = watcher.samples[0], watcher.at(last)
        records = tuple(self.system.records())
        lags = sorted(r.loop_lag_s for r in records if not r.event)
        peak = peak_bytes(self.system.pid)
        return Measurement(
            trial.scenario,
            self.system.name,
            end - started,
            _since(started, ends["znode"]),
            _since(started, ends["request"]),
            final.controller_s - first.controller_s,
            final.zookeeper_s - first.zookeeper_s,
            final.own_s - first.own_s,
            peak,
            final.received - first.received - watcher.own_requests(final),
            final.zxid - first.zxid,
            len(stamps),
            max((r.longest_step_s for r in records), default=0.0),
            lags[int(0.99 * len(lags))] if lags else 0.0,
            lags[-1] if lags else 0.0,
            watcher.noise(final),
            rate=None if trial.count is None else trial.count() / (end - started),
            records=tuple(r for r in records if r.event),
            started_at=started + offset,
            phases=_phases(started, stamps, [at / 1000 - offset for at in written]),
        )

    def everything(self, truth: Truth) -> Expected:
        """All of the cluster to everybody."""
        tps = list(truth.states)
        return Expected(tps, {tp: truth.replicas(tp) for tp in tps})

    # -- changing the cluster behind the controller's back ----------------------------------------

    async def all_alive(self) -> None:
        dead = [broker for broker in self.brokers if broker not in self.brokers.live]
        for broker in dead:
            self.audience.forget(broker)
            await self.brokers.start(broker)
        if dead and self.system is not None:
            await self._watcher().quiet(self.quiet_s)

    def at_home(self, wanted: Mapping[TopicPartition, Leadership]) -> bool:
        """Whether all leaders and ISRs are these."""
        states = self.truth.states
        return (
            len(self.brokers.live) == len(self.brokers)
            and len(states) == len(wanted)
            and all(
                (tp_state := states.get(tp)) is not None
                and tp_state.leader == state.leader
                and tp_state.isr == state.isr
                for tp, state in wanted.items()
            )
            and all(
                self.truth.topics[name].partitions == node.partitions
                for name, node in self.home.topics.items()
            )
        )

    async def go_home(self, wanted: Mapping[TopicPartition, Leadership] | None = None) -> None:
        """Make the cluster as it was loaded, or with these leaders and ISRs.

        The controller hears of it by being elected again, which is measured like any failover.
        """
        wanted = self.home.states if wanted is None else wanted
        if self.at_home(wanted):
            return
        await self.all_alive()
        self.memory.clear()
        self.truth = await read_truth(self.session)
        await loading.write_in_batches(self.session, self._corrections(wanted))
        self.audience.unlearn(self.truth.topics.keys() - self.home.topics.keys())
        self.truth = await read_truth(self.session)
        if self.system is not None:
            await self._watcher().quiet(self.quiet_s)
            await self.fail_over()

    def _corrections(self, wanted: Mapping[TopicPartition, Leadership]) -> Iterable[Operation]:
        for name, node in self.truth.topics.items():
            home = self.home.topics.get(name)
            if home is None:
                yield from removal(self.truth, name)
            elif node.partitions != home.partitions:
                content = TopicNode(home.partitions, home.topic_id, 0)
                yield SetData(paths.topic(name), znodes.encode_topic(content))
        for tp, state in wanted.items():
            found = self.truth.states[tp]
            if found.leader != state.leader or found.isr != state.isr:
                corrected = Leadership(
                    state.leader, state.isr, found.leader_epoch + 1, found.controller_epoch, 0
                )
                yield SetData(paths.partition_state(tp), znodes.encode_state(corrected))

    async def fail_over(self) -> Measurement:
        async def trigger() -> None:
            await self.session.delete(paths.CONTROLLER)

        return await self.run(Trial("failover", trigger, self.everything))


def removal(truth: Truth, topic: str) -> Iterable[Operation]:
    for partition in truth.topics[topic].partitions:
        tp = TopicPartition(topic, partition)
        if tp in truth.states:
            yield Delete(paths.partition_state(tp))
            yield Delete(paths.partition(tp))
    if any(TopicPartition(topic, p) in truth.states for p in truth.topics[topic].partitions):
        yield Delete(paths.partitions(topic))
    yield Delete(paths.topic(topic))
    yield Delete(paths.topic_config(topic))


def _phases(
    started: float, stamps: Sequence[tuple[int, float]], written: Sequence[float]
) -> tuple[tuple[str, float, float], ...]:
    times: dict[str, list[float]] = {"states written": list(written)} if written else {}
    for key, at in stamps:
        times.setdefault(f"{APIS[key].name} received", []).append(at)
    found = [(name, min(at) - started, max(at) - started) for name, at in times.items()]
    first = min((begin for _, begin, _ in found), default=0.0)
    return (("nothing seen", 0.0, first), *sorted(found, key=lambda phase: phase[1]))


async def _nothing() -> None:
    return None


def _since(started: float, at: float | None) -> float | None:
    return None if at is None else at - started


def heap_mb_for(shape: Shape) -> int:
    """Of ZooKeeper: with room to spare, a collector at work would be measured too."""
    return max(1_024, min(6_144, 1_024 + shape.partitions // 200))


@asynccontextmanager
async def open_stage(
    shape: Shape,
    seed: int = 1,
    *,
    progress: loading.Progress = lambda _: None,
    loaded: bool = False,
    server: EmbeddedZooKeeper | None = None,
) -> AsyncIterator[Stage]:
    """ZooKeeper with the cluster in it, and its brokers. Give a `server` that is `loaded` already
    to use what is there."""
    own = EmbeddedZooKeeper(heap_mb=heap_mb_for(shape), force_sync=True) if server is None else None
    if own is not None:
        await own.__aenter__()
    used = server or own
    assert used is not None
    try:
        async with Session.open(used.connect_string, timeout_ms=SESSION_TIMEOUT_MS) as session:
            if not loaded:
                await loading.load(session, shape, seed, progress)
            racks = {b.id: b.rack for b in brokers(shape, seed) if b.rack is not None}
            ids = [b.id for b in brokers(shape, seed)]
            async with RegisteredBrokers(
                used.connect_string,
                ids,
                racks=racks,
                quick=True,
                session_timeout_ms=SESSION_TIMEOUT_MS,
            ) as registered:
                await session.add_watch(paths.REASSIGN_PARTITIONS, WatchMode.PERSISTENT)
                truth = await read_truth(session)
                # One that leads as much as any: some of an uneven cluster have just been started.
                leading = Counter(state.leader for state in truth.states.values())
                victim = max(ids, key=lambda broker: (leading[broker], broker))
                audience = Audience(registered, shape.partitions, victim)
                yield Stage(used, session, registered, audience, truth, truth, shape, victim)
    finally:
        if own is not None:
            await own.__aexit__(None, None, None)
