"""The relay: every request that is not the controller's goes on, unchanged, to a broker.

Clients take this node for a broker because the brokers list it. One broker is pinned to each client
connection, on the listener that the client came in on, so that addresses in answers are right for
this client. The request keeps its correlation id, the answer is handed back as it is.
"""

import asyncio
import ssl as tls
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping

import structlog

from kctl.model.brokers import Broker, Endpoint
from kctl.model.cluster import ClusterState
from kctl.server.frames import Unacceptable, read_answer, write_frame
from kctl.server.limits import Limits
from kctl.wire.apis import RequestHeader
from kctl.wire.compiler import skip_tags
from kctl.wire.primitives import WireError, read_uvarint

log = structlog.get_logger("kctl.server")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Dial = Callable[[Endpoint], Awaitable[Streams]]
"""Opens a connection to a broker's endpoint, ready for requests."""

PRODUCE = 0
FLEXIBLE_PRODUCE, TRANSACTIONAL_PRODUCE = 9, 3

READ_ONLY = frozenset({1, 2, 3, 9, 10, 15, 23, 29, 32, 41, 48, 50, 60, 61, 65, 69})
"""Fetch, ListOffsets, Metadata, OffsetFetch, FindCoordinator and all that describe: when a broker
dies with such a request in its hands, another one may be asked."""

ATTEMPTS_MAX = 3


def dialer(limits: Limits, contexts: Mapping[str, tls.SSLContext] | None = None) -> Dial:
    """TLS for the listeners that have a context here. No SASL: that is the client's own affair."""

    async def dial(endpoint: Endpoint) -> Streams:
        context = (contexts or {}).get(endpoint.listener)
        if (context is not None) != endpoint.security_protocol.endswith("SSL"):
            raise ConnectionError(f"{endpoint.listener} asks for {endpoint.security_protocol}")
        try:
            async with asyncio.timeout(limits.connect_s):
                return await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
        except TimeoutError:
            raise ConnectionError(f"{endpoint.host}:{endpoint.port} does not answer") from None

    return dial


class Relay:
    """The brokers, as the controller last saw them: a client may still need one while it resigns."""

    def __init__(self, view: Callable[[], ClusterState | None], dial: Dial, limits: Limits) -> None:
        self._view = view
        self._seen: tuple[Broker, ...] = ()
        self._turn = 0
        self.dial = dial
        self.limits = limits

    def brokers(self) -> tuple[Broker, ...]:
        state = self._view()
        if state is not None:
            # One that is shutting down is as good as gone for a new connection.
            self._seen = tuple(state.brokers[b] for b in state.live or state.brokers)
        return self._seen

    def endpoints(self, listener: str) -> Iterator[tuple[Broker, Endpoint]]:
        """Beginning with another one each time, so that clients are spread over the brokers."""
        offered = [
            (broker, endpoint)
            for broker in self.brokers()
            for endpoint in broker.endpoints
            if endpoint.listener == listener
        ]
        self._turn += 1
        for index in range(len(offered)):
            yield offered[(self._turn + index) % len(offered)]


class Pin:
    """The broker behind one client connection; another one takes its place when it is gone."""

    def __init__(self, relay: Relay, listener: str) -> None:
        self._relay = relay
        self._listener = listener
        self._streams: Streams | None = None
        self._stays = False
        self._lost = False
        self.broker: Broker | None = None

    def stay(self) -> None:
        """From now on with this broker: it is about to know the client, others would not."""
        self._stays = True

    async def relay(self, header: RequestHeader, frame: bytes, body: int) -> bytes | None:
        """The broker's answer; None if the request is one that gets none."""
        answered = not _without_answer(header, frame, body)
        for attempt in range(ATTEMPTS_MAX):
            reader, writer = await self._connected()
            try:
                await write_frame(writer, frame, self._relay.limits.frame_s)
                if not answered:
                    return None
                async with asyncio.timeout(self._relay.limits.relay_s):
                    answer = await read_answer(reader, self._relay.limits)
            except (OSError, TimeoutError) as problem:
                self.close()
                if header.api_key in READ_ONLY and attempt + 1 < ATTEMPTS_MAX:
                    continue
                raise Unacceptable(f"relayed, but not answered: {problem!r}") from None
            except BaseException:
                # The answer is still to come, and would be taken for that of the next request.
                self.close()
                raise
            if answer[:4] != struct.pack(">i", header.correlation_id):
                self.close()
                raise Unacceptable("a broker answered another request than the one relayed")
            return answer
        raise AssertionError("the last attempt returns or raises")

    async def _connected(self) -> Streams:
        if self._streams is not None:
            if not self._streams[0].at_eof() and not self._streams[1].is_closing():
                return self._streams
            self.close()
        if self._lost:
            raise Unacceptable("the broker that knew this client is gone")
        for broker, endpoint in self._relay.endpoints(self._listener):
            try:
                self._streams = await self._relay.dial(endpoint)
            except OSError as problem:
                log.debug("broker not reached", broker=broker.id, problem=repr(problem))
                continue
            self.broker = broker
            return self._streams
        raise Unacceptable(f"no live broker can be reached on listener {self._listener}")

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._lost = self._stays
        self._streams = self.broker = None


def _without_answer(header: RequestHeader, frame: bytes, body: int) -> bool:
    """Producers that ask for no acknowledgement get no answer at all."""
    if header.api_key != PRODUCE:
        return False
    pos = body
    try:
        if header.api_version >= FLEXIBLE_PRODUCE:
            count, pos = read_uvarint(frame, pos)
            pos = skip_tags(frame, pos, len(frame), count)
            length, pos = read_uvarint(frame, pos)
            pos += max(0, length - 1)
        elif header.api_version >= TRANSACTIONAL_PRODUCE:
            (length,) = struct.unpack_from(">h", frame, pos)
            pos += 2 + max(0, length)
        (acks,) = struct.unpack_from(">h", frame, pos)
    except (struct.error, IndexError, WireError) as problem:
        raise Unacceptable(f"Produce: {problem}") from None
    return bool(acks == 0)
