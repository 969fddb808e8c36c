"""A tour of what a controller does, on a real ZooKeeper with simulated brokers.

    scripts/demo        (or: python -m examples.tour)

Each step is checked where it counts: in ZooKeeper, and in what every broker was told over TCP. A
step that does not come true ends the tour with exit code 1.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import attrs
import structlog
from rich.console import Console
from rich.table import Table

import kctl
from kctl.brokers.simulated import SimulatedBroker, SimulatedBrokers
from kctl.messages import events as ev
from kctl.messages.answers import AnswerValue, TopicResults
from kctl.model.brokers import Endpoint
from kctl.model.codes import KafkaError
from kctl.model.names import TopicPartition
from kctl.testing.simulated import register
from kctl.zookeeper import paths
from kctl.zookeeper.embedded import EmbeddedZooKeeper, free_ports
from kctl.zookeeper.session import Session

BROKERS = range(1, 6)
PARTITIONS = 12
STEP_BOUND_S = 30.0
SESSION_MS = 6_000

console = Console(highlight=False)


@attrs.define
class Tour:
    zookeeper: str
    zk: Session
    brokers: SimulatedBrokers
    sessions: dict[int, Session] = attrs.field(factory=dict)
    """One for each broker: a broker is alive as long as its session."""
    done: list[tuple[str, str, float]] = attrs.field(factory=list)

    async def step(
        self, title: str, shown: Callable[[], str], true: Callable[[], bool], began: float
    ) -> None:
        """Wait until it is true, and say what can be seen."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(STEP_BOUND_S):
            while not true():  # noqa: ASYNC110 the truth lies in several places
                await asyncio.sleep(0.002)
        took_ms = (loop.time() - began) * 1000
        self.done.append((title, shown(), took_ms))
        console.print(f"[bold green]{len(self.done):2}[/] {title} [dim]{took_ms:.0f} ms[/]")
        console.print(f"   [cyan]{shown()}[/]")

    # -- brokers ------------------------------------------------------------------------------

    async def start(self, broker: SimulatedBroker) -> None:
        session = await Session.connect(self.zookeeper, timeout_ms=SESSION_MS)
        self.sessions[broker.id] = session
        await register(session, broker)

    async def kill(self, broker: SimulatedBroker) -> None:
        await broker.stop()
        await self.sessions.pop(broker.id).close()

    # -- what is so ---------------------------------------------------------------------------

    def told(self, controller: kctl.Controller) -> bool:
        """Every live broker knows every partition as the controller does."""
        cluster = controller.state
        if cluster is None or set(cluster.live) != set(self.sessions):
            return False
        leaders = {tp: row.leader for tp, row in cluster.rows.items()}
        return all(
            {tp: state.leader for tp, state in self.brokers[b].belief.metadata.items()} == leaders
            for b in self.sessions
        )

    def leaders(self, controller: kctl.Controller, topic: str) -> str:
        """`1: 3 partitions, 2: 3, ...`"""
        assert controller.state is not None
        counts: dict[int, int] = {}
        for tp in controller.state.partitions_of(topic):
            leader = controller.state.rows[tp].leader
            counts[leader] = counts.get(leader, 0) + 1
        return ", ".join(f"broker {b} leads {n}" for b, n in sorted(counts.items()))


@asynccontextmanager
async def candidate(
    connect: str, broker_id: int
) -> AsyncIterator[tuple[kctl.Controller, Callable[[], None]]]:
    """A controller in a task of its own, and a way to make it leave before the others."""
    (port,) = free_ports(1)
    config = kctl.Config(
        zookeeper_connect=connect,
        broker_id=broker_id,
        listeners=(Endpoint("PLAINTEXT", "127.0.0.1", port),),
        zookeeper_session_timeout_ms=SESSION_MS,
    )
    controller = kctl.Controller(config)
    begun, leave = asyncio.Event(), asyncio.Event()

    async def run() -> None:
        async with controller:
            begun.set()
            await leave.wait()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run())
        await begun.wait()
        try:
            yield controller, leave.set
        finally:
            leave.set()


async def tour() -> Tour:
    async with AsyncExitStack() as stack:
        console.print("[dim]starting a real ZooKeeper server ...[/]")
        server = await stack.enter_async_context(EmbeddedZooKeeper())
        connect = f"{server.connect_string}/kafka"
        root = await stack.enter_async_context(Session.open(server.connect_string))
        await root.create("/kafka")
        zk = await stack.enter_async_context(Session.open(connect))
        for path in ("/brokers", paths.BROKER_IDS):
            await zk.create(path, None)
        brokers = await stack.enter_async_context(SimulatedBrokers(BROKERS))
        view = Tour(connect, zk, brokers)
        first, leave = await stack.enter_async_context(candidate(connect, 1000))
        await first.until(lambda c: c.is_active)
        second, _ = await stack.enter_async_context(candidate(connect, 1001))
        try:
            await walk(view, first, second, leave)
        finally:
            for session in view.sessions.values():
                await session.close()
        return view


async def walk(
    view: Tour, first: kctl.Controller, second: kctl.Controller, leave: Callable[[], None]
) -> None:
    now = asyncio.get_running_loop().time
    epoch = 0 if first.state is None else first.state.epoch
    await view.step(
        "Two controllers stand for election on an empty ZooKeeper: one wins, one stands by",
        lambda: f"/controller names {first.active_id}, controller epoch {epoch}; 1001 stands by",
        lambda: first.is_active and second.active_id == 1000,
        now(),
    )
    began = now()
    for broker in view.brokers.values():
        await view.start(broker)
    await view.step(
        "Five brokers start and register themselves",
        lambda: f"live: {sorted(first.state.live) if first.state else ''}, each was told of all",
        lambda: view.told(first) and all(len(b.belief.live) >= 5 for b in view.brokers.values()),
        began,
    )
    await topics_come(view, first)
    await a_broker_dies_and_returns(view, first)
    await topics_go(view, first)
    await poison(view, first)
    await hand_over(view, first, second, leave)


async def topics_come(view: Tour, controller: kctl.Controller) -> None:
    now = asyncio.get_running_loop().time
    began = now()
    expect_ok(
        await controller.ask(lambda c: ev.CreateTopics(c, (ev.NewTopic("orders", PARTITIONS, 3),)))
    )
    await view.step(
        f"A client creates the topic orders: {PARTITIONS} partitions, 3 replicas each",
        lambda: view.leaders(controller, "orders"),
        lambda: view.told(controller),
        began,
    )
    began = now()
    partitions = {str(p): [p % 5 + 1, (p + 1) % 5 + 1] for p in range(6)}
    await view.zk.create(
        paths.topic("payments"), json.dumps({"version": 2, "partitions": partitions}).encode()
    )
    await view.step(
        "Another topic, payments, is written into ZooKeeper, as Kafka's tools do",
        lambda: view.leaders(controller, "payments"),
        lambda: knows(controller, "payments") and view.told(controller),
        began,
    )


async def a_broker_dies_and_returns(view: Tour, controller: kctl.Controller) -> None:
    now = asyncio.get_running_loop().time
    began = now()
    await view.kill(view.brokers[1])
    await view.step(
        "Broker 1 dies: other replicas become leaders, and every broker is told",
        lambda: view.leaders(controller, "orders"),
        lambda: led_by_others(controller, 1) and view.told(controller),
        began,
    )
    began = now()
    await view.brokers[1].restart()
    await view.start(view.brokers[1])
    await view.step(
        "Broker 1 returns: it is told all that it must know",
        lambda: f"broker 1 hosts {len(view.brokers[1].belief.hosted)} replicas again",
        lambda: view.told(controller) and bool(view.brokers[1].belief.hosted),
        began,
    )
    began = now()
    back = await catch_up(controller, 1)
    await controller.ask(
        lambda c: ev.ReplicaLeaderElection(
            c, None, ev.ElectionType.PREFERRED, ev.ElectionTrigger.ADMIN_CLIENT
        )
    )
    await view.step(
        f"Its {back} replicas catch up; a preferred election gives its leaderships back",
        lambda: view.leaders(controller, "orders"),
        lambda: view.told(controller) and not led_by_others(controller, 1),
        began,
    )


async def catch_up(controller: kctl.Controller, broker_id: int) -> int:
    """Leaders ask for the broker to be in their ISRs, as they do when its replicas caught up."""
    cluster = controller.state
    assert cluster is not None
    tps = [tp for tp in cluster.partitions_on(broker_id) if broker_id not in cluster.rows[tp].isr]
    for tp in tps:
        led = cluster.rows[tp].leadership
        assert led is not None
        proposal = ev.IsrProposal((*led.isr, broker_id), led.leader_epoch, led.zk_version)
        leader = cluster.brokers[led.leader]
        await controller.ask(
            lambda c, tp=tp, leader=leader, proposal=proposal: ev.AlterPartitionReceived(  # type: ignore[misc]
                c, leader.id, leader.epoch, 1, {tp: proposal}
            )
        )
    return len(tps)


async def topics_go(view: Tour, controller: kctl.Controller) -> None:
    began = asyncio.get_running_loop().time()
    expect_ok(await controller.ask(lambda c: ev.DeleteTopics(c, (("payments", None),))))
    await view.step(
        "The topic payments is deleted: brokers drop its replicas, ZooKeeper forgets it",
        lambda: "no broker knows it any more",
        lambda: not knows(controller, "payments") and view.told(controller),
        began,
    )
    assert await view.zk.exists(paths.topic("payments")) is None


async def poison(view: Tour, controller: kctl.Controller) -> None:
    now = asyncio.get_running_loop().time
    began = now()
    path = paths.topic("broken")
    await view.zk.create(path, b'{"version":2,"partitions":{"x":[1]}}')
    await view.step(
        "Somebody writes a topic that makes no sense: only that topic is set aside",
        lambda: (
            f"in quarantine: {', '.join(controller.state.quarantine) if controller.state else ''}"
        ),
        lambda: controller.state is not None and path in controller.state.quarantine,
        began,
    )
    began = now()
    await view.zk.set(path, b'{"version":2,"partitions":{"0":[1,2,3]}}')
    await view.step(
        "It is repaired, and taken up without a restart",
        lambda: view.leaders(controller, "broken"),
        lambda: knows(controller, "broken") and view.told(controller),
        began,
    )


async def hand_over(
    view: Tour, first: kctl.Controller, second: kctl.Controller, leave: Callable[[], None]
) -> None:
    now = asyncio.get_running_loop().time
    before = {} if first.state is None else dict(first.state.rows)
    began = now()
    leave()
    await view.step(
        "The first controller stops: it hands over, and the second one takes office at once",
        lambda: f"/controller names 1001, epoch {second.state.epoch if second.state else ''}",
        lambda: second.is_active and view.told(second),
        began,
    )
    assert second.state is not None
    same = sum(second.state.rows[tp].leader == row.leader for tp, row in before.items())
    console.print(f"   [cyan]{same} of {len(before)} partitions kept their leader[/]")
    assert same == len(before)
    began = now()
    await view.kill(view.brokers[2])
    await view.step(
        "Broker 2 dies: the second controller deals with it",
        lambda: view.leaders(second, "orders"),
        lambda: led_by_others(second, 2) and view.told(second),
        began,
    )


def knows(controller: kctl.Controller, topic: str) -> bool:
    return controller.state is not None and topic in controller.state.topics


def led_by_others(controller: kctl.Controller, broker: int) -> bool:
    """No partition is led by it, and none is without a leader."""
    cluster = controller.state
    return cluster is not None and all(r.leader not in (broker, -1) for r in cluster.rows.values())


def expect_ok(answer: AnswerValue) -> None:
    assert isinstance(answer, TopicResults), answer
    assert all(topic.error.code is KafkaError.NONE for topic in answer.topics), answer


def summary(view: Tour) -> None:
    table = Table(
        "", "what happened", "seen", "ms", title="What you have seen", title_justify="left"
    )
    table.columns[3].justify = "right"
    for number, (title, shown, took_ms) in enumerate(view.done, 1):
        table.add_row(str(number), title, shown, f"{took_ms:.0f}")
    console.print()
    console.print(table)
    orders = TopicPartition("orders", 0)
    requests = sum(len(broker.frames) for broker in view.brokers.values())
    console.print(
        f"{requests} requests reached the brokers. Try it yourself: [bold]kctl up[/] starts such a"
        f" cluster, [bold]kctl explain {orders} --zookeeper ...[/] asks it."
    )


def main() -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    view: Tour | None = None
    try:
        view = asyncio.run(tour())
        summary(view)
    except* (AssertionError, TimeoutError) as group:
        console.print(f"[bold red]a step did not come true[/] {group.exceptions[0]!r}")
    return 0 if view else 1


if __name__ == "__main__":
    sys.exit(main())
