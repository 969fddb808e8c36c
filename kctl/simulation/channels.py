"""The channel of one controller to one incarnation of a broker.

Requests go in order, one at a time, and again after a lost answer, so a broker may see one twice.
What is on its way when the channel is closed may still arrive. A backlog beyond the bound is dropped,
as the live channel does it: when the broker answers again, it is told who is alive and which topics
to forget, and the controller is asked to tell it everything else.
"""

from collections import deque
from typing import TYPE_CHECKING

from kctl.messages import events as ev
from kctl.messages.requests import (
    LeaderAndIsrRequest,
    Request,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kctl.model.brokers import Broker
from kctl.model.codes import KafkaError
from kctl.model.names import TopicId, TopicPartition
from kctl.model.rows import Row
from kctl.simulation.brokers_model import Response

if TYPE_CHECKING:
    from kctl.simulation.controllers import ControllerProcess

ANSWER_TIMEOUT_MS = 2_000
RECONNECT_MS = 300


class Channel:
    def __init__(self, process: "ControllerProcess", broker: Broker, bound: int) -> None:
        self._process = process
        self._world = process.world
        self.broker = broker
        self._bound = bound
        self._queue: deque[Request] = deque()
        self._busy = False
        self._attempt = 0
        self._last_arrival = 0
        self._missed: list[Request] | None = None
        self.closed = False

    @property
    def idle(self) -> bool:
        return not self._queue

    def send(self, request: Request) -> None:
        if epoch_for(request, self.broker.id) != self.broker.epoch:
            self._world.note(
                self._process.name, f"drops {name_of(request)} for another incarnation"
            )
            return
        if self._missed is not None:
            self._missed.append(request)
            return
        self._queue.append(request)
        if len(self._queue) > self._bound:
            self._world.mishap("backlog dropped", f"to broker {self.broker.id}")
            first, *rest = self._queue  # the first one is under way
            self._queue = deque((first,))
            self._missed = rest
        self._pump()

    def close(self) -> None:
        self.closed = True
        self._queue.clear()

    def _pump(self) -> None:
        if not self.closed and not self._busy and self._queue:
            self._busy = True
            self._transmit()

    def _transmit(self) -> None:
        """Put the first request on the wire."""
        if self.closed or not self._queue:
            return
        world = self._world
        self._attempt += 1
        delay = world.chance.randint(0, 4)
        if world.unlucky(0.01):
            world.mishap("slow broker", f"requests to broker {self.broker.id}")
            delay += world.chance.randint(100, 5_000)
        self._last_arrival = max(self._last_arrival, world.now + delay)
        world.scheduler.at(self._last_arrival, self._arrive, self._attempt, self._queue[0])

    def _arrive(self, attempt: int, request: Request) -> None:
        """At the broker, whether the channel is still open or not."""
        world = self._world
        broker = world.brokers.get(self.broker.id)
        if broker is None or not broker.up or world.now < broker.reachable_after:
            world.scheduler.after(RECONNECT_MS, self._process.gate, self._again, attempt)
            return
        if world.unlucky(0.01):
            world.mishap("refused request", f"{name_of(request)} by {broker.name}")
            response = Response(KafkaError.UNKNOWN_SERVER_ERROR, {})
        else:
            epoch = epoch_for(request, broker.id)
            world.safety.delivered(broker, request, epoch, self._process)
            response = broker.apply(request, epoch, self._process.host.id)
            world.note(
                broker.name,
                f"got {name_of(request)} of {self._process.name}: {response.error} "
                f"{partition_notes(request, response)}",
                broker.name,
            )
        if world.unlucky(0.02):
            world.mishap("lost response", f"of {broker.name} to {name_of(request)}")
            world.scheduler.after(ANSWER_TIMEOUT_MS, self._process.gate, self._again, attempt)
        else:
            delay = world.chance.randint(0, 4)
            world.scheduler.after(delay, self._process.gate, self._answered, attempt, response)

    def _again(self, attempt: int) -> None:
        if not self.closed and attempt == self._attempt:
            self._transmit()

    def _answered(self, attempt: int, response: Response) -> None:
        if self.closed or attempt != self._attempt:
            return
        request = self._queue.popleft()
        self._busy = False
        event = answer_event(self.broker, request, response)
        if event is not None:
            self._process.accept(event)
        if self._missed is not None:
            self._resync()
        self._pump()

    def _resync(self) -> None:
        missed, self._missed = self._missed or [], None
        owed: dict[TopicPartition, None] = {}
        last: UpdateMetadataRequest | None = None
        forgotten: dict[TopicPartition, Row] = {}
        topic_ids: dict[str, TopicId | None] = {}
        for request in missed:
            if isinstance(request, StopReplicaRequest):
                owed.update({tp: None for tp, p in request.partitions.items() if p.delete})
            elif isinstance(request, UpdateMetadataRequest):
                last = request
                for tp, row in request.rows.items():
                    if tp.topic in request.deleted:
                        forgotten[tp] = row
                        topic_ids[tp.topic] = request.topic_ids.get(tp.topic)
        self._process.accept(ev.BrokerResync(self.broker.id, self.broker.epoch, tuple(owed)))
        if last is not None:
            self._queue.append(
                UpdateMetadataRequest(
                    recipients={self.broker.id: self.broker.epoch},
                    controller_epoch=last.controller_epoch,
                    live_brokers=last.live_brokers,
                    rows=forgotten,
                    deleted=dict.fromkeys(tp.topic for tp in forgotten),
                    topic_ids=topic_ids,
                )
            )


def epoch_for(request: Request, broker: int) -> int:
    if isinstance(request, UpdateMetadataRequest):
        return request.recipients[broker]
    return request.broker_epoch


def name_of(request: Request) -> str:
    return type(request).__name__.removesuffix("Request")


def partition_notes(request: Request, response: Response) -> str:
    if isinstance(request, StopReplicaRequest):
        return " ".join(
            f"{tp}@{p.leader_epoch}{'!' if p.delete else ''}={response.partitions.get(tp)}"
            for tp, p in request.partitions.items()
        )
    notes = []
    for tp, row in request.rows.items():
        led = row.leadership
        if led is not None:
            code = response.partitions.get(tp, "")
            notes.append(f"{tp}:{led.leader}/{led.isr}@{led.leader_epoch}v{led.zk_version}={code}")
    return " ".join(notes)


def answer_event(broker: Broker, request: Request, response: Response) -> ev.Event | None:
    if isinstance(request, LeaderAndIsrRequest):
        return ev.LeaderAndIsrResponseReceived(
            broker.id, broker.epoch, response.error, response.partitions
        )
    if isinstance(request, UpdateMetadataRequest):
        return ev.UpdateMetadataResponseReceived(broker.id, broker.epoch, response.error)
    deleted = [tp for tp, order in request.partitions.items() if order.delete]
    if not deleted:
        return None
    failed = response.error != KafkaError.NONE
    return ev.TopicDeletionStopReplicaResponseReceived(
        broker.id,
        broker.epoch,
        response.error,
        {tp: response.error if failed else response.partitions[tp] for tp in deleted},
    )
