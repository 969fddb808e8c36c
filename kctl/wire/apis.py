"""The APIs by key: their messages and versions; headers and frames.

A frame is the length of what follows (four bytes), a header and a body. Functions here take and
give what follows; `framed` puts the length in front.
"""

import struct
from collections.abc import Mapping
from typing import TypeVar

import attrs

from kctl.model.codes import KafkaError
from kctl.wire import admin, client, control_plane
from kctl.wire.compiler import codec, decode_with, encode_with, skip_tags
from kctl.wire.primitives import WireError, read_uvarint
from kctl.wire.schema import Int16, Int32, String, Struct

S = TypeVar("S", bound=Struct)

API_VERSIONS = 18
CONTROLLED_SHUTDOWN = 7


@attrs.frozen
class Api:
    key: int
    name: str
    request: type[Struct]
    response: type[Struct]
    last: int
    flexible_since: int = 32767
    first: int = 0

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible_since

    def request_header_version(self, version: int) -> int:
        if self.key == CONTROLLED_SHUTDOWN and version == 0:
            return 0
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """ApiVersions is asked by clients that do not know yet what the broker can read."""
        return 1 if self.is_flexible(version) and self.key != API_VERSIONS else 0


def _api(module: object, key: int, name: str, last: int, flexible_since: int = 32767) -> Api:
    request, response = getattr(module, f"{name}Request"), getattr(module, f"{name}Response")
    return Api(key, name, request, response, last, flexible_since)


APIS: Mapping[int, Api] = {
    api.key: api
    for api in (
        _api(client, 3, "Metadata", 12, 9),
        _api(control_plane, 4, "LeaderAndIsr", 7, 4),
        _api(control_plane, 5, "StopReplica", 4, 2),
        _api(control_plane, 6, "UpdateMetadata", 8, 6),
        _api(control_plane, CONTROLLED_SHUTDOWN, "ControlledShutdown", 3, 3),
        _api(client, 10, "FindCoordinator", 6, 3),
        _api(client, 16, "ListGroups", 5, 3),
        _api(client, 17, "SaslHandshake", 1),
        _api(client, API_VERSIONS, "ApiVersions", 4, 3),
        _api(admin, 19, "CreateTopics", 7, 5),
        _api(admin, 20, "DeleteTopics", 6, 4),
        _api(client, 22, "InitProducerId", 5, 2),
        _api(admin, 32, "DescribeConfigs", 4, 4),
        _api(admin, 33, "AlterConfigs", 2, 2),
        _api(admin, 35, "DescribeLogDirs", 4, 2),
        _api(client, 36, "SaslAuthenticate", 2, 2),
        _api(admin, 37, "CreatePartitions", 3, 2),
        _api(admin, 43, "ElectLeaders", 2, 2),
        _api(admin, 44, "IncrementalAlterConfigs", 1, 1),
        _api(admin, 45, "AlterPartitionReassignments", 0, 0),
        _api(admin, 46, "ListPartitionReassignments", 0, 0),
        _api(admin, 51, "AlterUserScramCredentials", 0, 0),
        _api(control_plane, 56, "AlterPartition", 3, 0),
        _api(admin, 57, "UpdateFeatures", 1, 0),
        _api(client, 58, "Envelope", 0, 0),
        _api(client, 60, "DescribeCluster", 1, 0),
        _api(control_plane, 67, "AllocateProducerIds", 0, 0),
    )
}
OF_MESSAGE: Mapping[type[Struct], Api] = {
    message: api for api in APIS.values() for message in (api.request, api.response)
}


# -- bodies ----------------------------------------------------------------------------------


def encode(message: Struct, version: int) -> bytes:
    """The body alone."""
    out = bytearray()
    _encode_into(out, message, version)
    return bytes(out)


def decode(cls: type[S], version: int, data: bytes, pos: int = 0) -> S:
    """The body that fills the rest of the data."""
    api = _checked(cls, version)
    return decode_with(codec(cls, version, flexible=api.is_flexible(version)), cls, data, pos)


def _encode_into(out: bytearray, message: Struct, version: int) -> None:
    api = _checked(type(message), version)
    encode_with(codec(type(message), version, flexible=api.is_flexible(version)), message, out)


def _checked(cls: type[Struct], version: int) -> Api:
    api = OF_MESSAGE[cls]
    if version not in api:
        raise WireError(f"{cls.__name__} has no version {version}, only {api.first}-{api.last}")
    return api


# -- headers ---------------------------------------------------------------------------------


class RequestHeader(Struct):
    api_key: Int16 = 0
    api_version: Int16 = 0
    correlation_id: Int32 = 0
    client_id: String | None = None


_REQUEST_PREFIX = struct.Struct(">hhi")
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")


def request_header_version(key: int, version: int) -> int:
    """Requests of keys that are not decoded here are of version 1 or 2, which begin alike."""
    api = APIS.get(key)
    return 1 if api is None else api.request_header_version(version)


def encode_request_header(header: RequestHeader) -> bytes:
    version = request_header_version(header.api_key, header.api_version)
    try:
        out = _REQUEST_PREFIX.pack(header.api_key, header.api_version, header.correlation_id)
        if version == 0:
            return out
        if header.client_id is None:
            out += b"\xff\xff"
        else:
            client_id = header.client_id.encode()
            out += _SHORT.pack(len(client_id)) + client_id
    except (struct.error, UnicodeEncodeError) as problem:
        raise WireError(f"{header}: {problem}") from problem
    return out + b"\0" if version == 2 else out


def decode_request_header(data: bytes) -> tuple[RequestHeader, int]:
    """The header, and where the body begins (where the client id ends, if the key is unknown)."""
    try:
        key, version, correlation_id = _REQUEST_PREFIX.unpack_from(data)
        pos = _REQUEST_PREFIX.size
        layout = request_header_version(key, version)
        client_id: str | None = None
        if layout >= 1:
            (length,) = _SHORT.unpack_from(data, pos)
            pos += 2
            if length < -1 or length > len(data) - pos:
                raise WireError(f"request header: client id of {length} bytes")
            if length >= 0:
                client_id = data[pos : pos + length].decode()
                pos += length
        if layout == 2:
            pos = _after_tags(data, pos)
    except (struct.error, IndexError) as problem:
        raise WireError(f"request header: ends too early, {len(data)} bytes") from problem
    except UnicodeDecodeError as problem:
        raise WireError(f"request header: {problem}") from problem
    return RequestHeader(key, version, correlation_id, client_id), pos


def encode_response_header(key: int, version: int, correlation_id: int) -> bytes:
    tags = b"\0" if APIS[key].response_header_version(version) == 1 else b""
    return _INT.pack(correlation_id) + tags


def decode_response_header(key: int, version: int, data: bytes) -> tuple[int, int]:
    """The correlation id, and where the body begins."""
    try:
        (correlation_id,) = _INT.unpack_from(data)
        pos = 4
        if APIS[key].response_header_version(version) == 1:
            pos = _after_tags(data, pos)
    except (struct.error, IndexError) as problem:
        raise WireError(f"response header: ends too early, {len(data)} bytes") from problem
    return correlation_id, pos


def _after_tags(data: bytes, pos: int) -> int:
    count, pos = read_uvarint(data, pos)
    return skip_tags(data, pos, len(data), count)


# -- whole requests and responses ------------------------------------------------------------


def framed(*parts: bytes) -> bytes:
    return b"".join((_INT.pack(sum(map(len, parts))), *parts))


def encode_request(
    message: Struct, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    header = RequestHeader(OF_MESSAGE[type(message)].key, version, correlation_id, client_id)
    return encode_request_header(header) + encode(message, version)


def decode_request(data: bytes) -> tuple[RequestHeader, Struct]:
    """For an API that is in `APIS`; look at `decode_request_header` first where others come in."""
    header, pos = decode_request_header(data)
    api = APIS.get(header.api_key)
    if api is None:
        raise WireError(f"API key {header.api_key} is not known")
    return header, decode(api.request, header.api_version, data, pos)


def encode_response(message: Struct, version: int, correlation_id: int) -> bytes:
    key = OF_MESSAGE[type(message)].key
    return encode_response_header(key, version, correlation_id) + encode(message, version)


def decode_response(cls: type[S], version: int, data: bytes) -> tuple[int, S]:
    correlation_id, pos = decode_response_header(OF_MESSAGE[cls].key, version, data)
    return correlation_id, decode(cls, version, data, pos)


def refuse_api_versions(correlation_id: int) -> bytes:
    """The answer to ApiVersions of a version that we do not speak: what everyone can read."""
    api = APIS[API_VERSIONS]
    known = client.ApiVersion(api.key, api.first, api.last)
    return encode_response(
        client.ApiVersionsResponse(error_code=KafkaError.UNSUPPORTED_VERSION, api_keys=(known,)),
        0,
        correlation_id,
    )
