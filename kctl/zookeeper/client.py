"""What the store and the watches need of a ZooKeeper client.

The session is one; the simulation has another, so that the store's own code runs there too.

How calls end, beside their result:

- an exception of `errors` for what the server refused (`NoNode`, `BadVersion`, ...), and `MultiError`
  with a code for each operation of a refused `multi`;
- `ConnectionLoss`: the request was on its way when the connection broke, so it may have been carried
  out or not. The client never sends it again;
- `SessionExpired`: the session is over, and with it this client. Nothing will succeed any more.

A call that is made while there is no connection waits for one. The client sets its watches again
after each reconnect, before any other request. Whoever makes the client passes what the watches
report to `Watches.fired`.
"""

from collections.abc import Sequence
from typing import Protocol

from aiozk import ACL

from kctl.zookeeper.multi import Children, Operation, OpResult, Read
from kctl.zookeeper.wire import ANY_VERSION, OPEN_ACL, Created, CreateMode, Stat, WatchKind


class Reader(Protocol):
    """One session that only looks. Paths are relative to the chroot."""

    @property
    def session_id(self) -> int:
        """As it stands in `Stat.ephemeral_owner` of this session's znodes."""

    async def get(self, path: str, watch: bool = False) -> tuple[bytes, Stat]:
        """Data and stat; null reads as empty."""

    async def exists(self, path: str, watch: bool = False) -> Stat | None:
        """The stat, None if there is no such znode. The watch reports creation too."""

    async def children(self, path: str, watch: bool = False) -> list[str]:
        """Names of the children."""

    async def read_many(self, paths: Sequence[str]) -> list[Read]:
        """Data and stat, or a code, for each path. Sets no watches."""

    async def children_many(self, paths: Sequence[str]) -> list[Children]:
        """Names of the children, or a code, for each path. Sets no watches."""

    async def sync(self, path: str = "/") -> None:
        """What is read afterwards is as new as the moment of this call."""

    async def remove_watches(self, path: str, kind: WatchKind) -> None:
        """Take watches back; `NoWatcher` if there is none."""


class Client(Reader, Protocol):
    """One session that writes too."""

    async def create(
        self,
        path: str,
        data: bytes | None = b"",
        mode: CreateMode = CreateMode.PERSISTENT,
        acl: Sequence[ACL] = OPEN_ACL,
    ) -> Created: ...

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat: ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None: ...

    async def multi(self, operations: Sequence[Operation]) -> list[OpResult]:
        """All or nothing; `MultiError` if it was refused."""
