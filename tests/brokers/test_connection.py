"""Connections: aiokafka's way in (TLS, SASL, versions), our frames, and what they rely on."""

import asyncio
import inspect
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiokafka.conn
import pytest

from kctl.brokers.connection import Address, Connection, ConnectionFailed, Security
from kctl.brokers.simulated import SimulatedBroker
from kctl.wire import apis, client
from tests.brokers.sasl_server import SecuredBroker

ON_BOTH_LOOPS = True
CERTIFICATE = Path(__file__).parent / "certificate.pem"
USERS = {"kctl": "secret", "odd=name,": "påss"}


def server_tls() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE)
    return context


def client_tls() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(CERTIFICATE))


async def opened(address: Address, security: Security | None = None, **more: Any) -> Connection:
    return await Connection.open(
        address, client_id="1000", security=security or Security(), connect_timeout_s=10, **more
    )


async def ask_for_metadata(connection: Connection) -> client.MetadataResponse:
    frame, pos = await connection.exchange(3, 12, apis.encode(client.MetadataRequest(), 12))
    return apis.decode(client.MetadataResponse, 12, frame, pos)


@asynccontextmanager
async def running(broker: SimulatedBroker) -> AsyncIterator[SimulatedBroker]:
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


# -- what we rely on -------------------------------------------------------------------------


def test_the_internals_of_aiokafka_that_are_relied_upon() -> None:
    """`_FrameLink` replaces the reader and reads these attributes. If this fails, read conn.py
    of the new aiokafka before changing the test."""
    cls = aiokafka.conn.AIOKafkaConnection
    assert isinstance(inspect.getattr_static(cls, "_read"), staticmethod)
    assert list(inspect.signature(cls._read).parameters) == ["self_ref"]
    assert list(inspect.signature(cls._handle_frame).parameters) == ["self", "resp"]
    assert list(inspect.signature(cls.close).parameters) == ["self", "reason", "exc"]
    assert "self._read(self_ref)" in inspect.getsource(cls._create_reader_task)
    connect = inspect.getsource(cls.connect)
    assert connect.index("_create_reader_task") < connect.index("_do_version_lookup")
    assert connect.index("_do_version_lookup") < connect.index("_do_sasl_handshake")
    init = inspect.getsource(cls.__init__)
    for name in ("_versions", "_reader", "_writer", "_protocol", "_requests", "_closed_fut"):
        assert f"self.{name} = " in init, name
    assert "self._requests.append" in inspect.getsource(cls.send)
    assert "self._writer = self._reader = None" in inspect.getsource(cls.close)
    parameters = inspect.signature(cls.__init__).parameters
    for name in (
        "client_id",
        "request_timeout_ms",
        "security_protocol",
        "ssl_context",
        "sasl_mechanism",
        "sasl_plain_username",
        "sasl_plain_password",
    ):
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY


# -- TLS and SASL ----------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("user", list(USERS))
async def test_sasl(mechanism: str, tls: bool, user: str) -> None:
    async with SecuredBroker(
        SimulatedBroker(1), ssl_context=server_tls() if tls else None, users=USERS
    ) as server:
        address = Address("127.0.0.1", server.port, "SASL_SSL" if tls else "SASL_PLAINTEXT")
        security = Security(client_tls() if tls else None, mechanism, user, USERS[user])
        connection = await opened(address, security)
        assert await ask_for_metadata(connection) == client.MetadataResponse()
        assert connection.versions[4] == (0, 7)
        assert server.authenticated == [f"{mechanism} {user}"]
        await connection.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_wrong_password_is_a_failed_connection(mechanism: str) -> None:
    async with SecuredBroker(SimulatedBroker(1), users=USERS) as server:
        address = Address("127.0.0.1", server.port, "SASL_PLAINTEXT")
        with pytest.raises(ConnectionFailed, match="who are you"):
            await opened(address, Security(None, mechanism, "kctl", "wrong"))
    assert "wrong" not in repr(Security(None, mechanism, "kctl", "wrong"))


@pytest.mark.asyncio
async def test_a_mechanism_that_the_broker_does_not_have() -> None:
    async with SecuredBroker(
        SimulatedBroker(1), users=USERS, mechanisms=("SCRAM-SHA-512",)
    ) as server:
        address = Address("127.0.0.1", server.port, "SASL_PLAINTEXT")
        with pytest.raises(ConnectionFailed):
            await opened(address, Security(None, "PLAIN", "kctl", "secret"))


@pytest.mark.asyncio
async def test_tls() -> None:
    async with SecuredBroker(SimulatedBroker(1), ssl_context=server_tls()) as server:
        connection = await opened(
            Address("127.0.0.1", server.port, "SSL"), Security(ssl_context=client_tls())
        )
        assert await ask_for_metadata(connection) == client.MetadataResponse()
        await connection.close()


@pytest.mark.asyncio
async def test_a_certificate_that_is_not_trusted() -> None:
    async with SecuredBroker(SimulatedBroker(1), ssl_context=server_tls()) as server:
        address = Address("127.0.0.1", server.port, "SSL")
        with pytest.raises(ConnectionFailed, match="certificate"):
            await opened(address, Security(ssl_context=ssl.create_default_context()))
        with pytest.raises(ConnectionFailed):
            await opened(address, Security())


# -- frames ----------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_nobody_listens() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionFailed, match=r"PLAINTEXT://127\.0\.0\.1"):
            await opened(Address("127.0.0.1", reserved.getsockname()[1]))


@pytest.mark.asyncio
async def test_requests_one_after_the_other_have_their_own_answers() -> None:
    async with running(SimulatedBroker(1)) as broker:
        connection = await opened(Address("127.0.0.1", broker.port))
        for _ in range(10):
            assert await ask_for_metadata(connection) == client.MetadataResponse()
        assert broker.connections_made == 1
        await connection.close()
        assert not connection.is_open
        with pytest.raises(ConnectionFailed, match="gone"):
            await ask_for_metadata(connection)


@pytest.mark.asyncio
async def test_a_cancelled_request_closes_the_connection() -> None:
    """Its answer would come when the next one is awaited."""
    broker = SimulatedBroker(1)
    async with running(broker):
        connection = await opened(Address("127.0.0.1", broker.port))
        broker.delay_s = 5
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ask_for_metadata(connection), 0.05)
        assert not connection.is_open


@pytest.mark.asyncio
async def test_a_broker_that_goes_away_fails_the_request_at_once() -> None:
    broker = SimulatedBroker(1)
    async with running(broker):
        connection = await opened(Address("127.0.0.1", broker.port))
        broker.delay_s = 5
        asked = asyncio.ensure_future(ask_for_metadata(connection))
        await asyncio.sleep(0.02)
        broker.cut()
        with pytest.raises(ConnectionFailed):
            await asked
        assert not connection.is_open


@asynccontextmanager
async def odd_server(answer: bytes) -> AsyncIterator[int]:
    """Answers ApiVersions rightly and everything else with these bytes."""
    broker = SimulatedBroker(1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                data = await reader.readexactly(size)
                header, _body_at = apis.decode_request_header(data)
                if header.api_key == apis.API_VERSIONS:
                    told = (client.ApiVersion(k, *v) for k, v in broker.versions.items())
                    versions = client.ApiVersionsResponse(api_keys=tuple(told))
                    writer.write(
                        apis.framed(apis.encode_response(versions, 0, header.correlation_id))
                    )
                else:
                    writer.write(answer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "answer",
    [
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">ii", 4, 99) + b"\0",
        struct.pack(">i", 2001) + bytes(2001),
    ],
    ids=["huge", "negative", "empty", "another request's", "over the limit"],
)
async def test_odd_answers_fail_the_connection_and_nothing_else(answer: bytes) -> None:
    async with odd_server(answer) as port:
        connection = await opened(Address("127.0.0.1", port), answer_bytes_max=2000)
        with pytest.raises(ConnectionFailed):
            await ask_for_metadata(connection)
        assert not connection.is_open
        await connection.close()


@pytest.mark.asyncio
async def test_an_answer_that_nothing_was_asked_for_closes_the_connection() -> None:
    late = apis.framed(struct.pack(">i", 1) + b"\0")
    async with odd_server(late + late) as port:
        connection = await opened(Address("127.0.0.1", port))
        try:
            await connection.exchange(6, 8, b"body")
        except ConnectionFailed:
            pass
        for _ in range(100):
            if not connection.is_open:
                break
            await asyncio.sleep(0.01)
        assert not connection.is_open


@pytest.mark.asyncio
async def test_a_slow_reader_makes_the_writer_wait() -> None:
    """Eighty megabytes to a broker that reads nothing: only some of it leaves, little is copied."""
    accepted: list[asyncio.StreamWriter] = []
    broker = SimulatedBroker(1)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        header, body_at = apis.decode_request_header(data := await reader.readexactly(size))
        told = (client.ApiVersion(k, *v) for k, v in broker.versions.items())
        del body_at, data
        answer = apis.encode_response(
            client.ApiVersionsResponse(api_keys=tuple(told)), 0, header.correlation_id
        )
        writer.write(apis.framed(answer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1024)
    connection = await opened(Address("127.0.0.1", server.sockets[0].getsockname()[1]))
    large = bytes(80 * 1024 * 1024)
    asked = asyncio.ensure_future(connection.exchange(6, 8, large))
    await asyncio.sleep(0.2)
    assert not asked.done()
    writer = connection._link.writer
    assert writer is not None
    assert writer.transport.get_write_buffer_size() < 1024 * 1024
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert not connection.is_open
    for server_side in accepted:
        server_side.transport.abort()
    server.close()
    await server.wait_closed()
    await asyncio.sleep(0)
