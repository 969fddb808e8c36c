"""What must hold at rest: each check notices when it does not."""

from collections.abc import Callable

import attrs
import pytest

from kctl.messages import events as ev
from kctl.model.names import TopicPartition
from kctl.simulation import liveness
from kctl.simulation.callers import Asked
from kctl.simulation.world import World
from kctl.zookeeper.multi import Create, Delete, SetData


def calm_world() -> World:
    """No mishap, only people at work; and everything came to rest."""
    world = World(1, storm_ms=4_000)
    world.faulty = False
    world.run()
    assert liveness.first_problem(world) is None
    return world


@pytest.fixture(scope="module")
def world() -> World:
    return calm_world()


def some_partition(world: World) -> TopicPartition:
    return next(tp for tp, _, state in liveness.settled(world) if state is not None)


def found(world: World) -> str:
    problem = liveness.first_problem(world)
    assert problem is not None
    return problem.invariant


def test_l1_nobody_controls() -> None:
    world = calm_world()
    for host in world.controllers.values():
        host.crash()
    assert found(world) == "L1"


def test_l3_a_cache_that_lacks_a_partition() -> None:
    world = calm_world()
    world.brokers[1].cache.pop(some_partition(world))
    assert found(world) == "L3"


def test_l3_a_cache_with_an_old_leader() -> None:
    world = calm_world()
    tp = some_partition(world)
    cached = world.brokers[1].cache[tp]
    old = attrs.evolve(cached, replicas=cached.replicas[::-1])
    world.brokers[1].cache[tp] = old
    assert found(world) == "L3"


def test_l3_a_follower_that_was_stopped() -> None:
    world = calm_world()
    hosted = next(
        h for b in world.brokers.values() for h in b.hosted.values() if not h.leads and h.fetching
    )
    hosted.fetching = False
    assert found(world) == "L3"


def test_l3_a_leader_with_a_stale_version() -> None:
    world = calm_world()
    leads = next(h for b in world.brokers.values() for h in b.hosted.values() if h.leads)
    leads.partition_epoch -= 1
    assert found(world) == "L3"


def test_l6_a_caller_without_an_answer(world: World) -> None:
    process = next(h.process for h in world.controllers.values() if h.process is not None)
    event = ev.ListPartitionReassignments(99_999)
    world.callers.open[99_999] = Asked(process, event, 0, 0, lambda _: None)
    try:
        assert found(world) == "L6"
    finally:
        del world.callers.open[99_999]


def leave_config(world: World) -> None:
    world.ensemble.try_commit(world.admin.session, Create("/config/topics/nobody", b"{}"))


def leave_note(world: World) -> None:
    path = "/isr_change_notification/isr_change_1"
    world.ensemble.try_commit(world.admin.session, Create(path, b"{}"))


def leave_reassignment(world: World) -> None:
    body = b'{"version":1,"partitions":[]}'
    world.ensemble.try_commit(world.admin.session, Create("/admin/reassign_partitions", body))


def change_state(world: World) -> None:
    tp = some_partition(world)
    path = f"/brokers/topics/{tp.topic}/partitions/{tp.partition}/state"
    data = world.ensemble.tree.data(path)
    world.ensemble.try_commit(world.admin.session, SetData(path, data))


def remove_state(world: World) -> None:
    tp = some_partition(world)
    path = f"/brokers/topics/{tp.topic}/partitions/{tp.partition}/state"
    world.ensemble.try_commit(world.admin.session, Delete(path))


@pytest.mark.parametrize(
    "invariant,sabotage",
    [
        ("L4", leave_config),
        ("L5", leave_reassignment),
        ("L7", leave_note),
        ("L3", change_state),
        ("L2", remove_state),
    ],
)
def test_znodes_that_should_not_be_so(invariant: str, sabotage: Callable[[World], None]) -> None:
    world = calm_world()
    sabotage(world)
    assert found(world) == invariant


def test_memory_that_differs_from_zookeeper() -> None:
    world = calm_world()
    cluster = liveness.cluster_of(world)
    assert cluster is not None
    topic = some_partition(world).topic
    cluster.topics[topic].zk_version += 1
    assert found(world) == "memory"


def test_l9_leaders_that_are_not_preferred() -> None:
    world = calm_world()
    tp = some_partition(world)
    ledger = world.safety.ledger
    record = ledger.topics[tp.topic]
    assert record.partitions is not None
    assigned = record.partitions[tp.partition]
    turned = attrs.evolve(assigned, replicas=assigned.replicas[::-1])
    partitions = record.partitions | {tp.partition: turned}
    ledger.topics[tp.topic] = attrs.evolve(record, partitions=partitions)
    problems = list(liveness.leaders_preferred(world))
    assert {problem.invariant for problem in problems} == {"L9"}
