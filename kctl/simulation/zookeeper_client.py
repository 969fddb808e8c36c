"""A session with the model ensemble, under the protocol that the store and the watches stand on.

Each call is a point where the world goes on, and where the connection may break: before the request
is sent, on its way, or after it was carried out while the answer was still coming.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from aiozk import ACL, exc

from kctl.simulation.scheduler import Gate, Scheduler, Task, Timer, Waitable
from kctl.simulation.zookeeper_model import Ensemble, Server, Watcher, error_for
from kctl.simulation.zookeeper_tree import Refused, Transaction
from kctl.zookeeper.errors import ConnectionLoss, ErrorCode, NoNode, SessionExpired
from kctl.zookeeper.multi import Children, Create, Delete, Operation, OpResult, Read, SetData
from kctl.zookeeper.wire import (
    ANY_VERSION,
    OPEN_ACL,
    Created,
    CreateMode,
    EventType,
    Stat,
    WatchEvent,
    WatchKind,
)

LATENCY_MAX_MS = 4
BROKERS = "/brokers/ids"


class Call(Waitable[Any]):
    """One request; the answer resumes the task that made it."""

    __slots__ = ("arrived", "client", "serve", "task", "timer", "watch", "what")

    def __init__(
        self,
        client: "ModelClient",
        what: str,
        serve: Callable[[Server], object],
        watch: tuple[str, str] | None = None,
    ) -> None:
        self.client = client
        self.what = what
        self.serve = serve
        self.watch = watch
        """The kind and path of the watch that the client remembers when the answer is good."""
        self.task: Task | None = None
        self.timer: Timer | None = None
        self.arrived = False

    def begin(self, task: Task) -> None:
        self.task = task
        self.client.submit(self)

    def finish(self, outcome: object) -> None:
        task, self.task = self.task, None
        if task is None:
            return
        if isinstance(outcome, Exception):
            task.fail(outcome)
        else:
            task.resume(outcome)


def read_all(paths: Sequence[str]) -> Callable[[Server], object]:
    def serve(server: Server) -> object:
        return [
            ErrorCode.NO_NODE
            if (node := server.tree.get(path)) is None
            else (node.data, node.stat())
            for path in paths
        ]

    return serve


class ModelClient(Watcher):
    """A session as its owner holds it. It ends by expiry or by being closed, once and for all."""

    def __init__(
        self,
        ensemble: Ensemble,
        scheduler: Scheduler,
        chance: Random,
        *,
        gate: Gate,
        owner: str,
        timeout_ms: int,
    ) -> None:
        self._ensemble = ensemble
        self._scheduler = scheduler
        self._chance = chance
        self._gate = gate
        self._timeout_ms = timeout_ms
        self._session = ensemble.open(owner)
        self._server = chance.choice((ensemble.leader, ensemble.follower))
        self._in_flight: list[Call] = []
        self._waiting: list[Call] = []
        self._to_server = self._to_client = 0
        self._generation = 0
        self._last_zxid = 0
        self._data: dict[str, str] = {}
        self._child: dict[str, None] = {}
        self._silence: Timer | None = None
        self._giving_up: Timer | None = None
        self.stalls_until = 0
        self.connected = True
        self.over = False
        self.on_event: Callable[[WatchEvent], None] = lambda _: None
        self.on_expired: Callable[[], None] = lambda: None
        self.on_reconnected: Callable[[], None] = lambda: None

    # -- the protocol ---------------------------------------------------------------------------

    @property
    def session_id(self) -> int:
        return self._session

    async def get(self, path: str, watch: bool = False) -> tuple[bytes, Stat]:
        def serve(server: Server) -> object:
            node = server.tree.get(path)
            if node is None:
                return NoNode()
            if watch:
                server.watch_data(path, self)
            return node.data, node.stat()

        found: tuple[bytes, Stat] = await Call(
            self, f"get {path}", serve, ("data", path) if watch else None
        )
        return found

    async def exists(self, path: str, watch: bool = False) -> Stat | None:
        def serve(server: Server) -> object:
            node = server.tree.get(path)
            if watch:
                server.watch_data(path, self)
            return None if node is None else node.stat()

        found: Stat | None = await Call(
            self, f"exists {path}", serve, ("exists", path) if watch else None
        )
        return found

    async def children(self, path: str, watch: bool = False) -> list[str]:
        def serve(server: Server) -> object:
            if path == BROKERS:
                self._ensemble.noted_broker_read(self._session, server.tree.zxid)
            if path not in server.tree.nodes:
                return NoNode()
            if watch:
                server.watch_children(path, self)
            return self._shuffled(server.tree.children(path))

        names: list[str] = await Call(
            self, f"children {path}", serve, ("child", path) if watch else None
        )
        return names

    async def create(
        self,
        path: str,
        data: bytes | None = b"",
        mode: CreateMode = CreateMode.PERSISTENT,
        acl: Sequence[ACL] = OPEN_ACL,
    ) -> Created:
        results = await self._write("create", [Create(path, data, mode, acl)], multi=False)
        assert isinstance(results[0], Created)
        return results[0]

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        results = await self._write("set", [SetData(path, data, version)], multi=False)
        assert isinstance(results[0], Stat)
        return results[0]

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._write("delete", [Delete(path, version)], multi=False)

    async def multi(self, operations: Sequence[Operation]) -> list[OpResult]:
        return await self._write("multi", list(operations), multi=True)

    async def read_many(self, paths: Sequence[str]) -> list[Read]:
        """In two parts, because a real client may: it is not one point in time."""
        cut = self._chance.randint(0, len(paths))
        found: list[Read] = []
        for part in (tuple(paths[:cut]), tuple(paths[cut:])):
            if part:
                found += await Call(self, "read_many", read_all(part))
        return found

    async def children_many(self, paths: Sequence[str]) -> list[Children]:
        wanted = tuple(paths)

        def serve(server: Server) -> object:
            return [
                self._shuffled(server.tree.children(path))
                if path in server.tree.nodes
                else ErrorCode.NO_NODE
                for path in wanted
            ]

        found: list[Children] = await Call(self, "children_many", serve)
        return found

    async def sync(self, path: str = "/") -> None:
        def serve(server: Server) -> object:
            server.catch_up()
            return None

        await Call(self, f"sync {path}", serve)

    async def remove_watches(self, path: str, kind: WatchKind) -> None:
        data, children = kind is not WatchKind.CHILDREN, kind is not WatchKind.DATA

        def serve(server: Server) -> object:
            server.unwatch(path, self, data=data, children=children)
            return None

        there = (data and path in self._data) or (children and path in self._child)
        await Call(self, f"remove watches {path}", serve)
        if data:
            self._data.pop(path, None)
        if children:
            self._child.pop(path, None)
        if not there:
            raise exc.NoWatcher

    async def _write(
        self, what: str, operations: list[Operation], *, multi: bool
    ) -> list[OpResult]:
        def serve(server: Server) -> object:
            try:
                transaction = self._ensemble.commit(self._session, operations)
            except Refused as refused:
                return error_for(refused, len(operations), multi=multi)
            server.catch_up()
            return self._results(transaction)

        results: list[OpResult] = await Call(self, what, serve)
        return results

    def _results(self, transaction: Transaction) -> list[OpResult]:
        results: list[OpResult] = []
        for change in transaction.changes:
            node = self._ensemble.tree.get(change.path)
            if change.kind == "create" and node is not None:
                results.append(Created(change.path, node.stat()))
            elif change.kind == "set" and node is not None:
                results.append(node.stat())
            else:
                results.append(None)
        return results

    def _shuffled(self, names: list[str]) -> list[str]:
        self._chance.shuffle(names)
        return names

    # -- the connection -------------------------------------------------------------------------

    def submit(self, call: Call) -> None:
        if self.over:
            self._scheduler.after(0, call.finish, SessionExpired())
        elif self.connected:
            self._send(call)
        else:
            self._waiting.append(call)

    def _send(self, call: Call) -> None:
        self._in_flight.append(call)
        delay = self._chance.randint(0, LATENCY_MAX_MS)
        self._to_server = max(self._to_server, self._scheduler.now + delay)
        call.timer = self._scheduler.at(self._to_server, self._arrive, self._generation, call)

    def _arrive(self, generation: int, call: Call) -> None:
        call.arrived = True
        if self._ensemble.is_alive(self._session):
            outcome = call.serve(self._server)
            if generation == self._generation:
                self._inbound(self._answer, generation, call, outcome, self._server.tree.zxid)

    def event(self, event: WatchEvent) -> None:
        self._inbound(self._report, self._generation, event)

    def _inbound(self, handle: Callable[..., None], generation: int, *args: object) -> None:
        """On its way to the client, behind everything that was sent before it."""
        now = self._scheduler.now
        delay = self._chance.randint(0, LATENCY_MAX_MS)
        self._to_client = max(self._to_client, now + delay, self.stalls_until)
        self._scheduler.at(self._to_client, self._received, handle, generation, args)

    def _received(
        self, handle: Callable[..., None], generation: int, args: tuple[object, ...]
    ) -> None:
        if generation == self._generation:
            self._gate(handle, *args)

    def _answer(self, call: Call, outcome: object, zxid: int) -> None:
        if call in self._in_flight:
            self._in_flight.remove(call)
            self._last_zxid = max(self._last_zxid, zxid)
            if call.watch is not None and not isinstance(outcome, Exception):
                kind, path = call.watch
                if kind == "child":
                    self._child[path] = None
                else:
                    self._data[path] = "exists" if outcome is None else "data"
            call.finish(outcome)

    def _report(self, event: WatchEvent) -> None:
        if event.type is EventType.CHILDREN_CHANGED:
            self._child.pop(event.path, None)
        else:
            self._data.pop(event.path, None)
            if event.type is EventType.DELETED:
                self._child.pop(event.path, None)
        if not self.over:
            self.on_event(event)

    def lose_connection(self, back_after_ms: int) -> None:
        """Answers are lost; of the requests on their way some still arrive, the first ones first."""
        if self.over or not self.connected:
            return
        self.connected = False
        self._generation += 1
        on_the_way = [call for call in self._in_flight if not call.arrived]
        cut = self._chance.randint(0, len(on_the_way))
        for call in on_the_way[cut:]:
            if call.timer is not None:
                call.timer.cancel()
        self._server.forget(self)
        self._gate(self._fail_in_flight)
        self.fall_silent()
        back = max(self._scheduler.now + back_after_ms, self._to_server + 1)
        self._scheduler.at(back, self._gate, self._reconnect)

    def _fail_in_flight(self) -> None:
        failed, self._in_flight = self._in_flight, []
        for call in failed:
            call.finish(ConnectionLoss())

    def _reconnect(self) -> None:
        if self.over or self.connected:
            return
        if not self._ensemble.is_alive(self._session):
            self.end()
            return
        self.connected = True
        self.heard()
        servers = (self._ensemble.leader, self._ensemble.follower)
        new_enough = [s for s in servers if s.tree.zxid >= self._last_zxid]
        self._server = self._chance.choice(new_enough)
        self._set_watches()
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            self._send(call)
        self.on_reconnected()

    def _set_watches(self) -> None:
        """What changed since the last zxid that this client saw is reported at once."""
        tree, seen = self._server.tree, self._last_zxid
        for path, kind in list(self._data.items()):
            exists = kind == "exists"
            missed = tree.missed_creation(path) if exists else tree.missed_change(path, seen)
            if missed is not None:
                self.event(WatchEvent(missed, path))
            else:
                self._server.watch_data(path, self)
        for path in list(self._child):
            if (missed := tree.missed_children(path, seen)) is not None:
                self.event(WatchEvent(missed, path))
            else:
                self._server.watch_children(path, self)

    # -- the end --------------------------------------------------------------------------------

    def fall_silent(self) -> None:
        """Nothing is heard of the client from now on: its time runs out on both sides."""
        if self._silence is None and not self.over:
            self._silence = self._scheduler.after(self._timeout_ms, self._silence_over)

    def heard(self) -> None:
        for timer in (self._silence, self._giving_up):
            if timer is not None:
                timer.cancel()
        self._silence = self._giving_up = None

    def _silence_over(self) -> None:
        """The client gives itself up; the server does so a little later."""
        self._silence = None
        slack = self._chance.randint(0, self._timeout_ms // 3)
        self._giving_up = self._scheduler.after(slack, self._ensemble.expire, self._session)
        if self.connected:
            self._gate(self.lose_connection, 1)  # a paused owner finds its socket closed
        else:
            self._gate(self._give_up)

    def _give_up(self) -> None:
        """Too long without a connection: what the server thinks of it no longer matters."""
        if not self.connected:
            self.end()

    def expired_by_server(self, linger_ms: int) -> None:
        self._ensemble.expire(self._session, linger_ms)
        self.lose_connection(self._chance.randint(1, 50))

    def end(self) -> None:
        """The session is over for its owner."""
        if self.over:
            return
        self.over = True
        if self._silence is not None:
            self._silence.cancel()
        if self._giving_up is None:
            self._scheduler.after(0, self._ensemble.expire, self._session)
        self._server.forget(self)
        calls = self._in_flight + self._waiting
        self._in_flight, self._waiting = [], []
        self.on_expired()
        for call in calls:
            call.finish(SessionExpired())

    def abandon(self) -> None:
        """The process is gone: nobody is told, the session runs out."""
        self.over = True
        self.heard()
        self._generation += 1
        self._server.forget(self)
        self._in_flight, self._waiting = [], []
        self._scheduler.after(self._timeout_ms, self._ensemble.expire, self._session)

    def close(self) -> None:
        """End the session in good order; its ephemerals go at once."""
        if not self.over:
            self.over = True
            self.heard()
            self._generation += 1
            self._server.forget(self)
            self._ensemble.expire(self._session)
