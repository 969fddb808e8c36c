"""The trace: what happened, as compact lines, hashed as they come.

Two runs of one seed give the same hash in any process; a run that does not is not deterministic.
The lines are kept so that a violation can be told as a story.
"""

import hashlib
from collections import deque

KEPT_LINES = 20_000
STORY_LINES = 40

Line = tuple[int, str, str, str]
"""Time in milliseconds, who, what, and about which key (a partition, topic, broker or path)."""


class Trace:
    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._lines: deque[Line] = deque(maxlen=KEPT_LINES)
        self.count = 0

    def add(self, time: int, who: str, what: str, key: str = "") -> None:
        line = (time, who, what, key)
        self._lines.append(line)
        self._hash.update(repr(line).encode())
        self.count += 1

    def digest(self) -> str:
        return self._hash.hexdigest()

    def story(self, *keys: str) -> tuple[str, ...]:
        """The last lines about any of these keys, or about everybody."""
        chosen = [line for line in self._lines if concerns(line, keys)]
        return tuple(
            f"{time / 1000:9.3f}s  {who:<12} {what}" + (f"  [{key}]" if key else "")
            for time, who, what, key in chosen[-STORY_LINES:]
        )


def concerns(line: Line, keys: tuple[str, ...]) -> bool:
    _, _, what, key = line
    return not keys or key == "*" or any(k and (k in key or k in what) for k in keys)
