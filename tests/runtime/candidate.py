"""A program for `test_zombies`: a candidate that stops itself in the middle of its writes.

    python candidate.py CONNECT ID SESSION_TIMEOUT_MS [stop=N] [after] [force] [unfenced]

It says what becomes of it, line by line. `stop=N` sends SIGSTOP to itself at its Nth batch of
partition states, before it is sent, or with `after` as soon as it is on its way. `unfenced` plants
the bug that the fence is there for.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence

import structlog

import kctl
from kctl.messages.outbox import Story
from kctl.zookeeper import batches, paths
from kctl.zookeeper.multi import Check, Operation, OpResult, SetData
from kctl.zookeeper.session import Session
from kctl.zookeeper.wire import ANY_VERSION

ROWS_IN_A_BATCH = 20
BATCHES_AT_ONCE = 2


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the test reads it


class Stopping:
    """Counts the batches of states, and stops the process at one of them."""

    def __init__(self, at: int, *, after: bool, unfenced: bool) -> None:
        self._at = at
        self._after = after
        self._unfenced = unfenced
        self._count = 0
        self._multi = Session.multi

    async def multi(self, session: Session, operations: Sequence[Operation]) -> list[OpResult]:
        if any(isinstance(op, SetData) and op.path.endswith("/state") for op in operations):
            self._count += 1
            if self._count == self._at and self._after:
                asyncio.get_running_loop().call_soon(self._stop)
            elif self._count == self._at:
                self._stop()
            if self._unfenced and self._count >= self._at:
                fence = next(op for op in operations if isinstance(op, Check))
                # As many results as operations: the check stays, but of something that holds.
                operations = [
                    Check(paths.TOPICS, ANY_VERSION),
                    *(op for op in operations if op is not fence),
                ]
        return await self._multi(session, operations)

    def replacement(
        self,
    ) -> Callable[[Session, Sequence[Operation]], Coroutine[None, None, list[OpResult]]]:
        """A plain function, as a method must be."""

        async def multi(session: Session, operations: Sequence[Operation]) -> list[OpResult]:
            return await self.multi(session, operations)

        return multi

    @staticmethod
    def _stop() -> None:
        say("stopping")
        os.kill(os.getpid(), signal.SIGSTOP)


async def main(connect: str, broker_id: int, timeout_ms: int, words: Sequence[str]) -> None:
    at = next((int(word.removeprefix("stop=")) for word in words if "stop=" in word), 0)
    stopping = Stopping(at, after="after" in words, unfenced="unfenced" in words)
    Session.multi = stopping.replacement()  # type: ignore[method-assign,assignment]
    batches.UNITS_MAX = ROWS_IN_A_BATCH  # type: ignore[misc]
    batches.IN_FLIGHT_MAX = BATCHES_AT_ONCE  # type: ignore[misc]
    config = kctl.Config(
        zookeeper_connect=connect,
        broker_id=broker_id,
        zookeeper_session_timeout_ms=timeout_ms,
        force_takeover="force" in words,
        auto_leader_rebalance_enable=False,
    )
    from kctl.runtime.channels import RecordingChannels  # noqa: PLC0415

    controller = kctl.Controller(config, channels=lambda _: RecordingChannels())

    def on_story(story: Story) -> None:
        if story.what == "resigned":
            say("resigned")

    async with controller:
        controller.on_story(on_story)
        seen: object = None
        async for _ in controller.events():
            cluster = controller.state
            now = f"active {cluster.epoch}" if cluster else f"standing by {controller.active_id}"
            if now != seen:
                seen = now
                say(now)


if __name__ == "__main__":
    structlog.configure(
        processors=[structlog.processors.KeyValueRenderer()],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
