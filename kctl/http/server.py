"""The HTTP server of one controller. It only reads, and knows no request that changes anything."""

import base64
import hashlib
import re
import socket
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import cache
from importlib.resources import files
from types import TracebackType
from typing import Self

import anyio
import msgspec
from aiohttp import web

from kctl.http.census import Census
from kctl.http.feed import Crowded, Feed
from kctl.http.health import Verdict, health, readiness
from kctl.http.metrics import Dialect, Metrics
from kctl.http.state import PAGE_MAX, PAGE_SIZE, NotFound, Views
from kctl.http.stories import Stories
from kctl.messages.outbox import Story
from kctl.model.names import TopicPartition
from kctl.runtime.controller import Controller

HOST = "127.0.0.1"
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Which every scraper understands."""
STOP_BOUND_S = 1.0
"""For answers under way; streams are cut."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpUnavailable(OSError):
    """The address cannot be served; the message says what to do."""


def listen(host: str, port: int) -> socket.socket:
    """Take the address before anything else begins: one in use should stop nobody's controller."""
    shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(128)
            listening.setblocking(False)
        except BaseException:
            listening.close()
            raise
    except OSError as error:
        why = error.strerror or str(error)
        raise HttpUnavailable(
            f"cannot serve HTTP at {shown}: {why}; give another address with --http"
        ) from None
    return listening


class Http:
    """`async with Http(controller, "127.0.0.1", 8080) as http: print(http.url)`

    The controller is one whose context has been entered. Port 0 takes a free one.
    """

    def __init__(
        self,
        controller: Controller,
        host: str = HOST,
        port: int = 0,
        *,
        listening: socket.socket | None = None,
        dialect: Dialect = Dialect.CONFLUENT,
    ) -> None:
        """`listening` is a socket from `listen`, instead of host and port."""
        self._controller = controller
        self._address = host, port
        self._listening = listening
        self._stories = Stories()
        self._census = Census(lambda: controller.state)
        self._views = Views(controller, self._census, self._stories)
        self._feed = Feed(lambda: controller.state, self._views, self._census, controller.meters)
        self.metrics = Metrics(controller, self._stories.elections, dialect)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        if self._listening is None:
            self._listening = listen(*self._address)
        self._address = self._listening.getsockname()[:2]
        await self._stack.__aenter__()
        try:
            await self._begin(self._listening)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def _begin(self, listening: socket.socket) -> None:
        self._stack.callback(listening.close)
        self._stack.callback(self._controller.on_story(self._hear))
        self._stack.callback(self._controller.on_handled(self._feed.handled))
        runner = web.AppRunner(
            self._app(), access_log=None, handle_signals=False, shutdown_timeout=STOP_BOUND_S
        )
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        self._stack.callback(self._feed.close)
        await web.SockSite(runner, listening).start()
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._feed.run)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tasks.cancel_scope.cancel()
        try:
            await self._tasks.__aexit__(None, None, None)
        finally:
            with anyio.CancelScope(shield=True):
                await self._stack.aclose()

    @property
    def host(self) -> str:
        return self._address[0]

    @property
    def port(self) -> int:
        return self._address[1]

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/"

    @property
    def readers(self) -> int:
        """Of `/events`."""
        return self._feed.readers

    def _hear(self, story: Story) -> None:
        cluster = self._controller.state
        self._feed.told(self._stories.add(story, None if cluster is None else cluster.epoch))

    # -- answers ------------------------------------------------------------------------------

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[_guarded])
        app.router.add_get("/", _page)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/state", self._state)
        app.router.add_get("/events", self._events, allow_head=False)
        return app

    async def _metrics(self, _: web.Request) -> web.StreamResponse:
        text = await self.metrics.text()
        return web.Response(body=text, headers={"Content-Type": METRICS_TYPE})

    async def _healthz(self, _: web.Request) -> web.StreamResponse:
        return _verdict(health(self._controller))

    async def _readyz(self, _: web.Request) -> web.StreamResponse:
        return _verdict(readiness(self._controller))

    async def _state(self, request: web.Request) -> web.StreamResponse:
        query = request.query
        limit = min(_number(query.get("limit"), "limit") or PAGE_SIZE, PAGE_MAX)
        topic, partition, after = query.get("topic"), query.get("partition"), query.get("after")
        try:
            if query.get("view") == "map":
                return _json(await self._views.map())
            if partition is not None:
                return _json(self._views.partition(_partition(topic, partition)))
            if topic is not None:
                return _json(await self._views.topic(topic, _number(after, "after"), limit))
            return _json(await self._views.overview(after, limit))
        except NotFound as error:
            return _json({"error": str(error)}, status=404)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        headers = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no", **GUARDS}
        response = web.StreamResponse(headers=headers)
        try:
            with self._feed.reader() as reader:
                await response.prepare(request)
                await response.write(b"retry: 1000\n\n")
                while content := await reader.next():
                    # Waits while the reader's buffer is full; meanwhile its pieces are dropped.
                    await response.write(content)
        except Crowded as error:
            return _json({"error": str(error)}, status=503)
        except ConnectionResetError:
            pass  # the reader has left
        return response


# -- what all answers have in common -----------------------------------------------------------

GUARDS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@web.middleware
async def _guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        response = await handler(request)
    except web.HTTPException as answer:
        answer.headers.update(GUARDS)
        raise
    if not response.prepared:
        response.headers.update(GUARDS)
    return response


def _json(content: object, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(content), status=status, content_type="application/json"
    )


def _verdict(verdict: Verdict) -> web.Response:
    status = "ok" if verdict.ok else "unavailable"
    content = {"status": status, "reason": verdict.reason}
    return _json(content, status=200 if verdict.ok else 503)


def _number(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise web.HTTPBadRequest(text=f"{name}={text}: write a number\n")
    return int(text)


def _partition(topic: str | None, text: str) -> TopicPartition:
    """`topic=orders&partition=17`, or `partition=orders-17`."""
    if topic is not None:
        return TopicPartition(topic, _number(text, "partition") or 0)
    try:
        return TopicPartition.parse(text)
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"partition: {error}\n") from None


# -- the page ----------------------------------------------------------------------------------


@cache
def page() -> bytes:
    """One document: its style and script are files of their own only to be read and edited."""
    folder = files("kctl.http")
    html = folder.joinpath("page.html").read_text("utf-8")
    for tag, name in (("style", "page.css"), ("script", "page.js")):
        text = folder.joinpath(name).read_text("utf-8")
        html = html.replace(f"<{tag}></{tag}>", f"<{tag}>\n{text}</{tag}>")
    return html.encode()


def page_policy(html: bytes) -> str:
    """Only the page's own script and style may run, and it may only talk to this server."""

    def hashes(tag: bytes) -> str:
        found = re.findall(rb"<%b>(.*?)</%b>" % (tag, tag), html, re.DOTALL)
        digests = (base64.b64encode(hashlib.sha256(text).digest()).decode() for text in found)
        return " ".join(f"'sha256-{digest}'" for digest in digests)

    return (
        f"default-src 'none'; script-src {hashes(b'script')}; style-src {hashes(b'style')}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


async def _page(_: web.Request) -> web.StreamResponse:
    html = page()
    headers = {"Content-Security-Policy": page_policy(html)}
    return web.Response(body=html, content_type="text/html", charset="utf-8", headers=headers)
