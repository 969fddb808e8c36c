"""Frames off a stream: the length is looked at before anything is allocated for what follows."""

import asyncio
import struct
from typing import TypeVar

from kctl.server.limits import Limits
from kctl.wire.apis import OF_MESSAGE
from kctl.wire.compiler import codec
from kctl.wire.primitives import WireError
from kctl.wire.schema import Struct

S = TypeVar("S", bound=Struct)

FRAME_BYTES_MIN = 8
"""API key, version and correlation id."""

_INT = struct.Struct(">i")


class Unacceptable(Exception):
    """What came in cannot be answered: the connection is closed, as Kafka does."""


class Gone(Unacceptable):
    """The stream ended where it should not."""


class LargeFrames:
    """A budget that all connections share, so that many large frames cannot fill the memory."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held = 0
        self._given_back = asyncio.Event()

    async def take(self, size: int) -> None:
        if size > self._limits.large_frame_bytes:
            while not self._fits(size):
                await self._given_back.wait()
            self._held += size

    def give_back(self, size: int) -> None:
        if size > self._limits.large_frame_bytes:
            self._held -= size
            self._given_back.set()
            self._given_back = asyncio.Event()

    def _fits(self, size: int) -> bool:
        return not self._held or self._held + size <= self._limits.large_frames_bytes_max


class FrameReader:
    """The requests of one connection, one after the other."""

    def __init__(
        self, reader: asyncio.StreamReader, limits: Limits, large_frames: LargeFrames
    ) -> None:
        self._reader = reader
        self._limits = limits
        self._large_frames = large_frames
        self.introduced = False
        """Set when the peer has said who it is; from then on large frames are taken."""

    async def length(self) -> int | None:
        """Of the next frame, if it is one that is taken; None at the end."""
        try:
            (size,) = _INT.unpack(await self._reader.readexactly(4))
        except asyncio.IncompleteReadError as end:
            if end.partial:
                raise Gone("the stream ends inside a length") from None
            return None
        limits = self._limits
        bound = limits.frame_bytes_max if self.introduced else limits.first_frame_bytes_max
        if not FRAME_BYTES_MIN <= size <= bound:
            raise Unacceptable(f"frame of {size} bytes, {FRAME_BYTES_MIN} to {bound} are taken")
        return int(size)

    async def body(self, size: int) -> bytes:
        """What follows; say when you are done with it."""
        try:
            async with asyncio.timeout(self._limits.frame_s):
                await self._large_frames.take(size)
                try:
                    return await self._reader.readexactly(size)
                except BaseException:
                    self._large_frames.give_back(size)
                    raise
        except asyncio.IncompleteReadError:
            raise Gone(f"the stream ends inside a frame of {size} bytes") from None
        except TimeoutError:
            raise Unacceptable(f"a frame of {size} bytes did not arrive in time") from None

    def done_with(self, frame: bytes) -> None:
        self._large_frames.give_back(len(frame))


def read_request(cls: type[S], version: int, frame: bytes, body: int) -> S:
    """Bytes that are left over are ignored, as Kafka does: librdkafka's Metadata has some."""
    api = OF_MESSAGE[cls]
    if version not in api:
        raise WireError(f"{cls.__name__} has no version {version}")
    try:
        read = codec(cls, version, flexible=api.is_flexible(version)).decode
        message, _end = read(frame, body, len(frame))
    except (struct.error, IndexError, UnicodeDecodeError) as problem:
        raise WireError(f"{cls.__name__}: {problem}") from problem
    assert isinstance(message, cls)
    return message


async def read_answer(reader: asyncio.StreamReader, limits: Limits) -> bytes:
    """A broker's answer without its length; ConnectionError if there is none to be had."""
    try:
        (size,) = _INT.unpack(await reader.readexactly(4))
        if not 4 <= size <= limits.frame_bytes_max:
            raise ConnectionError(f"a broker answers with a frame of {size} bytes")
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError as end:
        raise ConnectionError("a broker closed the connection") from end


async def write_frame(writer: asyncio.StreamWriter, frame: bytes, timeout_s: float) -> None:
    """ConnectionError if the other side does not take it in time."""
    writer.write(_INT.pack(len(frame)))
    writer.write(frame)
    try:
        async with asyncio.timeout(timeout_s):
            await writer.drain()
    except TimeoutError:
        raise ConnectionError("the other side does not take what it is sent") from None
