"""One client connection: requests in, answers out, in the order of the requests.

Like Kafka, one request of a connection is worked on at a time; what the client sends meanwhile fills
a small buffer here and then its own. A client that goes away is noticed at once, and nothing more is
done for it: its request may wait for brokers.
"""

import asyncio

import attrs
import structlog

from kctl.server.frames import FrameReader, Gone, Unacceptable, write_frame
from kctl.server.limits import Limits
from kctl.server.routing import Peer, Router
from kctl.server.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE, Introduction
from kctl.wire.apis import API_VERSIONS

log = structlog.get_logger("kctl.server")

CLOSE_S = 1.0


@attrs.define(eq=False)
class Connection:
    _frames: FrameReader
    _writer: asyncio.StreamWriter
    _router: Router
    _peer: Peer
    _limits: Limits
    _introduction: Introduction | None
    """Where one is asked for before anything else is answered."""
    _working: asyncio.Task[None] | None = None
    """The task that serves this connection, while a request is worked on."""
    _left: bool = False

    async def serve(self) -> None:
        """Until one side has enough of it."""
        try:
            await self._serve()
        except Unacceptable as reason:
            log.info("connection closed", listener=self._peer.listener, reason=str(reason))
        except OSError as problem:
            log.debug("connection lost", listener=self._peer.listener, problem=repr(problem))
        finally:
            await self._end()

    def client_left(self) -> None:
        """Nothing more comes from the client, and nobody waits for an answer."""
        if self._working is not None:
            self._left = True
            self._working.cancel()

    async def _serve(self) -> None:
        patience = self._limits.first_frame_s
        while True:
            try:
                async with asyncio.timeout(patience):
                    size = await self._frames.length()
            except TimeoutError:
                return
            if size is None:
                return
            if self._introduction is None or self._introduction.done:
                patience = self._limits.idle_s
            frame = await self._frames.body(size)
            try:
                answer = await self._worked_on(frame)
            finally:
                self._frames.done_with(frame)
            if answer is not None:
                await write_frame(self._writer, answer, self._limits.frame_s)
            if self._introduction is not None and self._introduction.failed:
                return

    async def _worked_on(self, frame: bytes) -> bytes | None:
        task = asyncio.current_task()
        assert task is not None
        self._working = task
        try:
            return await self._answer(frame)
        except asyncio.CancelledError:
            if not self._left:
                raise
            task.uncancel()
            raise Gone("the client went away before it was answered") from None
        finally:
            self._working = None

    async def _answer(self, frame: bytes) -> bytes | None:
        introduction, key = self._introduction, int.from_bytes(frame[:2], "big")
        if introduction is not None and not introduction.done:
            answer: bytes | None = await introduction.answer(frame, self._api_versions)
            self._frames.introduced = introduction.done
            self._peer.principal = introduction.principal
            return answer
        if introduction is not None and key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            return await introduction.go_on(frame)
        if introduction is not None and introduction.over:
            raise Unacceptable("the session is over, and there was no new introduction")
        answer = await self._router.answer(frame, self._peer)
        if introduction is None and key == API_VERSIONS:
            self._frames.introduced = True
        return answer

    async def _api_versions(self, frame: bytes) -> bytes:
        answer = await self._router.answer(frame, self._peer)
        assert answer is not None
        return answer

    async def _end(self) -> None:
        # First what needs no waiting: the server may be ending, and this task with it.
        self._peer.pin.close()
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            pass  # whoever does not take the last answer by now will not get it
        finally:
            self._writer.transport.abort()
