"""UpdateMetadata bodies: encoded once for all brokers of a version, kept while somebody needs them.

A body of a hundred thousand partitions has several megabytes, and a hundred brokers get the same
one. It is forgotten when the last recipient has it, or earlier when bodies that slow brokers still
need grow beyond the bound: those are encoded again when their turn comes.
"""

import asyncio
from collections.abc import Callable

import attrs

from kctl.messages.requests import UpdateMetadataRequest
from kctl.wire import requests

BYTES_MAX = 64 * 1024 * 1024


async def paced(steps: requests.Steps) -> bytes:
    """Encode, and let others run between the steps."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            body: bytes = done.value
            return body
        await asyncio.sleep(0)


@attrs.define(eq=False)
class SharedUpdateMetadata:
    """One request and how many channels still have to send it."""

    request: UpdateMetadataRequest
    waiting: int
    lock: asyncio.Lock = attrs.field(factory=asyncio.Lock)
    on_done: Callable[["SharedUpdateMetadata"], None] = lambda _shared: None

    def leave(self) -> None:
        """One channel less: it has the answer, or will never send this."""
        self.waiting -= 1
        if self.waiting == 0:
            self.on_done(self)


class SharedBodies:
    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bodies: dict[tuple[SharedUpdateMetadata, int], bytes] = {}
        self.held_bytes = 0
        self.encoded = 0
        """How many times a body was made."""

    def share(self, request: UpdateMetadataRequest, recipients: int) -> SharedUpdateMetadata:
        return SharedUpdateMetadata(request, recipients, on_done=self._forget)

    async def body(self, shared: SharedUpdateMetadata, version: int) -> bytes:
        async with shared.lock:
            body = self._bodies.get((shared, version))
            if body is None:
                body = await paced(requests.update_metadata_body(shared.request, version))
                self.encoded += 1
                if shared.waiting > 1:
                    self._keep(shared, version, body)
            return body

    def _keep(self, shared: SharedUpdateMetadata, version: int, body: bytes) -> None:
        self._bodies[shared, version] = body
        self.held_bytes += len(body)
        while self.held_bytes > self._bytes_max and len(self._bodies) > 1:
            oldest = next(iter(self._bodies))
            self.held_bytes -= len(self._bodies.pop(oldest))

    def _forget(self, shared: SharedUpdateMetadata) -> None:
        for key in [key for key in self._bodies if key[0] is shared]:
            self.held_bytes -= len(self._bodies.pop(key))
