"""A ZooKeeper session: the requests, over the life that `link` keeps.

Paths are relative to the chroot. A request that is on its way when the connection breaks raises
ConnectionLoss: whether it took effect is then unknown, and it is never sent again. A request made
while the session is suspended waits for a connection, at most until the session is fenced.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Self, TypeVar

from aiozk import ACL

from kctl.zookeeper import wire
from kctl.zookeeper.connection import Connection
from kctl.zookeeper.errors import ConnectionLoss, ErrorCode, NoNode, ReplyTooLarge, Unimplemented
from kctl.zookeeper.link import SessionLink, State
from kctl.zookeeper.multi import (
    Children,
    Operation,
    OpResult,
    Read,
    multi,
    multi_get_children,
    multi_get_data,
)
from kctl.zookeeper.wire import (
    ANY_VERSION,
    OPEN_ACL,
    Created,
    CreateMode,
    Request,
    Stat,
    WatchKind,
    WatchMode,
)

__all__ = ["ReadOnlySession", "Session", "State"]

T = TypeVar("T")

BULK_MAX_PATHS: Final = 500
BULK_REPLY_BYTES: Final = 512 << 10
"""What the reply to one bulk read should not exceed by much."""
BULK_IN_FLIGHT: Final = 4
SINGLE_IN_FLIGHT: Final = 1000


class ReadOnlySession(SessionLink):
    """A session that cannot write: it has no request that changes a znode."""

    @classmethod
    @asynccontextmanager
    async def open(cls, connect_string: str, **options: Any) -> AsyncIterator[Self]:
        """``async with Session.open("h1:2181,h2:2181/kafka", timeout_ms=18_000) as zk``.

        Options are those of the class and ``connect_timeout_ms``.
        """
        session = await cls.connect(connect_string, **options)
        try:
            yield session
        finally:
            await session.close()

    async def get(self, path: str, watch: bool = False) -> tuple[bytes, Stat]:
        """Data and stat; a watch reports the next change of the data, or the deletion."""
        full = self._chroot.full(path)
        return await self._request(
            wire.get_data(full, watch), self._arms(self._watches.data, full) if watch else None
        )

    async def exists(self, path: str, watch: bool = False) -> Stat | None:
        """The stat, or None; a watch reports creation, the next change of the data, deletion."""
        full = self._chroot.full(path)

        def armed(err: int) -> None:
            if err == ErrorCode.OK:
                self._watches.data[full] = None
            elif err == ErrorCode.NO_NODE:
                self._watches.exists[full] = None

        try:
            return await self._request(wire.exists(full, watch), armed if watch else None)
        except NoNode:
            return None

    async def children(self, path: str, watch: bool = False) -> list[str]:
        """The children's names, in no order; a watch reports the next change of that list."""
        full = self._chroot.full(path)
        return await self._request(
            wire.get_children(full, watch),
            self._arms(self._watches.children, full) if watch else None,
        )

    async def children_and_stat(self, path: str, watch: bool = False) -> tuple[list[str], Stat]:
        """As `children`, with the parent's stat."""
        full = self._chroot.full(path)
        return await self._request(
            wire.get_children2(full, watch),
            self._arms(self._watches.children, full) if watch else None,
        )

    async def get_acl(self, path: str) -> tuple[tuple[ACL, ...], Stat]:
        """The ACL and the stat."""
        return await self._request(wire.get_acl(self._chroot.full(path)))

    async def sync(self, path: str = "/") -> None:
        """What is read after this is at least as new as the leader was when it was asked."""
        await self._request(wire.sync(self._chroot.full(path)))

    async def add_watch(self, path: str, mode: WatchMode) -> None:
        """A watch that stays (3.6). What changes during a suspension is not reported: read it."""
        full = self._chroot.full(path)

        def armed(err: int) -> None:
            if err == ErrorCode.OK:
                self._watches.added(full, mode)

        if not self.capabilities.add_watch:
            raise Unimplemented
        await self._request(wire.add_watch(full, mode), armed)

    async def remove_watches(self, path: str, kind: WatchKind = WatchKind.ANY) -> None:
        """Take this session's watches on a path back."""
        full = self._chroot.full(path)

        def removed(err: int) -> None:
            if err == ErrorCode.OK:
                self._watches.removed(full, kind)

        await self._request(wire.remove_watches(full, kind), removed)

    async def read_many(self, paths: Sequence[str]) -> list[Read]:
        """Data and stat of each path in order, or its code; as fast as the server allows.

        Not one point in time: each path is read for itself.
        """
        return await self._many(paths, multi_get_data, wire.get_data)

    async def children_many(self, paths: Sequence[str]) -> list[Children]:
        """The children of each path in order, or its code."""
        return await self._many(paths, multi_get_children, wire.get_children)

    # --- how -------------------------------------------------------------------------------------

    async def _request(
        self, request: Request[T], on_reply: Callable[[int], None] | None = None
    ) -> T:
        return await (await self._served_by()).request(request, on_reply)

    @staticmethod
    def _arms(watches: dict[str, None], full: str) -> Callable[[int], None]:
        def armed(err: int) -> None:
            if err == ErrorCode.OK:
                watches[full] = None

        return armed

    async def _many(
        self,
        paths: Sequence[str],
        bulk: Callable[[Sequence[str]], Request[list[T | ErrorCode]]],
        single: Callable[[str], Request[T]],
    ) -> list[T | ErrorCode]:
        full = [self._chroot.full(path) for path in paths]
        connection = await self._served_by()
        if not self.capabilities.multi_read:
            return await _pipelined(connection, full, single)
        try:
            return await _in_bulk(connection, full, bulk)
        except Unimplemented:
            # The session has moved to an older server of a mixed ensemble.
            self._found_older_server(connection)
            raise ConnectionLoss from None


class Session(ReadOnlySession):
    """A session that reads and writes."""

    async def create(
        self,
        path: str,
        data: bytes | None = b"",
        mode: CreateMode = CreateMode.PERSISTENT,
        acl: Sequence[ACL] = OPEN_ACL,
        *,
        ttl_ms: int = 0,
    ) -> Created:
        """Make a znode; ``data=None`` is null, which Kafka writes where it has nothing to say."""
        created = await self._request(wire.create(self._chroot.full(path), data, acl, mode, ttl_ms))
        return Created(self._chroot.relative(created.path), created.stat)

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """Replace the data if the znode has this version."""
        return await self._request(wire.set_data(self._chroot.full(path), data, version))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Remove a znode without children if it has this version."""
        await self._request(wire.delete(self._chroot.full(path), version))

    async def set_acl(self, path: str, acl: Sequence[ACL], version: int = ANY_VERSION) -> Stat:
        """Replace the ACL if it has this version (``aversion``)."""
        return await self._request(wire.set_acl(self._chroot.full(path), acl, version))

    async def multi(self, operations: Sequence[Operation]) -> list[OpResult]:
        """All operations or none; refused with `MultiError`, which has a code for each."""
        chroot = self._chroot
        results = await self._request(multi(operations, chroot.full if chroot.prefix else None))
        if chroot.prefix:
            for index, result in enumerate(results):
                if type(result) is Created:
                    results[index] = Created(chroot.relative(result.path), result.stat)
        return results


async def _in_bulk(
    connection: Connection,
    paths: Sequence[str],
    bulk: Callable[[Sequence[str]], Request[list[T | ErrorCode]]],
    count: int = BULK_MAX_PATHS,
) -> list[T | ErrorCode]:
    results: list[T | ErrorCode] = []
    in_flight: deque[tuple[Sequence[str], asyncio.Future[list[T | ErrorCode]]]] = deque()
    reply_bytes = 0
    at = 0

    def sized(request: Request[list[T | ErrorCode]]) -> Request[list[T | ErrorCode]]:
        def read(frame: bytes) -> list[T | ErrorCode]:
            nonlocal reply_bytes
            reply_bytes = len(frame)
            return request.read(frame)

        return Request(request.opcode, request.body, read)

    try:
        while at < len(paths) or in_flight:
            while at < len(paths) and len(in_flight) < BULK_IN_FLIGHT:
                portion = paths[at : at + count]
                in_flight.append((portion, await connection.submit(sized(bulk(portion)))))
                at += count
            portion, future = in_flight.popleft()
            try:
                rows = await future
            except ReplyTooLarge:
                if len(portion) == 1:
                    raise
                count = max(1, len(portion) // 4)
                rows = await _in_bulk(connection, portion, bulk, count)
            results += rows
            # Large znodes: fewer at a time, so that the replies never fill the memory.
            fitting = BULK_REPLY_BYTES * len(rows) // max(reply_bytes, 1)
            count = max(1, min(BULK_MAX_PATHS, fitting, 4 * count))
    finally:
        _abandon(future for _, future in in_flight)
    return results


async def _pipelined(
    connection: Connection, paths: Sequence[str], single: Callable[[str], Request[T]]
) -> list[T | ErrorCode]:
    results: list[T | ErrorCode] = []
    in_flight: deque[asyncio.Future[T | ErrorCode]] = deque()
    try:
        for path in paths:
            if len(in_flight) >= SINGLE_IN_FLIGHT:
                results.append(await in_flight.popleft())
            in_flight.append(await connection.submit_coded(single(path)))
        while in_flight:
            results.append(await in_flight.popleft())
    finally:
        _abandon(in_flight)
    return results


def _abandon(futures: Iterable[asyncio.Future[Any]]) -> None:
    """Nobody will look at these any more; a failed one must not be reported as forgotten."""
    for future in futures:
        if not future.cancel() and not future.cancelled():
            future.exception()
