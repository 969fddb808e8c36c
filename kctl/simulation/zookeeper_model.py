"""A ZooKeeper ensemble: a leader, a follower that lags behind it, sessions and one-shot watches.

Every committed transaction is told to whoever listens, in order of zxid. Reads are served by the
server that the session is connected to, so they may be old, but never older than what the session
has seen. Replies and watch events of a session arrive in the order in which its server sent them.
"""

from collections.abc import Callable, Sequence
from random import Random

from kctl.simulation.scheduler import Scheduler
from kctl.simulation.zookeeper_tree import (
    EVENTS,
    Change,
    Refused,
    Transaction,
    Tree,
    parent_of,
)
from kctl.zookeeper.errors import (
    BadVersion,
    ErrorCode,
    MultiError,
    NodeExists,
    NoNode,
    NotEmpty,
    ZooKeeperError,
)
from kctl.zookeeper.multi import Delete, Operation
from kctl.zookeeper.wire import EventType, WatchEvent

LAG_MAX_MS = 20
ERRORS: dict[ErrorCode, type[Exception]] = {
    ErrorCode.NO_NODE: NoNode,
    ErrorCode.NODE_EXISTS: NodeExists,
    ErrorCode.BAD_VERSION: BadVersion,
    ErrorCode.NOT_EMPTY: NotEmpty,
}

Listener = Callable[[Transaction], None]


class Watcher:
    """Whoever gets events: the model client of a session."""

    def event(self, event: WatchEvent) -> None:
        raise NotImplementedError


class Server:
    """One member of the ensemble: its tree, and the watches of the sessions connected to it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tree = Tree()
        self.behind: list[Transaction] = []
        self._data: dict[str, dict[Watcher, None]] = {}
        self._child: dict[str, dict[Watcher, None]] = {}

    def watch_data(self, path: str, watcher: Watcher) -> None:
        self._data.setdefault(path, {})[watcher] = None

    def watch_children(self, path: str, watcher: Watcher) -> None:
        self._child.setdefault(path, {})[watcher] = None

    def forget(self, watcher: Watcher) -> None:
        for table in (self._data, self._child):
            for watchers in table.values():
                watchers.pop(watcher, None)

    def unwatch(self, path: str, watcher: Watcher, *, data: bool, children: bool) -> None:
        if data:
            self._data.get(path, {}).pop(watcher, None)
        if children:
            self._child.get(path, {}).pop(watcher, None)

    def fire(self, change: Change) -> None:
        if change.kind == "check":
            return
        kind = EVENTS[change.kind]
        watchers = self._data.pop(change.path, {})
        if kind is EventType.DELETED:
            watchers = watchers | self._child.pop(change.path, {})
        for watcher in watchers:
            watcher.event(WatchEvent(kind, change.path))
        if kind is not EventType.DATA_CHANGED:
            parent = parent_of(change.path)
            for watcher in self._child.pop(parent, {}):
                watcher.event(WatchEvent(EventType.CHILDREN_CHANGED, parent))

    def catch_up(self) -> None:
        while self.behind:
            self.apply_next()

    def apply_next(self) -> None:
        if self.behind:
            transaction = self.behind.pop(0)
            self.tree.apply_all(transaction)
            for change in transaction.changes:
                self.fire(change)


class Ensemble:
    """The leader decides; `leader.tree` is the truth."""

    def __init__(self, scheduler: Scheduler, chance: Random) -> None:
        self._scheduler = scheduler
        self._chance = chance
        self.leader = Server("leader")
        self.follower = Server("follower")
        self._follower_due = 0
        self.follower_stalls_until = 0
        self._zxid = 0
        self._sessions: dict[int, str] = {}
        self._next_session = 100
        self.listeners: list[Listener] = []
        self.broker_reads: dict[int, list[tuple[int, int]]] = {}
        """By session: when it read `/brokers/ids`, and the zxids that it saw."""

    @property
    def tree(self) -> Tree:
        return self.leader.tree

    @property
    def zxid(self) -> int:
        return self._zxid

    # -- sessions -----------------------------------------------------------------------------

    def open(self, owner: str) -> int:
        self._next_session += 1
        self._sessions[self._next_session] = owner
        return self._next_session

    def is_alive(self, session: int) -> bool:
        return session in self._sessions

    def owner_of(self, session: int) -> str:
        return self._sessions.get(session, "")

    def expire(self, session: int, linger_ms: int = 0) -> None:
        """End a session; its ephemerals go with it, or stay for a while as real ones may."""
        if self._sessions.pop(session, None) is not None:
            if linger_ms:
                self._scheduler.after(linger_ms, self._remove_ephemerals, session)
            else:
                self._remove_ephemerals(session)

    def _remove_ephemerals(self, session: int) -> None:
        paths = self.tree.ephemerals_of(session)
        if paths:
            self._commit(session, [Delete(path) for path in paths], closing=True)

    # -- writes -------------------------------------------------------------------------------

    def commit(self, session: int, operations: Sequence[Operation]) -> Transaction:
        """`Refused` if one of them fails. The session must be alive."""
        assert session in self._sessions, f"session {session} is over"
        return self._commit(session, operations)

    def _commit(
        self, session: int, operations: Sequence[Operation], *, closing: bool = False
    ) -> Transaction:
        transaction = self.tree.commit(self._zxid + 1, session, operations)
        if closing:
            transaction = Transaction(transaction.zxid, session, transaction.changes, closing=True)
        self._zxid += 1
        for change in transaction.changes:
            self.leader.fire(change)
        self.follower.behind.append(transaction)
        lag = self._chance.randint(0, LAG_MAX_MS)
        due = max(self._scheduler.now + lag, self._follower_due, self.follower_stalls_until)
        self._follower_due = due
        self._scheduler.at(due, self.follower.apply_next)
        for listener in self.listeners:
            listener(transaction)
        return transaction

    def try_commit(self, session: int, *operations: Operation) -> Transaction | None:
        """For brokers and people, who look at the outcome only roughly."""
        if session not in self._sessions:
            return None
        try:
            return self._commit(session, operations)
        except Refused:
            return None

    def noted_broker_read(self, session: int, zxid: int) -> None:
        self.broker_reads.setdefault(session, []).append((self._scheduler.now, zxid))


def error_for(refused: Refused, operations: int, *, multi: bool) -> Exception:
    """What the client's caller gets for a refused write."""
    if multi:
        rest = operations - refused.index - 1
        return MultiError(
            [ErrorCode.OK] * refused.index
            + [refused.code]
            + [ErrorCode.RUNTIME_INCONSISTENCY] * rest
        )
    error: Exception = ERRORS.get(refused.code, ZooKeeperError)()
    return error
