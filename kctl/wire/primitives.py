"""The smallest parts of the wire format, and the one way in which reading or writing it fails."""

import binascii
import struct
from functools import lru_cache

from kctl.model.names import TopicId

NULL_UUID = bytes(16)


class WireError(ValueError):
    """Bytes that are no message of this kind and version, or a value that it cannot carry."""


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_VARINTS = tuple(_varint(n) for n in range(1024))


def uvarint(value: int) -> bytes:
    """An unsigned varint: seven bits a byte, lowest first."""
    return _VARINTS[value] if value < 1024 else _varint(value)


def long_uvarint(data: bytes, pos: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte said that more follow, and where it ends."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFF_FFFF:
                break
            return value, pos
    raise WireError(f"varint of more than 32 bits at byte {pos}")


def read_uvarint(data: bytes, pos: int) -> tuple[int, int]:
    first = data[pos]
    if first < 0x80:
        return first, pos + 1
    return long_uvarint(data, pos + 1, first)


class PackedInts(dict[int, struct.Struct]):
    """Structs of n integers by n, for arrays. Few lengths occur; more than 64 are not kept."""

    def __init__(self, code: str) -> None:
        super().__init__()
        self.code = code

    def __missing__(self, count: int) -> struct.Struct:
        packed = struct.Struct(f">{count}{self.code}")
        if count <= 64:
            self[count] = packed
        return packed


def check_uuid(value: bytes) -> bytes:
    if len(value) != 16:
        raise WireError(f"a uuid has 16 bytes, not {len(value)}")
    return value


_TO_URL_SAFE = bytes.maketrans(b"+/", b"-_")


@lru_cache(maxsize=10_000)
def topic_id_bytes(topic_id: TopicId | None) -> bytes:
    """16 bytes; zeros for a topic that has no id."""
    if topic_id is None:
        return NULL_UUID
    try:
        raw = binascii.a2b_base64(topic_id.replace("-", "+").replace("_", "/") + "==")
    except ValueError as problem:
        raise WireError(f"topic id {topic_id!r}: {problem}") from problem
    if len(raw) != 16:
        raise WireError(f"topic id {topic_id!r} has {len(raw)} bytes")
    return raw


def topic_id_from_bytes(raw: bytes) -> TopicId | None:
    if raw == NULL_UUID:
        return None
    return binascii.b2a_base64(raw, newline=False).translate(_TO_URL_SAFE, b"=").decode("ascii")
