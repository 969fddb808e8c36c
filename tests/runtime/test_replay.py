"""A live run, recorded; and the core alone, told the same: equal after every single event."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import kctl
from kctl.cli import app
from kctl.insight.replay import Record, Replay, ReplayError, read_journal
from kctl.logic import broker_changes
from kctl.messages import events as ev
from kctl.messages.outbox import Outbox
from kctl.model.cluster import ClusterState
from kctl.model.codes import KafkaError
from kctl.model.names import TopicPartition
from kctl.model.secrets import Secret
from kctl.runtime import faults, journal
from kctl.runtime.meters import Handled
from kctl.zookeeper.wire import CreateMode
from tests.runtime.surroundings import (
    AnsweringChannels,
    Surroundings,
    WatchedController,
    cluster_has,
    row_is,
    until_settled,
)
from tests.runtime.test_faults import end_session
from tests.runtime.test_life import is_active, join_isr

pytestmark = [pytest.mark.zookeeper, pytest.mark.asyncio, pytest.mark.timeout(120)]


class Recorded(WatchedController):
    """Keeps the hash after each event."""

    def __init__(self, config: kctl.Config) -> None:
        super().__init__(config, channels=AnsweringChannels)
        self.hashes: list[str] = []

    def _publish(self, done: Handled) -> None:
        self.hashes.append(self.state_hash)
        super()._publish(done)


async def a_busy_life(around: Surroundings, controller: Recorded) -> None:
    """Events of all kinds, among them sessions that end and a handler that fails."""
    await around.start_brokers(1, 2, 3)
    await around.create_topic("a", {0: [1, 2, 3], 1: [2, 3, 1]})
    await around.make("/brokers/topics/poison", b"garbage")
    async with controller:
        await controller.until(row_is("a", 1, leader=2))
        await around.stop_brokers(1)
        await controller.until(row_is("a", leader=2))
        await around.start_brokers(1)
        await controller.until(cluster_has(lambda c: 1 in c.live))
        await join_isr(controller, TopicPartition("a", 0), (2, 3, 1))
        await ask_everything(controller)
        await around.stop_brokers(3)
        await around.start_brokers(3)  # it was told to shut down
        await controller.until(cluster_has(lambda c: 3 in c.live and "b" not in c.topics))
        await around.put("/brokers/topics/poison", b'{"partitions":{"0":[3]}}')
        await controller.until(row_is("poison", leader=3))
        config = {"version": 1, "config": {"unclean.leader.election.enable": "true"}}
        await around.put("/config/brokers/<default>", json.dumps(config).encode())
        await around.put("/config/topics/a", json.dumps(config).encode())
        change = json.dumps({"version": 2, "entity_path": "topics/a"}).encode()
        sequential = CreateMode.PERSISTENT_SEQUENTIAL
        await around.zk.create("/config/changes/config_change_", change, sequential)
        notified = json.dumps({"version": 1, "partitions": [{"topic": "a", "partition": 1}]})
        await around.write_state("a", 1, isr=[2])
        await around.zk.create("/isr_change_notification/n_", notified.encode(), sequential)
        await controller.until(row_is("a", 1, isr=(2,)))
        log_dir = b'{"version":1,"broker":2,"event":1}'
        await around.zk.create("/log_dir_event_notification/n_", log_dir, sequential)
        wanted = {"version": 1, "partitions": [{"topic": "a", "partition": 0}]}
        await around.put("/admin/preferred_replica_election", json.dumps(wanted).encode())
        await controller.until(row_is("a", leader=1))
        targets = [{"topic": "a", "partition": 1, "replicas": [3]}]
        moves = {"version": 1, "partitions": targets}
        await around.put("/admin/reassign_partitions", json.dumps(moves).encode())
        await controller.until(row_is("a", 1, replicas=(3, 2, 1)))
        before = controller.session_id
        await end_session(around, controller)
        await controller.until(lambda c: c.session_id != before and row_is("a", 1)(c))
        await join_isr(controller, TopicPartition("a", 1), (2, 3))
        await controller.until(row_is("a", 1, replicas=(3,)))
        await around.make("/admin/delete_topics/poison")
        await controller.until(cluster_has(lambda c: "poison" not in c.topics))
        terms = controller.meters.elections_won
        controller.put(ev.BrokerResync(77, 0))  # which fails
        await controller.until(lambda c: c.is_active and c.meters.elections_won > terms)
        await around.zk.delete("/controller")
        await controller.until(lambda c: c.is_active and c.meters.elections_won > terms + 1)
        await until_settled(around, controller)


async def ask_everything(controller: Recorded) -> None:
    cluster = controller.state
    assert cluster is not None
    epochs = {broker.id: broker.epoch for broker in cluster.brokers.values()}
    tp = TopicPartition("a", 0)
    for event_for in (
        lambda c: ev.CreateTopics(c, (ev.NewTopic("b", 3, 2), ev.NewTopic("a", 1, 1))),
        lambda c: ev.CreatePartitions(c, (ev.NewPartitions("b", 5),)),
        lambda c: ev.ControlledShutdown(c, 3, epochs[3]),
        lambda c: ev.ReplicaLeaderElection(
            c, (tp,), ev.ElectionType.PREFERRED, ev.ElectionTrigger.ADMIN_CLIENT
        ),
        lambda c: ev.ApiPartitionReassignment(c, {tp: None, TopicPartition("x", 1): (1,)}),
        ev.ListPartitionReassignments,
        lambda c: ev.UpdateFeatures(c, (ev.FeatureUpdate("x", 1),)),
        lambda c: ev.AllocateProducerIds(c, 1, epochs[1]),
        lambda c: ev.AlterUserScramCredentials(c, {"u": {"SCRAM-SHA-256": Secret("open sesame")}}),
        lambda c: ev.DeleteTopics(c, (("b", None), (None, "AAAAAAAAAAAAAAAAAAAAAQ"))),
    ):
        assert await controller.ask(event_for) is not None
    for event in (
        ev.BrokerVersions((3, 9)),
        ev.BrokerResync(2, epochs[2]),
        # Without an error it would not be queued.
        ev.UpdateMetadataResponseReceived(2, epochs[2], KafkaError.UNKNOWN_SERVER_ERROR),
        ev.AutoPreferredReplicaLeaderElection(),
        ev.QuarantineCheck(),
    ):
        controller.put(event)
    await controller.until(lambda c: "QuarantineCheck" in c.meters.handled)


def plant_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    right = broker_changes.on_broker_resync

    async def fails_for_77(cluster: ClusterState, event: ev.BrokerResync, outbox: Outbox) -> None:
        if event.broker == 77:
            raise RuntimeError("planted")
        await right(cluster, event, outbox)

    monkeypatch.setattr(broker_changes, "on_broker_resync", fails_for_77)
    monkeypatch.setattr(faults, "BACKOFF_MIN_MS", 10)


def hashes_of(records: Iterator[Record]) -> tuple[Replay, list[str]]:
    replay, hashes = Replay(), []
    for record in records:
        if record.kind == "event" and replay.events:
            hashes.append(replay.state_hash)
        replay.take(record)
    return replay, [*hashes, replay.state_hash]


async def test_the_same_after_every_event(
    around: Surroundings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant_a_fault(monkeypatch)
    name = tmp_path / "journal"
    controller = Recorded(around.config(journal=str(name), takeover=True))
    await a_busy_life(around, controller)
    replay, hashes = hashes_of(read_journal(name))
    assert len(hashes) == len(controller.hashes)
    assert hashes == controller.hashes
    assert len(set(hashes)) > 20
    assert replay.unfinished is None
    assert b"sesame" not in (tmp_path / "journal.000001").read_bytes()
    seen = {type(r.value[0]) for r in read_journal(name) if r.kind == "event"}
    missing = {kind for kind in ev.Event.__subclasses__() if kind not in seen}
    # Those that need an old broker, a lost write or a registration that changes.
    assert missing <= {
        ev.Retry,
        ev.PartitionReassignmentIsrChange,
        ev.BrokerModifications,
        ev.TopicUncleanLeaderElectionEnable,
    }


async def test_files_are_bounded_and_a_later_one_is_enough(
    around: Surroundings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the oldest files are gone, the first new term is where the replay begins."""
    monkeypatch.setattr(journal, "FILE_MAX_BYTES", 4_000)
    name = tmp_path / "journal"
    controller = Recorded(around.config(journal=str(name)))
    monkeypatch.setattr(
        "kctl.runtime.controller.Journal",
        lambda node, file: journal.Journal(node, file, file_max_bytes=4_000, files_max=4),
    )
    plant_a_fault(monkeypatch)
    await a_busy_life(around, controller)
    names = sorted(file.name for file in tmp_path.iterdir())  # noqa: ASYNC240
    assert len(names) == 4
    assert names[0] != "journal.000001"
    replay, hashes = hashes_of(read_journal(name))
    if replay.events:
        assert hashes == controller.hashes[-len(hashes) :]


async def recorded(around: Surroundings, tmp_path: Path) -> Path:
    await around.start_brokers(1)
    await around.create_topic("t", {0: [1]})
    controller = Recorded(around.config(journal=str(tmp_path / "journal")))
    async with controller:
        await controller.until(is_active)
        await controller.until(row_is("t", leader=1))
    return tmp_path / "journal.000001"


async def test_a_reply_that_does_not_fit_is_named_with_its_place(
    around: Surroundings, tmp_path: Path
) -> None:
    file = await recorded(around, tmp_path)
    lines = file.read_bytes().splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        content: dict[str, Any] = json.loads(line)
        if content["kind"] == "reply" and content["effect"] == "ReadBrokers":
            lines[number - 1] = line.replace(b"ReadBrokers", b"ReadTopics")
            break
    file.write_bytes(b"".join(lines))
    with pytest.raises(ReplayError, match=rf":{number}: a reply to ReadTopics, but .* ReadBrokers"):
        Replay().run(read_journal(file))
    file.write_bytes(b"".join(lines[: number - 1] + lines[number:]))
    with pytest.raises(ReplayError, match=rf":{number}: a reply to .* asks for ReadBrokers"):
        Replay().run(read_journal(file))
    ended = CliRunner().invoke(app, ["replay", str(file)])
    assert ended.exit_code == 1
    assert f":{number}:" in ended.output


async def test_a_journal_that_was_cut_off(around: Surroundings, tmp_path: Path) -> None:
    """As after a crash: in the middle of a line, in the middle of an event."""
    file = await recorded(around, tmp_path)
    whole = file.read_bytes()
    middle = whole.index(b"ReadTopics")
    file.write_bytes(whole[: middle + 3])
    replay = Replay()
    replay.run(read_journal(file))
    assert replay.unfinished == "Startup"


async def test_the_command(around: Surroundings, tmp_path: Path) -> None:
    file = await recorded(around, tmp_path)
    first = CliRunner().invoke(app, ["replay", str(tmp_path / "journal"), "--until", "1", "--json"])
    found = json.loads(first.output)
    assert (found["events"], found["brokers"], found["topics"]) == (1, 1, 1)
    again = CliRunner().invoke(app, ["replay", str(file), "--until", "1", "--json"])
    assert json.loads(again.output) == found
    table = CliRunner().invoke(app, ["replay", str(file)])
    assert "standing by" in table.output
    missing = CliRunner().invoke(app, ["replay", str(tmp_path / "nothing")])
    assert missing.exit_code == 5
