"""The pytest plugin in runs of their own, under each plugin that runs coroutines."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kctl.testing import Cluster
from kctl.zookeeper.embedded import EmbeddedZooKeeper

BOUND_S = 100.0

STRICT = """
import pytest

@pytest.mark.asyncio
async def test_failover(kctl_cluster):
    async with kctl_cluster(brokers=3, topics={"orders": 6}) as c:
        await c.kill(2)
        await c.until(lambda: c.partition("orders", 0).leader not in (None, 2))
"""
AUTO = STRICT.replace("@pytest.mark.asyncio\n", "")
ANYIO = (
    STRICT.replace("pytest.mark.asyncio", "pytest.mark.anyio")
    + """
@pytest.fixture
def anyio_backend():
    return "asyncio"
"""
)


def run(folder: Path, test: str, *arguments: str, mode: str = "strict") -> tuple[int, str]:
    (folder / "pytest.ini").write_text(
        f"[pytest]\nasyncio_mode = {mode}\nasyncio_default_fixture_loop_scope = function\n"
        "addopts = --strict-markers --strict-config\nfilterwarnings = error\n"
    )
    (folder / "test_it.py").write_text(test)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.timeout(BOUND_S)
@pytest.mark.parametrize(
    "test, mode",
    [(STRICT, "strict"), (AUTO, "auto"), (ANYIO, "strict"), (ANYIO, "auto")],
    ids=["strict", "auto", "anyio beside strict", "anyio beside auto"],
)
def test_under_each_plugin(tmp_path: Path, test: str, mode: str) -> None:
    code, output = run(tmp_path, test, mode=mode)
    assert code == 0, output
    assert "1 passed" in output


SHOWS = """
import pytest

pytestmark = [pytest.mark.asyncio, pytest.mark.kctl(brokers=2, topics={"t": 1})]

async def test_module_marker(kctl_cluster):
    async with kctl_cluster() as c:
        assert len(c.brokers) == 2
        assert (list(c.topics), c.seed) == (["t"], 0)

@pytest.mark.kctl(brokers=4, seed=9)
async def test_closest_marker(kctl_cluster):
    async with kctl_cluster(topics={"u": 2}) as c:
        assert (len(c.brokers), list(c.topics), c.seed) == (4, ["u"], 9)
    async with kctl_cluster(1) as c:
        assert len(c.brokers) == 1
"""


@pytest.mark.timeout(BOUND_S)
def test_markers_give_defaults(tmp_path: Path) -> None:
    code, output = run(tmp_path, SHOWS)
    assert code == 0, output
    assert "2 passed" in output


SEED = """
import pytest

@pytest.mark.asyncio
async def test_seed(kctl_cluster):
    async with kctl_cluster(brokers=5, topics={"t": 3}) as c:
        print("PLACED", [p.replicas for p in c.topics["t"]], c.seed)
        await c.until(lambda: c.partition("t", 0).leader == 99, timeout=0.1)
"""


@pytest.mark.timeout(BOUND_S)
@pytest.mark.asyncio
async def test_a_failure_names_its_seed_and_the_seed_brings_it_back(tmp_path: Path) -> None:
    code, output = await asyncio.to_thread(run, tmp_path, SEED, "--kctl-seed", "41")
    assert code == 1
    assert "NotReached: not true within 0.1 s" in output
    assert "seed 41" in output
    async with Cluster(brokers=5, topics={"t": 3}, seed=41) as c:
        assert f"PLACED {[p.replicas for p in c.topics['t']]} 41" in output


@pytest.mark.timeout(BOUND_S)
def test_a_marker_without_names_is_refused(tmp_path: Path) -> None:
    code, output = run(tmp_path, STRICT.replace("@pytest", "@pytest.mark.kctl(5)\n@pytest"))
    assert code == 1
    assert "pytest.mark.kctl takes names, as kctl(brokers=5)" in output


@pytest.mark.timeout(BOUND_S)
def test_help_and_markers_are_there(tmp_path: Path) -> None:
    _, options = run(tmp_path, STRICT, "--help")
    assert "--kctl-seed" in options
    assert "--kctl-zookeeper" in options
    _, markers = run(tmp_path, STRICT, "--markers")
    assert "@pytest.mark.kctl(**defaults)" in markers


@pytest.mark.zookeeper
def test_on_a_real_zookeeper(tmp_path: Path) -> None:
    code, output = run(tmp_path, STRICT, "--kctl-zookeeper", "embedded")
    assert code == 0, output
    with EmbeddedZooKeeper() as server:
        code, output = run(tmp_path, STRICT, "--kctl-zookeeper", server.connect_string)
    assert code == 0, output


NOT_REWRITTEN = """
import sys

def test_it():
    import kctl.model.cluster
    assert type(kctl.model.cluster.__loader__).__name__ == "SourceFileLoader"
    assert type(sys.modules[__name__].__loader__).__name__ == "AssertionRewritingHook"
"""


@pytest.mark.timeout(BOUND_S)
def test_the_asserts_of_the_controller_are_not_rewritten(tmp_path: Path) -> None:
    code, output = run(tmp_path, NOT_REWRITTEN)
    assert code == 0, output


LIGHT = """
import sys
import pytest
before = set(sys.modules)
import kctl.testing.plugin
added = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(added - sys.stdlib_module_names))
print(sorted(name for name in sys.modules if name.startswith("kctl")))
"""


def test_the_plugin_is_light() -> None:
    """It is imported in every pytest run of everybody who has kctl installed."""
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == [
        "['kctl']",
        "['kctl', 'kctl.testing', 'kctl.testing.plugin']",
    ]
