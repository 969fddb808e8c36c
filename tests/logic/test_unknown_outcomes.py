"""Replies that are lost, rows that changed behind our back: every write, both ways."""

import random
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest

from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.messages.answers import ProducerIdBlock
from kctl.model.codes import Code
from kctl.model.names import NO_LEADER, TopicPartition
from kctl.model.rows import Leadership
from kctl.simulation.memory import MemoryZooKeeper
from tests.logic.scenarios_of_interruption import SCENARIOS, outcome
from tests.logic.test_interruption import matches, new_term, undisturbed
from tests.logic.world import MakeWorld, World

BY_ROW = (
    *(ef.WritePartitions, ef.CreatePartitionStates, ef.WriteTopics, ef.CreateTopicNodes),
    *(ef.MarkForDeletion, ef.UnmarkForDeletion, ef.RemovePartitionNodes, ef.RemoveTopicNodes),
)
WHOLE = (
    *(ef.WriteReassignments, ef.RemovePreferredElection, ef.WriteFeatures, ef.WriteProducerIds),
    *(ef.RemoveNotifications, ef.CreateControllerEpoch, ef.Bootstrap),
)
WRITES = (*BY_ROW, *WHOLE)
TIMERS_MAX = 20


@attrs.define
class Lossy(MemoryZooKeeper):
    """Loses the reply to one write, the n-th; it lands or does not."""

    lose: int = -1
    lands: bool = True
    written: int = 0

    def perform(self, effect: ef.Effect[Any]) -> object:
        if not isinstance(effect, WRITES):
            return super().perform(effect)
        self.written += 1
        if self.written - 1 != self.lose:
            return super().perform(effect)
        reply = super().perform(effect) if self.lands else rows_of(effect)
        if isinstance(reply, Mapping):
            return dict.fromkeys(reply, Code.UNKNOWN)
        return None if isinstance(effect, ef.RemoveNotifications) else Code.UNKNOWN


def rows_of(effect: ef.Effect[Any]) -> object:
    for name in ("rows", "topics", "partitions"):
        if isinstance(effect, BY_ROW) and hasattr(effect, name):
            return dict.fromkeys(getattr(effect, name), None)
    return None


def with_zookeeper(world: World, kind: type[MemoryZooKeeper], **options: Any) -> World:
    """The same znodes in a ZooKeeper of another kind."""
    fields = {a.name: getattr(world.zk, a.name) for a in attrs.fields(MemoryZooKeeper)}
    world.zk = kind(**fields, **options)
    return world


def retry_until_quiet(world: World) -> None:
    """Timers for work that was given up are due until there is no such work left."""
    for _ in range(TIMERS_MAX):
        due = [tag for tag in world.timers if tag in ("retry", "deletion")]
        if not due:
            return
        for tag in due:
            world.fire(tag)
    raise AssertionError("it is given up again and again")


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("lands", [True, False], ids=["landed", "did not land"])
def test_one_lost_reply_changes_nothing_in_the_end(name: str, lands: bool) -> None:
    """For every write of every scenario: handled without a new term, and without a fault."""
    scenario = SCENARIOS[name]
    expected = [outcome(undisturbed(scenario)[0])]
    if scenario.once_only:
        expected.append(outcome(new_term(scenario.build())))
    if not lands:
        # Best effort: what stays is found again with the next notification, or by the next term.
        expected += [
            {**one, "notifications": scenario.build().zk.isr_notifications} for one in expected
        ]
    lose = 0
    while True:
        world = with_zookeeper(scenario.build(), Lossy, lose=lose, lands=lands)
        world.run(scenario.event)
        if world.zk.deletions:
            world.run(ev.TopicDeletion())  # the watch on the markers
        retry_until_quiet(world)
        world.settle()
        zk = world.zk
        assert isinstance(zk, Lossy)
        if zk.written <= lose:
            break
        assert world.problems() == [], (name, lose)
        assert matches(outcome(world), expected), (name, lose, outcome(world))
        lose += 1
    assert lose or name == "a topic is marked, a broker is dead"


@attrs.define
class Stormy(MemoryZooKeeper):
    """Old leaders write the states too: half of our writes find a version that has moved."""

    storm: random.Random = attrs.field(factory=lambda: random.Random(4711))
    rate: float = 0.5

    def _write_state(self, tp: TopicPartition, row: Leadership) -> Code:
        known = self.states.get(tp)
        if isinstance(known, Leadership) and self.storm.random() < self.rate:
            self.states[tp] = known.written()
            return Code.BAD_VERSION
        return super()._write_state(tp, row)


Check = Callable[[World], None]


def check_killed(world: World) -> None:
    for state in world.zk.states.values():
        assert isinstance(state, Leadership)
        assert state.leader not in (1, NO_LEADER)
        assert 1 not in state.isr


def check_moved(world: World) -> None:
    assert not world.cluster.reassigning
    for state in world.zk.states.values():
        assert isinstance(state, Leadership)
        assert set(state.isr) == {3, 4}


@pytest.mark.parametrize("rate", [0.5, 0.9])
def test_a_storm_of_stale_rows_while_a_broker_dies(world: MakeWorld, rate: float) -> None:
    """What is given up after some attempts is tried again later, until all of it is done."""
    one = with_zookeeper(world(*(f"t-{p}: 1*,2,3" for p in range(300))), Stormy, rate=rate)
    one.kill(1)
    given_up = "retry" in one.timers
    assert given_up or rate < 0.9
    retry_until_quiet(one)
    check_killed(one)


def test_a_storm_of_stale_rows_while_partitions_move(world: MakeWorld) -> None:
    one = with_zookeeper(
        world(*(f"t-{p}: 1*,2" for p in range(50)), brokers=(3, 4)), Stormy, rate=0.5
    )
    one.reassign(**{f"t_{p}": (3, 4) for p in range(50)})
    for _ in range(10):
        retry_until_quiet(one)
        one.settle()
    check_moved(one)


def test_rows_that_stay_stale_are_given_up_in_a_bounded_number_of_writes(
    world: MakeWorld,
) -> None:
    one = with_zookeeper(world("t-0: 1*,2", "t-1: 2*,1"), Stormy, rate=1.0)
    recorded = one.kill(1)
    writes = [e for e in recorded.effects if isinstance(e, ef.WritePartitions)]
    assert len(writes) <= 10
    assert one.timers["retry"].event == ev.Retry()
    assert isinstance(one.zk, Stormy)
    one.zk.rate = 0.0
    retry_until_quiet(one)
    assert one["t-0"].startswith("1,2* isr=2")
    assert one["t-1"].startswith("2*,1 isr=2")


def test_a_new_topic_whose_states_did_not_land_comes_online_later(world: MakeWorld) -> None:
    one = with_zookeeper(world(brokers=(1, 2)), Lossy, lose=1, lands=False)
    one.run(ev.CreateTopics(1, (ev.NewTopic("t", 1, 2),)))
    assert "retry" in one.timers
    one.fire("retry")
    assert one["t-0"].endswith("epoch=0")
    assert one.cluster.rows[TopicPartition("t", 0)].leader != NO_LEADER


def test_producer_ids_are_never_given_twice(world: MakeWorld) -> None:
    for lands in (True, False):
        one = with_zookeeper(world(brokers=(1,)), Lossy, lose=0, lands=lands)
        first = one.ask(ev.AllocateProducerIds(1, 1, 101))
        second = one.ask(ev.AllocateProducerIds(2, 1, 101))
        assert isinstance(first, ProducerIdBlock)
        assert isinstance(second, ProducerIdBlock)
        assert first.start + first.length <= second.start
