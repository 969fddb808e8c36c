"""`/events`: what readers get, and what becomes of those who do not read."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from kctl.http import Http
from kctl.http.feed import CELLS_TOLD, HANDLED_MAX, PIECES_MAX, STORIES_MAX, Reader
from kctl.messages import events as ev
from kctl.messages.outbox import Story
from kctl.runtime.meters import Handled
from tests.http.served import Served, cluster_of, standing_alone, topics_of
from tests.runtime.surroundings import Surroundings

BOUND_S = 20


@asynccontextmanager
async def following(served: Served) -> AsyncIterator["Stream"]:
    async with served.client.get(served.http.url + "events") as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/event-stream"
        stream = Stream(answer)
        assert (await stream.next("hello"))["id"] == served.controller.config.broker_id
        yield stream


class Stream:
    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def next(self, kind: str) -> Any:
        """What the next event of this kind holds."""
        name = ""
        async with asyncio.timeout(BOUND_S):
            while line := (await self._answer.content.readline()).decode().rstrip("\n"):
                pass
            while True:
                line = (await self._answer.content.readline()).decode().rstrip("\n")
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                if line.startswith("data: ") and name == kind:
                    return json.loads(line.removeprefix("data: "))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():  # noqa: ASYNC110 it is the server's end that changes
            await asyncio.sleep(0.01)


def handled(event: ev.Event) -> Handled:
    return Handled(event, at_ms=1, queued_s=0.001, took_s=0.002, effects=1, longest_step_s=0.0005)


@pytest.mark.asyncio
async def test_events_with_their_durations() -> None:
    async with standing_alone() as alone, following(alone) as stream:
        alone.controller._publish(handled(ev.BrokerChange()))
        found = await stream.next("handled")
        assert found["events"][0] | {"at_ms": 0} == {
            "at_ms": 0,
            "event": "BrokerChange",
            "events": 1,
            "queued_ms": 1.0,
            "took_ms": 2.0,
            "step_ms": 0.5,
            "zookeeper_requests": 0,
        }


@pytest.mark.asyncio
async def test_stories_and_the_cells_that_they_change() -> None:
    async with standing_alone() as alone, following(alone) as stream:
        before = cluster_of({"a-0": ((1, 2), 1, (1, 2))}, alive=(1, 2))
        after = cluster_of({"a-0": ((1, 2), 2, (2,))}, alive=(2,))
        alone.holds(after)
        ((tp, row),) = after.rows.items()
        alone.controller._tell(Story("leader elected", "1 is gone", {tp: (before.rows[tp], row)}))
        (story,) = (await stream.next("stories"))["stories"]
        assert (story["what"], story["why"], story["more"]) == ("leader elected", "1 is gone", 0)
        assert story["changes"] == ["a-0: leader 1 -> 2, isr 1,2 -> 2"]
        assert await stream.next("cells") == {"cells": [["a", 0, [2, 2 | 4]]], "stale": False}


@pytest.mark.asyncio
async def test_a_pulse_every_second() -> None:
    async with standing_alone() as alone, following(alone) as stream:
        alone.holds(topics_of(3, 4))
        seen = await stream.next("pulse")
        while not seen["controller"]["active"] or not seen["brokers"][0]["leaders"]:
            seen = await stream.next("pulse")
        assert seen["counts"]["partitions"] == 12
        assert sum(b["leaders"] for b in seen["brokers"]) == 12
        assert set(seen["queue"]) == {"size", "age_s", "under_way", "under_way_s"}
        assert seen["lag_ms"] >= 0


@pytest.mark.asyncio
async def test_much_at_once_is_cut_short_and_counted() -> None:
    async with standing_alone() as alone, following(alone) as stream:
        cluster = topics_of(10, 300)
        alone.holds(cluster)
        rows = {tp: (row, row) for tp, row in cluster.rows.items()}
        assert len(rows) > CELLS_TOLD
        # In one turn of the loop, so that all of it falls into one piece.
        alone.controller._tell(Story("large", "", rows))
        for number in range(STORIES_MAX):
            alone.controller._tell(Story(f"story {number}", ""))
        for _ in range(HANDLED_MAX + 7):
            alone.controller._publish(handled(ev.TopicChange()))
        told = await stream.next("stories")
        assert (len(told["stories"]), told["more"]) == (STORIES_MAX, 1)
        assert told["stories"][0]["more"] == 2_997
        assert await stream.next("cells") == {"cells": [], "stale": True}
        done = await stream.next("handled")
        assert (len(done["events"]), done["more"]) == (HANDLED_MAX, 7)


@pytest.mark.asyncio
async def test_a_reader_that_falls_behind_is_told_what_it_missed() -> None:
    reader = Reader()
    for number in range(PIECES_MAX + 5):
        reader.put(b"%d" % number)
    first = await reader.next()
    assert first == b'event: missed\ndata: {"pieces":5}\n\n5'
    assert await reader.next() == b"6"


@pytest.mark.asyncio
async def test_somebody_who_never_reads_holds_up_nobody() -> None:
    """Its socket's buffers fill, then its pieces are dropped; the others get everything."""
    async with standing_alone() as alone:
        cluster = topics_of(10, 100)
        alone.holds(cluster)
        rows = {tp: (row, row) for tp, row in cluster.rows.items()}
        deaf = socket.create_connection((alone.http.host, alone.http.port))
        try:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            deaf.sendall(b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
            await until(lambda: alone.http.readers == 1)
            (backlogged,) = alone.http._feed._readers
            feed = alone.http._feed
            async with following(alone) as stream:
                async with asyncio.timeout(BOUND_S):
                    while not backlogged.missed:
                        # More than the loop's and the kernel's buffers take.
                        feed._send(b": " + b"x" * 500_000 + b"\n\n")
                        await asyncio.sleep(0)
                alone.controller._tell(Story("still here", "", rows))
                told = await stream.next("stories")
                assert told["stories"][0]["what"] == "still here"
            assert backlogged._pieces.qsize() == PIECES_MAX
        finally:
            deaf.close()
        await until(lambda: alone.http.readers == 0)


@pytest.mark.asyncio
async def test_readers_who_leave_are_forgotten() -> None:
    async with standing_alone() as alone:
        async with following(alone), following(alone):
            assert alone.http.readers == 2
        await until(lambda: alone.http.readers == 0)


@pytest.mark.asyncio
async def test_too_many_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kctl.http.feed.READERS_MAX", 1)
    async with standing_alone() as alone, following(alone):
        assert "served already" in (await alone.json("events", 503))["error"]


@pytest.mark.asyncio
async def test_streams_end_when_the_server_does() -> None:
    async with standing_alone() as alone:
        async with Http(alone.controller) as second:
            served = Served(alone.controller, second, alone.client)
            answer = await served.client.get(second.url + "events")
            assert b"retry" in await answer.content.readline()
        async with asyncio.timeout(BOUND_S):
            try:
                while await answer.content.readany():
                    pass
            except aiohttp.ClientError:
                pass  # cut off in the middle, which is an end too
            finally:
                answer.close()


@pytest.mark.zookeeper
@pytest.mark.asyncio
async def test_a_broker_dies(around: Surroundings) -> None:
    await around.start_brokers(1, 2)
    await around.create_topic("orders", {0: [1, 2], 1: [2, 1]})
    async with (
        around.controller() as controller,
        Http(controller) as http,
        Served.open(controller, http) as served,
        following(served) as stream,
    ):
        await controller.until(
            lambda c: c.state is not None and len(c.state.rows) == 2 and not c.state.not_online
        )
        await around.stop_brokers(1)
        stories: list[str] = []
        while "leader elected" not in stories or "broker gone" not in stories:
            stories += [s["what"] for s in (await stream.next("stories"))["stories"]]
        pulse = await stream.next("pulse")
        while [b["leaders"] for b in pulse["brokers"] if b["id"] == 2] != [2]:
            pulse = await stream.next("pulse")
        assert {b["id"]: b["alive"] for b in pulse["brokers"]} == {1: False, 2: True}
