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
from kctl.model.rows import Assignment, Replicas, Row
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
_Entry = tuple[Replicas, object, bool, _Packer, bytes, bytes]
"""An ISR, a mark, whether recovering; a packer for (partition, controller epoch, leader, leader epoch,
isr, zk version, tail); the encoded isr and tail that its sizes are made for."""

NO_MARK = None


class Entries:
    """What partitions share that have one assignment, one ISR, one mark and one recovery state."""

    _packers: dict[tuple[int, int], _Packer] = {}

    def __init__(self, form: "Form") -> None:
        self._tail = form.tail
        self._flexible = form.flexible
        self._all: dict[tuple[int, Replicas, object, bool], _Entry] = {}
        self.latest: dict[int, _Entry] = {}
        """By assignment (its identity), the one that it came with last: mostly the next one too."""

    def find(self, assignment: Assignment, isr: Replicas, mark: object, recovering: bool) -> _Entry:
        key = id(assignment), isr, mark, recovering
        entry = self._all.get(key)
        if entry is None:
            tail = self._tail(assignment, mark, recovering)
            ids = broker_ids(isr, flexible=self._flexible)
            sizes = len(ids), len(tail)
            packer = self._packers.get(sizes)
            if packer is None:
                packer = struct.Struct(f">iiii{sizes[0]}si{sizes[1]}s").pack
                self._packers[sizes] = packer
            entry = self._all[key] = isr, mark, recovering, packer, ids, tail
        self.latest[id(assignment)] = entry
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
    marks: Mapping[TopicPartition, object]
    """What is special about some of the rows."""
    tail: Callable[[Assignment, object, bool], bytes]
    """What follows the version of the state, by assignment, mark, and whether it is recovering."""

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


def _states_in_order(  # noqa: PLR0915 the hottest loop of all: no calls
    rows: Mapping[TopicPartition, Row], form: Form
) -> Generator[None, None, list[bytes]]:
    parts = [b""]  # the count of all comes to stand here
    add = parts.append
    grouped, deleted, flexible = form.grouped, form.deleted, form.flexible
    end = b"\0" if flexible else b""
    # The count of states, from that of the parts that begin with it.
    counted = uvarint if flexible else _count_without_one
    entries = Entries(form)
    latest, find = entries.latest, entries.find
    mark_of = form.marks.get if form.marks else None
    mark: object = NO_MARK
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
            assignment, isr, recovering = row.assignment, led.isr, led.recovering
            if mark_of is not None:
                mark = mark_of(tp, NO_MARK)
            try:
                same_isr, same_mark, same, pack, ids, tail = latest[id(assignment)]
            except KeyError:
                *_, pack, ids, tail = find(assignment, isr, mark, recovering)
            else:
                if same_isr is not isr or same_mark is not mark or same is not recovering:
                    *_, pack, ids, tail = find(assignment, isr, mark, recovering)
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
