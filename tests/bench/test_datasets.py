"""Data sets and jobs, as far as they need no Spark: manifests, bad input, a report drawn."""

import json
import re
import sys
from pathlib import Path

import attrs
import pytest

from kctl.bench import spark as spark_module
from kctl.bench.datasets import (
    MANIFEST,
    NotADataSet,
    TableContent,
    decode_manifest,
    encode_manifest,
    manifest_of,
    read_manifest,
    shape_of,
)
from kctl.bench.shapes import PRESETS, shape
from kctl.bench.tables import DATA_SET, RUN, ZNODES, write_rows
from kctl.zookeeper.jars import ServerUnavailable

TABLES = {name: TableContent(3, "00000000000000ff") for name in DATA_SET}


@pytest.mark.parametrize("name", PRESETS)
def test_a_manifest_gives_the_shape_back(name: str) -> None:
    manifest = manifest_of(shape(name), 7, TABLES)
    again = decode_manifest(encode_manifest(manifest), "here")
    assert encode_manifest(again) == encode_manifest(manifest)
    assert (shape_of(again), again.seed, again.preset) == (shape(name), 7, name)


def test_a_folder_without_a_manifest_is_not_a_data_set(tmp_path: Path) -> None:
    with pytest.raises(NotADataSet, match=r"is not a data set: _manifest\.json"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 99},
        {"tables": {}},
        {"seed": "seven"},
        {"shape": {"name": "ci-2k"}},
    ],
)
def test_a_manifest_of_something_else_is_refused(tmp_path: Path, change: object) -> None:
    good = json.loads(encode_manifest(manifest_of(shape("ci-2k"), 7, TABLES)))
    assert isinstance(change, dict)
    (tmp_path / MANIFEST).write_text(json.dumps(good | change), "utf-8")
    with pytest.raises(NotADataSet):
        shape_of(read_manifest(tmp_path))


def test_an_impossible_shape_in_a_manifest_is_refused() -> None:
    manifest = manifest_of(shape("ci-2k"), 7, TABLES)
    broken = {**attrs.asdict(shape("ci-2k")), "brokers": 1}
    data = json.loads(encode_manifest(manifest)) | {"shape": broken}
    with pytest.raises(NotADataSet, match="more replicas than there are brokers"):
        shape_of(decode_manifest(json.dumps(data).encode(), "here"))


def test_a_row_with_a_column_that_no_table_has_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: scripts/env --spark")
    with pytest.raises(ValueError, match="phases has no column"):
        write_rows(tmp_path, RUN["phases"], [{"fase": "sent"}])


def test_every_column_is_explained() -> None:
    for table in (*DATA_SET.values(), *RUN.values()):
        assert len(set(table.names())) == len(table.columns)
        assert all(column.meaning for column in table.columns)


# -- jobs that end before Spark has begun --------------------------------------------------------


@pytest.mark.spark
def test_an_unknown_preset_ends_the_job_with_the_known_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from bench.generate import main  # noqa: PLC0415

    assert main(["--preset", "huge", "--out", str(tmp_path / "set")]) == 1
    assert "no preset is named 'huge'; there are ci-2k" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
def test_without_java_the_job_says_what_to_install(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from bench.generate import main  # noqa: PLC0415

    def none() -> Path:
        raise ServerUnavailable("Java 17 or later is needed: install it")

    monkeypatch.setattr(spark_module, "find_java", none)
    assert main(["--preset", "ci-2k", "--out", str(tmp_path / "set")]) == 1
    assert capsys.readouterr().err == "generate: Java 17 or later is needed: install it\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
def test_a_manifest_that_is_not_there_ends_the_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from bench.generate import main  # noqa: PLC0415

    missing = tmp_path / "nothing.json"
    assert main(["--from-manifest", str(missing), "--out", str(tmp_path / "set")]) == 1
    assert f"{missing} is not there" in capsys.readouterr().err


@pytest.mark.spark
def test_a_folder_that_is_no_data_set_is_not_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from bench.load_cluster import main  # noqa: PLC0415

    (tmp_path / "topics").mkdir()
    assert main([str(tmp_path), "--zookeeper", "127.0.0.1:1"]) == 1
    assert "is not a data set" in capsys.readouterr().err


def test_kctl_does_not_import_spark() -> None:
    """The controller runs where there is no Spark and no pyarrow."""
    assert "kctl.bench.tables" in sys.modules
    for module in ("kctl.bench.generation", "kctl.bench.zookeeper_io", "kctl.bench.znode_rows"):
        source = (Path(__file__).parents[2] / (module.replace(".", "/") + ".py")).read_text("utf-8")
        outside = [line for line in source.splitlines() if line.startswith(("import", "from"))]
        assert not any("pyarrow" in line or "pyspark" in line for line in outside)


def test_the_page_shows_the_tables_as_they_are(request: pytest.FixtureRequest) -> None:
    page = Path(__file__).parents[2] / "docs" / "pipeline.md"
    text = page.read_text("utf-8")
    begin = re.search(r"<!-- tables: .*-->\n", text)
    end = text.index("<!-- end of tables -->")
    assert begin is not None
    parts = {"A data set": DATA_SET, "ZooKeeper": {"znodes": ZNODES}, "A run": RUN}
    shown = "".join(
        f"\n### {heading}\n\n" + "\n\n".join(t.markdown() for t in tables.values()) + "\n"
        for heading, tables in parts.items()
    )
    expected = f"{text[: begin.end()]}{shown}\n{text[end:]}"
    if request.config.getoption("--rewrite"):
        page.write_text(expected, "utf-8")
    assert page.read_text("utf-8") == expected
