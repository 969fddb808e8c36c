"""A connection to a broker: aiokafka's way in, our own frames from then on.

aiokafka connects, does TLS and SASL and asks for the broker's versions. Its `send`, though, copies
every body, never waits for the socket, and its reader takes answers of any size. So requests are
written here, slice by slice as the socket takes them, and the reader is replaced by one that knows
a limit. `tests/brokers/test_connection.py` fails when the internals relied upon here change.
"""

import asyncio
import ssl
import struct
import weakref
from collections.abc import Mapping
from typing import Any

import attrs
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaError as AiokafkaError

from kctl.wire import apis
from kctl.wire.primitives import WireError

SLICE_BYTES = 256 * 1024
"""Written before looking whether the socket keeps up: bounds what a slow broker makes us hold."""
ANSWER_BYTES_MAX = 100 * 1024 * 1024
"""As `socket.request.max.bytes` of brokers."""
CLOSE_TIMEOUT_S = 1.0

_LENGTH = struct.Struct(">i")


class ConnectionFailed(Exception):
    """The broker cannot be reached, or the connection is gone. Try again with a new one."""


@attrs.frozen
class Security:
    """What brokers ask of whom they talk to; which of it depends on the endpoint's protocol."""

    ssl_context: ssl.SSLContext | None = None
    sasl_mechanism: str | None = None
    """PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."""
    username: str | None = None
    password: str | None = attrs.field(default=None, repr=False)


@attrs.frozen
class Address:
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        return f"{self.security_protocol}://{self.host}:{self.port}"


class _FrameLink(AIOKafkaConnection):  # type: ignore[misc]  # aiokafka ships no types
    """aiokafka's connection with a reader that limits frames and hands ours over unread."""

    answer_bytes_max = ANSWER_BYTES_MAX
    awaited: asyncio.Future[bytes] | None = None
    """Set while a frame of ours is to be answered; aiokafka's own requests are over by then."""

    @property
    def told_versions(self) -> Mapping[int, tuple[int, int]]:
        versions: Mapping[int, tuple[int, int]] = self._versions
        return versions

    @property
    def stream(self) -> asyncio.StreamReader | None:
        reader: asyncio.StreamReader | None = self._reader
        return reader

    @property
    def writer(self) -> asyncio.StreamWriter | None:
        writer: asyncio.StreamWriter | None = self._writer
        return writer

    @staticmethod
    async def _read(self_ref: "weakref.ref[_FrameLink]") -> None:
        """Runs as aiokafka's reader task; holds no reference to the link while it waits."""
        link = self_ref()
        if link is None or link.stream is None:
            return
        reader, limit = link.stream, link.answer_bytes_max
        del link
        while True:
            (size,) = _LENGTH.unpack(await reader.readexactly(4))
            if not 0 <= size <= limit:
                raise ConnectionError(f"an answer of {size} bytes, {limit} are allowed")
            frame = await reader.readexactly(size)
            link = self_ref()
            if link is None:
                return
            link.take(frame)
            del link

    def take(self, frame: bytes) -> None:
        awaited = self.awaited
        if awaited is not None:
            self.awaited = None
            if not awaited.done():
                awaited.set_result(frame)
        elif self._requests:
            self._handle_frame(frame)
        else:
            raise ConnectionError("an answer that nothing was asked for")

    def close(self, reason: object = None, exc: BaseException | None = None) -> Any:
        awaited, self.awaited = self.awaited, None
        if awaited is not None and not awaited.done():
            awaited.set_exception(ConnectionFailed(f"closed: {exc or reason or 'by us'}"))
            awaited.exception()  # seen: whoever waits is told, and nobody may be waiting
        return super().close(reason, exc)

    def abort(self) -> None:
        """Close at once; what is not on the wire yet is not sent."""
        writer = self.writer
        if writer is not None:
            writer.transport.abort()
        self.close()

    async def gone(self) -> None:
        """The socket is closed, or it takes too long."""
        self.abort()
        if self._protocol is not None:
            await asyncio.wait([self._closed_fut], timeout=CLOSE_TIMEOUT_S)


class Connection:
    """An authenticated connection. One request at a time."""

    def __init__(self, link: _FrameLink, address: Address, client_id: str, timeout_s: float):
        self._link = link
        self._address = address
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._correlation_id = 0

    @classmethod
    async def open(
        cls,
        address: Address,
        *,
        client_id: str,
        security: Security,
        connect_timeout_s: float = 30.0,
        request_timeout_s: float = 30.0,
        answer_bytes_max: int = ANSWER_BYTES_MAX,
    ) -> "Connection":
        link = _FrameLink(
            address.host,
            address.port,
            client_id=client_id,
            request_timeout_ms=int(connect_timeout_s * 1000),
            security_protocol=address.security_protocol,
            ssl_context=security.ssl_context,
            sasl_mechanism=security.sasl_mechanism,
            sasl_plain_username=security.username,
            sasl_plain_password=security.password,
        )
        link.answer_bytes_max = answer_bytes_max
        try:
            async with asyncio.timeout(connect_timeout_s):
                await link.connect()
        except (OSError, AiokafkaError, AssertionError, ValueError, TypeError) as problem:
            # aiokafka asserts what it was told (a TLS context, known mechanisms) and what SCRAM says.
            await link.gone()
            raise ConnectionFailed(f"{address}: {_why(problem)}") from problem
        except BaseException:
            link.abort()
            raise
        return cls(link, address, client_id, request_timeout_s)

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """The lowest and highest version by API key, as the broker told."""
        return self._link.told_versions

    @property
    def is_open(self) -> bool:
        return bool(self._link.connected())

    async def exchange(self, key: int, version: int, *parts: bytes) -> tuple[bytes, int]:
        """Send a request whose body comes in parts. The answer, and where its body begins."""
        link = self._link
        if not self.is_open:
            raise ConnectionFailed(f"{self._address}: the connection is gone")
        if link.awaited is not None:
            raise RuntimeError("one request at a time")
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        header = apis.encode_request_header(
            apis.RequestHeader(key, version, self._correlation_id, self._client_id)
        )
        answer = link.awaited = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._write(header, parts)
                frame = await answer
            return frame, self._body_at(key, version, frame)
        except (OSError, WireError, ConnectionFailed) as problem:
            self.abort()
            raise ConnectionFailed(f"{self._address}: {_why(problem)}") from problem
        except BaseException:
            # Cancelled: a late answer must not be taken for the next request's.
            self.abort()
            raise

    def _body_at(self, key: int, version: int, frame: bytes) -> int:
        correlation_id, pos = apis.decode_response_header(key, version, frame)
        if correlation_id != self._correlation_id:
            raise WireError(f"answer to request {correlation_id}, not {self._correlation_id}")
        return pos

    async def _write(self, header: bytes, parts: tuple[bytes, ...]) -> None:
        writer = self._link.writer
        assert writer is not None
        length = len(header) + sum(map(len, parts))
        writer.write(_LENGTH.pack(length) + header)
        for part in parts:
            if len(part) <= SLICE_BYTES:
                writer.write(part)
                continue
            view = memoryview(part)
            for start in range(0, len(part), SLICE_BYTES):
                writer.write(view[start : start + SLICE_BYTES])
                await writer.drain()
        await writer.drain()

    def abort(self) -> None:
        """Close at once; what is not on the wire yet is not sent."""
        self._link.abort()

    async def close(self) -> None:
        await self._link.gone()


def _why(problem: BaseException) -> str:
    return str(problem) or type(problem).__name__
