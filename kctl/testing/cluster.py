"""`kctl.testing.Cluster`: a Kafka cluster in a test, in one line.

A real controller, with simulated brokers that obey it and answer clients' Metadata, on a ZooKeeper
in memory (no Java, ready at once) or a real one. Everything is on 127.0.0.1, in the running event
loop, and gone when the context is left; several clusters live in one loop.
"""

import asyncio
import errno
import inspect
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, Self

import attrs

from kctl.messages import events as ev
from kctl.messages.answers import ControlledShutdownDone
from kctl.model.brokers import Endpoint
from kctl.model.cluster import ClusterState
from kctl.model.codes import KafkaError
from kctl.model.names import TopicPartition
from kctl.runtime.config import Config
from kctl.runtime.controller import Controller
from kctl.runtime.meters import Handled
from kctl.testing.cluster_answers import expect_done
from kctl.testing.cluster_hooks import Action, Hook, Hooks, Request
from kctl.testing.cluster_replication import Replication
from kctl.testing.cluster_settling import is_settled
from kctl.testing.cluster_topics import TopicShape, new_topic
from kctl.testing.cluster_views import (
    Broker,
    Partition,
    controller_notes,
    described,
    partition_of,
    partitions_by_topic,
    source_of,
)
from kctl.testing.cluster_zookeeper import SESSION_TIMEOUT_MS, open_zookeeper
from kctl.testing.simulated import RegisteredBrokers
from kctl.zookeeper.embedded import HOST, free_ports

CONTROLLER_ID: Final = 1000
READY_BOUND_S: Final = 60.0
NOTICE_BOUND_S: Final = 10.0
LOOK_EVERY_S: Final = 0.005
SHUTDOWN_ATTEMPTS_MAX: Final = 3
"""Kafka's default of `controlled.shutdown.max.retries`."""
SHUTDOWN_BACKOFF_S: Final = 0.05
PORT_ATTEMPTS_MAX: Final = 5
EVENTS_SHOWN: Final = 8


_GATHERING: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class NotReached(AssertionError):
    """A condition did not come true in time. The message shows the condition and the cluster."""


class Cluster:
    """A cluster for a test::

        async with Cluster(brokers=3, topics={"orders": 6}) as c:
            old = c.partition("orders", 0).leader
            await c.kill(old)
            await c.until(lambda: c.partition("orders", 0).leader not in (None, old))

    It does not store records: producers and consumers get Metadata, and nothing else.
    """

    def __init__(
        self,
        brokers: int = 3,
        topics: Mapping[str, TopicShape] | None = None,
        *,
        seed: int = 0,
        zookeeper: str = "memory",
        replication_factor: int | None = None,
        racks: Mapping[int, str] | Sequence[str] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`brokers` are numbered from 1. `topics` are there when the cluster is: a number of
        partitions each, or the replicas of each partition.

        `seed`: the same seed makes the same choices, above all where replicas are placed.

        `zookeeper`: "memory", "embedded" (a real server, needs Java) or the address of a real one,
        where the cluster keeps to a chroot of its own and removes it at the end.

        `replication_factor` of topics that do not say it: 3, or fewer if there are fewer brokers.
        `racks` by broker, or in turn. `settings` of the controller under Kafka's names, such as
        ``{"unclean.leader.election.enable": "true"}``.
        """
        if brokers < 1:
            raise ValueError("a cluster has at least one broker")
        self.seed = seed
        self.random = random.Random(seed)
        """For a test's own choices: they follow from the seed too."""
        self._ids = range(1, brokers + 1)
        self._topics_wanted = dict(topics or {})
        self._zookeeper_wanted = zookeeper
        self._factor = min(3, brokers) if replication_factor is None else replication_factor
        self._racks = _racks(self._ids, racks)
        self._config = Config.load(overrides=settings)
        self._hooks = Hooks()
        self._handled: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._zookeeper = ""
        self._task: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()
        self._brokers: RegisteredBrokers | None = None
        self._controller: Controller | None = None

    def __repr__(self) -> str:
        begun = self._controller is not None and self._brokers is not None
        if not begun:
            return f"<Cluster of {len(self._ids)} brokers, seed {self.seed}, not entered>"
        cluster = self.controller.state
        term = "no controller" if cluster is None else f"controller epoch {cluster.epoch}"
        topics = (
            {} if cluster is None else {n: len(t.partitions) for n, t in cluster.topics.items()}
        )
        listed = ", ".join(f"{name} ({count})" for name, count in topics.items()) or "none"
        brokers = ", ".join(map(str, self.brokers.values()))
        return f"<Cluster brokers {brokers}; topics {listed}; {term}; seed {self.seed}>"

    # -- life -----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        assert self._task is None, "a cluster is entered once; make another one"
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise RuntimeError(
                "kctl.testing.Cluster runs on asyncio; with anyio choose its asyncio backend"
            ) from None
        ready: asyncio.Future[None] = loop.create_future()
        # A task of its own, so that a fixture may enter and leave the cluster in different tasks.
        self._task = loop.create_task(self._run(ready), name=f"cluster of seed {self.seed}")
        try:
            await asyncio.wait([ready, self._task], return_when=asyncio.FIRST_COMPLETED)
            if self._task.done():
                await self._task
            await self.settle(timeout=READY_BOUND_S)
        except BaseException:
            await self._end(cancel=True)
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_problem: object) -> None:
        await self._end(cancel=False)
        if kind is None and self._hooks.error is not None:
            raise self._hooks.error

    async def _end(self, *, cancel: bool) -> None:
        assert self._task is not None
        self._leave.set()
        if cancel:
            self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled() and not cancel:
            self._task.result()

    async def _run(self, ready: "asyncio.Future[None]") -> None:
        async with AsyncExitStack() as stack:
            self._zookeeper = await stack.enter_async_context(
                open_zookeeper(self._zookeeper_wanted)
            )
            self._brokers = RegisteredBrokers(
                self._zookeeper,
                self._ids,
                racks=self._racks,
                session_timeout_ms=SESSION_TIMEOUT_MS,
            )
            for broker in self._brokers.values():
                self._hooks.attach(broker)
            await stack.enter_async_context(self._brokers)
            self._controller = await self._open_controller(stack)
            self._controller.on_handled(self._note)
            await self._controller.until(lambda c: c.is_active)
            if self._topics_wanted:
                await self._create_topics(
                    [new_topic(n, shape, self._factor) for n, shape in self._topics_wanted.items()]
                )
            async with asyncio.TaskGroup() as tasks:
                replication = Replication(self._controller, self._brokers, self._hooks)
                following = tasks.create_task(replication.run())
                ready.set_result(None)
                await self._leave.wait()
                following.cancel()

    async def _open_controller(self, stack: AsyncExitStack) -> Controller:
        """On a port that is free; somebody else may take it first."""
        for attempt in range(1, PORT_ATTEMPTS_MAX + 1):
            (port,) = free_ports(1)
            config = attrs.evolve(
                self._config,
                zookeeper_connect=self._zookeeper,
                zookeeper_session_timeout_ms=SESSION_TIMEOUT_MS,
                broker_id=CONTROLLER_ID,
                listeners=(Endpoint("PLAINTEXT", HOST, port),),
                default_replication_factor=self._factor,
            )
            try:
                return await stack.enter_async_context(Controller(config, seed=self.seed))
            except OSError as error:
                if error.errno != errno.EADDRINUSE or attempt == PORT_ATTEMPTS_MAX:
                    raise
        raise AssertionError("unreachable")

    # -- what there is --------------------------------------------------------------------------

    @property
    def controller(self) -> Controller:
        """The controller itself: `controller.events()`, `controller.state`, `controller.meters`."""
        assert self._controller is not None, "the cluster was not entered"
        return self._controller

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` for a Kafka client.

        Blocking clients belong into a thread (`asyncio.to_thread`): the brokers need the loop.
        """
        return ",".join(broker.address for broker in self.brokers.values())

    @property
    def zookeeper(self) -> str:
        """`zookeeper.connect`, also of the one in memory: `kctl explain --zookeeper ...` works."""
        return self._zookeeper

    @property
    def brokers(self) -> dict[int, Broker]:
        registered = self._registered
        return {
            broker.id: Broker(
                id=broker.id,
                address=f"{HOST}:{broker.port}",
                rack=broker.rack,
                is_up=broker.id in registered.live,
                epoch=broker.epoch,
            )
            for broker in registered.values()
        }

    @property
    def topics(self) -> dict[str, tuple[Partition, ...]]:
        """All partitions by topic, as the controller knows them now."""
        return partitions_by_topic(self._state)

    def partition(self, topic: str, partition: int) -> Partition:
        """This partition, as the controller knows it now."""
        tp = TopicPartition(topic, partition)
        row = self._state.rows.get(tp)
        if row is None:
            raise LookupError(f"no partition {tp} in {self!r}")
        return partition_of(tp, row)

    @property
    def _state(self) -> ClusterState:
        state = self.controller.state
        if state is None:
            raise LookupError(f"there is no active controller: {self.controller.stood_down or ''}")
        return state

    @property
    def _registered(self) -> RegisteredBrokers:
        assert self._brokers is not None, "the cluster was not entered"
        return self._brokers

    # -- what a test does -----------------------------------------------------------------------

    async def kill(self, broker: int) -> None:
        """The broker dies: its session is gone at once, its connections are cut.

        Returns when the controller has dealt with that; the other brokers may not know yet.
        """
        self._up(broker)
        async with self._noticed(lambda state: broker not in state.brokers):
            await self._registered.kill(broker)

    async def stop(self, broker: int) -> None:
        """A controlled shutdown: it asks to have its leaderships moved, then goes."""
        registered = self._registered[self._up(broker)]
        for _ in range(SHUTDOWN_ATTEMPTS_MAX):
            if await self._hooks.arrives(Request(broker, "ControlledShutdown")):
                answer = await self.controller.ask(
                    lambda caller: ev.ControlledShutdown(caller, broker, registered.epoch)
                )
                if isinstance(answer, ControlledShutdownDone) and not answer.remaining:
                    break
            # As a real one, which goes in any case in the end.
            await asyncio.sleep(SHUTDOWN_BACKOFF_S)
        await self.kill(broker)

    async def restart(self, broker: int) -> None:
        """Start it again, at the same address; one that is up is stopped first.

        Returns when the controller has seen it. Its replicas catch up as soon as they are told
        whom to follow.
        """
        if self._known(broker) in self._registered.live:
            await self.stop(broker)
        async with self._noticed(lambda state: broker in state.brokers):
            await self._registered.start(broker)

    async def create_topic(
        self,
        name: str,
        partitions: TopicShape = 1,
        *,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Returns when the controller has taken it up; `settle` waits until brokers know it."""
        if replication_factor is not None and not isinstance(partitions, int):
            raise ValueError("replicas that are listed are as many as are listed")
        factor = self._factor if replication_factor is None else replication_factor
        await self._create_topics([new_topic(name, partitions, factor, configs)])

    async def delete_topic(self, name: str) -> None:
        """Returns when the deletion is accepted; it ends when every replica is deleted."""
        answer = await self.controller.ask(lambda c: ev.DeleteTopics(c, ((name, None),)))
        expect_done(answer, f"delete topic {name}")

    async def reassign(self, topic: str, replicas: Mapping[int, Sequence[int] | None]) -> None:
        """Give partitions other replicas: ``reassign("orders", {0: [4, 5, 6]})``; None cancels.

        Returns when it has begun; see `Partition.is_reassigning`, or `settle`.
        """
        targets = {
            TopicPartition(topic, p): None if wanted is None else tuple(wanted)
            for p, wanted in replicas.items()
        }
        answer = await self.controller.ask(lambda c: ev.ApiPartitionReassignment(c, targets))
        expect_done(answer, f"reassign {topic}")

    async def elect_preferred(self) -> None:
        """Give every leadership back to the first replica, where that is in sync."""
        answer = await self.controller.ask(
            lambda c: ev.ReplicaLeaderElection(
                c, None, ev.ElectionType.PREFERRED, ev.ElectionTrigger.ADMIN_CLIENT
            )
        )
        expect_done(answer, "elect preferred leaders", but=(KafkaError.ELECTION_NOT_NEEDED,))

    def on_request(
        self,
        action: Action | Callable[[Request], Action | None],
        *,
        broker: int | None = None,
        api: str | None = None,
        topic: str | None = None,
        times: int | None = None,
    ) -> Hook:
        """Drop, delay or fail requests from now on::

            c.on_request(Drop(), api="LeaderAndIsr", broker=2, times=1)
            with c.on_request(Fail("KAFKA_STORAGE_ERROR"), api="LeaderAndIsr", topic="orders"): ...
            c.on_request(lambda request: Delay(c.random.random()))

        Requests to brokers are LeaderAndIsr, UpdateMetadata, StopReplica, Metadata and ApiVersions;
        those of brokers to the controller AlterPartition and ControlledShutdown. A request about
        several topics matches each of them, and is dropped or failed as a whole. The hook ends with
        `remove()`, with its `with` block, or after so many `times`; `seen` has what it caught.
        """
        return self._hooks.add(action, broker=broker, api=api, topic=topic, times=times)

    async def until(
        self, condition: Callable[..., bool | Awaitable[bool]], timeout: float = 10.0
    ) -> None:
        """Wait until the condition holds; `NotReached`, with the cluster's state, if it does not.

        The condition gets the cluster, or nothing if it takes no argument; it may be a coroutine
        function. A partition or topic that is not there yet (`LookupError`) counts as not yet.
        """
        wanted = inspect.signature(condition).parameters.values()
        # `lambda p=p: ...` keeps a loop's variable, and asks for nothing.
        asks = any(p.default is p.empty and p.kind not in _GATHERING for p in wanted)
        arguments = (self,) if asks else ()
        missing = ""
        try:
            async with asyncio.timeout(timeout):
                while True:
                    self._check_running()
                    try:
                        held = condition(*arguments)
                        if await held if inspect.isawaitable(held) else held:
                            return
                        missing = ""
                    except LookupError as error:
                        missing = f"\n  ({type(error).__name__}: {error})"
                    await asyncio.sleep(LOOK_EVERY_S)
        except TimeoutError:
            text = f"not true within {timeout:g} s: {source_of(condition)}{missing}\n{self.text()}"
            raise NotReached(text) from None

    async def settle(self, timeout: float = 10.0) -> None:
        """Wait until all is done that can be done: brokers told, replicas in sync, deletions and
        reassignments over, but for what waits for brokers that are down."""

        def everything_is_settled() -> bool:
            return is_settled(self.controller, self._registered)

        await self.until(everything_is_settled, timeout)

    def text(self) -> str:
        """The cluster's state for people, as failures show it."""
        notes = [
            *controller_notes(self.controller),
            *(f"hook: {hook}" for hook in self._hooks),
            "last events: " + (", ".join(self._handled) or "none"),
            f"seed {self.seed}",
        ]
        state = self.controller.state
        topics = partitions_by_topic(state) if state else {}
        return described(self.brokers.values(), topics, notes)

    def _note(self, done: Handled) -> None:
        name = type(done.event).__name__
        # Answers are many, and tell the least.
        if not name.endswith("ResponseReceived"):
            self._handled.append(f"{name} ({done.took_s * 1000:.0f} ms)")

    # -- inside ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def _noticed(self, seen: Callable[[ClusterState], bool]) -> AsyncIterator[None]:
        """What is done in here has been seen, and dealt with, when this is left.

        Looks after whole events only: in the middle of one, leaders are not elected yet.
        """
        noticed = asyncio.Event()

        def look(_done: Handled) -> None:
            state = self.controller.state
            if state is None or seen(state):
                noticed.set()

        unsubscribe = self.controller.on_handled(look)
        try:
            yield
            if self.controller.is_active:
                async with asyncio.timeout(NOTICE_BOUND_S):
                    await noticed.wait()
        except TimeoutError:
            pass  # its controller is in trouble; what the test waits for next will say so
        finally:
            unsubscribe()

    def _check_running(self) -> None:
        """A cluster that fell over, or a hook that did, must not look like one that is slow."""
        error, self._hooks.error = self._hooks.error, None
        if error is not None:
            raise error
        assert self._task is not None
        if self._task.done():
            if not self._task.cancelled():
                self._task.result()
            raise RuntimeError("the cluster has ended")

    def _known(self, broker: int) -> int:
        if broker not in self._registered:
            raise LookupError(f"no broker {broker}; there are {', '.join(map(str, self._ids))}")
        return broker

    def _up(self, broker: int) -> int:
        if self._known(broker) not in self._registered.live:
            raise ValueError(f"broker {broker} is down already")
        return broker

    async def _create_topics(self, topics: Iterable[ev.NewTopic]) -> None:
        wanted = tuple(topics)
        answer = await self.controller.ask(lambda c: ev.CreateTopics(c, wanted))
        expect_done(answer, f"create topic {', '.join(t.name for t in wanted)}")
        await self.controller.until(
            lambda c: c.state is not None and all(t.name in c.state.topics for t in wanted)
        )


def _racks(
    ids: Iterable[int], racks: Mapping[int, str] | Sequence[str] | None
) -> dict[int, str] | None:
    if not racks:
        return None
    if isinstance(racks, Mapping):
        return dict(racks)
    return {broker: racks[place % len(racks)] for place, broker in enumerate(ids)}
