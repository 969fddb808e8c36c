"""One client connection: requests in, answers out, in the order of the requests.

Like Kafka, one request of a connection is worked on at a time. The next one is read meanwhile, so
that a client that goes away is noticed; after it nothing more is read until the first is answered,
and the client's own buffers fill up.
"""

import asyncio

import attrs
import structlog

from kctl.server.frames import FrameReader, Gone, Unacceptable, write_frame
from kctl.server.limits import Limits
from kctl.server.relay import Pin
from kctl.server.routing import Router
from kctl.server.sasl import Authentication
from kctl.wire.apis import API_VERSIONS

log = structlog.get_logger("kctl.server")

CLOSE_S = 1.0


@attrs.define(eq=False)
class Connection:
    _frames: FrameReader
    _writer: asyncio.StreamWriter
    _router: Router
    _pin: Pin
    _listener: str
    _limits: Limits
    _authentication: Authentication | None
    _ahead: asyncio.Task[bytes | None] | None = None

    async def serve(self) -> None:
        """Until one side has enough of it."""
        try:
            await self._serve()
        except Unacceptable as reason:
            log.info("connection closed", listener=self._listener, reason=str(reason))
        except OSError as problem:
            log.debug("connection lost", listener=self._listener, problem=repr(problem))
        finally:
            await self._end()

    async def _serve(self) -> None:
        patience = self._limits.first_frame_s
        while True:
            frame = await self._next(patience)
            if frame is None:
                return
            patience = self._limits.idle_s
            try:
                answer = await self._worked_on(frame)
            finally:
                self._frames.done_with(frame)
            if answer is not None:
                await write_frame(self._writer, answer, self._limits.frame_s)
            if self._authentication is not None and self._authentication.failed:
                return

    async def _next(self, patience: float) -> bytes | None:
        """The next request; None at the end, or when nothing came for too long."""
        reading, self._ahead = self._ahead or self._read(), None
        try:
            done, _ = await asyncio.wait({reading}, timeout=patience)
        except asyncio.CancelledError:
            reading.cancel()
            raise
        if not done:
            reading.cancel()
            return None
        return reading.result()

    async def _worked_on(self, frame: bytes) -> bytes | None:
        loop = asyncio.get_running_loop()
        working = loop.create_task(self._answer(frame))
        self._ahead = self._read()
        try:
            await asyncio.wait({working, self._ahead}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done() and self._is_gone(self._ahead):
                raise Gone("the client went away before it was answered")
            return await working
        finally:
            working.cancel()

    def _read(self) -> asyncio.Task[bytes | None]:
        return asyncio.get_running_loop().create_task(self._frames.read())

    @staticmethod
    def _is_gone(reading: asyncio.Task[bytes | None]) -> bool:
        """A next request that is no good is for later: the one before it is answered first."""
        problem = reading.exception()
        if problem is not None:
            return not isinstance(problem, Unacceptable) or isinstance(problem, Gone)
        return reading.result() is None

    async def _answer(self, frame: bytes) -> bytes | None:
        authentication = self._authentication
        if authentication is not None and not authentication.done:
            answer: bytes | None = await authentication.answer(frame, self._api_versions)
            self._frames.introduced = authentication.done
            return answer
        answer = await self._router.answer(frame, self._pin, self._listener)
        if authentication is None and int.from_bytes(frame[:2], "big") == API_VERSIONS:
            self._frames.introduced = True
        return answer

    async def _api_versions(self, frame: bytes) -> bytes:
        answer = await self._router.answer(frame, self._pin, self._listener)
        assert answer is not None
        return answer

    async def _end(self) -> None:
        # First what needs no waiting: the server may be ending, and this task with it.
        self._pin.close()
        self._writer.close()
        try:
            if self._ahead is not None:
                self._ahead.cancel()
                (outcome,) = await asyncio.gather(self._ahead, return_exceptions=True)
                if isinstance(outcome, bytes):
                    self._frames.done_with(outcome)
            async with asyncio.timeout(CLOSE_S):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            pass  # whoever does not take the last answer by now will not get it
        finally:
            self._writer.transport.abort()
