"""Brokers that die, leave, return, lose their disks; under load, and judged by what they log."""

import asyncio
from pathlib import Path

import pytest

from kctl.insight.snapshot import open_reader, take_snapshot
from kctl.model.names import NO_LEADER, TopicPartition
from kctl.model.rows import Leadership
from kctl.testing.kafka import VERSIONS
from tests.kafka.live import BOUND_S, live_cluster
from tests.kafka.load import Load

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


@pytest.mark.parametrize(
    "version",
    [VERSIONS[0], *(pytest.param(version, marks=pytest.mark.slow) for version in VERSIONS[1:])],
)
async def test_brokers_leave_die_and_return(chroot: str, version: str) -> None:
    """No acknowledged record is lost or doubled by a shutdown, a crash and a lost disk."""
    async with live_cluster(chroot, version=version) as cluster:
        await cluster.create("orders", partitions=6)
        async with Load(cluster.brokers.bootstrap, "orders") as load:
            await cluster.shut_down(1)
            await load.more(100)
            await cluster.until_agreed()
            assert all(1 not in row.isr for row in cluster.state.rows.values())
            await cluster.start(1)
            await cluster.until_in_sync()
            await cluster.until_agreed()

            await cluster.kill(2)
            await load.more(100)
            await cluster.until_agreed()
            cluster.brokers[2].wipe()
            await cluster.start(2)
            await cluster.until_in_sync()
            await load.more(100)
            balance = await load.balance()
        assert balance.is_clean, str(balance)
        print(version, balance)  # noqa: T201
        await cluster.until_agreed()
        assert cluster.broker_errors() == []


@pytest.mark.slow
async def test_a_shutdown_after_isr_changes_that_only_zookeeper_knows(chroot: str) -> None:
    """Leaders before 2.7 write ISRs themselves, and tell the controller seconds later."""
    async with live_cluster(chroot, version="2.4.1") as cluster:
        await cluster.create("orders", partitions=6)
        await cluster.shut_down(1)
        await cluster.start(1)
        async with asyncio.timeout(BOUND_S), open_reader(cluster.zookeeper) as reader:
            while True:
                states = (await take_snapshot(reader)).zookeeper.states.values()
                if all(isinstance(s, Leadership) and len(s.isr) == 3 for s in states):
                    break
        assert any(len(row.isr) < 3 for row in cluster.state.rows.values()), "kctl knew it"
        await cluster.shut_down(2)
        assert all(row.leader in (1, 3) for row in cluster.state.rows.values())
        await cluster.until_agreed()
        assert cluster.broker_errors() == []


async def test_a_log_dir_fails(chroot: str) -> None:
    """One of two log dirs of a broker: only the replicas there go offline, and they come back."""
    checkpoint = {"replica.high.watermark.checkpoint.interval.ms": "300"}
    async with live_cluster(chroot, log_dirs=2, settings=checkpoint) as cluster:
        await cluster.create("orders", partitions=6)
        await cluster.until_agreed()
        broker = cluster.brokers[1]
        failing, intact = broker.log_dirs
        hurt = partitions_in(failing, "orders")
        assert hurt
        assert partitions_in(intact, "orders")
        async with Load(cluster.brokers.bootstrap, "orders") as load:
            # Root may write whatever the mode is: but not into a file as if it were a folder.
            failing.rename(failing.with_suffix(".gone"))
            failing.write_bytes(b"")
            await cluster.until(lambda state: set(state.offline_dirs.get(1, ())) == hurt)
            await cluster.until(
                lambda state: {tp for tp, row in state.rows.items() if 1 not in row.isr} == hurt
            )
            assert all(row.leader in cluster.state.live for row in cluster.state.rows.values())
            assert all(cluster.state.rows[tp].leader != 1 for tp in hurt)
            await load.more(100)
            await cluster.until_agreed()

            await cluster.kill(broker.id)
            failing.unlink()
            failing.with_suffix(".gone").rename(failing)
            await cluster.start(broker.id)
            await cluster.until_in_sync()
            assert not cluster.state.offline_dirs
            balance = await load.balance()
        assert balance.is_clean, str(balance)
        await cluster.until_agreed()
        assert [e for e in cluster.broker_errors() if str(failing) not in e] == []


def partitions_in(folder: Path, topic: str) -> set[TopicPartition]:
    names = (entry.name.rpartition("-") for entry in folder.iterdir() if entry.is_dir())
    return {TopicPartition(name, int(number)) for name, _, number in names if name == topic}


async def test_unclean_elections_when_they_are_wanted(chroot: str) -> None:
    """The last one in sync is gone: its follower leads only on demand, by tool or by config."""
    by_tool, by_config = TopicPartition("by-tool", 0), TopicPartition("by-config", 0)
    async with live_cluster(chroot, settings={"min.insync.replicas": "1"}) as cluster:
        for topic in ("by-tool", "by-config"):
            await cluster.tool(
                "kafka-topics", "--create", "--topic", topic, "--replica-assignment", "1:2"
            )
        await cluster.shut_down(2)
        await cluster.kill(1)
        await cluster.until(lambda state: state.rows[by_tool].leader == NO_LEADER)
        await cluster.start(2)
        await cluster.until_agreed()
        for tp in (by_tool, by_config):
            row = cluster.state.rows[tp]
            assert (row.leader, row.isr) == (NO_LEADER, (1,))

        await cluster.tool(
            "kafka-leader-election",
            *("--election-type", "unclean", "--topic", "by-tool", "--partition", "0"),
        )
        await cluster.until(lambda state: state.rows[by_tool].leader == 2)
        assert cluster.state.rows[by_config].leader == NO_LEADER
        await cluster.tool(
            "kafka-configs",
            *("--alter", "--entity-type", "topics", "--entity-name", "by-config"),
            *("--add-config", "unclean.leader.election.enable=true"),
        )
        await cluster.until(lambda state: state.rows[by_config].leader == 2)
        await cluster.until_agreed()

        await cluster.start(1)
        await cluster.until_in_sync()
        await cluster.until_agreed()
        assert cluster.broker_errors() == []
