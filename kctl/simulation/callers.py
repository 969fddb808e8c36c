"""Requests to controllers: each one that is accepted gets exactly one answer (L6)."""

from collections.abc import Callable

import attrs

from kctl.messages import events as ev
from kctl.messages.answers import Answer, AnswerValue
from kctl.simulation.controllers import ControllerHost, ControllerProcess
from kctl.simulation.surroundings import Surroundings

Answered = Callable[[AnswerValue | None], None]
"""None: nobody listened, the connection broke, or the answer did not come in time."""


@attrs.define
class Asked:
    process: ControllerProcess
    event: ev.Event
    time: int
    zxid: int
    answered: Answered
    waiting: bool = True
    """False when the caller has given up; the controller owes an answer all the same."""


class Callers:
    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self._last = 0
        self.open: dict[ev.Caller, Asked] = {}
        self.answers = 0

    def ask(
        self,
        host: ControllerHost,
        make: Callable[[ev.Caller], ev.Event],
        answered: Answered,
        delay: int,
        timeout_ms: int,
    ) -> None:
        self._last += 1
        caller = self._last
        self._world.scheduler.after(
            delay, self._arrive, host, caller, make(caller), answered, timeout_ms
        )

    def _arrive(
        self,
        host: ControllerHost,
        caller: ev.Caller,
        event: ev.Event,
        answered: Answered,
        timeout_ms: int,
    ) -> None:
        process = host.process
        if process is None:
            self._world.scheduler.after(5, answered, None)
            return
        world = self._world
        self.open[caller] = Asked(process, event, world.now, world.ensemble.zxid, answered)
        world.scheduler.after(timeout_ms, self._give_up, caller)
        world.safety.asked(process, event)
        process.gate(process.accept, event)

    def _give_up(self, caller: ev.Caller) -> None:
        asked = self.open.get(caller)
        if asked is not None and asked.waiting:
            asked.waiting = False
            asked.answered(None)

    def answer(self, process: ControllerProcess, answer: Answer) -> None:
        world = self._world
        asked = self.open.pop(answer.caller, None)
        if asked is None:
            world.safety.fail("L6", f"caller {answer.caller} was answered twice: {answer.value}")
        assert asked is not None
        self.answers += 1
        world.note(process.name, f"answers caller {answer.caller}: {answer.value}")
        world.safety.answered(process, asked, answer.value)
        if not asked.waiting:
            return
        if world.unlucky(0.03):
            world.mishap("lost answer", f"of {process.name} to {type(asked.event).__name__}")
            world.scheduler.after(1_000, asked.answered, None)
        else:
            delay = world.chance.randint(0, 5)
            world.scheduler.after(delay, asked.answered, answer.value)

    def broken(self, process: ControllerProcess) -> None:
        """The process is gone, and its connections with it."""
        for caller in [c for c, asked in self.open.items() if asked.process is process]:
            asked = self.open.pop(caller)
            if asked.waiting:
                self._world.scheduler.after(5, asked.answered, None)
