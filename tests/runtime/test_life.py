"""A controller's day on a real ZooKeeper: election, load, brokers, topics, handover."""

import asyncio
import json

import pytest

from kctl.messages import events as ev
from kctl.messages.answers import PartitionErrors, Reassignments, TopicResults
from kctl.messages.requests import DisconnectAll, LeaderAndIsrRequest, UpdateMetadataRequest
from kctl.model.codes import KafkaError
from kctl.model.invariants import violations
from kctl.model.names import TopicPartition
from kctl.runtime.controller import Controller
from kctl.runtime.meters import Handled
from kctl.zookeeper.wire import CreateMode
from tests.runtime.surroundings import Surroundings, cluster_has, row_is, sent_by

pytestmark = [pytest.mark.zookeeper, pytest.mark.asyncio, pytest.mark.timeout(60)]


def is_active(controller: Controller) -> bool:
    return controller.is_active


async def test_an_empty_zookeeper_gets_its_first_controller(around: Surroundings) -> None:
    async with around.controller() as controller:
        await controller.until(is_active)
        assert await around.controller_id() == 1000
        assert await around.epoch() == 1
        assert await around.exists("/admin/delete_topics")
    assert await around.controller_id() is None
    assert await around.epoch() == 1


async def test_a_chroot_that_is_missing_is_made(around: Surroundings) -> None:
    connect = f"{around.connect}/deep/kafka"
    async with around.controller(zookeeper_connect=connect) as controller:
        await controller.until(is_active)
    assert await around.exists("/deep/kafka/controller_epoch")


async def test_brokers_come_and_go(around: Surroundings) -> None:
    await around.start_brokers(1, 2, 3)
    await around.create_topic("orders", {0: [1, 2, 3], 1: [2, 3, 1]})
    async with around.controller() as controller:
        await controller.until(row_is("orders", leader=1, isr=(1, 2, 3)))
        await around.stop_brokers(1)
        await controller.until(row_is("orders", leader=2, isr=(2, 3)))
        written = await around.state("orders")
        assert (written["leader"], written["leader_epoch"], written["isr"]) == (2, 1, [2, 3])
        await around.start_brokers(1)
        await controller.until(cluster_has(lambda c: 1 in c.live))
        sent = [d for d in sent_by(controller) if isinstance(d, LeaderAndIsrRequest)]
        assert sent[-1].broker == 1
        assert TopicPartition("orders", 0) in sent[-1].rows
        assert controller.state is not None
        assert violations(controller.state) == []


async def test_an_event_tells_when_it_did_what(around: Surroundings) -> None:
    await around.start_brokers(1, 2)
    await around.create_topic("orders", {0: [1, 2]})
    async with around.controller() as controller:
        handled: list[Handled] = []
        controller.on_handled(handled.append)
        await controller.until(row_is("orders", leader=1))
        load = next(done for done in handled if "ReadTopics" in done.phases)
        (topics, states) = (load.phases[name] for name in ("ReadTopics", "ReadPartitions"))
        assert 0 < topics[0] <= topics[1] <= states[0] <= states[1] <= load.took_s
        assert "Flush" not in load.phases


async def test_a_topic_is_made_grown_and_deleted_by_znodes(around: Surroundings) -> None:
    await around.start_brokers(1, 2)
    async with around.controller() as controller:
        await controller.until(is_active)
        await around.create_topic("a", {0: [1, 2]})
        await controller.until(row_is("a", 0, leader=1))
        content = json.loads((await around.zk.get("/brokers/topics/a"))[0])
        content["partitions"]["1"] = [2, 1]
        await around.put("/brokers/topics/a", json.dumps(content).encode())
        await controller.until(row_is("a", 1, leader=2))
        await around.make("/admin/delete_topics/a")
        await controller.until(cluster_has(lambda c: "a" not in c.topics))
        for left in ("/brokers/topics/a", "/config/topics/a", "/admin/delete_topics/a"):
            assert not await around.exists(left)
        await around.create_topic("a", {0: [2, 1]})
        await controller.until(row_is("a", 0, leader=2))


async def test_a_topic_is_made_grown_and_deleted_by_requests(around: Surroundings) -> None:
    await around.start_brokers(1, 2, 3)
    async with around.controller() as controller:
        await controller.until(is_active)
        made = await controller.ask(
            lambda caller: ev.CreateTopics(caller, (ev.NewTopic("b", 4, 3),))
        )
        assert isinstance(made, TopicResults)
        assert made.topics[0].error.code is KafkaError.NONE
        grown = await controller.ask(
            lambda caller: ev.CreatePartitions(caller, (ev.NewPartitions("b", 6),))
        )
        assert isinstance(grown, TopicResults)
        assert grown.topics[0].error.code is KafkaError.NONE
        assert controller.state is not None
        assert len(controller.state.rows) == 6
        gone = await controller.ask(lambda caller: ev.DeleteTopics(caller, (("b", None),)))
        assert isinstance(gone, TopicResults)
        await controller.until(cluster_has(lambda c: not c.topics))
        await around.until_gone("/brokers/topics/b")


async def test_a_deletion_waits_for_a_dead_broker(around: Surroundings) -> None:
    await around.start_brokers(1, 2)
    await around.create_topic("a", {0: [1, 2]})
    async with around.controller() as controller:
        await controller.until(row_is("a", leader=1))
        await around.stop_brokers(2)
        await controller.until(cluster_has(lambda c: 2 not in c.live))
        await around.make("/admin/delete_topics/a")
        await controller.until(cluster_has(lambda c: "a" in c.deletions))
        await around.start_brokers(2)
        await controller.until(cluster_has(lambda c: "a" not in c.topics))
        await around.until_gone("/admin/delete_topics/a")


async def test_a_reassignment_by_znode_and_one_by_request(around: Surroundings) -> None:
    await around.start_brokers(1, 2, 3)
    await around.create_topic("a", {0: [1], 1: [1]})
    async with around.controller() as controller:
        await controller.until(row_is("a", 1, leader=1))
        target = {"version": 1, "partitions": [{"topic": "a", "partition": 0, "replicas": [2]}]}
        await around.put("/admin/reassign_partitions", json.dumps(target).encode())
        await controller.until(row_is("a", 0, replicas=(2, 1)))
        await controller.ask(
            lambda c: ev.ApiPartitionReassignment(c, {TopicPartition("a", 1): (3,)})
        )
        listed = await controller.ask(ev.ListPartitionReassignments)
        assert isinstance(listed, Reassignments)
        assert {str(tp) for tp in listed.partitions} == {"a-0", "a-1"}
        # The new replicas catch up: their leader asks for them to be in the ISR.
        for partition, isr in ((0, (1, 2)), (1, (1, 3))):
            await join_isr(controller, TopicPartition("a", partition), isr)
        await controller.until(row_is("a", 0, replicas=(2,), leader=2))
        await controller.until(row_is("a", 1, replicas=(3,), leader=3))
        await around.until_gone("/admin/reassign_partitions")
        content = json.loads((await around.zk.get("/brokers/topics/a"))[0])
        assert content["partitions"] == {"0": [2], "1": [3]}
        assert content["adding_replicas"] == content["removing_replicas"] == {}


async def join_isr(controller: Controller, tp: TopicPartition, isr: tuple[int, ...]) -> None:
    assert controller.state is not None
    led = controller.state.rows[tp].leadership
    assert led is not None
    broker = controller.state.brokers[led.leader]
    proposal = ev.IsrProposal(isr, led.leader_epoch, led.zk_version)
    await controller.ask(
        lambda c: ev.AlterPartitionReceived(c, broker.id, broker.epoch, 1, {tp: proposal})
    )


async def test_unclean_election_turned_on_at_run_time(around: Surroundings) -> None:
    await around.start_brokers(1, 2)
    await around.create_topic("a", {0: [1, 2]})
    await around.create_topic("b", {0: [1, 2]})
    async with around.controller() as controller:
        await controller.until(row_is("b", leader=1))
        await around.stop_brokers(2)
        await controller.until(row_is("b", isr=(1,)))
        await around.stop_brokers(1)
        await controller.until(row_is("b", leader=-1))
        await around.start_brokers(2)
        await controller.until(cluster_has(lambda c: 2 in c.live))
        assert row_is("a", leader=-1)(controller)
        config = {"version": 1, "config": {"unclean.leader.election.enable": "true"}}
        await around.put("/config/topics/a", json.dumps(config).encode())
        change = json.dumps({"version": 2, "entity_path": "topics/a"}).encode()
        await around.zk.create(
            "/config/changes/config_change_", change, CreateMode.PERSISTENT_SEQUENTIAL
        )
        await controller.until(row_is("a", leader=2, isr=(2,)))
        assert row_is("b", leader=-1)(controller)
        await around.put("/config/brokers/<default>", json.dumps(config).encode())
        await controller.until(row_is("b", leader=2, isr=(2,)))


async def test_an_election_by_znode(around: Surroundings) -> None:
    await around.start_brokers(1, 2)
    await around.create_topic("a", {0: [1, 2]})
    await around.make("/brokers/topics/a/partitions/0")
    async with around.controller(auto_leader_rebalance_enable=False) as controller:
        await controller.until(row_is("a", leader=1))
        await around.stop_brokers(1)
        await controller.until(row_is("a", leader=2))
        await around.start_brokers(1)
        await controller.until(cluster_has(lambda c: 1 in c.live))
        await join_isr(controller, TopicPartition("a", 0), (2, 1))
        wanted = {"version": 1, "partitions": [{"topic": "a", "partition": 0}]}
        await around.put("/admin/preferred_replica_election", json.dumps(wanted).encode())
        await controller.until(row_is("a", leader=1))
        await around.until_gone("/admin/preferred_replica_election")


async def test_leaving_the_context_hands_over(around: Surroundings) -> None:
    """The second one is elected by the first one's farewell, not by the end of its session."""
    await around.start_brokers(1)
    leave, elected = asyncio.Event(), asyncio.Event()
    first = around.controller(zookeeper_session_timeout_ms=60_000)

    async def be_first() -> None:
        async with first:
            await first.until(is_active)
            elected.set()
            await leave.wait()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(be_first())
        await elected.wait()
        async with around.controller(broker_id=1001, zookeeper_session_timeout_ms=60_000) as second:
            await second.until(lambda c: c.active_id == 1000)
            leave.set()
            async with asyncio.timeout(30):
                await second.until(is_active)
            assert sent_by(first)[-1] == DisconnectAll()
            assert await around.controller_id() == 1001
            assert await around.epoch() == 2


async def test_a_takeover_from_a_broker(around: Surroundings) -> None:
    """Epoch raised, the old znode gone and ours there, in one transaction."""
    await around.make("/controller_epoch", b"7")
    broker = json.dumps({"version": 2, "brokerid": 1, "timestamp": "1"}).encode()
    await around.zk.create("/controller", broker, CreateMode.EPHEMERAL)
    async with around.controller() as polite:
        await polite.until(lambda c: c.active_id == 1)
        assert not polite.is_active
        async with around.controller(broker_id=1001, takeover=True) as controller:
            await controller.until(is_active)
            _, ours = await around.zk.get("/controller")
            _, epoch = await around.zk.get("/controller_epoch")
            assert ours.czxid == epoch.mzxid
            assert await around.epoch() == 8
            await polite.until(lambda c: c.active_id == 1001)


async def test_deleted_before_the_watch_was_armed_again(around: Surroundings) -> None:
    """Our own claim is the first change that the watch reports. What follows it at once has no
    watch, and must be found by looking."""
    async with around.controller() as controller:
        deleted = asyncio.Event()

        async def delete() -> None:
            await around.zk.delete("/controller")
            deleted.set()

        async with asyncio.TaskGroup() as tasks:
            ended = controller.on_story(
                lambda story: tasks.create_task(delete()) if story.what == "elected" else None  # type: ignore[arg-type]
            )
            await deleted.wait()
            ended()
        await controller.until(lambda c: c.state is not None and c.state.epoch > 1)
        assert await around.controller_id() == 1000


async def test_two_kctl_never_fight(around: Surroundings) -> None:
    async with around.controller(takeover=True) as first:
        await first.until(is_active)
        async with around.controller(broker_id=1001, takeover=True) as second:
            await second.until(lambda c: c.active_id == 1000)
            # Whatever makes it look again, it stays a standby.
            second.put(ev.Reelect())
            second.put(ev.ControllerChange())
            await second.until(lambda c: "ControllerChange" in c.meters.handled)
            assert first.is_active
            assert not second.is_active
            assert await around.epoch() == 1


def reelections(controller: Controller) -> int:
    timing = controller.meters.handled.get("Reelect")
    return 0 if timing is None else timing.count


async def test_force_takes_it_once(around: Surroundings) -> None:
    """Two that are forced must not take it from each other for ever."""
    async with around.controller(force_takeover=True) as first:
        await first.until(is_active)
        async with around.controller(broker_id=1001, force_takeover=True) as second:
            await second.until(is_active)
            await first.until(lambda c: c.active_id == 1001)
            assert not first.is_active
            before = reelections(first)
            first.put(ev.Reelect())
            await first.until(lambda c: reelections(c) > before)
            assert second.is_active
            assert await around.epoch() == 2
        await first.until(is_active)


async def test_brokers_are_told_before_leaderships(around: Surroundings) -> None:
    """S10: UpdateMetadata with the live brokers goes before the first LeaderAndIsr."""
    await around.start_brokers(1, 2, 3)
    await around.create_led_topics(2, 2, 3)
    async with around.controller() as controller:
        await controller.until(is_active)
        kinds = [type(d) for d in sent_by(controller)]
        assert kinds.index(UpdateMetadataRequest) < kinds.index(LeaderAndIsrRequest)


async def test_what_a_standby_is_asked_is_refused(around: Surroundings) -> None:
    async with around.controller() as active:
        await active.until(is_active)
        async with around.controller(broker_id=1001) as standby:
            answer = await standby.ask(
                lambda c: ev.ReplicaLeaderElection(c, (TopicPartition("a", 0),))
            )
            assert isinstance(answer, PartitionErrors)
            (error,) = answer.errors.values()
            assert error.code is KafkaError.NOT_CONTROLLER
        answer = await standby.ask(ev.ListPartitionReassignments)
        assert "NOT_CONTROLLER" in repr(answer)
