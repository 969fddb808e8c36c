"""A cluster of some shape into an empty ZooKeeper: one session, many multis in flight, no Spark."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from kctl.bench import shapes
from kctl.bench.shapes import Shape, Topic
from kctl.messages.effects import TopicNode
from kctl.model.names import TopicPartition
from kctl.model.rows import Assignment, Leadership, Replicas
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.errors import NodeExists
from kctl.zookeeper.multi import Create, Operation, operation_bytes
from kctl.zookeeper.session import Session

BATCH_BYTES = 512 << 10
BATCH_OPERATIONS = 1_000
IN_FLIGHT = 8

Progress = Callable[[int], None]
"""Told how many operations are done by now."""


async def load(
    session: Session, shape: Shape, seed: int = 1, progress: Progress = lambda _: None
) -> int:
    """Topics, assignments, states and configs; the brokers register themselves. How many znodes."""
    await make_parents(session)
    return await write_in_batches(session, operations(shape, seed), progress)


async def make_parents(session: Session) -> None:
    """What the first broker of a cluster makes."""
    for path in paths.PERSISTENT:
        try:
            await session.create(path, None)
        except NodeExists:
            continue


def operations(shape: Shape, seed: int) -> Iterator[Create]:
    for index in range(shape.topics):
        topic = shapes.topic(shape, seed, index)
        assigned = shapes.assignment(shape, seed, index)
        led = shapes.leadership(shape, seed, index, assigned)
        yield from topic_creations(topic, assigned)
        yield from state_creations(topic.name, led)


def topic_creations(topic: Topic, assigned: dict[int, Replicas]) -> Iterator[Create]:
    """As a broker writes them that was asked to create the topic."""
    yield Create(paths.topic_config(topic.name), znodes.encode_config(topic.configs))
    node = TopicNode({p: Assignment(r) for p, r in assigned.items()}, topic.id, 0)
    yield Create(paths.topic(topic.name), znodes.encode_topic(node))


def state_creations(topic: str, led: dict[int, Leadership]) -> Iterator[Create]:
    yield Create(paths.partitions(topic), None)
    for partition, leadership in led.items():
        tp = TopicPartition(topic, partition)
        yield Create(paths.partition(tp), None)
        yield Create(paths.partition_state(tp), znodes.encode_state(leadership))


async def write_in_batches(
    session: Session, of: Iterable[Operation], progress: Progress = lambda _: None
) -> int:
    """Multis of one session are carried out in order, so parents may stand just before children."""
    in_flight: deque[tuple[int, asyncio.Task[object]]] = deque()
    done = 0

    async def send(batch: list[Operation]) -> None:
        await session.multi(batch)

    async def finish_oldest() -> None:
        nonlocal done
        count, task = in_flight.popleft()
        await task
        done += count
        progress(done)

    async with asyncio.TaskGroup() as group:
        for batch in batches(of):
            if len(in_flight) == IN_FLIGHT:
                await finish_oldest()
            in_flight.append((len(batch), group.create_task(send(batch))))
        while in_flight:
            await finish_oldest()
    return done


def batches(of: Iterable[Operation]) -> Iterator[list[Operation]]:
    batch: list[Operation] = []
    size = 0
    for operation in of:
        more = operation_bytes(operation)
        if batch and (len(batch) == BATCH_OPERATIONS or size + more > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(operation)
        size += more
    if batch:
        yield batch
