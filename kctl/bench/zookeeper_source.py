"""ZooKeeper as a data source of Spark: `spark.read.format("zookeeper")`, `.write.format(...)`. ::

    register(spark)
    znodes = spark.read.format("zookeeper").option("connect", "127.0.0.1:2181/kafka").load()
    znodes.where("path LIKE '/brokers/topics/%/state'")
    frame.write.format("zookeeper").option("connect", "127.0.0.1:2181").mode("append").save()

Reading only reads. Writing takes the columns `path` and `data`, creates what is missing, sets what
differs, and deletes nothing: writing the same again changes nothing, and a write that was cut short
is completed by writing again. Executors need the kctl wheel and pyarrow.

Options: `connect`; `path` (where to begin, default `/`); `tasks` (of a read, default 4);
`session_timeout_ms` (default 15000); `max_bytes` (of one multi, default 524288).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import attrs
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    EqualTo,
    Filter,
    InputPartition,
    StringStartsWith,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, StringType, StructType

from kctl.bench.tables import ZNODES
from kctl.bench.zookeeper_io import Target, Znode, read, subtrees, write

if TYPE_CHECKING:
    import pyarrow as pa

TASKS: Final = 4
SUBTREES_A_TASK: Final = 8
"""Subtrees differ in size: with several for each task they even out."""


class BadOption(ValueError):
    """An option of the data source that cannot be used."""


def register(spark: SparkSession) -> None:
    spark.dataSource.register(ZooKeeperDataSource)
    # So that a filter on `path` reads only that part of the tree.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


class ZooKeeperDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "zookeeper"

    def schema(self) -> str:
        return ZNODES.ddl()

    def reader(self, schema: StructType) -> DataSourceReader:
        if schema.names != ZNODES.names():
            raise BadOption(f"the columns of a read are {', '.join(ZNODES.names())}")
        root = self.options.get("path", "/")
        if not root.startswith("/") or (root != "/" and root.endswith("/")):
            raise BadOption(f"path is {root!r}, which is not the path of a znode")
        return ZooKeeperReader(self._target(), root, self._number("tasks", TASKS))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise BadOption("mode overwrite would delete znodes, which is not done: use append")
        wanted = {"path": StringType(), "data": BinaryType()}
        for column, kind in wanted.items():
            if column not in schema.names or schema[column].dataType != kind:
                raise BadOption(f"what is written has a column {column} {kind.simpleString()}")
        return ZooKeeperWriter(self._target())

    def _target(self) -> Target:
        connect = self.options.get("connect")
        if not connect:
            raise BadOption('option("connect", "host:port[/chroot]") is missing')
        defaults = Target(connect)
        return Target(
            connect,
            self._number("session_timeout_ms", defaults.session_timeout_ms),
            self._number("max_bytes", defaults.max_bytes),
        )

    def _number(self, option: str, default: int) -> int:
        text = self.options.get(option, str(default))
        if not text.isdecimal() or int(text) < 1:
            raise BadOption(f"option {option} is {text!r}, which is not a number from 1")
        return int(text)


@attrs.define(init=False)
class Portion(InputPartition):
    singles: list[str]
    roots: list[str]

    def __init__(self, singles: list[str], roots: list[str]) -> None:
        self.singles = singles
        self.roots = roots


class ZooKeeperReader(DataSourceReader):
    def __init__(self, target: Target, root: str, tasks: int) -> None:
        self._target = target
        self._root = root
        self._tasks = tasks

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """A filter on the path says where to begin; Spark still applies it to each row."""
        for found in filters:
            if isinstance(found, EqualTo | StringStartsWith) and found.attribute == ("path",):
                prefix = str(found.value).rpartition("/")[0]
                if prefix.startswith(self._root.rstrip("/") + "/"):
                    self._root = prefix
            yield found

    def partitions(self) -> Sequence[InputPartition]:
        singles, roots = subtrees(self._target, self._root, self._tasks * SUBTREES_A_TASK)
        tasks = range(self._tasks)
        portions = [Portion(singles[n :: self._tasks], roots[n :: self._tasks]) for n in tasks]
        return [portion for portion in portions if portion.singles or portion.roots] or [
            Portion([], [])
        ]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        assert isinstance(partition, Portion)
        return (_batch(part) for part in read(self._target, partition.singles, partition.roots))


def _batch(znodes: Sequence[Znode]) -> "pa.RecordBatch":
    import pyarrow as pa  # noqa: PLC0415 - on the executor

    stats = [znode.stat for znode in znodes]
    fixed = ("version", "czxid", "mzxid", "ctime", "mtime", "ephemeral_owner", "num_children")
    columns: dict[str, list[object]] = {
        "path": [znode.path for znode in znodes],
        "data": [znode.data for znode in znodes],
        "error": [znode.error for znode in znodes],
    }
    columns |= {name: [stat and getattr(stat, name) for stat in stats] for name in fixed}
    schema = ZNODES.arrow()
    arrays = [pa.array(columns[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class ZooKeeperWriter(DataSourceArrowWriter):
    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        rows = (
            row
            for batch in iterator
            for row in zip(
                batch.column("path").to_pylist(), batch.column("data").to_pylist(), strict=True
            )
        )
        write(self._target, rows)
        return WriterCommitMessage()
