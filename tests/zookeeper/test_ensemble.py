"""Connect strings, chroots and the order of dialling."""

from random import Random

import pytest

from kctl.zookeeper.ensemble import Chroot, DialOrder, Server, parse_connect_string


@pytest.mark.parametrize(
    "text, servers, prefix",
    [
        ("h", [("h", 2181)], ""),
        ("h1:1,h2:2", [("h1", 1), ("h2", 2)], ""),
        (" h1:1 , h2:2/kafka ", [("h1", 1), ("h2", 2)], "/kafka"),
        ("h:1/", [("h", 1)], ""),
        ("h:1/a/b/", [("h", 1)], "/a/b"),
        ("[::1]:2182,fe80::1,[::2]", [("::1", 2182), ("fe80::1", 2181), ("::2", 2181)], ""),
    ],
)
def test_connect_strings(text: str, servers: list[tuple[str, int]], prefix: str) -> None:
    found, chroot = parse_connect_string(text)
    assert [(server.host, server.port) for server in found] == servers
    assert chroot.prefix == prefix


@pytest.mark.parametrize("text", ["", "/kafka", ",", "h:x", ":2181", "h:1/a//b"])
def test_what_is_no_connect_string(text: str) -> None:
    with pytest.raises(ValueError, match=r"server|chroot"):
        parse_connect_string(text)


def test_a_chroot_ends_at_a_name() -> None:
    chroot = Chroot("/kafka")
    assert chroot.full("/") == "/kafka"
    assert chroot.full("/a/b") == "/kafka/a/b"
    assert chroot.relative("/kafka") == "/"
    assert chroot.relative("/kafka/a/b") == "/a/b"
    assert chroot.relative("/kafkaesque/a") == "/kafkaesque/a"
    assert Chroot("").relative("/a") == Chroot("").full("/a") == "/a"
    for path in ("", "a", "esque"):
        with pytest.raises(ValueError, match="slash"):
            chroot.full(path)


def test_who_failed_is_tried_last() -> None:
    servers = [Server("h", port) for port in range(4)]
    order = DialOrder(servers, Random(3))
    shuffled = []
    for _ in servers:
        shuffled.append(order.first)
        order.failed(order.first)
    assert sorted(shuffled, key=lambda server: server.port) == servers
    assert order.first == shuffled[0]
    order.failed(shuffled[0])
    assert [order.first, len(order)] == [shuffled[1], 4]


def test_the_shuffle_is_the_callers() -> None:
    servers = [Server("h", port) for port in range(20)]
    first, again, other = (DialOrder(servers, Random(seed)) for seed in (1, 1, 2))
    assert first._servers == again._servers != other._servers
