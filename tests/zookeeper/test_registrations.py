"""Broker registrations: every JSON version, and the one that kctl writes."""

import json

import pytest

from kctl.model.brokers import Broker, Endpoint
from kctl.model.codes import Malformed
from kctl.zookeeper.registrations import (
    decode_registration,
    encode_registration,
    is_kctl_registration,
)

PLAIN = Endpoint("PLAINTEXT", "b1", 9092, "PLAINTEXT")


@pytest.mark.parametrize(
    "data,broker",
    [
        (
            b'{"version":1,"host":"b1","port":9092,"jmx_port":-1,"timestamp":"1"}',
            Broker(5, 77, (PLAIN,), registration_version=1),
        ),
        (
            b'{"version":2,"host":"b1","port":9092,"endpoints":["PLAINTEXT://b1:9092"]}',
            Broker(5, 77, (PLAIN,), registration_version=2),
        ),
        (
            b'{"version":3,"endpoints":["SSL://[::1]:9093"],"rack":"r1"}',
            Broker(5, 77, (Endpoint("SSL", "::1", 9093, "SSL"),), "r1", registration_version=3),
        ),
        (
            (
                b'{"version":4,"endpoints":["CLIENT://b1:9092","REPL://b1:9093"],'
                b'"listener_security_protocol_map":{"CLIENT":"PLAINTEXT","REPL":"SASL_SSL"}}'
            ),
            Broker(
                5,
                77,
                (
                    Endpoint("CLIENT", "b1", 9092, "PLAINTEXT"),
                    Endpoint("REPL", "b1", 9093, "SASL_SSL"),
                ),
                registration_version=4,
            ),
        ),
        (
            (
                b'{"version":5,"host":null,"port":-1,"endpoints":["REPL://b1:9093"],'
                b'"listener_security_protocol_map":{"REPL":"SSL"},"rack":"r1",'
                b'"features":{"f":{"min_version":1,"max_version":3}}}'
            ),
            Broker(5, 77, (Endpoint("REPL", "b1", 9093, "SSL"),), "r1", {"f": (1, 3)}, 5),
        ),
    ],
)
def test_registrations_of_every_version(data: bytes, broker: Broker) -> None:
    assert decode_registration("/b", data, 5, 77) == broker
    assert not is_kctl_registration(data)


@pytest.mark.parametrize(
    "content",
    [
        {"version": 0, "host": "b", "port": 1},
        {"version": 1, "host": None, "port": 1},
        {"version": 1, "host": "b", "port": 70000},
        {"version": 2},
        {"version": 2, "endpoints": []},
        {"version": 2, "endpoints": ["b1:9092"]},
        {"version": 2, "endpoints": ["PLAINTEXT://b1:99999"]},
        {"version": 2, "endpoints": ["PLAINTEXT://b 1:9"]},
        {"version": 2, "endpoints": ["CLIENT://b1:9092"]},
        {"version": 4, "endpoints": ["A://b:1"], "listener_security_protocol_map": {"B": "SSL"}},
        {"version": 4, "endpoints": ["A://b:1"], "listener_security_protocol_map": {"A": "X"}},
        {"version": 5, "endpoints": ["SSL://b:1"], "features": {"f": 1}},
        {"version": 5, "endpoints": ["SSL://b:1"], "rack": 1},
    ],
)
def test_a_registration_that_makes_no_sense(content: dict[str, object]) -> None:
    found = decode_registration("/b", json.dumps(content).encode(), 5, 77)
    assert isinstance(found, Malformed)


def test_our_own_registration() -> None:
    endpoints = (Endpoint("CLIENT", "::1", 9092, "SASL_SSL"), PLAIN)
    data = encode_registration(endpoints, "r1", 7)
    assert decode_registration("/b", data, 1000, 3) == Broker(
        1000, 3, endpoints, "r1", registration_version=4
    )
    content = json.loads(data)
    assert (content["version"], content["host"], content["port"]) == (4, "b1", 9092)
    assert is_kctl_registration(data)
    assert not is_kctl_registration(b"garbage")
