"""Kafka's own controller: a real broker without partitions, which wins the election."""

import asyncio
from collections.abc import Mapping

from kctl.bench.subject import Record
from kctl.testing.kafka import KafkaBroker, class_path
from kctl.zookeeper.embedded import HOST

BROKER_ID = 0
SHIPPED_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
"""As Kafka's own start script sets them."""
SETTINGS: Mapping[str, str] = {
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.enable": "false",
    "auto.create.topics.enable": "false",
    "log.cleaner.enable": "false",
    "zookeeper.session.timeout.ms": "18000",
}


class Kafka:
    """The heap: 4 GB for times, so that it is never short; 1 GB, as shipped, for memory."""

    controller_id = BROKER_ID

    def __init__(self, version: str = "3.9.1", heap_mb: int = 4_096) -> None:
        self.name = f"kafka-{version}"
        self._version = version
        self._heap_mb = heap_mb
        self._broker: KafkaBroker | None = None

    @property
    def pid(self) -> int:
        assert self._broker is not None, "not started"
        return self._broker.pid

    @property
    def address(self) -> tuple[str, int]:
        assert self._broker is not None, "not started"
        return HOST, self._broker.port

    async def start(self, zookeeper: str) -> None:
        await asyncio.to_thread(class_path, self._version)
        self._broker = KafkaBroker(
            BROKER_ID,
            zookeeper,
            version=self._version,
            heap_mb=self._heap_mb,
            jvm_options=SHIPPED_OPTIONS,
            settings=SETTINGS,
        )
        # By this thread, with which it would end.
        self._broker.spawn()
        await asyncio.to_thread(self._broker.wait_ready)

    async def stop(self) -> None:
        broker, self._broker = self._broker, None
        if broker is not None:
            await asyncio.to_thread(broker.terminate)
            await asyncio.to_thread(broker.close)

    def records(self) -> list[Record]:
        return []

    def profile(self, *, begin: bool) -> None:
        """It makes none."""
