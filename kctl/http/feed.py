"""`/events`: what happens, as server-sent events.

What happens within a tenth of a second goes out in one piece, written down once for all readers
and of bounded size; what did not fit is counted. A reader that does not keep up loses pieces,
never holds up the controller, and is told so: it should look at `/state` again. With no reader
nothing is written down.

::

    hello    the controller, on connecting           stories   what changed and why
    handled  events with their durations             cells     partitions that look different now
    pulse    every second: queue, lag, counts        brokers   when one comes or goes
    missed   pieces were lost
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio
import msgspec

from kctl.http.cells import cell
from kctl.http.census import Census
from kctl.http.state import Views, brokers
from kctl.http.stories import Told
from kctl.messages.outbox import Story
from kctl.model.cluster import ClusterState
from kctl.model.names import TopicPartition
from kctl.runtime.meters import Handled, Meters
from kctl.runtime.state_change_log import describe

INTERVAL_S = 0.1
PULSE_S = 1.0
HANDLED_MAX = 40
STORIES_MAX = 40
CHANGES_TOLD = 3
"""Partitions named in a story; the others are counted."""
CELLS_TOLD = 2_000
PIECES_MAX = 50
"""That wait for a reader."""
READERS_MAX = 100

Piece = bytes


class Crowded(Exception):
    """There are as many readers as can be served."""


def piece(event: str, content: object) -> Piece:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), msgspec.json.encode(content))


class Reader:
    def __init__(self) -> None:
        self._pieces: asyncio.Queue[Piece] = asyncio.Queue(PIECES_MAX)
        self.missed = 0

    def put(self, content: Piece) -> None:
        if self._pieces.full():
            self._pieces.get_nowait()
            self.missed += 1
        self._pieces.put_nowait(content)

    async def next(self) -> Piece:
        """Nothing: that was all."""
        content = await self._pieces.get()
        if self.missed:
            content = piece("missed", {"pieces": self.missed}) + content
            self.missed = 0
        return content


class Feed:
    def __init__(
        self,
        state: Callable[[], ClusterState | None],
        views: Views,
        census: Census,
        meters: Meters,
    ) -> None:
        self._state = state
        self._views = views
        self._census = census
        self._meters = meters
        self._readers: dict[Reader, None] = {}
        self._handled: list[Handled] = []
        self._handled_more = 0
        self._stories: list[Told] = []
        self._stories_more = 0
        self._changed: dict[TopicPartition, None] = {}
        self._changed_more = False
        self._something = asyncio.Event()
        self._lag_seen = 0

    # -- what happens -------------------------------------------------------------------------

    def handled(self, done: Handled) -> None:
        if not self._readers:
            return
        if len(self._handled) < HANDLED_MAX:
            self._handled.append(done)
        else:
            self._handled_more += 1
        self._something.set()

    def told(self, told: Told) -> None:
        if not self._readers:
            return
        if len(self._stories) < STORIES_MAX:
            self._stories.append(told)
        else:
            self._stories_more += 1
        self._note_changed(told.story)
        self._something.set()

    def _note_changed(self, story: Story) -> None:
        room = CELLS_TOLD - len(self._changed)
        if len(story.changes) > room:
            self._changed_more = True
            self._changed.clear()
        elif not self._changed_more:
            self._changed.update(dict.fromkeys(story.changes))

    # -- readers ------------------------------------------------------------------------------

    @contextmanager
    def reader(self) -> Iterator[Reader]:
        if len(self._readers) >= READERS_MAX:
            raise Crowded(f"{READERS_MAX} readers are served already")
        reader = Reader()
        reader.put(piece("hello", self._views.controller()))
        self._readers[reader] = None
        try:
            yield reader
        finally:
            del self._readers[reader]

    def close(self) -> None:
        """The streams end; browsers come back when there is a server again."""
        self._send(b"")

    @property
    def readers(self) -> int:
        return len(self._readers)

    def _send(self, content: Piece) -> None:
        for reader in self._readers:
            reader.put(content)

    # -- for ever -----------------------------------------------------------------------------

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pass_on)
            tasks.start_soon(self._pulse)
            tasks.start_soon(self._count)

    async def _pass_on(self) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            if self._readers:
                content = self._pieces()
                if content:
                    self._send(content)
            await asyncio.sleep(INTERVAL_S)

    def _pieces(self) -> Piece:
        parts = []
        if self._stories:
            told = [_told(told) for told in self._stories]
            parts.append(piece("stories", {"stories": told, "more": self._stories_more}))
            if any(told.story.what.startswith("broker") for told in self._stories):
                parts.append(piece("brokers", brokers(self._state(), self._census.last)))
        if self._changed or self._changed_more:
            parts.append(piece("cells", self._cells()))
        if self._handled:
            done = [_done(done) for done in self._handled]
            parts.append(piece("handled", {"events": done, "more": self._handled_more}))
        self._handled.clear()
        self._stories.clear()
        self._changed.clear()
        self._handled_more = self._stories_more = 0
        self._changed_more = False
        return b"".join(parts)

    def _cells(self) -> dict[str, object]:
        """As they are now, which may be later than the story that named them."""
        cluster = self._state()
        if cluster is None or self._changed_more:
            return {"cells": [], "stale": True}
        found = [(tp.topic, tp.partition, cell(cluster, tp)) for tp in self._changed]
        return {"cells": [(t, p, c[1:] if c else None) for t, p, c in found], "stale": False}

    async def _count(self) -> None:
        """Beside the pulse, which must not wait for it."""
        while True:
            if self._readers:
                await self._census.fresh()
            await asyncio.sleep(PULSE_S / 2)

    async def _pulse(self) -> None:
        while True:
            if self._readers:
                self._send(piece("pulse", await self._vital_signs()))
            await asyncio.sleep(PULSE_S)

    async def _vital_signs(self) -> dict[str, object]:
        counts = self._census.last
        return {
            "controller": self._views.controller(),
            "queue": self._views.queue(),
            "lag_ms": round(self._worst_lag_s() * 1000, 3),
            "counts": await self._views.counts(),
            "brokers": brokers(self._state(), counts),
            "census": counts.number,
        }

    def _worst_lag_s(self) -> float:
        """Since the last pulse."""
        lag = self._meters.loop_lag
        new = min(lag.count - self._lag_seen, len(lag.recent_s))
        self._lag_seen = lag.count
        return max(list(lag.recent_s)[-new:], default=0.0) if new else 0.0


def _done(done: Handled) -> dict[str, object]:
    return {
        "at_ms": done.at_ms,
        "event": type(done.event).__name__,
        "events": done.events,
        "queued_ms": round(done.queued_s * 1000, 3),
        "took_ms": round(done.took_s * 1000, 3),
        "step_ms": round(done.longest_step_s * 1000, 3),
        "zookeeper_requests": done.zookeeper_requests,
    }


def _told(told: Told) -> dict[str, object]:
    story = told.story
    named = list(story.changes)[:CHANGES_TOLD]
    return {
        "at_ms": told.at_ms,
        "what": story.what,
        "why": story.why,
        "key": story.key,
        "changes": [describe(tp, *story.changes[tp]) for tp in named],
        "more": len(story.changes) - len(named),
    }
