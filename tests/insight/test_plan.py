"""`kctl plan` says beforehand what then happens."""

import json
from pathlib import Path

import pytest

from kctl.insight.plan import Plan, PlanError, condition, describe, read_reassignment
from kctl.model.names import NO_LEADER, TopicPartition
from tests.insight.random_clusters import Picture, RandomCluster, picture
from tests.insight.test_explain import snapshot_of

CLUSTERS = 200


def foreseen(plan: Plan) -> Picture:
    return picture(plan.zookeeper)


@pytest.mark.parametrize("first", range(0, CLUSTERS, 50))
def test_what_a_killed_broker_does_is_what_was_planned(first: int) -> None:
    moved = 0
    for seed in range(first, first + 50):
        cluster = RandomCluster(seed)
        victim = cluster.dice.choice(cluster.alive)
        plan = Plan(cluster.snapshot()).kill(victim)
        before = cluster.picture()
        outcome = plan.outcome()
        cluster.die(victim)
        assert foreseen(plan) == cluster.picture(), f"seed {seed}, broker {victim}"
        changed = {tp for tp, now in cluster.picture().items() if now != before[tp]}
        assert {c.partition for c in outcome.changes} == changed
        moved += outcome.leaders_moved
    assert moved > 50, "these clusters show nothing"


@pytest.mark.parametrize("seed", range(60))
def test_so_it_is_with_everything_else_that_can_be_planned(seed: int) -> None:
    cluster = RandomCluster(seed)
    plan = Plan(cluster.snapshot())
    assert foreseen(plan) == cluster.picture()
    for _ in range(3):
        if len(cluster.alive) < 2:
            break
        match cluster.dice.randrange(5):
            case 0:
                broker = cluster.dice.choice(cluster.alive)
                plan.shutdown(broker)
                cluster.shut_down(broker)
            case 1:
                rack = "abc"[cluster.dice.choice(cluster.alive) % 3]
                plan.rack_loss(rack)
                cluster.die(*(b for b in cluster.alive if "abc"[b % 3] == rack))
            case 2:
                targets = {tp: cluster.some_replicas() for tp in cluster.some_partitions()}
                plan.reassign(targets)
                cluster.reassign(targets)
                for tp in targets:
                    if cluster.controller.cluster.rows[tp].assignment.is_reassigning:
                        cluster.join(tp, cluster.controller.cluster.rows[tp].assignment.target)
            case 3:
                plan.elect_preferred()
                cluster.elect_preferred()
            case _:
                broker = cluster.dice.choice(cluster.alive)
                plan.kill(broker)
                cluster.die(broker)
        assert foreseen(plan) == cluster.picture(), f"seed {seed}: {plan.outcome().steps}"


def test_a_plan_leaves_its_snapshot_alone() -> None:
    cluster = RandomCluster(7)
    snapshot = cluster.snapshot()
    before = picture(snapshot.zookeeper)
    Plan(snapshot).kill(cluster.alive[0])
    assert picture(snapshot.zookeeper) == before
    assert cluster.alive[0] in snapshot.zookeeper.brokers


SCENE = """
now 2026-11-18 10:30:00
controller 1 epoch=7
broker 1 rack=a
broker 2 rack=a
broker 3 rack=b
topic orders 0=1,2,3 1=2,3 2=3
config orders min.insync.replicas=2
state orders-0 leader=1 isr=1,2,3
state orders-1 leader=2 isr=2,3
state orders-2 leader=3 isr=3
"""


@pytest.mark.asyncio
async def test_offline_and_under_min_isr_are_counted_before_and_after() -> None:
    plan = Plan(await snapshot_of(SCENE))
    assert plan.outcome().counts()["under_min_isr"] == 1  # orders-2 has never had more
    outcome = plan.kill(3).outcome()
    assert outcome.offline == outcome.newly_offline == (TopicPartition("orders", 2),)
    assert [str(tp) for tp in outcome.under_min_isr] == ["orders-1", "orders-2"]
    assert [str(tp) for tp in outcome.newly_under_min_isr] == ["orders-1"]
    assert outcome.leaders_moved == 0
    assert {c.partition: c.after.leader for c in outcome.changes}[
        TopicPartition("orders", 2)
    ] == NO_LEADER
    assert describe(outcome)[-1] == "orders-2: leader 3 -> none"


@pytest.mark.asyncio
async def test_requests_and_bytes_are_counted_for_each_broker_left() -> None:
    outcome = Plan(await snapshot_of(SCENE)).kill(1).outcome()
    assert set(outcome.traffic.requests) == {2, 3}
    assert all(size > 50 for size in outcome.traffic.bytes.values())
    assert outcome.writes >= 1
    assert outcome.forecast_s > 0


@pytest.mark.asyncio
async def test_steps_follow_one_another() -> None:
    both = Plan(await snapshot_of(SCENE)).rack_loss("a").kill(3).outcome()
    assert len(both.offline) == 3
    assert both.steps == ("lose rack a (brokers 1, 2)", "kill 3")
    with pytest.raises(PlanError, match="broker 1 is not registered; registered: 3"):
        Plan(await snapshot_of(SCENE)).rack_loss("a").shutdown(1)
    with pytest.raises(PlanError, match="no live broker is in rack 'x'; racks: a, b"):
        Plan(await snapshot_of(SCENE)).rack_loss("x")


@pytest.mark.asyncio
async def test_a_reassignment_is_planned_to_its_end_and_refusals_are_named() -> None:
    moves = {
        TopicPartition("orders", 2): (1, 2),
        TopicPartition("orders", 1): (2, 9),
        TopicPartition("nothing", 0): (1,),
    }
    outcome = Plan(await snapshot_of(SCENE)).reassign(moves).outcome()
    (change,) = outcome.changes
    assert (change.after.replicas, change.after.leader) == ((1, 2), 1)
    assert outcome.replicas_to_copy == 2
    assert {str(tp): why for tp, why in outcome.refused.items()} == {
        "orders-1": "brokers [9] are not alive",
        "nothing-0": "partition nothing-0 does not exist",
    }


@pytest.mark.asyncio
async def test_conditions() -> None:
    outcome = Plan(await snapshot_of(SCENE)).kill(3).outcome()
    assert condition("offline>0")(outcome)
    assert condition(" offline >= 1 ")(outcome)
    assert not condition("leaders_moved != 0")(outcome)
    for text, message in {
        "": "COUNT OPERATOR NUMBER",
        "ofline>0": "did you mean offline",
        "offline": "nothing is not an operator",
        "offline=>1": "=> is not an operator",
        "offline>": "nothing is not a number",
        "offline>many": "many is not a number",
        "offline>0 or changed>1": "is not COUNT",
    }.items():
        with pytest.raises(PlanError, match=message):
            condition(text)


def test_files_that_are_no_reassignment(tmp_path: Path) -> None:
    file = tmp_path / "moves.json"
    with pytest.raises(PlanError, match="No such file"):
        read_reassignment(file)
    for content in ("", "[]", '{"partitions": [{"topic": "t"}]}', '{"partitions": []}'):
        file.write_text(content)
        with pytest.raises(PlanError, match=r"moves\.json"):
            read_reassignment(file)
    move = {"topic": "t", "partition": 1, "replicas": [2, 3], "log_dirs": ["any", "any"]}
    file.write_text(json.dumps({"version": 1, "partitions": [move]}))
    assert read_reassignment(file) == {TopicPartition("t", 1): (2, 3)}
