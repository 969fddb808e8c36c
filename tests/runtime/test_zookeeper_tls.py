"""A controller that speaks TLS to ZooKeeper, by its settings."""

import asyncio
from pathlib import Path

import pytest

from kctl.runtime.config import Config
from kctl.runtime.controller import Controller
from kctl.zookeeper.embedded import HOST
from tests.zookeeper.test_tls import certificate, secure_port  # noqa: F401 fixtures

pytestmark = [pytest.mark.zookeeper, pytest.mark.asyncio, pytest.mark.timeout(120)]


@pytest.mark.parametrize("trusting", [True, False])
async def test_a_controller_over_tls(
    certificate: Path,  # noqa: F811 the fixture
    secure_port: int,  # noqa: F811
    trusting: bool,
) -> None:
    settings = {
        "zookeeper.connect": f"{HOST}:{secure_port}/made/over/tls",
        "zookeeper.connection.timeout.ms": "3000",
        "zookeeper.ssl.client.enable": "true",
    }
    if trusting:
        settings["zookeeper.ssl.truststore.location"] = str(certificate)
        settings["zookeeper.ssl.keystore.location"] = str(certificate.with_name("both.pem"))
    async with Controller(Config.load(overrides=settings)) as controller, asyncio.timeout(60):
        if trusting:
            await controller.until(lambda c: c.is_active)
        else:
            assert not await controller.first_attempt()
            assert "certificate verify failed" in str(controller.last_error)
