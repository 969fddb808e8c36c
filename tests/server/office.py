"""A server with the real core behind it, on a ZooKeeper in memory; clients and brokers in front."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Any, TypeVar

import attrs

from kctl.messages.answers import AnswerValue
from kctl.messages.events import Caller, Event, Startup
from kctl.model.brokers import Broker, Endpoint
from kctl.model.cluster import ClusterState
from kctl.model.names import TopicPartition
from kctl.server.access import ControllerAccess
from kctl.server.limits import Limits
from kctl.server.relay import Dial
from kctl.server.rights import Rights
from kctl.server.server import Listener, Server
from kctl.wire.apis import (
    APIS,
    OF_MESSAGE,
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    framed,
)
from kctl.wire.client import (
    ApiVersion,
    ApiVersionsResponse,
    MetadataResponse,
    MetadataResponseBroker,
)
from kctl.wire.schema import Struct
from tests.logic.notation import CONTROLLER
from tests.logic.world import World, build_zookeeper

S = TypeVar("S", bound=Struct)

PLAINTEXT = "PLAINTEXT"


@attrs.define
class Told:
    """Acknowledgements: all brokers are quick, unless a test holds them back."""

    holding: bool = False
    asked: list[Collection[TopicPartition]] = attrs.field(factory=list)
    on_asked: asyncio.Event = attrs.field(factory=asyncio.Event)
    released: asyncio.Event = attrs.field(factory=asyncio.Event)

    async def until_told(
        self, partitions: Collection[TopicPartition], timeout_s: float
    ) -> Collection[TopicPartition]:
        self.asked.append(partitions)
        self.on_asked.set()
        if self.holding:
            try:
                async with asyncio.timeout(timeout_s):
                    await self.released.wait()
            except TimeoutError:
                return partitions
        return ()


@attrs.define
class Office:
    world: World
    server: Server
    told: Told
    events: list[Event]
    """What the core was asked."""
    answered: asyncio.Event
    """It has answered, for the first time at least."""

    @property
    def port(self) -> int:
        return self.server.ports[PLAINTEXT]

    @contextlib.asynccontextmanager
    async def client(self, listener: str = PLAINTEXT, **options: Any) -> AsyncIterator["Client"]:
        async with connected(self.server.ports[listener], **options) as client:
            yield client

    async def ask(self, message: Struct, version: int) -> Any:
        """On a connection of its own."""
        async with self.client() as client:
            return await client.ask(message, version)


@contextlib.asynccontextmanager
async def office(
    *lines: str,
    brokers: Mapping[int, "FakeBroker"] | None = None,
    others: tuple[int, ...] = (),
    elected: bool = True,
    listeners: tuple[Listener, ...] = (Listener(PLAINTEXT),),
    limits: Mapping[str, Any] | None = None,
    rights: Rights | None = None,
    dial: Dial | None = None,
    ask: Callable[[Callable[[Caller], Event]], Any] | None = None,
    **changes: Any,
) -> AsyncIterator[Office]:
    """`brokers` are there to be relayed to; those that only `lines` name cannot be reached."""
    zookeeper = build_zookeeper(*lines, brokers=(*(brokers or ()), *others))
    for number, known in zookeeper.brokers.items():
        assert isinstance(known, Broker)
        nobody = Endpoint(PLAINTEXT, "127.0.0.1", 1)
        zookeeper.brokers[number] = attrs.evolve(known, endpoints=(nobody,))
    for number, fake in (brokers or {}).items():
        zookeeper.brokers[number] = fake.registration(number)
    world = World.over(zookeeper, **changes)
    if elected:
        world.run(Startup())
    told = Told()
    events: list[Event] = []
    answered = asyncio.Event()

    async def ask_core(event_for: Callable[[Caller], Event]) -> AnswerValue:
        world.callers += 1
        event = event_for(world.callers)
        events.append(event)
        await asyncio.sleep(0)
        answer = world.ask(event)
        answered.set()
        return answer

    def view() -> ClusterState | None:
        return world.node.cluster

    access = ControllerAccess(
        CONTROLLER,
        ask or ask_core,
        view,
        told,
        Limits(**{"connect_s": 2.0, "versions_s": 0.5, **(limits or {})}),
        rights or Rights(),
    )
    async with Server(listeners, access, dial) as server:
        yield Office(world, server, told, events, answered)
    assert server.connections == 0
    if world.node.cluster is not None:
        assert world.problems() == []


# -- a client --------------------------------------------------------------------------------


@attrs.define
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    sent: int = 0

    async def ask(self, message: Struct, version: int, client_id: str | None = "test") -> Any:
        correlation_id = await self.send(message, version, client_id)
        return await self.answer(OF_MESSAGE[type(message)].response, version, correlation_id)

    async def send(self, message: Struct, version: int, client_id: str | None = "test") -> int:
        self.sent += 1
        await self.write(framed(encode_request(message, version, self.sent, client_id)))
        return self.sent

    async def answer(self, cls: type[S], version: int, correlation_id: int) -> S:
        frame = await self.frame()
        assert frame is not None, "the connection was closed"
        found, message = decode_response(cls, version, frame)
        assert found == correlation_id
        return message

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def frame(self) -> bytes | None:
        """None: the connection was closed."""
        try:
            async with asyncio.timeout(15):
                (size,) = struct.unpack(">i", await self.reader.readexactly(4))
                return await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None


@contextlib.asynccontextmanager
async def connected(port: int, **options: Any) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


# -- a broker --------------------------------------------------------------------------------

BROKER_VERSIONS: Mapping[int, tuple[int, int]] = {
    **{key: (api.first, api.last) for key, api in APIS.items()},
    0: (0, 11),
    1: (0, 17),
    27: (0, 1),
    66: (0, 1),
}


@attrs.define
class FakeBroker:
    """Answers ApiVersions and Metadata; everything else with what a test put there."""

    versions: Mapping[int, tuple[int, int]] = attrs.field(factory=lambda: BROKER_VERSIONS)
    metadata: MetadataResponse = attrs.field(factory=MetadataResponse)
    answers: dict[int, bytes | Struct | None] = attrs.field(factory=dict)
    """By key: a message, the bytes after the correlation id, or None to close the connection."""
    silent: bool = False
    correlation_offset: int = 0
    frames: list[tuple[RequestHeader, bytes]] = attrs.field(factory=list)
    connections: int = 0
    port: int = 0
    _server: asyncio.Server | None = None
    _writers: list[asyncio.StreamWriter] = attrs.field(factory=list)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["FakeBroker"]:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self.die()
            await self._server.wait_closed()

    def registration(self, number: int, listener: str = PLAINTEXT) -> Broker:
        endpoint = Endpoint(listener, "127.0.0.1", self.port)
        return Broker(number, 100 + number, (endpoint,))

    def die(self) -> None:
        assert self._server is not None
        self._server.close()
        self.hang_up()

    def hang_up(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def keys(self) -> list[int]:
        """What was relayed, without the questions for versions."""
        return [header.api_key for header, _ in self.frames if header.api_key != 18]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                header, _ = decode_request_header(frame)
                self.frames.append((header, frame))
                answer = None if self.silent else self._answer(header)
                if answer is not None:
                    writer.write(framed(answer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    def _answer(self, header: RequestHeader) -> bytes | None:
        version = header.api_version
        correlation_id = header.correlation_id + self.correlation_offset
        if header.api_key in self.answers:
            answer = self.answers[header.api_key]
            if answer is None:
                raise ConnectionError("hang up")
            if isinstance(answer, bytes):
                return struct.pack(">i", correlation_id) + answer
            return encode_response(answer, version, correlation_id)
        if header.api_key == 18:
            ranges = tuple(ApiVersion(key, *span) for key, span in self.versions.items())
            return encode_response(ApiVersionsResponse(api_keys=ranges), version, correlation_id)
        if header.api_key == 3:
            return encode_response(self.metadata, version, correlation_id)
        raise ConnectionError("hang up")


def metadata_of(*nodes: tuple[int, int]) -> MetadataResponse:
    """Nodes by id and port; the last one is the controller."""
    return MetadataResponse(
        brokers=tuple(MetadataResponseBroker(n, "127.0.0.1", port) for n, port in nodes),
        cluster_id="test",
        controller_id=nodes[-1][0],
    )
