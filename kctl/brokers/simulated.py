"""Simulated brokers on the wire: what a controller meets when it talks to real ones.

Hundreds of them fit one process. Each listens on a port of its own, answers ApiVersions,
LeaderAndIsr, UpdateMetadata and StopReplica as a broker of its release does, and Metadata from what
it believes, so that a Kafka client sees leaders move. It stores no records.

A frame is stamped when its last byte is there. What can wait is not done then: an UpdateMetadata is
answered by its first bytes and read when somebody asks what the broker believes, each distinct body
once for all brokers. With `quick`, LeaderAndIsr is treated alike (success, without a list of
partitions) and StopReplica too (success for each partition), so that a benchmark measures the
controller and not this.

They do not register: whoever runs them puts `registration(epoch)` where the controller looks.
"""

import asyncio
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple, Self, cast

import attrs

from kctl.brokers.simulated_answers import leader_and_isr_response, metadata_response
from kctl.brokers.simulated_belief import Belief, leader_and_isr_states, stops_in
from kctl.brokers.simulated_listener import Listener
from kctl.brokers.versions import BY_PROTOCOL, LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from kctl.model.brokers import Broker, Endpoint
from kctl.model.codes import KafkaError
from kctl.model.names import BrokerId, TopicPartition
from kctl.model.settings import LATEST_RELEASE, Release
from kctl.wire import apis, client
from kctl.wire import control_plane as cp
from kctl.wire.primitives import WireError
from kctl.wire.schema import Struct

FRAME_BYTES_MAX = 200 * 1024 * 1024
METADATA = 3
CONTROL = (LEADER_AND_ISR, UPDATE_METADATA, STOP_REPLICA)
_LENGTH = struct.Struct(">i")


class Mishap(Enum):
    """What goes wrong with one request."""

    CUT_BEFORE = "the connection is cut, nothing was applied"
    CUT_AFTER = "applied, but the connection is cut before the answer"
    SILENCE = "applied, never answered"
    GARBAGE = "applied, and an answer that nobody can read"
    WRONG_REQUEST = "applied, and an answer to some other request"


@attrs.frozen(eq=False)
class Frame:
    """A request as it came in."""

    stamp_s: float
    """Of the monotonic clock, when its last byte was there."""
    header: apis.RequestHeader
    data: bytes
    body_at: int

    @property
    def key(self) -> int:
        return self.header.api_key

    @property
    def version(self) -> int:
        return self.header.api_version


class SharedDecoder:
    """Decodes each distinct body once, for all brokers that got it."""

    def __init__(self) -> None:
        self._metadata: dict[tuple[int, bytes], cp.UpdateMetadataRequest] = {}
        self.decoded = 0

    def request(self, frame: Frame) -> Struct:
        if frame.key != UPDATE_METADATA:
            self.decoded += 1
            return apis.decode(
                apis.APIS[frame.key].request, frame.version, frame.data, frame.body_at
            )
        at = frame.body_at + _head_layout(frame).size
        key = frame.version, frame.data[at:]
        found = self._metadata.get(key)
        if found is None:
            self.decoded += 1
            found = apis.decode(cp.UpdateMetadataRequest, frame.version, frame.data, frame.body_at)
            self._metadata[key] = found
            if len(self._metadata) > 1_000:
                del self._metadata[next(iter(self._metadata))]
        head = read_head(frame)
        return cp.UpdateMetadataRequest(
            controller_id=head.controller_id,
            controller_epoch=head.controller_epoch,
            broker_epoch=head.broker_epoch,
            ungrouped_partition_states=found.ungrouped_partition_states,
            topic_states=found.topic_states,
            live_brokers=found.live_brokers,
        )


class Head(NamedTuple):
    """How LeaderAndIsr and UpdateMetadata begin, and all that their acceptance depends on."""

    controller_id: int
    controller_epoch: int
    broker_epoch: int = -1


def _head_layout(frame: Frame) -> struct.Struct:
    """x: whether it is a KRaft controller."""
    kraft_since, broker_epoch_since = (8, 5) if frame.key == UPDATE_METADATA else (7, 2)
    if frame.version >= kraft_since:
        return struct.Struct(">ixiq")
    return struct.Struct(">iiq" if frame.version >= broker_epoch_since else ">ii")


def read_head(frame: Frame) -> Head:
    try:
        return Head(*_head_layout(frame).unpack_from(frame.data, frame.body_at))
    except struct.error as problem:
        raise WireError(f"{apis.APIS[frame.key].name}: {problem}") from problem


def versions_of(release: Release) -> dict[int, tuple[int, int]]:
    """What a broker of that release answers to ApiVersions, of the APIs that are simulated."""
    limit = [v for since, v in BY_PROTOCOL.items() if since <= release][-1]
    versions = {
        METADATA: (0, 12 if release >= (3, 1) else 9 if release >= (2, 4) else 5),
        LEADER_AND_ISR: (0, limit.leader_and_isr),
        STOP_REPLICA: (0, limit.stop_replica),
        UPDATE_METADATA: (0, limit.update_metadata),
        apis.API_VERSIONS: (0, 3 if release >= (2, 4) else 2),
    }
    if release >= (2, 7):
        steps = ((3, 5), (3, 3), (3, 2))
        versions[56] = (0, next((3 - i for i, s in enumerate(steps) if release >= s), 0))
    if release >= (3, 0):
        versions[67] = (0, 0)
    return versions


class SimulatedBroker:
    def __init__(
        self,
        broker_id: BrokerId,
        *,
        release: Release = LATEST_RELEASE,
        rack: str | None = None,
        listener: str = "PLAINTEXT",
        decoder: SharedDecoder | None = None,
        quick: bool = False,
    ) -> None:
        self.id = broker_id
        self.release = release
        self.rack = rack
        self.listener = listener
        self.port = 0
        self.versions = versions_of(release)
        self.epoch = -1
        """Of its registration; requests for a smaller one are refused."""
        self.frames: list[Frame] = []
        """All control requests, in order of arrival."""
        self.delay_s = 0.0
        """Before each answer."""
        self.silent = False
        """Takes control requests and applies them, but answers none."""
        self.errors: dict[int, int] = {}
        """Answers requests of these keys with an error, and does not apply them."""
        self.mishap: Callable[[Frame], Mishap | None] = lambda _frame: None
        self.held_s: Callable[[Frame], float] = lambda _frame: 0.0
        """How long a request is held up before the broker looks at it."""
        self.keeps_stamps_only = False
        """Of requests; with `quick`, for clusters whose requests would fill the memory."""
        self.connections_made = 0
        self._quick = quick
        self._decoder = decoder or SharedDecoder()
        self._belief = Belief(broker_id)
        self._unread: list[Frame] = []
        self._highest_epoch = 0
        self._listener: Listener | None = None
        self._links: dict[_Link, None] = {}
        self._arrived = asyncio.Event()

    # -- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen; on the same port as before, if there was one."""
        listener = Listener(lambda: _Link(self))
        self.port = listener.open(self.port)
        self._listener = listener

    async def stop(self) -> None:
        """As if killed: the port is closed, connections are cut."""
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.close(self.cut)

    async def restart(self) -> None:
        """A new process: it has forgotten everything but its log dirs."""
        await self.stop()
        failed = self._belief.failed_dirs
        self._belief = Belief(self.id, failed_dirs=failed)
        self._unread.clear()
        self._highest_epoch = 0
        self.epoch = -1
        await self.start()

    def cut(self) -> None:
        """Cut the connections; new ones are taken."""
        for link in tuple(self._links):
            link.abort()

    def registration(self, epoch: int) -> Broker:
        endpoint = Endpoint(self.listener, "127.0.0.1", self.port)
        version = 5 if self.release >= (2, 7) else 4
        return Broker(self.id, epoch, (endpoint,), self.rack, registration_version=version)

    @property
    def is_up(self) -> bool:
        return self._listener is not None

    # -- what it believes ---------------------------------------------------------------------

    @property
    def belief(self) -> Belief:
        """After all that it was told up to now."""
        unread, self._unread = self._unread, []
        for frame in unread:
            match self._decoder.request(frame):
                case cp.UpdateMetadataRequest() as request:
                    self._belief.update_metadata(request)
                case cp.LeaderAndIsrRequest() as request:
                    self._belief.leader_and_isr(request)
                case cp.StopReplicaRequest() as request:
                    self._belief.stop_replica(request)
        return self._belief

    def hand_over(self) -> list[Frame]:
        """Accepted control requests since the last call. With `quick`: whoever takes them applies
        them, this broker forgets them."""
        frames, self._unread = self._unread, []
        self.frames.clear()
        return frames

    def requests(self) -> list[Struct]:
        """All control requests, decoded."""
        return [self._decoder.request(frame) for frame in self.frames]

    async def until(self, condition: Callable[["SimulatedBroker"], bool]) -> None:
        """Wait till this holds; asked again after each request."""
        while not condition(self):
            self._arrived.clear()
            await self._arrived.wait()

    # -- answering ----------------------------------------------------------------------------

    def answer(self, frame: Frame) -> bytes | None:
        """Apply a request; its answer, or None to cut the connection as real brokers do."""
        key, version = frame.key, frame.version
        lowest, highest = self.versions.get(key, (0, -1))
        if not lowest <= version <= highest:
            refused = key == apis.API_VERSIONS
            return apis.refuse_api_versions(frame.header.correlation_id) if refused else None
        message = self._answer_to(frame)
        if message is None:
            return None
        return apis.encode_response(message, version, frame.header.correlation_id)

    def _answer_to(self, frame: Frame) -> Struct | None:
        if frame.key == apis.API_VERSIONS:
            told = (client.ApiVersion(k, *v) for k, v in sorted(self.versions.items()))
            return client.ApiVersionsResponse(api_keys=tuple(told))
        if frame.key == METADATA:
            request = apis.decode(client.MetadataRequest, frame.version, frame.data, frame.body_at)
            return metadata_response(self.belief, request, self.listener, frame.version)
        if frame.key not in CONTROL:
            return None
        self.frames.append(attrs.evolve(frame, data=b"") if self.keeps_stamps_only else frame)
        self._arrived.set()
        if frame.key == STOP_REPLICA:
            return self._on_stop_replica(frame)
        error = self._judge(frame.key, read_head(frame))
        if frame.key == UPDATE_METADATA:
            if not error:
                self._accept(frame)
            return cp.UpdateMetadataResponse(error)
        return self._on_leader_and_isr(frame, error)

    def _on_leader_and_isr(self, frame: Frame, error: int) -> Struct:
        if self._quick:
            if not error:
                self._accept(frame)
            return cp.LeaderAndIsrResponse(error)
        request = self._decoder.request(frame)
        assert isinstance(request, cp.LeaderAndIsrRequest)
        partitions: Mapping[TopicPartition, int]
        if error:
            partitions = {tp: error for tp, _id, _state in leader_and_isr_states(request)}
        else:
            error, partitions = self.belief.leader_and_isr(request)
        return leader_and_isr_response(request, frame.version, error, partitions)

    def _on_stop_replica(self, frame: Frame) -> Struct:
        request = self._decoder.request(frame)
        assert isinstance(request, cp.StopReplicaRequest)
        error = self._judge(
            frame.key, Head(request.controller_id, request.controller_epoch, request.broker_epoch)
        )
        partitions: Mapping[TopicPartition, int] = {}
        if self._quick and not error:
            self._accept(frame)
            partitions = {tp: KafkaError.NONE for tp, _epoch, _delete in stops_in(request)}
        elif not error:
            error, partitions = self.belief.stop_replica(request)
        return cp.StopReplicaResponse(
            error,
            tuple(cp.StopReplicaPartitionError(*tp, code) for tp, code in partitions.items()),
        )

    def _accept(self, frame: Frame) -> None:
        """To be read when somebody asks."""
        if not self.keeps_stamps_only:
            self._unread.append(frame)

    def _judge(self, key: int, head: Head) -> int:
        """The error of the whole request."""
        if key in self.errors:
            return self.errors[key]
        if head.broker_epoch != -1 and head.broker_epoch < self.epoch:
            return KafkaError.STALE_BROKER_EPOCH
        if head.controller_epoch < self._highest_epoch:
            return KafkaError.STALE_CONTROLLER_EPOCH
        self._highest_epoch = head.controller_epoch
        return KafkaError.NONE

    # -- connections --------------------------------------------------------------------------

    def linked(self, link: "_Link") -> None:
        self.connections_made += 1
        self._links[link] = None

    def unlinked(self, link: "_Link") -> None:
        self._links.pop(link, None)


class _Link(asyncio.Protocol):
    """One connection: frames in order, one answer after the other."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._frames: deque[Frame] = deque()
        self._answering: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self._broker.linked(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  asyncio's signature
        if self._answering is not None:
            self._answering.cancel()
        self._broker.unlinked(self)

    def abort(self) -> None:
        self._frames.clear()
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= 4:
            (size,) = _LENGTH.unpack_from(buffer)
            if not 0 <= size <= FRAME_BYTES_MAX:
                self.abort()
                return
            if len(buffer) < 4 + size:
                break
            with memoryview(buffer) as view:
                frame = bytes(view[4 : 4 + size])
            del buffer[: 4 + size]
            try:
                header, body_at = apis.decode_request_header(frame)
            except WireError:
                self.abort()
                return
            self._frames.append(Frame(time.monotonic(), header, frame, body_at))
        self._answer_next()

    def _answer_next(self) -> None:
        while self._frames and self._answering is None:
            frame = self._frames.popleft()
            if held_s := self._broker.held_s(frame):
                self._answering = self._loop.call_later(held_s, self._take_late, frame)
                return
            self._take(frame)

    def _take_late(self, frame: Frame) -> None:
        self._answering = None
        self._take(frame)
        self._answer_next()

    def _take(self, frame: Frame) -> None:
        mishap = self._broker.mishap(frame)
        if mishap is Mishap.CUT_BEFORE:
            self.abort()
            return
        try:
            answer = self._broker.answer(frame)
        except WireError:
            answer = None
        if answer is None or mishap is Mishap.CUT_AFTER:
            self.abort()
            return
        if mishap is Mishap.SILENCE or (self._broker.silent and frame.key in CONTROL):
            return
        if mishap is Mishap.GARBAGE:
            answer = answer[:4] + b"\xff" * 7
        elif mishap is Mishap.WRONG_REQUEST:
            answer = _LENGTH.pack(frame.header.correlation_id + 1) + answer[4:]
        if self._broker.delay_s:
            self._answering = self._loop.call_later(self._broker.delay_s, self._answer_late, answer)
        else:
            self._write(answer)

    def _answer_late(self, answer: bytes) -> None:
        self._answering = None
        self._write(answer)
        self._answer_next()

    def _write(self, answer: bytes) -> None:
        assert self._transport is not None
        self._transport.write(apis.framed(answer))


class SimulatedBrokers(Mapping[BrokerId, SimulatedBroker]):
    """`async with SimulatedBrokers(range(1, 11)) as brokers: brokers[3].cut()`"""

    def __init__(
        self,
        ids: Iterable[BrokerId],
        *,
        release: Release = LATEST_RELEASE,
        racks: Mapping[BrokerId, str] | None = None,
        quick: bool = False,
    ) -> None:
        self.decoder = SharedDecoder()
        self._brokers = {
            broker_id: SimulatedBroker(
                broker_id,
                release=release,
                rack=(racks or {}).get(broker_id),
                decoder=self.decoder,
                quick=quick,
            )
            for broker_id in ids
        }

    async def __aenter__(self) -> Self:
        for broker in self._brokers.values():
            await broker.start()
        return self

    async def __aexit__(self, *_problem: object) -> None:
        for broker in self._brokers.values():
            await broker.stop()

    def __getitem__(self, broker_id: BrokerId) -> SimulatedBroker:
        return self._brokers[broker_id]

    def __iter__(self) -> Iterator[BrokerId]:
        return iter(self._brokers)

    def __len__(self) -> int:
        return len(self._brokers)
