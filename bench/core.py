"""The core without I/O at scale: what deciding costs when ZooKeeper and brokers cost nothing.

    python -m bench.core                                    1,000,000 partitions
    python -m bench.core --topics 1000 --brokers 10         100,000
    python -m bench.core --gc kept                          without the runtime's care for gc

A responder answers every effect at once and remembers next to nothing; its own time is reported
apart. What a handler leaves behind (requests as values, answers, stories) is counted and dropped.
"Longest step" is the thread's CPU time between two awaits, which is how long an event loop would
have been kept busy.
"""

import argparse
import gc
import json
import platform
import time
from collections.abc import Callable, Iterable
from types import CoroutineType
from typing import Any

import attrs

from bench.memory import deep_size, resident_bytes
from kctl.logic.dispatch import handle
from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.messages.driver import Finished, step
from kctl.messages.outbox import Outbox
from kctl.messages.queue import EventQueue
from kctl.messages.requests import (
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kctl.model.brokers import Broker, Endpoint
from kctl.model.cluster import ClusterState, Node
from kctl.model.codes import Code
from kctl.model.names import BrokerId, TopicPartition
from kctl.model.rows import Assignment, Leadership, Replicas
from kctl.model.settings import LATEST_RELEASE, Settings

CONTROLLER = 100_000


@attrs.frozen
class Sizes:
    topics: int = 10_000
    partitions: int = 100
    """Of each topic."""
    brokers: int = 100
    replication_factor: int = 3

    @property
    def total(self) -> int:
        return self.topics * self.partitions


class Placement:
    """Round robin with a shift for each topic, so that leaders and followers are spread."""

    def __init__(self, sizes: Sizes) -> None:
        self.count = sizes.brokers
        self.table = [
            [self._replicas(sizes, first, shift) for shift in range(1, max(2, self.count))]
            for first in range(self.count)
        ]

    @staticmethod
    def _replicas(sizes: Sizes, first: int, shift: int) -> Replicas:
        others = ((first + shift + i) % sizes.brokers for i in range(sizes.brokers))
        return tuple(dict.fromkeys((first, *others)))[: sizes.replication_factor]

    def __call__(self, topic: int, partition: int) -> Replicas:
        row = self.table[(topic * 7 + partition) % self.count]
        return row[(topic + partition // self.count) % len(row)]


class Responder:
    """Every write succeeds, every read finds a healthy cluster of the given sizes."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.replicas = Placement(sizes)
        self.topics: dict[str, int] = {f"topic-{i:05}": i for i in range(sizes.topics)}
        self.added: dict[str, ef.TopicNode] = {}
        self.deletions: dict[str, None] = {}
        self.epoch = 0
        self.czxid = sizes.brokers
        self.brokers = {b: self._broker(b, b + 1) for b in range(sizes.brokers)}

    @staticmethod
    def _broker(broker: BrokerId, epoch: int) -> Broker:
        return Broker(broker, epoch, (Endpoint("PLAINTEXT", f"broker-{broker}", 9092),))

    def start(self, broker: BrokerId) -> None:
        self.czxid += 1
        self.brokers[broker] = self._broker(broker, self.czxid)

    def add_topics(self, prefix: str, count: int, partitions: int) -> list[str]:
        names = [f"{prefix}-{i:05}" for i in range(count)]
        for index, name in enumerate(names):
            assigned = {p: Assignment(self.replicas(index, p)) for p in range(partitions)}
            self.added[name] = ef.TopicNode(assigned, f"id-of-{name}", 0)
        return names

    def perform(self, effect: ef.Effect[Any]) -> object:
        match effect:
            case ef.Flush() | ef.RemoveNotifications() | ef.WatchPartitions():
                return None
            case ef.WritePartitions(rows=rows) | ef.CreatePartitionStates(rows=rows):
                return dict.fromkeys(rows, Code.OK)
            case ef.ReadPartitions(partitions=tps):
                return {tp: self._state(tp) for tp in tps}
            case ef.ReadTopics(topics=names):
                return {name: self._topic(name) for name in names}
            case ef.WriteTopics(topics=nodes):
                return dict.fromkeys(nodes, Code.OK)
            case ef.ListTopics():
                return (*self.topics, *self.added)
            case ef.ReadTopicConfigs(topics=names):
                return dict.fromkeys(names, Code.NO_NODE)
            case ef.ReadBrokers():
                return dict(self.brokers)
            case ef.ListDeletions():
                return tuple(self.deletions)
            case ef.RemovePartitionNodes(partitions=tps):
                return dict.fromkeys(tps, Code.OK)
            case ef.RemoveTopicNodes(topics=names):
                for name in names:
                    self.added.pop(name, None)
                    self.deletions.pop(name, None)
                return dict.fromkeys(names, Code.OK)
            case ef.ReadControllership():
                return ef.Controllership(None, self.epoch, self.epoch)
            case ef.ClaimControllership(epoch=epoch):
                self.epoch = epoch
                return Code.OK
            case ef.ReadLogDirNotifications() | ef.ReadIsrNotifications():
                return {}
            case ef.ReadReassignments() | ef.ReadPreferredElection() | ef.ReadFeatures():
                return Code.NO_NODE
            case ef.Bootstrap() | ef.WriteFeatures():
                return Code.OK
            case _:
                raise TypeError(f"no answer to {effect!r}")

    def _topic(self, name: str) -> ef.TopicNode | Code:
        index = self.topics.get(name)
        if index is None:
            return self.added.get(name, Code.NO_NODE)
        partitions = range(self.sizes.partitions)
        assigned = {p: Assignment(self.replicas(index, p)) for p in partitions}
        return ef.TopicNode(assigned, f"id-of-{name}", 0)

    def _state(self, tp: TopicPartition) -> Leadership | Code:
        index = self.topics.get(tp.topic)
        if index is None:
            return Code.NO_NODE
        replicas = self.replicas(index, tp.partition)
        # As a decoder makes them: a new tuple for each row.
        return Leadership(replicas[0], (*replicas,), 0, self.epoch, 0)


@attrs.define
class Measured:
    name: str
    core_s: float = 0.0
    responder_s: float = 0.0
    steps: int = 0
    longest_step_ms: float = 0.0
    longest_between: str = ""
    """The awaits before and after the longest step."""
    written: int = 0
    requests: int = 0
    told: int = 0
    """Partitions in those requests; an UpdateMetadata to all brokers counts once."""
    note: str = ""


class Bench:
    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.responder = Responder(sizes)
        self.node = Node(
            Settings(
                CONTROLLER,
                endpoints=(Endpoint("PLAINTEXT", "controller", 9999),),
                inter_broker_protocol=LATEST_RELEASE,
                leader_imbalance_per_broker_percentage=0,
            )
        )
        self.queue = EventQueue()
        self.results: list[Measured] = []
        self.deleting: dict[BrokerId, dict[TopicPartition, int]] = {}

    @property
    def cluster(self) -> ClusterState:
        assert self.node.cluster is not None
        return self.node.cluster

    def run(self, name: str, events: Iterable[ev.Event]) -> Measured:
        for event in events:
            self.queue.put(event)
        measured = Measured(name)
        while len(self.queue):
            self._handle(self.queue.take(), measured)
        self.results.append(measured)
        print(line(measured), flush=True)
        return measured

    def _handle(self, events: tuple[ev.Event, ...], measured: Measured) -> None:
        clock = time.thread_time
        outbox = Outbox()
        procedure = handle(self.node, events, outbox)
        reply: object = None
        here = type(events[0]).__name__
        while True:
            began = clock()
            wanted = step(procedure, reply)
            ended = clock()
            measured.core_s += ended - began
            measured.steps += 1
            before, here = here, place(procedure)
            if (ended - began) * 1e3 > measured.longest_step_ms:
                measured.longest_step_ms = (ended - began) * 1e3
                measured.longest_between = f"{before} .. {here}"
            if isinstance(wanted, Finished):
                self._flush(outbox, measured)
                return
            if isinstance(wanted, ef.Flush):
                self._flush(outbox, measured)
            elif isinstance(wanted, ef.WritePartitions | ef.CreatePartitionStates):
                measured.written += len(wanted.rows)
            reply = None
            began = clock()
            reply = self.responder.perform(wanted)
            measured.responder_s += clock() - began

    def _flush(self, outbox: Outbox, measured: Measured) -> None:
        for sent in outbox.dispatches:
            if isinstance(sent, LeaderAndIsrRequest | UpdateMetadataRequest):
                measured.requests += 1
                measured.told += len(sent.rows)
            elif isinstance(sent, StopReplicaRequest):
                measured.requests += 1
                measured.told += len(sent.partitions)
                owed = self.deleting.setdefault(sent.broker, {})
                owed.update({tp: 0 for tp, p in sent.partitions.items() if p.delete})
        for event in outbox.events:
            self.queue.put(event)
        outbox.dispatches, outbox.answers, outbox.stories = [], [], []
        outbox.timers, outbox.events = [], []


# -- scenarios -------------------------------------------------------------------------------


def fail_over(bench: Bench, *, frozen: bool) -> None:
    gc.collect()
    before = resident_bytes()
    if frozen:
        gc.disable()
    measured = bench.run("failover", [ev.Startup()])
    if frozen:
        gc.enable()
        gc.collect()
        gc.freeze()
    else:
        gc.collect()
    used = resident_bytes() - before
    assert len(bench.cluster.rows) == bench.sizes.total
    measured.note = f"{used / bench.sizes.total:.0f} bytes a partition (RSS)"
    print(" " * 4 + measured.note)


def count_bytes(bench: Bench) -> None:
    """What the cluster state alone holds, each object once, by sys.getsizeof and gc headers."""
    counted = deep_size(bench.cluster)
    note = f"{counted / bench.sizes.total:.0f} bytes a partition (objects counted)"
    bench.results.append(Measured("state", note=note))
    print(f"state{'':17}{note}")


def fork(bench: Bench) -> None:
    measured = Measured("fork")
    began = time.thread_time()
    copy = bench.cluster.fork()
    measured.core_s = time.thread_time() - began
    measured.longest_step_ms = measured.core_s * 1e3
    assert len(copy.rows) == bench.sizes.total
    bench.results.append(measured)
    print(line(measured))


def broker_dies_and_returns(bench: Bench) -> None:
    victim = bench.sizes.brokers // 2
    del bench.responder.brokers[victim]
    replicas = len(bench.cluster.partitions_on(victim))
    measured = bench.run("broker dies", [ev.BrokerChange()])
    measured.note = f"{replicas} replicas"
    bench.responder.start(victim)
    bench.run("broker starts", [ev.BrokerChange()])
    isr_returns(bench, victim)
    bench.run("leader balance", [ev.AutoPreferredReplicaLeaderElection()])


def isr_returns(bench: Bench, broker: BrokerId) -> None:
    """The leaders take the returned broker back, 100 partitions in a request."""
    proposals: dict[BrokerId, list[dict[TopicPartition, ev.IsrProposal]]] = {}
    for tp in bench.cluster.partitions_on(broker):
        leadership = bench.cluster.rows[tp].leadership
        assert leadership is not None
        batches = proposals.setdefault(leadership.leader, [{}])
        if len(batches[-1]) == 100:
            batches.append({})
        batches[-1][tp] = ev.IsrProposal(
            (*leadership.isr, broker), leadership.leader_epoch, leadership.zk_version
        )
    brokers = bench.cluster.brokers
    bench.run(
        "ISRs grow again",
        [
            ev.AlterPartitionReceived(1, leader, brokers[leader].epoch, partitions=batch)
            for leader, batches in proposals.items()
            for batch in batches
        ],
    )


def controlled_shutdown(bench: Bench) -> None:
    leaving = bench.sizes.brokers // 3
    event = ev.ControlledShutdown(1, leaving, bench.cluster.brokers[leaving].epoch)
    bench.run("controlled shutdown", [event])
    del bench.responder.brokers[leaving]
    bench.run("and it is gone", [ev.BrokerChange()])
    bench.responder.start(leaving)
    bench.run("and back", [ev.BrokerChange()])


def create_and_delete(bench: Bench, topics: int, partitions: int) -> None:
    names = bench.responder.add_topics("doomed", topics, partitions)
    bench.run(f"creation {topics}x{partitions}", [ev.TopicChange()])
    bench.deleting.clear()
    bench.responder.deletions.update(dict.fromkeys(names))
    started = bench.run(f"deletion {topics}x{partitions}", [ev.TopicDeletion()])
    answered = bench.run(
        "  its answers",
        [
            ev.TopicDeletionStopReplicaResponseReceived(
                broker, bench.cluster.brokers[broker].epoch, partition_errors=owed
            )
            for broker, owed in bench.deleting.items()
        ],
    )
    assert not bench.cluster.deletions
    assert not any(name in bench.cluster.topics for name in names)
    answered.note = f"with start {started.core_s + answered.core_s:.3f} s"


def reassign(bench: Bench, count: int) -> None:
    """Every partition trades its last replica for a broker that has none of it."""
    cluster = bench.cluster
    stride = max(1, len(cluster.rows) // count)
    targets: dict[TopicPartition, Replicas | None] = {}
    for tp in list(cluster.rows)[::stride][:count]:
        replicas = cluster.rows[tp].replicas
        free = next(b for b in cluster.live if b not in replicas)
        targets[tp] = (*replicas[:-1], free)
    bench.run(f"reassignment of {count}", [ev.ApiPartitionReassignment(1, targets)])
    proposals: dict[BrokerId, dict[TopicPartition, ev.IsrProposal]] = {}
    for tp in targets:
        leadership = cluster.rows[tp].leadership
        assert leadership is not None
        isr = tuple(dict.fromkeys((*leadership.isr, *cluster.rows[tp].assignment.target)))
        proposals.setdefault(leadership.leader, {})[tp] = ev.IsrProposal(
            isr, leadership.leader_epoch, leadership.zk_version
        )
    bench.run(
        "  its completion",
        [
            ev.AlterPartitionReceived(1, leader, cluster.brokers[leader].epoch, partitions=batch)
            for leader, batch in proposals.items()
        ],
    )
    assert not cluster.reassigning


def place(procedure: object) -> str:
    """Where the innermost coroutine of a procedure waits."""
    waits = procedure
    while isinstance(waits, CoroutineType) and isinstance(waits.cr_await, CoroutineType):
        waits = waits.cr_await
    frame = waits.cr_frame if isinstance(waits, CoroutineType) else None
    if frame is None:
        return "end"
    return f"{frame.f_code.co_name}:{frame.f_lineno}"


# -- the machine ----------------------------------------------------------------------------


def machine_speed_us() -> float:
    """A fixed piece of Python, the best of some: tells a loaded or slow machine from a quiet one."""

    def once() -> float:
        began = time.thread_time()
        for _ in range(200):
            sum(range(1_000))
        return (time.thread_time() - began) / 200 * 1e6

    return min(once() for _ in range(20))


# -- output ----------------------------------------------------------------------------------

HEAD = (
    f"{'scenario':22}{'core s':>9}{'responder':>11}{'longest ms':>12}{'written':>10}"
    f"{'requests':>10}{'rows told':>11}{'steps':>8}  longest between"
)


def line(m: Measured) -> str:
    return (
        f"{m.name:22}{m.core_s:9.3f}{m.responder_s:11.3f}{m.longest_step_ms:12.1f}{m.written:10}"
        f"{m.requests:10}{m.told:11}{m.steps:8}  {m.longest_between}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    defaults = Sizes()
    parser.add_argument("--topics", type=int, default=defaults.topics)
    parser.add_argument("--partitions", type=int, default=defaults.partitions, help="of a topic")
    parser.add_argument("--brokers", type=int, default=defaults.brokers)
    parser.add_argument("--replication-factor", type=int, default=defaults.replication_factor)
    parser.add_argument(
        "--gc",
        choices=("frozen", "kept"),
        default="frozen",
        help="frozen: off while loading and frozen after, as `kctl run` does; kept: left alone",
    )
    parser.add_argument("--json", action="store_true", help="the results as JSON at the end")
    parser.add_argument("--profile", metavar="SCENARIO", help="cProfile of one scenario")
    args = parser.parse_args()
    sizes = Sizes(args.topics, args.partitions, args.brokers, args.replication_factor)
    bench = Bench(sizes)
    print(
        f"{sizes.total:,} partitions, {sizes.topics:,} topics, {sizes.brokers} brokers, "
        f"RF {sizes.replication_factor}, gc {args.gc}, Python {platform.python_version()}, "
        f"sum(range(1000)) in {machine_speed_us():.1f} us"
    )
    print(HEAD)
    scenarios: dict[str, Callable[[], None]] = {
        "failover": lambda: fail_over(bench, frozen=args.gc == "frozen"),
        "state": lambda: count_bytes(bench),
        "fork": lambda: fork(bench),
        "broker": lambda: broker_dies_and_returns(bench),
        "shutdown": lambda: controlled_shutdown(bench),
        "deletion": lambda: create_and_delete(bench, 100, 50),
        "reassignment": lambda: reassign(bench, min(1_000, sizes.total)),
    }
    for name, scenario in scenarios.items():
        if args.profile == name:
            profiled(scenario)
        else:
            scenario()
    if args.json:
        print(
            json.dumps(
                {"sizes": attrs.asdict(sizes), "results": list(map(attrs.asdict, bench.results))}
            )
        )


def profiled(scenario: Callable[[], None]) -> None:
    import cProfile  # noqa: PLC0415 only when asked for
    import pstats  # noqa: PLC0415

    profile = cProfile.Profile()
    profile.runcall(scenario)
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
