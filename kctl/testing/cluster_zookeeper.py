"""The ZooKeeper that a test cluster stands on: in memory, embedded, or somewhere else."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kctl.testing.memory_server import MemoryServer
from kctl.zookeeper.embedded import EmbeddedZooKeeper
from kctl.zookeeper.errors import NoNode
from kctl.zookeeper.session import Session

SESSION_TIMEOUT_MS = 60_000
"""Long: a test that stops at a breakpoint comes back to a cluster that is alive."""


@asynccontextmanager
async def open_zookeeper(wanted: str) -> AsyncIterator[str]:
    """Its `zookeeper.connect`."""
    if wanted == "memory":
        async with MemoryServer() as memory:
            yield memory.connect_string
    elif wanted == "embedded":
        async with EmbeddedZooKeeper() as embedded:
            yield embedded.connect_string
    else:
        async with Session.open(wanted, timeout_ms=SESSION_TIMEOUT_MS) as zk:
            chroot = f"/kctl-{uuid.uuid4().hex[:12]}"
            await zk.create(chroot)
            try:
                yield wanted.rstrip("/") + chroot
            finally:
                await _remove_below(zk, chroot)


async def _remove_below(zk: Session, path: str) -> None:
    try:
        for child in await zk.children(path):
            await _remove_below(zk, f"{path}/{child}")
        await zk.delete(path)
    except NoNode:
        pass  # an ephemeral went with its session
