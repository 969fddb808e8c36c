"""The floor: the least ZooKeeper work that a scenario needs, done by a bare client.

It decides nothing, tells nobody, and its rows are encoded beforehand: a limit to approach, not one
to reach. It must not run while a controller does, because it changes the versions that a controller
remembers.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from kctl.bench import loading
from kctl.bench.measuring import cpu_s, machine_s
from kctl.bench.scenarios import SCENARIOS, moves, new_topics, sized, tenth
from kctl.bench.stage import Measurement, Stage, removal
from kctl.bench.truth import read_truth
from kctl.messages.effects import TopicNode
from kctl.model.names import TopicPartition
from kctl.model.rows import Assignment, Leadership
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.multi import Check, Create, Delete, Operation, SetData

AT_ONCE: Final = 500
IN_FLIGHT: Final = 8
EPOCH: Final = "/bench_floor"
"""Stands for `/controller_epoch`, that every write is checked against."""


async def measure_floor(stage: Stage, names: Iterable[str] = ()) -> list[Measurement]:
    """Of the scenarios that have one."""
    assert stage.system is None, "a controller would be confused"
    wanted = set(names) or set(SCENARIOS)
    stage.truth = await read_truth(stage.session)
    done: list[Measurement] = []
    try:
        for measures, floor in FLOORS:
            if wanted & set(measures):
                done += [m for m in await floor(stage) if m.scenario in wanted]
    finally:
        if await stage.session.exists(EPOCH) is not None:
            await stage.session.delete(EPOCH)
    stage.truth = await read_truth(stage.session)
    for measured in done:
        stage.measured.append(measured)
        stage.on_measured(measured)
    return done


async def timed(stage: Stage, name: str, action: Callable[[], Awaitable[object]]) -> Measurement:
    before, zookeeper = cpu_s(os.getpid()), cpu_s(stage.server.pid)
    requests = stage.session.traffic.requests
    machine = machine_s()
    started = time.perf_counter()
    await action()
    took = time.perf_counter() - started
    own, server = cpu_s(os.getpid()) - before, cpu_s(stage.server.pid) - zookeeper
    busy, total = (now - then for now, then in zip(machine_s(), machine, strict=True))
    return Measurement(
        name,
        "floor",
        took,
        last_znode_s=took,
        cpu_s=own,
        zookeeper_cpu_s=server,
        zookeeper_requests=stage.session.traffic.requests - requests,
        noise=max(0.0, (busy - own - server) / total) if total else 0.0,
    )


# -- the work ----------------------------------------------------------------------------------


async def load_all(stage: Stage) -> list[Measurement]:
    return [await timed(stage, "failover", lambda: read_truth(stage.session))]


async def write_states(stage: Stage, name: str, tps: Sequence[TopicPartition]) -> Measurement:
    """Their leaderships as they are, each if its version holds."""
    writes = state_writes(stage, tps)
    measured = await timed(stage, name, await checked(stage, writes))
    stage.truth = await read_truth(stage.session)
    return measured


def state_writes(stage: Stage, tps: Iterable[TopicPartition]) -> list[Operation]:
    return [
        SetData(paths.partition_state(tp), znodes.encode_state(state), state.zk_version)
        for tp in tps
        for state in (stage.truth.states[tp],)
    ]


async def checked(stage: Stage, operations: Sequence[Operation]) -> Callable[[], Awaitable[object]]:
    """These, some hundred at once, each time with a check as a controller makes it."""
    if await stage.session.exists(EPOCH) is None:
        await stage.session.create(EPOCH, b"1")
    check = Check(EPOCH, 0)

    async def send() -> None:
        places = asyncio.Semaphore(IN_FLIGHT)

        async def one(batch: list[Operation]) -> None:
            try:
                await stage.session.multi([check, *batch])
            finally:
                places.release()

        async with asyncio.TaskGroup() as group:
            for at in range(0, len(operations), AT_ONCE):
                await places.acquire()
                group.create_task(one(list(operations[at : at + AT_ONCE])))

    return send


def _of_victim(name: str) -> Callable[[Stage], Awaitable[list[Measurement]]]:
    async def floor(stage: Stage) -> list[Measurement]:
        return [await write_states(stage, name, stage.truth.partitions_on(stage.victim))]

    return floor


async def elect(stage: Stage) -> list[Measurement]:
    return [await write_states(stage, "preferred_election", tenth(stage))]


async def reread(stage: Stage) -> list[Measurement]:
    """What notifications name: read the states, remove the notifications."""
    tps = [tp for i, tp in enumerate(stage.home.states) if i % 10 < 3]
    at = [paths.partition_state(tp) for tp in tps]
    notifications = [f"{EPOCH}-{number}" for number in range(10)]
    for path in notifications:
        await stage.session.create(path)

    async def act() -> None:
        for path, read in zip(at, await stage.session.read_many(at), strict=True):
            assert isinstance(read, tuple)
            znodes.decode_state(path, read[0], read[1].version)
        await stage.session.multi([Delete(path) for path in notifications])

    return [await timed(stage, "isr_notification", act)]


def _topics(topics: int, partitions: int) -> Callable[[Stage], Awaitable[list[Measurement]]]:
    """Create: the states of topics whose own znodes are there. Delete: everything of them."""

    async def floor(stage: Stage) -> list[Measurement]:
        made = new_topics(stage, sized(stage, topics), partitions)
        await loading.write_in_batches(
            stage.session, (op for creations in made.values() for op in creations)
        )
        before = await read_truth(stage.session)
        operations: list[Operation] = []
        for name in made:
            assigned = before.topics[name].partitions
            led = {p: Leadership(a.replicas[0], a.replicas, 0, 1, 0) for p, a in assigned.items()}
            operations += loading.state_creations(name, led)
        created = await timed(
            stage, f"create_{topics}x{partitions}", await checked(stage, operations)
        )
        after = await read_truth(stage.session)
        marks = [paths.deletion(name) for name in made]
        await stage.session.multi([Create(path) for path in marks])
        operations = [op for name in made for op in removal(after, name)]
        operations += [Delete(path) for path in marks]
        deleted = await timed(
            stage, f"delete_{topics}x{partitions}", await checked(stage, operations)
        )
        stage.truth = await read_truth(stage.session)
        return [created, deleted]

    return floor


async def reassign(stage: Stage) -> list[Measurement]:
    """Each phase: the assignments of the topics, and a state for each partition."""
    targets = moves(stage)
    measured = []
    for name in ("reassignment_start", "reassignment_finish"):
        topics = dict.fromkeys(tp.topic for tp in targets)
        writes: list[Operation] = [
            SetData(paths.topic(topic), znodes.encode_topic(_same(stage, topic)))
            for topic in topics
        ]
        writes += state_writes(stage, targets)
        measured.append(await timed(stage, name, await checked(stage, writes)))
        stage.truth = await read_truth(stage.session)
    return measured


def _same(stage: Stage, topic: str) -> TopicNode:
    node = stage.truth.topics[topic]
    return TopicNode(
        {p: Assignment(a.replicas) for p, a in node.partitions.items()}, node.topic_id, 0
    )


Floor = Callable[[Stage], Awaitable[list[Measurement]]]

FLOORS: Final[tuple[tuple[tuple[str, ...], Floor], ...]] = (
    (("failover",), load_all),
    (("broker_failure",), _of_victim("broker_failure")),
    (("controlled_shutdown",), _of_victim("controlled_shutdown")),
    (("preferred_election",), elect),
    (("isr_notification",), reread),
    (("create_100x50", "delete_100x50"), _topics(100, 50)),
    (("create_1000x5", "delete_1000x5"), _topics(1_000, 5)),
    (("reassignment_start", "reassignment_finish"), reassign),
)
"""What is measured together, because the one needs what the other made."""
