"""The rows of a data set as Arrow batches. Runs on Spark's executors, and anywhere else."""

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from kctl.bench import shapes, traces
from kctl.bench.shapes import Shape
from kctl.bench.tables import DATA_SET
from kctl.bench.traces import TRACES
from kctl.model.rows import Leadership, Replicas

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_IN_BATCH: Final = 50_000
"""About: a topic is never split."""


def id_count(table: str, of: Shape, seed: int) -> int:
    """How many ids the rows of a table are functions of."""
    match table:
        case "brokers":
            return of.brokers
        case "events":
            return sum(traces.trace_length(of, seed, name) for name in TRACES)
        case _:
            return of.topics


def batches(table: str, of: Shape, seed: int, ids: Iterable[int]) -> "Iterator[pa.RecordBatch]":
    """The rows of these ids."""
    made = _MAKERS[table](of, seed)
    portion: list[int] = []
    rows = 0
    by_partition = table in {"assignments", "leadership"}
    for number in ids:
        portion.append(number)
        rows += shapes.partition_count(of, seed, number) if by_partition else 1
        if rows >= ROWS_IN_BATCH:
            yield made(portion)
            portion, rows = [], 0
    if portion:
        yield made(portion)


def rows_of(
    ids: "Iterator[pa.RecordBatch]", table: str, of: Shape, seed: int
) -> "Iterator[pa.RecordBatch]":
    """For `mapInArrow`."""
    return batches(table, of, seed, (n for batch in ids for n in batch.column(0).to_pylist()))


_Made = Callable[[list[int]], "pa.RecordBatch"]


def _brokers(of: Shape, seed: int) -> _Made:
    def made(ids: list[int]) -> "pa.RecordBatch":
        found = [shapes.broker(of, seed, number) for number in ids]
        return _batch(
            "brokers",
            [broker.id for broker in found],
            [broker.endpoints[0].host for broker in found],
            [broker.endpoints[0].port for broker in found],
            [broker.rack for broker in found],
            [broker.epoch for broker in found],
        )

    return made


def _topics(of: Shape, seed: int) -> _Made:
    def made(ids: list[int]) -> "pa.RecordBatch":
        found = [shapes.topic(of, seed, number) for number in ids]
        return _batch(
            "topics",
            [topic.name for topic in found],
            [topic.id for topic in found],
            [topic.partitions for topic in found],
            [topic.replication_factor for topic in found],
            [list(topic.configs.items()) for topic in found],
        )

    return made


def _assignments(of: Shape, seed: int) -> _Made:
    def made(ids: list[int]) -> "pa.RecordBatch":
        names: list[str] = []
        partitions: list[int] = []
        replicas: list[Replicas] = []
        for number in ids:
            assigned = shapes.assignment(of, seed, number)
            names += [shapes.topic_name(of, number)] * len(assigned)
            partitions += assigned
            replicas += assigned.values()
        return _batch("assignments", names, partitions, _lists(replicas))

    return made


def _leadership(of: Shape, seed: int) -> _Made:
    def made(ids: list[int]) -> "pa.RecordBatch":
        names: list[str] = []
        partitions: list[int] = []
        found: list[Leadership] = []
        for number in ids:
            led = shapes.leadership(of, seed, number)
            names += [shapes.topic_name(of, number)] * len(led)
            partitions += led
            found += led.values()
        return _batch(
            "leadership",
            names,
            partitions,
            [led.leader for led in found],
            [led.leader_epoch for led in found],
            _lists([led.isr for led in found]),
            [led.controller_epoch for led in found],
        )

    return made


def _events(of: Shape, seed: int) -> _Made:
    names = list(TRACES)
    ends = list(accumulate(traces.trace_length(of, seed, name) for name in names))

    def event(number: int) -> traces.Happening:
        which = next(n for n, end in enumerate(ends) if number < end)
        first = ends[which - 1] if which else 0
        return traces.happening(of, seed, names[which], number - first)

    def made(ids: list[int]) -> "pa.RecordBatch":
        found = [event(number) for number in ids]
        columns = DATA_SET["events"].names()
        return _batch("events", *([getattr(e, name) for e in found] for name in columns))

    return made


_MAKERS: Final = {
    "brokers": _brokers,
    "topics": _topics,
    "assignments": _assignments,
    "leadership": _leadership,
    "events": _events,
}


def _batch(table: str, *columns: object) -> "pa.RecordBatch":
    import pyarrow as pa  # noqa: PLC0415 - not needed to run a controller

    schema = DATA_SET[table].arrow()
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _lists(values: list[Replicas]) -> "pa.ListArray":
    """Much quicker than to hand tuples to pyarrow one by one."""
    import pyarrow as pa  # noqa: PLC0415

    offsets, flat = array("i", [0]), array("i")
    for value in values:
        flat.extend(value)
        offsets.append(len(flat))
    return pa.ListArray.from_arrays(
        pa.Array.from_buffers(pa.int32(), len(offsets), [None, pa.py_buffer(offsets)]),
        pa.Array.from_buffers(pa.int32(), len(flat), [None, pa.py_buffer(flat)]),
    )
