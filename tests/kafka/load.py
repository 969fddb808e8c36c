"""Records with numbers: written without a pause while things happen, then read back and counted."""

import asyncio
import threading
import time
from collections import Counter
from typing import Any, Self

import attrs
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)

PER_SECOND = 250
BOUND_S = 120.0


@attrs.frozen
class Balance:
    """What became of the records that the cluster acknowledged."""

    acked: int
    lost: tuple[int, ...]
    doubled: tuple[int, ...]
    failed: tuple[str, ...]
    longest_gap_s: float

    def __str__(self) -> str:
        return (
            f"{self.acked} acknowledged, {len(self.lost)} lost, {len(self.doubled)} doubled,"
            f" {len(self.failed)} failed, longest gap {self.longest_gap_s:.2f} s"
        )

    @property
    def is_clean(self) -> bool:
        return self.acked > 0 and not (self.lost or self.doubled or self.failed)


class Load:
    """An idempotent producer with acks=all: `async with Load(bootstrap, "orders") as load: ...`"""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self.acked: list[int] = []
        self.failed: list[str] = []
        self.longest_gap_s = 0.0
        self._last_ack_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._produce, name="load")

    async def __aenter__(self) -> Self:
        self._thread.start()
        await self.more(10)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.to_thread(self._thread.join)

    async def more(self, records: int) -> None:
        """Wait till so many more are acknowledged."""
        goal = len(self.acked) + records
        try:
            async with asyncio.timeout(BOUND_S):
                while len(self.acked) < goal:  # noqa: ASYNC110 another thread counts
                    await asyncio.sleep(0.02)
        except TimeoutError:
            short = goal - len(self.acked)
            raise AssertionError(f"{short} of {records} not acknowledged: {self.failed}") from None

    async def balance(self) -> Balance:
        """Stop, read the topic from its beginning, and count."""
        await self.stop()
        found = await asyncio.to_thread(read_numbers, self._bootstrap, self._topic)
        return Balance(
            acked=len(self.acked),
            lost=tuple(n for n in self.acked if not found[n]),
            doubled=tuple(n for n, times in found.items() if times > 1),
            failed=tuple(self.failed),
            longest_gap_s=self.longest_gap_s,
        )

    def _produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": int(BOUND_S * 1000),
                "error_cb": _ignore,
                "log_level": 0,
            }
        )
        number = 0
        self._last_ack_s = time.monotonic()
        begun_s = time.monotonic()
        while not self._stop.is_set():
            due = int((time.monotonic() - begun_s) * PER_SECOND)
            while number < due and number - len(self.acked) < 20 * PER_SECOND:
                producer.produce(self._topic, str(number).encode(), on_delivery=self._delivered)
                number += 1
            producer.poll(0.005)
        producer.flush(BOUND_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        now_s = time.monotonic()
        self.longest_gap_s = max(self.longest_gap_s, now_s - self._last_ack_s)
        self._last_ack_s = now_s
        self.acked.append(int(message.value() or b""))


def _ignore(_error: KafkaError) -> None:
    """Brokers that come and go are what these tests are about."""


def read_numbers(bootstrap: str, topic: str, **settings: Any) -> Counter[int]:
    """Every record of the topic, from the earliest to what was its end at the first look."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
            "error_cb": _ignore,
            "log_level": 0,
            **settings,
        }
    )
    found: Counter[int] = Counter()
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
        unread = set(partitions)
        deadline_s = time.monotonic() + BOUND_S
        while unread:
            assert time.monotonic() < deadline_s, f"no end of partitions {unread}"
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found[int(message.value() or b"")] += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
    finally:
        consumer.close()
    return found
