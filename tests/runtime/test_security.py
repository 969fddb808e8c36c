"""TLS and SASL from settings: what comes of them, and that nothing secret is ever said."""

import ssl
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kctl.cli import app
from kctl.runtime import security
from kctl.runtime.config import Config, ConfigError

SECRET = "open sesame"
JAAS = f'org.apache.X required username="admin" password="{SECRET}" user_alice="{SECRET}";'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`plain.pem` and `locked.pem`: a key and its certificate; `store.p12`, and the parts alone."""
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    run(f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=kctl -keyout {key} -out {cert}")
    locked = folder / "locked-key.pem"
    run(f"pkcs8 -topk8 -in {key} -out {locked} -passout", f"pass:{SECRET}")
    (folder / "plain.pem").write_text(key.read_text() + cert.read_text())
    (folder / "locked.pem").write_text(locked.read_text() + cert.read_text())
    store = folder / "store.p12"
    run(f"pkcs12 -export -inkey {key} -in {cert} -out {store} -passout", f"pass:{SECRET}")
    (folder / "store.jks").write_bytes(bytes.fromhex("feedfeed00000002"))
    return folder


def run(arguments: str, *more: str) -> None:
    subprocess.run(["openssl", *arguments.split(), *more], check=True, capture_output=True)


def loaded(**settings: object) -> Config:
    overrides = {name.replace("_", "."): str(value) for name, value in settings.items()}
    return Config.load(overrides={"listeners": "INNER://127.0.0.1:0", **MAPPED, **overrides})


MAPPED = {
    "listener.security.protocol.map": "INNER:SSL,OTHER:SASL_SSL",
    "inter.broker.listener.name": "INNER",
}


# -- names -----------------------------------------------------------------------------------


def test_a_listener_goes_before_the_rest() -> None:
    config = Config.load(
        environ={
            "KCTL_SSL_KEY_PASSWORD": "variable",
            "KCTL_LISTENER_NAME_OTHER_SCRAM_SHA_256_SASL_JAAS_CONFIG": "jaas",
        },
        overrides={
            "listeners": "INNER://127.0.0.1:0,OTHER://127.0.0.1:0",
            **MAPPED,
            "ssl.keystore.location": "/everywhere",
            "listener.name.inner.ssl.keystore.location": "/inner",
        },
    )
    assert config.on("INNER", "ssl.keystore.location") == "/inner"
    assert config.on("OTHER", "ssl.keystore.location") == "/everywhere"
    assert config.on("INNER", "ssl.key.password") == "variable"
    assert config.on("OTHER", "scram-sha-256.sasl.jaas.config") == "jaas"
    assert config.on("INNER", "scram-sha-256.sasl.jaas.config") == ""
    assert config.on("INNER", "ssl.client.auth") == "none"


def test_a_file_as_brokers_have_it(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "listeners=PLAINTEXT://:9092,INNER://:9093\n"
        "advertised.listeners=PLAINTEXT://a.host:9092,INNER://a.host:9093\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INNER:SASL_PLAINTEXT\n"
        "inter.broker.listener.name=INNER\n"
        "control.plane.listener.name=PLAINTEXT\n"
        "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256\n"
        "listener.name.inner.scram-sha-256.sasl.jaas.config="
        "org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        '   username="admin" \\\n'
        f'   password="{SECRET}";\n'
        "listener.name.inner.connections.max.reauth.ms=1000\n"
        "super.users=User:admin;User:CN=broker,O=kctl\n"
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer\n"
    )
    config = Config.load(file)
    assert config.inner_listeners == ("PLAINTEXT", "INNER")
    rights = security.rights(config)
    assert rights.own == "User:admin"
    assert rights.super_users == {"User:admin", "User:CN=broker,O=kctl"}
    assert rights.broker_listeners == {"PLAINTEXT", "INNER"}
    assert rights.authorizer
    towards = security.towards_brokers(config)
    # The control plane is not secured, so nobody logs in there.
    assert (towards.sasl_mechanism, towards.ssl_context) == (None, None)
    assert [(e.name, e.sasl) for e in security.listeners(config)] == [
        ("PLAINTEXT", False),
        ("INNER", True),
    ]
    assert SECRET not in f"{config!r} {towards!r} {rights!r}"


@pytest.mark.parametrize(
    "settings, wrong",
    [
        ({"listener.name.inner.ssl.keystore.nonsense": "x"}, "there is no setting"),
        ({"listener.name.inner.inner.ssl.key.password": "x"}, "there is no setting"),
        ({"listeners": "STRANGE://127.0.0.1:0"}, "STRANGE is no protocol"),
        ({"listeners": "PLAINTEXT://:9092"}, "advertised.listeners"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "advertised.listeners"),
        ({"inter.broker.listener.name": "INNER"}, "brokers reach the controller on INNER only"),
        ({"security.inter.broker.protocol": "SSL"}, "brokers reach the controller on SSL only"),
        ({"security.inter.broker.protocol": "TLS"}, "'TLS' is none of"),
        ({"ssl.client.auth": "perhaps"}, "'perhaps' is none of"),
        ({"kctl.advertise.inner.listeners.only": "true"}, "inter.broker.listener.name"),
        ({"kctl.controller.ids": "1000,x"}, "'x' is not a whole number"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, str], wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        Config.load(overrides={"listeners": "PLAINTEXT://127.0.0.1:0", **settings})


@pytest.mark.parametrize("only, names", [("false", ["INNER", "OUTER"]), ("true", ["INNER"])])
def test_what_is_advertised(only: str, names: list[str]) -> None:
    config = Config.load(
        overrides={
            "listeners": "INNER://127.0.0.1:1,OUTER://127.0.0.1:2",
            "listener.security.protocol.map": "INNER:SSL,OUTER:PLAINTEXT",
            "inter.broker.listener.name": "INNER",
            "kctl.advertise.inner.listeners.only": only,
        }
    )
    assert [e.listener for e in config.settings.endpoints] == names
    assert [e.listener for e in config.listeners] == ["INNER", "OUTER"]


# -- TLS -------------------------------------------------------------------------------------


def test_keys_and_certificates_from_files(folder: Path) -> None:
    config = loaded(
        ssl_keystore_location=folder / "locked.pem",
        ssl_key_password=SECRET,
        ssl_truststore_location=folder / "cert.pem",
        ssl_client_auth="requested",
    )
    server = security.server_context(config, "INNER")
    assert server.verify_mode is ssl.CERT_OPTIONAL
    client = security.client_context(config, "INNER")
    assert (client.verify_mode, client.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert [c["subject"] for c in client.get_ca_certs()] == [((("commonName", "kctl"),),)]


@pytest.mark.parametrize("line_break", ["\n", " ", "\\n"])
def test_keys_and_certificates_in_the_settings_themselves(folder: Path, line_break: str) -> None:
    def text(name: str) -> str:
        return line_break.join((folder / name).read_text().splitlines())

    config = loaded(
        ssl_keystore_key=text("locked-key.pem"),
        ssl_keystore_certificate_chain=text("cert.pem"),
        ssl_key_password=SECRET,
        ssl_truststore_certificates=text("cert.pem"),
        ssl_endpoint_identification_algorithm="",
    )
    assert security.server_context(config, "INNER").verify_mode is ssl.CERT_NONE
    client = security.client_context(config, "INNER")
    assert not client.check_hostname
    assert client.verify_mode is ssl.CERT_REQUIRED
    assert len(client.get_ca_certs()) == 1


def test_without_anything_to_trust_the_system_is_asked() -> None:
    context = security.client_context(loaded(), "INNER")
    assert context.get_ca_certs() == ssl.create_default_context().get_ca_certs()
    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    "settings, said",
    [
        ({}, "SSL needs a certificate"),
        ({"ssl.keystore.location": "missing.pem"}, "No such file"),
        ({"ssl.keystore.location": "cert.pem"}, "needs a private key"),
        ({"ssl.keystore.location": "locked.pem"}, "ssl.key.password"),
        ({"ssl.keystore.location": "locked.pem", "ssl.key.password": "wrong"}, "ssl.key.password"),
        ({"ssl.keystore.location": "store.p12"}, "openssl pkcs12 -in .*store.p12 -nodes -out"),
        ({"ssl.keystore.location": "store.jks"}, "keytool -importkeystore .* && openssl pkcs12"),
        (
            {
                "ssl.keystore.location": "plain.pem",
                "ssl.client.auth": "required",
                "ssl.truststore.location": "key.pem",
            },
            "holds no certificates",
        ),
    ],
)
def test_what_is_wrong_with_a_store_is_said(
    folder: Path, settings: dict[str, str], said: str
) -> None:
    settings = {
        name: str(folder / value) if name.endswith("location") else value
        for name, value in settings.items()
    }
    config = Config.load(overrides={"listeners": "INNER://127.0.0.1:0", **MAPPED, **settings})
    with pytest.raises(ConfigError, match=said) as error:
        security.listeners(config)
    assert "listener.name.inner.ssl." in str(error.value)
    assert "PRIVATE" not in str(error.value)


def test_stores_that_nobody_needs_are_not_opened(folder: Path) -> None:
    """A broker's file may have some for listeners that this node does not have."""
    unreadable = {"ssl.keystore.location": str(folder / "store.jks")}
    for named in ({}, {"inter.broker.listener.name": "PLAINTEXT"}):
        settings = {"listeners": "PLAINTEXT://127.0.0.1:0", **named, **unreadable}
        config = Config.load(overrides=settings)
        assert security.towards_brokers(config).ssl_context is None
        assert security.relay_contexts(config) == {}
        assert security.towards_zookeeper(config) is None
    config = Config.load(overrides={"listeners": "SSL://127.0.0.1:0"})
    assert security.towards_brokers(config).ssl_context is not None


# -- SASL ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "sasl.jaas.config",
        "listener.name.other.sasl.jaas.config",
        "listener.name.other.scram-sha-512.sasl.jaas.config",
    ],
)
def test_the_login(name: str) -> None:
    config = Config.load(
        overrides={
            "listeners": "OTHER://127.0.0.1:0",
            **MAPPED,
            "inter.broker.listener.name": "OTHER",
            "sasl.mechanism.inter.broker.protocol": "scram-sha-512",
            name: JAAS.replace("admin", r"ad\"min"),
        }
    )
    towards = security.towards_brokers(config)
    assert towards.sasl_mechanism == "SCRAM-SHA-512"
    assert (towards.username, towards.password) == ('ad"min', SECRET)
    assert towards.ssl_context is not None
    assert SECRET not in f"{config!r} {towards!r}"


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"sasl.jaas.config": JAAS}, "sasl.mechanism.inter.broker.protocol: .*SCRAM-SHA-256"),
        ({"sasl.mechanism.inter.broker.protocol": "GSSAPI"}, "it is one of PLAIN"),
        ({"sasl.mechanism.inter.broker.protocol": "PLAIN"}, "plain.sasl.jaas.config"),
        (
            {
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "sasl.jaas.config": f'X required password="{SECRET}";',
            },
            "LoginModule required",
        ),
    ],
)
def test_what_is_wrong_with_a_login_is_said(settings: dict[str, str], said: str) -> None:
    config = Config.load(
        overrides={
            "listeners": "OTHER://127.0.0.1:0",
            **MAPPED,
            "inter.broker.listener.name": "OTHER",
            **settings,
        }
    )
    with pytest.raises(ConfigError, match=said) as error:
        security.towards_brokers(config)
    assert SECRET not in str(error.value)


def test_what_is_offered() -> None:
    for wanted, offered in (
        ("", security.MECHANISMS),
        ("SCRAM-SHA-512,GSSAPI, PLAIN", ("PLAIN", "SCRAM-SHA-512")),
    ):
        config = Config.load(
            overrides={
                "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
                "sasl.enabled.mechanisms": wanted,
            }
        )
        (listener,) = security.listeners(config)
        assert (listener.sasl, listener.mechanisms) == (True, offered)


def test_the_command_says_which_setting_is_wrong(folder: Path) -> None:
    missing = folder / "missing.pem"
    for options, said in (
        ([], "ssl.keystore.location"),
        (["-o", f"ssl.keystore.location={missing}"], "No such file"),
        (["-o", "listener.name.ssl.ssl.nonsense=x"], "there is no setting"),
    ):
        arguments = ["run", "--listen", "SSL://127.0.0.1:0", *options]
        ended = CliRunner().invoke(app, arguments)
        assert (ended.exit_code, said in ended.output) == (2, True), ended.output
