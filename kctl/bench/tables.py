"""The columns of every Parquet table: of a data set, and of what a run leaves behind.

One description for pyarrow, for Spark and for the page that explains them. pyarrow is imported only
where a table is read or written.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION: Final = 1
"""Rises when a column changes its name, type or meaning."""

Kind = Literal["string", "int", "long", "double", "ints", "strings", "bytes"]

_SPARK: Final[Mapping[Kind, str]] = {
    "string": "STRING",
    "int": "INT",
    "long": "BIGINT",
    "double": "DOUBLE",
    "ints": "ARRAY<INT>",
    "strings": "MAP<STRING, STRING>",
    "bytes": "BINARY",
}


@attrs.frozen
class Column:
    name: str
    kind: Kind
    meaning: str
    optional: bool = False


@attrs.frozen
class Table:
    name: str
    row: str
    """What one row is."""
    columns: tuple[Column, ...]

    def arrow(self) -> "pa.Schema":
        import pyarrow as pa  # noqa: PLC0415 - not needed to run a controller

        kinds = {
            "string": pa.string(),
            "int": pa.int32(),
            "long": pa.int64(),
            "double": pa.float64(),
            "ints": pa.list_(pa.int32()),
            "strings": pa.map_(pa.string(), pa.string()),
            "bytes": pa.binary(),
        }
        return pa.schema([pa.field(c.name, kinds[c.kind]) for c in self.columns])

    def ddl(self) -> str:
        """For Spark's `StructType.fromDDL`."""
        return ", ".join(f"{c.name} {_SPARK[c.kind]}" for c in self.columns)

    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def markdown(self) -> str:
        """For the page that explains it."""
        kinds = {"strings": "map of strings", "ints": "list of int", "bytes": "binary"}
        lines = [f"`{self.name}`: one row is {self.row}.", "", "| column | type | meaning |"]
        lines.append("|---|---|---|")
        for c in self.columns:
            kind = kinds.get(c.kind, c.kind) + (", may be null" if c.optional else "")
            lines.append(f"| `{c.name}` | {kind} | {c.meaning} |")
        return "\n".join(lines)


def _table(name: str, row: str, *columns: Column) -> Table:
    return Table(name, row, columns)


# -- a data set: a cluster, and what happens to it ----------------------------------------------

_REPLICAS: Final = Column("replicas", "ints", "all replicas, the preferred leader first")
_TOPIC: Final = Column("topic", "string", "name of the topic")
_PARTITION: Final = Column("partition", "int", "number of the partition within its topic")

DATA_SET: Final[Mapping[str, Table]] = {
    table.name: table
    for table in (
        _table(
            "brokers",
            "a broker",
            Column("id", "int", "broker id, from 1"),
            Column("host", "string", "host of its listener"),
            Column("port", "int", "port of its listener"),
            Column("rack", "string", "its rack, if brokers have any", optional=True),
            Column("epoch", "long", "stands for the czxid of its registration"),
        ),
        _table(
            "topics",
            "a topic",
            Column("topic", "string", "name of the topic"),
            Column("topic_id", "string", "topic id as Kafka writes it"),
            Column("partitions", "int", "number of partitions"),
            Column("replication_factor", "int", "replicas of each partition"),
            Column("configs", "strings", "configs of its own; often none"),
        ),
        _table(
            "assignments",
            "a partition",
            _TOPIC,
            _PARTITION,
            _REPLICAS,
        ),
        _table(
            "leadership",
            "a partition",
            _TOPIC,
            _PARTITION,
            Column("leader", "int", "broker that leads"),
            Column("leader_epoch", "int", "how often leadership changed"),
            Column("isr", "ints", "replicas in sync, in the order of the assignment"),
            Column("controller_epoch", "int", "controller that wrote it"),
        ),
        _table(
            "events",
            "something that happens to the cluster",
            Column("trace", "string", "the trace that it belongs to, for example rolling_restart"),
            Column("sequence", "long", "its place in the trace"),
            Column("at_ms", "long", "milliseconds since the trace began"),
            Column(
                "kind",
                "string",
                "broker_stop, broker_start, create_topic, delete_topic, reassign or isr_change",
            ),
            Column("broker", "int", "which broker stops, starts or reports", optional=True),
            Column("topic", "string", "which topic", optional=True),
            Column("partition", "int", "which partition", optional=True),
            Column("partitions", "int", "number of partitions of a new topic", optional=True),
            Column("replicas", "ints", "target of a reassignment, or the new ISR", optional=True),
        ),
    )
}

# -- ZooKeeper ----------------------------------------------------------------------------------

ZNODES: Final = _table(
    "znodes",
    "a znode",
    Column("path", "string", "path, below the chroot if the address has one"),
    Column("data", "bytes", "its data, null if it has none", optional=True),
    Column("version", "int", "how often the data was written since"),
    Column("czxid", "long", "transaction that created it"),
    Column("mzxid", "long", "transaction that wrote its data last"),
    Column("ctime", "long", "when it was created, in milliseconds since 1970"),
    Column("mtime", "long", "when its data was written last, in milliseconds since 1970"),
    Column("ephemeral_owner", "long", "session that it ends with, 0 for none"),
    Column("num_children", "int", "number of children"),
    Column("error", "string", "why it could not be read, for example NO_AUTH", optional=True),
)
"""What the data source `zookeeper` reads. It writes `path` and `data`; other columns are ignored."""

# -- what a run leaves behind -------------------------------------------------------------------

_RUN: Final = Column("run_id", "string", "the run")
_SYSTEM: Final = Column("system", "string", "kctl, kafka or floor")
_SCENARIO: Final = Column("scenario", "string", "what was measured, for example failover")
_PARTITIONS: Final = Column("partitions", "long", "partitions of the cluster")
_REPEAT: Final = Column("repeat", "int", "which repetition, from 0")
_BELIEF: Final = (
    _TOPIC,
    _PARTITION,
    Column("leader", "int", "broker that leads, -1 for none"),
    Column("leader_epoch", "int", "leader epoch"),
    Column("isr", "ints", "replicas in sync"),
    Column("replicas", "ints", "all replicas"),
)

RUN: Final[Mapping[str, Table]] = {
    table.name: table
    for table in (
        _table(
            "events",
            "an event that the controller handled",
            _RUN,
            _SYSTEM,
            _SCENARIO,
            _PARTITIONS,
            _REPEAT,
            Column("sequence", "long", "order in which events were handled"),
            Column("event", "string", "kind of the event"),
            Column("queued_at", "double", "seconds from the start of the run"),
            Column("started_at", "double", "seconds from the start of the run"),
            Column("finished_at", "double", "seconds from the start of the run"),
            Column("queue_depth", "int", "events waiting when this one was taken"),
            Column("effects", "int", "effects that were asked for"),
            Column("zookeeper_requests", "int", "requests to ZooKeeper"),
            Column("zookeeper_rows", "int", "znodes in these requests"),
            Column("zookeeper_bytes", "long", "bytes of these requests and their replies"),
            Column("longest_step", "double", "seconds of the longest step between two awaits"),
            Column("loop_stall", "double", "seconds that the event loop came too late, at most"),
        ),
        _table(
            "scenarios",
            "one repetition of a scenario",
            _RUN,
            _SYSTEM,
            _SCENARIO,
            _PARTITIONS,
            Column("brokers", "int", "brokers of the cluster"),
            _REPEAT,
            Column("seconds", "double", "how long it took"),
            Column("rate", "double", "operations a second, where that is measured", optional=True),
            Column("last_znode_seconds", "double", "until the last znode was written"),
            Column("last_request_seconds", "double", "until the last request was received"),
            Column("cpu_seconds", "double", "of the controller, or of the bare client"),
            Column("zookeeper_cpu_seconds", "double", "of ZooKeeper"),
            Column("simulator_cpu_seconds", "double", "of the simulated brokers"),
            Column("peak_rss_bytes", "long", "of the controller"),
            Column("zookeeper_requests", "long", "requests to ZooKeeper"),
            Column("longest_step", "double", "seconds between two awaits, thread CPU time"),
            Column("stall_p99", "double", "seconds that the event loop came too late"),
            Column("stall_max", "double", "seconds that the event loop came too late"),
            Column("noise", "double", "share of the machine that others took, from 0 to 1"),
        ),
        _table("beliefs", "what a broker believes", Column("broker", "int", "who"), *_BELIEF),
        _table("truth", "what ZooKeeper says of a partition", *_BELIEF),
        _table(
            "phases",
            "a phase of a scenario",
            _RUN,
            _SYSTEM,
            _SCENARIO,
            _REPEAT,
            Column("phase", "string", "for example ReadPartitions, or LeaderAndIsr received"),
            Column("started_at", "double", "seconds from the start of the scenario"),
            Column("finished_at", "double", "seconds from the start of the scenario"),
        ),
    )
}


def write_rows(
    directory: Path, table: Table, rows: Iterable[Mapping[str, Any]], part: str = "part-0"
) -> Path:
    """One Parquet file of the table `directory/<name>`; several parts make one table."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    to = directory / table.name / f"{part}.parquet"
    to.parent.mkdir(parents=True, exist_ok=True)
    schema = table.arrow()
    columns: dict[str, list[Any]] = {name: [] for name in table.names()}
    for row in rows:
        if row.keys() - columns.keys():
            raise ValueError(f"{table.name} has no column {sorted(row.keys() - columns.keys())}")
        for name, values in columns.items():
            values.append(row.get(name))
    pq.write_table(pa.Table.from_pydict(columns, schema=schema), to)
    return to
