"""A term may end at every effect. The next one must come to the same end, and nobody is misled."""

from collections import Counter

import pytest

from kctl.logic.dispatch import handle
from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.messages.driver import Finished, step
from kctl.messages.outbox import Outbox
from kctl.messages.requests import (
    Connect,
    Disconnect,
    DisconnectAll,
    LeaderAndIsrRequest,
    UpdateMetadataRequest,
)
from kctl.model.names import TopicPartition
from kctl.model.rows import Leadership
from tests.logic.scenarios_of_interruption import SCENARIOS, Scenario, outcome
from tests.logic.world import World

EFFECTS_MAX = 200


def undisturbed(scenario: Scenario) -> tuple[World, int]:
    world = scenario.build()
    recorded = world.run(scenario.event)
    world.settle()
    assert world.problems() == []
    return world, len(recorded.effects)


def new_term(world: World) -> World:
    """Another controller on the same ZooKeeper, after the session of the first is gone."""
    world.zk.controller = None
    successor = World.over(
        world.zk, inter_broker_protocol=world.node.settings.inter_broker_protocol
    )
    successor.run(ev.Startup())
    successor.settle()
    return successor


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_next_term_finishes_what_was_broken_off(name: str) -> None:
    """At every effect: before it, so that what came before it is done and nothing after it."""
    scenario = SCENARIOS[name]
    expected, effects = undisturbed(scenario)
    results = [outcome(expected)]
    if scenario.once_only:
        results.append(outcome(new_term(scenario.build())))
    elsewhere = [outcome(new_term(undisturbed(scenario)[0]))]
    assert effects < EFFECTS_MAX
    for stop in range(effects):
        world = scenario.build()
        world.run_to(scenario.event, stop)
        successor = new_term(world)
        assert successor.problems() == [], (name, stop)
        assert matches(outcome(successor), [*results, *elsewhere]), (name, stop, outcome(successor))


def matches(found: dict[str, object], allowed: list[dict[str, object]]) -> bool:
    """Each partition by itself: broken off in the middle, some are through and some are not."""
    for key, value in found.items():
        if key == "partitions":
            assert isinstance(value, dict)
            for tp, state in value.items():
                wanted = [one["partitions"].get(tp) for one in allowed]  # type: ignore[attr-defined]
                if state not in wanted:
                    return False
        elif value not in [one[key] for one in allowed]:
            return False
    return True


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_is_told_that_zookeeper_does_not_hold(name: str) -> None:
    """Whenever the outbox is flushed, every leadership in it is what ZooKeeper holds."""
    scenario = SCENARIOS[name]
    world = scenario.build()
    outbox = Outbox()
    procedure = handle(world.node, (scenario.event,), outbox)
    wanted = step(procedure)
    while True:
        if isinstance(wanted, ef.Flush | Finished):
            for dispatch in outbox.dispatches:
                if isinstance(dispatch, LeaderAndIsrRequest):
                    for tp, row in dispatch.rows.items():
                        assert row.leadership == world.zk.states[tp], (name, tp)
            for items in (outbox.dispatches, outbox.timers, outbox.answers, outbox.stories):
                items.clear()
        if isinstance(wanted, Finished):
            break
        wanted = step(procedure, world.zk.perform(wanted))


@pytest.mark.parametrize("name", SCENARIOS)
def test_closed_at_any_effect_a_handler_does_nothing_more(name: str) -> None:
    """No await in a finally, no partial answer: what it left in the outbox is dropped with it."""
    scenario = SCENARIOS[name]
    effects = undisturbed(scenario)[1]
    for stop in range(effects):
        world = scenario.build()
        before = len(world.log.answers)
        outbox = Outbox()
        procedure = handle(world.node, (scenario.event,), outbox)
        wanted = step(procedure)
        for _ in range(stop):
            if isinstance(wanted, Finished):
                return  # the rest are effects of events that followed
            wanted = step(procedure, world.zk.perform(wanted))
        procedure.close()
        assert len(world.log.answers) == before
        callers = Counter(answer.caller for answer in outbox.answers)
        assert not callers or max(callers.values()) == 1


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_answer_is_given_once_and_in_the_end(name: str) -> None:
    scenario = SCENARIOS[name]
    world = scenario.build()
    recorded = world.run(scenario.event)
    caller = getattr(scenario.event, "caller", None)
    answered = [answer.caller for answer in recorded.answers]
    assert answered == ([] if caller is None else [caller])


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_same_input_gives_the_same_output(name: str) -> None:
    """Deterministic: state, event and replies decide, not the process they run in."""
    scenario = SCENARIOS[name]
    one, other = scenario.build(), scenario.build()
    first, second = one.run(scenario.event), other.run(scenario.event)
    assert first == second
    assert one.cluster.rows == other.cluster.rows


@pytest.mark.parametrize("name", SCENARIOS)
def test_leader_epochs_never_fall_and_rise_with_every_leader(name: str) -> None:
    scenario = SCENARIOS[name]
    world = scenario.build()
    history: dict[TopicPartition, Leadership] = {
        tp: state for tp, state in world.zk.states.items() if isinstance(state, Leadership)
    }

    def check() -> None:
        for tp, state in world.zk.states.items():
            assert isinstance(state, Leadership)
            before = history.get(tp)
            if before is not None:
                assert state.leader_epoch >= before.leader_epoch, (name, tp)
                moved = state.leader != before.leader
                assert not moved or state.leader_epoch > before.leader_epoch, (name, tp)
            history[tp] = state
            topic = world.zk.topics.get(tp.topic)
            assert set(state.isr) <= set(topic.partitions[tp.partition].replicas)  # type: ignore[union-attr]

    outbox = Outbox()
    procedure = handle(world.node, (scenario.event,), outbox)
    wanted = step(procedure)
    while not isinstance(wanted, Finished):
        wanted = step(procedure, world.zk.perform(wanted))
        check()


@pytest.mark.parametrize("name", SCENARIOS)
def test_channels_are_opened_before_they_are_used(name: str) -> None:
    """A request goes to a broker that is connected, in the incarnation that is connected."""
    scenario = SCENARIOS[name]
    world = scenario.build()
    world.run(scenario.event)
    connected: dict[int, int] = {}
    for dispatch in world.log.dispatches:
        match dispatch:
            case Connect(broker=broker):
                connected[broker.id] = broker.epoch
            case Disconnect(broker=number):
                del connected[number]
            case DisconnectAll():
                connected.clear()
            case UpdateMetadataRequest(recipients=recipients):
                for number, epoch in recipients.items():
                    assert connected[number] == epoch
            case _:
                assert connected[dispatch.broker] == dispatch.broker_epoch
