"""What the codecs do with values and bytes that are not what they should be."""

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.wire import admin, apis, client, control_plane
from kctl.wire.primitives import (
    NULL_UUID,
    WireError,
    read_uvarint,
    topic_id_bytes,
    topic_id_from_bytes,
    uvarint,
)
from kctl.wire.schema import Struct
from tests.wire.generated import MESSAGES, NAMES, messages

any_message = st.sampled_from(MESSAGES)


@pytest.mark.parametrize("cls, version", MESSAGES, ids=NAMES)
def test_no_message_can_be_cut_or_lengthened(cls: type[Struct], version: int) -> None:
    data = min((apis.encode(m, version) for m in messages(cls, version, 5)), key=len)
    for end in range(len(data)):
        with pytest.raises(WireError):
            apis.decode(cls, version, data[:end])
    with pytest.raises(WireError, match="too many"):
        apis.decode(cls, version, data + b"\0")


@given(any_message, st.binary(max_size=300))
def test_garbage_is_refused_or_read(kind: tuple[type[Struct], int], data: bytes) -> None:
    cls, version = kind
    try:
        message = apis.decode(cls, version, data)
    except WireError:
        return
    assert isinstance(message, cls)


@given(any_message, st.integers(0, 10_000), st.integers(0, 255))
def test_one_wrong_byte_is_refused_or_read(
    kind: tuple[type[Struct], int], where: int, byte: int
) -> None:
    cls, version = kind
    data = bytearray(apis.encode(next(messages(cls, version, 1)), version))
    if data:
        data[where % len(data)] = byte
    try:
        apis.decode(cls, version, bytes(data))
    except WireError:
        pass


@pytest.mark.parametrize("count", [2**31 - 1, 2**27, -2, -(2**31)])
def test_a_count_is_checked_before_memory_is_taken(count: int) -> None:
    data = struct.pack(">iii", 1, 1, count) + bytes(100)
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="ungrouped_partition_states"):
            apis.decode(control_plane.LeaderAndIsrRequest, 0, data)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_a_varint_count_is_checked_too() -> None:
    body = apis.encode(control_plane.UpdateMetadataRequest(), 8)
    topics_at = 4 + 1 + 4 + 8
    data = body[:topics_at] + b"\xff\xff\xff\xff\x0f" + body[topics_at + 1 :]
    with pytest.raises(WireError, match="topic_states"):
        apis.decode(control_plane.UpdateMetadataRequest, 8, data)


def test_a_varint_of_more_than_32_bits_is_refused() -> None:
    with pytest.raises(WireError, match="32 bits"):
        read_uvarint(b"\xff\xff\xff\xff\x1f", 0)
    with pytest.raises(WireError, match="32 bits"):
        read_uvarint(b"\xff" * 9 + b"\x01", 0)


@given(st.integers(0, 2**32 - 1))
def test_varints_come_back(value: int) -> None:
    assert read_uvarint(uvarint(value), 0) == (value, len(uvarint(value)))


# -- tagged fields ---------------------------------------------------------------------------


def test_unknown_tagged_fields_are_skipped() -> None:
    body = apis.encode(control_plane.ControlledShutdownRequest(7, 42), 3)
    assert body.endswith(b"\0")
    tagged = body[:-1] + b"\x02" + b"\x05\x03abc" + b"\xc8\x01\x00"
    assert apis.decode(
        control_plane.ControlledShutdownRequest, 3, tagged
    ) == control_plane.ControlledShutdownRequest(7, 42)


def test_unknown_tags_stand_beside_known_ones() -> None:
    known = client.ApiVersionsResponse(finalized_features_epoch=12)
    body = apis.encode(known, 3)
    section = body.index(b"\x01\x01\x08", 6)
    more = body[:section] + b"\x02\x01\x08" + body[section + 3 :] + b"\x63\x02zz"
    assert apis.decode(client.ApiVersionsResponse, 3, more) == known


def test_a_tagged_field_has_the_size_that_it_announces() -> None:
    body = apis.encode(client.ApiVersionsResponse(finalized_features_epoch=12), 3)
    wrong = body.replace(b"\x01\x01\x08", b"\x01\x01\x07")
    with pytest.raises(WireError, match="finalized_features_epoch"):
        apis.decode(client.ApiVersionsResponse, 3, wrong)


def test_a_tagged_field_must_fit() -> None:
    body = apis.encode(control_plane.ControlledShutdownRequest(7, 42), 3)
    with pytest.raises(WireError, match="tagged field"):
        apis.decode(control_plane.ControlledShutdownRequest, 3, body[:-1] + b"\x01\x05\x20abc")


# -- values that the wire cannot carry -------------------------------------------------------


@pytest.mark.parametrize(
    "message, version",
    [
        (control_plane.ControlledShutdownRequest(broker_id=2**31), 0),
        (client.FindCoordinatorRequest(key="x" * 40_000), 0),
        (client.FindCoordinatorRequest(key="\ud800"), 3),
        (admin.DeletableTopicResult(name=None), 5),
    ],
)
def test_what_does_not_fit_is_refused(message: Struct, version: int) -> None:
    if isinstance(message, admin.DeletableTopicResult):
        message = admin.DeleteTopicsResponse(responses=(message,))
    with pytest.raises(WireError):
        apis.encode(message, version)


def test_a_uuid_has_16_bytes() -> None:
    message = admin.DeleteTopicsRequest(topics=(admin.DeleteTopicState("t", b"short"),))
    with pytest.raises(WireError, match="16 bytes"):
        apis.encode(message, 6)


def test_a_version_that_does_not_exist() -> None:
    with pytest.raises(WireError, match="no version 9"):
        apis.encode(control_plane.UpdateMetadataResponse(), 9)


# -- headers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("cls, version", MESSAGES, ids=NAMES)
def test_requests_and_responses_come_back(cls: type[Struct], version: int) -> None:
    message = next(messages(cls, version, 1))
    api = apis.OF_MESSAGE[cls]
    if cls is api.response:
        data = apis.encode_response(message, version, 77)
        assert apis.decode_response(cls, version, data) == (77, message)
        return
    for client_id in (None, "", "1000", "Ä"):
        data = apis.encode_request(message, version, 77, client_id)
        told = None if api.request_header_version(version) == 0 else client_id
        assert apis.decode_request(data) == (
            apis.RequestHeader(api.key, version, 77, told),
            message,
        )


def test_header_layouts() -> None:
    header = apis.RequestHeader
    assert apis.encode_request_header(header(7, 0, 5, "c")).hex() == "0007000000000005"
    assert apis.encode_request_header(header(7, 2, 5, "c")).hex() == "0007000200000005000163"
    assert apis.encode_request_header(header(7, 3, 5, None)).hex() == "0007000300000005ffff00"
    assert apis.encode_response_header(7, 2, 5).hex() == "00000005"
    assert apis.encode_response_header(7, 3, 5).hex() == "0000000500"
    assert apis.encode_response_header(18, 4, 5).hex() == "00000005"


@given(st.binary(max_size=60))
def test_garbage_headers_are_refused_or_read(data: bytes) -> None:
    try:
        _header, pos = apis.decode_request_header(data)
    except WireError:
        return
    assert 8 <= pos <= len(data)


def test_the_header_of_an_unknown_api_can_be_read() -> None:
    header = apis.RequestHeader(1, 17, 5, "consumer-1")
    assert apis.decode_request_header(apis.encode_request_header(header) + b"body")[0] == header


def test_an_unknown_version_of_api_versions_is_answered_with_version_0() -> None:
    data = apis.refuse_api_versions(9)
    correlation_id, answer = apis.decode_response(client.ApiVersionsResponse, 0, data)
    assert correlation_id == 9
    assert answer.error_code == 35
    assert answer.api_keys == (client.ApiVersion(18, 0, 4),)


@given(st.binary(min_size=16, max_size=16))
def test_topic_ids_come_back(raw: bytes) -> None:
    assert topic_id_bytes(topic_id_from_bytes(raw)) == raw


def test_topic_ids_as_text() -> None:
    assert topic_id_from_bytes(NULL_UUID) is None
    assert topic_id_from_bytes(b"\xfb\xff" + bytes(14)) == "-_8AAAAAAAAAAAAAAAAAAA"
    for wrong in ("", "short", "Ä" * 22, "x" * 30):
        with pytest.raises(WireError, match="topic id"):
            topic_id_bytes(wrong)
