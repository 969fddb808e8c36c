"""The examples do what they say."""

import asyncio
import sys

import pytest

from tests.runtime.surroundings import Surroundings

pytestmark = [pytest.mark.zookeeper, pytest.mark.asyncio, pytest.mark.timeout(200)]


async def run(*arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def test_the_tour_ends_by_itself() -> None:
    code, said = await run("examples.tour")
    assert code == 0, said
    assert "What you have seen" in said
    assert "13 of 13 partitions kept their leader" in said


async def test_an_embedded_controller(around: Surroundings) -> None:
    await around.start_brokers(1)
    code, said = await run("examples.embedded_controller", around.connect)
    assert code == 0, said
    assert "greetings-0: leader 1, in sync [1]" in said
    assert await around.controller_id() is None
