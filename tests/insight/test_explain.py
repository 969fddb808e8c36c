"""Prepared situations, and what `kctl explain` says of them: `golden/*.txt`.

The first part of a file is the cluster (`tests.insight.scenes` has the words), below each line that
begins with `>` stands the answer. `--rewrite` writes the answers anew.
"""

import asyncio
import json
from pathlib import Path

import attrs
import pytest

from kctl.insight.explain import Unknown, explain
from kctl.insight.snapshot import Snapshot, take_snapshot
from tests.insight.scenes import read_scene

GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.txt"))
SITUATIONS_MIN = 15


async def snapshot_of(scene: str) -> Snapshot:
    zookeeper = read_scene(scene)
    snapshot = await take_snapshot(zookeeper)
    return attrs.evolve(snapshot, times=attrs.evolve(snapshot.times, taken=zookeeper.now_ms))


def answer(snapshot: Snapshot, subject: str) -> str:
    try:
        explanation = explain(snapshot, subject)
    except Unknown as unknown:
        return f"unknown: {unknown}"
    # Both ways of printing say the same.
    assert json.loads(json.dumps(attrs.asdict(explanation)))["verdict"] == explanation.verdict
    mark = "" if explanation.healthy else " (!)"
    return str(explanation).replace("\n", f"{mark}\n", 1) if mark else str(explanation)


def test_there_are_enough_situations() -> None:
    assert len(GOLDEN) >= SITUATIONS_MIN


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_the_answer_is_the_one_written_down(file: Path, pytestconfig: pytest.Config) -> None:
    text = file.read_text("utf-8")
    scene, *parts = text.split("\n> ")
    snapshot = asyncio.run(snapshot_of(scene))
    subjects = [part.split("\n", 1)[0].strip() for part in parts]
    assert subjects
    found = [f"> {subject}\n{answer(snapshot, subject)}\n" for subject in subjects]
    told = scene.rstrip("\n") + "\n\n" + "\n".join(found)
    if pytestconfig.getoption("--rewrite"):
        file.write_text(told, "utf-8")
    assert told == text
