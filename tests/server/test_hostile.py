"""What strangers may send: the server stays up, nothing changes, others are served."""

import asyncio
import contextlib
import copy
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from kctl.server.limits import MIB
from kctl.server.server import Listener
from kctl.wire.admin import CreatableTopic, CreateTopicsRequest, ListPartitionReassignmentsRequest
from kctl.wire.apis import APIS, encode_request, framed
from kctl.wire.client import (
    ApiVersionsRequest,
    ListGroupsRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.server.office import PLAINTEXT, Client, FakeBroker, Office, office

pytestmark = pytest.mark.asyncio

LINES = ("t-0: 1*,2,3 epoch=5", "t-1: 2*,3,1 epoch=5")
CONTROLLER_KEYS = (7, 19, 20, 37, 43, 45, 46, 51, 56, 57, 67)
HEADER = ">hhih4s"


@contextlib.asynccontextmanager
async def unharmed(*, may_ask: bool = False, **options: Any) -> AsyncIterator[Office]:
    """Whatever happens inside, ZooKeeper stays as it is and a bystander is served."""
    async with office(*LINES, **options) as one, one.client() as bystander:
        await bystander.ask(ListGroupsRequest(), 0)
        before = copy.deepcopy(znodes(one))
        yield one
        assert (await bystander.ask(ListGroupsRequest(), 0)).error_code == 0
        fresh = await one.ask(ListPartitionReassignmentsRequest(5_000, None), 0)
        assert fresh.error_code == 0
        assert znodes(one) == before
        assert may_ask or len(one.events) == 1


def znodes(one: Office) -> tuple[object, ...]:
    zk = one.world.zk
    return (zk.states, zk.topics, zk.configs, zk.deletions, zk.users, zk.producer_ids)


async def closed_after(one: Office, data: bytes) -> bool:
    async with one.client() as client:
        await client.write(data)
        return await client.frame() is None


# -- frames ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "length", [-(2**31), -1, 0, 1, 7, 512 * 1024 + 1, 100 * MIB + 1, 2**31 - 1]
)
async def test_lengths_that_are_not_taken(length: int) -> None:
    async with unharmed() as one:
        assert await closed_after(one, struct.pack(">i", length) + b"\0" * 7)


async def test_large_frames_only_after_an_introduction() -> None:
    """And no larger than the limit even then."""
    async with unharmed(limits={"first_frame_bytes_max": 100, "frame_bytes_max": 200}) as one:
        padded = struct.pack(">hhih150s", 16, 0, 1, 150, b"x" * 150)
        assert await closed_after(one, framed(padded))
        async with one.client() as client:
            await client.ask(ApiVersionsRequest("test", "1"), 3)
            await client.write(framed(padded))
            assert await client.frame() is not None
            await client.write(struct.pack(">i", 201))
            assert await client.frame() is None


async def test_a_frame_in_single_bytes() -> None:
    async with unharmed() as one, one.client() as client:
        for byte in framed(encode_request(ListGroupsRequest(), 3, 1, "test")):
            await client.write(bytes([byte]))
            await asyncio.sleep(0)
        assert await client.frame() is not None


async def test_a_frame_cut_off_at_each_byte() -> None:
    async with unharmed() as one:
        whole = framed(encode_request(CreateTopicsRequest((CreatableTopic("x", 1, 1),)), 7, 1, "c"))
        for cut in range(len(whole)):
            async with one.client() as client:
                await client.write(whole[:cut])
                client.writer.write_eof()
                assert await client.frame() is None


async def test_those_who_never_finish_a_frame() -> None:
    async with unharmed(limits={"frame_s": 0.02}) as one:
        assert await closed_after(one, struct.pack(">i", 100) + b"\0" * 50)


async def test_those_who_never_say_anything() -> None:
    async with unharmed(limits={"first_frame_s": 0.02}) as one:
        for start in (b"", b"\0", b"\0\0\0"):
            assert await closed_after(one, start)


async def test_those_who_have_nothing_more_to_say() -> None:
    async with office(*LINES, limits={"idle_s": 0.02}) as one, one.client() as client:
        assert (await client.ask(ListGroupsRequest(), 0)).error_code == 0
        assert await client.frame() is None


async def test_those_who_do_not_take_their_answers() -> None:
    """Each answer has a hundred topics with all their configs."""
    async with unharmed(limits={"frame_s": 0.1}, may_ask=True) as one:
        async with one.client() as client:
            topics = tuple(CreatableTopic(f"x{n}", 1, 1) for n in range(100))
            request = encode_request(CreateTopicsRequest(topics, 0, validate_only=True), 7, 1, "c")
            with contextlib.suppress(ConnectionError):
                async with asyncio.timeout(15):
                    while True:
                        await client.write(framed(request) * 10)
        async with asyncio.timeout(10):
            while one.server.connections > 1:  # noqa: ASYNC110 the server has no event for it
                await asyncio.sleep(0.01)


async def test_what_is_pipelined_waits_in_the_clients_own_buffers() -> None:
    """One request is worked on and one is read ahead: a flood is not held in memory."""
    release = asyncio.Event()
    asked = 0

    async def slow(_event_for: object) -> Any:
        nonlocal asked
        asked += 1
        await release.wait()
        raise RuntimeError("never answered")

    async with office(*LINES, ask=slow) as one, one.client() as client:
        request = encode_request(ListPartitionReassignmentsRequest(5_000, None), 0, 1, "c" * 30_000)
        client.writer.write(framed(request) * 1_000)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                await client.writer.drain()
        assert asked == 1
        assert client.writer.transport.get_write_buffer_size() > 10 * MIB
        release.set()


async def test_many_large_frames_share_a_budget() -> None:
    limits = {"large_frame_bytes": 1_000, "large_frames_bytes_max": 3_000}
    async with unharmed(limits=limits) as one:
        large = framed(encode_request(ListGroupsRequest(), 0, 1, "c" * 1_990))
        async with one.client() as waiting:
            async with one.client() as holder:
                await holder.write(struct.pack(">i", 2_000))
                await holder_holds(one, 2_000)
                await waiting.write(large)
                reading = asyncio.create_task(waiting.frame())
                assert (await one.ask(ListGroupsRequest(), 0)).error_code == 0
                assert not reading.done()
            assert await reading is not None
        await holder_holds(one, 0)


async def holder_holds(one: Office, size: int) -> None:
    async with asyncio.timeout(10):
        while one.server._large_frames._held != size:  # noqa: ASYNC110 it has no event for it
            await asyncio.sleep(0.001)


# -- connections -----------------------------------------------------------------------------


async def test_no_more_connections_than_allowed() -> None:
    async with office(*LINES, limits={"connections_max": 3}) as one:
        await _full(one, 3)


async def test_no_more_connections_from_one_address_than_allowed() -> None:
    async with office(*LINES, limits={"connections_per_address_max": 2}) as one:
        await _full(one, 2)
        async with one.client(local_addr=("127.0.0.2", 0)) as other:
            assert (await other.ask(ListGroupsRequest(), 0)).error_code == 0


async def _full(one: Office, room: int) -> None:
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(one.client()) for _ in range(room)]
        for client in clients:
            assert (await client.ask(ListGroupsRequest(), 0)).error_code == 0
        async with one.client() as outside:
            assert await _refused(outside)
        clients[0].writer.close()
        await clients[0].writer.wait_closed()
        async with asyncio.timeout(10):
            while True:
                async with one.client() as inside:
                    if not await _refused(inside):
                        break


async def _refused(client: Client) -> bool:
    try:
        await client.send(ListGroupsRequest(), 0)
    except ConnectionError:
        return True
    return await client.frame() is None


async def test_a_client_that_leaves_is_not_worked_for_any_longer() -> None:
    gone = asyncio.Event()

    async def slow(_event_for: object) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    async with office(*LINES, ask=slow) as one:
        async with one.client() as client:
            await client.send(ListPartitionReassignmentsRequest(5_000, None), 0)
            await asyncio.sleep(0.01)
        await asyncio.wait_for(gone.wait(), 10)


async def test_a_request_behind_which_nonsense_follows_is_answered() -> None:
    async with unharmed() as one, one.client() as client:
        good = framed(encode_request(ListGroupsRequest(), 0, 1, "test"))
        await client.write(good + struct.pack(">i", -5))
        assert await client.frame() is not None
        assert await client.frame() is None


async def test_a_bug_in_a_handler_costs_one_connection(capsys: pytest.CaptureFixture[str]) -> None:
    async def broken(_event_for: Callable[[int], Any]) -> Any:
        raise RuntimeError("a bug")

    async with office(*LINES, ask=broken) as one:
        request = encode_request(ListPartitionReassignmentsRequest(5_000, None), 0, 1, "test")
        assert await closed_after(one, framed(request))
        async with one.client() as client:
            assert (await client.ask(ListGroupsRequest(), 0)).error_code == 0
    assert "a bug" in capsys.readouterr().out


# -- requests --------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [16, 35, 32, 33, 44, 4, 5, 6, 58, 66, *CONTROLLER_KEYS])
async def test_versions_that_do_not_exist(key: int) -> None:
    async with unharmed() as one:
        last = 1 if key == 66 else APIS[key].last
        for version in (-1, last + 1, 32767, -32768):
            request = struct.pack(HEADER, key, version, 1, 4, b"name") + b"\0" * 50
            assert await closed_after(one, framed(request))


@pytest.mark.parametrize("key", CONTROLLER_KEYS)
async def test_counts_and_lengths_without_end(key: int) -> None:
    """All bytes of the body say: as many as can be said."""
    async with unharmed(may_ask=True) as one:
        api = APIS[key]
        for version in range(api.first, api.last + 1):
            for body in (
                b"\xff\xff\xff\xff\x07" * 20,
                b"\x7f\xff\xff\xff" * 20,
                b"\x80" * 80,
                b"",
                b"\0",
            ):
                client_id = b"" if key == 7 and version == 0 else struct.pack(">h4s", 4, b"name")
                tags = b"\0" if api.is_flexible(version) else b""
                header = struct.pack(">hhi", key, version, 1) + client_id + tags
                async with one.client() as client:
                    await client.write(framed(header + body))
                    client.writer.write_eof()
                    await client.frame()


@pytest.mark.parametrize("key", [7, 18, 19, 20, 56, 3])
async def test_headers_that_end_too_early_or_lie(key: int) -> None:
    async with unharmed() as one:
        last = APIS[key].last
        for rest in (
            b"",
            b"\x7f\xff",
            b"\x80\0",
            b"\0\x04na",
            b"\0\x02\xff\xfe\0",
            b"\0\0\xff\xff",
        ):
            assert await closed_after(one, framed(struct.pack(">hhi", key, last, 1) + rest))


@hypothesis.settings(max_examples=60, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(key=st.sampled_from(CONTROLLER_KEYS), data=st.data(), tail=st.binary(max_size=60))
async def test_any_bytes_at_all(key: int, data: st.DataObject, tail: bytes) -> None:
    """Either they are a request, or the connection is closed: decided without a hitch."""
    version = data.draw(st.integers(APIS[key].first, APIS[key].last))
    header = struct.pack(HEADER, key, version, 1, 4, b"name")
    async with office(*LINES) as one, one.client() as client:
        await client.write(framed(header + tail))
        client.writer.write_eof()
        await client.frame()
        assert (await one.ask(ListGroupsRequest(), 0)).error_code == 0


# -- before somebody is known ----------------------------------------------------------------


@contextlib.asynccontextmanager
async def guarded(**options: Any) -> AsyncIterator[tuple[Office, FakeBroker]]:
    async with (
        FakeBroker().running() as fake,
        office(
            brokers={1: fake},
            listeners=(Listener(PLAINTEXT), Listener("SASL", sasl=True)),
            **options,
        ) as one,
    ):
        one.world.cluster.brokers[1] = fake.registration(1, "SASL")
        fake.answers[17] = SaslHandshakeResponse(0, ("PLAIN",))
        fake.answers[36] = SaslAuthenticateResponse(58, "who are you?")
        yield one, fake


@pytest.mark.parametrize("key", [3, 4, 16, 22, 36, 66, 1_000, *CONTROLLER_KEYS])
async def test_any_request_of_a_stranger(key: int) -> None:
    """Nothing but a handshake reaches a broker, and nothing at all the controller."""
    async with guarded() as (one, fake):
        for version in range(4):
            async with one.client("SASL") as client:
                request = struct.pack(HEADER, key, version, 1, 4, b"name") + b"\0" * 50
                await client.write(framed(request))
                assert await client.frame() is None
        assert one.events == []
        assert fake.keys() == []


async def test_tokens_are_relayed_after_a_handshake_only_and_until_they_fail() -> None:
    async with guarded() as (one, fake):
        async with one.client("SASL") as client:
            assert (await client.ask(SaslHandshakeRequest("PLAIN"), 1)).error_code == 0
            await client.send(SaslAuthenticateRequest(b"\0a\0b"), 2)
            await client.send(SaslAuthenticateRequest(b"\0a\0c"), 2)
            answer = await client.frame()
            assert answer is not None
            assert await client.frame() is None
        async with one.client("SASL") as client:
            fake.answers[17] = SaslHandshakeResponse(33, ())
            assert (await client.ask(SaslHandshakeRequest("PLAIN"), 1)).error_code == 33
            assert await client.frame() is None
        assert fake.keys() == [17, 36, 17]


async def test_strangers_are_not_waited_for_as_long_as_others() -> None:
    async with guarded(limits={"first_frame_s": 0.05}) as (one, _):
        async with one.client("SASL") as client:
            await client.ask(ApiVersionsRequest("test", "1"), 3)
            assert await client.frame() is None
        async with one.client() as known:
            await known.ask(ApiVersionsRequest("test", "1"), 3)
            await asyncio.sleep(0.1)
            assert (await known.ask(ListGroupsRequest(), 0)).error_code == 0


@hypothesis.settings(max_examples=40, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(key=st.sampled_from((17, 36)), tail=st.binary(max_size=60))
async def test_any_bytes_for_a_handshake(key: int, tail: bytes) -> None:
    async with guarded() as (one, _), one.client("SASL") as client:
        await client.write(framed(struct.pack(HEADER, key, 1, 1, 4, b"name") + tail))
        client.writer.write_eof()
        await client.frame()
        assert (await one.ask(ListGroupsRequest(), 0)).error_code == 0
        assert one.events == []
