"""Codecs of znodes: what brokers wrote is understood, and no bytes whatever raise."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.messages.effects import FeatureNode, ProducerIds, TopicNode
from kctl.model.codes import Malformed
from kctl.model.names import TopicPartition
from kctl.model.rows import Assignment, Leadership
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.registrations import decode_registration

TOPIC_ID = "x3Kj9mQ1RbuWw0a7e5T2Zg"

DECODERS: dict[str, Callable[[bytes | None], object]] = {
    "controller": lambda data: znodes.decode_controller("/p", data),
    "controller_epoch": lambda data: znodes.decode_controller_epoch("/p", data),
    "topic": lambda data: znodes.decode_topic("/p", data, 0),
    "state": lambda data: znodes.decode_state("/p", data, 0),
    "reassignments": lambda data: znodes.decode_reassignments("/p", data),
    "named_partitions": lambda data: znodes.decode_named_partitions("/p", data),
    "log_dir_event": lambda data: znodes.decode_log_dir_event("/p", data),
    "config": lambda data: znodes.decode_config("/p", data),
    "config_change": lambda data: znodes.decode_config_change("/p", data),
    "feature": lambda data: znodes.decode_feature("/p", data),
    "producer_ids": lambda data: znodes.decode_producer_ids("/p", data, 0),
    "cluster_id": lambda data: znodes.decode_cluster_id("/p", data),
    "registration": lambda data: decode_registration("/p", data, 1, 7),
}
GOOD: dict[str, bytes] = {
    "controller": b'{"version":1,"brokerid":900,"timestamp":"1729800000000"}',
    "controller_epoch": b"17",
    "topic": b'{"version":2,"partitions":{"0":[4,1,2]},"adding_replicas":{"0":[4]}}',
    "state": b'{"version":1,"leader":1,"leader_epoch":5,"controller_epoch":17,"isr":[1,2]}',
    "reassignments": b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[4,5]}]}',
    "named_partitions": b'{"version":1,"partitions":[{"topic":"t","partition":0}]}',
    "log_dir_event": b'{"version":1,"broker":3,"event":1}',
    "config": b'{"version":1,"config":{"retention.ms":"1"}}',
    "config_change": b'{"version":2,"entity_path":"topics/t"}',
    "feature": b'{"version":2,"status":1,"features":{"f":{"max_version_level":2}}}',
    "producer_ids": b'{"version":1,"broker":2,"block_start":"4000","block_end":"4999"}',
    "cluster_id": b'{"version":"1","id":"Zk0a1b2c3d4e5f6g7h8i9Q"}',
    "registration": b'{"version":2,"endpoints":["PLAINTEXT://b1:9092"]}',
}
EMPTY_MEANS_SOMETHING = {"config", "producer_ids"}


def poison(good: bytes) -> dict[str, bytes | None]:
    """One good znode, spoiled in many ways."""
    return {
        "null": None,
        "empty": b"",
        "garbage": b"garbage",
        "truncated": good[:-1],
        "trailing": good + b" x",
        "not UTF-8": b"\xff\xfe\x00",
        "byte order mark": b"\xef\xbb\xbf" + good,
        "UTF-16": good.decode().encode("utf-16"),
        "NUL": b"\x00",
        "JSON null": b"null",
        "NaN": b"NaN",
        "list": b"[]",
        "string": b'"x"',
        "empty object": b"{}",
        "deep": b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        "deep and open": b"[" * 100_000,
        "deep objects": b'{"a":' * 100_000,
    }


@pytest.mark.parametrize("kind", DECODERS)
def test_a_spoiled_znode_is_malformed(kind: str) -> None:
    for name, data in poison(GOOD[kind]).items():
        if kind == "controller_epoch" and name == "truncated":
            continue  # one digit fewer is a number too
        if kind in EMPTY_MEANS_SOMETHING and name in {"null", "empty"}:
            assert not isinstance(DECODERS[kind](data), Malformed)
            continue
        found = DECODERS[kind](data)
        assert isinstance(found, Malformed), name
        assert found.path == "/p"
        assert found.reason


@pytest.mark.parametrize("kind", DECODERS)
def test_the_good_znode_is_understood(kind: str) -> None:
    assert not isinstance(DECODERS[kind](GOOD[kind]), Malformed)


WILD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**30, -(10**30), 2**31, -(2**31) - 1, -1])
    | st.floats()
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=4) | st.sampled_from(["0", "-1", "x"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)


@given(st.sampled_from(sorted(DECODERS)), st.binary(max_size=200) | st.none())
def test_no_bytes_raise(kind: str, data: bytes | None) -> None:
    DECODERS[kind](data)


@given(st.sampled_from(sorted(DECODERS)), st.data())
def test_no_json_raises(kind: str, data: st.DataObject) -> None:
    """A good znode with some value replaced by anything."""
    content: Any = json.loads(GOOD[kind])
    if isinstance(content, dict):
        for key in data.draw(st.sets(st.sampled_from(sorted(content)), min_size=1)):
            content[key] = data.draw(WILD)
    DECODERS[kind](json.dumps(content).encode())


@given(st.sampled_from(sorted(DECODERS)), st.data())
def test_no_flipped_byte_raises(kind: str, data: st.DataObject) -> None:
    spoiled = bytearray(GOOD[kind])
    at = data.draw(st.integers(0, len(spoiled) - 1))
    spoiled[at] = data.draw(st.integers(0, 255))
    DECODERS[kind](bytes(spoiled))


# -- controller ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data,claim",
    [
        (b'{"version":1,"brokerid":900,"timestamp":"1"}', znodes.Claim(900, kctl=False)),
        (
            b'{"version":2,"brokerid":9,"timestamp":"1","kraftControllerEpoch":-1}',
            znodes.Claim(9, kctl=False),
        ),
        (b'{"brokerid":9,"kctl":true}', znodes.Claim(9, kctl=True)),
        (b'{"brokerid":9,"kctl":{"deep":[1]}}', znodes.Claim(9, kctl=False)),
    ],
)
def test_who_holds_the_controllership(data: bytes, claim: znodes.Claim) -> None:
    assert znodes.decode_controller("/controller", data) == claim


def test_our_claim_is_what_brokers_expect() -> None:
    data = znodes.encode_controller(1000, 1_729_800_000_000)
    assert json.loads(data) == {
        "version": 2,
        "brokerid": 1000,
        "timestamp": "1729800000000",
        "kraftControllerEpoch": -1,
        "kctl": True,
    }
    assert znodes.decode_controller("/controller", data) == znodes.Claim(1000, kctl=True)


@pytest.mark.parametrize("text", [b"-1", b" 1", b"1\n", b"1.0", b"0x1", b"9999999999", b"1" * 5000])
def test_an_epoch_is_a_plain_number(text: bytes) -> None:
    assert isinstance(znodes.decode_controller_epoch("/p", text), Malformed)
    assert znodes.decode_controller_epoch("/p", b"17") == 17
    assert znodes.encode_controller_epoch(17) == b"17"


# -- topics ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data,node",
    [
        (
            b'{"version":1,"partitions":{"0":[1,2],"1":[2,3]}}',
            TopicNode({0: Assignment((1, 2)), 1: Assignment((2, 3))}, None, 3),
        ),
        (
            (
                b'{"version":2,"partitions":{"0":[4,1,2]},"adding_replicas":{"0":[4]},'
                b'"removing_replicas":{"0":[1]}}'
            ),
            TopicNode({0: Assignment((4, 1, 2), (4,), (1,))}, None, 3),
        ),
        (
            b'{"version":3,"topic_id":"%s","partitions":{"10":[1]},"adding_replicas":{},'
            b'"removing_replicas":{},"later":{"x":[1]}}' % TOPIC_ID.encode(),
            TopicNode({10: Assignment((1,))}, TOPIC_ID, 3),
        ),
        (b'{"partitions":{}}', TopicNode({}, None, 3)),
    ],
)
def test_topics_of_every_version(data: bytes, node: TopicNode) -> None:
    assert znodes.decode_topic("/t", data, 3) == node


@pytest.mark.parametrize(
    "content",
    [
        '{"partitions":{"x":[1]}}',
        '{"partitions":{"-1":[1]}}',
        '{"partitions":{"01":[1]}}',
        '{"partitions":{"1.0":[1]}}',
        '{"partitions":{"\u0661":[1]}}',
        '{"partitions":{"0":[]}}',
        '{"partitions":{"0":[1,1]}}',
        '{"partitions":{"0":[-1]}}',
        '{"partitions":{"0":["1"]}}',
        '{"partitions":{"0":[1.5]}}',
        '{"partitions":{"0":[true]}}',
        '{"partitions":{"0":[1000000000000000000000000000000]}}',
        '{"partitions":{"1000000000000000000000000000000":[1]}}',
        '{"partitions":{"0":null}}',
        '{"partitions":[[1]]}',
        '{"partitions":{"0":[1]},"adding_replicas":{"0":[2]}}',
        '{"partitions":{"0":[1,2]},"removing_replicas":{"0":[2,2]}}',
        '{"partitions":{"0":[1,2]},"removing_replicas":{"0":[2,1]}}',
        '{"partitions":{"0":[1]},"topic_id":"short"}',
        '{"partitions":{"0":[1]},"topic_id":"AAAAAAAAAAAAAAAAAAAAAA"}',
        '{"partitions":{"0":[1]},"topic_id":"x3Kj9mQ1RbuWw0a7e5T2Z/"}',
        '{"partitions":{"0":[1]},"topic_id":7}',
    ],
)
def test_a_topic_that_makes_no_sense(content: str) -> None:
    assert isinstance(znodes.decode_topic("/t", content.encode(), 0), Malformed)


ids = st.integers(0, 2**31 - 1)


@st.composite
def assignments(draw: st.DrawFn) -> Assignment:
    replicas = tuple(draw(st.lists(ids, min_size=1, max_size=5, unique=True)))
    adding = tuple(b for b in replicas if draw(st.booleans()))
    removing = tuple(b for b in replicas[1:] if draw(st.booleans()))
    return Assignment(replicas, adding, removing)


@given(
    st.dictionaries(st.integers(0, 10_000), assignments(), max_size=5),
    st.none() | st.just(TOPIC_ID),
    st.integers(0, 1000),
)
def test_a_topic_survives_the_way_there_and_back(
    partitions: dict[int, Assignment], topic_id: str | None, version: int
) -> None:
    node = TopicNode(partitions, topic_id, version)
    data = znodes.encode_topic(node)
    assert znodes.decode_topic("/t", data, version) == node
    content = json.loads(data)
    assert content["version"] == (2 if topic_id is None else 3)
    assert ("topic_id" in content) == (topic_id is not None)
    assert all(content["adding_replicas"].values())


# -- partition states ------------------------------------------------------------------------


def test_a_state_that_is_recovering() -> None:
    data = (
        b'{"version":1,"leader":3,"leader_epoch":6,"controller_epoch":17,"isr":[3],'
        b'"leader_recovery_state":1}'
    )
    leadership = Leadership(3, (3,), 6, 17, 2, recovering=True)
    assert znodes.decode_state("/s", data, 2) == leadership
    assert json.loads(znodes.encode_state(leadership)) == json.loads(data)


@pytest.mark.parametrize(
    "change",
    [
        {"leader": "1"},
        {"leader": -2},
        {"leader": 10**30},
        {"leader": None},
        {"isr": [1, "2"]},
        {"isr": [1, 1]},
        {"isr": [-1]},
        {"isr": 1},
        {"isr": None},
        {"leader_epoch": 1.5},
        {"leader_epoch": 2**31},
        {"controller_epoch": True},
        {"leader_recovery_state": 2},
    ],
)
def test_a_state_that_makes_no_sense(change: dict[str, object]) -> None:
    content = json.loads(GOOD["state"]) | change
    assert isinstance(znodes.decode_state("/s", json.dumps(content).encode(), 0), Malformed)


@pytest.mark.parametrize("missing", ["leader", "isr", "leader_epoch", "controller_epoch"])
def test_a_state_without_what_it_is_for(missing: str) -> None:
    content = json.loads(GOOD["state"])
    del content[missing]
    assert isinstance(znodes.decode_state("/s", json.dumps(content).encode(), 0), Malformed)


@given(
    st.builds(
        Leadership,
        st.integers(-1, 2**31 - 1),
        st.lists(ids, max_size=5, unique=True).map(tuple),
        ids,
        ids,
        st.integers(0, 99),
        st.booleans(),
    )
)
def test_a_state_survives_the_way_there_and_back(leadership: Leadership) -> None:
    data = znodes.encode_state(leadership)
    assert znodes.decode_state("/s", data, leadership.zk_version) == leadership
    assert ("leader_recovery_state" in json.loads(data)) == leadership.recovering


# -- named partitions, configs, the rest -----------------------------------------------------


def test_partitions_named_in_admin_znodes() -> None:
    tp = TopicPartition("t", 0)
    targets = {tp: (4, 5), TopicPartition("u", 3): (1,)}
    data = znodes.encode_reassignments(targets)
    assert znodes.decode_reassignments("/p", data) == targets
    assert json.loads(data)["partitions"][0] == {"topic": "t", "partition": 0, "replicas": [4, 5]}
    named = znodes.encode_named_partitions((tp, TopicPartition("u", 3)))
    assert znodes.decode_named_partitions("/p", named) == (tp, TopicPartition("u", 3))
    twice = b'{"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":0}]}'
    assert znodes.decode_named_partitions("/p", twice) == (tp,)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\u0000b", "/brokers"])
def test_a_name_that_is_no_path_component_names_nothing(name: str) -> None:
    entries = [{"topic": name, "partition": 0, "replicas": [1]}]
    data = json.dumps({"partitions": entries}).encode()
    assert znodes.decode_reassignments("/p", data) == {}
    assert znodes.decode_named_partitions("/p", data) == ()


def test_configs_and_their_changes() -> None:
    config = {"retention.ms": "1", "unclean.leader.election.enable": "true"}
    assert znodes.decode_config("/c", znodes.encode_config(config)) == config
    assert json.loads(znodes.encode_config({})) == {"version": 1, "config": {}}
    assert isinstance(znodes.decode_config("/c", b'{"version":2,"config":{}}'), Malformed)
    assert isinstance(znodes.decode_config("/c", b'{"version":1,"config":{"a":1}}'), Malformed)
    v1 = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert znodes.decode_config_change("/c", v1) == "topics/t"
    assert znodes.decode_config_change("/c", GOOD["config_change"]) == "topics/t"
    for bad in (b'{"version":1,"entity_type":"users","entity_name":"u"}', b'{"version":3}'):
        assert isinstance(znodes.decode_config_change("/c", bad), Malformed)


@pytest.mark.parametrize("version", [1, 2])
def test_features_of_both_versions(version: int) -> None:
    node = FeatureNode(enabled=True, features={"f": 2}, version=version)
    data = znodes.encode_feature(node)
    assert znodes.decode_feature("/feature", data) == node
    assert ("min_version_level" in json.loads(data)["features"]["f"]) == (version == 1)
    empty = b'{"version":2,"status":0,"features":{}}'
    assert znodes.decode_feature("/feature", empty) == FeatureNode(enabled=False, features={})


def test_producer_ids_are_strings() -> None:
    data = znodes.encode_producer_ids(2, 4000, 4999)
    assert json.loads(data) == json.loads(GOOD["producer_ids"])
    assert znodes.decode_producer_ids("/p", data, 6) == ProducerIds(4999, 6)
    assert znodes.decode_producer_ids("/p", None, 0) == ProducerIds(-1, 0)
    for start, end in (("5", "4"), ("x", "4"), ("1", "9" * 30), ("-1", "4")):
        spoiled = json.dumps({"block_start": start, "block_end": end}).encode()
        assert isinstance(znodes.decode_producer_ids("/p", spoiled, 0), Malformed)


def test_the_cluster_id() -> None:
    assert znodes.decode_cluster_id("/p", znodes.encode_cluster_id("abc")) == "abc"
    assert json.loads(znodes.encode_cluster_id("abc"))["version"] == "1"


# -- paths -----------------------------------------------------------------------------------


def test_where_partitions_are() -> None:
    tp = TopicPartition("orders", 17)
    assert paths.partition_state(tp) == "/brokers/topics/orders/partitions/17/state"
    assert paths.partition_state(tp).startswith(paths.partition(tp) + "/")
    assert paths.partition(tp).startswith(paths.partitions("orders") + "/")
    assert paths.partitions("orders").startswith(paths.topic("orders") + "/")


@pytest.mark.parametrize(
    "name,number",
    [
        ("config_change_0000000012", 12),
        ("isr_change_0000000000", 0),
        ("config_change_12", None),
        ("x", None),
        ("", None),
        ("config_change_000000001x", None),
    ],
)
def test_numbers_of_sequential_znodes(name: str, number: int | None) -> None:
    assert paths.child_number(name) == number


def test_rights_are_those_that_brokers_set() -> None:
    def rights(path: str, secure: bool = True) -> list[tuple[str, int]]:
        return [(acl.id.scheme, acl.perms) for acl in paths.acl_for(path, secure)]

    everyone, creator, readers = ("world", 31), ("auth", 31), ("world", 1)
    assert rights("/brokers/topics/t", secure=False) == [everyone]
    assert rights("/brokers/topics/t") == [creator, readers]
    assert rights("/controller") == [creator, readers]
    assert rights("/config/brokers") == [creator]
    assert rights("/config/users/u") == [creator]
    assert rights("/config/topics/users") == [creator, readers]
    assert rights("/consumers") == [everyone]
