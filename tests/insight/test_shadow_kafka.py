"""Beside Kafka 3.9.1's own controller: random events on real brokers, and not one difference."""

import pytest

from kctl.insight.shadow import Verdict
from kctl.zookeeper.embedded import EmbeddedZooKeeper
from tests.insight.administration import shadow_random_events

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


async def agree(events: int, seed: int) -> None:
    with EmbeddedZooKeeper() as zookeeper:
        report, done = await shadow_random_events(zookeeper.connect_string, events, seed)
    story = "\n".join(done[-20:])
    unexplained = [f for f in report.findings if f.verdict is not Verdict.EXPLAINED]
    assert not unexplained, f"seed {seed}:\n{unexplained[0].trace}\n{story}"
    assert len(done) >= events
    assert sum(report.decisions.values()) >= events / 2, report.decisions


@pytest.mark.timeout(300)
async def test_kafkas_own_controller_decides_the_same() -> None:
    await agree(events=18, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(2400)
async def test_kafkas_own_controller_decides_the_same_for_long() -> None:
    await agree(events=200, seed=2)
