"""How fast ZooKeeper itself is through our session: bulk reads and batched writes.

    python -m bench.zookeeper_floor [--znodes 100000] [--zookeeper HOST:PORT] [--loop asyncio]

Without an address it starts the embedded server. The figures are a floor for every benchmark of the
controller: it cannot be faster than the least ZooKeeper work that a scenario needs.
"""

import argparse
import asyncio
import resource
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import uvloop

from kctl.zookeeper.embedded import EmbeddedZooKeeper
from kctl.zookeeper.errors import NoNode
from kctl.zookeeper.multi import Check, Create, Delete, SetData
from kctl.zookeeper.session import Session

BATCH = 250
MULTIS_IN_FLIGHT = 8
REPEATS = 3
ROOT = "/kctl-floor"
STATE = b'{"version":1,"leader":1,"leader_epoch":5,"controller_epoch":17,"isr":[1,2,3]}'


async def in_batches(
    paths: list[str], write: Callable[[list[str]], Awaitable[object]], batch: int = BATCH
) -> None:
    """Run the batches with a bounded number in flight."""
    places = asyncio.Semaphore(MULTIS_IN_FLIGHT)

    async def one(part: list[str]) -> None:
        async with places:
            await write(part)

    async with asyncio.TaskGroup() as group:
        for at in range(0, len(paths), batch):
            group.create_task(one(paths[at : at + batch]))


async def measure(name: str, count: int, action: Callable[[], Awaitable[object]]) -> None:
    """Run it some times and print the best and the median."""
    walls, cpus = [], []
    for _ in range(REPEATS):
        before = resource.getrusage(resource.RUSAGE_SELF)
        started = time.perf_counter()
        await action()
        walls.append(time.perf_counter() - started)
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpus.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    walls.sort()
    print(
        f"{name:38} {count / walls[0]:>10,.0f} {count / walls[len(walls) // 2]:>10,.0f}"
        f" {min(cpus) / count * 1e6:>8.2f}"
    )


async def remove(zk: Session) -> None:
    """Remove what a run leaves behind."""
    try:
        names = await zk.children(ROOT)
    except NoNode:
        return
    await in_batches(
        [f"{ROOT}/{name}" for name in names], lambda part: zk.multi([Delete(p) for p in part])
    )
    await zk.delete(ROOT)


async def run(znodes: int, address: str | None) -> None:
    """Create, read and write the znodes."""
    async with AsyncExitStack() as stack:
        if address is None:
            server = await stack.enter_async_context(EmbeddedZooKeeper(heap_mb=1024))
            address = server.connect_string
        zk = await stack.enter_async_context(Session.open(address, timeout_ms=30_000))
        await remove(zk)
        await zk.create(ROOT)
        paths = [f"{ROOT}/topic-{n // 50:05}-{n % 50}" for n in range(znodes)]
        await in_batches(paths, lambda part: zk.multi([Create(path, STATE) for path in part]))
        root = await zk.exists(ROOT)
        assert root is not None
        fence = Check(ROOT, root.version)

        print(f"{znodes:,} znodes of {len(STATE)} bytes; loop {type(asyncio.get_running_loop())}")
        print(f"{'':38} {'best /s':>10} {'median /s':>10} {'CPU us':>8}")
        await measure("read_many (multiRead)", znodes, lambda: zk.read_many(paths))
        await measure("children_many (multiRead)", znodes, lambda: zk.children_many(paths))
        few = paths[: znodes // 10]
        await measure(
            "get, pipelined", len(few), lambda: in_batches(few, lambda p: zk.get(p[0]), batch=1)
        )
        for batch in (100, BATCH):
            await measure(
                f"multi of {batch} setData and a check",
                znodes,
                lambda batch=batch: in_batches(  # type: ignore[misc]
                    paths, lambda p: zk.multi([fence, *(SetData(x, STATE) for x in p)]), batch
                ),
            )
        await remove(zk)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--znodes", type=int, default=100_000)
    parser.add_argument("--zookeeper", metavar="HOST:PORT")
    parser.add_argument("--loop", choices=["asyncio", "uvloop"], default="uvloop")
    arguments = parser.parse_args()
    runner = uvloop.run if arguments.loop == "uvloop" else asyncio.run
    runner(run(arguments.znodes, arguments.zookeeper))


if __name__ == "__main__":
    main()
