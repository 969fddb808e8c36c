"""Clusters made from a seed: what they promise, and that rows depend on nothing but (seed, id)."""

import subprocess
import sys
from collections import Counter
from statistics import median
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.bench import shapes
from kctl.bench.draws import shuffled
from kctl.bench.shapes import PRESETS, ImpossibleShape, Shape, UnknownPreset, shape
from kctl.bench.traces import TRACES, happening, trace, trace_length
from kctl.logic.placement import assign_replicas

SEED = 7
SMALL = shape("ci-2k")
LARGE = shape("linkedin-275k")


def counts(of: Shape, seed: int = SEED) -> list[int]:
    return [shapes.partition_count(of, seed, index) for index in range(of.topics)]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_exactly_the_partitions_that_it_names(name: str) -> None:
    assert sum(shapes.partition_counts(shape(name))) == shape(name).partitions


def test_presets_are_those_of_the_clusters_that_were_written_about() -> None:
    sizes = {n: (s.topics, s.partitions, s.brokers) for n, s in PRESETS.items() if n != "ci-2k"}
    assert sizes == {
        "paper-100k": (2_000, 100_000, 5),
        "base-100k": (2_000, 100_000, 10),
        "wide-100k": (100_000, 100_000, 5),
        "linkedin-275k": (20_000, 275_000, 199),
        "tencent-1m": (10_000, 1_000_000, 100),
    }


def test_an_unknown_preset_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UnknownPreset, match=r"'base-1k'.*ci-2k.*tencent-1m"):
        shape("base-1k")


@pytest.mark.parametrize(
    "change",
    [
        {"topics": 0},
        {"partitions": SMALL.topics - 1},
        {"brokers": 2},
        {"racks": 6},
        {"replication": ((3, 0.5),)},
        {"replication": ((0, 1.0),)},
        {"replication": ()},
        {"newcomers": -1},
        {"isr_gaps": 1.5},
        {"leader_epochs": -1.0},
    ],
)
def test_an_impossible_shape_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ImpossibleShape, match="shape ci-2k: "):
        attrs.evolve(SMALL, **change)


@given(st.integers(1, 300), st.integers(0, 2**64 - 1))
def test_shuffling_is_a_permutation(size: int, seed: int) -> None:
    assert sorted(shuffled(n, size, seed, 1) for n in range(size)) == list(range(size))


# -- rows are functions of the seed and the id --------------------------------------------------


def everything(of: Shape, seed: int, order: list[int]) -> dict[int, tuple[object, object, object]]:
    return {
        index: (
            shapes.topic(of, seed, index),
            shapes.assignment(of, seed, index),
            shapes.leadership(of, seed, index),
        )
        for index in order
    }


def test_the_order_in_which_rows_are_made_does_not_matter() -> None:
    forward = everything(SMALL, SEED, list(range(SMALL.topics)))
    assert everything(SMALL, SEED, list(reversed(range(SMALL.topics)))) == forward


def test_another_process_makes_the_same_rows() -> None:
    """Python's own hashes differ from process to process; nothing may depend on them."""
    show = (
        "from kctl.bench import shapes as s, traces as t; of = s.shape('ci-2k');"
        "print(s.topic(of, 7, 3), s.leadership(of, 7, 3), list(t.trace(of, 7, 'isr_flapping')))"
    )
    run = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True)
    flaps = list(trace(SMALL, SEED, "isr_flapping"))
    expected = f"{shapes.topic(SMALL, 7, 3)} {shapes.leadership(SMALL, 7, 3)} {flaps}"
    assert run.stdout.strip() == expected


def test_another_seed_makes_another_cluster_of_the_same_shape() -> None:
    one, other = (everything(SMALL, seed, list(range(SMALL.topics))) for seed in (1, 2))
    assert all(one[index] != other[index] for index in one)
    assert sorted(counts(SMALL, 1)) == sorted(counts(SMALL, 2))


def test_one_partition_alone_is_what_it_is_among_its_topic() -> None:
    for index in range(SMALL.topics):
        assigned = shapes.assignment(SMALL, SEED, index)
        alone = {p: shapes.replicas_of(SMALL, SEED, index, p) for p in assigned}
        assert alone == assigned


# -- distributions -------------------------------------------------------------------------------


def test_partitions_a_topic_are_log_normal_with_a_heavy_head() -> None:
    found = sorted(counts(LARGE), reverse=True)
    assert median(found) == 6
    assert found[-1] == 1
    body = found[LARGE.topics // 200 :]
    assert max(body) <= 200
    chosen = Counter(body)
    assert sum(chosen[n] for n in (1, 3, 6, 12, 24, 50, 100)) / len(body) > 0.6
    # Zipf: the largest stands far out, and the head falls as a power of the rank.
    assert found[0] > 1_000
    assert 1.8 < found[0] / found[1] < 2.6
    assert sum(found[: LARGE.topics // 200]) / LARGE.partitions < 0.2


def test_the_published_number_of_replicas_is_met() -> None:
    replicas = sum(
        shapes.replication_factor(LARGE, SEED, index) * count
        for index, count in enumerate(counts(LARGE))
    )
    assert replicas == pytest.approx(827_000, rel=0.005)


def test_shares_of_replication_factors_hold() -> None:
    found = Counter(shapes.replication_factor(LARGE, SEED, i) for i in range(LARGE.topics))
    assert found == {3: 19_700, 4: 220, 2: 80}


# -- placement -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ci-2k", "base-100k", "paper-100k", "linkedin-275k"])
def test_replicas_are_distinct_and_as_many_as_the_topic_says(name: str) -> None:
    of = shape(name)
    for index in range(0, of.topics, max(1, of.topics // 300)):
        factor = shapes.replication_factor(of, SEED, index)
        assigned = shapes.assignment(of, SEED, index)
        assert list(assigned) == list(range(shapes.partition_count(of, SEED, index)))
        for replicas in assigned.values():
            assert len(set(replicas)) == len(replicas) == factor
            assert set(replicas) <= set(range(1, of.brokers + 1))


@pytest.mark.parametrize("name", ["ci-2k", "base-100k", "linkedin-275k"])
def test_replicas_are_in_as_many_racks_as_there_can_be(name: str) -> None:
    of = shape(name)
    racks = {broker.id: broker.rack for broker in shapes.brokers(of, SEED)}
    for index in range(0, of.topics, max(1, of.topics // 300)):
        for replicas in shapes.assignment(of, SEED, index).values():
            assert len({racks[b] for b in replicas}) == min(len(replicas), of.racks)


def test_placement_is_kafkas() -> None:
    """The whole topic at once by Kafka's rule, from the start and shift that its first row shows."""
    of = shape("base-100k")
    there = shapes.brokers(of, SEED)
    for index in range(20):
        assigned = shapes.assignment(of, SEED, index)
        assert any(
            assigned == assign_replicas(there, 50, 3, start_index=start, shift=shift)
            for start in range(10)
            for shift in range(10)
        )


def test_leaders_of_an_even_shape_are_even() -> None:
    of = shape("base-100k")
    led = Counter(
        leadership.leader
        for index in range(200)
        for leadership in shapes.leadership(of, SEED, index).values()
    )
    assert led == dict.fromkeys(range(1, 11), 1_000)


def test_newcomers_hold_less_and_only_what_came_after_them() -> None:
    held: Counter[int] = Counter()
    for index in range(SMALL.topics):
        for replicas in shapes.assignment(SMALL, SEED, index).values():
            held.update(replicas)
            if index < 0.75 * SMALL.topics:
                assert 6 not in replicas
    assert 0 < held[6] < min(held[b] for b in range(1, 6)) / 2


# -- leadership ----------------------------------------------------------------------------------


def test_leadership_has_gaps_skew_and_epochs_as_the_shape_says() -> None:
    of = attrs.evolve(LARGE, name="half", topics=2_000, partitions=27_500, isr_gaps=0.05)
    rows = [
        (replicas, led)
        for index in range(of.topics)
        for assigned in [shapes.assignment(of, SEED, index)]
        for replicas, led in zip(
            assigned.values(), shapes.leadership(of, SEED, index).values(), strict=True
        )
    ]
    for replicas, led in rows:
        assert led.leader in led.isr
        assert [b for b in replicas if b in led.isr] == list(led.isr)
    gaps = sum(len(led.isr) < len(replicas) for replicas, led in rows) / len(rows)
    assert gaps == pytest.approx(0.05, abs=0.01)
    assert any(len(led.isr) == 1 < len(replicas) for replicas, led in rows)
    restarted = shapes.restarted_last(of)
    own = [(replicas, led) for replicas, led in rows if replicas[0] >= restarted]
    moved = sum(led.leader != replicas[0] for replicas, led in own) / len(own)
    assert moved == pytest.approx(of.leader_skew, abs=0.05)
    assert all(led.leader == ids[0] for ids, led in rows if ids[0] < restarted)
    epochs = [led.leader_epoch for _, led in rows]
    assert sum(epochs) / len(epochs) == pytest.approx(of.leader_epochs, rel=0.1)
    assert min(epochs) == 0


def test_configs_are_on_their_share_of_topics() -> None:
    topics = [shapes.topic(LARGE, SEED, index) for index in range(0, LARGE.topics, 5)]
    assert sum(bool(topic.configs) for topic in topics) / len(topics) == pytest.approx(
        0.6, abs=0.03
    )
    assert not shapes.topic(shape("base-100k"), SEED, 0).configs
    assert len({topic.id for topic in topics}) == len(topics)


# -- traces --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize("preset", ["ci-2k", "paper-100k", "linkedin-275k"])
def test_a_trace_is_in_order_and_each_event_stands_alone(preset: str, name: str) -> None:
    of = shape(preset)
    length = trace_length(of, SEED, name)
    found = [happening(of, SEED, name, n) for n in reversed(range(min(length, 500)))]
    found.reverse()
    assert [event.sequence for event in found] == list(range(len(found)))
    assert [event.at_ms for event in found] == sorted(event.at_ms for event in found)
    assert {event.trace for event in found} <= {name}
    if name != "rack_loss" or of.racks:
        assert length > 0


def test_a_rolling_restart_stops_and_starts_every_broker_once_and_one_at_a_time() -> None:
    kinds = [(e.kind, e.broker) for e in trace(SMALL, SEED, "rolling_restart")]
    stops, starts = kinds[::2], kinds[1::2]
    assert stops == [("broker_stop", b) for b in range(1, 7)]
    assert starts == [("broker_start", b) for b in range(1, 7)]


def test_a_rack_loss_stops_one_whole_rack() -> None:
    events = list(trace(SMALL, SEED, "rack_loss"))
    lost = {e.broker for e in events if e.kind == "broker_stop"}
    racks = {broker.rack for broker in shapes.brokers(SMALL, SEED) if broker.id in lost}
    assert len(racks) == 1
    assert len(lost) == 2


def test_reassignments_have_targets_that_can_be() -> None:
    for event in trace(SMALL, SEED, "reassignment_wave"):
        assert event.replicas is not None
        assert event.topic is not None
        index = int(event.topic.removeprefix("topic-"))
        assert len(set(event.replicas)) == shapes.replication_factor(SMALL, SEED, index)
        assert event.partition in shapes.assignment(SMALL, SEED, index)


def test_flapping_ends_where_it_began() -> None:
    last = {(e.topic, e.partition): e.replicas for e in trace(SMALL, SEED, "isr_flapping")}
    for (topic, partition), isr in last.items():
        assert topic is not None
        assert partition is not None
        led = shapes.leadership(SMALL, SEED, int(topic.removeprefix("topic-")))
        assert led[partition].isr == isr
