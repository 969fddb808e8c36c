"""Clusters of any size, made from a seed: every row is a pure function of (shape, seed, id).

Nobody publishes how many partitions the topics of a large cluster have. What stands here is an
assumption, except for the totals, which are those of clusters that were written about:

* partitions a topic ("lognormal"): a clipped discrete log-normal (median 6, sigma 1.2), two thirds
  of it drawn to the numbers that people choose (1, 3, 6, 12, 24, 50, 100); the largest topics, one
  in two hundred, follow Zipf's law with exponent 1.1;
* placement is Kafka's own, by racks where there are any. Brokers that joined late hold only what
  was created after them ("newcomers"): that is how real clusters become uneven;
* leadership: some partitions miss a replica in their ISR; the brokers restarted last, the last
  tenth, lead less than they should; leader epochs are geometric.

The named shapes with a comparison in mind (`base-100k`, `paper-100k`, `wide-100k`) have none of
this: they are even and healthy.
"""

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from statistics import NormalDist
from typing import Final, Literal

import attrs

from kctl.bench.draws import draw, further, mixed, shuffled, unit
from kctl.logic.placement import assign_replicas
from kctl.model.brokers import Broker, Endpoint
from kctl.model.names import BrokerId, TopicId, topic_id_from_bits
from kctl.model.rows import Leadership, Replicas

Spread = Literal["even", "lognormal"]

MEDIAN: Final = 6
SIGMA: Final = 1.2
LARGEST_OF_BODY: Final = 200
LARGEST: Final = 2_000
"""Of the head, before it is made to fit."""
CHOSEN: Final = (1, 3, 6, 12, 24, 50, 100)
"""What people type when they are asked for a number of partitions."""
CHOSEN_SHARE: Final = 2 / 3
HEAD_SHARE: Final = 1 / 200
HEAD_EXPONENT: Final = 1.1
NEWCOMERS_MISSED: Final = 0.75
"""Share of the topics that were there before the newcomers."""
ALONE_SHARE: Final = 0.1
"""Of the partitions with a gap in their ISR, those where only the leader is left."""

# What draws are for.
(
    TOPIC_ID,
    TOPIC_RANK,
    REPLICATION_FACTOR,
    PLACEMENT,
    LEADERSHIP,
    CONFIGS,
    BROKER_EPOCH,
) = range(7)


class UnknownPreset(ValueError):
    """No shape has this name."""


class ImpossibleShape(ValueError):
    """The numbers of a shape contradict each other."""


@attrs.frozen
class Shape:
    name: str
    topics: int
    partitions: int
    """Of all topics together, exactly."""
    brokers: int
    spread: Spread = "even"
    replication: tuple[tuple[int, float], ...] = ((3, 1.0),)
    """Replication factors and the share of topics that have them."""
    racks: int = 0
    """0: brokers name no rack."""
    isr_gaps: float = 0.0
    """Share of partitions that miss at least one replica in their ISR."""
    leader_skew: float = 0.0
    """Share of its own partitions that a broker restarted last does not lead."""
    newcomers: int = 0
    """Brokers that joined when three quarters of the topics existed."""
    leader_epochs: float = 0.0
    """Mean leader epoch."""
    configured: float = 0.0
    """Share of topics that have configs of their own."""

    def __attrs_post_init__(self) -> None:
        factors = [factor for factor, _ in self.replication]
        complaints = {
            "a cluster has at least one topic": self.topics < 1,
            "every topic has at least one partition": self.partitions < self.topics,
            "a cluster has at least one broker": self.brokers < 1,
            "a replication factor is at least 1": min(factors, default=0) < 1,
            "a topic cannot have more replicas than there are brokers (without the newcomers)": (
                max(factors, default=0) > self.brokers - self.newcomers
            ),
            "the shares of the replication factors add up to 1": not math.isclose(
                sum(share for _, share in self.replication), 1.0, abs_tol=1e-6
            ),
            "there are no more racks than brokers (without the newcomers)": (
                not 0 <= self.racks <= self.brokers - self.newcomers
            ),
            "newcomers are not fewer than none": self.newcomers < 0,
            "isr_gaps, leader_skew and configured are shares, from 0 to 1": not all(
                0 <= share <= 1 for share in (self.isr_gaps, self.leader_skew, self.configured)
            ),
            "a mean leader epoch is not negative": self.leader_epochs < 0,
        }
        for rule, broken in complaints.items():
            if broken:
                raise ImpossibleShape(f"shape {self.name}: {rule}")


def _realistic(name: str, **numbers: int) -> Shape:
    return Shape(
        name=name,
        spread="lognormal",
        # A mean of 3.007, the 827k replicas of 275k partitions.
        replication=((3, 0.985), (2, 0.004), (4, 0.011)),
        isr_gaps=0.005,
        leader_skew=0.9,
        leader_epochs=8.0,
        configured=0.6,
        **numbers,
    )


PRESETS: Final[Mapping[str, Shape]] = {
    shape.name: shape
    for shape in (
        _realistic("ci-2k", topics=156, partitions=2_000, brokers=6, racks=3, newcomers=1),
        Shape("paper-100k", 2_000, 100_000, brokers=5, replication=((1, 1.0),)),
        Shape("base-100k", 2_000, 100_000, brokers=10, racks=5),
        Shape("wide-100k", 100_000, 100_000, brokers=5, replication=((1, 1.0),)),
        _realistic(
            "linkedin-275k", topics=20_000, partitions=275_000, brokers=199, racks=5, newcomers=9
        ),
        Shape("tencent-1m", 10_000, 1_000_000, brokers=100, racks=5),
    )
}


def shape(name: str) -> Shape:
    """The named shape; `attrs.evolve` makes others of it."""
    try:
        return PRESETS[name]
    except KeyError:
        known = ", ".join(PRESETS)
        raise UnknownPreset(f"no preset is named {name!r}; there are {known}") from None


def base(partitions: int, partitions_a_topic: int = 50) -> Shape:
    """`base-100k` in another size."""
    topics = max(1, partitions // partitions_a_topic)
    return Shape(f"base-{partitions}", topics, partitions, brokers=10, racks=5)


# -- brokers ---------------------------------------------------------------------------------


def broker(of: Shape, seed: int, index: int) -> Broker:
    """Ids count from 1. In ZooKeeper the epoch is the registration's czxid: this one stands for it."""
    number = index + 1
    rack = f"rack-{index % of.racks}" if of.racks else None
    endpoint = Endpoint("PLAINTEXT", f"broker-{number}.example", 9092)
    epoch = 1_000 * number + draw(seed, BROKER_EPOCH, index) % 1_000
    return Broker(number, epoch, (endpoint,), rack)


@lru_cache(maxsize=16)
def brokers(of: Shape, seed: int) -> tuple[Broker, ...]:
    return tuple(broker(of, seed, index) for index in range(of.brokers))


# -- topics ----------------------------------------------------------------------------------


@attrs.frozen
class Topic:
    index: int
    name: str
    id: TopicId
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


@lru_cache(maxsize=8)
def partition_counts(of: Shape) -> "array[int]":
    """From the largest topic to the smallest; their sum is `partitions`."""
    if of.spread == "even":
        each, more = divmod(of.partitions, of.topics)
        return array("l", [each + (rank < more) for rank in range(of.topics)])
    head = max(1, round(of.topics * HEAD_SHARE))
    body = of.topics - head
    raw = [_body_count((body - position - 0.5) / body) for position in range(body)]
    least = max(raw, default=1)
    largest = min(LARGEST, of.partitions // 20)
    tops = [max(least, round(largest / (rank + 1) ** HEAD_EXPONENT)) for rank in range(head)]
    return array("l", _adding_up_to(of.partitions, tops, raw))


def _body_count(quantile: float) -> int:
    exact = MEDIAN * math.exp(SIGMA * NormalDist().inv_cdf(quantile))
    clipped = min(max(round(exact), 1), LARGEST_OF_BODY)
    # Of neighbouring quantiles two in three become a number that people choose.
    if draw(0, TOPIC_RANK, int(quantile * 1_000_003)) < CHOSEN_SHARE * 2**64:
        return min(CHOSEN, key=lambda chosen: abs(math.log(chosen / clipped)))
    return clipped


def _adding_up_to(total: int, head: list[int], body: list[int]) -> list[int]:
    """The head takes up the difference where it can; else everything is scaled, chosen or not."""
    left = total - sum(body)
    factor = left / sum(head)
    if head[-1] <= left / len(head) and factor < 2:
        counts = [max(head[-1], round(count * factor)) for count in head] + body
    else:
        factor = total / sum(head + body)
        counts = [max(1, round(count * factor)) for count in head + body]
    # The rest is rounding: the largest give or take one each.
    missing = total - sum(counts)
    rank = 0
    while missing:
        step = 1 if missing > 0 else -1
        if counts[rank] + step >= 1:
            counts[rank] += step
            missing -= step
        rank = (rank + 1) % len(counts)
    return sorted(counts, reverse=True)


def partition_count(of: Shape, seed: int, index: int) -> int:
    return partition_counts(of)[shuffled(index, of.topics, seed, TOPIC_RANK)]


def replication_factor(of: Shape, seed: int, index: int) -> int:
    if len(of.replication) == 1:
        return of.replication[0][0]
    # By rank and not by chance: the shares hold exactly, also in a small cluster.
    place = (shuffled(index, of.topics, seed, REPLICATION_FACTOR) + 0.5) / of.topics
    bounds = accumulate(share for _, share in of.replication)
    for (factor, _), bound in zip(of.replication, bounds, strict=True):
        if place < bound:
            return factor
    return of.replication[-1][0]


def topic_name(of: Shape, index: int) -> str:
    return f"topic-{index:0{max(6, len(str(of.topics - 1)))}}"


def topic_id(seed: int, index: int, purpose: int = TOPIC_ID) -> TopicId:
    attempt = 0
    while True:
        high, low = (draw(seed, purpose, index, attempt, half) for half in (0, 1))
        found = topic_id_from_bits(high << 64 | low)
        if found is not None:
            return found
        attempt += 1


def topic(of: Shape, seed: int, index: int) -> Topic:
    factor = replication_factor(of, seed, index)
    return Topic(
        index,
        topic_name(of, index),
        topic_id(seed, index),
        partition_count(of, seed, index),
        factor,
        _configs(of, seed, index, factor),
    )


def _configs(of: Shape, seed: int, index: int, factor: int) -> dict[str, str]:
    chance = draw(seed, CONFIGS, index)
    if unit(chance) >= of.configured:
        return {}
    configs = {}
    chance = draw(seed, CONFIGS, index, 1)
    days = (1, 3, 7, 14, 30)[chance % 5]
    if (chance >> 8) % 100 < 15:
        configs["cleanup.policy"] = "compact"
    else:
        configs["retention.ms"] = str(days * 86_400_000)
    if factor >= 3 and (chance >> 16) % 100 < 60:
        configs["min.insync.replicas"] = "2"
    if (chance >> 24) % 100 < 1:
        configs["unclean.leader.election.enable"] = "true"
    return configs


# -- partitions ------------------------------------------------------------------------------


def assignment(of: Shape, seed: int, index: int) -> dict[int, Replicas]:
    """The replicas of each partition of a topic, where Kafka would have put them."""
    place = _place(of, seed, index)
    return {p: place(p) for p in range(partition_count(of, seed, index))}


def replicas_of(of: Shape, seed: int, index: int, partition: int) -> Replicas:
    """`assignment` of one partition."""
    return _place(of, seed, index)(partition)


def _place(of: Shape, seed: int, index: int) -> Callable[[int], Replicas]:
    there = of.brokers
    if of.newcomers and index < of.topics * NEWCOMERS_MISSED:
        there -= of.newcomers
    factor = replication_factor(of, seed, index)
    chance = draw(seed, PLACEMENT, index)
    start, shift = (chance & 0xFFFFFFFF) % there, (chance >> 32) % there
    shifts = max(1, there - 1)
    by_turn: dict[int, Sequence[Replicas]] = {}

    def place(partition: int) -> Replicas:
        turn = partition // there
        if turn not in by_turn:
            by_turn[turn] = _placed(of, there, factor, (shift + turn) % shifts)
        return by_turn[turn][(partition + start) % there]

    return place


@lru_cache(maxsize=1 << 12)
def _placed(of: Shape, there: int, factor: int, shift: int) -> Sequence[Replicas]:
    """Kafka's rule, by first broker. It repeats itself: few places for many rows, made once."""
    placed = assign_replicas(brokers(of, 0)[:there], there, factor, start_index=0, shift=shift)
    return tuple(placed.values())


def leadership(
    of: Shape, seed: int, index: int, assigned: Mapping[int, Replicas] | None = None
) -> dict[int, Leadership]:
    """Who leads each partition of a topic, and who is in sync."""
    if assigned is None:
        assigned = assignment(of, seed, index)
    if not (of.isr_gaps or of.leader_skew or of.leader_epochs):
        return {p: Leadership(ids[0], ids, 0, 1, 0) for p, ids in assigned.items()}
    word = draw(seed, LEADERSHIP, index)
    return {p: _led(of, further(word, p), replicas) for p, replicas in assigned.items()}


def restarted_last(of: Shape) -> BrokerId:
    """This broker and those above it have just been restarted."""
    return of.brokers - max(1, of.brokers // 10) + 1


def _led(of: Shape, chance: int, replicas: Replicas) -> Leadership:
    leader, isr = replicas[0], replicas
    if len(replicas) > 1:
        moved = (chance & 0xFFFFF) < of.leader_skew * 0x100000
        if moved and leader >= restarted_last(of):
            leader = replicas[1]
        if (chance >> 20 & 0xFFFFF) < of.isr_gaps * 0x100000:
            followers = [b for b in replicas if b != leader]
            alone = (chance >> 40 & 0xFFF) < ALONE_SHARE * 0x1000
            gone = followers if alone else [followers[(chance >> 52) % len(followers)]]
            isr = tuple(b for b in replicas if b not in gone)
    epoch = 0
    if of.leader_epochs:
        epoch = int(
            math.log(unit(mixed(chance))) / math.log(of.leader_epochs / (1 + of.leader_epochs))
        )
    return Leadership(leader, isr, epoch, 1, 0)
