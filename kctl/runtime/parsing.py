"""Values of settings, from the text that they are written as."""

from collections.abc import Callable

from kctl.model.brokers import Endpoint
from kctl.model.settings import LATEST_RELEASE, OLDEST_RELEASE, Release
from kctl.zookeeper.ensemble import parse_connect_string

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class ConfigError(ValueError):
    """A setting that cannot be used: which one, what is wrong, and what would be right."""


def text(value: str) -> str:
    return value.strip()


def servers(value: str) -> str:
    try:
        parse_connect_string(value)
    except ValueError as error:
        raise ConfigError(f"{error}; write HOST:PORT,... and a chroot such as /kafka") from None
    return value.strip()


def whole(low: int, high: int = 2**31 - 1) -> Callable[[str], int]:
    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            raise ConfigError(f"{value!r} is not a whole number") from None
        if not low <= number <= high:
            raise ConfigError(f"{number} is not from {low} to {high}")
        return number

    return parse


def boolean(value: str) -> bool:
    match value.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ConfigError(f"{value!r} is neither true nor false")


def release(value: str) -> Release | None:
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


def endpoints(value: str) -> tuple[Endpoint, ...]:
    endpoints = []
    for item in filter(None, (part.strip() for part in value.split(","))):
        name, separator, address = item.partition("://")
        host, colon, port = address.rpartition(":")
        if not separator or not colon or not port.isdecimal() or int(port) > 65535:
            raise ConfigError(f"{item!r} is not NAME://HOST:PORT")
        endpoints.append(Endpoint(name.upper(), host.strip("[]"), int(port), name.upper()))
    return tuple(endpoints)


def address(value: str) -> tuple[str, int] | None:
    if not value.strip():
        return None
    host, colon, port = value.strip().rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not bare or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{value!r} is not HOST:PORT, such as 127.0.0.1:8080")
    return bare, int(port)


def one_of(*names: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.strip().lower() not in names:
            raise ConfigError(f"{value!r} is none of {', '.join(names)}")
        return value.strip().lower()

    return parse


def protocol_map(value: str) -> dict[str, str]:
    pairs = {}
    for item in filter(None, (part.strip() for part in value.split(","))):
        name, colon, protocol = item.partition(":")
        if not colon or protocol.strip().upper() not in PROTOCOLS:
            raise ConfigError(f"{item!r} is not LISTENER:PROTOCOL")
        pairs[name.strip().upper()] = protocol.strip().upper()
    return pairs


def listener_name(value: str) -> str:
    return value.strip().upper()


def names(separator: str) -> Callable[[str], tuple[str, ...]]:
    def parse(value: str) -> tuple[str, ...]:
        return tuple(filter(None, (name.strip() for name in value.split(separator))))

    return parse


def ids(value: str) -> tuple[int, ...]:
    return tuple(whole(0)(number) for number in names(",")(value))


def protocol(value: str) -> str:
    if value.strip() and value.strip().upper() not in PROTOCOLS:
        raise ConfigError(f"{value!r} is none of {', '.join(PROTOCOLS)}")
    return value.strip().upper()


def mechanism(value: str) -> str:
    # Kafka's own default is among those that are not spoken here; said when one is needed.
    return value.strip().upper()
