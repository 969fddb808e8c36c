"""Configuration under Kafka's own names.

An unmodified `server.properties` can be given; names that the controller does not use are ignored
there. `KCTL_*` variables override it (`KCTL_ZOOKEEPER_CONNECT` is `zookeeper.connect`), and single
overrides win over both. The table below is also what the reference in the documentation is made of.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import attrs
import javaproperties

from kctl.model.brokers import Endpoint
from kctl.model.settings import LATEST_RELEASE, OLDEST_RELEASE, Release, Settings
from kctl.zookeeper.ensemble import parse_connect_string

T = TypeVar("T")

ENVIRONMENT_PREFIX = "KCTL_"


class ConfigError(ValueError):
    """A setting that cannot be used: which one, what is wrong, and what would be right."""


def _text(value: str) -> str:
    return value.strip()


def _servers(value: str) -> str:
    try:
        parse_connect_string(value)
    except ValueError as error:
        raise ConfigError(f"{error}; write HOST:PORT,... and a chroot such as /kafka") from None
    return value.strip()


def _whole(low: int, high: int = 2**31 - 1) -> Callable[[str], int]:
    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise ConfigError(f"{value!r} is not a whole number") from None
        if not low <= number <= high:
            raise ConfigError(f"{number} is not from {low} to {high}")
        return number

    return parse


def _boolean(value: str) -> bool:
    match value.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ConfigError(f"{value!r} is neither true nor false")


def _release(value: str) -> Release | None:
    """`3.9-IV0` and `3.9` are both (3, 9)."""
    if not value.strip():
        return None
    parts = value.strip().split("-")[0].split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts[:2]):
        raise ConfigError(f"{value!r} is not a release such as 3.9 or 3.9-IV0")
    release = (int(parts[0]), int(parts[1]))
    if not OLDEST_RELEASE <= release <= LATEST_RELEASE:
        raise ConfigError(f"release {value} is not from 2.4 to 3.9")
    return release


def _endpoints(value: str) -> tuple[Endpoint, ...]:
    endpoints = []
    for item in filter(None, (part.strip() for part in value.split(","))):
        name, separator, address = item.partition("://")
        host, colon, port = address.rpartition(":")
        if not separator or not colon or not port.isdecimal() or int(port) > 65535:
            raise ConfigError(f"{item!r} is not NAME://HOST:PORT")
        endpoints.append(Endpoint(name.upper(), host.strip("[]"), int(port), name.upper()))
    return tuple(endpoints)


def _protocol_map(value: str) -> dict[str, str]:
    pairs = {}
    for item in filter(None, (part.strip() for part in value.split(","))):
        name, colon, protocol = item.partition(":")
        if not colon or protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
            raise ConfigError(f"{item!r} is not LISTENER:PROTOCOL")
        pairs[name.strip().upper()] = protocol
    return pairs


def option(
    name: str, default: T, doc: str, parse: Callable[[str], T], *, secret: bool = False
) -> T:
    """A setting under Kafka's name; one that begins with `kctl.` is ours alone."""
    field: Any = attrs.field(
        default=default, metadata={"name": name, "doc": doc, "parse": parse}, repr=not secret
    )
    return field  # type: ignore[no-any-return]


@attrs.frozen(kw_only=True)
class Config:
    """Everything that can be set. Attribute names are Kafka's with underscores for dots."""

    zookeeper_connect: str = option(
        "zookeeper.connect", "127.0.0.1:2181", "Servers, and a chroot at the end if any.", _servers
    )
    zookeeper_connection_timeout_ms: int = option(
        "zookeeper.connection.timeout.ms",
        18_000,
        "How long one attempt at a session takes; `kctl run` makes one at its start.",
        _whole(1),
    )
    zookeeper_session_timeout_ms: int = option(
        "zookeeper.session.timeout.ms",
        18_000,
        "How long ZooKeeper waits for a silent controller before another one may follow.",
        _whole(100),
    )
    zookeeper_set_acl: bool = option(
        "zookeeper.set.acl", False, "Create znodes with the ACLs that Kafka sets.", _boolean
    )
    zookeeper_auth: str = option(
        "kctl.zookeeper.auth",
        "",
        "scheme:credentials, for example digest:user:password; best as KCTL_ZOOKEEPER_AUTH.",
        _text,
        secret=True,
    )
    broker_id: int = option(
        "broker.id", 1000, "The controller's id; never that of a broker.", _whole(0)
    )
    listeners: tuple[Endpoint, ...] = option(
        "listeners", (), "Where to serve brokers and clients: NAME://HOST:PORT, ...", _endpoints
    )
    advertised_listeners: tuple[Endpoint, ...] = option(
        "advertised.listeners",
        (),
        "What brokers and clients are told; as listeners if empty.",
        _endpoints,
    )
    listener_security_protocol_map: dict[str, str] = attrs.field(
        factory=dict,
        metadata={
            "name": "listener.security.protocol.map",
            "doc": "LISTENER:PROTOCOL, ...; a listener that is not listed is its own protocol.",
            "parse": _protocol_map,
        },
    )
    inter_broker_listener_name: str = option(
        "inter.broker.listener.name", "", "The brokers' listener that is spoken to.", _text
    )
    control_plane_listener_name: str = option(
        "control.plane.listener.name", "", "Preferred to the one above if set.", _text
    )
    inter_broker_protocol_version: Release | None = option(  # noqa: RUF009 an attrs field
        "inter.broker.protocol.version", None, "Found out from the brokers if not set.", _release
    )
    request_timeout_ms: int = option(
        "request.timeout.ms", 30_000, "How long a broker may take to answer.", _whole(1)
    )
    takeover: bool = option(
        "kctl.takeover", False, "Take the controllership from a broker that has it.", _boolean
    )
    force_takeover: bool = option(
        "kctl.takeover.force", False, "Take it from another kctl too.", _boolean
    )
    unclean_leader_election_enable: bool = option(
        "unclean.leader.election.enable",
        False,
        "Elect a leader that is not in sync where no other is left; may lose records.",
        _boolean,
    )
    delete_topic_enable: bool = option(
        "delete.topic.enable", True, "Carry out topic deletions.", _boolean
    )
    auto_leader_rebalance_enable: bool = option(
        "auto.leader.rebalance.enable",
        True,
        "Give leaderships back to preferred replicas.",
        _boolean,
    )
    leader_imbalance_per_broker_percentage: int = option(
        "leader.imbalance.per.broker.percentage", 10, "From where on that is done.", _whole(0, 100)
    )
    leader_imbalance_check_interval_seconds: int = option(
        "leader.imbalance.check.interval.seconds", 300, "How often that is checked.", _whole(1)
    )
    num_partitions: int = option(
        "num.partitions", 1, "Of a topic that does not say how many.", _whole(1)
    )
    default_replication_factor: int = option(
        "default.replication.factor", 1, "Of a topic that does not say which.", _whole(1)
    )
    journal: str = option(
        "kctl.journal", "", "Write every event and reply into files with this name.", _text
    )

    @classmethod
    def load(
        cls,
        file: Path | None = None,
        environ: Mapping[str, str] | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> "Config":
        properties: dict[str, str] = {}
        if file is not None:
            try:
                text = file.read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"cannot read {file}: {error}") from None
            properties |= javaproperties.loads(text)
        options = cls.options()
        for name in options:
            variable = ENVIRONMENT_PREFIX + name.removeprefix("kctl.").upper().replace(".", "_")
            if environ is not None and variable in environ:
                properties[name] = environ[variable]
        for name, value in (overrides or {}).items():
            if name not in options:
                raise ConfigError(f"there is no setting {name}; see `kctl run --help`")
            properties[name] = value
        values = {}
        for name, field in options.items():
            if name in properties:
                try:
                    values[field.name] = field.metadata["parse"](properties[name])
                except ConfigError as error:
                    raise ConfigError(f"{name}: {error}") from None
        return cls(**values)

    @classmethod
    def options(cls) -> dict[str, "attrs.Attribute[Any]"]:
        return {field.metadata["name"]: field for field in attrs.fields(cls)}

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """What is told to brokers and clients, with the protocols of the map."""
        protocols = self.listener_security_protocol_map
        return tuple(
            attrs.evolve(e, security_protocol=protocols.get(e.listener, e.security_protocol))
            for e in self.advertised_listeners or self.listeners
        )

    @property
    def settings(self) -> Settings:
        """What the core needs to know of this."""
        return Settings(
            controller_id=self.broker_id,
            takeover=self.takeover,
            force_takeover=self.force_takeover,
            endpoints=self.endpoints,
            inter_broker_protocol=self.inter_broker_protocol_version,
            unclean_leader_election=self.unclean_leader_election_enable,
            delete_topic_enable=self.delete_topic_enable,
            auto_leader_rebalance=self.auto_leader_rebalance_enable,
            leader_imbalance_per_broker_percentage=self.leader_imbalance_per_broker_percentage,
            leader_imbalance_check_interval_ms=self.leader_imbalance_check_interval_seconds * 1000,
            num_partitions=self.num_partitions,
            default_replication_factor=self.default_replication_factor,
        )
