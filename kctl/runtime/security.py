"""TLS and SASL as they are configured: towards brokers, and towards those who connect.

Nothing in here shows a password or a key, neither in errors nor in what it returns.
"""

import re
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path

from kctl.brokers.connection import Security
from kctl.runtime.config import Config, ConfigError
from kctl.server.rights import Rights
from kctl.server.sasl import ROUNDS
from kctl.server.server import Listener

MECHANISMS = tuple(ROUNDS)
TLS = ("SSL", "SASL_SSL")
SASL = ("SASL_PLAINTEXT", "SASL_SSL")

CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}

_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_JAAS_OPTION = re.compile(r'([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))')
_JKS = b"\xfe\xed\xfe\xed"


def towards_brokers(config: Config) -> Security:
    """For the channels."""
    listener = channel_listener(config)
    protocol = config.protocol_of(listener)
    # Brokers are spoken to by the first listener that they have if none is named.
    served = [config.protocol_of(e.listener) for e in config.listeners]
    tls = protocol in TLS or (not listener and any(each in TLS for each in served))
    mechanism = username = password = None
    if protocol in SASL:
        mechanism, username, password = _login(config, listener)
    return Security(
        ssl_context=client_context(config, listener) if tls else None,
        sasl_mechanism=mechanism,
        username=username,
        password=password,
    )


def channel_listener(config: Config) -> str:
    return config.control_plane_listener_name or config.inner_listener


def towards_zookeeper(config: Config) -> ssl.SSLContext | None:
    return client_context(config, "", "zookeeper.") if config.zookeeper_ssl_client_enable else None


def relay_contexts(config: Config) -> dict[str, ssl.SSLContext]:
    """For what is relayed on a listener, which goes to brokers on the same one."""
    return {
        e.listener: client_context(config, e.listener)
        for e in config.listeners
        if config.protocol_of(e.listener) in TLS
    }


def listeners(config: Config) -> list[Listener]:
    found = []
    for e in config.listeners:
        protocol = config.protocol_of(e.listener)
        found.append(
            Listener(
                e.listener,
                e.host,
                e.port,
                ssl=server_context(config, e.listener) if protocol in TLS else None,
                sasl=protocol in SASL,
                mechanisms=_offered(config),
            )
        )
    return found


def rights(config: Config) -> Rights:
    own = None
    if config.protocol_of(config.inner_listener) in SASL:
        own = f"User:{_login(config, config.inner_listener)[1]}"
    return Rights(
        super_users=frozenset(config.super_users),
        own=own,
        broker_listeners=frozenset(config.inner_listeners),
        authorizer=bool(config.authorizer_class_name),
    )


def _offered(config: Config) -> tuple[str, ...]:
    wanted = config.sasl_enabled_mechanisms
    return tuple(m for m in MECHANISMS if m in wanted) if wanted else MECHANISMS


# -- TLS -------------------------------------------------------------------------------------


def client_context(config: Config, listener: str, prefix: str = "") -> ssl.SSLContext:
    """Towards servers: what they must show, and what we show if they ask."""
    trusts = _trusts(config, listener, prefix)
    context = _empty_context() if trusts else ssl.create_default_context()
    context.check_hostname = bool(
        config.on(listener, f"{prefix}ssl.endpoint.identification.algorithm")
    )
    _trust(context, config, listener, prefix)
    _show(context, config, listener, prefix)
    return context


def server_context(config: Config, listener: str) -> ssl.SSLContext:
    """Towards those who connect: what we show, and what they must show."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not _show(context, config, listener):
        raise _wrong(
            listener, "ssl.keystore.location", f"{config.protocol_of(listener)} needs a certificate"
        )
    client_auth = config.on(listener, "ssl.client.auth").lower()
    if client_auth not in CLIENT_AUTH:
        raise _wrong(listener, "ssl.client.auth", f"none of {', '.join(CLIENT_AUTH)}")
    context.verify_mode = CLIENT_AUTH[client_auth]
    if context.verify_mode != ssl.CERT_NONE and not _trust(context, config, listener):
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return context


def _empty_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _trusts(config: Config, listener: str, prefix: str = "") -> bool:
    names = ("certificates", "location")
    return any(config.on(listener, f"{prefix}ssl.truststore.{name}") for name in names)


def _trust(context: ssl.SSLContext, config: Config, listener: str, prefix: str = "") -> bool:
    """Whether there is anything that is to be trusted beside the system's certificates."""
    inline = config.on(listener, f"{prefix}ssl.truststore.certificates")
    location = config.on(listener, f"{prefix}ssl.truststore.location")
    if not inline and not location:
        return False
    name = f"{prefix}ssl.truststore.{'certificates' if inline else 'location'}"
    text = _pem(inline) if inline else _pem_file(listener, name, location)
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise _wrong(listener, name, "holds no certificates") from None
    return True


def _show(context: ssl.SSLContext, config: Config, listener: str, prefix: str = "") -> bool:
    """Whether there is a certificate of our own."""
    key = config.on(listener, f"{prefix}ssl.keystore.key")
    chain = config.on(listener, f"{prefix}ssl.keystore.certificate.chain")
    location = config.on(listener, f"{prefix}ssl.keystore.location")
    if not key and not location:
        return False
    name = f"{prefix}ssl.keystore.{'key' if key else 'location'}"
    text = _pem(f"{key}\n{chain}") if key else _pem_file(listener, name, location)
    # Kafka has no name of its own for this password where it is ZooKeeper that is spoken to.
    password_name = f"{prefix}ssl.keystore.password" if prefix else "ssl.key.password"
    password = config.on(listener, password_name)
    # Python takes a certificate from files only; this one is ours alone and gone at once.
    with tempfile.TemporaryDirectory(prefix="kctl-tls-") as folder:
        file = Path(folder) / "keystore.pem"
        file.touch(mode=0o600)
        file.write_text(text)
        try:
            # A function even if there is no password: OpenSSL would ask the terminal for one.
            context.load_cert_chain(file, password=_of(password))
        except (ssl.SSLError, ValueError, OSError):
            raise _wrong(
                listener,
                name,
                "needs a private key and the certificate that belongs to it, and if the key is"
                f" encrypted {password_name}",
            ) from None
    return True


def _of(password: str) -> Callable[[], str]:
    return lambda: password


def _pem_file(listener: str, name: str, location: str) -> str:
    path = Path(location)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _wrong(listener, name, f"{location}: {error.strerror}") from None
    if b"-----BEGIN " in data:
        return _pem(data.decode("utf-8", errors="replace"))
    kind = "JKS" if data.startswith(_JKS) else "PKCS12"
    pem, store = path.with_suffix(".pem"), path
    steps = []
    if kind == "JKS":
        store = path.with_suffix(".p12")
        steps.append(
            f"keytool -importkeystore -srckeystore {path} -destkeystore {store}"
            " -deststoretype PKCS12"
        )
    steps.append(f"openssl pkcs12 -in {store} -nodes -out {pem}")
    raise _wrong(
        listener, name, f"{location} is not PEM but {kind}; convert it: {' && '.join(steps)}"
    )


def _pem(text: str) -> str:
    """Blocks with line breaks, as a properties file may have lost them."""
    blocks = []
    for kind, content in _PEM.findall(text.replace("\\n", "\n")):
        # A key that is encrypted the old way says so in lines before its content.
        headers = re.findall(r"^(?:Proc-Type|DEK-Info):.*$", content, re.MULTILINE)
        for header in headers:
            content = content.replace(header, "")  # noqa: PLW2901
        joined = "".join(content.split())
        lines = [joined[at : at + 64] for at in range(0, len(joined), 64)]
        inside = [*headers, "", *lines] if headers else lines
        blocks.append("\n".join([f"-----BEGIN {kind}-----", *inside, f"-----END {kind}-----"]))
    return "\n".join(blocks) + "\n"


# -- SASL ------------------------------------------------------------------------------------


def _login(config: Config, listener: str) -> tuple[str, str, str]:
    """Mechanism, user and password."""
    mechanism = config.sasl_mechanism_inter_broker_protocol
    if mechanism not in MECHANISMS:
        raise ConfigError(
            "sasl.mechanism.inter.broker.protocol: brokers ask for SASL on the listener"
            f" {listener}; it is one of {', '.join(MECHANISMS)}"
        )
    name = f"{mechanism.lower()}.sasl.jaas.config"
    jaas = config.on(listener, name) or config.on(listener, "sasl.jaas.config")
    options = {
        key: re.sub(r"\\(.)", r"\1", quoted) or bare
        for key, quoted, bare in _JAAS_OPTION.findall(jaas)
    }
    if not options.get("username") or not options.get("password"):
        raise _wrong(listener, name, 'needs ...LoginModule required username="..." password="...";')
    return mechanism, options["username"], options["password"]


def _wrong(listener: str, setting: str, why: str) -> ConfigError:
    where = f"listener.name.{listener.lower()}.{setting}" if listener else setting
    return ConfigError(f"{where} (or {setting}): {why}" if listener else f"{where}: {why}")
