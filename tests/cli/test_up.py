"""`kctl up` as a process: a cluster that serves, and that is gone after Ctrl-C."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from typer.testing import CliRunner

from kctl.cli import app
from kctl.testing.views import until_agreed

BOUND_S = 120.0


@contextmanager
def kctl_up(
    *arguments: str, stdin: int = subprocess.DEVNULL
) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """The process, and what it printed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kctl", "up", "--json", *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            pytest.fail(f"it ended: {process.communicate()[1][-3000:]}")
        yield process, json.loads(line)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def fetch(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=BOUND_S) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:  # noqa: PTH123
        return [int(child) for child in file.read().split()]


def interrupt(process: subprocess.Popen[str]) -> str:
    """Ctrl-C, as a terminal sends it; what the process logged."""
    os.killpg(process.pid, signal.SIGINT)
    return process.communicate(timeout=BOUND_S)[1]


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def trouble(log: str) -> list[str]:
    """Lines above the level of a warning."""
    return [line for line in log.splitlines() if json.loads(line)["level"] in ("error", "critical")]


@pytest.mark.zookeeper
@pytest.mark.asyncio
async def test_simulated_brokers() -> None:
    with kctl_up("--brokers", "2") as (process, printed):
        assert list(printed["brokers"]) == ["1", "2"]
        assert printed["kafka"] is None
        await until_agreed(printed["zookeeper"], printed["brokers"].values())
        started = children(process.pid)
        assert started
        assert trouble(interrupt(process)) == []
        assert process.returncode == 0
        assert [pid for pid in started if is_there(pid)] == []


@pytest.mark.zookeeper
@pytest.mark.asyncio
async def test_a_broker_is_killed_and_started_from_the_terminal() -> None:
    terminal, ours = os.openpty()
    try:
        with kctl_up("--brokers", "2", "--topic", "orders:4", stdin=ours) as (process, printed):
            url = printed["http"]

            async def until_alive(*wanted: int) -> dict[str, Any]:
                async with asyncio.timeout(BOUND_S):
                    while True:
                        state = await asyncio.to_thread(fetch, f"{url}state")
                        if [b["id"] for b in state["brokers"] if b["alive"]] == list(wanted):
                            return state
                        await asyncio.sleep(0.05)

            assert (await until_alive(1, 2))["counts"]["partitions"] == 4
            os.write(terminal, b"nonsense\nkill 7\n")
            os.write(terminal, b"kill 2\n")
            await until_alive(1)
            os.write(terminal, b"start 2\n")
            await until_alive(1, 2)
            log = interrupt(process)
            assert "no such broker" in log
            assert "kill 2" in log, "what was not understood is answered with help"
            assert trouble(log) == []
            assert process.returncode == 0
    finally:
        os.close(terminal)
        os.close(ours)


@pytest.mark.zookeeper
def test_a_topic_that_is_refused() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "kctl", "up", "--topic", "no good:1"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND_S,
    )
    assert run.returncode == 2
    assert "INVALID_TOPIC" in run.stderr.splitlines()[-1]
    assert "Traceback" not in run.stderr


@pytest.mark.kafka
@pytest.mark.asyncio
async def test_a_real_broker() -> None:
    with kctl_up("--brokers", "1", "--kafka", "3.9.1") as (process, printed):
        assert printed["kafka"] == "3.9.1"
        await until_agreed(printed["zookeeper"], printed["brokers"].values())
        started = children(process.pid)
        assert len(started) == 2
        assert trouble(interrupt(process)) == []
        assert process.returncode == 0
        assert [pid for pid in started if is_there(pid)] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("--kafka", "4.0.0"),
        ("--kafka", "3.9"),
        ("--brokers", "0"),
        ("--topic", "orders"),
        ("--topic", "orders:many"),
        ("--topic", ":3"),
        ("--topic", "orders:0"),
    ],
)
def test_arguments_that_cannot_be_used(arguments: Sequence[str]) -> None:
    run = CliRunner().invoke(app, ["up", *arguments])
    assert run.exit_code == 2
    assert arguments[0] in run.output
