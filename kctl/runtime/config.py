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
from kctl.model.settings import Release, Settings
from kctl.runtime import parsing
from kctl.runtime.parsing import PROTOCOLS, ConfigError

__all__ = ["Config", "ConfigError"]

T = TypeVar("T")

ENVIRONMENT_PREFIX = "KCTL_"
LISTENER_PREFIX = "listener.name."
EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 not bound here, but refused as an address


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
        "zookeeper.connect",
        "127.0.0.1:2181",
        "Servers, and a chroot at the end if any.",
        parsing.servers,
    )
    zookeeper_connection_timeout_ms: int = option(
        "zookeeper.connection.timeout.ms",
        18_000,
        "How long one attempt at a session takes; `kctl run` makes one at its start.",
        parsing.whole(1),
    )
    zookeeper_session_timeout_ms: int = option(
        "zookeeper.session.timeout.ms",
        18_000,
        "How long ZooKeeper waits for a silent controller before another one may follow.",
        parsing.whole(100),
    )
    zookeeper_set_acl: bool = option(
        "zookeeper.set.acl", False, "Create znodes with the ACLs that Kafka sets.", parsing.boolean
    )
    zookeeper_auth: str = option(
        "kctl.zookeeper.auth",
        "",
        "scheme:credentials, for example digest:user:password; best as KCTL_ZOOKEEPER_AUTH.",
        parsing.text,
        secret=True,
    )
    zookeeper_ssl_client_enable: bool = option(
        "zookeeper.ssl.client.enable", False, "Speak TLS to ZooKeeper.", parsing.boolean
    )
    zookeeper_ssl_keystore_location: str = option(
        "zookeeper.ssl.keystore.location",
        "",
        "A PEM file with a private key and its certificates, if ZooKeeper asks for one.",
        parsing.text,
    )
    zookeeper_ssl_keystore_password: str = option(
        "zookeeper.ssl.keystore.password",
        "",
        "Of that key, if it is encrypted.",
        parsing.text,
        secret=True,
    )
    zookeeper_ssl_truststore_location: str = option(
        "zookeeper.ssl.truststore.location",
        "",
        "A PEM file with the certificates to trust; those of the system if there is none.",
        parsing.text,
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = option(
        "zookeeper.ssl.endpoint.identification.algorithm",
        "https",
        "Servers' certificates must name their hosts, unless this is empty.",
        parsing.one_of("https", ""),
    )
    broker_id: int = option(
        "broker.id", 1000, "The controller's id; never that of a broker.", parsing.whole(0)
    )
    listeners: tuple[Endpoint, ...] = option(
        "listeners",
        (),
        "Where to serve brokers and clients: NAME://HOST:PORT, ...",
        parsing.endpoints,
    )
    advertised_listeners: tuple[Endpoint, ...] = option(
        "advertised.listeners",
        (),
        "What brokers and clients are told; as listeners if empty.",
        parsing.endpoints,
    )
    listener_security_protocol_map: dict[str, str] = attrs.field(
        factory=dict,
        metadata={
            "name": "listener.security.protocol.map",
            "doc": "LISTENER:PROTOCOL, ...; a listener that is not listed is its own protocol.",
            "parse": parsing.protocol_map,
        },
    )
    inter_broker_listener_name: str = option(
        "inter.broker.listener.name",
        "",
        "The brokers' listener that is spoken to.",
        parsing.listener_name,
    )
    security_inter_broker_protocol: str = option(
        "security.inter.broker.protocol",
        "",
        "Names that listener by its protocol, if it is not named by the one above.",
        parsing.protocol,
    )
    control_plane_listener_name: str = option(
        "control.plane.listener.name",
        "",
        "Preferred to the ones above if set.",
        parsing.listener_name,
    )
    advertise_inner_listeners_only: bool = option(
        "kctl.advertise.inner.listeners.only",
        False,
        "Tell brokers of the two listeners above only: clients of others do not see this node.",
        parsing.boolean,
    )
    controller_ids: tuple[int, ...] = option(
        "kctl.controller.ids",
        (),
        "Ids of other kctl, which no broker ever has: replicas placed on them are moved, too.",
        parsing.ids,
    )
    super_users: tuple[str, ...] = option(
        "super.users", (), "User:NAME;...: who may do what only brokers may.", parsing.names(";")
    )
    authorizer_class_name: str = option(
        "authorizer.class.name",
        "",
        "If brokers have one, only super users change the cluster through this node.",
        parsing.text,
    )
    sasl_mechanism_inter_broker_protocol: str = option(
        "sasl.mechanism.inter.broker.protocol",
        "",
        "How to log in to brokers: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.",
        parsing.mechanism,
    )
    sasl_enabled_mechanisms: tuple[str, ...] = option(
        "sasl.enabled.mechanisms",
        (),
        "Of those three, what is offered to those who connect; all if empty. Brokers check them.",
        parsing.names(","),
    )
    sasl_jaas_config: str = option(
        "sasl.jaas.config",
        "",
        'The login: ...LoginModule required username="..." password="...";',
        parsing.text,
        secret=True,
    )
    ssl_keystore_type: str = option(
        "ssl.keystore.type", "", "PEM. Other kinds must be converted.", parsing.text
    )
    ssl_keystore_location: str = option(
        "ssl.keystore.location",
        "",
        "A file with the private key and its certificates.",
        parsing.text,
    )
    ssl_keystore_key: str = option(
        "ssl.keystore.key",
        "",
        "The private key itself, instead of a file.",
        parsing.text,
        secret=True,
    )
    ssl_keystore_certificate_chain: str = option(
        "ssl.keystore.certificate.chain", "", "The certificates that belong to it.", parsing.text
    )
    ssl_keystore_password: str = option(
        "ssl.keystore.password",
        "",
        "Of a store that is not PEM: not used.",
        parsing.text,
        secret=True,
    )
    ssl_key_password: str = option(
        "ssl.key.password", "", "Of the private key, if it is encrypted.", parsing.text, secret=True
    )
    ssl_truststore_type: str = option(
        "ssl.truststore.type", "", "PEM. Other kinds must be converted.", parsing.text
    )
    ssl_truststore_location: str = option(
        "ssl.truststore.location",
        "",
        "A file with the certificates to trust; those of the system if there is none.",
        parsing.text,
    )
    ssl_truststore_certificates: str = option(
        "ssl.truststore.certificates", "", "They themselves, instead of a file.", parsing.text
    )
    ssl_truststore_password: str = option(
        "ssl.truststore.password",
        "",
        "Of a store that is not PEM: not used.",
        parsing.text,
        secret=True,
    )
    ssl_client_auth: str = option(
        "ssl.client.auth",
        "none",
        "Whether those who connect need a certificate: required, requested or none.",
        parsing.one_of("required", "requested", "none"),
    )
    ssl_endpoint_identification_algorithm: str = option(
        "ssl.endpoint.identification.algorithm",
        "https",
        "Brokers' certificates must name their hosts, unless this is empty.",
        parsing.one_of("https", ""),
    )
    by_listener: dict[str, dict[str, str]] = attrs.field(factory=dict, repr=False)
    """`listener.name.<listener>.<setting>`: what differs on a listener, by both."""
    inter_broker_protocol_version: Release | None = option(  # noqa: RUF009 an attrs field
        "inter.broker.protocol.version",
        None,
        "Found out from the brokers if not set.",
        parsing.release,
    )
    request_timeout_ms: int = option(
        "request.timeout.ms", 30_000, "How long a broker may take to answer.", parsing.whole(1)
    )
    takeover: bool = option(
        "kctl.takeover",
        False,
        "Take the controllership from a broker that has it.",
        parsing.boolean,
    )
    force_takeover: bool = option(
        "kctl.takeover.force", False, "Take it from another kctl too.", parsing.boolean
    )
    unclean_leader_election_enable: bool = option(
        "unclean.leader.election.enable",
        False,
        "Elect a leader that is not in sync where no other is left; may lose records.",
        parsing.boolean,
    )
    delete_topic_enable: bool = option(
        "delete.topic.enable", True, "Carry out topic deletions.", parsing.boolean
    )
    auto_leader_rebalance_enable: bool = option(
        "auto.leader.rebalance.enable",
        True,
        "Give leaderships back to preferred replicas.",
        parsing.boolean,
    )
    leader_imbalance_per_broker_percentage: int = option(
        "leader.imbalance.per.broker.percentage",
        10,
        "From where on that is done.",
        parsing.whole(0, 100),
    )
    leader_imbalance_check_interval_seconds: int = option(
        "leader.imbalance.check.interval.seconds",
        300,
        "How often that is checked.",
        parsing.whole(1),
    )
    num_partitions: int = option(
        "num.partitions", 1, "Of a topic that does not say how many.", parsing.whole(1)
    )
    default_replication_factor: int = option(
        "default.replication.factor", 1, "Of a topic that does not say which.", parsing.whole(1)
    )
    http: tuple[str, int] | None = option(
        "kctl.http",
        None,
        "HOST:PORT of the page, metrics and health; not served if empty.",
        parsing.address,
    )
    metrics_dialect: str = option(
        "kctl.metrics.dialect",
        "confluent",
        "How Kafka's meters are named in /metrics: confluent or strimzi.",
        parsing.one_of("confluent", "strimzi"),
    )
    journal: str = option(
        "kctl.journal", "", "Write every event and reply into files with this name.", parsing.text
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
            if environ is not None and (variable := variable_of(name)) in environ:
                properties[name] = environ[variable]
        for name, value in (overrides or {}).items():
            if name not in options and _of_a_listener(name) is None:
                raise ConfigError(f"there is no setting {name}; see docs/configuration.md")
            properties[name] = value
        values = {
            field.name: _parsed(name, properties[name], field)
            for name, field in options.items()
            if name in properties
        }
        config = cls(**values)
        by_listener = config._of_listeners(properties, environ or {})
        config = attrs.evolve(config, by_listener=by_listener)
        config.check()
        return config

    @classmethod
    def options(cls) -> dict[str, "attrs.Attribute[Any]"]:
        fields: tuple[attrs.Attribute[Any], ...] = attrs.fields(cls)
        return {f.metadata["name"]: f for f in fields if "name" in f.metadata}

    def _of_listeners(
        self, properties: Mapping[str, str], environ: Mapping[str, str]
    ) -> dict[str, dict[str, str]]:
        """Those of a file and of -o, and variables for the listeners that are known by then."""
        found: dict[str, dict[str, str]] = {}
        for name, value in properties.items():
            place = _of_a_listener(name)
            if place is not None:
                found.setdefault(place[0], {})[place[1]] = value.strip()
        known = (*(e.listener for e in self.listeners), *self.inner_listeners)
        for listener in dict.fromkeys(known):
            for setting in ON_A_LISTENER:
                variable = variable_of(f"{LISTENER_PREFIX}{listener}.{setting}")
                if variable in environ:
                    found.setdefault(listener, {})[setting] = environ[variable].strip()
        return found

    def check(self) -> None:
        """What can only be seen from several settings together."""
        for endpoint in self.endpoints:
            if endpoint.security_protocol not in PROTOCOLS:
                raise ConfigError(
                    f"listeners: {endpoint.listener} is no protocol and has none in"
                    " listener.security.protocol.map"
                )
            if endpoint.host in EVERYWHERE:
                raise ConfigError(
                    f"listeners: brokers and clients cannot reach {endpoint.listener} by the host"
                    f" {endpoint.host!r}; say by which one in advertised.listeners"
                )
        served = [endpoint.listener for endpoint in self.listeners]
        missing = [name for name in self.inner_listeners if name not in served]
        if served and missing:
            raise ConfigError(
                f"listeners: brokers reach the controller on {', '.join(missing)} only"
                " (inter.broker.listener.name, control.plane.listener.name)"
            )
        if self.advertise_inner_listeners_only and not self.inner_listeners:
            raise ConfigError(
                "kctl.advertise.inner.listeners.only: which ones those are is told by"
                " inter.broker.listener.name or security.inter.broker.protocol"
            )

    @property
    def inner_listener(self) -> str:
        """By which brokers speak to each other; empty if that is not known."""
        return self.inter_broker_listener_name or self.security_inter_broker_protocol

    @property
    def inner_listeners(self) -> tuple[str, ...]:
        """That one, and the one for the controller alone if there is one."""
        if not self.inner_listener:
            return ()
        names = (self.control_plane_listener_name, self.inner_listener)
        return tuple(dict.fromkeys(filter(None, names)))

    def protocol_of(self, listener: str) -> str:
        mapped = self.listener_security_protocol_map.get(listener)
        served = (e.security_protocol for e in self.listeners if e.listener == listener)
        return mapped or next(served, listener)

    def on(self, listener: str, setting: str) -> str:
        """A setting as it is on a listener, where it may differ."""
        own = self.by_listener.get(listener, {})
        if setting in own:
            return own[setting]
        field = self.options().get(setting)
        value: str = "" if field is None else getattr(self, field.name)
        return value

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """What is told to brokers and clients, with the protocols of the map."""
        return tuple(
            attrs.evolve(e, security_protocol=self.protocol_of(e.listener))
            for e in self.advertised_listeners or self.listeners
            if not self.advertise_inner_listeners_only or e.listener in self.inner_listeners
        )

    @property
    def settings(self) -> Settings:
        """What the core needs to know of this."""
        return Settings(
            controller_id=self.broker_id,
            controller_ids=self.controller_ids,
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


ON_A_LISTENER = (
    *(name for name in Config.options() if name.startswith("ssl.")),
    "sasl.jaas.config",
    *(f"{mechanism}.sasl.jaas.config" for mechanism in ("plain", "scram-sha-256", "scram-sha-512")),
)
"""Settings that may differ from listener to listener."""


def variable_of(name: str) -> str:
    """`KCTL_BROKER_ID` is `broker.id`."""
    upper = name.removeprefix("kctl.").upper()
    return ENVIRONMENT_PREFIX + upper.replace(".", "_").replace("-", "_")


def _of_a_listener(name: str) -> tuple[str, str] | None:
    """Listener and setting of `listener.name.inner.ssl.key.password`, if it is one that is used."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    for setting in ON_A_LISTENER:
        listener = name.removeprefix(LISTENER_PREFIX).removesuffix(f".{setting}")
        # With and without a mechanism: the longer name is another setting.
        if name.endswith(f".{setting}") and "." not in listener:
            return listener.upper(), setting
    return None


def _parsed(name: str, value: str, field: "attrs.Attribute[Any]") -> Any:
    try:
        return field.metadata["parse"](value)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
