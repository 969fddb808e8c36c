"""Virtual time: what is due is called in order of time, and of arrangement where times are equal.

Coroutines are stepped by hand. What they await is a `Waitable`: it is told which task waits, and
resumes or fails it when its time has come. There is no event loop, no thread and no clock.
"""

import heapq
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")

MS = 1
SECOND = 1_000 * MS


CALLS_MAX = 400_000
"""Far more than a world needs: somebody does the same thing again and again."""


class Restless(Exception):
    """The world does not come to rest."""


class Timer:
    """A call that is due at some time, unless it is cancelled."""

    __slots__ = ("args", "call", "cancelled")

    def __init__(self, call: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.call = call
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Scheduler:
    """The clock of the world, in milliseconds."""

    def __init__(self) -> None:
        self.now = 0
        self._due: list[tuple[int, int, Timer]] = []
        self._arranged = 0
        self.calls = 0

    def at(self, time: int, call: Callable[..., None], *args: Any) -> Timer:
        timer = Timer(call, args)
        self._arranged += 1
        heapq.heappush(self._due, (max(time, self.now), self._arranged, timer))
        return timer

    def after(self, delay: int, call: Callable[..., None], *args: Any) -> Timer:
        return self.at(self.now + delay, call, *args)

    def run_until(self, time: int) -> None:
        due = self._due
        while due and due[0][0] <= time:
            self.now, _, timer = heapq.heappop(due)
            if not timer.cancelled:
                self.calls += 1
                if self.calls > CALLS_MAX:
                    raise Restless(f"more than {CALLS_MAX} calls by {self.now} ms")
                timer.call(*timer.args)
        self.now = time


class Waitable(Generic[T]):
    """Something that a task waits for."""

    __slots__ = ()

    def __await__(self) -> "Generator[Waitable[T], T, T]":
        return (yield self)

    def begin(self, task: "Task") -> None:
        """Arrange that the task is resumed with the result, or fails."""
        raise NotImplementedError


class Gate(Protocol):
    """What stands between a result and the task: a host that is paused lets nothing through."""

    def __call__(self, call: Callable[..., None], *args: Any) -> None: ...


class Task:
    """A coroutine under way. Results reach it through its host's gate."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], gate: Gate) -> None:
        self._coroutine = coroutine
        self._gate = gate
        self.over = False
        self.waits_for: object = None

    def start(self) -> None:
        self._step(None)

    def resume(self, value: object = None) -> None:
        self._gate(self._step, value)

    def fail(self, error: Exception) -> None:
        self._gate(self._throw, error)

    def close(self) -> None:
        """End it where it stands, as a crash does."""
        if not self.over:
            self.over = True
            self._coroutine.close()

    def _step(self, value: object) -> None:
        if self.over:
            return
        try:
            wanted = self._coroutine.send(value)
        except StopIteration:
            self.over = True
            return
        self._begin(wanted)

    def _throw(self, error: Exception) -> None:
        if self.over:
            return
        try:
            wanted = self._coroutine.throw(error)
        except StopIteration:
            self.over = True
            return
        self._begin(wanted)

    def _begin(self, wanted: object) -> None:
        self.waits_for = wanted
        if not isinstance(wanted, Waitable):
            raise TypeError(f"a simulated task awaited {wanted!r}: only the world's things can be")
        wanted.begin(self)
