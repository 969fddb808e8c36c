"""Replica placement: exactly Kafka's, for the same start and shift."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.logic.placement import PartialRacks, alternate_racks, assign_replicas
from kctl.model.brokers import Broker
from tests.logic.notation import broker


def brokers(count: int, racks: dict[int, str] | None = None) -> list[Broker]:
    return [broker(b, rack=None if racks is None else racks[b]) for b in range(count)]


@pytest.mark.parity(56)
def test_the_example_of_six_brokers_in_three_racks() -> None:
    racks = {0: "r1", 1: "r3", 2: "r3", 3: "r2", 4: "r2", 5: "r1"}
    assert alternate_racks(racks) == [0, 3, 1, 5, 4, 2]
    assigned = assign_replicas(brokers(6, racks), 7, 3, start_index=0, shift=0)
    assert list(assigned.values()) == [
        *((0, 3, 1), (3, 1, 5), (1, 5, 4), (5, 4, 2), (4, 2, 0), (2, 0, 3)),
        (0, 4, 2),
    ]


@pytest.mark.parametrize(
    "start, shift, expected",
    [
        # By the rule: partition p begins at p + start, follower j sits 1 + (shift + j) mod 4 on.
        (0, 0, [(0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1), (0, 2, 3), (1, 3, 4)]),
        (3, 0, [(3, 4, 0), (4, 0, 1), (0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 0, 1), (4, 1, 2)]),
        (0, 1, [(0, 2, 3), (1, 3, 4), (2, 4, 0), (3, 0, 1), (4, 1, 2), (0, 3, 4), (1, 4, 0)]),
        (1, 3, [(1, 0, 2), (2, 1, 3), (3, 2, 4), (4, 3, 0), (0, 4, 1), (1, 2, 3), (2, 3, 4)]),
    ],
)
def test_round_robin_without_racks(start: int, shift: int, expected: list[tuple[int, ...]]) -> None:
    assigned = assign_replicas(brokers(5), 7, 3, start_index=start, shift=shift)
    assert list(assigned.values()) == expected


@pytest.mark.parity(58)
def test_added_partitions_go_on_where_the_topic_ended() -> None:
    """The shift rises only at partitions that are met, so growing restarts it at `shift`."""
    grown = assign_replicas(brokers(3), 3, 2, start_index=0, shift=0, first_partition=2)
    assert grown == {2: (2, 0), 3: (0, 2), 4: (1, 0)}


def test_one_broker() -> None:
    assert assign_replicas(brokers(1), 2, 1, start_index=0, shift=0) == {0: (0,), 1: (0,)}


def test_more_replicas_than_racks() -> None:
    racks = {0: "a", 1: "a", 2: "b", 3: "b"}
    assigned = assign_replicas(brokers(4, racks), 4, 3, start_index=0, shift=0)
    assert alternate_racks(racks) == [0, 2, 1, 3]
    assert assigned == {0: (0, 2, 1), 1: (2, 1, 3), 2: (1, 3, 0), 3: (3, 0, 2)}


def test_racks_of_some_brokers_only_are_refused() -> None:
    some = [broker(1, rack="a"), broker(2), broker(3)]
    with pytest.raises(PartialRacks, match=r"brokers \[2, 3\] have no rack"):
        assign_replicas(some, 1, 1, start_index=0, shift=0)


sizes = st.integers(1, 9).flatmap(
    lambda n: st.tuples(
        st.just(n),
        st.integers(1, n),
        st.integers(1, 30),
        st.integers(0, n - 1),
        st.integers(0, n - 1),
    )
)


@given(sizes)
def test_replicas_are_distinct_and_leaders_even(size: tuple[int, int, int, int, int]) -> None:
    count, factor, partitions, start, shift = size
    assigned = assign_replicas(brokers(count), partitions, factor, start_index=start, shift=shift)
    assert list(assigned) == list(range(partitions))
    assert all(len(set(replicas)) == factor for replicas in assigned.values())
    leaders = Counter(replicas[0] for replicas in assigned.values())
    assert max(leaders.values()) - min(leaders[b] for b in range(count)) <= 1


@given(sizes, st.lists(st.sampled_from("abcd"), min_size=9, max_size=9))
def test_replicas_spread_over_as_many_racks_as_can_be(
    size: tuple[int, int, int, int, int], racks: list[str]
) -> None:
    count, factor, partitions, start, shift = size
    rack_of = dict(enumerate(racks[:count]))
    assigned = assign_replicas(
        brokers(count, rack_of), partitions, factor, start_index=start, shift=shift
    )
    for replicas in assigned.values():
        assert len(set(replicas)) == factor
        spread = len({rack_of[b] for b in replicas})
        assert spread == min(factor, len(set(rack_of.values())))
