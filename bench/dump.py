"""What a ZooKeeper holds, as Parquet: reads only, whatever runs there meanwhile.

    python -m bench.dump --zookeeper 127.0.0.1:2181/kafka --out DIR [--path /brokers/topics]

Not one point in time: each znode is read for itself. Columns are those of the data source.
"""

import argparse
import sys
from collections.abc import Sequence

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kctl.bench.spark import Files, JobFailed, failure, spark_session
from kctl.bench.zookeeper_source import register


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="dump", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--zookeeper", required=True, metavar="HOST:PORT[/CHROOT]")
    found.add_argument("--path", default="/", help="where to begin")
    found.add_argument("--out", required=True, help="a folder that is not there yet")
    return found


def dump(spark: SparkSession, connect: str, path: str, out: str) -> int:
    """How many znodes there were."""
    if Files(spark).exists(out):
        raise JobFailed(f"{out} is there already")
    register(spark)
    znodes = spark.read.format("zookeeper").option("connect", connect).option("path", path).load()
    znodes.write.parquet(out)
    return spark.read.parquet(out).count()


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        with spark_session("kctl dump") as spark:
            count = dump(spark, arguments.zookeeper, arguments.path, arguments.out)
    except JobFailed as error:
        print(f"dump: {error}", file=sys.stderr)
        return 1
    except (PySparkException, Py4JJavaError) as error:
        print(f"dump: {failure(error)}", file=sys.stderr)
        return 1
    print(f"{count:,} znodes: {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
