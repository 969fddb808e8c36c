"""By which name somebody is known: from the tokens of SASL, or from a certificate."""

import pytest

from kctl.server.rights import principal_of
from kctl.server.sasl import name_in


@pytest.mark.parametrize(
    "mechanism, token, name",
    [
        ("PLAIN", b"\0alice\0x", "alice"),
        ("PLAIN", b"alice\0alice\0x", "alice"),
        ("PLAIN", b"root\0alice\0x", None),
        ("PLAIN", b"\0alice\0x\0y", None),
        ("PLAIN", b"alice", None),
        ("PLAIN", b"\0\xff\0\xff", None),
        ("SCRAM-SHA-256", b"n,,n=alice,r=abc", "alice"),
        ("SCRAM-SHA-512", b"n,a=alice,n=alice,r=abc", "alice"),
        ("SCRAM-SHA-256", b"n,,n=odd=3Dname=2C,r=abc", "odd=name,"),
        ("SCRAM-SHA-256", b"n,a=root,n=alice,r=abc", None),
        ("SCRAM-SHA-256", b"n,,n=token-id,r=abc,tokenauth=true", None),
        ("SCRAM-SHA-256", b"n,,n=alice", None),
        ("SCRAM-SHA-256", b"y,,n=alice,r=abc", None),
        ("SCRAM-SHA-256", b"n,,r=abc,n=alice", None),
        ("SCRAM-SHA-256", b"\xff", None),
    ],
)
def test_the_name_in_a_token(mechanism: str, token: bytes, name: str | None) -> None:
    assert name_in(mechanism, token) == name


@pytest.mark.parametrize(
    "subject, principal",
    [
        ({}, "User:ANONYMOUS"),
        (
            {
                "subject": (
                    (("countryName", "SE"),),
                    (("organizationName", "Acme, Inc."),),
                    (("commonName", "broker-1"),),
                )
            },
            "User:CN=broker-1,O=Acme\\, Inc.,C=SE",
        ),
        ({"subject": ((("commonName", " x "),),)}, "User:CN=\\ x\\ "),
        ({"subject": ((("commonName", "#x"), ("userId", "7")),)}, "User:CN=\\#x+UID=7"),
        ({"subject": ((("emailAddress", "a@b"),), (("commonName", "x"),))}, None),
    ],
)
def test_the_name_in_a_certificate(subject: dict[str, object], principal: str | None) -> None:
    assert principal_of(subject) == principal
