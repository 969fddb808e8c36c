import subprocess
import sys
from pathlib import Path

import pytest

from kctl.model.brokers import Endpoint
from kctl.runtime.config import Config, ConfigError


def test_the_last_source_wins(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id = 1\nnum.partitions: 3\nunclean.leader.election.enable=TRUE\n# x\n")
    environ = {"KCTL_BROKER_ID": "2", "KCTL_TAKEOVER": "true", "OTHER": "x"}
    config = Config.load(file, environ, {"broker.id": "3"})
    assert (config.broker_id, config.num_partitions) == (3, 3)
    assert config.takeover
    assert config.unclean_leader_election_enable
    assert config.settings.controller_id == 3


def test_names_of_a_brokers_file_that_concern_only_brokers_are_ignored(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.dirs=/tmp/a,/tmp/b\nnum.network.threads=3\nbroker.id=5\n")
    assert Config.load(file).broker_id == 5


@pytest.mark.parametrize(
    "name, value",
    [
        ("broker.id", "-1"),
        ("broker.id", "1.5"),
        ("broker.id", "99999999999"),
        ("zookeeper.connect", ""),
        ("zookeeper.connect", "host:port"),
        ("zookeeper.session.timeout.ms", "0"),
        ("listeners", "127.0.0.1:9092"),
        ("listeners", "PLAINTEXT://h:99999"),
        ("listener.security.protocol.map", "INSIDE:NOTHING"),
        ("inter.broker.protocol.version", "2.3"),
        ("inter.broker.protocol.version", "4.0"),
        ("inter.broker.protocol.version", "new"),
        ("unclean.leader.election.enable", "yes"),
        ("leader.imbalance.per.broker.percentage", "101"),
    ],
)
def test_a_value_that_cannot_be_used_names_its_setting(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Config.load(overrides={name: value})


def test_listeners_have_the_protocols_of_the_map() -> None:
    config = Config.load(
        overrides={
            "listeners": "INSIDE://127.0.0.1:9092, PLAINTEXT://[::1]:9093",
            "listener.security.protocol.map": "inside:SASL_SSL",
        }
    )
    assert config.endpoints == (
        Endpoint("INSIDE", "127.0.0.1", 9092, "SASL_SSL"),
        Endpoint("PLAINTEXT", "::1", 9093, "PLAINTEXT"),
    )


def test_every_setting_says_what_it_is_for() -> None:
    for name, field in Config.options().items():
        assert field.metadata["doc"], name
        assert (
            field.name in (name.replace(".", "_"), name.removeprefix("kctl.").replace(".", "_"))
            or name == "kctl.takeover.force"
        )


def test_credentials_are_not_shown() -> None:
    config = Config.load(environ={"KCTL_ZOOKEEPER_AUTH": "digest:me:secret"})
    assert config.zookeeper_auth == "digest:me:secret"
    assert "secret" not in repr(config)


def test_the_package_is_light_until_it_is_used() -> None:
    """`import kctl` must not load the controller; its names are there all the same."""
    program = (
        "import sys, kctl; light = 'kctl.runtime' not in sys.modules;"
        "print(light, kctl.Controller.__name__, kctl.Config.__name__, 'Controller' in dir(kctl))"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == ["True", "Controller", "Config", "True"]
