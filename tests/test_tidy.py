"""House rules that no linter knows. A list of exceptions may only get shorter."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("kctl", "tests", "bench", "examples", "scripts", "docs", ".ci")
GENERATED = Path("docs/report")
"""What the benchmark wrote."""
CODE = {".py", ".js", ".css", ".html", ".sh", ""}  # "": scripts without an ending

LINES_MAX = 500
# path -> (lines allowed, why one file of that length reads better than two)
LONG_FILES: dict[str, tuple[int, str]] = {}

VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}

# Home directories and work trees of one machine. Pieced together, so that this file passes.
MACHINE_PATH = re.compile(r"(?<![\w.])/(?:ro" + r"ot|wo" + r"rk|ho" + r"me|Us" + r"ers)/[\w.]")


def files_of(root: Path) -> Iterator[Path]:
    """Every file that the project's own people write, as a path relative to the root."""
    for path in sorted(root.glob("*")):
        if path.is_file():
            yield path.relative_to(root)
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.is_relative_to(root / GENERATED):
                continue
            if path.is_file() and "__pycache__" not in path.parts and not is_binary(path):
                yield path.relative_to(root)


def is_binary(path: Path) -> bool:
    with path.open("rb") as file:
        return b"\0" in file.read(1024)


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def long_files(root: Path) -> dict[str, int]:
    code = (path for path in files_of(root) if len(path.parts) > 1 and path.suffix in CODE)
    lengths = {path.as_posix(): lines_of(root / path) for path in code}
    return {path: length for path, length in lengths.items() if length > LINES_MAX}


def vague_names(root: Path) -> list[str]:
    def parts(path: Path) -> Iterable[str]:
        return (*path.parent.parts, path.stem)

    return [path.as_posix() for path in files_of(root) if not VAGUE_NAMES.isdisjoint(parts(path))]


def machine_paths(root: Path) -> list[str]:
    return [
        f"{path.as_posix()}:{number}"
        for path in files_of(root)
        for number, line in enumerate((root / path).read_text(encoding="utf-8").splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]


def locked(lock: str) -> set[str]:
    text = (ROOT / "locks" / lock).read_text(encoding="utf-8")
    return {match[1] for match in re.finditer(r"^([a-z0-9-]+)==", text, re.MULTILINE)}


def names_of(requirements: Iterable[str]) -> set[str]:
    return {re.split(r"[\[<>=;~! ]", requirement, maxsplit=1)[0] for requirement in requirements}


def test_files_are_short() -> None:
    found = long_files(ROOT)
    assert {path: n for path, n in found.items() if n > LONG_FILES.get(path, (0, ""))[0]} == {}
    assert set(LONG_FILES) <= set(found), "a listed file is short now: strike it from the list"


def test_names_say_something() -> None:
    assert vague_names(ROOT) == []


def test_no_path_of_one_machine() -> None:
    assert machine_paths(ROOT) == []


def test_the_locks_hold_what_pyproject_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = names_of([*project["dependencies"], *extras["test"], *extras["dev"]]) - {"kctl"}
    assert asked - locked("dev.txt") == set()
    assert (asked | names_of(extras["spark"])) - locked("spark.txt") == set()
    assert "pyspark" not in locked("dev.txt")


@pytest.mark.parametrize("lock", ["dev.txt", "spark.txt"])
def test_the_locks_name_no_index(lock: str) -> None:
    text = (ROOT / "locks" / lock).read_text(encoding="utf-8")
    assert re.findall(r"^.*(?:://|--index|--find-links).*$", text, re.MULTILINE) == []


def test_the_rules_see_what_breaks_them(tmp_path: Path) -> None:
    (tmp_path / "kctl").mkdir()
    (tmp_path / "kctl" / "long.py").write_text("x = 1\n" * (LINES_MAX + 1))
    (tmp_path / "kctl" / "utils.py").write_text("HOME = '/ho" + "me/somebody'\n")
    assert long_files(tmp_path) == {"kctl/long.py": LINES_MAX + 1}
    assert vague_names(tmp_path) == ["kctl/utils.py"]
    assert machine_paths(tmp_path) == ["kctl/utils.py:1"]
