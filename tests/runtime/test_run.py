"""`kctl run` as a process: what it says, and how it ends."""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
from typer.testing import CliRunner

from kctl.cli import app
from kctl.zookeeper.embedded import free_ports
from tests.runtime.surroundings import Surroundings

pytestmark = pytest.mark.timeout(120)

BOUND_S = 60
on_zookeeper = pytest.mark.zookeeper


@attrs.define
class Program:
    process: asyncio.subprocess.Process
    lines: list[str] = attrs.field(factory=list)

    async def until(self, event: str) -> dict[str, Any]:
        """The next log line about this event."""
        assert self.process.stderr is not None
        async with asyncio.timeout(BOUND_S):
            while line := (await self.process.stderr.readline()).decode():
                self.lines.append(line)
                if line.startswith("{") and json.loads(line)["event"] == event:
                    found: dict[str, Any] = json.loads(line)
                    return found
        raise AssertionError(f"no {event!r} in {self.lines}")

    async def ends(self) -> tuple[int, str]:
        """Its exit code and its last line."""
        assert self.process.stderr is not None
        async with asyncio.timeout(BOUND_S):
            rest = (await self.process.stderr.read()).decode()
            code = await self.process.wait()
        return code, (rest.splitlines() or [""])[-1]


@asynccontextmanager
async def kctl_run(*arguments: str) -> AsyncIterator[Program]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "kctl", "run", "--listen", f"PLAINTEXT://127.0.0.1:{free_ports(1)[0]}"),
        *arguments,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield Program(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@on_zookeeper
@pytest.mark.asyncio
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_controls_until_a_signal_and_hands_over(
    around: Surroundings, number: signal.Signals
) -> None:
    async with kctl_run("--zookeeper", around.connect, "--id", "1234") as program:
        ready = await program.until("ready")
        assert ready["controller"] == 1234
        assert await around.controller_id() == 1234
        program.process.send_signal(number)
        code, _ = await program.ends()
        assert code == 0
        assert await around.controller_id() is None


@on_zookeeper
@pytest.mark.asyncio
async def test_it_takes_over_only_if_told(around: Surroundings) -> None:
    await around.make("/controller_epoch", b"3")
    await around.make("/controller", b'{"version":1,"brokerid":1,"timestamp":"1"}')
    async with kctl_run("--zookeeper", around.connect, "--takeover") as program:
        await program.until("ready")
        assert await around.controller_id() == 1000
        assert await around.epoch() == 4


@on_zookeeper
@pytest.mark.asyncio
async def test_it_stands_down_with_code_3(around: Surroundings) -> None:
    await around.start_brokers(1000)
    async with kctl_run("--zookeeper", around.connect) as program:
        code, line = await program.ends()
        assert code == 3
        assert line.startswith("kctl: stood down: ")
        assert "1000" in line


@pytest.mark.asyncio
async def test_no_zookeeper_is_code_4() -> None:
    timeout = "zookeeper.connection.timeout.ms=500"
    async with kctl_run("--zookeeper", "127.0.0.1:1", "-o", timeout) as program:
        code, line = await program.ends()
        assert code == 4
        assert "127.0.0.1:1" in line
        assert "Traceback" not in line


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["-o", "no.such.setting=1"], "no.such.setting"),
        (["-o", "broker.id"], "NAME=VALUE"),
        (["-o", "broker.id=many"], "broker.id"),
        (["--listen", "nonsense"], "listeners"),
        (["--zookeeper", "/only/a/path"], "zookeeper.connect"),
        (["--config", "/no/such/file"], "/no/such/file"),
        (["--id", "x"], "--id"),
        (["--id", "7"], "--listen"),
        (["--no-such-option"], "--no-such-option"),
    ],
)
def test_what_cannot_be_used_is_code_2(arguments: list[str], named: str) -> None:
    ended = CliRunner().invoke(app, ["run", *arguments])
    assert ended.exit_code == 2
    assert named in ended.output
    assert "Traceback" not in ended.output


@on_zookeeper
@pytest.mark.asyncio
async def test_an_address_in_use_is_code_2(around: Surroundings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"
        async with kctl_run("--zookeeper", around.connect, "--listen", listen) as program:
            code, line = await program.ends()
            assert code == 2
            assert "--listen" in line


@on_zookeeper
@pytest.mark.asyncio
async def test_a_brokers_own_file_is_enough(around: Surroundings, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        f"broker.id=77\nzookeeper.connect={around.connect}\nlog.dirs=/tmp/x\n"
        "advertised.listeners=PLAINTEXT://a-broker:9092\nnum.io.threads=8\n"
    )
    async with kctl_run("--config", str(file), "-o", "broker.id=78") as program:
        ready = await program.until("ready")
        assert ready["controller"] == 78
