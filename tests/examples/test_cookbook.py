"""The examples of docs/cookbook.md do what they say, in processes of their own and without Java."""

import asyncio
import re
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

import kctl
from kctl import testing
from kctl.testing import Cluster
from kctl.testing.memory_server import MemoryServer
from kctl.zookeeper.embedded import free_ports

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
BOUND_S = 100.0


async def run(*arguments: object, cwd: Path | None = None) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *map(str, arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=cwd,
    )
    try:
        async with asyncio.timeout(BOUND_S):
            said, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    assert process.returncode is not None
    return process.returncode, said.decode()


async def test_watch_events() -> None:
    code, said = await run(EXAMPLES / "watch_events.py")
    assert code == 0, said
    died, _, returned = said.partition("-- broker 2 returns")
    assert re.search(r"ms +\d+ effects +BrokerChange$", died, re.MULTILINE)
    assert "AlterPartitionReceived" in returned
    orders = [line for line in said.splitlines() if line.startswith("orders-")]
    assert len(orders) == 2
    assert all(re.search(r"isr \d,\d,\d  .* online$", line) for line in orders)


@asynccontextmanager
async def service(*arguments: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The process, and where it will serve."""
    (port,) = free_ports(1)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / "aiohttp_service.py"),
        *("--port", str(port), *arguments),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ask(method: str, url: str, but: tuple[int, ...] = ()) -> tuple[int, str]:
    """The first answer that it gives, but for these."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(60):
        while True:
            try:
                async with session.request(method, url) as answer:
                    if answer.status not in but:
                        return answer.status, await answer.text()
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.05)


async def ends(process: asyncio.subprocess.Process) -> int:
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(30):
        return await process.wait()


async def test_a_service_with_a_controller_in_it() -> None:
    async with service() as (process, url):
        assert await ask("GET", f"{url}/partitions", but=(503,)) == (200, "{}")
        status, answer = await ask("PUT", f"{url}/topics/orders?partitions=2")
        assert status == 200
        # There is no broker to put replicas on, and the controller says so.
        assert "INVALID_REPLICATION_FACTOR" in answer
        assert await ends(process) == 0


async def test_a_service_stands_by_and_takes_over() -> None:
    async with MemoryServer() as zookeeper, Cluster(brokers=1) as other:
        async with service("--zookeeper", other.zookeeper) as (process, url):
            assert await ask("GET", f"{url}/partitions") == (503, "not the active controller\n")
            assert await ends(process) == 0
        assert other.controller.is_active
        config = kctl.Config(zookeeper_connect=zookeeper.connect_string, broker_id=1001)
        async with service("--zookeeper", zookeeper.connect_string) as (process, url):
            assert await ask("GET", f"{url}/partitions", but=(503,)) == (200, "{}")
            async with kctl.Controller(config) as follower:
                assert await ends(process) == 0
                async with asyncio.timeout(30):
                    await follower.until(lambda c: c.is_active)


async def test_plan_in_ci() -> None:
    async with Cluster(brokers=3, topics={"safe": 3, "alone": {0: [2]}}) as c:
        code, said = await run(EXAMPLES / "plan_in_ci.py", c.zookeeper, "1", "3")
        assert code == 0, said
        code, said = await run(EXAMPLES / "plan_in_ci.py", c.zookeeper, "1", "2")
        assert code == 1, said
        assert "broker 2 must stay" in said
        assert "broker 1 must stay" not in said
        assert all(broker.is_up for broker in c.brokers.values()), "a plan changes nothing"
    code, said = await run(EXAMPLES / "plan_in_ci.py", c.zookeeper, "1")
    assert code not in (0, 1), "nobody is there any more: that is no answer"


async def test_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_with_kctl.py").write_text((EXAMPLES / "test_with_kctl.py").read_text())
    code, said = await run(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider"),
        *("-o", "asyncio_default_fixture_loop_scope=function"),
        cwd=tmp_path,
    )
    assert code == 0, said
    assert "2 passed" in said


@pytest.mark.parametrize("page", ["README.md", "docs/cookbook.md"])
async def test_what_the_pages_say_of_clusters(page: str) -> None:
    """Blocks about a cluster run as they stand; what follows without one is given one."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)
    ours = [b for b in blocks if "Cluster(" in b or "c.on_request" in b]
    assert ours
    for block in ours:
        names: dict[str, Any] = {name: getattr(testing, name) for name in testing.__all__}
        lines = textwrap.indent(block, "    ")
        if "Cluster(" in block:
            body = f"async def shown():\n{lines}"
        else:
            body = f"async def with_a_cluster(c):\n{lines}"
        exec(compile(body, page, "exec"), names)
        if "shown" in names:
            await names["shown"]()
        else:
            async with Cluster(topics={"orders": 3}) as c:
                await names["with_a_cluster"](c)


async def test_the_cookbook_names_every_example() -> None:
    page = (ROOT / "docs" / "cookbook.md").read_text(encoding="utf-8")
    assert [e.name for e in EXAMPLES.glob("*.py") if f"examples/{e.name}" not in page] == []
    for name in re.findall(r"examples/(\w+\.py)", page):
        assert (EXAMPLES / name).exists()
