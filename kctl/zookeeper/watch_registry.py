"""The watches that are armed at the server, so that they can be armed again elsewhere.

Paths are the server's (with the chroot). The registry changes only from replies and events, in the
order of the wire, so at any loss it holds exactly what the lost server had armed.
"""

from collections.abc import Iterator
from typing import Final

from kctl.zookeeper.wire import (
    EventType,
    Op,
    WatchEvent,
    WatchKind,
    WatchMode,
    pack_string,
    set_watches_body,
)

CHUNK_MAX_BYTES: Final = 128 << 10
"""A server drops a connection over a request longer than its jute.maxbuffer."""
_FIXED_BYTES: Final = 8 + 5 * 4 + 8


class WatchRegistry:
    """Armed watches by kind; dicts stand for ordered sets."""

    def __init__(self) -> None:
        self.data: dict[str, None] = {}
        self.exists: dict[str, None] = {}
        self.children: dict[str, None] = {}
        self.persistent: dict[str, None] = {}
        self.recursive: dict[str, None] = {}

    def __len__(self) -> int:
        return sum(map(len, self._kinds()))

    def _kinds(self) -> tuple[dict[str, None], ...]:
        # The order of the lists in SetWatches2; SetWatches has the first three.
        return (self.data, self.exists, self.children, self.persistent, self.recursive)

    def added(self, path: str, mode: WatchMode) -> None:
        """addWatch succeeded."""
        watches = self.persistent if mode is WatchMode.PERSISTENT else self.recursive
        watches[path] = None

    def removed(self, path: str, kind: WatchKind) -> None:
        """removeWatches succeeded."""
        if kind in {WatchKind.DATA, WatchKind.ANY}:
            self.data.pop(path, None)
            self.exists.pop(path, None)
        if kind in {WatchKind.CHILDREN, WatchKind.ANY}:
            self.children.pop(path, None)
        if kind is WatchKind.ANY:
            self.persistent.pop(path, None)
            self.recursive.pop(path, None)

    def fired(self, event: WatchEvent) -> None:
        """The server reported a change and with that forgot the one-shot watches for it."""
        path = event.path
        match event.type:
            case EventType.CREATED | EventType.DATA_CHANGED:
                self.data.pop(path, None)
                self.exists.pop(path, None)
            case EventType.DELETED:
                self.data.pop(path, None)
                self.exists.pop(path, None)
                self.children.pop(path, None)
            case EventType.CHILDREN_CHANGED:
                self.children.pop(path, None)
            case _:
                pass

    def set_watches(self, last_zxid: int) -> Iterator[tuple[Op, bytes]]:
        """The requests that arm everything again, each at most `CHUNK_MAX_BYTES` long.

        A change after ``last_zxid`` to something watched once is reported at once; persistent
        watches are only armed again, so what they missed must be read. What changes here between
        two chunks was armed by an earlier one.
        """
        # Servers before 3.6 know no persistent watches, and no SetWatches2.
        kinds = 5 if self.persistent or self.recursive else 3
        opcode = Op.SET_WATCHES2 if kinds == 5 else Op.SET_WATCHES
        lists: list[list[bytes]] = [[] for _ in range(kinds)]
        size = _FIXED_BYTES
        for index, paths in enumerate([list(kind) for kind in self._kinds()[:kinds]]):
            for path in paths:
                packed = pack_string(path)
                if size + len(packed) > CHUNK_MAX_BYTES and size > _FIXED_BYTES:
                    yield opcode, set_watches_body(last_zxid, lists)
                    lists = [[] for _ in range(kinds)]
                    size = _FIXED_BYTES
                lists[index].append(packed)
                size += len(packed)
        if size > _FIXED_BYTES:
            yield opcode, set_watches_body(last_zxid, lists)
