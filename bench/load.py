"""How long a controller takes from its election to having told every broker everything.

    python -m bench.load [--topics 2000] [--partitions 50] [--brokers 10] [--repeats 5]

Beside it, in the same run and in turn: the floor, a bare client that reads the same znodes and
decodes them into the same values, and does nothing else. Requests to brokers are made, and dropped
where they would be sent. After the last load a broker goes, to see that it works.
"""

import argparse
import asyncio
import base64
import gc
import json
import random
import resource
import statistics
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator

import attrs
import structlog
import uvloop

import kctl
from bench.memory import resident_bytes
from kctl.messages.requests import Dispatch
from kctl.model.codes import Malformed
from kctl.model.names import TopicPartition
from kctl.runtime.controller import Controller
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.embedded import EmbeddedZooKeeper
from kctl.zookeeper.multi import Create
from kctl.zookeeper.session import Session
from kctl.zookeeper.wire import CreateMode

OPERATIONS = 1_000
IN_FLIGHT = 8
REPLICAS = 3
MB = 1 << 20


class Dropping:
    """Channels that only count."""

    def __init__(self) -> None:
        self.count = 0

    def send(self, _: Dispatch) -> None:
        self.count += 1


@attrs.frozen
class Took:
    wall_s: float
    cpu_s: float


async def measure(action: Callable[[], Awaitable[object]]) -> Took:
    before, started = _cpu_s(), time.perf_counter()
    await action()
    return Took(time.perf_counter() - started, _cpu_s() - before)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


# -- the data ---------------------------------------------------------------------------------


def assignments(topic: int, partitions: int, brokers: int) -> dict[int, list[int]]:
    return {
        p: [(topic + p + replica * (1 + p % (brokers - 2))) % brokers + 1 for replica in range(3)]
        for p in range(partitions)
    }


def creations(topics: int, partitions: int, brokers: int) -> Iterator[Create]:
    chance = random.Random(1)
    for number in range(topics):
        at = paths.topic(f"topic-{number:06}")
        topic_id = base64.urlsafe_b64encode(b"\x01" + chance.randbytes(15)).decode().rstrip("=")
        assigned = {
            p: _distinct(ids, brokers)
            for p, ids in assignments(number, partitions, brokers).items()
        }
        content: dict[str, object] = {"version": 3, "topic_id": topic_id}
        content |= {"partitions": assigned, "adding_replicas": {}, "removing_replicas": {}}
        yield Create(at, json.dumps(content, separators=(",", ":")).encode())
        yield Create(f"{at}/partitions", None)
        for partition, ids in assigned.items():
            yield Create(f"{at}/partitions/{partition}", None)
            state = (
                f'{{"controller_epoch":1,"leader":{ids[0]},"version":1,"leader_epoch":0,'
                f'"isr":[{",".join(map(str, ids))}]}}'
            )
            yield Create(f"{at}/partitions/{partition}/state", state.encode())


def _distinct(ids: list[int], brokers: int) -> list[int]:
    """Neighbours where the pattern names a broker twice."""
    found: list[int] = []
    for broker in ids:
        candidate = broker
        while candidate in found:
            candidate = candidate % brokers + 1
        found.append(candidate)
    return found


async def fill(zk: Session, topics: int, partitions: int, brokers: int) -> None:
    for path in ("/brokers", paths.BROKER_IDS, paths.TOPICS):
        await zk.create(path)
    for broker in range(1, brokers + 1):
        await register(zk, broker)
    in_flight: deque[asyncio.Task[object]] = deque()
    batch: list[Create] = []

    async def send(operations: list[Create]) -> None:
        await zk.multi(operations)

    async with asyncio.TaskGroup() as group:
        for creation in creations(topics, partitions, brokers):
            batch.append(creation)
            if len(batch) == OPERATIONS:
                if len(in_flight) == IN_FLIGHT:
                    await in_flight.popleft()
                in_flight.append(group.create_task(send(batch)))
                batch = []
        if batch:
            in_flight.append(group.create_task(send(batch)))


async def register(zk: Session, broker: int) -> None:
    content = {
        "version": 5,
        "host": "127.0.0.1",
        "port": 9000 + broker,
        "endpoints": [f"PLAINTEXT://127.0.0.1:{9000 + broker}"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "features": {},
    }
    await zk.create(paths.broker(broker), json.dumps(content).encode(), CreateMode.EPHEMERAL)


# -- the two readers --------------------------------------------------------------------------


async def floor(zk: Session) -> int:
    """Read and decode everything; the number of partitions."""
    names = await zk.children(paths.TOPICS)
    tps: list[TopicPartition] = []
    for name, read in zip(names, await zk.read_many([paths.topic(n) for n in names]), strict=True):
        assert isinstance(read, tuple)
        node = znodes.decode_topic(name, read[0], read[1].version)
        assert not isinstance(node, Malformed)
        tps += [TopicPartition(name, partition) for partition in node.partitions]
    states = {}
    for start in range(0, len(tps), 10_000):
        chunk = tps[start : start + 10_000]
        at = [paths.partition_state(tp) for tp in chunk]
        for tp, path, read in zip(chunk, at, await zk.read_many(at), strict=True):
            assert isinstance(read, tuple)
            states[tp] = znodes.decode_state(path, read[0], read[1].version)
    return len(states)


@attrs.define
class Loads:
    connect: str
    took: list[Took] = attrs.field(factory=list)
    steps: list[float] = attrs.field(factory=list)
    lags: list[float] = attrs.field(factory=list)
    requests: int = 0
    resident: int = 0

    async def load(self, then: Callable[[Controller], Awaitable[None]] | None = None) -> None:
        config = kctl.Config(
            zookeeper_connect=self.connect,
            zookeeper_session_timeout_ms=30_000,
            auto_leader_rebalance_enable=False,
        )
        channels = Dropping()
        controller = Controller(config, channels=lambda _: channels, tune_gc=True)
        before, started = _cpu_s(), time.perf_counter()
        async with controller:
            await controller.until(lambda c: c.is_active)
            self.took.append(Took(time.perf_counter() - started, _cpu_s() - before))
            self.steps.append(controller.meters.steps.max_s)
            self.lags.append(controller.meters.loop_lag.max_s)
            self.requests = channels.count
            self.resident = max(self.resident, resident_bytes())
            if then is not None:
                await then(controller)


async def lose_broker(zk: Session, controller: Controller) -> None:
    cluster = controller.state
    assert cluster is not None
    led = sum(row.leader == 1 for row in cluster.rows.values())
    held = len(cluster.partitions_on(1))
    steps = controller.meters.steps
    steps.max_s = 0.0

    async def lose() -> None:
        await zk.delete(paths.broker(1))
        await controller.until(lambda c: c.state is not None and 1 not in c.state.live)

    took = await measure(lose)
    assert all(row.leader not in (1, -1) for row in cluster.rows.values())
    print(
        f"then broker 1 goes: {led:,} leaders moved, {held:,} replicas offline in"
        f" {took.wall_s:.2f} s (CPU {took.cpu_s:.2f} s, longest step {steps.max_s * 1000:.1f} ms)"
    )


async def run(arguments: argparse.Namespace) -> None:
    topics, partitions, brokers = arguments.topics, arguments.partitions, arguments.brokers
    async with (
        EmbeddedZooKeeper(heap_mb=arguments.heap_mb) as server,
        Session.open(server.connect_string, timeout_ms=60_000) as zk,
    ):
        filled = await measure(lambda: fill(zk, topics, partitions, brokers))
        print(f"{topics * partitions:,} partitions in {topics:,} topics, {brokers} brokers")
        print(f"filled in {filled.wall_s:.1f} s; resident before {resident_bytes() // MB} MB")
        loads, floors = Loads(server.connect_string), []
        for repeat in range(arguments.repeats):
            gc.collect()
            floors.append(await measure(lambda: floor(zk)))
            gc.collect()
            last = repeat == arguments.repeats - 1
            await loads.load((lambda c: lose_broker(zk, c)) if last else None)
        report(floors, loads)


def report(floors: list[Took], loads: Loads) -> None:
    print(f"{'':12} {'median s':>9} {'best s':>9} {'CPU s':>9}")
    for name, times in (("floor", floors), ("kctl", loads.took)):
        walls = [t.wall_s for t in times]
        cpu = statistics.median(t.cpu_s for t in times)
        print(f"{name:12} {statistics.median(walls):>9.3f} {min(walls):>9.3f} {cpu:>9.3f}")
    ratio = statistics.median(t.wall_s for t in loads.took) / statistics.median(
        t.wall_s for t in floors
    )
    print(
        f"ratio {ratio:.1f}; longest step {max(loads.steps) * 1000:.1f} ms CPU, loop lag at most"
        f" {max(loads.lags) * 1000:.0f} ms, {loads.requests:,} requests,"
        f" resident {loads.resident // MB} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=2_000)
    parser.add_argument("--partitions", type=int, default=50)
    parser.add_argument("--brokers", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--heap-mb", type=int, default=1_024)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    uvloop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
