"""Systems measured in turns, on the same stage: floor, kctl, another, and again."""

from collections.abc import Callable, Iterable, Sequence

import attrs

from kctl.bench.floor import measure_floor
from kctl.bench.isr_storm import Refused
from kctl.bench.scenarios import Scenario
from kctl.bench.stage import Incomplete, NotApplicable, Stage
from kctl.bench.systems import System

Problem = (Incomplete, Refused, TimeoutError)
"""What makes a trial a failure; anything else ends the run."""


@attrs.frozen
class Failure:
    system: str
    scenario: str
    reason: str


@attrs.define
class Turns:
    stage: Stage
    scenarios: Sequence[Scenario]
    on_step: Callable[[str, str], None] = lambda _system, _scenario: None
    """Told what is about to be measured."""
    failures: list[Failure] = attrs.field(factory=list)
    left_out: dict[str, str] = attrs.field(factory=dict)
    """Scenarios that this cluster has nothing for, and why."""

    @staticmethod
    def steps(scenarios: int, systems: int, turns: int, passes: int) -> int:
        """How often `on_step` will be called."""
        return turns * (passes + systems * (1 + passes * scenarios))

    async def run(self, systems: Iterable[Callable[[], System]], turns: int, passes: int) -> None:
        """In each turn every system starts anew and goes through the scenarios `passes` times."""
        makers = tuple(systems)
        for _ in range(turns):
            for _ in range(passes):
                self.on_step("floor", "all")
                await measure_floor(self.stage, [s.name for s in self.scenarios])
            for make in makers:
                await self.measure(make(), passes)

    async def measure(self, system: System, passes: int) -> None:
        """One system, from its start to its end."""
        stage = self.stage
        self.on_step(system.name, under_way := "cold_start")
        try:
            await stage.enter(system)
            for _ in range(passes):
                for scenario in self.scenarios:
                    self.on_step(system.name, scenario.name)
                    await self._attempt(system, scenario)
            under_way = "failover"
            await stage.go_home()  # while somebody is there to tell the brokers of it
        except Problem as problem:
            self._failed(system.name, under_way, problem)
        finally:
            await stage.leave()
        await stage.go_home()

    async def _attempt(self, system: System, scenario: Scenario) -> None:
        try:
            await scenario.run(self.stage)
        except NotApplicable as reason:
            self.left_out[scenario.name] = str(reason)
        except Problem as problem:
            self._failed(system.name, scenario.name, problem)
        except ExceptionGroup as group:
            # The trigger ran in a task group.
            match, rest = group.split(Problem)
            if rest is not None or match is None:
                raise
            self._failed(system.name, scenario.name, match.exceptions[0])

    def _failed(self, system: str, scenario: str, problem: BaseException) -> None:
        reason = str(problem) or type(problem).__name__
        self.failures.append(Failure(system, scenario, reason))
