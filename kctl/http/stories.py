"""Stories, kept for a while: what happened to a partition lately, and why."""

from collections import deque
from collections.abc import Iterator

import attrs

from kctl.http.metrics import Elections
from kctl.messages.outbox import Story
from kctl.model.names import NO_LEADER, TopicPartition
from kctl.runtime.meters import wall_clock_ms
from kctl.runtime.state_change_log import describe

CHANGES_MAX = 50_000
"""Changes of rows kept in all: some 15 MB."""
STORIES_MAX = 10_000


@attrs.frozen
class Told:
    at_ms: int
    epoch: int | None
    """Of the controller's term."""
    story: Story


@attrs.frozen
class Line:
    """One line of the story of a partition."""

    at_ms: int
    epoch: int | None
    what: str
    why: str
    change: str | None


class Stories:
    def __init__(self) -> None:
        self._told: deque[Told] = deque()
        self._changes = 0
        self.elections = Elections()

    def add(self, story: Story, epoch: int | None) -> Told:
        told = Told(wall_clock_ms(), epoch, story)
        self._told.append(told)
        self._changes += len(story.changes)
        while len(self._told) > STORIES_MAX or (
            self._changes > CHANGES_MAX and self._told[0] is not told
        ):
            self._changes -= len(self._told.popleft().story.changes)
        self._count(story)
        return told

    def _count(self, story: Story) -> None:
        elections = self.elections
        for before, after in story.changes.values():
            if before is None or after is None or after.leadership is before.leadership:
                continue
            leader = after.leader
            if leader in (NO_LEADER, before.leader):
                continue
            elections.leaders += 1
            elections.unclean += before.leadership is not None and leader not in before.isr

    @property
    def since_ms(self) -> int | None:
        """When the oldest one that is kept was told."""
        return self._told[0].at_ms if self._told else None

    def of(self, tp: TopicPartition, limit: int) -> list[Line]:
        """The latest first."""
        lines: list[Line] = []
        for line in self._lines(tp):
            lines.append(line)
            if len(lines) == limit:
                break
        return lines

    def _lines(self, tp: TopicPartition) -> Iterator[Line]:
        names = (str(tp), tp.topic)
        for told in reversed(self._told):
            story = told.story
            change = story.changes.get(tp)
            if change is not None:
                text = describe(tp, *change).removeprefix(f"{tp}: ")
                yield Line(told.at_ms, told.epoch, story.what, story.why, text)
            elif story.key in names and story.key is not None:
                yield Line(told.at_ms, told.epoch, story.what, story.why, None)
