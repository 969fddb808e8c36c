"""Znodes as one server holds them, and transactions on them.

The leader checks a transaction against its tree and resolves it: sequential names get their number.
Whoever applies the resolved operations in order of zxid has the same tree, so a follower is a second
tree that applies later.
"""

from collections.abc import Iterator, Sequence

import attrs

from kctl.zookeeper.errors import ErrorCode
from kctl.zookeeper.multi import Check, Create, Delete, Operation, SetData
from kctl.zookeeper.wire import ANY_VERSION, CreateMode, EventType, Stat

EPHEMERAL = frozenset({CreateMode.EPHEMERAL, CreateMode.EPHEMERAL_SEQUENTIAL})
SEQUENTIAL = frozenset({CreateMode.PERSISTENT_SEQUENTIAL, CreateMode.EPHEMERAL_SEQUENTIAL})


class Node:
    __slots__ = ("children", "cversion", "czxid", "data", "mzxid", "owner", "pzxid", "version")

    def __init__(self, data: bytes, zxid: int, owner: int) -> None:
        self.data = data
        self.czxid = self.mzxid = self.pzxid = zxid
        self.version = self.cversion = 0
        self.owner = owner
        self.children: dict[str, None] = {}

    def copy(self) -> "Node":
        other = Node(self.data, self.czxid, self.owner)
        other.mzxid, other.pzxid = self.mzxid, self.pzxid
        other.version, other.cversion = self.version, self.cversion
        other.children = dict(self.children)
        return other

    def stat(self) -> Stat:
        return Stat(
            self.czxid,
            self.mzxid,
            0,
            0,
            self.version,
            self.cversion,
            0,
            self.owner,
            len(self.data),
            len(self.children),
            self.pzxid,
        )


@attrs.frozen
class Change:
    """One operation that took effect. `data` is None for a deletion."""

    kind: str
    """create, set, delete or check."""
    path: str
    data: bytes | None = None
    owner: int = 0
    version: int = 0
    """After it, or the version that was checked."""


@attrs.frozen
class Transaction:
    """Committed at this zxid by this session; `changes` are in order."""

    zxid: int
    session: int
    changes: tuple[Change, ...]
    closing: bool = False
    """The end of a session: its ephemerals go, nobody wrote anything."""


class Refused(Exception):
    """The transaction failed at this operation."""

    def __init__(self, index: int, code: ErrorCode) -> None:
        super().__init__(f"operation {index}: {code.name}")
        self.index = index
        self.code = code


def parent_of(path: str) -> str:
    return path.rsplit("/", 1)[0] or "/"


class Tree:
    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {"/": Node(b"", 0, 0)}
        self.zxid = 0

    def get(self, path: str) -> Node | None:
        return self.nodes.get(path)

    def data(self, path: str) -> bytes | None:
        node = self.nodes.get(path)
        return None if node is None else node.data

    def children(self, path: str) -> list[str]:
        node = self.nodes.get(path)
        return [] if node is None else list(node.children)

    def below(self, path: str) -> Iterator[str]:
        """This znode and all below it, children before their parents."""
        for child in self.children(path):
            yield from self.below(f"{path}/{child}")
        if path in self.nodes:
            yield path

    def ephemerals_of(self, session: int) -> list[str]:
        return [path for path, node in self.nodes.items() if node.owner == session]

    # -- watches that are set again --------------------------------------------------------------

    def missed_creation(self, path: str) -> EventType | None:
        """What a watch on a znode that was not there has missed."""
        return EventType.CREATED if path in self.nodes else None

    def missed_change(self, path: str, seen: int) -> EventType | None:
        """What a watch on a znode's data has missed since this zxid."""
        node = self.nodes.get(path)
        if node is None:
            return EventType.DELETED
        return EventType.DATA_CHANGED if node.mzxid > seen else None

    def missed_children(self, path: str, seen: int) -> EventType | None:
        node = self.nodes.get(path)
        if node is None:
            return EventType.DELETED
        return EventType.CHILDREN_CHANGED if node.pzxid > seen else None

    # -- the leader ---------------------------------------------------------------------------

    def commit(self, zxid: int, session: int, operations: Sequence[Operation]) -> Transaction:
        """All of it or nothing: `Refused` leaves the tree as it was."""
        undo: list[tuple[str, Node | None]] = []
        changes: list[Change] = []
        try:
            for index, operation in enumerate(operations):
                change = self._resolve(index, session, operation)
                if change.kind != "check":
                    for path in (change.path, parent_of(change.path)):
                        node = self.nodes.get(path)
                        undo.append((path, None if node is None else node.copy()))
                    change = self.apply(zxid, change)
                changes.append(change)
        except Refused:
            for path, old in reversed(undo):
                if old is None:
                    self.nodes.pop(path, None)
                else:
                    self.nodes[path] = old
            raise
        self.zxid = zxid
        return Transaction(zxid, session, tuple(changes))

    def _resolve(self, index: int, session: int, operation: Operation) -> Change:
        path = operation.path
        if isinstance(operation, Create):
            parent = self.nodes.get(parent_of(path))
            if parent is None:
                raise Refused(index, ErrorCode.NO_NODE)
            if parent.owner:
                raise Refused(index, ErrorCode.NO_CHILDREN_FOR_EPHEMERALS)
            if operation.mode in SEQUENTIAL:
                path = f"{path}{parent.cversion:010d}"
            if path in self.nodes:
                raise Refused(index, ErrorCode.NODE_EXISTS)
            owner = session if operation.mode in EPHEMERAL else 0
            return Change("create", path, operation.data or b"", owner)
        node = self.nodes.get(path)
        if node is None:
            raise Refused(index, ErrorCode.NO_NODE)
        if operation.version not in {ANY_VERSION, node.version}:
            raise Refused(index, ErrorCode.BAD_VERSION)
        if isinstance(operation, SetData):
            return Change("set", path, operation.data or b"", node.owner)
        if isinstance(operation, Delete):
            if node.children:
                raise Refused(index, ErrorCode.NOT_EMPTY)
            return Change("delete", path, None, node.owner, node.version)
        assert isinstance(operation, Check)
        return Change("check", path, None, 0, operation.version)

    # -- everybody ----------------------------------------------------------------------------

    def apply(self, zxid: int, change: Change) -> Change:
        """Carry out a resolved operation; the change with the version that it led to."""
        path = change.path
        if change.kind == "set":
            node = self.nodes[path]
            node.data = change.data or b""
            node.version += 1
            node.mzxid = zxid
            return attrs.evolve(change, version=node.version)
        parent = self.nodes[parent_of(path)]
        parent.cversion += 1
        parent.pzxid = zxid
        name = path.rsplit("/", 1)[1]
        if change.kind == "create":
            self.nodes[path] = Node(change.data or b"", zxid, change.owner)
            parent.children[name] = None
        else:
            del self.nodes[path]
            del parent.children[name]
        return change

    def apply_all(self, transaction: Transaction) -> None:
        for change in transaction.changes:
            if change.kind != "check":
                self.apply(transaction.zxid, change)
        self.zxid = transaction.zxid


EVENTS: dict[str, EventType] = {
    "create": EventType.CREATED,
    "set": EventType.DATA_CHANGED,
    "delete": EventType.DELETED,
}
