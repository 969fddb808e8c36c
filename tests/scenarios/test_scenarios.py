"""Scenario files run as they are written; `pytest tests/scenarios --rewrite` writes them anew."""

from pathlib import Path

import pytest

from tests.scenarios.commands import Commands
from tests.scenarios.script import Block, Prose, parse, replay

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    written = path.read_text(encoding="utf-8")
    actual = replay(written, Commands())
    if request.config.getoption("--rewrite"):
        path.write_text(actual, encoding="utf-8")
    else:
        assert actual.splitlines() == written.splitlines()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_file_says_first_what_it_shows(path: Path) -> None:
    parts = list(parse(path.read_text(encoding="utf-8")))
    assert isinstance(parts[0], Prose)
    assert 2 <= len(parts[0].lines) <= 6
    assert any(isinstance(part, Block) and part.output for part in parts)
