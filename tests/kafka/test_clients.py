"""Kafka's own tools and other people's clients, who take the controller for one more broker."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kctl.insight.snapshot import open_reader, take_snapshot
from kctl.messages.effects import TopicNode
from kctl.messages.outbox import Story
from kctl.model.brokers import Endpoint
from kctl.model.names import TopicPartition
from kctl.testing.kafka import DEFAULT_VERSION, KafkaBrokers, run_tool
from kctl.zookeeper.embedded import HOST, free_ports
from tests.kafka.live import LiveCluster, live_cluster, live_controller
from tests.kafka.load import Load, read_numbers

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

CONTROLLER_ID = 1000
BOUND_S = 60.0

Ask = Callable[..., Awaitable[str]]
"""One of Kafka's tools and its arguments."""


async def assignments(cluster: LiveCluster) -> dict[str, set[int]]:
    """By topic, all brokers that ZooKeeper names in its assignment."""
    async with open_reader(cluster.zookeeper) as reader:
        topics = (await take_snapshot(reader)).zookeeper.topics
    return {
        topic: {b for a in node.partitions.values() for b in a.replicas}
        for topic, node in topics.items()
        if isinstance(node, TopicNode)
    }


async def test_clients_of_three_makes(chroot: str) -> None:
    """They write and read with acks=all; what brokers create for them never names the controller."""
    stories: list[Story] = []
    # With racks: a node without one among them would make brokers refuse to create anything.
    async with live_cluster(chroot, settings={"broker.rack": "one"}) as cluster:
        ended = cluster.controller.on_story(stories.append)
        await cluster.create("orders", partitions=3)
        bootstrap = cluster.brokers.bootstrap
        async with Load(bootstrap, "orders") as load:
            await load.more(200)
            balance = await load.balance()
        assert balance.is_clean, str(balance)

        committed = await asyncio.to_thread(confluent_transactions, bootstrap)
        assert committed == Counter(range(10))
        assert await aiokafka_round(bootstrap) == list(range(50))
        await java_round(cluster)
        ended()

        found = await assignments(cluster)
        assert {"auto-aiokafka", "__consumer_offsets", "__transaction_state"} <= set(found)
        assert {topic for topic, brokers in found.items() if CONTROLLER_ID in brokers} == set()
        repaired = {
            (s.key or "").rpartition("-")[0] for s in stories if s.what == "assignment repaired"
        }
        assert {"__consumer_offsets", "__transaction_state"} <= repaired
        await cluster.until_in_sync()
        await cluster.until_agreed()
        assert cluster.broker_errors() == []


def confluent_transactions(bootstrap: str) -> Counter[int]:
    """Ten records committed, ten aborted: what a reader of committed records sees."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "confluent", "log_level": 0}
    )
    producer.init_transactions(BOUND_S)
    for first, end in (
        (0, producer.commit_transaction),
        (100, producer.abort_transaction),
    ):
        producer.begin_transaction()
        for number in range(first, first + 10):
            producer.produce("auto-confluent", str(number).encode())
        producer.flush(BOUND_S)
        end(BOUND_S)
    return read_numbers(bootstrap, "auto-confluent", **{"isolation.level": "read_committed"})


async def aiokafka_round(bootstrap: str) -> list[int]:
    """An idempotent producer, a transactional one and a group of one consumer."""
    async with asyncio.timeout(BOUND_S):
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, acks="all", enable_idempotence=True
        ) as plain:
            for number in range(25):
                await plain.send_and_wait("auto-aiokafka", str(number).encode())
        async with (
            AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="aiokafka") as producer,
            producer.transaction(),
        ):
            for number in range(25, 50):
                await producer.send_and_wait("auto-aiokafka", str(number).encode())
        async with AIOKafkaConsumer(
            "auto-aiokafka",
            bootstrap_servers=bootstrap,
            group_id="aiokafka",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            records: list[ConsumerRecord] = []
            while len(records) < 50:
                records.append(await consumer.getone())
            await consumer.commit()
    return sorted(int(record.value) for record in records)


async def java_round(cluster: LiveCluster) -> None:
    bootstrap = cluster.brokers.bootstrap
    written = await asyncio.to_thread(
        run_tool,
        "kafka-producer-perf-test",
        *("--topic", "orders", "--num-records", "1000", "--record-size", "100"),
        *("--throughput", "-1", "--producer-props", f"bootstrap.servers={bootstrap}", "acks=all"),
    )
    assert "1000 records sent" in written
    read = await cluster.tool(
        "kafka-console-consumer",
        *("--topic", "orders", "--from-beginning", "--group", "java"),
        *("--max-messages", "1200", "--timeout-ms", "30000"),
    )
    assert len(read.splitlines()) == 1200


async def test_clients_that_know_only_the_controller(chroot: str) -> None:
    """Bootstrapped on its port, tools and clients see the cluster, and not a thousandth broker."""
    async with live_cluster(chroot) as cluster:
        (endpoint,) = cluster.controller.config.listeners
        address = f"{endpoint.host}:{endpoint.port}"

        async def ask(tool: str, *arguments: str) -> str:
            return await asyncio.to_thread(
                run_tool, tool, "--bootstrap-server", address, *arguments
            )

        await ask(
            *("kafka-topics", "--create", "--topic", "orders", "--replica-assignment"),
            "1:2,2:1",
        )
        await asyncio.to_thread(produce_and_consume, address, "orders")
        assert "orders" in (await ask("kafka-topics", "--list")).split()
        described = await ask("kafka-topics", "--describe", "--topic", "orders")
        assert described.count("Leader: ") == 2
        await ask(
            *("kafka-configs", "--alter", "--entity-type", "topics", "--entity-name", "orders"),
            *("--add-config", "retention.ms=3600000"),
        )
        configs = await ask(
            "kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", "orders"
        )
        assert "retention.ms=3600000" in configs
        of_all = await ask("kafka-configs", "--describe", "--entity-type", "brokers", "--all")
        for broker in (1, 2, 3, CONTROLLER_ID):
            assert f"broker {broker} are" in of_all
        assert "group-1" in (await ask("kafka-consumer-groups", "--list")).split()
        group = await ask("kafka-consumer-groups", "--describe", "--group", "group-1")
        assert "orders" in group
        await log_dirs(ask)
        await reassignments(cluster, address, ask)
        assert cluster.broker_errors() == []


def produce_and_consume(address: str, topic: str) -> None:
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": address, "acks": "all", "log_level": 0})
    for number in range(20):
        producer.produce(
            topic,
            str(number).encode(),
            partition=number % 2,
            on_delivery=delivered,
        )
    assert producer.flush(BOUND_S) == 0
    assert failed == []
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "group-1",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe([topic])
        numbers: set[int] = set()
        deadline_s = time.monotonic() + BOUND_S
        while len(numbers) < 20:
            assert time.monotonic() < deadline_s, f"only {numbers} were read"
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                numbers.add(int(message.value() or b""))
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


async def log_dirs(ask: Ask) -> None:
    """Each broker's own, and one without logs for the controller."""
    printed = await ask("kafka-log-dirs", "--describe")
    described = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    replicas = {
        broker["broker"]: sorted(p["partition"] for d in broker["logDirs"] for p in d["partitions"])
        for broker in described["brokers"]
    }
    orders = {b: [p for p in names if p.startswith("orders-")] for b, names in replicas.items()}
    assert orders == {
        1: ["orders-0", "orders-1"],
        2: ["orders-0", "orders-1"],
        3: [],
        CONTROLLER_ID: [],
    }
    assert replicas[CONTROLLER_ID] == []


async def reassignments(cluster: LiveCluster, address: str, ask: Ask) -> None:
    """One that is cancelled on its way, and one that ends; throttles go from every node."""
    await asyncio.to_thread(
        run_tool,
        "kafka-producer-perf-test",
        *("--topic", "orders", "--num-records", "5000", "--record-size", "1000"),
        *("--throughput", "-1", "--producer-props", f"bootstrap.servers={address}", "acks=all"),
    )
    file = cluster.brokers[1].folder / "reassign.json"
    moved = TopicPartition("orders", 0)
    plan = {"topic": "orders", "partition": 0, "replicas": [3, 2]}
    file.write_text(json.dumps({"version": 1, "partitions": [plan]}))
    by_file = ("kafka-reassign-partitions", "--reassignment-json-file", str(file))

    assert "No partition reassignments" in await ask("kafka-reassign-partitions", "--list")
    # So slow that it cannot end.
    await ask(*by_file, "--execute", "--throttle", "1")
    assert "orders-0" in await ask("kafka-reassign-partitions", "--list")
    assert "still in progress" in await ask(*by_file, "--verify")
    assert "Successfully cancelled" in await ask(*by_file, "--cancel")
    await cluster.until(lambda state: not state.reassigning)
    # In Kafka, too, a cancelled reassignment does not bring the old order back.
    assert set(cluster.state.rows[moved].replicas) == {1, 2}

    await ask(*by_file, "--execute", "--throttle", "100000000")
    await cluster.until(lambda state: not state.reassigning)
    verified = await ask(*by_file, "--verify")
    assert "is complete" in verified
    assert f"Clearing broker-level throttles on brokers 1,2,3,{CONTROLLER_ID}" in verified
    assert cluster.state.rows[moved].replicas == (3, 2)
    await cluster.until_in_sync()
    await cluster.until_agreed()


@pytest.mark.slow
async def test_clients_on_a_listener_of_their_own(chroot: str) -> None:
    """Brokers and controller have two listeners; each side sees the addresses of its own."""
    names = ("PLAINTEXT", "CLIENT")
    *client_ports, own, own_client = free_ports(5)
    protocols = "PLAINTEXT:PLAINTEXT,CLIENT:PLAINTEXT"
    brokers = KafkaBrokers(3, chroot, settings={"listener.security.protocol.map": protocols})
    for broker, port in zip(brokers.brokers.values(), client_ports, strict=True):
        broker._settings["listeners"] = f"PLAINTEXT://{broker.address},CLIENT://{HOST}:{port}"
        broker._settings["inter.broker.listener.name"] = "PLAINTEXT"
    endpoints = tuple(
        Endpoint(name, HOST, port) for name, port in zip(names, (own, own_client), strict=True)
    )
    async with live_controller(
        chroot,
        listeners=endpoints,
        listener_security_protocol_map=dict.fromkeys(names, "PLAINTEXT"),
        inter_broker_listener_name="PLAINTEXT",
    ) as controller:
        await controller.until(lambda c: c.is_active)
        async with brokers:
            cluster = LiveCluster(chroot, controller, brokers, DEFAULT_VERSION)
            await cluster.until_registered(1, 2, 3)
            await cluster.until_agreed()
            for port in (own_client, client_ports[0]):
                await asyncio.to_thread(use_client_listener, port, {own_client, *client_ports})
            await cluster.until_in_sync()
            await cluster.until_agreed()
            assert cluster.broker_errors() == []


def use_client_listener(port: int, ports: set[int]) -> None:
    bootstrap = f"{HOST}:{port}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topic = f"made-through-{port}"
    admin.create_topics([NewTopic(topic, 3, 3)], operation_timeout=30)[topic].result(BOUND_S)
    described = admin.list_topics(timeout=BOUND_S)
    assert {broker.port for broker in described.brokers.values()} == ports
    assert described.controller_id == CONTROLLER_ID
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    for number in range(20):
        producer.produce(topic, str(number).encode())
    assert producer.flush(BOUND_S) == 0
    assert read_numbers(bootstrap, topic) == Counter(range(20))
