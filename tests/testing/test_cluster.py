"""`kctl.testing.Cluster`, as somebody's test suite uses it."""

import asyncio
import gc
import socket
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaClient
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kctl.messages.events import ControlledShutdown
from kctl.model.codes import KafkaError
from kctl.runtime.meters import Handled
from kctl.testing import (
    Cluster,
    Delay,
    Drop,
    NotReached,
    Partition,
    RequestRefused,
)
from kctl.zookeeper.embedded import EmbeddedZooKeeper
from kctl.zookeeper.session import Session

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Entered and left in different tasks, as fixtures of pytest-asyncio are."""
    async with Cluster(brokers=3, topics={"orders": 6}) as c:
        yield c


# -- life ------------------------------------------------------------------------------------


async def test_a_cluster_is_ready_when_it_is_entered(cluster: Cluster) -> None:
    assert [len(parts) for parts in cluster.topics.values()] == [6]
    for partition in cluster.topics["orders"]:
        assert partition.state == "online"
        assert partition.leader == partition.replicas[0]
        assert sorted(partition.isr) == sorted(partition.replicas) == [1, 2, 3]
        assert not partition.under_replicated
    assert list(cluster.brokers) == [1, 2, 3]
    assert all(broker.is_up for broker in cluster.brokers.values())
    assert cluster.bootstrap == ",".join(b.address for b in cluster.brokers.values())
    assert "orders (6)" in repr(cluster)
    assert "1 up, 2 up, 3 up" in repr(cluster)


@pytest.mark.parametrize("kind", ["memory", pytest.param("embedded", marks=pytest.mark.zookeeper)])
async def test_brokers_die_stop_and_return(kind: str) -> None:
    async with Cluster(brokers=3, topics={"orders": 6}, zookeeper=kind) as c:
        before = c.topics["orders"]
        await c.kill(2)
        await c.until(lambda: all(p.leader not in (None, 2) for p in c.topics["orders"]))
        assert [b.id for b in c.brokers.values() if b.is_up] == [1, 3]
        await c.settle()
        for old, new in zip(before, c.topics["orders"], strict=True):
            assert sorted(new.isr) == [1, 3]
            assert new.leader_epoch == old.leader_epoch + 1
        await c.restart(2)
        await c.until(lambda: all(not p.under_replicated for p in c.topics["orders"]))
        assert all(p.leader != 2 for p in c.topics["orders"])
        await c.elect_preferred()
        await c.settle()
        assert [p.leader for p in c.topics["orders"]] == [p.leader for p in before]
        await c.stop(1)
        assert all(p.leader not in (None, 1) for p in c.topics["orders"])
        await c.restart(1)
        await c.settle()
        assert all(not p.under_replicated for p in c.topics["orders"])


async def test_the_controller_has_dealt_with_it_when_kill_returns(cluster: Cluster) -> None:
    for broker in (2, 3):
        await cluster.kill(broker)
        assert all(p.leader not in (None, broker) for p in cluster.topics["orders"])
        assert all(broker not in p.isr for p in cluster.topics["orders"])
    await cluster.restart(3)
    assert sorted(cluster.controller.state.live) == [1, 3]  # type: ignore[union-attr]


async def test_a_controlled_shutdown_moves_leaders_before_the_broker_goes(
    cluster: Cluster,
) -> None:
    """While it is still up, others lead."""
    led_while_up: list[set[int | None]] = []

    def look(done: Handled) -> None:
        if isinstance(done.event, ControlledShutdown) and cluster.brokers[3].is_up:
            led_while_up.append({p.leader for p in cluster.topics["orders"]})

    assert 3 in {p.leader for p in cluster.topics["orders"]}
    unsubscribe = cluster.controller.on_handled(look)
    epoch = cluster.brokers[3].epoch
    await cluster.stop(3)
    unsubscribe()
    assert led_while_up == [{1, 2}]
    await cluster.settle()
    assert all(3 not in p.isr for p in cluster.topics["orders"])
    await cluster.restart(3)
    assert cluster.brokers[3].epoch > epoch


async def test_restart_of_a_broker_that_is_up(cluster: Cluster) -> None:
    epoch, address = cluster.brokers[1].epoch, cluster.brokers[1].address
    await cluster.restart(1)
    await cluster.settle()
    assert cluster.brokers[1].epoch > epoch
    assert cluster.brokers[1].address == address
    assert all(not p.under_replicated for p in cluster.topics["orders"])


async def test_the_last_replica_takes_its_partition_with_it() -> None:
    async with Cluster(brokers=2, topics={"t": {0: [2]}, "u": {0: [1]}}) as c:
        await c.kill(2)
        await c.until(lambda: c.partition("t", 0).state == "offline")
        assert c.partition("t", 0).leader is None
        assert c.partition("u", 0).leader == 1
        await c.restart(2)
        await c.until(lambda: c.partition("t", 0).leader == 2)


async def test_several_in_one_loop() -> None:
    async with (
        Cluster(brokers=1, topics={"a": 1}) as one,
        Cluster(brokers=2, topics={"b": 2}) as two,
    ):
        await two.kill(1)
        await two.until(lambda: all(p.leader == 2 for p in two.topics["b"]))
        assert list(one.topics) == ["a"]
        assert one.partition("a", 0).leader == 1
        assert one.zookeeper != two.zookeeper


def open_sockets() -> list[socket.socket]:
    gc.collect()
    return [s for s in gc.get_objects() if isinstance(s, socket.socket) and s.fileno() != -1]


async def test_nothing_is_left_behind() -> None:
    tasks, sockets = asyncio.all_tasks(), set(map(id, open_sockets()))
    async with Cluster(topics={"orders": 2}) as c:
        c.on_request(Delay(30), api="LeaderAndIsr", broker=1)
        c.on_request(Delay(30), api="AlterPartition")
        await c.kill(2)
        assert len(asyncio.all_tasks()) > len(tasks)
        assert {id(s) for s in open_sockets()} - sockets
    assert asyncio.all_tasks() == tasks
    assert {id(s) for s in open_sockets()} <= sockets


async def test_nothing_is_left_behind_by_a_cluster_that_cannot_start() -> None:
    tasks = asyncio.all_tasks()
    with pytest.raises(RequestRefused, match=r"INVALID_REPLICATION_FACTOR") as refused:
        async with Cluster(brokers=2, topics={"t": 1}, replication_factor=3):
            pytest.fail("it started")
    assert refused.value.error is KafkaError.INVALID_REPLICATION_FACTOR
    assert asyncio.all_tasks() == tasks


async def test_an_error_of_the_test_stays_what_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        async with Cluster(brokers=1):
            raise ZeroDivisionError


async def test_it_can_be_cancelled() -> None:
    tasks = asyncio.all_tasks()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3), Cluster(brokers=1):
            await asyncio.Event().wait()
    assert asyncio.all_tasks() == tasks


# -- choices ---------------------------------------------------------------------------------


async def placed(seed: int) -> list[tuple[int, ...]]:
    async with Cluster(brokers=5, topics={"a": 8, "b": 3}, seed=seed) as c:
        c.random.random()
        return [p.replicas for parts in c.topics.values() for p in parts]


async def test_the_same_seed_makes_the_same_choices() -> None:
    assert await placed(7) == await placed(7)
    assert await placed(7) != await placed(8)
    assert Cluster(seed=7).random.random() == Cluster(seed=7).random.random()


async def test_racks_settings_and_assignments() -> None:
    async with Cluster(
        brokers=4,
        topics={"spread": 4, "mine": {0: [4, 1], 1: [2, 3]}},
        racks=("east", "west"),
        replication_factor=2,
        settings={"unclean.leader.election.enable": "true"},
    ) as c:
        assert [b.rack for b in c.brokers.values()] == ["east", "west", "east", "west"]
        for partition in c.topics["spread"]:
            assert {b % 2 for b in partition.replicas} == {0, 1}
        assert [p.replicas for p in c.topics["mine"]] == [(4, 1), (2, 3)]
        with c.on_request(Drop(), api="AlterPartition"):
            await c.kill(1)
            await c.until(lambda: c.partition("mine", 0).isr == (4,))
            await c.restart(1)
            await c.until(lambda: c.brokers[1].is_up)
            await c.kill(4)
            # 1 is out of sync: an unclean election.
            await c.until(lambda: c.partition("mine", 0).leader == 1)


async def test_a_setting_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match=r"no setting unclean\.election"):
        Cluster(settings={"unclean.election": "true"})


# -- topics ----------------------------------------------------------------------------------


async def test_topics_come_and_go(cluster: Cluster) -> None:
    await cluster.create_topic("new", 4, replication_factor=2, configs={"retention.ms": "9"})
    await cluster.settle()
    assert [len(p.replicas) for p in cluster.topics["new"]] == [2] * 4
    with pytest.raises(RequestRefused, match=r"create topic new: TOPIC_ALREADY_EXISTS"):
        await cluster.create_topic("new")
    await cluster.delete_topic("new")
    await cluster.until(lambda: "new" not in cluster.topics)
    with pytest.raises(RequestRefused, match=r"UNKNOWN_TOPIC_OR_PARTITION"):
        await cluster.delete_topic("new")


async def test_a_deletion_waits_for_a_broker_that_is_down(cluster: Cluster) -> None:
    await cluster.kill(2)
    await cluster.delete_topic("orders")
    await cluster.settle()
    assert "orders" in cluster.topics
    assert "being deleted: orders" in cluster.text()
    await cluster.restart(2)
    await cluster.until(lambda: "orders" not in cluster.topics)


async def test_replicas_move() -> None:
    async with Cluster(brokers=4, topics={"orders": {0: [1, 2], 1: [3, 4]}}) as c:
        with c.on_request(Drop(), api="AlterPartition", topic="orders"):
            await c.reassign("orders", {0: [3, 4]})
            moving = c.partition("orders", 0)
            assert moving.is_reassigning
            assert (moving.adding, moving.removing) == ((3, 4), (1, 2))
        await c.settle()
        moved = c.partition("orders", 0)
        assert (moved.replicas, moved.leader, sorted(moved.isr)) == ((3, 4), 3, [3, 4])
        with pytest.raises(RequestRefused, match=r"INVALID_REPLICA_ASSIGNMENT"):
            await c.reassign("orders", {0: [9]})


# -- waiting ---------------------------------------------------------------------------------


async def test_a_condition_that_does_not_come_true_shows_the_cluster(cluster: Cluster) -> None:
    await cluster.kill(2)
    with cluster.on_request(Drop(), api="StopReplica", broker=1), pytest.raises(NotReached) as it:
        await cluster.until(lambda: cluster.partition("orders", 0).leader == 2, timeout=0.2)
    text = str(it.value)
    assert 'not true within 0.2 s: await cluster.until(lambda: cluster.partition("orders"' in text
    assert "brokers: 1 up, 2 DOWN, 3 up" in text
    assert "orders-0  leader " in text
    assert "hook: Drop() for StopReplica, broker 1: 0 so far" in text
    assert "last events: " in text
    assert "BrokerChange" in text
    assert "seed 0" in text


async def test_what_is_not_there_yet_is_waited_for(cluster: Cluster) -> None:
    with pytest.raises(NotReached, match=r"no partition new-0 in <Cluster"):
        await cluster.until(lambda: cluster.partition("new", 0).leader is not None, timeout=0.05)
    await asyncio.gather(
        cluster.until(lambda c: c.partition("new", 0).leader is not None),
        cluster.create_topic("new"),
    )


async def test_a_condition_may_ask_around(cluster: Cluster) -> None:
    async def two_brokers(c: Cluster) -> bool:
        async with Session.open(c.zookeeper, timeout_ms=10_000) as zk:
            return len(await zk.children("/brokers/ids")) == 2

    with pytest.raises(NotReached, match=r"two_brokers"):
        await cluster.until(two_brokers, timeout=0.1)
    await cluster.kill(1)
    await cluster.until(two_brokers)


async def test_what_conditions_ask_for(cluster: Cluster) -> None:
    for p in range(6):
        await cluster.until(lambda p=p: cluster.partition("orders", p).partition == p)
    happened = asyncio.Event()
    happened.set()
    await cluster.until(happened.is_set)
    await cluster.until(lambda *_: True)
    await cluster.until(lambda c, p=0: c.partition("orders", p) is not None)


async def test_an_error_in_a_condition_is_no_waiting(cluster: Cluster) -> None:
    with pytest.raises(ZeroDivisionError):
        await cluster.until(lambda: bool(1 / 0))


async def test_brokers_that_are_not_there(cluster: Cluster) -> None:
    with pytest.raises(LookupError, match=r"no broker 9; there are 1, 2, 3"):
        await cluster.kill(9)
    await cluster.kill(1)
    with pytest.raises(ValueError, match=r"broker 1 is down already"):
        await cluster.kill(1)


# -- clients ---------------------------------------------------------------------------------


async def test_aiokafka_sees_leaders_move(cluster: Cluster) -> None:
    client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap)
    await client.bootstrap()
    try:

        async def seen_as_it_is() -> bool:
            await client.force_metadata_update()
            known = client.cluster
            return {p.partition: known.leader_for_partition(tp) for p, tp in pairs(known)} == {
                p.partition: p.leader for p in cluster.topics["orders"]
            }

        def pairs(known: object) -> list[tuple[Partition, object]]:
            from aiokafka import TopicPartition  # noqa: PLC0415 named like ours

            return [(p, TopicPartition("orders", p.partition)) for p in cluster.topics["orders"]]

        await client.set_topics(["orders"])
        await cluster.until(seen_as_it_is)
        assert {p.leader for p in cluster.topics["orders"]} == {1, 2, 3}
        await cluster.kill(2)
        await cluster.until(
            lambda: all(p.leader not in (None, 2) for p in cluster.topics["orders"])
        )
        await cluster.until(seen_as_it_is)
        assert 2 not in {b.nodeId for b in client.cluster.brokers()}
    finally:
        await client.close()


async def test_librdkafka_sees_leaders_move_and_makes_topics(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    async def leaders() -> dict[int, int]:
        listed = await asyncio.to_thread(admin.list_topics, "orders", 10)
        return {p.id: p.leader for p in listed.topics["orders"].partitions.values()}

    assert await leaders() == {p.partition: p.leader for p in cluster.topics["orders"]}
    await cluster.kill(2)
    await cluster.settle()
    found = await leaders()
    assert found == {p.partition: p.leader for p in cluster.topics["orders"]}
    assert 2 not in found.values()
    (made,) = admin.create_topics([NewTopic("made", 3, 2)]).values()
    await asyncio.to_thread(made.result, 10)
    await cluster.until(lambda: len(cluster.topics["made"]) == 3)


# -- a real ZooKeeper somewhere ----------------------------------------------------------------


@pytest.mark.zookeeper
async def test_clusters_share_a_real_zookeeper_and_leave_nothing_in_it() -> None:
    async with EmbeddedZooKeeper() as server:
        async with (
            Cluster(brokers=2, topics={"a": 2}, zookeeper=server.connect_string) as one,
            Cluster(brokers=2, topics={"b": 2}, zookeeper=server.connect_string) as two,
        ):
            await one.kill(1)
            await one.until(lambda: all(p.leader == 2 for p in one.topics["a"]))
            assert list(two.topics) == ["b"]
            assert two.brokers[1].is_up
        async with Session.open(server.connect_string, timeout_ms=10_000) as zk:
            assert await zk.children("/") == ["zookeeper"]
