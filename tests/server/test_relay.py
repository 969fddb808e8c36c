"""What is not the controller's goes to a broker, unchanged; some of it is answered here."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kctl.model.brokers import Endpoint
from kctl.model.codes import KafkaError
from kctl.server.server import Listener
from kctl.server.versions import SINCE_2_4
from kctl.wire.admin import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeLogDirsRequest,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from kctl.wire.apis import APIS, encode_request, framed
from kctl.wire.client import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListGroupsRequest,
    MetadataRequest,
    SaslHandshakeRequest,
)
from tests.server.office import BROKER_VERSIONS, FakeBroker, metadata_of, office

pytestmark = pytest.mark.asyncio

TOPIC, BROKER = 2, 4


@contextlib.asynccontextmanager
async def brokers(count: int, **options: Any) -> AsyncIterator[dict[int, FakeBroker]]:
    async with contextlib.AsyncExitStack() as stack:
        yield {
            number: await stack.enter_async_context(
                FakeBroker(metadata=metadata_of((number, 9092)), **options).running()
            )
            for number in range(1, count + 1)
        }


# -- unchanged -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 8, 9, 12])
async def test_metadata_comes_from_a_broker(version: int) -> None:
    async with brokers(1) as fakes, office(brokers=fakes) as one, one.client() as client:
        answer = await client.ask(MetadataRequest(), version)
        assert [b.node_id for b in answer.brokers] == [1]


async def test_frames_pass_as_they_are() -> None:
    """Also those of keys whose bodies nobody here can read."""
    async with brokers(1) as fakes, office(brokers=fakes) as one, one.client() as client:
        fakes[1].answers[13] = b"\0some answer \xff"
        request = struct.pack(">hhih4s", 13, 4, -77, 4, b"name") + b"\0anything \xff\xfe"
        await client.write(framed(request))
        assert await client.frame() == struct.pack(">i", -77) + b"\0some answer \xff"
        assert fakes[1].frames[-1][1] == request


async def test_a_client_keeps_its_broker_and_clients_are_spread() -> None:
    async with brokers(3) as fakes, office(brokers=fakes) as one:
        seen = []
        for _ in range(6):
            async with one.client() as client:
                answers = [await client.ask(MetadataRequest(), 1) for _ in range(3)]
                (node,) = {a.brokers[0].node_id for a in answers}
                seen.append(node)
        assert sorted(seen) == [1, 1, 2, 2, 3, 3]
        assert all(len(fake.keys()) == 6 for fake in fakes.values())


async def test_answers_come_in_the_order_of_the_requests() -> None:
    async with brokers(1) as fakes, office("t-0: 1*,2", brokers=fakes) as one:
        fakes[1].answers[10] = FindCoordinatorResponse(node_id=1)
        async with one.client() as client:
            requests = [
                (MetadataRequest(), 1),
                (ListGroupsRequest(), 0),
                (FindCoordinatorRequest("g"), 3),
                (ApiVersionsRequest("test", "1"), 3),
                (DescribeLogDirsRequest(None), 1),
                (MetadataRequest(), 12),
            ] * 10
            data = b"".join(
                framed(encode_request(message, version, number, "test"))
                for number, (message, version) in enumerate(requests)
            )
            await client.write(data)
            frames = [await client.frame() for _ in requests]
            ids = [int.from_bytes((frame or b"")[:4], "big") for frame in frames]
            assert ids == list(range(len(requests)))


async def test_produce_without_acknowledgement_gets_no_answer() -> None:
    async with brokers(1) as fakes, office(brokers=fakes) as one, one.client() as client:
        headers = {
            2: struct.pack(">hhih4s", 0, 2, 1, 4, b"name") + struct.pack(">h", 0),
            7: struct.pack(">hhih4s", 0, 7, 2, 4, b"name") + struct.pack(">hh", -1, 0),
            8: struct.pack(">hhih4s", 0, 8, 3, 4, b"name") + struct.pack(">h2sh", 2, b"tx", 0),
            9: struct.pack(">hhih4s", 0, 9, 4, 4, b"name") + struct.pack(">BBh", 0, 0, 0),
            11: struct.pack(">hhih4s", 0, 11, 5, 4, b"name")
            + struct.pack(">BB2sh", 0, 3, b"tx", 0),
        }
        fakes[1].silent = True
        for frame in headers.values():
            await client.write(framed(frame + b"\0\0\0\0"))
        while len(fakes[1].keys()) < len(headers):  # noqa: ASYNC110 the fake has no event for it
            await asyncio.sleep(0.001)
        fakes[1].silent = False
        fakes[1].answers[0] = b"produced"
        acknowledged = struct.pack(">hhih4s", 0, 7, 6, 4, b"name") + struct.pack(">hh", -1, 1)
        await client.write(framed(acknowledged))
        assert await client.frame() == struct.pack(">i", 6) + b"produced"


async def test_the_same_listener_is_used() -> None:
    async with brokers(2) as fakes:
        inner, outer = fakes[1], fakes[2]
        listeners = (Listener("INNER"), Listener("OUTER"), Listener("NOWHERE"))
        async with office(brokers={1: inner}, listeners=listeners) as one:
            one.world.cluster.brokers[1] = one.world.zk.brokers[1] = type(
                one.world.cluster.brokers[1]
            )(
                1,
                101,
                (
                    Endpoint("INNER", "127.0.0.1", inner.port, "PLAINTEXT"),
                    Endpoint("OUTER", "127.0.0.1", outer.port, "PLAINTEXT"),
                ),
            )
            for listener, node in (("INNER", 1), ("OUTER", 2)):
                async with one.client(listener) as client:
                    answer = await client.ask(MetadataRequest(), 1)
                    assert answer.brokers[0].node_id == node
            async with one.client("NOWHERE") as client:
                await client.send(MetadataRequest(), 1)
                assert await client.frame() is None


# -- brokers come and go ---------------------------------------------------------------------


async def test_when_the_pinned_broker_dies_another_one_takes_over() -> None:
    async with brokers(2) as fakes, office(brokers=fakes) as one, one.client() as client:
        first = (await client.ask(MetadataRequest(), 1)).brokers[0].node_id
        fakes[first].die()
        for _ in range(2):
            second = (await client.ask(MetadataRequest(), 1)).brokers[0].node_id
            assert second == 3 - first


async def test_a_question_is_asked_again_when_its_broker_dies_with_it() -> None:
    async with brokers(2) as fakes, office(brokers=fakes) as one, one.client() as client:
        first = (await client.ask(MetadataRequest(), 1)).brokers[0].node_id
        fakes[first].answers[3] = None
        answer = await client.ask(MetadataRequest(), 1)
        assert answer.brokers[0].node_id == 3 - first


async def test_an_order_is_not_given_twice() -> None:
    """Nobody knows whether it was carried out: the client is told so by the end of the connection."""
    async with brokers(2) as fakes, office(brokers=fakes) as one, one.client() as client:
        await client.write(framed(struct.pack(">hhih4s", 42, 0, 1, 4, b"name") + b"\0\0\0\0"))
        assert await client.frame() is None
        assert sum(len(fake.keys()) for fake in fakes.values()) == 1


async def test_a_broker_that_answers_something_else() -> None:
    async with brokers(1) as fakes, office(brokers=fakes) as one, one.client() as client:
        fakes[1].correlation_offset = 1
        await client.send(MetadataRequest(), 1)
        assert await client.frame() is None


async def test_a_broker_that_is_silent() -> None:
    limits = {"relay_s": 0.05}
    async with brokers(2) as fakes, office(brokers=fakes, limits=limits) as one, one.client() as c:
        first = (await c.ask(MetadataRequest(), 1)).brokers[0].node_id
        fakes[first].silent = True
        answer = await c.ask(MetadataRequest(), 1)
        assert answer.brokers[0].node_id == 3 - first


async def test_without_brokers_the_connection_is_closed() -> None:
    async with office(others=(1, 2)) as one, one.client() as client:
        await client.send(MetadataRequest(), 1)
        assert await client.frame() is None


async def test_a_controller_that_resigned_still_relays() -> None:
    async with brokers(1) as fakes, office(brokers=fakes) as one:
        async with one.client() as client:
            await client.ask(MetadataRequest(), 1)
        one.world.node.cluster = None
        async with one.client() as client:
            answer = await client.ask(MetadataRequest(), 1)
            assert answer.brokers[0].node_id == 1


async def test_the_broker_is_let_go_with_the_client() -> None:
    async with brokers(1) as fakes, office(brokers=fakes) as one:
        async with one.client() as client:
            await client.ask(MetadataRequest(), 1)
            (writer,) = fakes[1]._writers
        await asyncio.wait_for(writer.wait_closed(), 10)


# -- never relayed ---------------------------------------------------------------------------


@pytest.mark.parametrize("key", [4, 5, 6, 58])
async def test_what_only_controllers_send_is_refused(key: int) -> None:
    api = APIS[key]
    async with brokers(1) as fakes, office("t-0: 1*,2", brokers=fakes) as one:
        before = dict(one.world.zk.states)
        for version in range(api.first, api.last + 1):
            answer = await one.ask(api.request(), version)
            assert answer.error_code == KafkaError.CLUSTER_AUTHORIZATION_FAILED
        assert fakes[1].keys() == []
        assert (one.events, one.world.zk.states) == ([], before)


@pytest.mark.parametrize("key", [27, 52, 53, 54, 55, 59, 62, 63, 64, 70, 80, 999, -1, 32767])
async def test_keys_that_are_nobodys_business_close_the_connection(key: int) -> None:
    async with brokers(1) as fakes, office(brokers=fakes) as one, one.client() as client:
        await client.write(framed(struct.pack(">hhih4s", key, 0, 1, 4, b"name") + b"\0" * 20))
        assert await client.frame() is None
        assert fakes[1].keys() == []


async def test_sasl_where_there_is_none() -> None:
    async with brokers(1) as fakes, office(brokers=fakes) as one, one.client() as client:
        await client.send(SaslHandshakeRequest("PLAIN"), 1)
        assert await client.frame() is None
        assert fakes[1].keys() == []


# -- own answers -----------------------------------------------------------------------------


async def test_nothing_of_this_node_is_shown_as_a_brokers() -> None:
    async with brokers(1) as fakes, office(brokers=fakes) as one, one.client() as client:
        for version in range(6):
            groups = await client.ask(ListGroupsRequest(), version)
            assert (groups.error_code, groups.groups) == (0, ())
        for version in range(5):
            dirs = await client.ask(DescribeLogDirsRequest(None), version)
            assert [(d.error_code, d.topics) for d in dirs.results] == [(0, ())]
        for version in (0, 1):
            await client.write(
                framed(struct.pack(">hhih4s", 66, version, 9, 4, b"name") + b"\0\1\1\0")
            )
            assert await client.frame() == struct.pack(">ibihbbb", 9, 0, 0, 0, 1, 1, 0)
        assert fakes[1].keys() == []


def own(resource: type[Any], *configs: Any) -> Any:
    return resource(BROKER, "1000", configs)


@pytest.mark.parametrize("version", range(5))
async def test_configs_of_this_node(version: int) -> None:
    async with brokers(1) as fakes, office(brokers=fakes, num_partitions=7) as one:
        resources = (
            DescribeConfigsResource(BROKER, "1000", None),
            DescribeConfigsResource(8, "1000", None),
        )
        answer = await one.ask(DescribeConfigsRequest(resources), version)
        described, loggers = answer.results
        configs = {c.name: c.value for c in described.configs}
        assert (described.error_code, configs["broker.id"]) == (0, "1000")
        assert configs["num.partitions"] == "7"
        assert (loggers.error_code, loggers.configs) == (0, ())
        some = DescribeConfigsResource(BROKER, "1000", ("broker.id", "no.such"))
        answer = await one.ask(DescribeConfigsRequest((some,)), version)
        assert [c.name for c in answer.results[0].configs] == ["broker.id"]
        assert fakes[1].keys() == []


async def test_configs_of_others_are_relayed() -> None:
    async with brokers(1) as fakes, office(brokers=fakes) as one:
        result = DescribeConfigsResult(resource_type=TOPIC, resource_name="t")
        fakes[1].answers[32] = DescribeConfigsResponse(results=(result,))
        request = DescribeConfigsRequest((DescribeConfigsResource(TOPIC, "t", None),))
        assert (await one.ask(request, 4)).results == (result,)
        assert fakes[1].frames[-1][1] == encode_request(request, 4, 1, "test")


@pytest.mark.parametrize("version", [1, 4])
async def test_configs_of_both_in_one_request(version: int) -> None:
    async with brokers(1) as fakes, office(brokers=fakes) as one:
        result = DescribeConfigsResult(resource_type=TOPIC, resource_name="1000")
        fakes[1].answers[32] = DescribeConfigsResponse(results=(result,))
        resources = (
            DescribeConfigsResource(TOPIC, "1000", None),
            DescribeConfigsResource(BROKER, "1000", None),
        )
        answer = await one.ask(DescribeConfigsRequest(resources), version)
        assert {(r.resource_type, r.resource_name) for r in answer.results} == {
            (TOPIC, "1000"),
            (BROKER, "1000"),
        }
        (header, relayed) = fakes[1].frames[-1]
        assert header.correlation_id == 1
        assert relayed == encode_request(DescribeConfigsRequest(resources[:1]), version, 1, "test")


@pytest.mark.parametrize("version", [0, 1])
async def test_throttles_are_cleared_on_this_node(version: int) -> None:
    """kafka-reassign-partitions does so on every node."""
    async with brokers(1) as fakes, office(brokers=fakes) as one:
        throttle = "leader.replication.throttled.rate"
        for config, error in (
            (IncrementalAlterableConfig(throttle, 1), KafkaError.NONE),
            (IncrementalAlterableConfig(throttle, 0, "1000"), KafkaError.NONE),
            (IncrementalAlterableConfig("num.io.threads", 1), KafkaError.NONE),
            (IncrementalAlterableConfig("num.io.threads", 0, "3"), KafkaError.INVALID_REQUEST),
        ):
            resource = own(IncrementalAlterConfigsResource, config)
            answer = await one.ask(IncrementalAlterConfigsRequest((resource,)), version)
            assert [(r.resource_name, r.error_code) for r in answer.responses] == [("1000", error)]
        assert fakes[1].keys() == []


@pytest.mark.parametrize("version", range(3))
async def test_configs_are_altered_the_old_way(version: int) -> None:
    async with brokers(1) as fakes, office(brokers=fakes) as one:
        done = AlterConfigsResourceResponse(resource_type=TOPIC, resource_name="t")
        fakes[1].answers[33] = AlterConfigsResponse(responses=(done,))
        fakes[1].answers[44] = IncrementalAlterConfigsResponse(responses=(done,))
        request = AlterConfigsRequest(
            (
                AlterConfigsResource(BROKER, "1000"),
                AlterConfigsResource(TOPIC, "t", (AlterableConfig("retention.ms", "1"),)),
            )
        )
        answer = await one.ask(request, version)
        assert [(r.resource_name, r.error_code) for r in answer.responses] == [
            ("1000", 0),
            ("t", 0),
        ]


# -- ApiVersions -----------------------------------------------------------------------------


def ranges(answer: Any) -> dict[int, tuple[int, int]]:
    return {v.api_key: (v.min_version, v.max_version) for v in answer.api_keys}


@pytest.mark.parametrize("version", range(5))
async def test_ours_for_what_we_serve_and_the_brokers_for_the_rest(version: int) -> None:
    async with brokers(2) as fakes, office(brokers=fakes) as one:
        old = {**BROKER_VERSIONS, 0: (3, 8), 19: (0, 5), 32: (0, 2), 16: (0, 3)}
        del old[60]
        fakes[1].versions = old
        found = ranges(await one.ask(ApiVersionsRequest("test", "1.0"), version))
        assert found[19] == (0, 7)
        assert found[56] == (0, 3)
        assert found[7] == (0, 3)
        assert found[18] == (0, 4)
        assert found[16] == (0, 5)
        assert found[66] == (0, 1)
        assert found[0] == (3, 8)
        assert found[1] == (0, 17)
        assert found[32] == (0, 2)
        assert not found.keys() & {4, 5, 6, 17, 27, 36, 58, 60}


async def test_brokers_are_asked_once_in_their_life() -> None:
    async with brokers(2) as fakes, office(brokers=fakes) as one:
        for _ in range(3):
            await one.ask(ApiVersionsRequest("test", "1.0"), 3)
        assert [len(fake.frames) for fake in fakes.values()] == [1, 1]
        fakes[2].versions = {**BROKER_VERSIONS, 1: (0, 11)}
        one.world.bounce(2)
        one.world.zk.brokers[2] = one.world.cluster.brokers[2]
        known = one.world.cluster.brokers[2]
        one.world.cluster.brokers[2] = type(known)(
            2, known.epoch, fakes[2].registration(2).endpoints
        )
        found = ranges(await one.ask(ApiVersionsRequest("test", "1.0"), 3))
        assert found[1] == (0, 11)
        assert [len(fake.frames) for fake in fakes.values()] == [1, 2]


async def test_a_broker_that_does_not_say_is_left_out() -> None:
    limits = {"versions_s": 0.05}
    async with brokers(2) as fakes, office(brokers=fakes, limits=limits) as one:
        fakes[1].silent = True
        fakes[2].versions = {**BROKER_VERSIONS, 1: (0, 16)}
        for _ in range(3):
            found = ranges(await one.ask(ApiVersionsRequest("test", "1.0"), 3))
            assert found[1] == (0, 16)


async def test_while_no_broker_can_be_asked_the_oldest_counts() -> None:
    async with office(others=(1,)) as one:
        found = ranges(await one.ask(ApiVersionsRequest("test", "1.0"), 3))
        assert {key: found[key] for key in SINCE_2_4} == SINCE_2_4
        assert found[19] == (0, 7)


async def test_versions_of_ApiVersions_that_nobody_knows() -> None:  # noqa: N802
    async with office(others=(1,)) as one, one.client() as client:
        for version in (5, 9, 32767, -1):
            await client.write(framed(struct.pack(">hhih4s", 18, version, 7, 4, b"name")))
            frame = await client.frame()
            assert frame == struct.pack(">ihi3h", 7, 35, 1, 18, 0, 4)
        assert ranges(await client.ask(ApiVersionsRequest("test", "1.0"), 4))


@pytest.mark.parametrize("name, software", [("", "1"), ("-x", "1"), ("x", "1 2"), ("x" * 9, "")])
async def test_software_without_a_proper_name(name: str, software: str) -> None:
    async with office(others=(1,)) as one:
        answer = await one.ask(ApiVersionsRequest(name, software), 3)
        assert answer.error_code == KafkaError.INVALID_REQUEST
