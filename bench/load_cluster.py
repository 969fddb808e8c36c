"""A data set into ZooKeeper, by Spark: each task writes the znodes of its topics.

    python -m bench.load_cluster DATA_SET --zookeeper 127.0.0.1:2181
    spark-submit --py-files kctl.whl bench/load_cluster.py hdfs:///kctl/li --zookeeper zk1:2181/big

Only an empty ZooKeeper is loaded, or one in which a load of the same data set was cut short: that
is completed. `/kctl_data_set` says which data set it is, and that it is whole, when it is.
Brokers are not registered, because registrations end with their brokers; `--registrations` writes
lasting ones, for looking at a cluster that does not run.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from kctl.bench.datasets import Manifest, NotADataSet, read_manifest, shape_of
from kctl.bench.loading import make_parents
from kctl.bench.shapes import Shape, brokers
from kctl.bench.spark import SMALL, JobFailed, failure, manifest_at, read_table, spark_session
from kctl.bench.tables import DATA_SET
from kctl.bench.znode_rows import znodes
from kctl.bench.zookeeper_io import Target, ZooKeeperGone, reaching
from kctl.bench.zookeeper_source import register
from kctl.model.brokers import Broker
from kctl.zookeeper import paths
from kctl.zookeeper.errors import NodeExists, NoNode
from kctl.zookeeper.session import Session

MARK = "/kctl_data_set"
TASKS = 8
"""One leader writes everything: more tasks would only wait for it."""


class Mark(msgspec.Struct, frozen=True):
    content_hash: str
    whole: bool


# -- from tables to znodes ---------------------------------------------------------------------


def by_topic(spark: SparkSession, folder: str) -> DataFrame:
    """One row a topic, with its partitions: a task then writes a topic before its partitions."""
    assignments = read_table(spark, folder, DATA_SET["assignments"])
    leadership = read_table(spark, folder, DATA_SET["leadership"])
    lists = (
        assignments.groupBy("topic")
        .agg(sf.array_sort(sf.collect_list(sf.struct("partition", "replicas"))).alias("assigned"))
        .join(
            leadership.groupBy("topic").agg(
                sf.array_sort(
                    sf.collect_list(
                        sf.struct("partition", "leader", "leader_epoch", "controller_epoch", "isr")
                    )
                ).alias("led")
            ),
            "topic",
        )
    )
    topics = read_table(spark, folder, DATA_SET["topics"])
    return topics.withColumn("configs", sf.map_entries("configs")).join(lists, "topic")


# -- before and after --------------------------------------------------------------------------


async def begin(target: Target, manifest: Manifest, of: Shape, registrations: bool) -> None:
    """Make sure that nobody's cluster is here, and leave the mark of a load that is not whole."""
    async with Session.open(target.connect, timeout_ms=target.session_timeout_ms) as zk:
        if await zk.exists(paths.CONTROLLER) is not None:
            raise JobFailed(f"{target.connect} has a controller: this is a running cluster")
        found = await _mark(zk)
        if found is None and await _children(zk, paths.TOPICS):
            raise JobFailed(f"{target.connect} has topics that no data set left there")
        if found is not None and found.content_hash != manifest.content_hash:
            raise JobFailed(f"{target.connect} has another data set, {found.content_hash}")
        await _set_mark(zk, Mark(manifest.content_hash, whole=False))
        await make_parents(zk)
        if registrations:
            for broker in brokers(of, manifest.seed):
                await _put(zk, paths.broker(broker.id), _registration(broker))


async def finish(target: Target, manifest: Manifest) -> None:
    async with Session.open(target.connect, timeout_ms=target.session_timeout_ms) as zk:
        topics = len(await _children(zk, paths.TOPICS))
        expected = manifest.tables["topics"].rows
        if topics != expected:
            raise JobFailed(f"{target.connect} has {topics:,} topics instead of {expected:,}")
        await _set_mark(zk, Mark(manifest.content_hash, whole=True))


async def _mark(zk: Session) -> Mark | None:
    try:
        data, _ = await zk.get(MARK)
        return msgspec.json.decode(data, type=Mark)
    except NoNode:
        return None
    except ValueError:
        raise JobFailed(f"{MARK} is not what a load writes") from None


async def _set_mark(zk: Session, mark: Mark) -> None:
    await _put(zk, MARK, msgspec.json.encode(mark))


async def _put(zk: Session, path: str, data: bytes) -> None:
    try:
        await zk.create(path, data)
    except NodeExists:
        await zk.set(path, data)


async def _children(zk: Session, path: str) -> list[str]:
    try:
        return await zk.children(path)
    except NoNode:
        return []


def _registration(broker: Broker) -> bytes:
    at = broker.endpoints[0]
    content = {
        "version": 5,
        "host": at.host,
        "port": at.port,
        "jmx_port": -1,
        "timestamp": "0",
        "endpoints": [f"{at.listener}://{at.host}:{at.port}"],
        "listener_security_protocol_map": {at.listener: at.security_protocol},
        "features": {},
        **({"rack": broker.rack} if broker.rack is not None else {}),
    }
    return msgspec.json.encode(content)


# -- the job -----------------------------------------------------------------------------------


def load(
    spark: SparkSession, folder: str, target: Target, registrations: bool
) -> tuple[Shape, int]:
    """The shape that was loaded, and how many znodes it has."""
    manifest = manifest_at(spark, folder)
    of = shape_of(manifest)
    register(spark)
    tasks = 1 if of.partitions <= SMALL else TASKS
    spark.conf.set("spark.sql.shuffle.partitions", str(tasks))
    # The writer's tasks keep a server busy; adaptive plans would put small sets into one of them.
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    with reaching(target):
        asyncio.run(begin(target, manifest, of, registrations))
    rows = by_topic(spark, folder).mapInArrow(znodes, "path STRING, data BINARY")
    writer = rows.write.format("zookeeper").mode("append").option("connect", target.connect)
    writer.option("session_timeout_ms", str(target.session_timeout_ms)).save()
    with reaching(target):
        asyncio.run(finish(target, manifest))
    return of, 3 * of.topics + 2 * of.partitions


def is_small(folder: str) -> bool:
    """Whether it is worth while to start Spark for small; a folder elsewhere is taken for large."""
    at = Path(folder)
    return at.is_dir() and shape_of(read_manifest(at)).partitions <= SMALL


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="load_cluster",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("data_set", help="a folder that generate wrote")
    found.add_argument("--zookeeper", required=True, metavar="HOST:PORT[/CHROOT]")
    found.add_argument(
        "--registrations", action="store_true", help="register the brokers, for good"
    )
    found.add_argument("--session-timeout-ms", type=int, default=30_000, metavar="MS")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    target = Target(arguments.zookeeper, arguments.session_timeout_ms)
    try:
        with spark_session("kctl load", small=is_small(arguments.data_set)) as spark:
            started = time.perf_counter()
            of, count = load(spark, arguments.data_set, target, arguments.registrations)
            took = time.perf_counter() - started
    except (JobFailed, NotADataSet, ZooKeeperGone, ValueError) as error:
        print(f"load_cluster: {error}", file=sys.stderr)
        return 1
    except (PySparkException, Py4JJavaError) as error:
        print(f"load_cluster: {failure(error)}", file=sys.stderr)
        print("load_cluster: not whole; run it again to complete it", file=sys.stderr)
        return 1
    print(
        f"{of.name}: {of.partitions:,} partitions, {count:,} znodes in {took:.1f} s"
        f" ({of.partitions / took:,.0f} partitions/s, {count / took:,.0f} znodes/s)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
