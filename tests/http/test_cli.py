"""`--http` of `kctl run` and `kctl up`."""

import json
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from kctl.cli import app
from kctl.cli.up import Addresses
from kctl.zookeeper.embedded import free_ports
from tests.cli.test_up import interrupt, kctl_up
from tests.runtime.surroundings import Surroundings
from tests.runtime.test_run import kctl_run

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def taken() -> Iterator[str]:
    """An address that somebody else serves."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        text: str = answer.read().decode()
        return text


@pytest.mark.zookeeper
@pytest.mark.asyncio
async def test_run_serves_where_it_is_told_to(around: Surroundings) -> None:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    options = ("--http", address, "--metrics-dialect", "strimzi")
    async with kctl_run("--zookeeper", around.connect, *options) as program:
        started = await program.until("started")
        assert started["http"] == f"http://{address}/"
        await program.until("ready")
        assert json.loads(fetch(f"http://{address}/readyz"))["reason"] == "active controller"
        metrics = fetch(f"http://{address}/metrics")
        assert "kafka_controller_kafkacontroller_activecontrollercount 1.0" in metrics
        assert "controllerstats_uncleanleaderelections_total 0.0" in metrics
        program.process.terminate()
        assert (await program.ends())[0] == 0


@pytest.mark.zookeeper
@pytest.mark.asyncio
async def test_an_address_in_use_costs_nobody_the_office(around: Surroundings, taken: str) -> None:
    await around.make("/controller_epoch", b"3")
    await around.make("/controller", b'{"version":1,"brokerid":1,"timestamp":"1"}')
    options = ("--takeover", "--http", taken)
    async with kctl_run("--zookeeper", around.connect, *options) as program:
        code, line = await program.ends()
    assert code == 2
    assert line.startswith(f"kctl: cannot serve HTTP at {taken}: ")
    assert "--http" in line
    assert await around.controller_id() == 1
    assert await around.epoch() == 3


@pytest.mark.parametrize("value", ["8080", "127.0.0.1", "127.0.0.1:99999", ":8080", "a:b"])
@pytest.mark.parametrize("command", [["run", "--listen", "PLAINTEXT://127.0.0.1:1"], ["up"]])
def test_addresses_that_make_no_sense(command: list[str], value: str) -> None:
    ended = CliRunner().invoke(app, [*command, "--http", value])
    assert ended.exit_code == 2
    assert "kctl.http" in ended.output
    assert value in ended.output
    assert "Traceback" not in ended.output


def test_up_says_at_once_that_the_address_is_in_use(taken: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "kctl", "up", "--http", taken],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 2
    assert f"cannot serve HTTP at {taken}" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.zookeeper
def test_up_serves_the_page_by_default() -> None:
    with kctl_up("--brokers", "1") as (process, printed):
        url = printed["http"]
        assert url.startswith("http://127.0.0.1:")
        assert "<title>kctl</title>" in fetch(url)
        assert json.loads(fetch(f"{url}state"))["counts"]["brokers"] == 1
        interrupt(process)
        assert process.returncode == 0


def test_up_prints_the_page() -> None:
    addresses = Addresses("zk:1", "c:2", 1000, {1: "b:3"}, None, "http://127.0.0.1:4/")
    assert "http://127.0.0.1:4/" in addresses.text()
