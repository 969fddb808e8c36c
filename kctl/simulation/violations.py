"""A violation: which invariant, in which seed, and the story that led to it."""


class Violation(Exception):
    """An invariant does not hold. The seed and the same code show it again."""

    def __init__(self, seed: int, invariant: str, message: str, story: tuple[str, ...]) -> None:
        super().__init__(f"seed {seed}: {invariant}: {message}")
        self.seed = seed
        self.invariant = invariant
        self.message = message
        self.story = story

    def __reduce__(self) -> tuple[type["Violation"], tuple[object, ...]]:
        return Violation, (self.seed, self.invariant, self.message, self.story)

    def report(self) -> str:
        return "\n".join((str(self), *self.story))
