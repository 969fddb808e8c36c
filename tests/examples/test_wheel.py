"""What somebody gets who installs kctl: the wheel in an environment that knows nothing of this tree."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import pytest

from kctl.zookeeper.embedded import free_ports
from tests.testing.test_plugin import ANYIO, AUTO, STRICT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
BOUND_S = 300.0
UV = Path(sys.executable).parent / "uv"

PLANNED = """
import asyncio, subprocess, sys
from kctl.testing import Cluster

async def main():
    async with Cluster(brokers=3, topics={"orders": 3}) as c:
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, "plan_in_ci.py", c.zookeeper, "1", "2"]
        )
    sys.exit(done.returncode)

asyncio.run(main())
"""


def run(*command: object, cwd: Path) -> str:
    """Nothing of this project's own environment reaches it."""
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=kept,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout[-5000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (built,) = folder.glob("kctl-*.whl")
    return built


def test_the_wheel_carries_what_the_package_needs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (entry_points,) = (n for n in names if n.endswith("/entry_points.txt"))
        text = archive.read(entry_points).decode()
    tracked = run("git", "ls-files", "kctl", cwd=ROOT).split()
    assert [name for name in tracked if name not in names] == []
    assert "kctl/py.typed" in names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"kctl"}
    assert "[pytest11]\nkctl = kctl.testing.plugin" in text
    assert "[console_scripts]\nkctl = kctl.cli:main" in text


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment with the wheel and its dependencies in it, and no more."""
    folder = tmp_path_factory.mktemp("environment")
    run(UV, "venv", "--quiet", "--python", sys.executable, folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    run(UV, "pip", "install", "--quiet", "--python", python, wheel, cwd=folder)
    where = run(python, "-c", "import kctl; print(kctl.__file__)", cwd=folder)
    assert Path(where.strip()).is_relative_to(folder)
    return python


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    for example in (ROOT / "examples").glob("*.py"):
        (tmp_path / example.name).write_text(example.read_text())
    return tmp_path


def test_no_test_tools_come_along(installed: Path, tmp_path: Path) -> None:
    found = "import importlib.util as u; print([m for m in %r if u.find_spec(m)])"
    wanted = ("pytest", "pyspark", "hypothesis", "kazoo", "confluent_kafka")
    assert run(installed, "-c", found % (wanted,), cwd=tmp_path) == "[]\n"
    kctl = installed.parent / "kctl"
    assert run(kctl, "version", cwd=tmp_path).strip()
    assert "explain" in run(kctl, "--help", cwd=tmp_path)


def test_examples(installed: Path, examples: Path) -> None:
    said = run(installed, "watch_events.py", cwd=examples)
    assert re.search(r"^orders-0  leader \d  isr \d,\d,\d", said, re.MULTILINE)
    (examples / "planned.py").write_text(PLANNED)
    assert "must stay" not in run(installed, "planned.py", cwd=examples)


def test_the_service_example(installed: Path, examples: Path) -> None:
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [str(installed), "aiohttp_service.py", "--port", str(port)],
        cwd=examples,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert served(f"http://127.0.0.1:{port}/partitions") == b"{}"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def served(url: str) -> bytes:
    """Once it answers with what was asked for."""
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            error.close()  # it stands by still
        except OSError:
            pass
        assert time.monotonic() < deadline, f"{url} does not answer"
        time.sleep(0.1)


def test_the_pytest_plugin(installed: Path, examples: Path) -> None:
    run(
        *(UV, "pip", "install", "--quiet", "--python", installed, "pytest", "pytest-asyncio"),
        cwd=examples,
    )
    for name, mode, test in (
        ("strict", "strict", STRICT),
        ("auto", "auto", AUTO),
        ("anyio", "strict", ANYIO),
        ("example", "strict", (examples / "test_with_kctl.py").read_text()),
    ):
        folder = examples / name
        folder.mkdir()
        (folder / "test_it.py").write_text(test)
        (folder / "pytest.ini").write_text(
            f"[pytest]\nasyncio_mode = {mode}\nasyncio_default_fixture_loop_scope = function\n"
            "filterwarnings = error\naddopts = --strict-markers\n"
        )
        said = run(installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=folder)
        assert f"{2 if name == 'example' else 1} passed" in said
