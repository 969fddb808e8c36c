"""Every scenario is complete on a real ZooKeeper; what is not complete gives no figure."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest

from kctl.bench import stage as stages
from kctl.bench.floor import FLOORS, measure_floor
from kctl.bench.playing import Player
from kctl.bench.scenarios import SCENARIOS, UnknownScenario, broker_failure, chosen, failover
from kctl.bench.shapes import Shape, assignment, leadership, topic
from kctl.bench.stage import Incomplete, NotApplicable, Stage, open_stage
from kctl.bench.systems import Kctl
from kctl.bench.traces import TRACES, trace
from kctl.bench.turns import Turns
from kctl.brokers.versions import UPDATE_METADATA
from kctl.model.codes import KafkaError
from kctl.model.names import NO_LEADER, TopicPartition
from kctl.zookeeper import paths

SMALL = Shape("small", topics=20, partitions=200, brokers=5, racks=5)
UNEVEN = Shape(
    "uneven",
    topics=20,
    partitions=200,
    brokers=6,
    spread="lognormal",
    racks=3,
    isr_gaps=0.05,
    leader_skew=0.9,
    leader_epochs=4.0,
    configured=0.5,
)


@asynccontextmanager
async def opened(shape: Shape) -> AsyncIterator[Stage]:
    async with open_stage(shape) as stage:
        stage.quiet_s = 0.3
        yield stage


@pytest.mark.zookeeper
@pytest.mark.asyncio
async def test_every_scenario_is_complete_twice_and_leaves_the_cluster_as_it_was() -> None:
    async with opened(SMALL) as stage:
        turns = Turns(stage, chosen([]))
        await turns.run([Kctl], turns=1, passes=2)
        assert turns.failures == []
        assert turns.left_out == {}
        counts = dict.fromkeys(SCENARIOS, 0)
        for m in stage.measured:
            if m.system == "kctl" and m.scenario in counts:
                counts[m.scenario] += 1
                assert m.requests > 0, m
                assert m.records, m
        assert all(count >= 2 for count in counts.values()), counts
        assert stage.at_home(stage.home.states)
        assert {m.scenario for m in stage.measured if m.system == "floor"} == {
            name for names, _ in FLOORS for name in names
        }


@pytest.mark.zookeeper
@pytest.mark.asyncio
async def test_brokers_believe_what_zookeeper_holds_when_the_controller_has_left() -> None:
    """The cluster is put back as it was while somebody is there to tell the brokers of it."""
    async with opened(SMALL) as stage:
        turns = Turns(stage, chosen(["broker_failure", "broker_start"]))
        await turns.measure(Kctl(), passes=1)
        assert turns.failures == []
        assert stage.system is None
        assert stage.audience.disagreements(stage.truth, stage.brokers.live) == []


@pytest.mark.zookeeper
@pytest.mark.asyncio
async def test_what_is_loaded_is_what_the_shape_says() -> None:
    async with opened(UNEVEN) as stage:
        assert len(stage.truth.states) == UNEVEN.partitions
        for index in range(UNEVEN.topics):
            name = topic(UNEVEN, 1, index).name
            assigned = assignment(UNEVEN, 1, index)
            found = stage.truth.topics[name].partitions
            assert {p: a.replicas for p, a in found.items()} == assigned
            for p, led in leadership(UNEVEN, 1, index).items():
                assert stage.truth.states[TopicPartition(name, p)] == led
        assert stage.brokers.live == [1, 2, 3, 4, 5, 6]


@pytest.mark.zookeeper
@pytest.mark.asyncio
async def test_the_floor_changes_nothing_but_versions() -> None:
    async with opened(SMALL) as stage:
        measured = await measure_floor(stage, ["delete_1000x5", "broker_failure"])
        assert {m.scenario for m in measured} == {"delete_1000x5", "broker_failure"}
        assert stage.at_home(stage.home.states)
        assert stage.truth.topics.keys() == stage.home.topics.keys()
        assert await stage.session.children(paths.DELETE_TOPICS) == []


@pytest.mark.zookeeper
@pytest.mark.asyncio
async def test_a_broker_that_was_not_told_makes_the_run_no_figure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stages, "LOOKS_MAX", 2)
    async with opened(SMALL) as stage:
        await stage.enter(Kctl())
        try:
            measured = len(stage.measured)
            stage.brokers[2].errors[UPDATE_METADATA] = KafkaError.UNKNOWN_SERVER_ERROR
            with pytest.raises(Incomplete, match="broker 2 was not told"):
                await failover(stage)
            assert len(stage.measured) == measured
            del stage.brokers[2].errors[UPDATE_METADATA]
            await failover(stage)
        finally:
            await stage.leave()


@pytest.mark.zookeeper
@pytest.mark.asyncio
async def test_a_leader_that_stays_dead_makes_the_run_no_figure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stages, "LOOKS_MAX", 1)
    async with opened(SMALL) as stage:
        controller = Kctl()
        await stage.enter(controller)
        try:
            # The broker dies, and nobody does anything about it.
            controller.pause()
            with pytest.raises(Incomplete, match=f"still have broker {stage.victim}"):
                await broker_failure(stage)
        finally:
            controller.resume()
            await stage.leave()


@pytest.mark.zookeeper
@pytest.mark.asyncio
async def test_partitions_that_lose_their_last_replica_in_sync_do_not_spoil_the_run() -> None:
    """Brokers are told, but do not take up the epoch of a leader that is none."""
    async with opened(attrs.evolve(SMALL, name="gaps", isr_gaps=0.6)) as stage:
        await stage.enter(Kctl())
        try:
            await broker_failure(stage)
            leaderless = [tp for tp, s in stage.truth.states.items() if s.leader == NO_LEADER]
            assert leaderless
        finally:
            await stage.leave()


@pytest.mark.zookeeper
@pytest.mark.asyncio
async def test_every_scenario_is_complete_where_isrs_have_gaps() -> None:
    """Also a controlled shutdown: what only the leaving broker has in sync stays with it."""
    async with opened(attrs.evolve(UNEVEN, name="gaps", isr_gaps=0.6)) as stage:
        alone = [s for s in stage.truth.states.values() if s.isr == (stage.victim,)]
        assert alone
        turns = Turns(stage, chosen([]))
        await turns.measure(Kctl(), passes=1)
        assert turns.failures == []
        assert turns.left_out == {}


@pytest.mark.zookeeper
@pytest.mark.asyncio
async def test_traces_are_played_to_the_end() -> None:
    async with opened(UNEVEN) as stage:
        await stage.enter(Kctl())
        try:
            for name in TRACES:
                await stage.go_home()
                player = Player(stage, lasts_s=0.5)
                measured = await player.play(name, list(trace(UNEVEN, 1, name)))
                assert measured.scenario == f"trace_{name}"
                assert measured.records, name
                assert player.refused == 0, name
        finally:
            await stage.leave()


@pytest.mark.zookeeper
@pytest.mark.asyncio
async def test_a_cluster_without_second_replicas_has_no_preferred_election() -> None:
    single = Shape("single", topics=4, partitions=40, brokers=3, replication=((1, 1.0),))
    async with opened(single) as stage:
        await stage.enter(Kctl())
        try:
            for name in ("preferred_election", "controlled_shutdown", "isr_notification"):
                with pytest.raises(NotApplicable):
                    await SCENARIOS[name].run(stage)
        finally:
            await stage.leave()


def test_an_unknown_scenario_is_named() -> None:
    with pytest.raises(UnknownScenario, match="'failure'; there are failover"):
        chosen(["failure"])


def test_scenarios_come_in_their_own_order() -> None:
    assert [s.name for s in chosen(["create_100x50", "failover"])] == ["failover", "create_100x50"]
