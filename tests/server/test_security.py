"""TLS and SASL towards those who connect, and TLS towards the brokers."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as TopicOfAiokafka
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kctl.brokers.simulated import Frame, SimulatedBroker
from kctl.model.brokers import Broker, Endpoint
from kctl.model.codes import KafkaError
from kctl.server.limits import Limits
from kctl.server.relay import dialer
from kctl.server.rights import Rights
from kctl.server.routing import CONTROLLER_CALLS
from kctl.server.server import Listener
from kctl.wire.admin import (
    AlterUserScramCredentialsRequest,
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    ScramCredentialDeletion,
    TopicPartitions,
)
from kctl.wire.apis import APIS, encode_request, framed
from kctl.wire.client import (
    ApiVersionsRequest,
    ListGroupsRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kctl.wire.control_plane import ControlledShutdownRequest
from kctl.wire.schema import Struct
from tests.brokers.sasl_server import SecuredBroker
from tests.server.office import Client, FakeBroker, Office, metadata_of, office

pytestmark = pytest.mark.asyncio

PASSWORDS = {"alice": "wonderland", "bob": "builder"}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout {key} -out {cert}"
    extension = "-subj /CN=kctl-test -addext subjectAltName=IP:127.0.0.1"
    subprocess.run([*command.split(), *extension.split()], check=True, capture_output=True)
    return cert


def server_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    return context


class Behind:
    """What a secured broker does for those whom it knows."""

    def __init__(self) -> None:
        self.fake = FakeBroker()
        self.versions = dict(self.fake.versions)

    def answer(self, frame: Frame) -> bytes | None:
        self.fake.frames.append((frame.header, frame.data))
        return self.fake._answer(frame.header)


def secured(**options: Any) -> SecuredBroker:
    return SecuredBroker(cast(SimulatedBroker, Behind()), users=PASSWORDS, **options)


def registration(broker: SecuredBroker, listener: str, protocol: str = "SASL_PLAINTEXT") -> Broker:
    return Broker(1, 101, (Endpoint(listener, "127.0.0.1", broker.port, protocol),))


# -- TLS -------------------------------------------------------------------------------------


async def test_a_listener_with_tls(certificate: Path) -> None:
    listeners = (Listener("PLAINTEXT"), Listener("SSL", ssl=server_context(certificate)))
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with office("t-0: 1*,2", listeners=listeners, limits={"handshake_s": 1.0}) as one:
        async with one.client("SSL", ssl=trusting) as client:
            assert (await client.ask(ListGroupsRequest(), 3)).error_code == 0
        async with one.client("SSL") as plain:
            await plain.send(ListGroupsRequest(), 3)
            assert await plain.frame() is None
        async with one.client("PLAINTEXT") as client:
            assert (await client.ask(ListGroupsRequest(), 3)).error_code == 0


async def test_a_handshake_that_never_ends_takes_a_place_for_a_while(certificate: Path) -> None:
    listener = Listener("SSL", ssl=server_context(certificate))
    async with office(listeners=(listener,), limits={"handshake_s": 0.3}) as one:
        async with one.client("SSL") as silent:
            async with asyncio.timeout(10):
                while not one.server.connections:  # noqa: ASYNC110 the server has no event for it
                    await asyncio.sleep(0.001)
            assert await silent.frame() is None
        async with asyncio.timeout(10):
            while one.server.connections:  # noqa: ASYNC110
                await asyncio.sleep(0.001)


# -- SASL ------------------------------------------------------------------------------------


@asynccontextmanager
async def guarded(**options: Any) -> AsyncIterator[tuple[Office, SecuredBroker]]:
    """A broker that knows its users, and this node in front of it."""
    async with (
        secured() as broker,
        office(others=(1,), listeners=(Listener("SASL", sasl=True),), **options) as one,
    ):
        one.world.cluster.brokers[1] = registration(broker, "SASL")
        yield one, broker


async def introduced(client: Client, token: bytes, mechanism: str = "PLAIN") -> int:
    assert (await client.ask(SaslHandshakeRequest(mechanism), 1)).error_code == 0
    return int((await client.ask(SaslAuthenticateRequest(token), 2)).error_code)


async def test_plain() -> None:
    async with guarded() as (one, broker):
        for token in (b"\0alice\0wonderland", b"alice\0alice\0wonderland"):
            async with one.client("SASL") as client:
                assert await introduced(client, token) == 0
                assert (await client.ask(ListGroupsRequest(), 3)).error_code == 0
        for wrong in (b"\0alice\0wrong", b"\0bob\0wonderland"):
            async with one.client("SASL") as client:
                failed = await introduced(client, wrong)
                assert failed == KafkaError.SASL_AUTHENTICATION_FAILED
                assert await client.frame() is None
        assert broker.authenticated == ["PLAIN alice"] * 2


async def test_a_half_finished_exchange_opens_nothing() -> None:
    async with guarded() as (one, _), one.client("SASL") as client:
        await client.ask(SaslHandshakeRequest("SCRAM-SHA-256"), 1)
        first = await client.ask(SaslAuthenticateRequest(b"n,,n=alice,r=abc"), 2)
        assert first.auth_bytes.startswith(b"r=abc")
        await client.send(ListGroupsRequest(), 3)
        assert await client.frame() is None


async def test_nothing_is_answered_before_authentication() -> None:
    async with guarded() as (one, _):
        async with one.client("SASL") as client:
            versions = await client.ask(ApiVersionsRequest("test", "1"), 3)
            offered = {v.api_key: v.max_version for v in versions.api_keys}
            assert (offered[17], offered[36]) == (1, 2)
            await client.send(ListGroupsRequest(), 3)
            assert await client.frame() is None
        async with one.client("SASL") as client:
            await client.send(SaslAuthenticateRequest(b"\0alice\0wonderland"), 2)
            assert await client.frame() is None
        async with one.client("SASL") as client:
            answer = await client.ask(SaslHandshakeRequest("GSSAPI"), 1)
            assert answer.error_code == KafkaError.UNSUPPORTED_SASL_MECHANISM
            assert answer.mechanisms == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
            assert await client.frame() is None
        assert one.events == []


async def test_an_introduction_without_authentication_opens_nothing() -> None:
    async with (
        guarded(limits={"first_frame_bytes_max": 200}) as (one, _),
        one.client("SASL") as client,
    ):
        await client.ask(ApiVersionsRequest("test", "1"), 3)
        await client.write(framed(encode_request(SaslHandshakeRequest("x" * 300), 1, 1, "test")))
        assert await client.frame() is None


async def test_what_is_relayed_is_asked_in_the_users_own_name() -> None:
    """And by nobody else: when the broker that knew the user is gone, so is the connection."""
    async with guarded() as (one, broker), one.client("SASL") as client:
        assert await introduced(client, b"\0alice\0wonderland") == 0
        assert (await client.ask(MetadataRequest(), 9)).cluster_id is None
        assert broker.authenticated == ["PLAIN alice"]
        broker.hang_up()
        # What is answered here needs no broker.
        assert (await client.ask(ListGroupsRequest(), 3)).error_code == 0
        await client.send(MetadataRequest(), 9)
        assert await client.frame() is None
        assert broker.authenticated == ["PLAIN alice"]


@pytest.mark.parametrize("known", [True, False])
async def test_no_newer_tokens_are_offered_than_brokers_take(known: bool) -> None:
    async with guarded() as (one, broker):
        fake = cast(Behind, broker.broker).fake
        fake.versions = {**fake.versions, 36: (0, 1)}
        if not known:
            nobody = Endpoint("SASL", "127.0.0.1", 1, "SASL_PLAINTEXT")
            one.world.cluster.brokers[1] = Broker(1, 101, (nobody,))
        async with one.client("SASL") as client:
            versions = await client.ask(ApiVersionsRequest("test", "1"), 3)
        offered = {v.api_key: (v.min_version, v.max_version) for v in versions.api_keys}
        assert (offered[17], offered[36]) == ((1, 1), (0, 1))


async def test_a_session_that_is_over_needs_a_new_introduction() -> None:
    async with (
        FakeBroker().running() as fake,
        office(brokers={1: fake}, listeners=(Listener("SASL", sasl=True),)) as one,
    ):
        one.world.cluster.brokers[1] = fake.registration(1, "SASL")
        fake.answers[17] = SaslHandshakeResponse(0, ("PLAIN",))
        fake.answers[36] = SaslAuthenticateResponse(session_lifetime_ms=3_600_000)
        async with one.client("SASL") as client:
            assert await introduced(client, b"\0alice\0wonderland") == 0
            fake.answers[36] = SaslAuthenticateResponse(session_lifetime_ms=1)
            assert await introduced(client, b"\0alice\0wonderland") == 0
            await asyncio.sleep(0.01)
            fake.answers[36] = SaslAuthenticateResponse(session_lifetime_ms=3_600_000)
            assert await introduced(client, b"\0alice\0wonderland") == 0
            assert (await client.ask(ListGroupsRequest(), 3)).error_code == 0
            fake.answers[36] = SaslAuthenticateResponse(session_lifetime_ms=1)
            assert await introduced(client, b"\0alice\0wonderland") == 0
            await asyncio.sleep(0.01)
            await client.send(ListGroupsRequest(), 3)
            assert await client.frame() is None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("password, fits", [("wonderland", True), ("wrong", False)])
async def test_librdkafka_authenticates(
    certificate: Path, mechanism: str, password: str, fits: bool
) -> None:
    """A client of another make, over TLS on both sides."""
    trusting = ssl.create_default_context(cafile=str(certificate))
    listener = Listener("SASL_SSL", ssl=server_context(certificate), sasl=True)
    async with (
        secured(ssl_context=server_context(certificate)) as broker,
        office(
            others=(1,),
            listeners=(listener,),
            dial=dialer(Limits(), {"SASL_SSL": trusting}),
            rights=Rights(own="User:alice", authorizer=True),
        ) as one,
    ):
        one.world.cluster.brokers[1] = registration(broker, "SASL_SSL", "SASL_SSL")
        port = one.server.ports["SASL_SSL"]
        cast(Behind, broker.broker).fake.metadata = metadata_of((1000, port))
        admin = AdminClient(
            {
                "bootstrap.servers": f"127.0.0.1:{port}",
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(certificate),
                "sasl.mechanism": mechanism,
                "sasl.username": "alice",
                "sasl.password": password,
                "log_level": 0,
            }
        )
        if fits:
            listed = await asyncio.to_thread(admin.list_topics, None, 15)
            assert list(listed.brokers) == [1000]
            made = admin.create_topics([NewTopic("orders", 1, 1)], request_timeout=15)
            await asyncio.to_thread(made["orders"].result, 15)
            assert "orders" in one.world.zk.topics
            assert {*broker.authenticated} == {f"{mechanism} alice"}
        else:
            with pytest.raises(KafkaException):
                await asyncio.to_thread(admin.list_topics, None, 1)
            assert broker.authenticated == []


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_aiokafka_authenticates(mechanism: str) -> None:
    async with guarded() as (one, broker):
        port = one.server.ports["SASL"]
        cast(Behind, broker.broker).fake.metadata = metadata_of((1000, port))
        admin = AIOKafkaAdminClient(
            bootstrap_servers=f"127.0.0.1:{port}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username="bob",
            sasl_plain_password=PASSWORDS["bob"],
        )
        await admin.start()
        try:
            answer = await admin.create_topics([TopicOfAiokafka("orders", 1, 1)])
            assert [error[1] for error in answer.topic_errors] == [0]
        finally:
            await admin.close()
        assert {*broker.authenticated} == {f"{mechanism} bob"}


# -- who may ask what ------------------------------------------------------------------------

SHUTDOWN = ControlledShutdownRequest(1, 101)


@pytest.mark.parametrize(
    "rights, listener, user, error",
    [
        # Nothing is known: anybody, as without an authorizer in Kafka.
        (Rights(), "PLAINTEXT", None, 0),
        (Rights(), "SASL", "alice", 0),
        # Brokers log in as we do.
        (Rights(own="User:alice"), "SASL", "alice", 0),
        (Rights(own="User:alice"), "SASL", "bob", 31),
        (Rights(own="User:alice"), "PLAINTEXT", None, 0),
        # Super users are named.
        (Rights(frozenset({"User:bob"}), own="User:alice"), "SASL", "bob", 0),
        (Rights(frozenset({"User:bob"}), own="User:alice"), "SASL", "alice", 0),
        (Rights(frozenset({"User:carol"}), own="User:alice"), "SASL", "bob", 31),
        (Rights(frozenset({"User:bob"})), "PLAINTEXT", None, 31),
        (Rights(frozenset({"User:ANONYMOUS"})), "PLAINTEXT", None, 0),
        # Brokers come by their own listener only.
        (Rights(broker_listeners=frozenset({"SASL"})), "SASL", "bob", 0),
        (Rights(broker_listeners=frozenset({"SASL"})), "PLAINTEXT", None, 31),
        (Rights(own="User:alice", broker_listeners=frozenset({"SASL"})), "PLAINTEXT", None, 31),
        # An authorizer without super users leaves only those who are as we are.
        (Rights(own="User:alice", authorizer=True), "SASL", "alice", 0),
        (Rights(own="User:alice", authorizer=True), "SASL", "bob", 31),
    ],
)
async def test_what_brokers_ask_is_for_brokers(
    rights: Rights, listener: str, user: str | None, error: int
) -> None:
    listeners = (Listener("PLAINTEXT"), Listener("SASL", sasl=True))
    lines = ("t-0: 1*,2 epoch=5",)
    async with secured() as broker, office(*lines, listeners=listeners, rights=rights) as one:
        one.world.cluster.brokers[1] = registration(broker, "SASL")
        async with one.client(listener) as client:
            if user is not None:
                token = f"\0{user}\0{PASSWORDS[user]}".encode()
                assert await introduced(client, token) == 0
            assert (await client.ask(SHUTDOWN, 3)).error_code == error
        assert [type(e).__name__ for e in one.events] == ([] if error else ["ControlledShutdown"])


@pytest.mark.parametrize("key", sorted(CONTROLLER_CALLS))
async def test_with_an_authorizer_changes_are_for_super_users(key: int) -> None:
    """Every request of the controller, in each version, has an answer that says so."""
    filled: dict[int, Struct] = {
        19: CreateTopicsRequest((CreatableTopic("x", 1, 1),)),
        20: DeleteTopicsRequest((DeleteTopicState("t"),), ("t",)),
        37: CreatePartitionsRequest((CreatePartitionsTopic("t", 3),)),
        43: ElectLeadersRequest(0, (TopicPartitions("t", (0,)),)),
        51: AlterUserScramCredentialsRequest((ScramCredentialDeletion("u", 1),)),
    }
    api = APIS[key]
    rights = Rights(frozenset({"User:admin"}), authorizer=True)
    async with office("t-0: 1*,2 epoch=5", rights=rights) as one:
        for version in range(api.first, api.last + 1):
            answer = await one.ask(filled.get(key, api.request()), version)
            assert {29, 31} & set(codes_in(answer)), answer
        assert one.events == []


def codes_in(value: object) -> Iterator[int]:
    if isinstance(value, tuple):
        for item in value:
            yield from codes_in(item)
    elif isinstance(value, Struct):
        for field in msgspec.structs.fields(cast(msgspec.Struct, value)):
            found = getattr(value, field.name)
            if field.name == "error_code":
                yield found
            yield from codes_in(found)


async def test_clients_known_by_their_certificates(certificate: Path) -> None:
    """With an authorizer they are not relayed: brokers would take them for this controller."""
    context = server_context(certificate)
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    trusting = ssl.create_default_context(cafile=str(certificate))
    trusting.load_cert_chain(certificate, certificate.with_name("key.pem"))
    for known, served in ((frozenset({"User:CN=kctl-test"}), True), (frozenset[str](), False)):
        async with (
            FakeBroker().running() as fake,
            office(
                brokers={1: fake},
                listeners=(Listener("SSL", ssl=context),),
                rights=Rights(known, authorizer=True),
            ) as one,
        ):
            one.world.cluster.brokers[1] = fake.registration(1, "SSL")
            async with one.client("SSL", ssl=trusting) as client:
                await client.send(MetadataRequest(), 9)
                assert (await client.frame() is not None) == served
            async with one.client("SSL", ssl=trusting) as client:
                listed = await client.ask(ListPartitionReassignmentsRequest(5_000, None), 0)
                assert listed.error_code == (0 if served else 31)
