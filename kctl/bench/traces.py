"""What happens to a cluster: traces of events, each a pure function of (shape, seed, sequence).

Sizes and paces are assumptions, chosen so that a trace says something about clusters of its shape:

* `broker_deaths`: one broker in ten stops without a word, one every ten seconds, and comes back
  after thirty;
* `rolling_restart`: every broker once, one at a time, gone for five seconds of twenty;
* `rack_loss`: all brokers of one rack stop within a millisecond each, and come back a second apart;
* `topic_storm`: topics are created, one in twenty of what is there, 50 a second, one in ten large;
* `reassignment_wave`: one partition in a hundred gets other replicas, a hundred at a time;
* `isr_flapping`: one partition in a hundred loses its last replica from the ISR, and gets it back
  after two seconds;
* `deletions`: one topic in twenty is deleted, ten a second.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal

import attrs

from kctl.bench.draws import draw, shuffled
from kctl.bench.shapes import (
    Shape,
    brokers,
    leadership,
    partition_count,
    replicas_of,
    replication_factor,
    topic_name,
)
from kctl.logic.placement import assign_replicas
from kctl.model.names import BrokerId
from kctl.model.rows import Replicas

Kind = Literal[
    "broker_stop", "broker_start", "create_topic", "delete_topic", "reassign", "isr_change"
]

# What draws are for; `shapes` has those below 100.
WHICH_BROKER, WHICH_RACK, WHICH_TOPIC, WHICH_PARTITION, NEW_PLACE, NEW_SIZE = range(100, 106)

STORM_SMALL: Final = 6
STORM_LARGE: Final = 50


@attrs.frozen
class Happening:
    """One row of the table `events`."""

    trace: str
    sequence: int
    at_ms: int
    kind: Kind
    broker: BrokerId | None = None
    topic: str | None = None
    partition: int | None = None
    partitions: int | None = None
    replicas: Replicas | None = None


@attrs.frozen
class _Trace:
    length: Callable[[Shape, int], int]
    at: Callable[[Shape, int, int], Happening]


def trace_length(of: Shape, seed: int, name: str) -> int:
    return TRACES[name].length(of, seed)


def happening(of: Shape, seed: int, name: str, sequence: int) -> Happening:
    return TRACES[name].at(of, seed, sequence)


def trace(of: Shape, seed: int, name: str) -> Iterator[Happening]:
    """In the order of their sequence; `at_ms` never falls."""
    return (happening(of, seed, name, n) for n in range(trace_length(of, seed, name)))


# -- brokers ---------------------------------------------------------------------------------


def _deaths(of: Shape, _: int) -> int:
    return 2 * max(1, of.brokers // 10)


def _death(of: Shape, seed: int, sequence: int) -> Happening:
    # Stops at 0, 10, 20 s, starts at 30, 40, 50 s: sorted by time, they take turns from the fourth.
    count = _deaths(of, seed) // 2
    times = sorted(
        [(10_000 * n, 0, n) for n in range(count)]
        + [(10_000 * n + 30_000, 1, n) for n in range(count)]
    )
    at_ms, back, which = times[sequence]
    broker = 1 + shuffled(which, of.brokers, seed, WHICH_BROKER)
    return Happening(
        "broker_deaths", sequence, at_ms, "broker_start" if back else "broker_stop", broker
    )


def _restart(_: Shape, __: int, sequence: int) -> Happening:
    number, back = divmod(sequence, 2)
    at_ms = 20_000 * number + 5_000 * back
    kind: Kind = "broker_start" if back else "broker_stop"
    return Happening("rolling_restart", sequence, at_ms, kind, 1 + number)


def _lost_rack(of: Shape, seed: int) -> list[BrokerId]:
    if not of.racks:
        return []
    rack = f"rack-{draw(seed, WHICH_RACK) % of.racks}"
    return [broker.id for broker in brokers(of, seed) if broker.rack == rack]


def _rack_loss(of: Shape, seed: int, sequence: int) -> Happening:
    lost = _lost_rack(of, seed)
    back, which = divmod(sequence, len(lost))
    at_ms = 60_000 + 1_000 * which if back else which
    kind: Kind = "broker_start" if back else "broker_stop"
    return Happening("rack_loss", sequence, at_ms, kind, lost[which])


# -- topics ----------------------------------------------------------------------------------


def _one_in_twenty(of: Shape, _: int) -> int:
    return max(1, of.topics // 20)


def _creation(_: Shape, seed: int, sequence: int) -> Happening:
    large = draw(seed, NEW_SIZE, sequence) % 10 == 0
    return Happening(
        "topic_storm",
        sequence,
        20 * sequence,
        "create_topic",
        topic=f"storm-{sequence:06}",
        partitions=STORM_LARGE if large else STORM_SMALL,
    )


def _deletion(of: Shape, seed: int, sequence: int) -> Happening:
    index = shuffled(sequence, of.topics, seed, WHICH_TOPIC)
    return Happening(
        "deletions", sequence, 100 * sequence, "delete_topic", topic=topic_name(of, index)
    )


# -- partitions ------------------------------------------------------------------------------


def _one_partition_in_hundred(of: Shape, _: int) -> int:
    """One of a topic at most, so that none is named twice."""
    return min(of.topics, max(1, of.partitions // 100))


def _some_partition(of: Shape, seed: int, number: int) -> tuple[int, int]:
    index = shuffled(number, of.topics, seed, WHICH_TOPIC)
    return index, draw(seed, WHICH_PARTITION, number) % partition_count(of, seed, index)


def _reassignment(of: Shape, seed: int, sequence: int) -> Happening:
    index, partition = _some_partition(of, seed, sequence)
    chance = draw(seed, NEW_PLACE, sequence)
    target = assign_replicas(
        brokers(of, seed),
        1,
        replication_factor(of, seed, index),
        start_index=(chance & 0xFFFFFFFF) % of.brokers,
        shift=(chance >> 32) % of.brokers,
    )[0]
    return Happening(
        "reassignment_wave",
        sequence,
        5_000 * (sequence // 100),
        "reassign",
        topic=topic_name(of, index),
        partition=partition,
        replicas=target,
    )


def _flap(of: Shape, seed: int, sequence: int) -> Happening:
    """Two thousand partitions a second, then the same again as they come back two seconds later."""
    count = _one_partition_in_hundred(of, seed)
    back, number = divmod(sequence, count)
    index, partition = _some_partition(of, seed, number)
    assigned = {partition: replicas_of(of, seed, index, partition)}
    led = leadership(of, seed, index, assigned)[partition]
    last = next((b for b in reversed(led.isr) if b != led.leader), None)
    isr = led.isr if back else tuple(b for b in led.isr if b != last)
    at_ms = number // 2 if not back else (count - 1) // 2 + 2_000 + number // 2
    return Happening(
        "isr_flapping",
        sequence,
        at_ms,
        "isr_change",
        broker=led.leader,
        topic=topic_name(of, index),
        partition=partition,
        replicas=isr,
    )


TRACES: Final[Mapping[str, _Trace]] = {
    "broker_deaths": _Trace(_deaths, _death),
    "rolling_restart": _Trace(lambda of, _: 2 * of.brokers, _restart),
    "rack_loss": _Trace(lambda of, seed: 2 * len(_lost_rack(of, seed)), _rack_loss),
    "topic_storm": _Trace(_one_in_twenty, _creation),
    "reassignment_wave": _Trace(_one_partition_in_hundred, _reassignment),
    "isr_flapping": _Trace(lambda of, seed: 2 * _one_partition_in_hundred(of, seed), _flap),
    "deletions": _Trace(_one_in_twenty, _deletion),
}
"""By name, in the order in which they are generated."""
