"""What is measured: each scenario prepares what it needs, pulls a trigger and says what must come.

The figure of a scenario is the time from just before its trigger to the last request received by
a simulated broker or the last znode written, whichever is later; where a caller waits for an answer
(controlled shutdown) it is the answer. Triggers are what brokers and tools do, the same for every
controller.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from kctl.bench import loading, shapes
from kctl.bench.calls import Line
from kctl.bench.isr_storm import Leaders, Refused
from kctl.bench.shapes import Shape
from kctl.bench.stage import Measurement, NotApplicable, Stage, Trial
from kctl.bench.truth import Expected, Truth
from kctl.model.names import BrokerId, TopicPartition
from kctl.model.rows import Assignment, Leadership, Replicas
from kctl.wire import control_plane as cp
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.multi import Create, SetData
from kctl.zookeeper.wire import CreateMode

REASSIGNED: Final = 1_000
ZNODE_MAX_BYTES: Final = 900_000
"""ZooKeeper refuses a request of a megabyte."""
NAMED_IN_A_NOTIFICATION: Final = 3_000


class UnknownScenario(ValueError):
    """No scenario has this name."""


@attrs.frozen
class Scenario:
    name: str
    about: str
    run: Callable[[Stage], Awaitable[Measurement]]


# -- brokers ---------------------------------------------------------------------------------


async def failover(stage: Stage) -> Measurement:
    before = len(stage.measured)
    await stage.go_home()
    if len(stage.measured) > before:
        return stage.measured[-1]
    return await stage.fail_over()


async def broker_failure(stage: Stage) -> Measurement:
    await stage.go_home()
    victim = stage.victim
    held = stage.truth.partitions_on(victim)

    async def trigger() -> None:
        await stage.brokers.kill(victim)

    return await stage.run(
        Trial(
            "broker_failure",
            trigger,
            lambda after: Expected(held, _to_survivors(after, held, victim)),
            holds=lambda after: _left(after, held, victim),
        )
    )


async def broker_start(stage: Stage) -> Measurement:
    victim = stage.victim
    if victim in stage.brokers.live:
        await broker_failure(stage)
    stage.audience.forget(victim)
    held = stage.truth.partitions_on(victim)

    async def trigger() -> None:
        await stage.brokers.start(victim)

    def expected(_: Truth) -> Expected:
        return Expected((), dict.fromkeys(held, (victim,)))

    def holds(after: Truth) -> Iterator[str]:
        # The one that came must learn everything; the others only that it is there.
        missing = after.states.keys() - stage.audience.told[victim].metadata
        if missing:
            yield f"broker {victim} was not told of {len(missing)} partitions"
        for broker, belief in stage.audience.beliefs.items():
            if broker in stage.brokers.live and victim not in belief.live:
                yield f"broker {broker} does not know that {victim} is back"

    return await stage.run(Trial("broker_start", trigger, expected, holds=holds))


async def controlled_shutdown(stage: Stage) -> Measurement:
    await stage.go_home()
    assert stage.system is not None
    victim = stage.victim
    shared = [tp for tp in stage.truth.partitions_on(victim) if len(stage.truth.replicas(tp)) > 1]
    # What nobody else has in sync stays, and the answer names it.
    stay = {tp for tp in shared if stage.truth.states[tp].isr == (victim,)}
    movable = [tp for tp in shared if tp not in stay]
    if not movable:
        raise NotApplicable("no partition can go elsewhere")
    request = cp.ControlledShutdownRequest(victim, stage.brokers[victim].epoch)
    async with Line(stage.system.address) as line:

        async def trigger() -> float:
            answer = await line.call(request, 3, cp.ControlledShutdownResponse)
            left = {
                TopicPartition(r.topic_name, r.partition_index) for r in answer.remaining_partitions
            }
            if answer.error_code or left != stay:
                raise Refused(f"error {answer.error_code}, {len(left)} left, not {len(stay)}")
            return time.monotonic()

        measured = await stage.run(
            Trial(
                "controlled_shutdown",
                trigger,
                lambda after: Expected((), _to_survivors(after, movable, victim)),
                holds=lambda after: _left(after, movable, victim),
                by_answer=True,
            )
        )
    await stage.brokers.kill(victim)
    return measured


def _to_survivors(
    after: Truth, held: Iterable[TopicPartition], victim: BrokerId
) -> dict[TopicPartition, Replicas]:
    return {tp: tuple(b for b in after.replicas(tp) if b != victim) for tp in held}


def _left(after: Truth, held: Iterable[TopicPartition], victim: BrokerId) -> Iterator[str]:
    """Whether the victim leads nothing and is in no ISR, unless nobody else could be."""
    still = [
        tp
        for tp in held
        if after.states[tp].leader == victim
        or (victim in after.states[tp].isr and len(after.states[tp].isr) > 1)
    ]
    if still:
        yield f"{len(still)} partitions still have broker {victim} ({still[0]}, ...)"


# -- topics ----------------------------------------------------------------------------------


def new_topics(stage: Stage, topics: int, partitions: int) -> dict[str, list[Create]]:
    """By name, what a broker writes that was asked to create them."""
    factor = min(3, stage.shape.brokers)
    shape = Shape(
        f"new-{topics}x{partitions}",
        topics,
        topics * partitions,
        stage.shape.brokers,
        racks=stage.shape.racks,
        replication=((factor, 1.0),),
    )
    made = {}
    for index in range(topics):
        assigned = shapes.assignment(shape, 7, index)
        name = f"{shape.name}-{index:05}"
        topic = attrs.evolve(shapes.topic(shape, 7, index), name=name)
        made[name] = list(loading.topic_creations(topic, assigned))
    return made


def sized(stage: Stage, topics: int) -> int:
    """A small cluster gets fewer."""
    return max(2, min(topics, stage.shape.topics * topics // 200))


def _create(topics: int, partitions: int) -> Callable[[Stage], Awaitable[Measurement]]:
    async def create(stage: Stage) -> Measurement:
        made = new_topics(stage, sized(stage, topics), partitions)
        await stage.go_home()

        async def trigger() -> None:
            await stage.session.multi([op for ops in made.values() for op in ops])

        tps = [TopicPartition(name, p) for name in made for p in range(partitions)]

        def holds(after: Truth) -> Iterator[str]:
            missing = [tp for tp in tps if tp not in after.states]
            if missing:
                yield f"{len(missing)} new partitions have no state ({missing[0]}, ...)"

        def expected(after: Truth) -> Expected:
            made_tps = [tp for tp in tps if tp in after.states]
            return Expected(tps, {tp: after.replicas(tp) for tp in made_tps})

        return await stage.run(
            Trial(f"create_{topics}x{partitions}", trigger, expected, holds=holds)
        )

    return create


def _delete(topics: int, partitions: int) -> Callable[[Stage], Awaitable[Measurement]]:
    async def delete(stage: Stage) -> Measurement:
        made = new_topics(stage, sized(stage, topics), partitions)
        alive = len(stage.brokers.live) == len(stage.brokers)
        if not alive or not all(name in stage.truth.topics for name in made):
            await _create(topics, partitions)(stage)
        tps = [TopicPartition(name, p) for name in made for p in range(partitions)]
        replicas = {tp: stage.truth.replicas(tp) for tp in tps}
        marks = [paths.deletion(name) for name in made]
        gone = [paths.topic(name) for name in made]

        async def trigger() -> None:
            await stage.session.multi([Create(path, None) for path in marks])

        def holds(after: Truth) -> Iterator[str]:
            left = [name for name in made if name in after.topics]
            if left:
                yield f"{len(left)} topics are still there ({left[0]}, ...)"

        def expected(_: Truth) -> Expected:
            return Expected(tps, removed=replicas)

        return await stage.run(
            Trial(f"delete_{topics}x{partitions}", trigger, expected, holds=holds, gone=gone)
        )

    return delete


# -- leaders and replicas ----------------------------------------------------------------------


def tenth(stage: Stage) -> list[TopicPartition]:
    """Every tenth partition that has a second replica, as many as one znode can name."""
    tps = [tp for i, tp in enumerate(stage.home.states) if i % 10 == 0]
    tps = [tp for tp in tps if len(stage.home.replicas(tp)) > 1]
    while len(znodes.encode_named_partitions(tuple(tps))) > ZNODE_MAX_BYTES:
        tps = tps[: len(tps) * 3 // 4]
    return tps


async def preferred_election(stage: Stage) -> Measurement:
    tps = tenth(stage)
    if not tps:
        raise NotApplicable("no partition has a second replica")
    astray = dict(stage.home.states)
    for tp in tps:
        state, replicas = stage.home.states[tp], stage.home.replicas(tp)
        astray[tp] = Leadership(
            replicas[1], replicas, state.leader_epoch, state.controller_epoch, 0
        )
    await stage.go_home(astray)
    gone: list[str] = []

    async def trigger() -> None:
        path = paths.PREFERRED_REPLICA_ELECTION
        await stage.session.create(path, znodes.encode_named_partitions(tuple(tps)))
        await stage.note_removal(path)
        gone.append(path)

    def holds(after: Truth) -> Iterator[str]:
        wrong = [tp for tp in tps if after.states[tp].leader != after.replicas(tp)[0]]
        if wrong:
            yield f"{len(wrong)} partitions have not got their preferred leader ({wrong[0]}, ...)"

    def expected(after: Truth) -> Expected:
        return Expected(tps, {tp: after.replicas(tp) for tp in tps})

    return await stage.run(Trial("preferred_election", trigger, expected, holds=holds, gone=gone))


def moves(stage: Stage) -> dict[TopicPartition, Replicas]:
    """For some partitions, replicas of which the last is another; back home if they are not there."""
    targets: dict[TopicPartition, Replicas] = {}
    ids = sorted(stage.brokers)
    for tp in stage.home.states:
        if len(targets) == min(REASSIGNED, max(2, len(stage.home.states) // 10)):
            break
        home, now = stage.home.replicas(tp), stage.truth.replicas(tp)
        others = [b for b in ids if b not in home]
        if set(now) != set(home):
            targets[tp] = home
        elif others:
            targets[tp] = (*home[:-1], others[(tp.partition + len(targets)) % len(others)])
    return targets


async def reassignment_start(stage: Stage) -> Measurement:
    await stage.all_alive()
    targets = moves(stage)
    if not targets:
        raise NotApplicable("there is no broker to move a replica to")
    stage.memory["reassigning"] = targets

    async def trigger() -> None:
        await stage.session.create(paths.REASSIGN_PARTITIONS, znodes.encode_reassignments(targets))

    def holds(after: Truth) -> Iterator[str]:
        waiting = [tp for tp in targets if not _assigned(after, tp).is_reassigning]
        if waiting:
            yield f"{len(waiting)} partitions are not being reassigned ({waiting[0]}, ...)"

    def expected(after: Truth) -> Expected:
        return Expected((), {tp: after.replicas(tp) for tp in targets})

    return await stage.run(Trial("reassignment_start", trigger, expected, holds=holds))


async def reassignment_finish(stage: Stage) -> Measurement:
    """The new replicas are in sync: their leaders ask for them to be taken into the ISR."""
    if not stage.memory.get("reassigning"):
        await reassignment_start(stage)
    targets: Mapping[TopicPartition, Replicas] = stage.memory.pop("reassigning")  # type: ignore[assignment]
    before = stage.truth
    wanted = {tp: before.replicas(tp) for tp in targets}

    leaders = Leaders(stage)

    async def trigger() -> None:
        await leaders.ask(wanted, len(wanted))

    def holds(after: Truth) -> Iterator[str]:
        unfinished = [tp for tp, to in targets.items() if _assigned(after, tp).replicas != to]
        if unfinished:
            yield f"{len(unfinished)} reassignments are not finished ({unfinished[0]}, ...)"

    def expected(_: Truth) -> Expected:
        removed = {
            tp: tuple(b for b in before.replicas(tp) if b not in to) for tp, to in targets.items()
        }
        return Expected(list(targets), dict(targets), removed)

    return await stage.run(
        Trial(
            "reassignment_finish",
            trigger,
            expected,
            holds=holds,
            gone=[paths.REASSIGN_PARTITIONS],
        )
    )


def _assigned(truth: Truth, tp: TopicPartition) -> Assignment:
    return truth.topics[tp.topic].partitions[tp.partition]


# -- ISR changes -------------------------------------------------------------------------------


async def isr_notification(stage: Stage) -> Measurement:
    """Leaders of old releases write states themselves, and then name the partitions."""
    await stage.go_home()
    tps = [tp for i, tp in enumerate(stage.home.states) if i % 10 < 3]
    tps = [tp for tp in tps if len(stage.truth.states[tp].isr) > 1]
    if not tps:
        raise NotApplicable("no ISR can shrink")
    await _write_isrs(stage, {tp: _shrunk(stage.truth.states[tp]) for tp in tps})
    first = await _notify(stage, tps)
    # And back again: the cluster is as before, and there are two figures.
    await _write_isrs(stage, {tp: stage.home.states[tp].isr for tp in tps})
    second = await _notify(stage, tps)
    return min(first, second, key=lambda m: m.seconds)


def _shrunk(state: Leadership) -> Replicas:
    """Without its last follower."""
    last = [b for b in state.isr if b != state.leader][-1]
    return tuple(b for b in state.isr if b != last)


async def _write_isrs(stage: Stage, isrs: Mapping[TopicPartition, Replicas]) -> None:
    def writes() -> Iterator[SetData]:
        for tp, isr in isrs.items():
            now = stage.truth.states[tp]
            state = Leadership(
                now.leader, isr, now.leader_epoch, now.controller_epoch, 0, now.recovering
            )
            yield SetData(paths.partition_state(tp), znodes.encode_state(state))

    await loading.write_in_batches(stage.session, writes())


async def _notify(stage: Stage, tps: Sequence[TopicPartition]) -> Measurement:
    by_leader: dict[BrokerId, list[TopicPartition]] = {}
    for tp in tps:
        by_leader.setdefault(stage.truth.states[tp].leader, []).append(tp)
    contents = [
        znodes.encode_named_partitions(tuple(named[at : at + NAMED_IN_A_NOTIFICATION]))
        for named in by_leader.values()
        for at in range(0, len(named), NAMED_IN_A_NOTIFICATION)
    ]
    gone: list[str] = []

    async def notify(content: bytes) -> None:
        created = await stage.session.create(
            f"{paths.ISR_CHANGES}/isr_change_", content, CreateMode.PERSISTENT_SEQUENTIAL
        )
        await stage.note_removal(created.path)
        gone.append(created.path)

    async def trigger() -> None:
        await asyncio.gather(*(notify(content) for content in contents))

    return await stage.run(Trial("isr_notification", trigger, lambda _: Expected(tps), gone=gone))


def _alter(a_request: int) -> Callable[[Stage], Awaitable[Measurement]]:
    async def alter(stage: Stage) -> Measurement:
        """Every leader has a follower fall out of its ISRs and come back."""
        await stage.go_home()
        tps: list[TopicPartition] = []
        for broker in stage.brokers:
            led = (tp for tp, s in stage.truth.states.items() if s.leader == broker)
            usable = [tp for tp in led if len(stage.truth.states[tp].isr) > 1]
            tps += usable[: 20 * a_request]
        if not tps:
            raise NotApplicable("no ISR can shrink")
        smaller = {tp: _shrunk(stage.truth.states[tp]) for tp in tps}
        back = {tp: stage.truth.states[tp].isr for tp in tps}
        leaders = Leaders(stage)
        calls = 0

        async def trigger() -> float:
            nonlocal calls
            for isrs in (smaller, back):
                calls += await leaders.ask(isrs, a_request)
            return time.monotonic()

        return await stage.run(
            Trial(
                f"alter_partition_{a_request}",
                trigger,
                lambda _: Expected(tps),
                by_answer=True,
                count=lambda: calls,
            )
        )

    return alter


# -- the list ----------------------------------------------------------------------------------

SCENARIOS: Final[Mapping[str, Scenario]] = {
    s.name: s
    for s in (
        Scenario("failover", "/controller is deleted", failover),
        Scenario("broker_failure", "a broker's session ends", broker_failure),
        Scenario("broker_start", "that broker registers again", broker_start),
        Scenario("preferred_election", "a tenth of the partitions, by znode", preferred_election),
        Scenario("isr_notification", "three tenths of the partitions", isr_notification),
        Scenario("alter_partition_1", "AlterPartition, one partition each", _alter(1)),
        Scenario("alter_partition_50", "AlterPartition, fifty partitions each", _alter(50)),
        Scenario("controlled_shutdown", "of one broker, up to the answer", controlled_shutdown),
        Scenario("create_100x50", "topics, by znodes", _create(100, 50)),
        Scenario("delete_100x50", "topics, by znodes", _delete(100, 50)),
        Scenario("create_1000x5", "topics, by znodes", _create(1_000, 5)),
        Scenario("delete_1000x5", "topics, by znodes", _delete(1_000, 5)),
        Scenario("reassignment_start", "of 1,000 partitions, by znode", reassignment_start),
        Scenario("reassignment_finish", "by AlterPartition of the leaders", reassignment_finish),
    )
}
"""In an order in which each finds what the one before it left."""


def chosen(names: Iterable[str]) -> list[Scenario]:
    """In the order of the list; all of them if none is named."""
    wanted = dict.fromkeys(names)
    unknown = [name for name in wanted if name not in SCENARIOS]
    if unknown:
        raise UnknownScenario(
            f"no scenario is named {unknown[0]!r}; there are {', '.join(SCENARIOS)}"
        )
    return [s for name, s in SCENARIOS.items() if name in wanted or not wanted]
