"""TLS and SASL towards those who connect, and TLS towards the brokers."""

import asyncio
import hashlib
import hmac
import os
import ssl
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kctl.model.codes import KafkaError
from kctl.server.codes import CredentialError
from kctl.server.sasl import HASHES, Credentials, ScramCredential
from kctl.server.server import Listener
from kctl.wire.apis import encode_request, framed
from kctl.wire.client import (
    ApiVersionsRequest,
    ListGroupsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.server.office import FakeBroker, Office, metadata_of, office

pytestmark = pytest.mark.asyncio

PASSWORDS = {"alice": "wonderland", "empty": ""}


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


def scram_credential(password: str, mechanism: str, iterations: int = 4096) -> ScramCredential:
    """As kafka-configs stores it."""
    name, salt = HASHES[mechanism], os.urandom(16)
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", name)
    return ScramCredential(
        salt,
        hashlib.new(name, client_key).digest(),
        hmac.digest(salted, b"Server Key", name),
        iterations,
    )


async def look_up(user: str, mechanism: str) -> ScramCredential | None:
    return scram_credential(PASSWORDS[user], mechanism) if user in PASSWORDS else None


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


def guarded() -> Listener:
    return Listener("SASL", credentials=Credentials(plain=PASSWORDS, scram=look_up))


async def authenticate(one: Office, token: bytes, mechanism: str = "PLAIN") -> int:
    async with one.client("SASL") as client:
        assert (await client.ask(SaslHandshakeRequest(mechanism), 1)).error_code == 0
        answer = await client.ask(SaslAuthenticateRequest(token), 2)
        if answer.error_code == KafkaError.NONE:
            assert (await client.ask(ListGroupsRequest(), 3)).error_code == 0
        else:
            assert await client.frame() is None
        return int(answer.error_code)


async def test_plain() -> None:
    async with office(listeners=(guarded(),)) as one:
        assert await authenticate(one, b"\0alice\0wonderland") == 0
        assert await authenticate(one, b"alice\0alice\0wonderland") == 0
        for wrong in (
            b"\0alice\0wrong",
            b"\0bob\0wonderland",
            b"\0bob\0",
            b"\0empty\0",
            b"bob\0alice\0wonderland",
            b"alice",
            b"\0\0",
            b"\0alice\0wonder\0land",
            b"\0\xff\0\xff",
            b"",
        ):
            failed = await authenticate(one, wrong)
            assert failed == CredentialError.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"n,,",
        b"n,,n=alice",
        b"n,,c=biws,r=x",
        b"n,,n=alice,r=",
        b"y,,n=alice,r=x",
        b"n,,n=bob,r=x",
        b"n,,r=x,r=y",
        b"\xff",
    ],
)
async def test_scram_messages_that_make_no_sense(token: bytes) -> None:
    async with office(listeners=(guarded(),)) as one:
        failed = await authenticate(one, token, "SCRAM-SHA-256")
        assert failed == CredentialError.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize(
    "final",
    [
        b"",
        b"c=biws",
        b"c=biws,r={nonce}",
        b"c=biws,r={nonce},p=AAAA",
        b"c=biws,r=x,p=AAAA",
        b"c=xxxx,r={nonce},p=" + b"A" * 44,
        b"c=biws,r={nonce},p=" + b"A" * 43 + b"=",
    ],
)
async def test_scram_proofs_that_prove_nothing(final: bytes) -> None:
    async with office(listeners=(guarded(),)) as one, one.client("SASL") as client:
        await client.ask(SaslHandshakeRequest("SCRAM-SHA-256"), 1)
        first = await client.ask(SaslAuthenticateRequest(b"n,,n=alice,r=abc"), 2)
        nonce = first.auth_bytes.split(b",")[0].removeprefix(b"r=")
        assert nonce.startswith(b"abc")
        answer = await client.ask(SaslAuthenticateRequest(final.replace(b"{nonce}", nonce)), 2)
        assert answer.error_code == CredentialError.SASL_AUTHENTICATION_FAILED
        assert await client.frame() is None


async def test_nothing_is_answered_before_authentication() -> None:
    async with office("t-0: 1*,2", listeners=(guarded(),)) as one:
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
            assert answer.error_code == CredentialError.UNSUPPORTED_SASL_MECHANISM
            assert answer.mechanisms == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
            assert await client.frame() is None
        assert one.events == []


async def test_an_introduction_without_authentication_opens_nothing() -> None:
    limits = {"first_frame_bytes_max": 200}
    async with office(listeners=(guarded(),), limits=limits) as one, one.client("SASL") as client:
        await client.ask(ApiVersionsRequest("test", "1"), 3)
        await client.write(framed(encode_request(SaslHandshakeRequest("x" * 300), 1, 1, "test")))
        assert await client.frame() is None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("password, fits", [("wonderland", True), ("wrong", False)])
async def test_librdkafka_authenticates(
    certificate: Path, mechanism: str, password: str, fits: bool
) -> None:
    """A client of another make, over TLS."""
    credentials = Credentials(plain=PASSWORDS, scram=look_up)
    listener = Listener("SASL_SSL", ssl=server_context(certificate), credentials=credentials)
    async with (
        FakeBroker().running() as fake,
        office(brokers={1: fake}, listeners=(listener,)) as one,
    ):
        one.world.cluster.brokers[1] = fake.registration(1, "SASL_SSL")
        port = one.server.ports["SASL_SSL"]
        fake.metadata = metadata_of((1000, port))
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
        else:
            with pytest.raises(KafkaException):
                await asyncio.to_thread(admin.list_topics, None, 1)
