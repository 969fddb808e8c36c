"""Trees of znodes read and written in bulk. Runs in the tasks of the Spark data source.

A task has a session of its own, on an event loop that keeps running in a thread beside it: the
session lives on however slowly Spark takes or brings rows.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Final, NamedTuple

import attrs
from anyio.from_thread import BlockingPortal, start_blocking_portal

from kctl.zookeeper.errors import (
    ConnectionLoss,
    ErrorCode,
    MultiError,
    NoServers,
    RequestTooLarge,
    SessionExpired,
)
from kctl.zookeeper.multi import Create, Operation, Read, SetData, operation_bytes
from kctl.zookeeper.parallel import in_parallel
from kctl.zookeeper.session import ReadOnlySession, Session
from kctl.zookeeper.wire import Stat

READ_AT_ONCE: Final = 2_000
WRITE_MAX_BYTES: Final = 512 << 10
"""Of one multi: half of what a server takes by default (jute.maxbuffer)."""
WRITE_MAX_ROWS: Final = 1_000
IN_FLIGHT: Final = 4
SESSIONS_MAX: Final = 5
"""How often a task begins a new session because the last one expired."""
ROUNDS_MAX: Final = 8
"""How often a batch is tried while others write the same znodes, or the connection breaks."""
OWN_TREE: Final = "/zookeeper"
"""ZooKeeper's own: left out of a larger tree, and never written."""


class ZooKeeperGone(Exception):
    """No server answers any more; what was written stays, and writing again completes it."""


class CannotWrite(Exception):
    """A znode that ZooKeeper does not take."""


@attrs.frozen
class Target:
    """Which ZooKeeper, and how long to wait for it."""

    connect: str
    session_timeout_ms: int = 15_000
    max_bytes: int = WRITE_MAX_BYTES


@attrs.frozen
class Znode:
    path: str
    data: bytes | None
    stat: Stat | None
    error: str | None = None


@contextmanager
def reaching(target: Target) -> Iterator[None]:
    """Errors of the session in words."""
    try:
        yield
    except (ConnectionLoss, SessionExpired, NoServers) as error:
        what = str(error) or type(error).__name__
        raise ZooKeeperGone(f"ZooKeeper at {target.connect} does not answer: {what}") from None


@contextmanager
def _portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal("asyncio", {"use_uvloop": True}) as portal:
        yield portal


# -- reading -----------------------------------------------------------------------------------


def subtrees(target: Target, root: str, wanted: int) -> tuple[list[str], list[str]]:
    """The tree below `root` as single znodes and as roots of subtrees, at least `wanted` of these.

    As long as there are too few, each subtree becomes a znode and the subtrees of its children.
    """
    options = {"timeout_ms": target.session_timeout_ms}
    with (
        reaching(target),
        _portal() as portal,
        portal.wrap_async_context_manager(ReadOnlySession.open(target.connect, **options)) as zk,
    ):
        singles: list[str] = []
        frontier = [root] if portal.call(zk.exists, root) is not None else []
        while frontier and len(frontier) < wanted:
            found = portal.call(zk.children_many, frontier)
            singles += frontier
            frontier = [
                _child(path, name)
                for path, names in zip(frontier, found, strict=True)
                if not isinstance(names, ErrorCode)
                for name in sorted(names)
                if _child(path, name) != OWN_TREE
            ]
        return singles, frontier


def read(target: Target, singles: Sequence[str], roots: Sequence[str]) -> Iterator[list[Znode]]:
    """These znodes, and these with all that is below them. What goes meanwhile is left out."""
    options = {"timeout_ms": target.session_timeout_ms}
    with (
        reaching(target),
        _portal() as portal,
        portal.wrap_async_context_manager(ReadOnlySession.open(target.connect, **options)) as zk,
    ):
        for portion in _portions(singles):
            yield _found(portion, portal.call(zk.read_many, portion))
        # Depth first by portions: what waits is never more than some portions for each level.
        waiting = list(reversed(list(_portions(roots))))
        while waiting:
            portion = waiting.pop()
            znodes = _found(portion, portal.call(zk.read_many, portion))
            yield znodes
            parents = [z.path for z in znodes if z.stat is not None and z.stat.num_children]
            if parents:
                found = zip(parents, portal.call(zk.children_many, parents), strict=True)
                below = [
                    _child(path, name)
                    for path, names in found
                    if not isinstance(names, ErrorCode)
                    for name in names
                    if _child(path, name) != OWN_TREE
                ]
                waiting += reversed(list(_portions(below)))


def _child(path: str, name: str) -> str:
    return f"{path}/{name}" if path != "/" else f"/{name}"


def _portions(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    return (paths[at : at + READ_AT_ONCE] for at in range(0, len(paths), READ_AT_ONCE))


def _found(paths: Sequence[str], reads: Sequence[Read]) -> list[Znode]:
    found = []
    for path, answer in zip(paths, reads, strict=True):
        if not isinstance(answer, ErrorCode):
            found.append(Znode(path, answer[0] or None, answer[1]))
        elif answer is not ErrorCode.NO_NODE:
            found.append(Znode(path, None, None, answer.name))
    return found


# -- writing -----------------------------------------------------------------------------------


@attrs.define
class Written:
    """What became of the rows."""

    created: int = 0
    changed: int = 0
    unchanged: int = 0


class _Step(NamedTuple):
    """A row, or a parent that no row has brought yet: that is made if it is missing, never set."""

    creation: Create
    is_row: bool


def write(target: Target, rows: Iterable[tuple[str, bytes | None]]) -> Written:
    """Create each znode, or set its data if that differs; missing parents are made without data."""
    with reaching(target), ExitStack() as stack:
        portal = stack.enter_context(_portal())

        def session() -> Session:
            opening = Session.open(target.connect, timeout_ms=target.session_timeout_ms)
            return stack.enter_context(portal.wrap_async_context_manager(opening))

        writer = _Writer(session())
        window: list[list[_Step]] = []
        for batch in chain(_batches(rows, target.max_bytes), [None]):
            window += [] if batch is None else [batch]
            if batch is None or len(window) == 2 * IN_FLIGHT:
                for _ in range(SESSIONS_MAX):
                    try:
                        portal.call(writer.write, window)
                    except SessionExpired:
                        # A server told us, so it is there: somebody was slow, nobody is gone.
                        writer.resume(session())
                    else:
                        break
                else:
                    raise SessionExpired
                window = []
        return writer.written


def _batches(rows: Iterable[tuple[str, bytes | None]], max_bytes: int) -> Iterator[list[_Step]]:
    known = {"", "/"}
    batch: list[_Step] = []
    size = 0
    for path, data in rows:
        if path == OWN_TREE or path.startswith(OWN_TREE + "/"):
            raise CannotWrite(f"{path} belongs to ZooKeeper itself")
        steps = [_Step(Create(path, data), is_row=True)]
        parent = path.rpartition("/")[0]
        while parent not in known:
            steps.append(_Step(Create(parent, None), is_row=False))
            known.add(parent)
            parent = parent.rpartition("/")[0]
        known.add(path)
        more = sum(operation_bytes(step.creation) for step in steps)
        if batch and (len(batch) >= WRITE_MAX_ROWS or size + more > max_bytes):
            yield batch
            batch, size = [], 0
        batch += reversed(steps)
        size += more
    if batch:
        yield batch


class _Writer:
    """Creates at once as long as nothing is there; once something was, it looks first."""

    def __init__(self, zk: Session) -> None:
        self._zk = zk
        self._looks_first = False
        self.written = Written()

    def resume(self, zk: Session) -> None:
        """With another session; what the last one was sent may have been done."""
        self._zk = zk
        self._looks_first = True

    async def write(self, batches: Sequence[list[_Step]]) -> None:
        """Batches that are done are emptied, so that the rest can be written again."""
        await in_parallel((self._settle(batch) for batch in batches if batch), IN_FLIGHT)

    async def _settle(self, todo: list[_Step]) -> None:
        batch = todo
        looks = self._looks_first
        for _ in range(ROUNDS_MAX):
            operations: list[Operation] = [step.creation for step in batch]
            try:
                if looks:
                    operations = await self._plan(batch)
                if operations:
                    await self._zk.multi(operations)
            except MultiError as refusal:
                looks = True
                if refusal.code is ErrorCode.NODE_EXISTS:
                    self._looks_first = True
                elif refusal.code is ErrorCode.NO_NODE:
                    # The batch before was refused and comes again, or somebody deletes.
                    batch = _with_all_parents(batch)
                elif refusal.code is not ErrorCode.BAD_VERSION:
                    path = operations[refusal.index].path
                    raise CannotWrite(f"{path}: {refusal.code.name}") from None
            except RequestTooLarge:
                largest = max(batch, key=lambda step: operation_bytes(step.creation))
                path = largest.creation.path
                raise CannotWrite(f"{path} is larger than a server takes") from None
            except ConnectionLoss:
                # Whether it was done is unknown, and does not matter: looking again will tell.
                looks = True
                await self._reconnected()
            else:
                self._count(batch, operations)
                todo.clear()
                return
        path = batch[0].creation.path
        raise CannotWrite(f"{path} and its neighbours change faster than they are written")

    async def _plan(self, batch: list[_Step]) -> list[Operation]:
        reads = await self._zk.read_many([step.creation.path for step in batch])
        operations: list[Operation] = []
        for (creation, is_row), found in zip(batch, reads, strict=True):
            if found is ErrorCode.NO_NODE:
                operations.append(creation)
            elif isinstance(found, ErrorCode):
                if is_row:
                    raise CannotWrite(f"{creation.path}: {found.name}")
            elif is_row and found[0] != (creation.data or b""):
                operations.append(SetData(creation.path, creation.data, found[1].version))
        return operations

    def _count(self, batch: list[_Step], operations: Sequence[Operation]) -> None:
        implied = {step.creation.path for step in batch if not step.is_row}
        done = [operation for operation in operations if operation.path not in implied]
        created = sum(type(operation) is Create for operation in done)
        self.written.created += created
        self.written.changed += len(done) - created
        self.written.unchanged += len(batch) - len(implied) - len(done)

    async def _reconnected(self) -> None:
        """A server that comes back within the session's time finds the session alive."""
        try:
            async with asyncio.timeout(self._zk.timeout_ms / 1000):
                await self._zk.wait_connected()
        except TimeoutError:
            raise ConnectionLoss from None


def _with_all_parents(batch: Sequence[_Step]) -> list[_Step]:
    steps: dict[str, _Step] = {}
    for step in batch:
        path = step.creation.path
        parents = [path[:at] for at, c in enumerate(path) if c == "/" and at]
        for parent in parents:
            steps.setdefault(parent, _Step(Create(parent, None), is_row=False))
        steps[path] = step
    return list(steps.values())
