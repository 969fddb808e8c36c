"""Arrays of partition states, as LeaderAndIsr and UpdateMetadata carry them, straight from rows.

One partition costs one call of a `struct` packer: the parts of a state that many partitions share
(the ISR, and everything that follows from the assignment) are encoded once and put in whole.
Rows without leadership are left out: brokers have nothing to do with them yet.
"""

import struct
from collections.abc import Callable, Generator, Mapping
from itertools import islice

import attrs

from kctl.model.names import TopicId, TopicPartition
from kctl.model.rows import Assignment, Leadership, Replicas, Row
from kctl.wire.primitives import (
    PackedInts,
    topic_id_bytes,
    uvarint,
)

ROWS_A_STEP = 4_000
"""Some milliseconds of work."""

LEADER_DURING_DELETE = -2
"""Tells brokers to forget the partition."""

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_INTS = PackedInts("i")


def count(n: int, *, flexible: bool) -> bytes:
    return uvarint(n + 1) if flexible else _INT.pack(n)


def broker_ids(ids: Replicas, *, flexible: bool) -> bytes:
    return count(len(ids), flexible=flexible) + _INTS[len(ids)].pack(*ids)


def string(text: str | None, *, flexible: bool) -> bytes:
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    raw = text.encode()
    if flexible:
        return uvarint(len(raw) + 1) + raw
    return _SHORT.pack(len(raw)) + raw


_Packer = Callable[[int, int, int, int, bytes, int, bytes], bytes]
_Entry = tuple[_Packer, bytes, bytes]
"""A packer for (partition, controller epoch, leader, leader epoch, isr, zk version, tail), and the
encoded isr and tail that its sizes are made for."""


class Entries:
    """What partitions share, by ISR: all of them have one assignment (by identity) and one tail."""

    _packers: dict[tuple[int, int], _Packer] = {}

    def __init__(self, tail: Callable[[Assignment], bytes], *, flexible: bool) -> None:
        self._tail = tail
        self._flexible = flexible
        self.by_assignment: dict[int, dict[Replicas, _Entry]] = {}

    def add(self, assignment: Assignment, isr: Replicas) -> _Entry:
        tail = self._tail(assignment)
        ids = broker_ids(isr, flexible=self._flexible)
        sizes = len(ids), len(tail)
        packer = self._packers.get(sizes)
        if packer is None:
            packer = struct.Struct(f">iiii{sizes[0]}si{sizes[1]}s").pack
            self._packers[sizes] = packer
        entry = packer, ids, tail
        self.by_assignment.setdefault(id(assignment), {})[isr] = entry
        return entry


@attrs.frozen
class Form:
    """How the states of one request are written."""

    flexible: bool
    grouped: bool
    """By topic; else each state is led by its topic's name, the form of old versions."""
    topic_ids: Mapping[str, TopicId | None] | None
    """To be told with the topics, or None."""
    deleted: Mapping[str, None]
    plain: Entries
    """For the rows that have nothing special about them."""
    special: Callable[[TopicPartition, Leadership], Entries]
    all_special: bool
    """Ask `special` for each row, not only for those whose leader is recovering."""

    def topic_head(self, topic: str, end: bytes) -> bytes:
        """What comes between two groups of states: the end of the last one, a name, an id."""
        raw = topic.encode()
        length = uvarint(len(raw) + 1) if self.flexible else _SHORT.pack(len(raw))
        if self.topic_ids is None:
            return b"%b%b%b" % (end, length, raw)
        return b"%b%b%b%b" % (end, length, raw, topic_id_bytes(self.topic_ids.get(topic)))


def _count_without_one(parts: int) -> bytes:
    return _INT.pack(parts - 1)


class _Interleaved(Exception):
    """A topic came up again after another one: the rows must be ordered first."""


def states(rows: Mapping[TopicPartition, Row], form: Form) -> Generator[None, None, list[bytes]]:
    """The array of states (grouped: of topics), in parts."""
    try:
        return (yield from _states_in_order(rows, form))
    except _Interleaved:
        rows = yield from _ordered_by_topic(rows)
        return (yield from _states_in_order(rows, form))


def _ordered_by_topic(
    rows: Mapping[TopicPartition, Row],
) -> Generator[None, None, Mapping[TopicPartition, Row]]:
    by_topic: dict[str, dict[TopicPartition, Row]] = {}
    items = iter(rows.items())
    for _ in range(0, len(rows), ROWS_A_STEP):
        for tp, row in islice(items, ROWS_A_STEP):
            if row.leadership is not None:
                by_topic.setdefault(tp.topic, {})[tp] = row
        yield
    ordered: dict[TopicPartition, Row] = {}
    for of_topic in by_topic.values():
        ordered.update(of_topic)
    return ordered


def _states_in_order(
    rows: Mapping[TopicPartition, Row], form: Form
) -> Generator[None, None, list[bytes]]:
    parts = [b""]  # the count of all comes to stand here
    add = parts.append
    grouped, deleted, flexible = form.grouped, form.deleted, form.flexible
    end = b"\0" if flexible else b""
    # The count of states, from that of the parts that begin with it.
    counted = uvarint if flexible else _count_without_one
    all_special, special = form.all_special, form.special
    plain = form.plain.by_assignment
    topics: dict[str, None] = {}
    topic: str | None = None
    name, count_at, being_deleted = b"", 0, False
    items = iter(rows.items())
    for _ in range(0, len(rows), ROWS_A_STEP):
        for tp, row in islice(items, ROWS_A_STEP):
            led = row.leadership
            if led is None:
                continue
            if tp[0] is not topic:
                if not grouped:
                    name = string(tp[0], flexible=False)
                elif tp[0] not in topics:
                    topics[tp[0]] = None
                    if count_at:
                        parts[count_at] = counted(len(parts) - count_at)
                    parts += (form.topic_head(tp[0], end if count_at else b""), b"")
                    count_at = len(parts) - 1
                elif tp[0] != topic:
                    raise _Interleaved
                topic = tp[0]
                being_deleted = topic in deleted
            try:
                if all_special or led.recovering:
                    entries = special(tp, led).by_assignment
                    pack, ids, tail = entries[id(row.assignment)][led.isr]
                else:
                    pack, ids, tail = plain[id(row.assignment)][led.isr]
            except KeyError:
                pack, ids, tail = special(tp, led).add(row.assignment, led.isr)
            if not grouped:
                add(name)
            if being_deleted:
                add(pack(tp[1], led.controller_epoch, LEADER_DURING_DELETE, 0, ids, 0, tail))
                continue
            add(
                pack(
                    tp[1],
                    led.controller_epoch,
                    led.leader,
                    led.leader_epoch,
                    ids,
                    led.zk_version,
                    tail,
                )
            )
        yield
    if grouped:
        if count_at:
            parts[count_at] = counted(len(parts) - count_at)
            add(end)
        parts[0] = count(len(topics), flexible=form.flexible)
    else:
        parts[0] = _INT.pack(len(parts) // 2)
    return parts
