"""Following real znodes: what is seen, taken in, is what is there, however it was noticed."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kctl.insight.following import Follower
from kctl.insight.fork import copied
from kctl.insight.sightings import BrokerSeen, ControllerSeen, MarkerSeen, take_in
from kctl.insight.snapshot import open_reader, take_snapshot
from kctl.messages.effects import TopicNode
from kctl.model.names import TopicPartition
from kctl.simulation.memory import MemoryZooKeeper
from kctl.zookeeper.errors import NoNode, Unimplemented
from kctl.zookeeper.session import ReadOnlySession, Session
from tests.insight.scenes import read_scene
from tests.insight.test_commands import fill
from tests.zookeeper.fault_proxy import FaultProxy

pytestmark = [pytest.mark.zookeeper, pytest.mark.asyncio]

BOUND_S = 30.0


@asynccontextmanager
async def following(connect: str) -> AsyncIterator[tuple[Follower, MemoryZooKeeper]]:
    async with open_reader(connect) as session:
        follower = Follower(session)
        snapshot = await follower.start()
        yield follower, copied(snapshot.zookeeper)


def visible(zookeeper: MemoryZooKeeper) -> tuple[object, ...]:
    """What of it belongs to topics that are there: a snapshot does not look for anything else."""
    known = {
        TopicPartition(topic, partition)
        for topic, node in zookeeper.topics.items()
        if isinstance(node, TopicNode)
        for partition in node.partitions
    }
    return (
        zookeeper.brokers,
        zookeeper.topics,
        {tp: state for tp, state in zookeeper.states.items() if tp in known},
        {topic: config for topic, config in zookeeper.configs.items() if topic in zookeeper.topics},
        zookeeper.deletions,
        zookeeper.reassignments,
        zookeeper.preferred_election,
    )


async def until_same(follower: Follower, reality: MemoryZooKeeper, zk: Session) -> None:
    """Take in what is seen until nothing is missing."""
    wanted = (await take_snapshot(zk)).zookeeper
    try:
        async with asyncio.timeout(BOUND_S):
            while visible(reality) != visible(wanted):
                for seen in await follower.next(reality, 0.5):
                    take_in(reality, seen)
    except TimeoutError:
        raise AssertionError(f"{visible(reality)}\n!=\n{visible(wanted)}") from None


async def put(zk: Session, path: str, data: bytes) -> None:
    try:
        await zk.set(path, data)
    except NoNode:
        parent = path.rpartition("/")[0]
        if parent and await zk.exists(parent) is None:
            await put(zk, parent, b"")
        await zk.create(path, data)


async def change_something(zk: Session, dice: random.Random) -> None:
    pool = read_scene(
        """
        controller 2 epoch=9
        broker 4 rack=z
        topic more 0=1,4 1=4,2
        topic orders 0=1,2,3+3-1 1=2,3 2=3
        config orders min.insync.replicas=3
        default unclean.leader.election.enable=true
        state orders-0 leader=2 isr=2,3 epoch=9
        state more-0 leader=1 isr=1 epoch=0
        marked orders
        znode /brokers/topics/bad nonsense
        znode /admin/preferred_replica_election {"partitions":[{"topic":"orders","partition":0}]}
        """
    ).nodes
    leaves = [path for path, (data, _) in pool.items() if data or "delete_topics/" in path]
    path = dice.choice(leaves)
    if dice.random() < 0.3 and await zk.exists(path) is not None and not await zk.children(path):
        await zk.delete(path)
    else:
        await put(zk, path, pool[path][0])


@pytest.mark.parametrize("polling", [False, True], ids=["watching", "polling"])
async def test_nothing_is_missed(
    polling: bool, zk: Session, chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if polling:

        async def too_old(*_: object) -> None:
            raise Unimplemented

        monkeypatch.setattr(ReadOnlySession, "add_watch", too_old)
    await fill(zk)
    dice = random.Random(5)
    async with following(chroot) as (follower, reality):
        for _ in range(12):
            for _ in range(dice.randint(1, 6)):
                await change_something(zk, dice)
            await until_same(follower, reality, zk)


async def test_what_changed_while_the_connection_was_lost(
    zk: Session, chroot: str, proxy: FaultProxy
) -> None:
    await fill(zk)
    dice = random.Random(6)
    async with following(proxy.address + "/" + chroot.partition("/")[2]) as (follower, reality):
        for _ in range(3):
            await proxy.stop_listening()
            proxy.cut_rst()
            for _ in range(5):
                await change_something(zk, dice)
            await proxy.listen()
            await until_same(follower, reality, zk)


async def test_the_order_is_that_of_zookeeper_and_short_lives_are_seen(
    zk: Session, chroot: str
) -> None:
    await fill(zk)
    async with following(chroot) as (follower, reality):
        registration, _ = await zk.get("/brokers/ids/2")
        await zk.delete("/brokers/ids/2")
        await zk.create("/admin/delete_topics/orders")
        await zk.delete("/admin/delete_topics/orders")
        await zk.delete("/controller")
        await zk.create("/brokers/ids/2", registration)
        await zk.create("/controller", json.dumps({"version": 2, "brokerid": 3}).encode())
        seen = []
        async with asyncio.timeout(BOUND_S):
            while ControllerSeen(3, 7) not in seen:
                seen += await follower.next(reality, 0.5)
    assert seen[:4] == [
        BrokerSeen(2, None),
        MarkerSeen("orders", True),
        MarkerSeen("orders", False),
        ControllerSeen(None, 7),
    ]
    (back,) = [one for one in seen if isinstance(one, BrokerSeen) and one.value is not None]
    assert back.broker == 2
