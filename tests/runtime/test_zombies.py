"""S1: a controller that sleeps past its office writes nothing more under its old epoch.

KAFKA-6082: the active controller is stopped in the middle of moving 1,000 leaderships, another one
takes over, and then the first one runs on where it was. Before that, the broker whose loss it was
dealing with comes back: the new controller leaves the rest of the rows alone, so each write of the
old one would be accepted by its row's version. Only the fence is in its way.
"""

import asyncio
import json
import random
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest

from kctl.model.names import TopicPartition
from kctl.zookeeper import paths
from tests.runtime.surroundings import Surroundings

pytestmark = [pytest.mark.zookeeper, pytest.mark.asyncio, pytest.mark.timeout(120)]

PROGRAM = Path(__file__).with_name("candidate.py")
TOPICS, PARTITIONS = 20, 50
REPLICAS = [1, 2, 3]
LINE_BOUND_S = 60
SHORT_MS, LONG_MS = 3_000, 60_000


@attrs.define
class Candidate:
    process: asyncio.subprocess.Process
    lines: list[str] = attrs.field(factory=list)

    async def until(self, pattern: str) -> str:
        """The next line that fits."""
        assert self.process.stdout is not None
        async with asyncio.timeout(LINE_BOUND_S):
            while line := (await self.process.stdout.readline()).decode().rstrip():
                self.lines.append(line)
                if re.fullmatch(pattern, line):
                    return line
        raise AssertionError(f"no line {pattern!r} in {self.lines}")

    def is_stopped(self) -> bool:
        stat = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii")
        return stat.rpartition(")")[2].split()[0] == "T"


@asynccontextmanager
async def candidate(
    around: Surroundings, broker_id: int, timeout_ms: int, *words: str
) -> AsyncIterator[Candidate]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(PROGRAM),
        around.connect,
        str(broker_id),
        str(timeout_ms),
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield Candidate(process)
    finally:
        process.kill()
        await process.wait()


@attrs.frozen
class Written:
    """What the state znodes say after a run."""

    before_takeover: int
    """States that the old controller wrote in its time."""
    by_the_zombie: list[str]
    """States under the old epoch that were written after the new one began."""


async def run_zombie(
    around: Surroundings, stop_at: int, *, after: bool, expire: bool, unfenced: bool = False
) -> Written:
    names = [f"t{n:02}" for n in range(TOPICS)]
    tps = [TopicPartition(name, p) for name in names for p in range(PARTITIONS)]
    await around.create_topics_led_by(1, names, PARTITIONS)
    await around.start_brokers(*REPLICAS)
    words = [f"stop={stop_at}"] + ["after"] * after + ["unfenced"] * unfenced
    old_timeout_ms = SHORT_MS if expire else LONG_MS
    async with candidate(around, 1000, old_timeout_ms, *words) as old:
        await old.until(r"active \d+")
        async with candidate(around, 1001, LONG_MS, *(["force"] if not expire else [])) as new:
            if expire:
                await new.until("standing by 1000")
            else:
                # It takes the office while the old one holds it, asleep, in a session that lives.
                new.process.send_signal(signal.SIGSTOP)
            await around.stop_brokers(1)
            await old.until("stopping")
            while not old.is_stopped():  # noqa: ASYNC110 another process
                await asyncio.sleep(0.01)
            await around.start_brokers(1)
            new.process.send_signal(signal.SIGCONT)
            await new.until(r"active \d+")
            written = await count_written(around, tps)
            old.process.send_signal(signal.SIGCONT)
            await old.until("resigned")
            await old.until("standing by 1001")
            _, claim = await around.zk.get(paths.CONTROLLER_EPOCH)
            epoch = await around.epoch()
            return Written(written, await by_zombie(around, tps, claim.mzxid, epoch))


async def count_written(around: Surroundings, tps: list[TopicPartition]) -> int:
    reads = await around.zk.read_many([paths.partition_state(tp) for tp in tps])
    return sum(json.loads(r[0])["controller_epoch"] > 0 for r in reads if isinstance(r, tuple))


async def by_zombie(
    around: Surroundings, tps: list[TopicPartition], claim_zxid: int, epoch: int
) -> list[str]:
    found = []
    reads = await around.zk.read_many([paths.partition_state(tp) for tp in tps])
    for tp, read in zip(tps, reads, strict=True):
        assert isinstance(read, tuple)
        content, stat = json.loads(read[0]), read[1]
        if stat.mzxid > claim_zxid and content["controller_epoch"] < epoch:
            found.append(f"{tp} at {stat.mzxid:#x}, the claim was at {claim_zxid:#x}")
    return found


def scenario(seed: int) -> tuple[int, bool, bool]:
    chance = random.Random(seed)
    return chance.randint(2, 49), chance.random() < 0.5, seed % 2 == 0


async def check(around: Surroundings, seed: int) -> None:
    stop_at, after, expire = scenario(seed)
    written = await run_zombie(around, stop_at, after=after, expire=expire)
    assert written.by_the_zombie == []
    assert 0 < written.before_takeover < TOPICS * PARTITIONS, "it was not in the middle"


@pytest.mark.parametrize("seed", range(4))
async def test_nothing_of_the_old_epoch_lands(around: Surroundings, seed: int) -> None:
    await check(around, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 20))
async def test_nothing_of_the_old_epoch_lands_in_more_runs(around: Surroundings, seed: int) -> None:
    await check(around, seed)


async def test_without_the_fence_it_would_be_seen(around: Surroundings) -> None:
    written = await run_zombie(around, 10, after=False, expire=False, unfenced=True)
    assert written.by_the_zombie != []
