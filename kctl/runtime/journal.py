"""The journal: what the core was told, so that it can be told again.

A ring in memory keeps the last events for a fault report, without the bulk of the replies. A file,
when asked for, keeps everything: the settings, each event, the reply to each effect. The core is
deterministic, so running a file through it arrives at the same state. Files are bounded: a full one
is closed and the next begun, and the oldest are removed. A term that begins in a later file can be
replayed from there, because a term reads all that it knows.
"""

import time
from collections import deque
from collections.abc import Sized
from pathlib import Path
from typing import IO, Any

import attrs
import msgspec

from kctl.messages.effects import Effect
from kctl.messages.events import Event
from kctl.messages.outbox import Story
from kctl.model.cluster import Node
from kctl.runtime.encoding import pack

FORMAT = "1"
"""Raised when a reader of the old would misunderstand the new."""
RING = 200
SHORT = 3
"""A collection of so many is written out in the ring."""
FILE_MAX_BYTES = 256 << 20
FILES_MAX = 4


class Journal:
    def __init__(
        self,
        node: Node,
        file: str = "",
        *,
        file_max_bytes: int = FILE_MAX_BYTES,
        files_max: int = FILES_MAX,
    ) -> None:
        self._ring: deque[str] = deque(maxlen=RING)
        self._node = node
        self._path = Path(file) if file else None
        self._file_max_bytes = file_max_bytes
        self._files_max = files_max
        self._file: IO[bytes] | None = None
        self._written = 0
        self._number = 0
        self._begun = False
        self._encode = msgspec.json.Encoder().encode
        if self._path is not None:
            self._begin_file()

    def event(self, events: tuple[Event, ...]) -> None:
        self._ring.append(_short(events[0]) if len(events) == 1 else f"{len(events)} events")
        if self._file is not None:
            # Only between two events, so that no handler is torn apart.
            if self._written >= self._file_max_bytes:
                self._begin_file()
            # What was handled before this can be read now, and survives a crash of the process.
            self._file.flush()
            self._write("event", events)

    def reply(self, effect: Effect[Any], reply: object) -> None:
        self._ring.append(f"  {type(effect).__name__}")
        if self._file is not None:
            self._write("reply", reply, effect=type(effect).__name__)

    def over(self, reason: str) -> None:
        """The handler under way ended here, without a reply."""
        self._ring.append(f"  over: {reason}")
        if self._file is not None:
            self._write("over", reason)
            self._file.flush()

    def story(self, story: Story) -> None:
        self._ring.append(f"  {story.what}: {story.key or len(story.changes)} ({story.why})")

    def tail(self) -> list[str]:
        return list(self._ring)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, kind: str, value: object, **more: str) -> None:
        assert self._file is not None
        at = time.time_ns() // 1_000_000
        line = self._encode({"kind": kind, "at": at, **more, "value": pack(value)})
        self._written += self._file.write(line) + self._file.write(b"\n")

    def _begin_file(self) -> None:
        assert self._path is not None
        self.close()
        while True:
            self._number += 1
            path = self._path.with_name(f"{self._path.name}.{self._number:06d}")
            try:
                self._file = path.open("xb")
                break
            except FileExistsError:
                continue
        self._written = 0
        # A file that begins while this node stands by can be replayed without those before it.
        standing_by = "true" if self._node.cluster is None else "false"
        about = {"format": FORMAT, "standing_by": standing_by}
        if not self._begun:
            # Files of an earlier process may lie before this one.
            about["started"] = "true"
            self._begun = True
        self._write("settings", self._node.settings, **about)
        kept = sorted(self._path.parent.glob(f"{self._path.name}.[0-9]*"))
        for old in kept[: -self._files_max]:
            old.unlink()


def _short(event: Event) -> str:
    """What is long is counted, not written out: there may be thousands of partitions in it."""
    values = ((field.name, getattr(event, field.name)) for field in attrs.fields(type(event)))
    return f"{type(event).__name__}({', '.join(f'{n}={_value(v)}' for n, v in values)})"


def _value(value: object) -> str:
    if isinstance(value, Sized) and not isinstance(value, str | bytes) and len(value) > SHORT:
        return f"<{len(value)}>"
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
