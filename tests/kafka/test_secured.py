"""Brokers that ask who somebody is: TLS, SASL, an authorizer; kctl among them and in front."""

import asyncio
import hashlib
import os
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic

from kctl.testing.kafka import ToolFailed
from kctl.testing.views import until_agreed
from kctl.wire.admin import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from kctl.zookeeper.embedded import HOST, free_ports
from tests.kafka.live import BOUND_S
from tests.kafka.processes import KctlProcess, until_controller
from tests.kafka.secured import (
    CONTROLLER_ID,
    Certificates,
    SecuredCluster,
    jaas,
    sasl_client,
    secured_brokers,
    secured_cluster,
    secured_controller,
    write_and_read,
)
from tests.server.office import connected

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio, pytest.mark.timeout(180)]


async def test_tls_on_both_sides(chroot: str, tmp_path: Path) -> None:
    """Everyone shows a certificate, and the brokers' authorizer knows names by them."""
    tls = Certificates.made(tmp_path, "broker", "kctl", "admin")
    guarded = {
        "ssl.client.auth": "required",
        "super.users": "User:CN=broker,O=kctl;User:CN=kctl,O=kctl;User:CN=admin,O=kctl",
    }
    of_brokers = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
    # To look in from outside at what brokers believe.
    of_brokers["super.users"] = guarded["super.users"] + ";User:ANONYMOUS"
    async with secured_cluster(
        chroot,
        "SSL",
        {**guarded, **tls.store("broker"), **of_brokers},
        {**guarded, **tls.store("kctl"), "authorizer.class.name": "AclAuthorizer"},
    ) as cluster:
        java = {"security.protocol": "SSL", **tls.store("admin")}
        await cluster.secured_tool(
            "kafka-topics", java, "--create", "--topic", "orders", "--partitions", "2"
        )
        await cluster.use("orders", {"security.protocol": "SSL", **tls.for_librdkafka("admin")})
        await cluster.until_in_sync()
        await cluster.until_agreed()
        await cluster.shut_down(2)
        assert cluster.broker_errors() == []


# -- SCRAM -----------------------------------------------------------------------------------

SCRAM = "SCRAM-SHA-256"
ADMIN = sasl_client("SASL_PLAINTEXT", SCRAM, "admin", "secret")


async def test_scram_users_are_made_through_the_controller(
    chroot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first one before there is a broker that could ask for it; the others by Kafka's tool and
    by librdkafka. What an authorizer forbids them is not to be had through the controller."""
    login = {
        "sasl.mechanism.inter.broker.protocol": SCRAM,
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.inner.scram-sha-256.sasl.jaas.config": jaas(SCRAM, "admin", "secret"),
        "super.users": "User:admin;User:ANONYMOUS",
    }
    of_brokers = {
        "listener.name.inner.scram-sha-512.sasl.jaas.config": jaas("SCRAM", "admin", "secret"),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    }
    first, second = free_ports(2)
    ports = (first, second)
    of_controller = {
        **login,
        "authorizer.class.name": "AclAuthorizer",
        "kctl.journal": str(tmp_path / "journal"),
    }
    async with secured_controller(chroot, ports, "SASL_PLAINTEXT", of_controller) as controller:
        await make_user(first, "admin", "secret")
        of_brokers |= login
        async with secured_brokers(
            chroot, controller, ports, "SASL_PLAINTEXT", of_brokers
        ) as cluster:
            await change_users(cluster)
            await see_rights(cluster)
            await cluster.until_agreed()
            await cluster.shut_down(2)
            assert cluster.broker_errors() == []
    said = capsys.readouterr()
    journal = (tmp_path / "journal.000001").read_text()
    for secret in ('"secret', "wonderland", "builder", "stored_key="):
        assert secret not in said.out + said.err + journal


async def make_user(port: int, user: str, password: str) -> None:
    salt = os.urandom(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 4096)
    upsertion = ScramCredentialUpsertion(user, 1, 4096, salt, salted)
    async with connected(port) as client:
        answer = await client.ask(AlterUserScramCredentialsRequest((), (upsertion,)), 0)
    assert [result.error_code for result in answer.results] == [0]


async def change_users(cluster: SecuredCluster) -> None:
    java = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": SCRAM,
        "sasl.jaas.config": jaas(SCRAM, "admin", "secret"),
    }
    alice = ("--entity-type", "users", "--entity-name", "alice")
    await cluster.secured_tool(
        "kafka-configs", java, "--alter", "--add-config", f"{SCRAM}=[password=wonderland]", *alice
    )
    described = await cluster.secured_tool("kafka-configs", java, "--describe", *alice)
    assert f"{SCRAM}=iterations=4096" in described
    with pytest.raises(ToolFailed, match="ResourceNotFoundException"):
        await cluster.secured_tool(
            "kafka-configs", java, "--alter", "--delete-config", "SCRAM-SHA-512", *alice
        )
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 5000)
    made = UserScramCredentialUpsertion("bob", info, b"builder")
    admin = client_of(cluster.inner, ADMIN)
    for future in admin.alter_user_scram_credentials([made]).values():
        await asyncio.to_thread(future.result, BOUND_S)
    bob = sasl_client("SASL_PLAINTEXT", "SCRAM-SHA-512", "bob", "builder")
    await until_known(cluster.inner_of_controller, bob)
    gone = UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512)
    for future in admin.alter_user_scram_credentials([gone]).values():
        await asyncio.to_thread(future.result, BOUND_S)
    async with asyncio.timeout(BOUND_S):
        while await knows(cluster.inner_of_controller, bob):  # noqa: ASYNC110 a broker's cache
            await asyncio.sleep(0.1)


async def see_rights(cluster: SecuredCluster) -> None:
    """Alice is known, and has no rights: she sees no topic and makes none; admin does."""
    alice = sasl_client("SASL_PLAINTEXT", SCRAM, "alice", "wonderland")
    for bootstrap in (cluster.inner, cluster.inner_of_controller):
        admin = client_of(bootstrap, ADMIN)
        topic = f"made-{bootstrap.count(',')}"
        future = admin.create_topics([NewTopic(topic, 2, 2)])[topic]
        await asyncio.to_thread(future.result, BOUND_S)
        await until_known(bootstrap, alice)
        as_alice = client_of(bootstrap, alice)
        assert topic in (await asyncio.to_thread(admin.list_topics, None, BOUND_S)).topics
        assert (await asyncio.to_thread(as_alice.list_topics, None, BOUND_S)).topics == {}
        refused = as_alice.create_topics([NewTopic("hers", 1, 1)])["hers"]
        with pytest.raises(KafkaException) as error:
            await asyncio.to_thread(refused.result, BOUND_S)
        assert error.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        await cluster.use(topic, ADMIN)


def client_of(bootstrap: str, client: dict[str, str]) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **client})


async def knows(bootstrap: str, client: dict[str, str]) -> bool:
    try:
        await asyncio.to_thread(client_of(bootstrap, client).list_topics, None, 5)
    except KafkaException:
        return False
    return True


async def until_known(bootstrap: str, client: dict[str, str]) -> None:
    """Brokers hear of a user a little later than the one who made it."""
    async with asyncio.timeout(BOUND_S):
        while not await knows(bootstrap, client):  # noqa: ASYNC110 a broker's cache
            await asyncio.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["2.8.2", "2.4.1"])
async def test_scram_among_older_brokers(chroot: str, version: str) -> None:
    """They look for the controller in ZooKeeper when they shut down, and for its listener there."""
    login = {
        "sasl.mechanism.inter.broker.protocol": SCRAM,
        "listener.name.inner.scram-sha-256.sasl.jaas.config": jaas(SCRAM, "admin", "secret"),
    }
    first, second = free_ports(2)
    ports = (first, second)
    async with secured_controller(chroot, ports, "SASL_PLAINTEXT", login) as controller:
        await make_user(first, "admin", "secret")
        of_brokers = {**login, "sasl.enabled.mechanisms": SCRAM}
        async with secured_brokers(
            chroot, controller, ports, "SASL_PLAINTEXT", of_brokers, version=version
        ) as cluster:
            await cluster.until_agreed()
            admin = client_of(cluster.inner, ADMIN)
            made = admin.create_topics([NewTopic("orders", 2, 2)])["orders"]
            await asyncio.to_thread(made.result, BOUND_S)
            await cluster.use("orders", ADMIN)
            await cluster.until_in_sync()
            await cluster.until_agreed()
            await cluster.shut_down(2)
            assert cluster.broker_errors() == []


# -- PLAIN over TLS --------------------------------------------------------------------------


@pytest.mark.slow
async def test_plain_passwords_over_tls(chroot: str, tmp_path: Path) -> None:
    """The controller's keys stand in its settings, as they may in a properties file."""
    tls = Certificates.made(tmp_path, "broker", "kctl")
    common = {
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.inner.plain.sasl.jaas.config": jaas(
            "PLAIN", "admin", "secret", admin="secret", alice="wonderland"
        ),
    }
    inline = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": one_line(tmp_path / "kctl.key"),
        "ssl.keystore.certificate.chain": one_line(tmp_path / "kctl.crt"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": one_line(tmp_path / "ca.crt"),
    }
    async with secured_cluster(
        chroot,
        "SASL_SSL",
        {**common, **tls.store("broker")},
        {**common, **{f"listener.name.inner.{name}": value for name, value in inline.items()}},
    ) as cluster:
        java = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": jaas("PLAIN", "alice", "wonderland"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": tls.ca,
        }
        await cluster.secured_tool(
            "kafka-topics", java, "--create", "--topic", "orders", "--partitions", "2"
        )
        alice = sasl_client("SASL_SSL", "PLAIN", "alice", "wonderland")
        await cluster.use("orders", {**alice, "ssl.ca.location": tls.ca})
        await cluster.until_in_sync()
        await cluster.until_agreed()
        await cluster.shut_down(2)
        assert cluster.broker_errors() == []


def one_line(file: Path) -> str:
    return " ".join(file.read_text().split("\n"))


@pytest.mark.slow
async def test_the_command_with_a_brokers_own_file(chroot: str, tmp_path: Path) -> None:
    """`kctl run --config server.properties` comes to brokers that rule themselves, goes, returns."""
    tls = Certificates.made(tmp_path, "broker", "admin")
    settings = {"ssl.client.auth": "required", **tls.store("broker")}
    first, second = free_ports(2)
    async with secured_brokers(chroot, None, (first, second), "SSL", settings) as cluster:
        file = cluster.brokers[1].folder / "server.properties"
        options = ("--config", str(file), "-o", f"listeners={served(first, second)}")
        client = {"security.protocol": "SSL", **tls.for_librdkafka("admin")}
        for turn in range(2):
            process = KctlProcess(chroot, tmp_path / f"{turn}.log", CONTROLLER_ID, *options)
            try:
                await until_controller(chroot, CONTROLLER_ID)
                await until_agreed(chroot, cluster.addresses)
                topic = f"made-in-turn-{turn}"
                admin = client_of(cluster.inner, client)
                made = admin.create_topics([NewTopic(topic, 2, 2)])[topic]
                await asyncio.to_thread(made.result, BOUND_S)
                await cluster.use(topic, client)
                assert await asyncio.to_thread(process.terminate) == 0
            finally:
                process.kill()
            assert process.faults() == []
            await until_controller(chroot, 1, 2)
            await until_agreed(chroot, cluster.addresses)
        assert cluster.broker_errors() == []


def served(plain: int, inner: int) -> str:
    return f"PLAINTEXT://{HOST}:{plain},INNER://{HOST}:{inner}"


# -- on the inner listener only --------------------------------------------------------------


@pytest.mark.slow
async def test_clients_of_other_listeners_do_not_see_the_controller(chroot: str) -> None:
    of_controller = {"kctl.advertise.inner.listeners.only": "true"}
    async with secured_cluster(chroot, "PLAINTEXT", {}, of_controller) as cluster:
        outer = client_of(cluster.brokers.bootstrap, {})
        inner = client_of(cluster.inner, {})
        made = inner.create_topics([NewTopic("orders", 2, 2)])["orders"]
        await asyncio.to_thread(made.result, BOUND_S)
        seen = await asyncio.to_thread(outer.list_topics, None, BOUND_S)
        assert (sorted(seen.brokers), seen.controller_id) == ([1, 2], CONTROLLER_ID)
        seen = await asyncio.to_thread(inner.list_topics, None, BOUND_S)
        assert sorted(seen.brokers) == [1, 2, CONTROLLER_ID]
        await asyncio.to_thread(write_and_read, cluster.brokers.bootstrap, "orders", {}, records=20)
        await cluster.until_in_sync()
        await cluster.until_agreed()
        await cluster.shut_down(2)
        # The price: brokers complain that not all nodes have the same listeners.
        errors = cluster.broker_errors()
        assert errors
        assert all("Listeners are not identical across brokers" in line for line in errors)
