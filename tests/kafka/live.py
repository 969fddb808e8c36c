"""A cluster of real brokers with kctl as its controller, and the words that tests use for it."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs

from kctl.model.brokers import Endpoint
from kctl.model.cluster import ClusterState
from kctl.runtime.config import Config
from kctl.runtime.controller import Controller
from kctl.testing.kafka import DEFAULT_VERSION, SESSION_TIMEOUT_MS, KafkaBrokers, run_tool
from kctl.testing.views import until_agreed
from kctl.zookeeper.embedded import HOST, free_ports

BOUND_S = 60.0

ANSWERED = (
    "Controlled shutdown request returned successfully",
    "Controlled shutdown succeeded",  # 2.4
)
UNCLEAN = re.compile(r"^.*(?:[Rr]etrying controlled shutdown|unclean shutdown).*$", re.MULTILINE)


@attrs.define
class LiveCluster:
    zookeeper: str
    controller: Controller
    brokers: KafkaBrokers
    version: str

    @property
    def state(self) -> ClusterState:
        state = self.controller.state
        assert state is not None, "kctl is not the controller"
        return state

    async def until(
        self, condition: Callable[[ClusterState], bool], bound_s: float = BOUND_S
    ) -> None:
        """Wait for a state of the controller; fails with what it was when the time is up."""
        try:
            async with asyncio.timeout(bound_s):
                await self.controller.until(lambda c: c.state is not None and condition(c.state))
        except TimeoutError:
            raise AssertionError(f"still {self.controller.state!r:.3000}") from None

    async def until_registered(self, *brokers: int) -> None:
        await self.until(lambda state: sorted(state.brokers) == sorted(brokers))

    async def until_in_sync(self) -> None:
        """Every partition has a leader, and its ISR is all its replicas."""
        await self.until(
            lambda state: all(
                row.leader in state.live and len(row.isr) == len(row.replicas)
                for row in state.rows.values()
            )
        )

    async def until_agreed(self, *brokers: int) -> None:
        """The brokers' own view equals ZooKeeper's."""
        ids = brokers or tuple(b for b, broker in self.brokers.brokers.items() if broker.running)
        await until_agreed(self.zookeeper, [self.brokers[b].address for b in ids])

    async def tool(self, name: str, *arguments: str, stdin: str | None = None) -> str:
        """One of Kafka's own tools of the brokers' version, through these brokers."""
        server = ("--bootstrap-server", self.brokers.bootstrap)
        if name == "kafka-reassign-partitions" and self.version.startswith("2.4"):
            server = ("--zookeeper", self.zookeeper)  # it knew no other way then
        return await asyncio.to_thread(
            run_tool, name, *server, *arguments, version=self.version, stdin=stdin
        )

    async def create(self, topic: str, partitions: int = 3, replication_factor: int = 3) -> None:
        await self.tool(
            "kafka-topics",
            *("--create", "--topic", topic, "--partitions", str(partitions)),
            *("--replication-factor", str(replication_factor)),
        )

    async def shut_down(self, broker_id: int) -> None:
        """SIGTERM; the broker's own log must call it a success, at the first attempt."""
        broker = self.brokers[broker_id]
        begun_at = len(broker.log())
        await asyncio.to_thread(broker.terminate)
        log = broker.log()[begun_at:]
        assert UNCLEAN.findall(log) == []
        assert any(line in log for line in ANSWERED)
        await self.until(lambda state: broker_id not in state.brokers)

    async def kill(self, broker_id: int) -> None:
        """kill -9, and wait till ZooKeeper expires its session: before that it cannot return."""
        await asyncio.to_thread(self.brokers[broker_id].kill)
        await self.until(lambda state: broker_id not in state.brokers)

    async def start(self, broker_id: int) -> None:
        self.brokers[broker_id].spawn()
        await asyncio.to_thread(self.brokers[broker_id].wait_ready)
        await self.until(lambda state: broker_id in state.brokers)

    def broker_errors(self) -> list[str]:
        return unexpected_errors(self.brokers)


NORMAL_ERRORS = re.compile(
    # A follower that fetches before its leader has heard of the new topic.
    r"\[ReplicaFetcher"
    # Its partition has no leader, and Kafka's controller says so to a returning broker, too.
    r"|cannot become follower since the new leader -1 is unavailable"
    # A broker that was controller for a moment ends its threads, and what it had sent is fenced;
    # both are to be seen as well when `/controller` is deleted under Kafka's own controllers.
    r"|\(kafka\.controller\.RequestSendThread\)\njava\.lang\.InterruptedException"
    r"|ControllerMovedException: .*Received .* from an old controller \d with epoch"
)


def unexpected_errors(brokers: KafkaBrokers) -> list[str]:
    """ERROR lines in the brokers' logs, without those that Kafka's own controller causes too."""
    return [
        line
        for broker in brokers.brokers.values()
        for line in broker.errors()
        if not NORMAL_ERRORS.search(line)
    ]


@asynccontextmanager
async def live_controller(
    zookeeper: str, controller_id: int = 1000, **settings: Any
) -> AsyncIterator[Controller]:
    (port,) = free_ports(1)
    config = attrs.evolve(
        Config(
            zookeeper_connect=zookeeper,
            zookeeper_session_timeout_ms=SESSION_TIMEOUT_MS,
            broker_id=controller_id,
            listeners=(Endpoint("PLAINTEXT", HOST, port),),
            auto_leader_rebalance_enable=False,
        ),
        **settings,
    )
    async with Controller(config) as controller:
        yield controller


@asynccontextmanager
async def live_cluster(
    zookeeper: str,
    *,
    version: str = DEFAULT_VERSION,
    versions: Sequence[str] = (),
    brokers: int = 3,
    brokers_first: bool = False,
    log_dirs: int = 1,
    settings: Mapping[str, str] | None = None,
    **controller_settings: Any,
) -> AsyncIterator[LiveCluster]:
    """kctl first and then the brokers, or the other way round: then one of them rules at first."""
    cluster = KafkaBrokers(
        brokers, zookeeper, version=version, versions=versions, log_dirs=log_dirs, settings=settings
    )
    if brokers_first:
        async with (
            cluster,
            live_controller(zookeeper, takeover=True, **controller_settings) as controller,
        ):
            async with asyncio.timeout(BOUND_S):
                await controller.until(lambda c: c.is_active)
            live = LiveCluster(zookeeper, controller, cluster, versions[0] if versions else version)
            await live.until_agreed()
            yield live
        return
    async with live_controller(zookeeper, **controller_settings) as controller:
        async with asyncio.timeout(BOUND_S):
            await controller.until(lambda c: c.is_active)
        async with cluster:
            live = LiveCluster(zookeeper, controller, cluster, versions[0] if versions else version)
            await live.until_registered(*cluster.brokers)
            # A client that finds brokers which know of no controller yet can wait for minutes.
            await live.until_agreed()
            yield live
