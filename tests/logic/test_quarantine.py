"""One bad znode hurts nobody else, is reported once, and is picked up when it is repaired."""

from collections.abc import Callable
from typing import Any

import pytest

from kctl.logic.topic_configs import invalid_config
from kctl.messages import events as ev
from kctl.messages.answers import OK, AlteredPartitions, PartitionErrors, TopicResults
from kctl.messages.effects import TopicNode
from kctl.model.codes import KafkaError
from kctl.model.rows import Assignment, Leadership
from tests.logic.notation import broker, topic_id, tp_of
from tests.logic.world import MakeWorld, World, malformed, notified

STATE = "/brokers/topics/bad/partitions/0/state"
BAD = tp_of("bad-0")
Change = Callable[[World], Any]

POISON: dict[str, tuple[str, Change, Change]] = {
    "broker": (
        "/brokers/ids/9",
        lambda w: w.zk.brokers.update({9: malformed("/brokers/ids/9")}),
        lambda w: w.zk.brokers.update({9: broker(9)}),
    ),
    "topic": (
        "/brokers/topics/bad",
        lambda w: w.zk.topics.update(bad=malformed("/brokers/topics/bad", "partition x")),
        lambda w: w.zk.topics.update(bad=TopicNode({0: Assignment((1, 2))}, topic_id("bad"), 1)),
    ),
    "state": (
        STATE,
        lambda w: w.zk.states.update({BAD: malformed(STATE, "leader is a string")}),
        lambda w: w.zk.states.update({BAD: Leadership(1, (1, 2), 3, 1, 5)}),
    ),
    "reassignment": (
        "/admin/reassign_partitions",
        lambda w: setattr(w.zk, "reassignments", malformed("/admin/reassign_partitions")),
        lambda w: setattr(w.zk, "reassignments", None),
    ),
    "features": (
        "/feature",
        lambda w: setattr(w.zk, "features", malformed("/feature")),
        lambda w: setattr(w.zk, "features", None),
    ),
}


def poisoned(world: MakeWorld, kind: str) -> World:
    one = world("bad-0: 1*,2 epoch=3", "t-0: 1*,2,3", "t-1: 3*,1,2", elected=False)
    POISON[kind][1](one)
    return one


@pytest.mark.parametrize("kind", POISON)
def test_a_failover_goes_on_and_says_so_once(world: MakeWorld, kind: str) -> None:
    one = poisoned(world, kind)
    one.run(ev.Startup())
    path = POISON[kind][0]
    assert set(one.cluster.quarantine) == {path}
    reported = [line for line in one.told("quarantined") if line.startswith(path)]
    assert len(reported) == 1
    for _ in range(3):
        one.fire("quarantine")
    assert len([line for line in one.told("quarantined") if line.startswith(path)]) == 1
    assert set(one.cluster.quarantine) == {path}


@pytest.mark.parametrize("kind", POISON)
def test_the_others_are_served(world: MakeWorld, kind: str) -> None:
    one = poisoned(world, kind)
    one.run(ev.Startup())
    one.kill(3)
    assert one["t-1"] == "3,1*,2 isr=1,2 epoch=1"
    one.start(3)
    one.settle()
    assert one["t-0"].endswith("isr=1,2,3 epoch=1")
    made = one.ask(ev.CreateTopics(50, (ev.NewTopic("new", 1, 1),)))
    assert isinstance(made, TopicResults)
    assert made.topics[0].error == OK
    one.delete("t")
    one.settle()
    assert "t" not in one.zk.topics


@pytest.mark.parametrize("kind", POISON)
def test_a_repaired_one_is_picked_up(world: MakeWorld, kind: str) -> None:
    one = poisoned(world, kind)
    one.run(ev.Startup())
    POISON[kind][2](one)
    one.fire("quarantine")
    assert one.cluster.quarantine == {}
    assert not one.cluster.poisoned
    assert BAD in one.cluster.rows
    one.kill(1)
    assert one["bad-0"].startswith("1,2* isr=2")


@pytest.mark.parametrize("kind", POISON)
def test_one_that_goes_bad_during_the_term_and_is_repaired(world: MakeWorld, kind: str) -> None:
    one = world("bad-0: 1*,2 epoch=3", "t-0: 1*,2,3", "t-1: 3*,1,2")
    good = dict(one.zk.topics), dict(one.zk.states), one.zk.features
    POISON[kind][1](one)
    one.run(
        *(ev.BrokerChange(), ev.TopicChange(), ev.PartitionModifications("bad")),
        ev.ZkPartitionReassignment(),
    )
    one.kill(1)
    assert one["t-0"].startswith("1,2*,3 isr=2,3")
    one.zk.topics, one.zk.states = {**good[0]}, {**one.zk.states, BAD: good[1][BAD]}
    one.zk.features, one.zk.reassignments = good[2], None
    one.zk.brokers.pop(9, None)
    one.run(ev.PartitionModifications("bad"))
    for _ in range(2):
        one.fire("quarantine")
    one.start(1)
    one.settle()
    assert one.cluster.quarantine == {}
    assert one["bad-0"].split()[0] in ("1,2*", "1*,2")


def test_a_poisoned_partition_is_left_alone(world: MakeWorld) -> None:
    one = poisoned(world, "state")
    one.run(ev.Startup())
    elected = one.ask(ev.ReplicaLeaderElection(1, (BAD,), trigger=ev.ElectionTrigger.ADMIN_CLIENT))
    assert isinstance(elected, PartitionErrors)
    assert elected.errors[BAD].code is KafkaError.PREFERRED_LEADER_NOT_AVAILABLE
    proposal = ev.IsrProposal((1,), 0, 0)
    answer = one.ask(ev.AlterPartitionReceived(2, 1, 101, 1, {BAD: proposal}))
    assert answer.partitions == {BAD: KafkaError.OPERATION_NOT_ATTEMPTED}  # type: ignore[union-attr]
    one.kill(1)
    assert BAD in one.cluster.poisoned


def test_a_state_repaired_while_its_leader_died(world: MakeWorld) -> None:
    one = poisoned(world, "state")
    one.run(ev.Startup())
    one.kill(1)
    POISON["state"][2](one)
    one.fire("quarantine")
    assert one["bad-0"] == "1,2* isr=2 epoch=4"


def test_a_state_repaired_while_a_follower_died(world: MakeWorld) -> None:
    one = poisoned(world, "state")
    one.run(ev.Startup())
    one.kill(2)
    POISON["state"][2](one)
    one.fire("quarantine")
    assert one["bad-0"].startswith("1*,2 isr=1 ")


def test_a_broken_state_that_is_removed_begins_anew(world: MakeWorld) -> None:
    one = poisoned(world, "state")
    one.run(ev.Startup())
    del one.zk.states[BAD]
    one.fire("quarantine")
    assert one["bad-0"] == "1*,2 isr=1,2 epoch=0"


def test_a_notification_does_not_heal_behind_our_back(world: MakeWorld) -> None:
    one = poisoned(world, "state")
    one.run(ev.Startup())
    POISON["state"][2](one)
    one.zk.isr_notifications.update(notified(a=["bad-0"]))
    one.run(ev.IsrChangeNotification())
    one.fire("quarantine")
    assert not one.cluster.poisoned
    assert one.cluster.rows[BAD].leader == 1


def test_a_broken_topic_that_was_marked_for_deletion_goes_when_it_is_repaired(
    world: MakeWorld,
) -> None:
    """Its marker is kept meanwhile."""
    one = poisoned(world, "topic")
    one.run(ev.Startup())
    one.delete("bad")
    assert "bad" in one.zk.deletions
    POISON["topic"][2](one)
    one.fire("quarantine")
    one.settle()
    assert "bad" not in one.zk.topics
    assert not one.zk.deletions


@pytest.mark.parametrize(
    "setting, path",
    [({"retention.ms": "soon"}, None), (malformed("/config/topics/t"), "/config/topics/t")],
)
def test_a_broken_config_allows_no_unclean_election(
    world: MakeWorld, setting: Any, path: str | None
) -> None:
    one = world("t-0: 1*,2 isr=1", "u-0: 1*,2")
    one.zk.configs["t"] = setting
    one.kill(1)
    assert one["t-0"] == "1,2 isr=1 epoch=1"
    assert one["u-0"] == "1,2* isr=2 epoch=1"
    assert list(one.cluster.quarantine) == ([] if path is None else [path])
    one.zk.configs["t"] = {"unclean.leader.election.enable": "true"}
    if path is not None:
        one.fire("quarantine")
        assert one["t-0"] == "1,2* isr=2 epoch=2 recovering"


@pytest.mark.parametrize(
    "configs, wrong",
    [
        ({}, None),
        ({"retention.ms": "-1", "cleanup.policy": "compact,delete"}, None),
        ({"retention.ms": "-2"}, "retention.ms=-2: must be from -1"),
        ({"retention.ms": "a day"}, "is not a whole number"),
        ({"min.cleanable.dirty.ratio": "1.5"}, "must be from 0 to 1"),
        ({"min.cleanable.dirty.ratio": "much"}, "is not a number"),
        ({"cleanup.policy": "shred"}, "may only list compact, delete"),
        ({"compression.type": "rar"}, "must be one of"),
        ({"preallocate": "maybe"}, "must be true or false"),
        ({"remote.log.copy.disable": "true"}, "cannot be true in ZooKeeper mode"),
        ({"leader.replication.throttled.replicas": "0:1,1:2"}, None),
        ({"leader.replication.throttled.replicas": "*"}, None),
        ({"leader.replication.throttled.replicas": "0-1"}, "a list like 0:1,0:2"),
        ({"compression.gzip.level": "-1"}, None),
        ({"compression.gzip.level": "0"}, "must be from 1 to 9"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "is larger than"),
        ({"x": "1"}, "unknown topic config x"),
        ({"retention.ms": None}, "is null"),
    ],
)
def test_topic_configs(configs: dict[str, str | None], wrong: str | None) -> None:
    found = invalid_config(configs)
    assert (found is None) is (wrong is None)
    assert wrong is None or wrong in str(found)


def test_a_leader_does_not_give_up_while_its_topic_cannot_be_read(world: MakeWorld) -> None:
    """Told that the topic is unknown it would never ask again, also when it is repaired."""
    one = poisoned(world, "topic")
    one.run(ev.Startup())
    proposal = ev.IsrProposal((1,), 3, 0)
    by_name = one.ask(ev.AlterPartitionReceived(1, 1, 101, 1, {BAD: proposal}))
    assert by_name == AlteredPartitions({BAD: KafkaError.OPERATION_NOT_ATTEMPTED})
    key = (topic_id("bad"), 0)
    by_id = one.ask(ev.AlterPartitionReceived(2, 1, 101, 3, by_id={key: proposal}))
    assert by_id == AlteredPartitions({}, {key: KafkaError.OPERATION_NOT_ATTEMPTED})


def test_a_topic_repaired_in_the_middle_of_a_reassignment_goes_on_with_it(world: MakeWorld) -> None:
    one = poisoned(world, "topic")
    one.run(ev.Startup())
    one.zk.states[BAD] = Leadership(1, (1, 2, 3), 3, 1, 5)
    one.zk.topics["bad"] = TopicNode(
        {0: Assignment((3, 1, 2), adding=(3,), removing=(2,))}, topic_id("bad"), 1
    )
    one.run(ev.QuarantineCheck())
    assert not one.cluster.reassigning
    assert one.cluster.rows[BAD].assignment == Assignment((3, 1))
