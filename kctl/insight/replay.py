"""Replay: what a controller was told, told to the core again.

The core is deterministic: a journal that holds every event and every reply leads it to the state
that the controller had. A reply to something that the core does not ask for now means that the core
has changed since, or that the journal is not whole; it is reported with its place.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import msgspec

from kctl.logic.dispatch import handle
from kctl.messages.driver import Finished, Procedure, step
from kctl.messages.effects import Effect
from kctl.messages.events import Event
from kctl.messages.outbox import Outbox, Story
from kctl.model.cluster import Node
from kctl.model.digest import digest
from kctl.runtime.encoding import unpack
from kctl.runtime.journal import FORMAT


class ReplayError(Exception):
    """The journal cannot be replayed: where, and why."""


@attrs.frozen
class Record:
    """One line of a journal."""

    file: str
    line: int
    kind: str
    at_ms: int
    value: Any
    effect: str = ""
    started: bool = False
    standing_by: bool = False

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"


class _Line(msgspec.Struct):
    kind: str
    at: int
    value: Any
    format: str = FORMAT
    effect: str = ""
    started: str = ""
    standing_by: str = ""


@attrs.define
class Replay:
    node: Node | None = None
    events: int = 0
    """Handled so far; a group that was taken together counts as one."""
    effects: int = 0
    skipped: int = 0
    """Records before the first moment from which the journal tells everything."""
    unfinished: str | None = None
    """The event that the journal ends in the middle of."""
    last_ms: int = 0
    stories: list[Story] = attrs.field(factory=list)
    """Of the last event."""
    _procedure: Procedure | None = None
    _outbox: Outbox = attrs.field(factory=Outbox)
    _wanted: Effect[Any] | None = None
    _raised: Exception | None = None

    @property
    def state_hash(self) -> str:
        return digest(None if self.node is None else self.node.cluster)

    def run(self, records: Iterable[Record], until: int | None = None) -> None:
        """All records, or those of the first `until` events."""
        for record in records:
            if record.kind == "event" and until is not None and self.events >= until:
                break
            self.take(record)
        if self._procedure is not None:
            self._procedure.close()  # `unfinished` says so
            self._procedure = None

    def take(self, record: Record) -> None:
        if record.kind == "settings":
            self._on_settings(record)
        elif self.node is None:
            self.skipped += 1
        elif record.kind == "event":
            self._on_event(record, self.node)
        elif record.kind == "reply":
            self._on_reply(record)
        elif record.kind == "over":
            self._on_over(record, self.node)
        else:
            raise ReplayError(f"{record.place}: there is no record of kind {record.kind!r}")
        self.last_ms = record.at_ms

    def _on_settings(self, record: Record) -> None:
        if record.started or (self.node is None and record.standing_by):
            self._close()
            self.node = Node(record.value)

    def _on_event(self, record: Record, node: Node) -> None:
        self._expect_nothing(record)
        events: tuple[Event, ...] = record.value
        self.events += 1
        self.unfinished = type(events[0]).__name__
        self.stories = []
        self._outbox = Outbox()
        self._procedure = handle(node, events, self._outbox)
        self._advance(None)

    def _on_reply(self, record: Record) -> None:
        if self._wanted is None or type(self._wanted).__name__ != record.effect:
            now = "nothing" if self._wanted is None else type(self._wanted).__name__
            raise ReplayError(
                f"{record.place}: a reply to {record.effect}, but {self._where()} asks for {now};"
                " was the journal written by another version of kctl?"
            )
        self.effects += 1
        self._flush()
        self._advance(record.value)

    def _on_over(self, record: Record, node: Node) -> None:
        if self._raised is not None and type(self._raised).__name__ != record.value:
            raise ReplayError(
                f"{record.place}: the term ended by {record.value}, but {self._where()} failed with"
                f" {self._raised!r}"
            )
        self._close()
        self._flush()
        node.cluster = None
        node.active_id = None

    def _expect_nothing(self, record: Record) -> None:
        if self._raised is not None:
            raise ReplayError(
                f"{record.place}: {self._where()} failed with {self._raised!r}, the journal knows"
                " nothing of that"
            ) from self._raised
        if self._wanted is not None:
            raise ReplayError(
                f"{record.place}: {self._where()} asks for {type(self._wanted).__name__}, the"
                " journal has no reply to it"
            )

    def _advance(self, reply: object) -> None:
        assert self._procedure is not None
        try:
            wanted = step(self._procedure, reply)
        except Exception as error:  # noqa: BLE001 the live controller may have met it too
            self._wanted, self._raised = None, error
            return
        if isinstance(wanted, Finished):
            self._close()
            self._flush()
        else:
            self._wanted = wanted

    def _flush(self) -> None:
        """Whoever waits outside is not there; what the core has sealed is done with."""
        self.stories += self._outbox.stories
        for left in (
            self._outbox.dispatches,
            self._outbox.timers,
            self._outbox.events,
            self._outbox.answers,
            self._outbox.stories,
        ):
            left.clear()

    def _close(self) -> None:
        if self._procedure is not None:
            self._procedure.close()
        self._procedure = self._wanted = self._raised = None
        self.unfinished = None

    def _where(self) -> str:
        return f"{self.unfinished} (event {self.events})" if self.unfinished else "no event"


def read_journal(path: Path) -> Iterator[Record]:
    """The records of one file, or of all files of a journal in their order."""
    files = [path] if path.is_file() else sorted(path.parent.glob(f"{path.name}.[0-9]*"))
    if not files:
        raise FileNotFoundError(f"there is no journal {path} and no {path}.000001")
    found_any = False
    for file in files:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                record = _decode(file, number, line)
                if record is None:
                    return  # cut off while it was written
                found_any = True
                yield record
    if not found_any:
        raise ReplayError(f"{files[0]} is empty: nothing was recorded, or it is not flushed yet")


_decode_line = msgspec.json.Decoder(_Line).decode


def _decode(file: Path, number: int, line: bytes) -> Record | None:
    place = f"{file}:{number}"
    try:
        found = _decode_line(line)
    except ValueError as error:
        if number == 1:
            raise ReplayError(f"{file} is not a journal of kctl: {error}") from None
        if not line.endswith(b"\n"):
            return None
        raise ReplayError(f"{place}: not a record: {error}") from None
    if found.format != FORMAT:
        raise ReplayError(
            f"{place}: a journal of format {found.format}, written by another version of kctl; "
            f"this one reads format {FORMAT}"
        )
    try:
        value = unpack(found.value)
    except (ValueError, TypeError, LookupError) as error:
        raise ReplayError(
            f"{place}: this version of kctl does not know what is recorded there ({error!r}); "
            "replay it with the version that wrote it"
        ) from None
    return Record(
        str(file),
        number,
        found.kind,
        found.at,
        value,
        found.effect,
        started=found.started == "true",
        standing_by=found.standing_by == "true",
    )
