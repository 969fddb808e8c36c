"""Names, assignments, leaderships and rows: small values with Kafka's rules in them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.model.names import (
    ID_BITS,
    TopicPartition,
    topic_id_from_bits,
    topic_id_to_bytes,
)
from kctl.model.rows import Assignment, Leadership, Row
from kctl.model.states import PartitionState, ReplicaState

A = Assignment
replicas = st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True).map(tuple)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("orders-17", TopicPartition("orders", 17)),
        ("a-b-0", TopicPartition("a-b", 0)),
        ("with.dots_and-3", TopicPartition("with.dots_and", 3)),
    ],
)
def test_a_partition_is_read_as_it_is_printed(text: str, expected: TopicPartition) -> None:
    assert TopicPartition.parse(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize("text", ["", "orders", "-1", "orders-", "orders-x", "orders-1.5"])
def test_what_is_no_partition_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="is not TOPIC-PARTITION, for example orders-17"):
        TopicPartition.parse(text)


@given(st.integers(0, 2**ID_BITS - 1))
def test_topic_ids_are_type_4_uuids_in_base64(bits: int) -> None:
    topic_id = topic_id_from_bits(bits)
    if topic_id is None:
        return  # it would begin with a dash
    raw = topic_id_to_bytes(topic_id)
    assert len(topic_id) == 22
    assert not topic_id.startswith("-")
    assert raw[6] >> 4 == 4
    assert raw[8] >> 6 == 2


def test_topic_ids_that_begin_with_a_dash_are_not_handed_out() -> None:
    assert topic_id_from_bits(0b111110 << 122) is None


def test_a_topic_id_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="not 16 bytes"):
        topic_id_to_bytes("AAAA")


@pytest.mark.parametrize(
    "current, target, expected",
    [
        (A((1, 2, 3)), (4, 5, 6), A((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))),
        (
            A((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3)),
            (7, 8, 9),
            A((7, 8, 9, 1, 2, 3), (7, 8, 9), (1, 2, 3)),
        ),
        (A((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3)), (1, 2, 3), A((1, 2, 3))),
        (A((1, 2, 3, 4)), (4, 2, 5, 3), A((4, 2, 5, 3, 1), (5,), (1,))),
        (A((1, 2, 3)), (3, 1, 2), A((3, 1, 2))),
    ],
    ids=["move", "override", "cancel", "mixed", "order only"],
)
def test_reassign_to_as_in_kafkas_table(
    current: Assignment, target: tuple[int, ...], expected: Assignment
) -> None:
    assert current.reassign_to(target) == expected


@given(replicas, replicas, replicas)
def test_the_algebra_of_reassignment(
    start: tuple[int, ...], target: tuple[int, ...], other: tuple[int, ...]
) -> None:
    under_way = A(start).reassign_to(target)
    assert under_way.target == target
    assert set(under_way.origin) == set(start)
    assert not set(under_way.adding) & set(under_way.removing)
    assert set(under_way.adding) | set(under_way.removing) <= set(under_way.replicas)
    assert under_way.completed() == A(target)
    # Overridden, the origin is still the one before the first call; cancelled, it is back.
    overridden = under_way.reassign_to(other)
    assert set(overridden.origin) == set(start)
    assert not under_way.reassign_to(under_way.origin).is_reassigning
    # Repeating a call changes nothing.
    assert under_way.reassign_to(target) == under_way


@given(replicas, replicas, st.integers(0, 9))
def test_without_takes_a_broker_out_of_all_three_lists(
    start: tuple[int, ...], target: tuple[int, ...], broker: int
) -> None:
    left = A(start).reassign_to(target).without(broker)
    assert broker not in (*left.replicas, *left.adding, *left.removing)


def test_a_write_that_landed_is_known_by_its_content() -> None:
    ours = Leadership(1, (1, 2), 5, 7, zk_version=3)
    assert ours.written() == Leadership(1, (1, 2), 5, 7, zk_version=4)
    assert ours.written().same_content(ours)
    for other in (
        Leadership(2, (1, 2), 5, 7, 4),
        Leadership(1, (1,), 5, 7, 4),
        Leadership(1, (1, 2), 6, 7, 4),
        Leadership(1, (1, 2), 5, 8, 4),
        Leadership(1, (1, 2), 5, 7, 4, recovering=True),
    ):
        assert not other.same_content(ours)


def test_a_row_without_a_state_has_no_leader_and_no_isr() -> None:
    row = Row(A((1, 2)), None, PartitionState.NEW, (ReplicaState.NEW, ReplicaState.NEW))
    assert (row.leader, row.isr, row.replicas) == (-1, (), (1, 2))
    assert row.replica_state(9) is ReplicaState.NON_EXISTENT


def test_a_reassigned_row_keeps_the_states_of_those_who_stay() -> None:
    states = (ReplicaState.ONLINE, ReplicaState.OFFLINE)
    row = Row(A((1, 2)), None, PartitionState.ONLINE, states)
    moved = row.reassigned(A((2, 3), (3,), ()))
    assert moved.replica_states == (ReplicaState.OFFLINE, ReplicaState.NON_EXISTENT)
