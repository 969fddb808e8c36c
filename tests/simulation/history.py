"""A small cluster whose history a test can write by hand, right or wrong."""

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kctl.messages import events as ev
from kctl.messages.requests import LeaderAndIsrRequest, UpdateMetadataRequest
from kctl.model.brokers import Broker
from kctl.model.names import TopicPartition
from kctl.model.rows import Assignment, Leadership, Row
from kctl.model.settings import Settings
from kctl.model.states import PartitionState, ReplicaState
from kctl.simulation.brokers_model import ModelBroker
from kctl.simulation.callers import Asked, Callers
from kctl.simulation.replica_log import ReplicaLog
from kctl.simulation.safety import ROOTS, Safety
from kctl.simulation.surroundings import Surroundings
from kctl.simulation.violations import Violation
from kctl.zookeeper.multi import Check, Create, Operation, SetData
from kctl.zookeeper.wire import CreateMode

T0 = TopicPartition("t", 0)
STATE = "/brokers/topics/t/partitions/0/state"
TOPIC_ID = "AAAAAAAAQACAAAAAAAAAAQ"


class History:
    """A cluster of three brokers, a controller with epoch 1, and t-0 led by 1 with ISR 1, 2."""

    def __init__(self) -> None:
        self.world = Surroundings(0)
        self.world.safety = Safety(self.world)
        self.world.callers = Callers(self.world)
        self.safety = self.world.safety
        self.ensemble = self.world.ensemble
        self.ensemble.listeners.append(self.safety.committed)
        self.people = self.ensemble.open("people")
        for path in sorted(ROOTS):
            self.ensemble.commit(self.people, [Create(path)])
        self.ensemble.commit(self.people, [Create("/controller_epoch", b"0")])
        for broker in (1, 2, 3):
            self.world.brokers[broker] = ModelBroker(self.world, broker, (3, 9))
            self.world.brokers[broker].start()
        self.one = self.controller("one")
        self.claim(self.one, 1, 0)
        self.now(10)
        self.put_topic({0: [1, 2, 3]})
        for path in ("/brokers/topics/t/partitions", "/brokers/topics/t/partitions/0"):
            self.write(Create(path))
        self.write(Create(STATE, self.state(1, [1, 2], 0)))

    def now(self, ms: int) -> None:
        self.world.scheduler.run_until(ms)

    def controller(self, name: str) -> Any:
        session = self.ensemble.open(name)
        brokers = {b: Broker(b, model.epoch) for b, model in self.world.brokers.items()}
        cluster = SimpleNamespace(
            epoch=0,
            shutting_down={},
            release=(3, 9),
            topics={"t": None},
            brokers=brokers,
            poisoned={},
            quarantine={},
        )
        process: Any = SimpleNamespace(
            name=name,
            host=SimpleNamespace(id=1001),
            node=SimpleNamespace(cluster=cluster, settings=Settings(1001)),
            client=SimpleNamespace(session_id=session),
            handling=(),
            handling_since=100,
        )
        self.safety.opened(process, session)
        self.ensemble.noted_broker_read(session, self.ensemble.zxid)
        return process

    def claim(self, process: Any, epoch: int, version: int) -> None:
        session = process.client.session_id
        self.ensemble.commit(
            session,
            [
                SetData("/controller_epoch", str(epoch).encode(), version),
                Create("/controller", b"{}", CreateMode.EPHEMERAL),
            ],
        )
        process.node.cluster.epoch = epoch

    def write(self, *operations: Operation, by: Any = None, fence: int = 1) -> None:
        process = by or self.one
        session = process.client.session_id
        self.ensemble.commit(session, [Check("/controller_epoch", fence), *operations])

    def put_topic(self, partitions: dict[int, list[int]], **more: object) -> None:
        body = {"version": 3, "topic_id": TOPIC_ID, "partitions": partitions} | more
        path = "/brokers/topics/t"
        known = path in self.ensemble.tree.nodes
        data = json.dumps(body).encode()
        self.write(SetData(path, data) if known else Create(path, data))

    @staticmethod
    def state(leader: int, isr: list[int], epoch: int, *, by: int = 1, **more: object) -> bytes:
        body = {"leader": leader, "isr": isr, "leader_epoch": epoch, "controller_epoch": by}
        return json.dumps({"version": 1, **body, **more}).encode()

    def put_state(self, leader: int, isr: list[int], epoch: int, **more: object) -> None:
        self.write(SetData(STATE, self.state(leader, isr, epoch, **more)))  # type: ignore[arg-type]

    def kill(self, broker: int) -> None:
        self.world.brokers[broker].stop(expire_after=0)
        self.learn()

    def learn(self) -> None:
        """The controller reads the registrations, long before what it does next."""
        session = self.one.client.session_id
        self.ensemble.noted_broker_read(session, self.ensemble.zxid)
        self.one.handling_since = self.world.now + 1

    def row(self, leader: int, isr: tuple[int, ...], epoch: int, version: int) -> Row:
        return Row(
            Assignment((1, 2, 3)),
            Leadership(leader, isr, epoch, 1, version),
            PartitionState.ONLINE,
            (ReplicaState.ONLINE,) * 3,
        )

    def greet(self, epoch: int = 1) -> None:
        brokers = {b: model.epoch for b, model in self.world.brokers.items()}
        self.safety.queued(self.one, UpdateMetadataRequest(brokers, epoch, ()))

    def leader_and_isr(self, row: Row, broker: int = 1, epoch: int = 1) -> LeaderAndIsrRequest:
        incarnation = self.world.brokers[broker].epoch
        ids = {"t": TOPIC_ID}
        return LeaderAndIsrRequest(broker, incarnation, epoch, {T0: row}, {}, ids, ())

    def asked(self, event: ev.Event) -> Asked:
        return Asked(self.one, event, self.world.now, self.ensemble.zxid, lambda _: None)


def violated(invariant: str) -> Any:
    return pytest.raises(Violation, match=rf"seed 0: {invariant}:")


def acknowledge(history: History, brokers: Sequence[int]) -> None:
    for broker in brokers:
        history.world.brokers[broker].logs[T0] = ReplicaLog(TOPIC_ID, [(0, 1)])
    history.safety.acknowledged(T0, TOPIC_ID, 0, 1)


def allow_unclean(history: History) -> None:
    config = {"version": 1, "config": {"unclean.leader.election.enable": "true"}}
    history.ensemble.commit(
        history.people, [Create("/config/topics/t", json.dumps(config).encode())]
    )
