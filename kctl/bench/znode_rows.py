"""From the tables of a data set to znodes. Runs on Spark's executors."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kctl.bench.loading import state_creations, topic_creations
from kctl.bench.shapes import Topic
from kctl.model.rows import Leadership
from kctl.zookeeper.multi import Create

if TYPE_CHECKING:
    import pyarrow as pa


def znodes(rows: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """For `mapInArrow`: path and data, parents first."""
    import pyarrow as pa  # noqa: PLC0415 - on the executor

    schema = pa.schema([("path", pa.string()), ("data", pa.binary())])
    for batch in rows:
        made: list[Create] = []
        for row in batch.to_pylist():
            made += _creations(row)
        columns = [pa.array([c.path for c in made]), pa.array([c.data for c in made], pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _creations(row: dict[str, Any]) -> Iterator[Create]:
    configs = {entry["key"]: entry["value"] for entry in row["configs"]}
    assigned = {entry["partition"]: tuple(entry["replicas"]) for entry in row["assigned"]}
    led = {
        entry["partition"]: Leadership(
            entry["leader"],
            tuple(entry["isr"]),
            entry["leader_epoch"],
            entry["controller_epoch"],
            0,
        )
        for entry in row["led"]
    }
    name = row["topic"]
    topic = Topic(0, name, row["topic_id"], row["partitions"], row["replication_factor"], configs)
    yield from topic_creations(topic, assigned)
    yield from state_creations(name, led)
