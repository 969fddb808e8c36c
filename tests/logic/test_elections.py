"""The election loop: one write from the cache, and what is made of its outcome."""

import pytest

from kctl.logic.elections import Strategy
from kctl.logic.partitions import elect_leaders
from kctl.logic.writing import ATTEMPTS_MAX
from kctl.messages import events as ev
from kctl.messages.driver import step
from kctl.messages.effects import (
    Flush,
    ReadPartitions,
    ReadTopicConfigs,
    WritePartitions,
)
from kctl.messages.outbox import Outbox
from kctl.model.codes import Code, Malformed
from kctl.model.states import PartitionState
from tests.logic.notation import (
    EPOCH,
    MakeCluster,
    codes,
    finish,
    found,
    ok,
    show,
    stale,
    tp_of,
    tps,
    unknown,
    wants,
)
from tests.logic.world import MakeWorld, malformed

OFFLINE = Strategy.OFFLINE
WHY = "a test"


def row(cluster: object, name: str) -> str:
    known = cluster.rows[tp_of(name)]  # type: ignore[attr-defined]
    return show(known.assignment, known.leadership)


@pytest.mark.parity(30)
def test_an_election_is_written_from_the_cache(cluster: MakeCluster) -> None:
    """No read before the write: with AlterPartition the controller is the only writer."""
    state = cluster("t-0: 1*,2,3", "t-1: 1*,3,2", dead={1})
    procedure = elect_leaders(state, tps("t-0", "t-1"), OFFLINE, Outbox(), WHY)
    assert step(procedure) == wants(WritePartitions, "t-0", "t-1")
    assert row(state, "t-0") == "1*,2,3 isr=1,2,3 epoch=0"  # not before the reply
    assert list(finish(procedure, ok("t-0", "t-1")).elected) == [*tps("t-0", "t-1")]
    assert row(state, "t-0") == "1,2*,3 isr=2,3 epoch=1"
    assert row(state, "t-1") == "1,3*,2 isr=3,2 epoch=1"
    assert not state.not_online


def test_a_lost_reply_is_not_an_election_twice(cluster: MakeCluster) -> None:
    """The write landed, its reply was lost: the row read back is ours, so the epoch rises once."""
    state = cluster("t-0: 1*,2,3", dead={1})
    procedure = elect_leaders(state, tps("t-0"), OFFLINE, Outbox(), WHY)
    assert step(procedure) == wants(WritePartitions, "t-0")
    wanted = step(procedure, unknown("t-0"))
    assert wanted == wants(ReadPartitions, "t-0")
    assert wanted == ReadPartitions(tps("t-0"), sync=True)
    landed = found(f"t-0: 1,2*,3 isr=2,3 epoch=1 version=1 written-by={EPOCH}")
    assert list(finish(procedure, landed).elected) == [*tps("t-0")]
    assert row(state, "t-0") == "1,2*,3 isr=2,3 epoch=1"


def test_a_write_that_did_not_land_is_written_again(cluster: MakeCluster) -> None:
    state = cluster("t-0: 1*,2,3", dead={1})
    procedure = elect_leaders(state, tps("t-0"), OFFLINE, Outbox(), WHY)
    step(procedure)
    assert step(procedure, unknown("t-0")) == wants(ReadPartitions, "t-0")
    assert step(procedure, found("t-0: 1*,2,3")) == wants(WritePartitions, "t-0")
    assert list(finish(procedure, ok("t-0")).elected) == [*tps("t-0")]
    assert row(state, "t-0") == "1,2*,3 isr=2,3 epoch=1"


def test_a_stale_row_is_read_and_decided_anew(cluster: MakeCluster) -> None:
    """Meanwhile its leader had shrunk the ISR: 2 must not lead."""
    state = cluster("t-0: 1*,2,3", dead={1})
    procedure = elect_leaders(state, tps("t-0"), OFFLINE, Outbox(), WHY)
    step(procedure)
    assert step(procedure, stale("t-0")) == wants(ReadPartitions, "t-0")
    shrunk = found("t-0: 1*,2,3 isr=1,3 version=4")
    assert step(procedure, shrunk) == wants(WritePartitions, "t-0")
    finish(procedure, ok("t-0"))
    assert row(state, "t-0") == "1,2,3* isr=3 epoch=1"


def test_only_the_rows_that_lost_are_repeated(cluster: MakeCluster) -> None:
    state = cluster("t-0: 1*,2", "t-1: 1*,2", "t-2: 1*,2", dead={1})
    procedure = elect_leaders(state, tps("t-0", "t-1", "t-2"), OFFLINE, Outbox(), WHY)
    step(procedure)
    mixed = {**ok("t-0"), **stale("t-1"), **codes(Code.NO_NODE, "t-2")}
    assert step(procedure, mixed) == wants(ReadPartitions, "t-1")
    assert step(procedure, found("t-1: 1*,2 version=3")) == wants(WritePartitions, "t-1")
    outcome = finish(procedure, ok("t-1"))
    assert list(outcome.elected) == [*tps("t-0", "t-1")]
    assert outcome.failed == {tp_of("t-2"): "the state znode could not be written: no node"}


def test_a_row_missing_in_the_reply_is_in_doubt(cluster: MakeCluster) -> None:
    state = cluster("t-0: 1*,2", dead={1})
    procedure = elect_leaders(state, tps("t-0"), OFFLINE, Outbox(), WHY)
    step(procedure)
    assert step(procedure, {}) == ReadPartitions(tps("t-0"), sync=True)
    procedure.close()


def test_a_row_that_keeps_changing_is_given_up_and_tried_again_later(cluster: MakeCluster) -> None:
    state = cluster("t-0: 1*,2", dead={1})
    outbox = Outbox()
    procedure = elect_leaders(state, tps("t-0"), OFFLINE, outbox, WHY)
    wanted = step(procedure)
    for version in range(1, ATTEMPTS_MAX + 1):
        assert wanted == wants(WritePartitions, "t-0")
        assert step(procedure, stale("t-0")) == wants(ReadPartitions, "t-0")
        wanted = step(procedure, found(f"t-0: 1*,2 version={version}"))
    assert wanted == Flush()
    assert finish(procedure).failed == {tp_of("t-0"): "its state kept changing"}
    assert [timer.event for timer in outbox.timers] == [ev.Retry()]  # type: ignore[union-attr]


@pytest.mark.parity(8)
def test_a_state_of_a_newer_controller_is_not_touched(world: MakeWorld) -> None:
    one = world("t-0: 1*,2 written-by=99", "t-1: 1*,2")
    one.kill(1)
    assert one["t-0"] == "1*,2 isr=1,2 epoch=0"
    assert one["t-1"] == "1,2* isr=2 epoch=1"
    assert one.told("replica not taken offline") == [
        "t-0: its state was written by a newer controller, epoch 99"
    ]


@pytest.mark.parity(8)
def test_a_state_that_a_newer_controller_has_just_written(cluster: MakeCluster) -> None:
    state = cluster("t-0: 1*,2", dead={1})
    procedure = elect_leaders(state, tps("t-0"), OFFLINE, Outbox(), WHY)
    step(procedure)
    step(procedure, stale("t-0"))
    newer = found(f"t-0: 1,2* epoch=1 version=1 written-by={EPOCH + 1}")
    outcome = finish(procedure, newer)
    assert outcome.failed[tp_of("t-0")].startswith("its state was written by a newer controller")
    assert row(state, "t-0") == "1*,2 isr=1,2 epoch=0"


def test_an_unreadable_state_quarantines_its_partition_only(cluster: MakeCluster) -> None:
    state = cluster("t-0: 1*,2", "t-1: 1*,2", dead={1})
    procedure = elect_leaders(state, tps("t-0", "t-1"), OFFLINE, Outbox(), WHY)
    step(procedure)
    step(procedure, {**stale("t-0"), **ok("t-1")})
    outcome = finish(procedure, {tp_of("t-0"): Malformed("/state", "leader is a string")})
    assert list(outcome.elected) == [*tps("t-1")]
    assert outcome.failed == {tp_of("t-0"): "its state cannot be understood: leader is a string"}
    assert state.quarantine == {"/state": "leader is a string"}


# -- unclean elections -------------------------------------------------------------------------


@pytest.mark.parity(31)
@pytest.mark.parametrize(
    "config, default, elected",
    [
        (Code.NO_NODE, False, False),
        (Code.NO_NODE, True, True),
        ({}, True, True),
        ({"unclean.leader.election.enable": "true"}, False, True),
        ({"unclean.leader.election.enable": " TRUE "}, False, True),
        ({"unclean.leader.election.enable": "false"}, True, False),
        ({"unclean.leader.election.enable": "yes"}, True, False),
        (Code.NO_AUTH, True, False),
        (Malformed("/config/topics/t", "not JSON"), True, False),
    ],
)
def test_unclean_election_by_config(
    cluster: MakeCluster, config: object, default: bool, elected: bool
) -> None:
    """Topic before brokers' default; a config that cannot be read allows nothing."""
    state = cluster("t-0: 1,2,3 isr=1", dead={1}, unclean_leader_election=default)
    procedure = elect_leaders(state, tps("t-0"), OFFLINE, Outbox(), WHY)
    assert step(procedure) == wants(ReadTopicConfigs, "t")
    wanted = step(procedure, {"t": config})
    if elected:
        assert wanted == wants(WritePartitions, "t-0")
        finish(procedure, ok("t-0"))
        assert row(state, "t-0") == "1,2*,3 isr=2 epoch=1 recovering"
    else:
        assert finish(procedure).failed == {tp_of("t-0"): "no eligible leader"}


@pytest.mark.parity(31)
def test_configs_are_read_only_where_no_isr_member_is_left(cluster: MakeCluster) -> None:
    state = cluster("t-0: 1,2 isr=2", "u-0: 1,2 isr=1", "v-0: 1 isr=1", dead={1})
    procedure = elect_leaders(state, tps("t-0", "u-0", "v-0"), OFFLINE, Outbox(), WHY)
    assert step(procedure) == wants(ReadTopicConfigs, "u")
    procedure.close()


@pytest.mark.handles("UncleanLeaderElectionEnable")
@pytest.mark.parity(32)
def test_switched_on_for_all(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", "u-0: 1*,2 isr=1", "v-0: 1*")
    one.kill(1)
    assert one["u-0"] == "1,2 isr=1 epoch=1"
    settings = one.node.settings
    allowed = type(settings)(
        settings.controller_id,
        inter_broker_protocol=settings.inter_broker_protocol,
        unclean_leader_election=True,
    )
    one.run(ev.SettingsChange(allowed), ev.UncleanLeaderElectionEnable())
    assert one["u-0"] == "1,2* isr=2 epoch=2 recovering"
    assert one["v-0"] == "1 isr=1 epoch=1"
    assert one["t-0"] == "1,2* isr=2 epoch=1"


@pytest.mark.handles("TopicUncleanLeaderElectionEnable")
@pytest.mark.parity(32, 33)
def test_switched_on_for_a_topic(world: MakeWorld) -> None:
    one = world("t-0: 1*,2 isr=1", "u-0: 1*,2 isr=1")
    one.kill(1)
    for topic in ("t", "u"):
        one.zk.configs[topic] = {"unclean.leader.election.enable": "true"}
    one.run(ev.TopicUncleanLeaderElectionEnable("t"))
    assert one["t-0"] == "1,2* isr=2 epoch=2 recovering"
    assert one["u-0"] == "1,2 isr=1 epoch=1"
    assert one.run(ev.TopicUncleanLeaderElectionEnable("nobody")).effects == []


def test_a_partition_that_is_quarantined_is_not_elected(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", "t-1: 1*,2", elected=False)
    one.zk.states[tp_of("t-0")] = malformed("/brokers/topics/t/partitions/0/state")
    one.run(ev.Startup())
    one.kill(1)
    assert one["t-1"] == "1,2* isr=2 epoch=1"
    assert one.cluster.rows[tp_of("t-0")].state is PartitionState.NEW
