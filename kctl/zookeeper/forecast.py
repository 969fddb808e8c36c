"""Units of a write, and what they would do to the znodes that were read.

A unit is what succeeds or fails for one row: some operations that belong together. Beside the
operations of ZooKeeper it has steps that do not mind whether a znode is there: which operation such a
step stands for is a guess at first, and known once the znodes were read.
"""

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from kctl.model.codes import Code
from kctl.zookeeper.errors import ErrorCode
from kctl.zookeeper.multi import (
    Check,
    Create,
    Delete,
    Operation,
    Read,
    SetData,
    operation_bytes,
)
from kctl.zookeeper.wire import ANY_VERSION


class Ensure(msgspec.Struct, frozen=True, gc=False):
    """Create it unless it is there, whatever it holds."""

    create: Create
    expected: bool = False
    """The guess: it is there."""

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

_FLEXIBLE: Final = (Ensure, Put, Discard)


def is_rigid(unit: Unit) -> bool:
    """Whether its operations are the same whatever there is."""
    return not any(isinstance(step, _FLEXIBLE) for step in unit)


def unit_bytes(unit: Unit) -> int:
    """At most what it adds to a multi."""
    return sum(
        operation_bytes(Delete(step.path) if isinstance(step, Discard) else step)
        if not isinstance(step, Ensure | Put)
        else operation_bytes(step.create)
        for step in unit
    )


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
    """Neither seen nor known to be missing."""


_UNREAD: Final = _Unread()
_Seen: TypeAlias = Znode | _Unread | None
_MADE: Final = Znode(0, 0)


class Forecast:
    """The znodes as they were read, as far as they were, and as the planned units leave them."""

    def __init__(self) -> None:
        self._znodes: dict[str, Znode | None] = {}

    @classmethod
    def of(cls, reads: Mapping[str, Read]) -> "Forecast":
        forecast = cls()
        for path, read in reads.items():
            if isinstance(read, tuple):
                forecast._znodes[path] = Znode(read[1].version, read[1].num_children)
            elif read is ErrorCode.NO_NODE:
                forecast._znodes[path] = None
        return forecast

    def assume(self, path: str) -> None:
        """It is there."""
        self._znodes[path] = _MADE

    def plan(self, unit: Unit) -> list[Operation] | Code:
        """The operations that the unit comes to, or why it must fail. A failing one has no effect."""
        if not self._znodes and len(unit) == 1 and type(unit[0]) is SetData:
            return [unit[0]]  # by far the most frequent one, and there is nothing to weigh yet
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
            return self._apply_create(path, seen, changed)
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
