"""Clusters under random tests: whatever was done to them, they come to rest, and heal."""

import pytest

from kctl.testing import Cluster, Delay, Drop, Request, RequestRefused
from kctl.testing.cluster_hooks import Action

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(120)]

STEPS = 12


async def step(c: Cluster, number: int) -> None:
    """One random thing; what the controller refuses is left undone."""
    up = [b.id for b in c.brokers.values() if b.is_up]
    down = [b.id for b in c.brokers.values() if not b.is_up]
    topics = list(c.topics)
    match c.random.choice(["kill", "stop", "start", "bounce", "create", "delete", "move", "elect"]):
        case "kill" if len(up) > 1:
            await c.kill(c.random.choice(up))
        case "stop" if len(up) > 1:
            await c.stop(c.random.choice(up))
        case "start" if down:
            await c.restart(c.random.choice(down))
        case "bounce":
            await c.restart(c.random.choice(up))
        case "create":
            factor = c.random.randint(1, len(up))
            await c.create_topic(f"new-{number}", c.random.randint(1, 3), replication_factor=factor)
        case "delete" if topics:
            await c.delete_topic(c.random.choice(topics))
        case "move" if topics:
            replicas = c.random.sample(up, c.random.randint(1, len(up)))
            await c.reassign(c.random.choice(topics), {0: replicas})
        case "elect":
            await c.elect_preferred()


@pytest.mark.parametrize("seed", range(1, 7))
async def test_a_cluster_heals(seed: int) -> None:
    async with Cluster(brokers=4, topics={"a": 3, "b": 2}, seed=seed) as c:

        def weather(_request: Request) -> Action | None:
            chance = c.random.random()
            return Drop() if chance < 0.1 else Delay(chance / 10) if chance < 0.25 else None

        with c.on_request(weather) as hook:
            for number in range(STEPS):
                try:
                    await step(c, number)
                except RequestRefused:
                    pass
        assert hook.seen
        await c.settle(timeout=30)
        for broker in c.brokers.values():
            if not broker.is_up:
                await c.restart(broker.id)
        await c.settle(timeout=30)
        hurt = [p for parts in c.topics.values() for p in parts if p.leader is None]
        hurt += [p for parts in c.topics.values() for p in parts if p.under_replicated]
        assert hurt == [], c.text()
        assert c.controller.meters.faults == 0
