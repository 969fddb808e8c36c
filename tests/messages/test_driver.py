"""The sans-I/O driver: handlers await effects, and only effects."""

import asyncio
import inspect
from collections.abc import Generator

import pytest

from kctl.messages.driver import Finished, NotAnEffect, step
from kctl.messages.effects import Draw, Flush, ListTopics


async def count_topics(log: list[str]) -> int:
    log.append("begun")
    topics = await ListTopics()
    log.append(f"heard of {len(topics)}")
    await Flush()
    return len(topics)


def test_a_handler_is_run_from_effect_to_effect() -> None:
    log: list[str] = []
    procedure = count_topics(log)
    assert log == []
    assert step(procedure) == ListTopics()
    assert log == ["begun"]
    assert step(procedure, ("a", "b")) == Flush()
    assert log == ["begun", "heard of 2"]
    assert step(procedure) == Finished(2)


def test_two_handlers_do_not_share_anything() -> None:
    one, other = count_topics([]), count_topics([])
    step(one), step(other)
    step(one, ("a",)), step(other, ())
    assert step(one) == Finished(1)
    assert step(other) == Finished(0)


class Foreign:
    def __await__(self) -> Generator[str, None, None]:
        yield "not an effect"


async def stray() -> None:
    await Foreign()


async def sleepy() -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize("handler", [stray, sleepy])
def test_awaiting_anything_else_is_a_bug_that_shows_at_once(handler: object) -> None:
    procedure = handler()  # type: ignore[operator]
    with pytest.raises(NotAnEffect, match="the core may only await effects"):
        step(procedure)
    assert inspect.getcoroutinestate(procedure) == inspect.CORO_CLOSED


def test_closing_ends_a_handler_where_it_waits() -> None:
    log: list[str] = []
    procedure = count_topics(log)
    step(procedure)
    procedure.close()
    assert log == ["begun"]
    with pytest.raises(RuntimeError, match="cannot reuse"):
        step(procedure)


def test_exceptions_of_a_handler_come_out_of_the_step() -> None:
    async def faulty() -> None:
        await Draw(1, 2)
        raise ValueError("a bug")

    procedure = faulty()
    step(procedure)
    with pytest.raises(ValueError, match="a bug"):
        step(procedure, (0,))
