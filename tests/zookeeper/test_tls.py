"""A session over TLS, with a certificate made for the test."""

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.zookeeper.embedded import HOST, EmbeddedZooKeeper, free_ports
from kctl.zookeeper.errors import NoServers
from kctl.zookeeper.session import Session, State
from tests.zookeeper.fault_proxy import FaultProxy
from tests.zookeeper.records import Record

pytestmark = [pytest.mark.zookeeper, pytest.mark.asyncio]

ON_BOTH_LOOPS = True


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1, with its key behind it."""
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout {key} -out {cert}"
    extension = f"-subj /CN=kctl-test -addext subjectAltName=IP:{HOST}"
    subprocess.run([*command.split(), *extension.split()], check=True, capture_output=True)
    (folder / "both.pem").write_text(key.read_text() + cert.read_text())
    return cert


@pytest.fixture(scope="module")
def secure_port(certificate: Path) -> Iterator[int]:
    (port,) = free_ports(1)
    settings = {
        "secureClientPort": str(port),
        "secureClientPortAddress": HOST,
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(certificate.with_name("both.pem")),
        "ssl.trustStore.location": str(certificate),
        "ssl.clientAuth": "none",
    }
    with EmbeddedZooKeeper(tick_time_ms=200, settings=settings):
        yield port


async def test_a_session_over_tls(certificate: Path, secure_port: int) -> None:
    context = ssl.create_default_context(cafile=str(certificate))
    async with FaultProxy(secure_port) as proxy:
        async with Session.open(proxy.address, timeout_ms=6000, ssl=context) as session:
            record = Record(session)
            path = (await session.create("/not-to-be-seen", bytes(200_000))).path
            assert (await session.get(path))[0] == bytes(200_000)
            assert len(await session.read_many([path] * 20)) == 20
            proxy.cut_rst()
            await record.until_state(State.SUSPENDED, State.CONNECTED)
            await session.delete(path)
        assert b"not-to-be-seen" not in b"".join(proxy.bytes_to_server)


async def test_an_unknown_certificate_is_refused(secure_port: int) -> None:
    with pytest.raises(NoServers, match="certificate verify failed"):
        await Session.connect(
            f"{HOST}:{secure_port}",
            timeout_ms=6000,
            ssl=ssl.create_default_context(),
            connect_timeout_ms=2000,
        )


async def test_a_plain_client_at_a_tls_port_is_a_failed_try(secure_port: int) -> None:
    with pytest.raises(NoServers):
        await Session.connect(f"{HOST}:{secure_port}", timeout_ms=6000, connect_timeout_ms=1000)
