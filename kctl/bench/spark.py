"""Spark as the jobs use it: one way to start it, and files through its own file systems."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from kctl.bench.datasets import MANIFEST, Manifest, NotADataSet, decode_manifest
from kctl.bench.tables import Table
from kctl.zookeeper.jars import ServerUnavailable, find_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

LOCAL_MEMORY: Final = "3g"
CORES_MAX: Final = 8
FEW_CORES: Final = 4
SMALL: Final = 20_000
"""Partitions up to which a data set is small."""

Setting = bool | float | int | str | None


class JobFailed(Exception):
    """The job cannot go on; the message says why, in one line."""


@contextmanager
def spark_session(name: str, *, small: bool = False) -> "Iterator[SparkSession]":
    """Local mode on this machine's cores, unless spark-submit says where to run.

    A session that is there already is used as it is, and goes on. `small`: a job of seconds, for
    which making code to run would take longer than running.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - not needed to run a controller
    except ImportError:
        raise JobFailed(
            "Spark is needed: pip install 'kctl[spark]', or scripts/env --spark"
        ) from None

    settings: dict[str, Setting] = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.shuffle.partitions": "2" if small else "16",
    }
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        settings |= _local_settings(small)
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    spark = SparkSession.builder.appName(name).config(map=settings).getOrCreate()
    if not submitted:
        spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


def _local_settings(small: bool) -> dict[str, Setting]:
    try:
        os.environ["JAVA_HOME"] = str(find_java().resolve().parent.parent)
    except ServerUnavailable as error:
        raise JobFailed(str(error)) from None
    cores = min(os.cpu_count() or 1, CORES_MAX)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # Most of the work is in Python; on few cores a JVM that compiles for later is in its way.
    java = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1" if cores <= FEW_CORES else ""
    return {
        "spark.master": f"local[{cores}]",
        "spark.driver.memory": "1g" if small else LOCAL_MEMORY,
        "spark.driver.extraJavaOptions": java,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.sql.codegen.wholeStage": str(not small).lower(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": str(sys.stderr.isatty() and not small).lower(),
    }


def schema_of(table: Table) -> "StructType":
    from pyspark.sql.types import StructType  # noqa: PLC0415

    schema = StructType.fromDDL(table.ddl())
    assert isinstance(schema, StructType)
    return schema


class Files:
    """Folders and small files wherever Spark's paths point: a disk, HDFS, an object store."""

    def __init__(self, spark: "SparkSession") -> None:
        self._jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - the only way to its file systems
        self._conf = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001

    def _at(self, path: str) -> tuple[Any, Any]:
        at = self._jvm.org.apache.hadoop.fs.Path(path)
        return at.getFileSystem(self._conf), at

    def exists(self, path: str) -> bool:
        system, at = self._at(path)
        return bool(system.exists(at))

    def make(self, path: str) -> None:
        system, at = self._at(path)
        system.mkdirs(at)

    def remove(self, path: str) -> None:
        system, at = self._at(path)
        system.delete(at, True)

    def rename(self, path: str, to: str) -> None:
        system, at = self._at(path)
        if not system.rename(at, self._at(to)[1]):
            raise JobFailed(f"{path} cannot be renamed to {to}")

    def write(self, path: str, content: bytes) -> None:
        system, at = self._at(path)
        stream = system.create(at, True)
        try:
            stream.write(bytearray(content))
        finally:
            stream.close()

    def read(self, path: str) -> bytes:
        system, at = self._at(path)
        stream = system.open(at)
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()


def manifest_at(spark: "SparkSession", folder: str) -> Manifest:
    """As `datasets.read_manifest`, wherever the data set is."""
    files, at = Files(spark), f"{folder}/{MANIFEST}"
    if not files.exists(at):
        raise NotADataSet(
            f"{folder} is not a data set: {MANIFEST}, which is written last, is not there"
        )
    return decode_manifest(files.read(at), at)


def read_table(spark: "SparkSession", folder: str, table: Table) -> "DataFrame":
    return spark.read.schema(schema_of(table)).parquet(f"{folder}/{table.name}")


def failure(error: Exception) -> str:
    """What went wrong, in one line: the last cause, without the stacks of two languages."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("kctl.")]
    if ours:
        # A task's own exception, as Python prints it: the name of its class, then its message.
        return ours[-1].partition(": ")[2] or ours[-1]
    causes = [line for line in lines if line.startswith("Caused by:")]
    thrown = [line for line in lines if re.match(r":?\s*[\w.$]+(Exception|Error)\b", line)]
    found = causes[-1:] or thrown[:1] or lines[:1] or [type(error).__name__]
    # Without Java's and Python's names for it, as far as there is a message behind.
    message = re.sub(r"^(Caused by)?:?\s*[\w.$]+(Exception|Error):?\s*", "", found[0])
    return message or found[0]
