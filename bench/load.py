"""How long a controller takes from its election to having told every broker everything.

    python -m bench.load [--topics 2000] [--partitions 50] [--brokers 10] [--repeats 5]

Beside it, in the same run and in turn: the floor, a bare client that reads the same znodes and
decodes them into the same values, and does nothing else (`read_truth`). Requests to brokers are
made, and dropped where they would be sent. After the last load a broker goes, to see that it works.
"""

import argparse
import gc
import json
import resource
import statistics
import time
from collections.abc import Awaitable, Callable

import attrs
import structlog
import uvloop

import kctl
from bench.memory import resident_bytes
from kctl.bench import loading
from kctl.bench.shapes import Shape
from kctl.bench.truth import read_truth
from kctl.messages.requests import Dispatch
from kctl.runtime.controller import Controller
from kctl.zookeeper import paths
from kctl.zookeeper.embedded import EmbeddedZooKeeper
from kctl.zookeeper.session import Session
from kctl.zookeeper.wire import CreateMode

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


async def fill(zk: Session, shape: Shape) -> None:
    await loading.load(zk, shape)
    for broker in range(1, shape.brokers + 1):
        await register(zk, broker)


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


# -- the controller ----------------------------------------------------------------------------


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
    topics = arguments.topics
    shape = Shape("load", topics, topics * arguments.partitions, arguments.brokers)
    async with (
        EmbeddedZooKeeper(heap_mb=arguments.heap_mb) as server,
        Session.open(server.connect_string, timeout_ms=60_000) as zk,
    ):
        filled = await measure(lambda: fill(zk, shape))
        print(f"{shape.partitions:,} partitions in {topics:,} topics, {shape.brokers} brokers")
        print(f"filled in {filled.wall_s:.1f} s; resident before {resident_bytes() // MB} MB")
        loads, floors = Loads(server.connect_string), []
        for repeat in range(arguments.repeats):
            gc.collect()
            floors.append(await measure(lambda: read_truth(zk)))
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
