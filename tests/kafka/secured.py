"""Clusters whose brokers ask who somebody is: certificates, listeners and settings for them."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
from confluent_kafka import Consumer, Producer, TopicPartition

from kctl.runtime.config import Config
from kctl.runtime.controller import Controller
from kctl.testing.kafka import DEFAULT_VERSION, SESSION_TIMEOUT_MS, KafkaBrokers, run_tool
from kctl.zookeeper.embedded import HOST, free_ports
from tests.kafka.live import BOUND_S, LiveCluster

BROKERS = 2
CONTROLLER_ID = 1000

Properties = Mapping[str, str]


@attrs.frozen
class Certificates:
    """A CA and what it has signed, in PEM: `<name>.pem` has a key and its certificate."""

    folder: Path

    @classmethod
    def made(cls, folder: Path, *names: str) -> "Certificates":
        made = cls(folder)
        made._openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=ca",
            "ca",
        )
        for name in names:
            made._openssl(
                f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /O=kctl/CN={name}"
                f" -addext subjectAltName=IP:{HOST} -CA {folder}/ca.crt -CAkey {folder}/ca.key",
                name,
            )
        return made

    def _openssl(self, arguments: str, name: str) -> None:
        key, certificate = self.folder / f"{name}.key", self.folder / f"{name}.crt"
        subprocess.run(
            ["openssl", *arguments.split(), "-keyout", str(key), "-out", str(certificate)],
            check=True,
            capture_output=True,
        )
        (self.folder / f"{name}.pem").write_text(key.read_text() + certificate.read_text())

    @property
    def ca(self) -> str:
        return str(self.folder / "ca.crt")

    def store(self, name: str) -> dict[str, str]:
        """As servers and Java clients are told."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / f"{name}.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
        }

    def for_librdkafka(self, name: str) -> dict[str, str]:
        return {
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": str(self.folder / f"{name}.crt"),
            "ssl.key.location": str(self.folder / f"{name}.key"),
        }


def jaas(mechanism: str, user: str, password: str, **users: str) -> str:
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    known = "".join(f' user_{name}="{secret}"' for name, secret in users.items())
    return (
        f"org.apache.kafka.common.security.{module}LoginModule required"
        f' username="{user}" password="{password}"{known};'
    )


def sasl_client(protocol: str, mechanism: str, user: str, password: str) -> dict[str, str]:
    """As librdkafka is told."""
    return {
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


@attrs.define
class SecuredCluster(LiveCluster):
    """Every node has a listener PLAINTEXT, to look in from outside, and INNER, which is secured."""

    inner_ports: dict[int, int] = attrs.field(factory=dict)

    @property
    def inner(self) -> str:
        """The brokers, not the controller."""
        return ",".join(f"{HOST}:{self.inner_ports[b]}" for b in self.brokers.brokers)

    @property
    def addresses(self) -> list[str]:
        """Of the brokers, where one can look in from outside."""
        return [broker.address for broker in self.brokers.brokers.values()]

    @property
    def inner_of_controller(self) -> str:
        return f"{HOST}:{self.inner_ports[CONTROLLER_ID]}"

    async def secured_tool(self, name: str, client: Properties, *arguments: str) -> str:
        file = self.brokers[1].folder / "client.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in client.items()))
        bootstrap = ("--bootstrap-server", self.inner, "--command-config", str(file))
        return await asyncio.to_thread(run_tool, name, *bootstrap, *arguments)

    async def use(self, topic: str, client: Properties, records: int = 50) -> None:
        """Write and read back, through the controller's own port."""
        await asyncio.to_thread(write_and_read, self.inner_of_controller, topic, client, records)


@asynccontextmanager
async def secured_controller(
    zookeeper: str, ports: tuple[int, int], protocol: str, settings: Properties
) -> AsyncIterator[Controller]:
    """Configured by names and text, as from a file."""
    config = Config.load(
        overrides={
            "zookeeper.connect": zookeeper,
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
            "broker.id": str(CONTROLLER_ID),
            "listeners": f"PLAINTEXT://{HOST}:{ports[0]},INNER://{HOST}:{ports[1]}",
            "auto.leader.rebalance.enable": "false",
            **_common(protocol),
            **settings,
        }
    )
    async with Controller(config) as controller:
        async with asyncio.timeout(BOUND_S):
            await controller.until(lambda c: c.is_active)
        yield controller


@asynccontextmanager
async def secured_brokers(
    zookeeper: str,
    controller: Controller | None,
    ports: tuple[int, int],
    protocol: str,
    settings: Properties,
    *,
    version: str = DEFAULT_VERSION,
) -> AsyncIterator[SecuredCluster]:
    """Without a controller of ours they rule themselves."""
    replicated = {
        "default.replication.factor": str(BROKERS),
        "offsets.topic.replication.factor": str(BROKERS),
        "min.insync.replicas": "1",
    }
    brokers = KafkaBrokers(
        BROKERS,
        zookeeper,
        version=version,
        settings={**replicated, **_common(protocol), **settings},
    )
    inner_ports = {CONTROLLER_ID: ports[1]}
    for broker, port in zip(brokers.brokers.values(), free_ports(BROKERS), strict=True):
        inner_ports[broker.id] = port
        broker._settings["listeners"] = f"PLAINTEXT://{broker.address},INNER://{HOST}:{port}"
    office = controller or Controller()
    async with brokers:
        cluster = SecuredCluster(zookeeper, office, brokers, version, inner_ports)
        if controller is not None:
            await cluster.until_registered(*brokers.brokers)
            await cluster.until_agreed()  # they know of the controller
        yield cluster


@asynccontextmanager
async def secured_cluster(
    zookeeper: str, protocol: str, of_brokers: Properties, of_controller: Properties
) -> AsyncIterator[SecuredCluster]:
    (first, second) = free_ports(2)
    ports = (first, second)
    async with (
        secured_controller(zookeeper, ports, protocol, of_controller) as controller,
        secured_brokers(zookeeper, controller, ports, protocol, of_brokers) as cluster,
    ):
        yield cluster


def _common(protocol: str) -> dict[str, str]:
    return {
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,INNER:{protocol}",
        "inter.broker.listener.name": "INNER",
    }


def write_and_read(bootstrap: str, topic: str, client: Properties, records: int) -> None:
    shared = {"bootstrap.servers": bootstrap, "log_level": 0, **client}
    producer = Producer({**shared, "acks": "all", "enable.idempotence": True})
    for number in range(records):
        producer.produce(topic, str(number).encode(), partition=number % 2)
    assert producer.flush(BOUND_S) == 0
    consumer = Consumer({**shared, "group.id": "readers", "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in (0, 1)])
        found: list[int] = []
        while len(found) < records:
            message = consumer.poll(BOUND_S)
            assert message is not None, f"{len(found)} of {records} records"
            assert message.error() is None
            found.append(int(message.value() or b"-1"))
        assert sorted(found) == list(range(records))
    finally:
        consumer.close()
