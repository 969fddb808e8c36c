"""Requests to the controller as brokers send them: one in flight on each connection."""

import asyncio
import struct
from typing import Self, TypeVar

from kctl.wire import apis
from kctl.wire.schema import Struct

S = TypeVar("S", bound=Struct)

ANSWER_BOUND_S = 300.0
_LENGTH = struct.Struct(">i")


class Line:
    """`async with Line(address) as line: answer = await line.call(request, 3, Response)`"""

    def __init__(self, address: tuple[str, int], client_id: str = "bench") -> None:
        self._address = address
        self._client_id = client_id
        self._next = 0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __aenter__(self) -> Self:
        self._streams = await asyncio.open_connection(*self._address)
        return self

    async def __aexit__(self, *_problem: object) -> None:
        if self._streams is not None:
            self._streams[1].close()

    async def call(self, request: Struct, version: int, answer: type[S]) -> S:
        assert self._streams is not None, "not open"
        reader, writer = self._streams
        self._next += 1
        frame = apis.encode_request(request, version, self._next, self._client_id)
        async with asyncio.timeout(ANSWER_BOUND_S):
            writer.write(apis.framed(frame))
            await writer.drain()
            (size,) = _LENGTH.unpack(await reader.readexactly(4))
            data = await reader.readexactly(size)
        return apis.decode_response(answer, version, data)[1]
