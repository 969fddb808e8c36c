"""The controllership goes from kctl to brokers and back, and from kctl to kctl, under load."""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import attrs
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kctl.testing.kafka import KafkaBrokers
from kctl.testing.views import until_agreed
from tests.kafka.live import unexpected_errors
from tests.kafka.load import Load
from tests.kafka.processes import KctlProcess, kctl_run, until_controller

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

BROKERS = (1, 2, 3)
CONTROLLER_LOGS = re.compile(r"\((?:kafka\.controller|state\.change\.logger)")


@attrs.define
class Office:
    """A cluster of brokers whose controller changes."""

    zookeeper: str
    brokers: KafkaBrokers
    kctl: KctlProcess
    folder: Path
    stack: ExitStack
    topics: "itertools.count[int]" = attrs.field(factory=lambda: itertools.count(1))

    async def in_order(self) -> None:
        """All brokers show what ZooKeeper holds, and clients find the controller."""
        await self.agreed()
        await self.create(f"made-{next(self.topics)}", partitions=2)
        await self.agreed()

    async def create(self, topic: str, partitions: int) -> None:
        # A new client: one that knows a controller waits for it minutes long before it asks again.
        client = AdminClient({"bootstrap.servers": self.brokers.bootstrap, "log_level": 0})
        made = client.create_topics([NewTopic(topic, partitions, 3)], operation_timeout=30)
        await asyncio.to_thread(made[topic].result, 60)

    async def agreed(self) -> None:
        running = [b.address for b in self.brokers.brokers.values() if b.running]
        await until_agreed(self.zookeeper, running, bound_s=60)

    async def start_kctl(self, controller_id: int = 1000, *, force: bool = False) -> None:
        self.kctl = self.stack.enter_context(
            kctl_run(self.zookeeper, self.folder, controller_id, force=force)
        )
        await until_controller(self.zookeeper, controller_id)

    @property
    def other_id(self) -> int:
        return 1001 if self.kctl.id == 1000 else 1000

    async def stand_by(self) -> None:
        """Start another kctl, and wait till it has seen who rules."""
        active, standby = self.kctl, self.other_id
        self.kctl = self.stack.enter_context(kctl_run(self.zookeeper, self.folder, standby))
        await self.kctl.until_logged("ZooKeeper session")
        assert await until_controller(self.zookeeper, active.id) == active.id

    def broker_errors(self) -> list[str]:
        return unexpected_errors(self.brokers)


@asynccontextmanager
async def office(zookeeper: str, folder: Path) -> AsyncIterator[Office]:
    with ExitStack() as stack:
        kctl = stack.enter_context(kctl_run(zookeeper, folder))
        await until_controller(zookeeper, 1000)
        async with KafkaBrokers(len(BROKERS), zookeeper) as brokers:
            one = Office(zookeeper, brokers, kctl, folder, stack)
            # A client that finds brokers which know of no controller yet waits longer than we do.
            await one.agreed()
            await one.create("orders", partitions=6)
            yield one


async def killed(one: Office) -> None:
    """kill -9: a broker follows when the session is over, and kctl takes it back."""
    one.kctl.kill()
    await until_controller(one.zookeeper, *BROKERS)
    await one.in_order()
    await one.start_kctl()
    await one.in_order()


async def relieved(one: Office) -> None:
    """SIGTERM, and another kctl stands by: it follows, if need be after a broker."""
    first = one.kctl
    await one.stand_by()
    assert await asyncio.to_thread(first.terminate) == 0
    await until_controller(one.zookeeper, one.kctl.id)
    await one.in_order()


async def forced(one: Office) -> None:
    """Another kctl takes it by force from one that goes on living."""
    first = one.kctl
    await one.start_kctl(one.other_id, force=True)
    await one.in_order()
    assert first.running, "the loser stands by"
    assert await asyncio.to_thread(first.terminate) == 0
    await one.agreed()


async def stopped(one: Office) -> None:
    """SIGTERM: a broker follows at once, and kctl takes it back."""
    assert await asyncio.to_thread(one.kctl.terminate) == 0
    await until_controller(one.zookeeper, *BROKERS)
    await one.in_order()
    await one.start_kctl()
    await one.in_order()


async def survived(one: Office) -> None:
    """kill -9, and another kctl stands by."""
    first = one.kctl
    await one.stand_by()
    first.kill()
    await until_controller(one.zookeeper, one.kctl.id)
    await one.in_order()


async def frozen(one: Office) -> None:
    """SIGSTOP till a broker rules: when it wakes up it forgets its term, and takes a new one."""
    one.kctl.pause()
    await until_controller(one.zookeeper, *BROKERS)
    await one.in_order()
    one.kctl.resume()
    await until_controller(one.zookeeper, one.kctl.id)
    await one.in_order()


WAYS = (killed, relieved, forced, stopped, survived, frozen)


@pytest.mark.parametrize(
    "times",
    [3, pytest.param(20, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])],
)
async def test_handovers_in_a_row(chroot: str, tmp_path: Path, times: int) -> None:
    async with office(chroot, tmp_path) as one:
        async with Load(one.brokers.bootstrap, "orders") as load:
            for turn in range(times):
                await WAYS[turn % len(WAYS)](one)
                assert one.kctl.faults() == []
                await load.more(50)
            balance = await load.balance()
        print(f"{times} times: {balance}")  # noqa: T201
        assert balance.is_clean, str(balance)
        errors = one.broker_errors()
        assert [line for line in errors if CONTROLLER_LOGS.search(line)] == []
        assert errors == []
