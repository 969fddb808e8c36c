"""The channel to one incarnation of a broker.

Requests wait in a queue as values and are encoded when their turn comes. One is in flight; it is
sent again, after a pause, until it is answered or the channel is closed, so a broker can see a
request twice. Each is checked again at the moment of writing: it must be of the current controller
epoch and for this incarnation.

A backlog beyond the bound is thrown away, because a broker that does not answer for long must not
cost memory without end. When the broker answers again it is told who is alive and which topics to
forget (a LeaderAndIsr must not come before the one, nothing would repeat the other), and
BrokerResync asks the controller to tell it everything else.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs
import structlog

from kctl.brokers.answers import (
    leader_and_isr_answer,
    stop_replica_answer,
    update_metadata_answer,
)
from kctl.brokers.bodies import SharedBodies, SharedUpdateMetadata, paced
from kctl.brokers.connection import (
    ANSWER_BYTES_MAX,
    Address,
    Connection,
    ConnectionFailed,
    Security,
)
from kctl.brokers.versions import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    NoCommonVersion,
    Told,
    Versions,
    negotiate,
)
from kctl.messages.events import BrokerResync, Event
from kctl.messages.requests import (
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kctl.model.brokers import Broker
from kctl.model.names import BrokerId, TopicId, TopicPartition
from kctl.model.rows import Row
from kctl.model.settings import Release
from kctl.wire import requests
from kctl.wire.primitives import WireError

log = structlog.get_logger("kctl.brokers")

Queued = LeaderAndIsrRequest | StopReplicaRequest | SharedUpdateMetadata
Emit = Callable[[Event], None]

QUEUE_TIMES_MAX = 1_024


@attrs.frozen
class ChannelSettings:
    controller_id: BrokerId
    listener: str | None = None
    """Of the brokers, where they are spoken to: `control.plane.listener.name` or the next one."""
    inter_broker_listener: str | None = None
    """By which brokers find each other."""
    security: Security = attrs.field(factory=Security)
    inter_broker_protocol: Release | None = None
    controller_socket_timeout_ms: int = 30_000
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    backlog_requests_max: int = 10_000
    backlog_rows_max: int = 4_000_000
    """Larger than what telling one broker everything takes, or that would never come to an end."""
    answer_bytes_max: int = ANSWER_BYTES_MAX


@attrs.define
class _Missed:
    """What a broker must hear before anything else when its backlog was thrown away."""

    controller_epoch: int = -1
    live_brokers: tuple[Broker, ...] = ()
    deletions: dict[TopicPartition, None] = attrs.field(factory=dict)
    forgotten: dict[TopicPartition, Row] = attrs.field(factory=dict)
    topic_ids: dict[str, TopicId | None] = attrs.field(factory=dict)

    def add(self, item: Queued) -> None:
        if isinstance(item, StopReplicaRequest):
            self.deletions.update({tp: None for tp, p in item.partitions.items() if p.delete})
        elif isinstance(item, SharedUpdateMetadata):
            request = item.request
            self.controller_epoch = request.controller_epoch
            self.live_brokers = request.live_brokers
            for tp, row in request.rows.items() if request.deleted else ():
                if tp.topic in request.deleted:
                    self.forgotten[tp] = row
                    self.topic_ids[tp.topic] = request.topic_ids.get(tp.topic)

    def as_request(self, broker: Broker) -> UpdateMetadataRequest | None:
        if not self.live_brokers:
            return None
        return UpdateMetadataRequest(
            recipients={broker.id: broker.epoch},
            controller_epoch=self.controller_epoch,
            live_brokers=self.live_brokers,
            rows=self.forgotten,
            deleted=dict.fromkeys(tp.topic for tp in self.forgotten),
            topic_ids=self.topic_ids,
        )


def rows_in(item: Queued) -> int:
    if isinstance(item, SharedUpdateMetadata):
        return len(item.request.rows)
    return len(item.partitions if isinstance(item, StopReplicaRequest) else item.rows)


class Channel:
    def __init__(
        self,
        broker: Broker,
        settings: ChannelSettings,
        *,
        bodies: SharedBodies,
        emit: Emit,
        current_epoch: Callable[[], int],
        on_versions: Callable[[Told], None],
    ) -> None:
        self.broker = broker
        self._settings = settings
        self._bodies = bodies
        self._emit = emit
        self._current_epoch = current_epoch
        self._on_versions = on_versions
        endpoint = requests.endpoint_of(broker, settings.listener)
        self._address = Address(endpoint.host, endpoint.port, endpoint.security_protocol)
        self._connection: Connection | None = None
        self._versions: Versions | None = None
        self._queue: deque[tuple[int, Queued]] = deque()
        self._loop = asyncio.get_running_loop()
        self._put_at: deque[float] = deque()
        """When each of `_queue` was put in."""
        self._queued_rows = 0
        self._missed: _Missed | None = None
        self._arrived = asyncio.Event()
        self._failures = 0
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.accepted = 0
        """Requests put in so far; also the number of the last one."""
        self.acknowledged = 0
        """Number of the last one answered. One that was thrown away counts with its successor."""
        self.taken = 0
        """Requests that left the queue for the broker."""
        self.queue_times_s: deque[float] = deque(maxlen=QUEUE_TIMES_MAX)
        """How long the last ones of them waited in it."""
        self.queue_time_total_s = 0.0
        self.dropped_backlogs = 0
        self.unsendable = 0

    # -- from the manager ---------------------------------------------------------------------

    def send(self, item: Queued) -> None:
        self.accepted += 1
        if self._missed is not None:
            self._miss(item)
            return
        self._queue.append((self.accepted, item))
        self._put_at.append(self._loop.time())
        self._queued_rows += rows_in(item)
        settings = self._settings
        if (
            len(self._queue) > settings.backlog_requests_max
            or self._queued_rows > settings.backlog_rows_max
        ):
            self._drop_backlog()
        self._arrived.set()

    def reached(self, number: int) -> "asyncio.Future[None] | None":
        """Done when that request is answered; None if it is already."""
        if number <= self.acknowledged:
            return None
        while self._waiters and self._waiters[0][1].done():
            self._waiters.popleft()  # nobody waits for it any more
        future = asyncio.get_running_loop().create_future()
        self._waiters.append((number, future))
        return future

    @property
    def backlog(self) -> int:
        return len(self._queue)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                try:
                    await self._serve()
                except Exception:
                    # A bug here must not leave a broker without orders.
                    log.exception("channel failed, the broker is told again", broker=self.broker.id)
                    self._begin_resync()
                    await asyncio.sleep(self._settings.retry_backoff_ms / 1000)
        finally:
            self._close()

    # -- the loop -----------------------------------------------------------------------------

    async def _serve(self) -> None:
        while True:
            if self._missed is not None:
                await self._resync()
            while not self._queue:
                await self._stand_by()
                if self._missed is not None:
                    break
            else:
                number, item = self._queue.popleft()
                self._note_taken()
                self._queued_rows -= rows_in(item)
                try:
                    await self._deliver(item)
                finally:
                    self._leave(item)
                self._acknowledge(number)

    def _note_taken(self) -> None:
        waited_s = self._loop.time() - self._put_at.popleft()
        self.taken += 1
        self.queue_time_total_s += waited_s
        self.queue_times_s.append(waited_s)

    async def _stand_by(self) -> None:
        """Nothing to send: connect all the same, the broker's versions matter to everyone."""
        self._arrived.clear()
        while self._connection is None and not self._arrived.is_set():
            if not await self._connect():
                await self._pause()
        await self._arrived.wait()

    async def _deliver(self, item: Queued) -> None:
        if isinstance(item, StopReplicaRequest):
            await self._deliver_stop_replica(item)
            return
        while (connection := await self._ready(item)) is not None:
            try:
                if isinstance(item, LeaderAndIsrRequest):
                    event = await self._leader_and_isr(*connection, item)
                else:
                    event = await self._update_metadata(*connection, item)
            except ConnectionFailed as problem:
                await self._lost(problem)
            except WireError as problem:
                self._refuse(item, problem)
                return
            else:
                self._answered(event)
                return

    async def _ready(self, item: Queued) -> tuple[Connection, Versions] | None:
        """A connection to write this to, or None if it must not be written any more."""
        while self._is_current(item):
            connection, versions = self._connection, self._versions
            if connection is not None and connection.is_open and versions is not None:
                return connection, versions
            if not await self._connect():
                await self._pause()
        log.debug("request of another epoch dropped", broker=self.broker.id)
        return None

    def _is_current(self, item: Queued) -> bool:
        request = item.request if isinstance(item, SharedUpdateMetadata) else item
        if isinstance(request, UpdateMetadataRequest):
            epoch = request.recipients.get(self.broker.id)
        else:
            epoch = request.broker_epoch
        return epoch == self.broker.epoch and request.controller_epoch >= self._current_epoch()

    async def _leader_and_isr(
        self, connection: Connection, versions: Versions, request: LeaderAndIsrRequest
    ) -> Event:
        version = versions.leader_and_isr
        settings = self._settings
        body = await paced(
            requests.leader_and_isr(
                request, settings.controller_id, version, settings.inter_broker_listener
            )
        )
        answer = await connection.exchange(LEADER_AND_ISR, version, body)
        with _readable():
            return leader_and_isr_answer(self.broker, request, version, *answer)

    async def _update_metadata(
        self, connection: Connection, versions: Versions, shared: SharedUpdateMetadata
    ) -> Event:
        version = versions.update_metadata
        head = requests.update_metadata_head(
            shared.request, self._settings.controller_id, version, self.broker.epoch
        )
        body = await self._bodies.body(shared, version)
        answer = await connection.exchange(UPDATE_METADATA, version, head, body)
        with _readable():
            return update_metadata_answer(self.broker, version, *answer)

    async def _deliver_stop_replica(self, request: StopReplicaRequest) -> None:
        """Two requests up to version 2; the one that was answered is not sent again."""
        answered = 0
        while (connection := await self._ready(request)) is not None:
            link, versions = connection
            version = versions.stop_replica
            try:
                bodies = requests.stop_replica(request, self._settings.controller_id, version)
                for stop in bodies[answered:]:
                    answer = await link.exchange(STOP_REPLICA, version, stop.body)
                    with _readable():
                        event = stop_replica_answer(self.broker, stop.deletes, version, *answer)
                    answered += 1
                    self._answered(event)
            except ConnectionFailed as problem:
                await self._lost(problem)
            except WireError as problem:
                self._refuse(request, problem)
                return
            else:
                return

    # -- connecting ---------------------------------------------------------------------------

    async def _connect(self) -> bool:
        settings = self._settings
        if self._connection is not None:
            self._connection.abort()
            self._connection = None
        try:
            connection = await Connection.open(
                self._address,
                client_id=str(settings.controller_id),
                security=settings.security,
                connect_timeout_s=settings.controller_socket_timeout_ms / 1000,
                request_timeout_s=settings.request_timeout_ms / 1000,
                answer_bytes_max=settings.answer_bytes_max,
            )
        except ConnectionFailed as problem:
            self._note_failure(problem)
            return False
        try:
            self._versions = negotiate(connection.versions, settings.inter_broker_protocol)
        except NoCommonVersion as problem:
            connection.abort()
            self._note_failure(problem)
            return False
        self._connection = connection
        if self._failures:
            log.info("broker reached again", broker=self.broker.id, after=self._failures)
        self._failures = 0
        self._on_versions(connection.versions)
        return True

    async def _lost(self, problem: ConnectionFailed) -> None:
        if self._connection is not None:
            self._connection.abort()
            self._connection = None
        self._note_failure(problem)
        await self._pause()

    def _note_failure(self, problem: Exception) -> None:
        """Brokers register before they listen: the first refusals are nothing to talk about."""
        self._failures += 1
        report = log.warning if self._failures == 10 else log.debug
        report("broker cannot be reached", broker=self.broker.id, why=str(problem))

    async def _pause(self) -> None:
        await asyncio.sleep(self._settings.retry_backoff_ms / 1000)

    # -- answers ------------------------------------------------------------------------------

    def _answered(self, event: Event | None) -> None:
        if event is not None:
            self._emit(event)

    def _refuse(self, item: Queued, problem: WireError) -> None:
        """It cannot be written down for this broker: sending it again would not help."""
        self.unsendable += 1
        log.error(
            "request cannot be encoded",
            broker=self.broker.id,
            request=type(item).__name__,
            why=str(problem),
        )

    def _acknowledge(self, number: int) -> None:
        self.acknowledged = number
        while self._waiters and self._waiters[0][0] <= number:
            _number, future = self._waiters.popleft()
            if not future.done():
                future.set_result(None)

    # -- a backlog that is too large ----------------------------------------------------------

    def _drop_backlog(self) -> None:
        """All but the one in flight, which the broker may have applied already."""
        self.dropped_backlogs += 1
        log.warning(
            "backlog dropped, the broker will be told everything again",
            broker=self.broker.id,
            requests=len(self._queue),
            rows=self._queued_rows,
        )
        self._begin_resync()

    def _begin_resync(self) -> None:
        if self._missed is None:
            self._missed = _Missed()
        self._put_at.clear()
        while self._queue:
            _number, item = self._queue.popleft()
            self._miss(item)
        self._queued_rows = 0
        self._arrived.set()

    def _miss(self, item: Queued) -> None:
        assert self._missed is not None
        self._missed.add(item)
        self._leave(item)

    async def _resync(self) -> None:
        """Wait till the broker answers, then take requests again and ask for all of them."""
        while self._connection is None or not self._connection.is_open:
            if not await self._connect():
                await self._pause()
        missed, self._missed = self._missed, None
        assert missed is not None
        request = missed.as_request(self.broker)
        self._emit(BrokerResync(self.broker.id, self.broker.epoch, tuple(missed.deletions)))
        if request is not None:
            await self._deliver(SharedUpdateMetadata(request, 1))

    # -- the end ------------------------------------------------------------------------------

    def _leave(self, item: Queued) -> None:
        if isinstance(item, SharedUpdateMetadata):
            item.leave()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.abort()
            self._connection = None
        for _number, item in self._queue:
            self._leave(item)
        self._queue.clear()
        for _number, future in self._waiters:
            if not future.done():
                future.set_result(None)
        self._waiters.clear()


@contextmanager
def _readable() -> Iterator[None]:
    """An answer that cannot be read is as good as none."""
    try:
        yield
    except WireError as problem:
        raise ConnectionFailed(f"unreadable answer: {problem}") from problem
