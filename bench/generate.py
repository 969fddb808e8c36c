"""A cluster as a data set: Parquet tables and a manifest, from a preset and a seed.

    python -m bench.generate --preset base-100k --seed 7 --out DIR
    python -m bench.generate --preset tencent-1m --partitions 10000000 --topics 100000 --out DIR
    python -m bench.generate --from-manifest DIR/_manifest.json --out OTHER
    spark-submit --py-files kctl.whl bench/generate.py --preset linkedin-275k --out hdfs:///kctl/li

The same shape and seed give the same content, and the same hash, however Spark divides the work.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial, reduce
from pathlib import Path

import attrs
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import MapType, StructField

from kctl.bench.datasets import (
    MANIFEST,
    Manifest,
    NotADataSet,
    TableContent,
    decode_manifest,
    encode_manifest,
    manifest_of,
    shape_of,
)
from kctl.bench.generation import id_count, rows_of
from kctl.bench.shapes import PRESETS, ImpossibleShape, Shape, UnknownPreset, shape
from kctl.bench.spark import SMALL, Files, JobFailed, failure, read_table, schema_of, spark_session
from kctl.bench.tables import DATA_SET

PARTITIONS_A_TASK = 250_000
HASH_BITS = 64


def made(spark: SparkSession, table: str, of: Shape, seed: int, tasks: int) -> DataFrame:
    ids = spark.range(0, id_count(table, of, seed), 1, tasks)
    make = partial(rows_of, table=table, of=of, seed=seed)
    return ids.mapInArrow(make, schema_of(DATA_SET[table]))


def contents(tables: Mapping[str, DataFrame]) -> dict[str, TableContent]:
    """Rows, and the sum of their hashes: the order of rows and files does not matter."""
    hashes = [
        frame.select(
            sf.lit(name).alias("table"),
            sf.xxhash64(*map(_hashable, frame.schema)).cast("decimal(38,0)").alias("hash"),
        )
        for name, frame in tables.items()
    ]
    found = (
        reduce(DataFrame.unionAll, hashes)
        .groupBy("table")
        .agg(sf.count("*").alias("rows"), sf.sum("hash").alias("sum"))
        .collect()
    )
    sums = {row["table"]: (row["rows"], int(row["sum"]) % 2**HASH_BITS) for row in found}
    absent = (0, 0)  # a table without rows is in no group
    return {name: _content(*sums.get(name, absent)) for name in tables}


def _content(rows: int, total: int) -> TableContent:
    return TableContent(rows, f"{total:016x}")


def _hashable(field: StructField) -> Column:
    """A map has no hash of its own."""
    is_map = isinstance(field.dataType, MapType)
    return sf.array_sort(sf.map_entries(field.name)) if is_map else sf.col(field.name)


def generate(spark: SparkSession, of: Shape, seed: int, out: str, tasks: int | None) -> Manifest:
    """Write the data set to a sibling of `out`, and give it its name when it is whole."""
    files = Files(spark)
    out = out.rstrip("/")
    if files.exists(out):
        raise JobFailed(f"{out} is there already: name another folder, or remove it")
    parent, _, name = out.rpartition("/")
    partial_out = f"{parent}{'/' if parent or out.startswith('/') else ''}_{name}.partial"
    parallelism = spark.sparkContext.defaultParallelism
    if tasks is None:
        least = 1 if of.partitions <= SMALL else 2 * parallelism
        tasks = max(least, of.partitions // PARTITIONS_A_TASK)
    try:
        files.remove(partial_out)
        files.make(partial_out)
    except Py4JJavaError as error:
        raise JobFailed(f"{out} cannot be written: {failure(error)}") from None
    try:
        for table in DATA_SET.values():
            frame = made(spark, table.name, of, seed, tasks)
            frame.write.parquet(f"{partial_out}/{table.name}")
        # What is hashed is what stands there now, not what was meant to.
        written = {t.name: read_table(spark, partial_out, t) for t in DATA_SET.values()}
        manifest = manifest_of(of, seed, contents(written))
        files.write(f"{partial_out}/{MANIFEST}", encode_manifest(manifest))
        files.rename(partial_out, out)
    except BaseException:
        files.remove(partial_out)
        raise
    return manifest


def chosen_shape(arguments: argparse.Namespace) -> tuple[Shape, int]:
    if arguments.from_manifest is not None:
        at = Path(arguments.from_manifest)
        if not at.is_file():
            raise NotADataSet(f"{at} is not there")
        manifest = decode_manifest(at.read_bytes(), str(at))
        return shape_of(manifest), manifest.seed
    of = shape(arguments.preset)
    changed = {
        name: value
        for name in ("topics", "partitions", "brokers", "racks")
        if (value := getattr(arguments, name)) is not None
    }
    if arguments.replication_factor is not None:
        changed["replication"] = ((arguments.replication_factor, 1.0),)
    if changed:
        changed["name"] = f"{of.name}, changed"
        of = attrs.evolve(of, **changed)
    return of, arguments.seed


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="generate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = found.add_mutually_exclusive_group(required=True)
    source.add_argument("--preset", help=", ".join(PRESETS))
    source.add_argument("--from-manifest", metavar="FILE", help="make that data set again")
    found.add_argument("--seed", type=int, default=1)
    found.add_argument("--out", required=True, help="a folder that is not there yet")
    for name in ("topics", "partitions", "brokers", "racks", "replication-factor"):
        found.add_argument(f"--{name}", type=int, metavar="N", help="instead of the preset's")
    found.add_argument(
        "--spark-partitions", type=int, metavar="N", help="tasks for the large tables"
    )
    return found


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        of, seed = chosen_shape(arguments)
        with spark_session("kctl generate", small=of.partitions <= SMALL) as spark:
            started = time.perf_counter()
            manifest = generate(spark, of, seed, arguments.out, arguments.spark_partitions)
            took = time.perf_counter() - started
    except (UnknownPreset, ImpossibleShape, NotADataSet, JobFailed) as error:
        print(f"generate: {error}", file=sys.stderr)
        return 1
    except (PySparkException, Py4JJavaError) as error:
        print(f"generate: {arguments.out}: {failure(error)}", file=sys.stderr)
        return 1
    rows = sum(table.rows for table in manifest.tables.values())
    print(
        f"{of.name}, seed {seed}: {of.partitions:,} partitions, {rows:,} rows in {took:.1f} s"
        f" ({of.partitions / took:,.0f} partitions/s), content {manifest.content_hash}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
