"""Broker registrations, `/brokers/ids/<id>`: JSON versions 1 to 5, and the one that kctl writes."""

import re
from typing import Annotated, Final

import msgspec

from kctl.model.brokers import Broker, Endpoint
from kctl.model.codes import Malformed
from kctl.model.names import BrokerId
from kctl.zookeeper.znodes import INT_MAX, Int, parse

_SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ENDPOINT: Final = re.compile(r"([^:/]+)://\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]{1,5})")
_PORT_MAX: Final = 65_535


class _VersionRange(msgspec.Struct, gc=False):
    min_version: Int
    max_version: Int


class _Registration(msgspec.Struct, gc=False):
    version: Annotated[int, msgspec.Meta(ge=1, le=INT_MAX)]
    host: str | None = None
    port: Int = -1
    endpoints: list[str] | None = None
    listener_security_protocol_map: dict[str, str] | None = None
    rack: str | None = None
    features: dict[str, _VersionRange] | None = None
    kctl: object = False


_REGISTRATION: Final = msgspec.json.Decoder(_Registration)


def decode_registration(
    path: str, data: bytes | None, broker_id: BrokerId, epoch: int
) -> Broker | Malformed:
    found = parse(_REGISTRATION, path, data)
    if isinstance(found, Malformed):
        return found
    if found.version == 1:
        endpoints = _only_endpoint(found.host, found.port)
    else:
        endpoints = _endpoints(found.endpoints or [], found.listener_security_protocol_map)
    if isinstance(endpoints, str):
        return Malformed(path, endpoints)
    return Broker(
        id=broker_id,
        epoch=epoch,
        endpoints=endpoints,
        rack=found.rack,
        features={n: (f.min_version, f.max_version) for n, f in (found.features or {}).items()},
        registration_version=found.version,
    )


def is_kctl_registration(data: bytes | None) -> bool:
    """Whether a kctl wrote it: such a one goes away with the controllership that it belongs to."""
    found = parse(_REGISTRATION, "", data)
    return not isinstance(found, Malformed) and found.kctl is True


def encode_registration(endpoints: tuple[Endpoint, ...], rack: str | None, now_ms: int) -> bytes:
    """Version 4: brokers up to 2.8, the only ones that look for it, understand that."""
    plain = next((e for e in endpoints if e.security_protocol == "PLAINTEXT"), None)
    content: dict[str, object] = {
        "version": 4,
        "host": None if plain is None else plain.host,
        "port": -1 if plain is None else plain.port,
        "jmx_port": -1,
        "timestamp": str(now_ms),
        "endpoints": [f"{e.listener}://{_bracketed(e.host)}:{e.port}" for e in endpoints],
        "listener_security_protocol_map": {e.listener: e.security_protocol for e in endpoints},
        "kctl": True,
    }
    if rack is not None:
        content["rack"] = rack
    return msgspec.json.encode(content)


def _only_endpoint(host: str | None, port: int) -> tuple[Endpoint, ...] | str:
    if host is None or not 0 <= port <= _PORT_MAX:
        return "host and port do not name an endpoint"
    return (Endpoint("PLAINTEXT", host, port),)


def _endpoints(texts: list[str], protocols: dict[str, str] | None) -> tuple[Endpoint, ...] | str:
    endpoints: list[Endpoint] = []
    for text in texts:
        match = _ENDPOINT.fullmatch(text)
        if match is None or int(match[3]) > _PORT_MAX:
            return f"endpoint {len(endpoints)} is not NAME://host:port"
        listener = match[1].upper()
        # Without a map a listener is called as its protocol, as it was before version 4.
        protocol = listener if protocols is None else protocols.get(listener, "").upper()
        if protocol not in _SECURITY_PROTOCOLS:
            return f"endpoint {len(endpoints)} has no known security protocol"
        endpoints.append(Endpoint(listener, match[2], int(match[3]), protocol))
    return tuple(endpoints) or "no endpoints"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
