"""`/state`: bounded answers, page by page, and what the server refuses."""

import json

import aiohttp
import pytest

from kctl.http import Http, HttpUnavailable
from kctl.messages.outbox import Story
from kctl.model.names import TopicPartition
from kctl.model.rows import Assignment
from tests.http.served import Served, cluster_of, standing_alone, topics_of
from tests.runtime.surroundings import Surroundings


@pytest.mark.asyncio
async def test_topics_come_in_pages() -> None:
    async with standing_alone() as alone:
        alone.holds(topics_of(250, 2))
        names: list[str] = []
        path = "state"
        for _ in range(3):
            page = await alone.json(path)
            assert len(page["topics"]) <= 100
            names += [topic["name"] for topic in page["topics"]]
            path = f"state?after={page['next']}"
        assert page["next"] is None
        assert names == [f"t{n:05}" for n in range(250)]
        assert page["counts"]["partitions"] == 500
        short = await alone.json("state?limit=3&after=t00010")
        assert [t["name"] for t in short["topics"]] == ["t00011", "t00012", "t00013"]
        assert short["next"] == "t00013"


@pytest.mark.asyncio
async def test_partitions_come_in_pages_in_the_order_of_their_numbers() -> None:
    async with standing_alone() as alone:
        alone.holds(topics_of(1, 250))
        first = await alone.json("state?topic=t00000")
        assert [p["partition"] for p in first["partitions"]] == list(range(100))
        assert first["partition_count"] == 250
        last = await alone.json(f"state?topic=t00000&after={first['next'] + 120}&limit=1000")
        assert [p["partition"] for p in last["partitions"]] == list(range(220, 250))
        assert last["next"] is None


@pytest.mark.asyncio
async def test_answers_stay_small_at_a_hundred_thousand_partitions() -> None:
    async with standing_alone() as alone:
        alone.holds(topics_of(5_000, 20))
        cluster = alone.controller.state
        assert cluster is not None
        for number in range(1_000):
            cluster.quarantine[f"/brokers/topics/odd-{number}"] = "not JSON"
            cluster.queue_deletion(f"t{number:05}")
        for path in ("state", "state?limit=999999999", "state?view=map"):
            _, text = await alone.get(path)
            assert len(text) < 600_000, path
        state = await alone.json("state")
        assert len(state["quarantine"]) == len(state["deletions"]) == 100
        assert state["counts"]["quarantined"] == state["counts"]["deleting"] == 1_000
        shown = await alone.json("state?view=map")
        assert shown["mode"] == "topics"
        assert (len(shown["topics"]), shown["topic_count"]) == (4_000, 5_000)


@pytest.mark.asyncio
async def test_topics_in_trouble_are_on_the_map_even_if_not_all_are() -> None:
    async with standing_alone() as alone:
        cluster = topics_of(5_000, 2)
        alone.holds(cluster)
        tp = TopicPartition("t04999", 0)
        row = cluster.rows[tp]
        assert row.leadership is not None
        shrunk = row.leadership.with_shared(row.isr[:1])
        cluster.put(tp, row.led(shrunk))
        shown = await alone.json("state?view=map")
        last = shown["topics"][-1]
        assert last[0] == "t04999"
        assert last[4] == 1
        assert [name for name, *_ in shown["topics"]] == sorted(t[0] for t in shown["topics"])


@pytest.mark.asyncio
async def test_the_map_marks_what_is_wrong() -> None:
    async with standing_alone() as alone:
        cluster = cluster_of(
            {
                "a-0": ((1, 2), 1, (1, 2)),
                "a-1": ((2, 1), 1, (1,)),
                "a-2": ((3, 4), -1, (3,)),
            },
            alive=(1, 2),
        )
        alone.holds(cluster)
        tp = TopicPartition("a", 0)
        cluster.put(tp, cluster.rows[tp].reassigned(Assignment((1, 2), removing=(2,))))
        cluster.reassigning[tp] = None
        shown = await alone.json("state?view=map")
        assert shown == {
            "mode": "partitions",
            "topics": [["a", [[0, 1, 8], [1, 1, 2 | 4], [2, -1, 1 | 2 | 4]]]],
        }
        state = await alone.json("state")
        brokers = {b["id"]: (b["alive"], b["leaders"], b["replicas"]) for b in state["brokers"]}
        assert brokers == {1: (True, 2, 2), 2: (True, 0, 2), 3: (False, 0, 1), 4: (False, 0, 1)}
        assert state["brokers"][0]["rack"] == "rack-1"
        assert state["reassignments"] == [
            {"partition": "a-0", "replicas": [1, 2], "adding": [], "removing": [2], "isr": [1, 2]}
        ]


@pytest.mark.asyncio
async def test_a_partition_and_its_story() -> None:
    async with standing_alone() as alone:
        before = cluster_of({"a-0": ((1, 2), 1, (1, 2)), "a-1": ((1, 2), 1, (1, 2))}, alive=(1, 2))
        after = cluster_of({"a-0": ((1, 2), 2, (2,)), "a-1": ((1, 2), 2, (2,))}, alive=(2,))
        alone.holds(after)
        tps = list(before.rows)
        changes = {tp: (before.rows[tp], after.rows[tp]) for tp in tps}
        alone.controller._tell(Story("leader elected", "broker 1 is gone", changes))
        alone.controller._tell(Story("broker gone", "its session ended", key="1"))
        alone.controller._tell(Story("reassignment waits", "no live leader", key="a-0"))
        alone.controller._tell(Story("deletion started", "its marker was found", key="a"))
        found = await alone.json("state?topic=a&partition=0")
        assert found == await alone.json("state?partition=a-0")
        assert (found["leader"], found["preferred"], found["isr"]) == (2, 1, [2])
        assert found["replica_states"]["1"]["alive"] is False
        assert found["replica_states"]["2"]["rack"] == "rack-2"
        story = [(line["what"], line["why"], line["change"]) for line in found["story"]]
        assert story == [
            ("deletion started", "its marker was found", None),
            ("reassignment waits", "no live leader", None),
            ("leader elected", "broker 1 is gone", "leader 1 -> 2, isr 1,2 -> 2"),
        ]
        assert all(line["epoch"] == 7 for line in found["story"])


@pytest.mark.asyncio
async def test_stories_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kctl.http.stories.CHANGES_MAX", 10)
    monkeypatch.setattr("kctl.http.stories.STORIES_MAX", 20)
    async with standing_alone() as alone:
        cluster = topics_of(1, 20)
        alone.holds(cluster)
        rows = {tp: (row, row) for tp, row in cluster.rows.items()}
        alone.controller._tell(Story("first", "", dict(list(rows.items())[:8])))
        alone.controller._tell(Story("second", "", dict(list(rows.items())[:8])))
        stories = alone.http._stories
        assert [told.story.what for told in stories._told] == ["second"]
        alone.controller._tell(Story("large", "", rows))
        assert [told.story.what for told in stories._told] == ["large"], "the last one stays"
        for number in range(50):
            alone.controller._tell(Story(f"small {number}", ""))
        assert len(stories._told) <= 20
        assert (await alone.json("state?partition=t00000-3"))["story"] == []


@pytest.mark.asyncio
async def test_what_is_not_there_and_what_makes_no_sense() -> None:
    async with standing_alone() as alone:
        assert "not the controller" in (await alone.json("state?topic=a", 404))["error"]
        alone.holds(topics_of(1, 1))
        assert "'b'" in (await alone.json("state?topic=b", 404))["error"]
        assert "t00000-9" in (await alone.json("state?partition=t00000-9", 404))["error"]
        for query in ("limit=x", "limit=-1", "partition=nonsense", "topic=t00000&after=x"):
            status, text = await alone.get(f"state?{query}")
            assert status == 400, query
            assert query.partition("=")[0].split("&")[0] in text or "after" in text
        assert (await alone.get("nowhere"))[0] == 404


@pytest.mark.asyncio
async def test_nothing_but_reading() -> None:
    async with standing_alone() as alone:
        for path in ("", "state", "metrics", "healthz", "readyz", "events"):
            for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
                async with alone.client.request(method, alone.http.url + path) as answer:
                    assert answer.status == 405, (method, path)
        for path in ("", "state", "metrics", "healthz"):
            async with alone.client.head(alone.http.url + path) as answer:
                assert answer.status == 200
                assert await answer.read() == b""
        headers = {"Origin": "http://elsewhere.example"}
        async with alone.client.get(alone.http.url + "state", headers=headers) as answer:
            assert "Access-Control-Allow-Origin" not in answer.headers
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.asyncio
async def test_loopback_by_default_and_a_port_in_use() -> None:
    async with standing_alone() as alone:
        assert alone.http.host == "127.0.0.1"
        with pytest.raises(HttpUnavailable, match=f"127.0.0.1:{alone.http.port}.*in use.*--http"):
            async with Http(alone.controller, port=alone.http.port):
                pass
        with pytest.raises(HttpUnavailable, match="cannot serve HTTP"):
            async with Http(alone.controller, host="no.such.host.invalid"):
                pass
        assert (await alone.get("healthz"))[0] == 200


@pytest.mark.asyncio
async def test_the_port_is_free_after_it() -> None:
    async with standing_alone() as alone:
        async with Http(alone.controller) as second:
            port = second.port
        async with Http(alone.controller, port=port) as third:
            assert third.port == port
            async with alone.client.get(third.url + "healthz") as answer:
                assert answer.status == 200
        with pytest.raises(aiohttp.ClientConnectionError):
            await alone.client.get(third.url + "healthz")


@pytest.mark.zookeeper
@pytest.mark.asyncio
async def test_of_a_cluster_at_work(around: Surroundings) -> None:
    await around.start_brokers(1, 2)
    await around.create_topic("orders", {0: [1, 2], 1: [2, 1]})
    await around.make("/brokers/topics/odd", b"not JSON")
    async with (
        around.controller() as controller,
        Http(controller) as http,
        Served.open(controller, http) as served,
    ):
        await controller.until(
            lambda c: c.state is not None and len(c.state.rows) == 2 and not c.state.not_online
        )
        await around.stop_brokers(1)
        await controller.until(lambda c: c.state is not None and 1 not in c.state.brokers)
        state = await served.json("state")
        assert [t["name"] for t in state["topics"]] == ["orders"]
        assert state["quarantine"][0]["path"] == "/brokers/topics/odd"
        assert state["controller"]["session"] == "connected"
        assert state["controller"]["epoch"] == await around.epoch()
        found = await served.json("state?partition=orders-0")
        assert found["leader"] == 2
        whats = [line["what"] for line in found["story"]]
        assert whats[-1] == "partition initialised"
        assert "leader elected" in whats
        assert "1 is gone" in json.dumps(found["story"])
