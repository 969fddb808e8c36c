"""Units of a write, and what they would do to the znodes that were read.

A unit is what succeeds or fails for one row: some operations that belong together. Beside the
operations of ZooKeeper it has steps that do not mind whether a znode is there: which operation such a
step stands for is a guess at first, and known once the znodes were read.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from kctl.model.codes import Code
from kctl.zookeeper.errors import ErrorCode
from kctl.zookeeper.multi import (
    OP_OVERHEAD_BYTES,
    Check,
    Create,
    Delete,
    Operation,
    Read,
    SetData,
)
from kctl.zookeeper.wire import ANY_VERSION, CreateMode


class Ensure(msgspec.Struct, frozen=True, gc=False):
    """Create it unless it is there, whatever it holds."""

    create: Create
    expected: bool = False
    """The guess: it is there. Only for what a later step of the unit cannot do without: then a
    wrong guess is noticed."""

    @property
    def path(self) -> str:
        return self.create.path


class Put(msgspec.Struct, frozen=True, gc=False):
    """Create it, or replace its data. The guess is that it is not there."""

    create: Create

    @property
    def path(self) -> str:
        return self.create.path


class Discard(msgspec.Struct, frozen=True, gc=False):
    """Delete it unless it is gone. The guess is that it is there."""

    path: str


Step: TypeAlias = Operation | Ensure | Put | Discard
Unit: TypeAlias = tuple[Step, ...]

# Tuples, as a union is made anew each time that it is written out.
_FLEXIBLE: Final = (Ensure, Put, Discard)
_MAKING: Final = (Ensure, Put)
_WITH_DATA: Final = (SetData, Create)
_SEQUENTIAL: Final = (CreateMode.PERSISTENT_SEQUENTIAL, CreateMode.EPHEMERAL_SEQUENTIAL)


def is_rigid(unit: Unit) -> bool:
    """Whether its operations are the same whatever there is."""
    return not any(isinstance(step, _FLEXIBLE) for step in unit)


def unit_bytes(unit: Unit) -> int:
    """At most what it adds to a multi, without the chroot."""
    size = 0
    for step in unit:
        if type(step) is SetData:  # most of all units are one of these
            size += OP_OVERHEAD_BYTES + 3 * len(step.path) + len(step.data or b"")
            continue
        made = step.create if isinstance(step, _MAKING) else step
        # Three bytes a character hold any path that ZooKeeper accepts.
        size += OP_OVERHEAD_BYTES + 3 * len(made.path)
        if isinstance(made, _WITH_DATA) and made.data is not None:
            size += len(made.data)
    return size


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def paths_of(unit: Unit) -> Iterator[str]:
    """Those that decide whether it succeeds."""
    for step in unit:
        yield step.path
        if isinstance(step, Create | Ensure | Put):
            yield parent(step.path)


class Znode(msgspec.Struct, frozen=True, gc=False):
    version: int
    children: int


class _Unread:
    """It may be there or not: we had no right to look."""


_UNREAD: Final = _Unread()
_Seen: TypeAlias = Znode | _Unread | None
_MADE: Final = Znode(0, 0)


class Guess:
    """Nothing was read: every step as it is expected to go, which for most writes is how it goes."""

    def __init__(self, there: Iterable[str] = ()) -> None:
        self._there = dict.fromkeys(there)

    def plan(self, unit: Unit) -> list[Operation]:
        operations: list[Operation] = []
        for step in unit:
            kind = type(step)
            if kind is Ensure:
                assert isinstance(step, Ensure)
                path = step.create.path
                if not step.expected and path not in self._there:
                    self._there[path] = None
                    operations.append(step.create)
            elif kind is Discard:
                operations.append(Delete(step.path))
            elif isinstance(step, Put):
                operations.append(step.create)
            else:
                assert not isinstance(step, _FLEXIBLE)
                operations.append(step)
        return operations


class Forecast:
    """The znodes as they were read, and as the planned units leave them."""

    def __init__(self, reads: Mapping[str, Read]) -> None:
        self._znodes: dict[str, Znode | None] = {}
        for path, read in reads.items():
            if isinstance(read, tuple):
                self._znodes[path] = Znode(read[1].version, read[1].num_children)
            elif read is ErrorCode.NO_NODE:
                self._znodes[path] = None

    def plan(self, unit: Unit) -> list[Operation] | Code:
        """The operations that the unit comes to, or why it must fail. A failing one has no effect."""
        changed: dict[str, Znode | None] = {}
        operations: list[Operation] = []
        for step in unit:
            operation = self._operation(step, changed)
            if operation is None:
                continue
            code = self._apply(operation, changed)
            if code is not Code.OK:
                return code
            operations.append(operation)
        self._znodes.update(changed)
        return operations

    def _look(self, path: str, changed: Mapping[str, Znode | None]) -> _Seen:
        if path in changed:
            return changed[path]
        return self._znodes.get(path, _UNREAD)

    def _operation(self, step: Step, changed: Mapping[str, Znode | None]) -> Operation | None:
        match step:
            case Ensure(create=create, expected=expected):
                seen = self._look(create.path, changed)
                there = expected if isinstance(seen, _Unread) else seen is not None
                return None if there else create
            case Put(create=create):
                there = isinstance(self._look(create.path, changed), Znode)
                return SetData(create.path, create.data) if there else create
            case Discard(path=path):
                return None if self._look(path, changed) is None else Delete(path)
            case _:
                return step

    def _apply(self, operation: Operation, changed: dict[str, Znode | None]) -> Code:
        path = operation.path
        seen = self._look(path, changed)
        if isinstance(operation, Create):
            # A sequential one gets a name that nobody has.
            known = None if operation.mode in _SEQUENTIAL else seen
            return self._apply_create(path, known, changed)
        if isinstance(seen, _Unread):
            if isinstance(operation, Delete):
                changed[path] = None
            return Code.OK
        if seen is None:
            return Code.NO_NODE
        if operation.version not in {ANY_VERSION, seen.version}:
            return Code.BAD_VERSION
        match operation:
            case SetData():
                changed[path] = Znode(seen.version + 1, seen.children)
            case Delete() if seen.children:
                return Code.NOT_EMPTY
            case Delete():
                changed[path] = None
                self._count(parent(path), -1, changed)
            case Check():
                pass
        return Code.OK

    def _apply_create(self, path: str, seen: _Seen, changed: dict[str, Znode | None]) -> Code:
        if isinstance(seen, Znode):
            return Code.NODE_EXISTS
        if self._look(parent(path), changed) is None:
            return Code.NO_NODE
        changed[path] = _MADE
        self._count(parent(path), 1, changed)
        return Code.OK

    def _count(self, path: str, by: int, changed: dict[str, Znode | None]) -> None:
        seen = self._look(path, changed)
        if isinstance(seen, Znode):
            changed[path] = Znode(seen.version, seen.children + by)
