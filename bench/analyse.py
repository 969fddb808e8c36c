"""What a run left behind, put into numbers: percentiles, growth, convergence, before and after.

    python -m bench.analyse RUN --out DIR [--before OTHER_RUN]
    spark-submit --py-files kctl.whl bench/analyse.py hdfs:///kctl/run --out report

RUN is a folder with the tables `scenarios` and, as far as they were recorded, `events`, `phases`,
`beliefs` and `truth`. DIR/analysis.json is what `report` draws from. The exit code is 3 if brokers
believe something else than ZooKeeper holds.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as sf

from kctl.bench import analysis as a
from kctl.bench.spark import Files, JobFailed, failure, read_table, spark_session
from kctl.bench.tables import RUN

BIN_SECONDS = 0.1
EXAMPLES_MAX = 20

WHICH = ("system", "scenario", "partitions")


def tables_of(spark: SparkSession, folder: str) -> dict[str, DataFrame]:
    files = Files(spark)
    names = [name for name in RUN if files.exists(f"{folder}/{name}")]
    if "scenarios" not in names:
        raise JobFailed(f"{folder} is not what a run left: the table scenarios is not there")
    return {name: read_table(spark, folder, RUN[name]).cache() for name in names}


# -- scenarios ---------------------------------------------------------------------------------


def scenario_summaries(scenarios: DataFrame) -> list[a.ScenarioSummary]:
    middle = ["seconds", "rate", "last_znode_seconds", "last_request_seconds", "cpu_seconds"]
    middle += ["zookeeper_cpu_seconds", "simulator_cpu_seconds", "zookeeper_requests", "noise"]
    rows = (
        scenarios.groupBy(*WHICH)
        .agg(
            sf.max("brokers").alias("brokers"),
            sf.count("*").alias("count"),
            *(sf.median(name).alias(name) for name in middle),
            sf.min("seconds").alias("least"),
            sf.max("seconds").alias("most"),
            *(sf.max(n).alias(n) for n in ("peak_rss_bytes", "longest_step")),
            *(sf.max(n).alias(n) for n in ("stall_p99", "stall_max")),
            sf.max("noise").alias("noise_max"),
        )
        .withColumn("us_a_partition", sf.col("seconds") * 1e6 / sf.col("partitions"))
        .orderBy("scenario", "partitions", "system")
    )
    return [a.ScenarioSummary(**row.asDict()) for row in rows.collect()]


def fits(scenarios: DataFrame) -> list[a.Fit]:
    """Over the medians, so that a size with more repetitions does not count for more."""
    medians = scenarios.groupBy(*WHICH).agg(sf.median("seconds").alias("s"))
    logs = (sf.log("s"), sf.log("partitions"))
    rows = (
        medians.where("s > 0")
        .groupBy("system", "scenario")
        .agg(
            sf.count("*").alias("sizes"),
            sf.regr_slope(*logs).alias("exponent"),
            (sf.regr_slope("s", "partitions") * 1e6).alias("us_a_partition"),
            sf.regr_intercept("s", "partitions").alias("seconds_at_zero"),
            sf.regr_r2("s", "partitions").alias("r2"),
        )
        .where("sizes > 1")
        .orderBy("scenario", "system")
    )
    return [a.Fit(**row.asDict()) for row in rows.collect()]


def growth(scenarios: DataFrame) -> list[a.Growth]:
    medians = scenarios.groupBy(*WHICH).agg(sf.median("seconds").alias("s"))
    by_size = Window.partitionBy("system", "scenario").orderBy("partitions")
    rows = (
        medians.withColumn("next_s", sf.lead("s").over(by_size))
        .withColumn("to_partitions", sf.lead("partitions").over(by_size))
        .where("next_s IS NOT NULL AND s > 0")
        .orderBy("scenario", "system", "partitions")
    )
    return [_growth(row) for row in rows.collect()]


def _growth(row: Row) -> a.Growth:
    doublings = math.log2(row["to_partitions"] / row["partitions"])
    ratio = (row["next_s"] / row["s"]) ** (1 / doublings)
    which = (row["system"], row["scenario"], row["partitions"], row["to_partitions"])
    return a.Growth(*which, ratio)


def changes(before: DataFrame, after: DataFrame) -> list[a.Change]:
    def summed(scenarios: DataFrame, name: str) -> DataFrame:
        return scenarios.groupBy(*WHICH).agg(
            sf.median("seconds").alias(name),
            sf.min("seconds").alias(f"{name}_least"),
            sf.max("seconds").alias(f"{name}_most"),
        )

    apart = "before_most < after_least OR after_most < before_least"
    rows = (
        summed(before, "before")
        .join(summed(after, "after"), list(WHICH))
        .withColumn("ratio", sf.col("after") / sf.col("before"))
        .withColumn("certain", sf.expr(apart))
        .select(*WHICH, "before", "after", "ratio", "certain")
        .orderBy("scenario", "partitions", "system")
    )
    return [a.Change(**row.asDict()) for row in rows.collect()]


# -- events ------------------------------------------------------------------------------------


def _quantiles(of: Column, name: str) -> Column:
    wanted = sf.array(sf.lit(0.5), sf.lit(0.95), sf.lit(0.99), sf.lit(1.0))
    return sf.percentile(of, wanted).alias(name)


def event_costs(events: DataFrame) -> list[a.EventCost]:
    took = sf.col("finished_at") - sf.col("started_at")
    sums = ("zookeeper_requests", "zookeeper_rows", "zookeeper_bytes")
    rows = (
        events.groupBy(*WHICH, "event")
        .agg(
            sf.count("*").alias("count"),
            _quantiles(sf.col("started_at") - sf.col("queued_at"), "queued"),
            _quantiles(took, "handled"),
            _quantiles(sf.col("queue_depth").cast("double"), "depth"),
            *(sf.coalesce(sf.sum(name), sf.lit(0)).alias(name) for name in sums),
            sf.coalesce(sf.max("longest_step"), sf.lit(0.0)).alias("longest_step"),
            (sf.sum(took) * 1e6 / sf.nullif(sf.sum("zookeeper_rows"), sf.lit(0))).alias("us_a_row"),
        )
        .orderBy("scenario", "partitions", "system", "event")
    )
    return [_event_cost(row) for row in rows.collect()]


def _event_cost(row: Row) -> a.EventCost:
    found = row.asDict()
    for name in ("queued", "handled", "depth"):
        found[name] = a.Quantiles(*(found[name] or (0.0,) * 4))
    return a.EventCost(**found)


def throughput(events: DataFrame) -> list[a.Throughput]:
    one = Window.partitionBy("run_id", *WHICH, "repeat")
    repeats = events.groupBy(*WHICH).agg(sf.countDistinct("run_id", "repeat").alias("repeats"))
    began = sf.min("queued_at").over(one)
    at = sf.floor((sf.col("finished_at") - began) / BIN_SECONDS) * BIN_SECONDS
    rows = (
        events.withColumn("at", at.cast("double"))
        .groupBy(*WHICH, "at")
        .agg(sf.count("*").alias("n"), sf.avg("queue_depth").alias("depth"))
        .join(repeats, list(WHICH))
        .select(*WHICH, "at", (sf.col("n") / sf.col("repeats")).alias("events"), "depth")
        .orderBy("scenario", "partitions", "system", "at")
    )
    return [a.Throughput(**row.asDict()) for row in rows.collect()]


def latencies(events: DataFrame) -> list[a.Bin]:
    total = sf.greatest(sf.col("finished_at") - sf.col("queued_at"), sf.lit(1e-6))
    quarter = sf.floor(sf.log10(total) * 4)
    rows = (
        events.groupBy(*WHICH, "event", quarter.alias("quarter"))
        .agg(sf.count("*").alias("count"))
        .select(*WHICH, "event", sf.pow(sf.lit(10.0), sf.col("quarter") / 4), "count")
        .orderBy("scenario", "partitions", "system", "event", "quarter")
    )
    return [a.Bin(*row) for row in rows.collect()]


def phases(found: DataFrame, scenarios: DataFrame) -> list[a.Phase]:
    sizes = scenarios.select("run_id", "partitions").distinct()
    rows = (
        found.join(sizes, "run_id")
        .groupBy(*WHICH, "phase")
        .agg(sf.median("started_at").alias("began"), sf.median("finished_at").alias("ended"))
        .orderBy("scenario", "partitions", "system", "began")
    )
    return [a.Phase(**row.asDict()) for row in rows.collect()]


# -- convergence -------------------------------------------------------------------------------


def convergence(beliefs: DataFrame, truth: DataFrame) -> a.Convergence:
    """Equal: same leader, epoch, replicas in order, and the same ISR in any order."""

    def content(isr: str) -> Column:
        return sf.struct("leader", "leader_epoch", sf.array_sort(isr).alias("isr"), "replicas")

    key = ["topic", "partition"]
    true = truth.select(*key, content("isr").alias("true"))
    believed = beliefs.select("broker", *key, content("isr").alias("believed"))
    held = believed.join(true, key, "left").withColumn(
        "fate",
        sf.when(sf.col("true").isNull(), "left_over")
        .when(sf.col("believed") == sf.col("true"), "equal")
        .otherwise("differing"),
    )
    fates = {row["fate"]: row["count"] for row in held.groupBy("fate").count().collect()}
    partitions, brokers = true.count(), beliefs.select("broker").distinct().count()
    equal, differing = fates.get("equal", 0), fates.get("differing", 0)
    text = [sf.to_json(name).alias(name) for name in ("believed", "true")]
    wrong = held.where("fate != 'equal'").orderBy("broker", *key).limit(EXAMPLES_MAX)
    examples = wrong.select("broker", *key, *text).collect()
    return a.Convergence(
        partitions,
        brokers,
        equal,
        differing,
        partitions * brokers - equal - differing,
        fates.get("left_over", 0),
        [_mismatch(row) for row in examples],
    )


def _mismatch(row: Row) -> a.Mismatch:
    where = (row["broker"], row["topic"], row["partition"])
    return a.Mismatch(*where, row["believed"], row["true"] or "nothing")


# -- the job -----------------------------------------------------------------------------------


def analyse(spark: SparkSession, folder: str, before: str | None = None) -> a.Analysis:
    found = tables_of(spark, folder)
    scenarios = found["scenarios"]
    runs = scenarios.select("run_id").distinct().orderBy("run_id").collect()
    events = found.get("events")
    return a.Analysis(
        [row["run_id"] for row in runs],
        scenario_summaries(scenarios),
        event_costs(events) if events is not None else [],
        fits(scenarios),
        growth(scenarios),
        throughput(events) if events is not None else [],
        latencies(events) if events is not None else [],
        phases(found["phases"], scenarios) if "phases" in found else [],
        convergence(found["beliefs"], found["truth"])
        if {"beliefs", "truth"} <= set(found)
        else None,
        changes(tables_of(spark, before)["scenarios"], scenarios) if before else [],
    )


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="analyse", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("run", help="a folder that a run wrote")
    found.add_argument("--before", metavar="RUN", help="an earlier run to compare with")
    found.add_argument("--out", type=Path, required=True, help="folder for analysis.json")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    at = arguments.out / a.FILE
    try:
        arguments.out.mkdir(parents=True, exist_ok=True)
        with spark_session("kctl analyse", small=True) as spark:
            found = analyse(spark, arguments.run.rstrip("/"), arguments.before)
        at.write_bytes(a.encode_analysis(found))
    except (JobFailed, OSError) as error:
        print(f"analyse: {error}", file=sys.stderr)
        return 1
    except (PySparkException, Py4JJavaError) as error:
        print(f"analyse: {failure(error)}", file=sys.stderr)
        return 1
    print(f"{len(found.runs)} runs, {len(found.scenarios)} figures: {at}")
    if found.convergence is not None and not found.convergence.converged:
        c = found.convergence
        print(
            f"analyse: brokers do not believe what ZooKeeper holds: {c.differing:,} differ,"
            f" {c.missing:,} are missing, {c.left_over:,} are left over",
            file=sys.stderr,
        )
        return a.NOT_CONVERGED
    return 0


if __name__ == "__main__":
    sys.exit(main())
