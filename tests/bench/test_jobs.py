"""Generate, load, read, analyse, report: the jobs on a small Spark, ZooKeeper being a real one."""

import asyncio
import json
import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from kctl.bench import shapes
from kctl.bench.datasets import MANIFEST, Manifest, encode_manifest, read_manifest
from kctl.bench.shapes import Shape
from kctl.bench.tables import DATA_SET
from kctl.bench.zookeeper_io import Target, read, subtrees
from kctl.messages.effects import TopicNode
from kctl.model.names import TopicPartition
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.embedded import EmbeddedZooKeeper
from kctl.zookeeper.session import Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

SEED = 7
SMALL = attrs.evolve(shapes.shape("ci-2k"), name="tiny", topics=40, partitions=400, isr_gaps=0.1)

made_run: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("made_run.py")))
cut_connection: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("cut_connection.py")))


@pytest.fixture(scope="module")
def data_set(
    spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Manifest]:
    from bench.generate import generate  # noqa: PLC0415

    out = tmp_path_factory.mktemp("sets") / "one"
    return out, generate(spark, SMALL, SEED, str(out), 1)


# -- generate ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tasks", [2, 8])
def test_the_content_does_not_depend_on_how_spark_divides_the_work(
    spark: "SparkSession", data_set: tuple[Path, Manifest], tmp_path: Path, tasks: int
) -> None:
    from bench.generate import generate  # noqa: PLC0415

    manifest = generate(spark, SMALL, SEED, str(tmp_path / "set"), tasks)
    assert encode_manifest(manifest) == encode_manifest(data_set[1])
    assert len(list((tmp_path / "set/topics").glob("*.parquet"))) == tasks


def test_another_seed_has_another_content(
    spark: "SparkSession", data_set: tuple[Path, Manifest], tmp_path: Path
) -> None:
    from bench.generate import generate  # noqa: PLC0415

    manifest = generate(spark, SMALL, SEED + 1, str(tmp_path / "set"), 1)
    for name in ("brokers", "topics", "assignments", "leadership", "events"):
        assert manifest.tables[name].hash != data_set[1].tables[name].hash
    for name in ("brokers", "topics", "assignments", "leadership"):
        assert manifest.tables[name].rows == data_set[1].tables[name].rows


def test_a_data_set_is_made_again_from_its_manifest(
    spark: "SparkSession", data_set: tuple[Path, Manifest], tmp_path: Path
) -> None:
    from bench.generate import main  # noqa: PLC0415

    folder, manifest = data_set
    again = tmp_path / "again"
    assert main(["--from-manifest", str(folder / MANIFEST), "--out", str(again)]) == 0
    assert encode_manifest(read_manifest(again)) == encode_manifest(manifest)


def test_tables_have_the_rows_that_the_shape_has(
    spark: "SparkSession", data_set: tuple[Path, Manifest]
) -> None:
    from kctl.bench.spark import read_table  # noqa: PLC0415

    folder, manifest = data_set
    rows = {name: manifest.tables[name].rows for name in ("brokers", "topics", "leadership")}
    assert rows == {"brokers": SMALL.brokers, "topics": SMALL.topics, "leadership": 400}
    found = read_table(spark, str(folder), DATA_SET["assignments"]).collect()
    for index in range(SMALL.topics):
        name = shapes.topic_name(SMALL, index)
        own = {r["partition"]: tuple(r["replicas"]) for r in found if r["topic"] == name}
        assert own == shapes.assignment(SMALL, SEED, index)


def test_a_folder_that_is_there_is_not_written_over(
    spark: "SparkSession",
    data_set: tuple[Path, Manifest],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from bench.generate import main  # noqa: PLC0415

    assert main(["--preset", "ci-2k", "--out", str(tmp_path)]) == 1
    assert f"{tmp_path} is there already" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_cannot_be_written_ends_the_job(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from bench.generate import main  # noqa: PLC0415

    (tmp_path / "file").write_text("not a folder", "utf-8")
    assert main(["--preset", "ci-2k", "--out", str(tmp_path / "file" / "set")]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"generate: {tmp_path / 'file' / 'set'} cannot be written: ")
    assert len(error.splitlines()) == 1


def test_what_was_not_finished_is_not_left_as_a_data_set(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench import generate as module  # noqa: PLC0415

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "contents", interrupted)
    with pytest.raises(KeyboardInterrupt):
        module.generate(spark, SMALL, SEED, str(tmp_path / "set"), 1)
    assert list(tmp_path.iterdir()) == []


# -- ZooKeeper -----------------------------------------------------------------------------------


def tree(connect: str) -> dict[str, tuple[bytes | None, int]]:
    target = Target(connect)
    return {
        z.path: (z.data, z.stat.mzxid)
        for part in read(target, *subtrees(target, "/", 8))
        for z in part
        if z.stat is not None
    }


def assert_loaded(connect: str, of: Shape, seed: int) -> None:
    """Every topic and every state as the shape has it, decoded with what the controller decodes."""
    found = tree(connect)
    for index in range(of.topics):
        topic = shapes.topic(of, seed, index)
        node = znodes.decode_topic("", found[paths.topic(topic.name)][0], 0)
        assert isinstance(node, TopicNode)
        assert node.topic_id == topic.id
        assigned = {p: a.replicas for p, a in node.partitions.items()}
        assert assigned == shapes.assignment(of, seed, index)
        config = znodes.decode_config("", found[paths.topic_config(topic.name)][0])
        assert config == topic.configs
        for partition, expected in shapes.leadership(of, seed, index).items():
            at = paths.partition_state(TopicPartition(topic.name, partition))
            assert znodes.decode_state("", found[at][0], 0) == expected


@pytest.mark.zookeeper
def test_a_data_set_is_loaded_and_loading_it_again_changes_nothing(
    spark: "SparkSession", data_set: tuple[Path, Manifest], zookeeper: EmbeddedZooKeeper
) -> None:
    from bench.load_cluster import MARK, main  # noqa: PLC0415

    arguments = [str(data_set[0]), "--zookeeper", zookeeper.connect_string]
    assert main(arguments) == 0
    assert_loaded(zookeeper.connect_string, SMALL, SEED)
    before = tree(zookeeper.connect_string)
    mark = json.loads(before.pop(MARK)[0] or b"")
    assert mark == {"content_hash": data_set[1].content_hash, "whole": True}
    assert main(arguments) == 0
    after = tree(zookeeper.connect_string)
    del after[MARK]
    assert after == before


@pytest.mark.zookeeper
def test_zookeeper_gone_in_the_middle_of_a_load_and_the_load_completed_later(
    spark: "SparkSession",
    data_set: tuple[Path, Manifest],
    zookeeper: EmbeddedZooKeeper,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from bench.load_cluster import MARK, main  # noqa: PLC0415

    with cut_connection["CutAfter"](zookeeper.port, 30_000) as way:
        arguments = [str(data_set[0]), "--zookeeper", way.connect_string]
        assert main([*arguments, "--session-timeout-ms", "3000"]) == 1
        assert way.cut.is_set()
        error = capsys.readouterr().err
        assert f"ZooKeeper at {way.connect_string} does not answer" in error
        assert "not whole; run it again" in error
    assert json.loads(tree(zookeeper.connect_string)[MARK][0] or b"")["whole"] is False
    assert main([str(data_set[0]), "--zookeeper", zookeeper.connect_string]) == 0
    assert_loaded(zookeeper.connect_string, SMALL, SEED)
    assert json.loads(tree(zookeeper.connect_string)[MARK][0] or b"")["whole"] is True


@pytest.mark.zookeeper
def test_a_zookeeper_in_use_is_not_loaded(
    spark: "SparkSession",
    data_set: tuple[Path, Manifest],
    zookeeper: EmbeddedZooKeeper,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from bench.load_cluster import main  # noqa: PLC0415

    async def make(path: str) -> None:
        async with Session.open(zookeeper.connect_string) as zk:
            for at in ("/brokers", "/brokers/topics", path):
                if await zk.exists(at) is None:
                    await zk.create(at, b"{}")

    arguments = [str(data_set[0]), "--zookeeper", zookeeper.connect_string]
    asyncio.run(make("/brokers/topics/orders"))
    assert main(arguments) == 1
    assert "has topics that no data set left there" in capsys.readouterr().err
    asyncio.run(make("/controller"))
    assert main(arguments) == 1
    assert "this is a running cluster" in capsys.readouterr().err
    assert "/kctl_data_set" not in tree(zookeeper.connect_string)


@pytest.mark.zookeeper
def test_the_data_source_reads_what_it_wrote(
    spark: "SparkSession", zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from bench.dump import dump  # noqa: PLC0415
    from kctl.bench.zookeeper_source import register  # noqa: PLC0415

    register(spark)
    connect = zookeeper.connect_string
    rows = [("/a", b"1"), ("/a/b/c", None), *((f"/a/t{n}/x", b"%d" % n) for n in range(50))]
    frame = spark.createDataFrame(rows, "path STRING, data BINARY").repartition(3)
    for _ in range(2):
        frame.write.format("zookeeper").option("connect", connect).mode("append").save()

    znodes_read = spark.read.format("zookeeper").option("connect", connect).load()
    found = {r["path"]: r for r in znodes_read.collect()}
    assert {path: found[path]["data"] for path, _ in rows} == dict(rows)
    assert {found[path]["version"] for path, _ in rows[1:]} == {0}
    assert found["/a"]["num_children"] == 51
    below = znodes_read.where("path LIKE '/a/t7/%'").select("path").collect()
    assert [r["path"] for r in below] == ["/a/t7/x"]

    assert dump(spark, connect, "/a", str(tmp_path / "dump")) == 103

    copy = znodes_read.where("path LIKE '/a%'").select("path", "data")
    write = copy.write.format("zookeeper").option("connect", f"{connect}/copy")
    with pytest.raises(PySparkException, match="overwrite would delete"):
        write.mode("overwrite").save()
    with pytest.raises(PySparkException, match="what is written has a column data binary"):
        copy.select("path").write.format("zookeeper").option("connect", connect).mode(
            "append"
        ).save()
    with pytest.raises(PySparkException, match=r"connect.*is missing"):
        spark.read.format("zookeeper").load().count()


# -- analyse and report --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def analysed(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    from bench.analyse import analyse  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("runs")
    run = made_run["write_run"](folder / "after")
    before = made_run["write_run"](folder / "before", slower=2.0)
    return analyse(spark, str(run), str(before)), folder


def test_an_analysis_says_what_the_run_was(analysed: tuple[Any, Path]) -> None:
    found, _ = analysed
    by_key = {(s.system, s.scenario, s.partitions): s for s in found.scenarios}
    assert len(by_key) == 24
    failover = by_key["kctl", "failover", 100_000]
    assert (failover.count, failover.seconds) == (3, pytest.approx(1.0))
    assert (failover.least, failover.most) == (pytest.approx(0.9), pytest.approx(1.1))
    assert failover.us_a_partition == pytest.approx(10)
    assert (failover.noise, failover.noise_max) == (pytest.approx(0.02), pytest.approx(0.04))
    fit = next(f for f in found.fits if (f.system, f.scenario) == ("kafka-3.9.1", "failover"))
    assert (fit.exponent, fit.us_a_partition) == (pytest.approx(1.0), pytest.approx(120))
    assert {round(g.ratio_a_doubling, 6) for g in found.growth} == {2.0}


def test_percentiles_of_events(analysed: tuple[Any, Path]) -> None:
    found, _ = analysed
    assert len(found.events) == 4
    for event in found.events:
        assert event.count == 100
        assert event.handled.p50 == pytest.approx(0.0505)
        assert event.handled.p99 == pytest.approx(0.09901)
        assert event.handled.max == pytest.approx(0.1)
        assert (event.queued.p95, event.queued.max) == (pytest.approx(0), pytest.approx(1.0))
        assert (event.zookeeper_requests, event.zookeeper_rows) == (300, 1_000)
        assert event.us_a_row == pytest.approx(5.05e6 / 1_000)
    assert sum(b.count for b in found.latencies) == 400
    assert sum(t.events for t in found.throughput) == pytest.approx(400)


def test_a_change_is_told_from_the_spread(analysed: tuple[Any, Path]) -> None:
    found, _ = analysed
    changes = {(c.system, c.scenario, c.partitions): c for c in found.changes}
    faster = changes["kctl", "failover", 100_000]
    assert (faster.ratio, faster.certain) == (pytest.approx(0.5), True)
    same = changes["floor", "failover", 100_000]
    assert (same.ratio, same.certain) == (pytest.approx(1.0), False)


def test_beliefs_are_held_against_zookeeper(
    spark: "SparkSession", analysed: tuple[Any, Path]
) -> None:
    from bench.analyse import convergence, tables_of  # noqa: PLC0415

    right = analysed[0].convergence
    assert right.converged
    assert (right.partitions, right.brokers, right.equal) == (20, 3, 60)
    run = made_run["write_run"](analysed[1] / "wrong", wrong_beliefs=True)
    tables = tables_of(spark, str(run))
    wrong = convergence(tables["beliefs"], tables["truth"])
    assert not wrong.converged
    assert (wrong.equal, wrong.differing, wrong.missing, wrong.left_over) == (57, 1, 2, 1)
    assert {(m.broker, m.topic, m.partition) for m in wrong.examples} == {
        (3, "deleted", 7),
        (3, "t", 6),
    }


def test_a_run_without_tables_is_refused(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from bench.analyse import main  # noqa: PLC0415

    assert main([str(tmp_path / "nothing"), "--out", str(tmp_path / "out")]) == 1
    assert "the table scenarios is not there" in capsys.readouterr().err


def test_the_page_is_whole_and_needs_nothing_else(
    analysed: tuple[Any, Path], tmp_path: Path
) -> None:
    from bench.report import write_report  # noqa: PLC0415

    for name in ("one", "two"):
        write_report(analysed[0], tmp_path / name, "A title", ["2 cores <and> noise"])
    one, two = ({f.name: f.read_bytes() for f in (tmp_path / n).iterdir()} for n in ("one", "two"))
    assert one == two
    drawn = {"side-by-side", "scaling", "failover", "latencies", "throughput"}
    assert set(one) == {f"{n}.{e}" for n in drawn for e in ("png", "svg")} | {
        "report.html",
        "report.md",
        "report.json",
    }
    page = one["report.html"].decode()
    assert page.count("<svg") == len(drawn)
    assert "2 cores &lt;and&gt; noise" in page
    assert "All brokers believe what ZooKeeper holds" in page
    # Links within the drawings and images in them are fine; nothing is fetched.
    links = re.findall(r"""(?:src|href)\s*=\s*["']?([^"'\s>]+)""", page)
    assert {link.split(":")[0] for link in links if not link.startswith("#")} <= {"data"}
    table = json.loads(one["report.json"])["partitions"]["100000"]
    failover = next(row for row in table if row["scenario"] == "failover")
    assert (failover["peer_text"], failover["peer_goal"], failover["peer_met"]) == (
        "1/12",
        "1/10",
        True,
    )
    assert (failover["floor_text"], failover["floor_met"]) == ("2.5 x", True)
    assert "| failover | 1 s |" in one["report.md"].decode()


def test_a_report_needs_an_analysis(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from bench.report import main  # noqa: PLC0415

    assert main([str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    assert "run analyse first" in capsys.readouterr().err
