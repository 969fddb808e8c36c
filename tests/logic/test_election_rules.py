"""The election rules against an oracle written from Kafka's table, over every small case.

For each replica of a partition: is its broker alive, alive but shutting down, alive with this
partition on a failed log dir, or dead; is it in the ISR; does it lead. All combinations up to four
replicas, and with five a selection of ISR orders.
"""

from collections.abc import Iterator
from itertools import combinations, permutations, product
from typing import NamedTuple

import pytest

from kctl.logic.elections import Strategy, removed_from_isr
from kctl.logic.partitions import decide, lisr_recipients
from kctl.model.cluster import ClusterState
from kctl.model.names import NO_LEADER, TopicPartition
from kctl.model.rows import Assignment, Leadership, Row
from kctl.model.states import PartitionState, ReplicaState
from tests.logic.notation import EPOCH, build_cluster

T0 = TopicPartition("t", 0)
ALIVE, LEAVING, BAD_DIR, DEAD = "alive", "leaving", "bad dir", "dead"


class Case(NamedTuple):
    brokers: dict[int, str]
    isr: tuple[int, ...]
    leader: int


def isrs(replicas: tuple[int, ...], *, any_order: bool) -> Iterator[tuple[int, ...]]:
    """Never empty. Its order may differ from that of the assignment."""
    for size in range(1, len(replicas) + 1):
        for members in combinations(replicas, size):
            yield from permutations(members) if any_order else (members, members[::-1])


def cases(replicas: tuple[int, ...]) -> Iterator[tuple[ClusterState, Case]]:
    kinds = (ALIVE, LEAVING, BAD_DIR, DEAD) if len(replicas) < 5 else (ALIVE, LEAVING, DEAD)
    for states in product(kinds, repeat=len(replicas)):
        brokers = dict(zip(replicas, states, strict=True))
        cluster = state_of(brokers, replicas)
        row = cluster.rows[T0]
        for isr in isrs(replicas, any_order=len(replicas) < 4):
            for leader in (NO_LEADER, isr[0]):
                cluster.rows[T0] = row.led(Leadership(leader, isr, 5, 1, 9))
                yield cluster, Case(brokers, isr, leader)


def state_of(brokers: dict[int, str], replicas: tuple[int, ...]) -> ClusterState:
    cluster = build_cluster(
        brokers=[b for b, state in brokers.items() if state != DEAD],
        shutting_down=[b for b, state in brokers.items() if state == LEAVING],
        offline_dirs={b: ("t-0",) for b, state in brokers.items() if state == BAD_DIR},
    )
    cluster.add_topic("t", None, 0)
    states = (ReplicaState.ONLINE,) * len(replicas)
    cluster.put(T0, Row(Assignment(replicas), None, PartitionState.OFFLINE, states))
    return cluster


class Expected(NamedTuple):
    leader: int
    isr: tuple[int, ...]
    recovering: bool
    told: set[int]


def oracle(strategy: Strategy, replicas: tuple[int, ...], case: Case) -> Expected | None:
    """Kafka's table, column by column; `online` is alive, `present` includes those leaving."""
    online = [b for b in replicas if case.brokers[b] == ALIVE]
    present = [b for b in replicas if case.brokers[b] in (ALIVE, LEAVING)]
    in_sync = [b for b in online if b in case.isr]
    if strategy in (Strategy.OFFLINE, Strategy.UNCLEAN):
        if in_sync:
            shrunk = tuple(b for b in case.isr if b in online)
            return Expected(in_sync[0], shrunk, False, set(online))
        if strategy is Strategy.UNCLEAN and online:
            return Expected(online[0], (online[0],), True, set(online))
        return None
    if strategy is Strategy.REASSIGN:
        return Expected(in_sync[0], case.isr, False, set(replicas)) if in_sync else None
    if strategy is Strategy.PREFERRED:
        able = replicas[0] in in_sync
        return Expected(replicas[0], case.isr, False, set(replicas)) if able else None
    stays = [b for b in present if b in case.isr and case.brokers[b] != LEAVING]
    if not stays:
        return None
    left = tuple(b for b in case.isr if case.brokers[b] != LEAVING)
    return Expected(stays[0], left, False, set(present))


@pytest.mark.parity(30, 31, 33, 38)
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
@pytest.mark.timeout(60)
def test_every_election_is_the_one_of_kafkas_table(count: int) -> None:
    replicas = (3, 1, 5, 2, 4)[:count]
    tried = 0
    for cluster, case in cases(replicas):
        row = cluster.rows[T0]
        for strategy in Strategy:
            elected = decide(cluster, T0, strategy)
            expected = oracle(strategy, replicas, case)
            tried += 1
            if expected is None:
                assert elected is None, (strategy, case, elected)
                continue
            assert elected == Leadership(
                expected.leader, expected.isr, 6, EPOCH, 9, expected.recovering
            ), (strategy, case)
            assert set(lisr_recipients(cluster, T0, row, strategy)) == expected.told, (
                strategy,
                case,
            )
    assert tried > {1: 30, 2: 500, 3: 9_000, 4: 70_000, 5: 100_000}[count]


def removal_oracle(leader: int, isr: tuple[int, ...], gone: tuple[int, ...]) -> Leadership | None:
    """One broker after the other, each by Kafka's rule: the last member of an ISR is kept."""
    now_leader, now_isr = leader, isr
    for broker in sorted(gone):
        if broker in now_isr:
            now_leader = NO_LEADER if now_leader == broker else now_leader
            if now_isr != (broker,):
                now_isr = tuple(b for b in now_isr if b != broker)
    if (now_leader, now_isr) == (leader, isr):
        return None
    return Leadership(now_leader, now_isr, 6, EPOCH, 9)


@pytest.mark.parity(12)
@pytest.mark.timeout(60)
def test_every_removal_from_an_isr() -> None:
    replicas = (3, 1, 5, 2, 4)
    for isr in isrs(replicas, any_order=True):
        for leader in (NO_LEADER, *isr):
            before = Leadership(leader, isr, 5, 1, 9)
            for size in range(len(replicas) + 1):
                for gone in combinations(replicas, size):
                    after = removed_from_isr(before, gone, EPOCH)
                    assert after == removal_oracle(leader, isr, gone), (isr, leader, gone)
                    if after is not None:
                        assert after.isr
                        assert after.leader == NO_LEADER or after.leader in after.isr
                        assert after.leader not in gone


@pytest.mark.parity(33)
@pytest.mark.parametrize("release, marked", [((3, 1), False), ((3, 2), True), ((3, 9), True)])
def test_an_unclean_leader_is_marked_where_brokers_know_the_mark(
    release: tuple[int, int], marked: bool
) -> None:
    cluster = build_cluster("t-0: 1,2,3 isr=1", dead=(1,), inter_broker_protocol=release)
    elected = decide(cluster, T0, Strategy.OFFLINE, unclean=True)
    assert elected == Leadership(2, (2,), 1, EPOCH, 0, recovering=marked)


def test_the_target_of_a_reassignment_is_what_its_election_looks_at() -> None:
    cluster = build_cluster("t-0: 4,5,1*,2 adding=4,5 removing=1,2 isr=1,2,5,4", dead=(4,))
    elected = decide(cluster, T0, Strategy.REASSIGN)
    assert elected is not None
    assert (elected.leader, elected.isr) == (5, (1, 2, 5, 4))
    row = cluster.rows[T0]
    assert lisr_recipients(cluster, T0, row, Strategy.REASSIGN) == (4, 5)


def test_nobody_is_elected_for_a_partition_without_a_state() -> None:
    cluster = build_cluster("t-0: 1,2 new")
    assert [decide(cluster, T0, strategy) for strategy in Strategy] == [None] * len(Strategy)
