"""Reads what a client sent to a server, as recorded by the proxy; independent of the codec."""

import struct
from typing import NamedTuple


class SentFrame(NamedTuple):
    xid: int
    opcode: int
    body: bytes


def sent_frames(stream: bytes) -> list[SentFrame]:
    """Every whole frame behind the connect request, which has no header."""
    frames = []
    at = 4 + struct.unpack_from(">i", stream)[0] if len(stream) >= 4 else 0
    while at + 12 <= len(stream):
        length, xid, opcode = struct.unpack_from(">iii", stream, at)
        frames.append(SentFrame(xid, opcode, stream[at + 12 : at + 4 + length]))
        at += 4 + length
    return frames


def last_zxid_of_connect(stream: bytes) -> int:
    """What the connect request says the client has seen."""
    (zxid,) = struct.unpack_from(">q", stream, 8)
    return int(zxid)
