"""The listeners, and who may connect to them."""

import asyncio
import socket
import ssl as tls
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Self

import attrs
import structlog

from kctl.server.access import ControllerAccess
from kctl.server.connection import Connection
from kctl.server.frames import FrameReader, LargeFrames
from kctl.server.relay import Dial, Pin, Relay, dialer
from kctl.server.rights import principal_of
from kctl.server.routing import Peer, Router
from kctl.server.sasl import ROUNDS, Introduction
from kctl.server.versions import BrokerVersions

log = structlog.get_logger("kctl.server")

BACKLOG = 128
ACCEPT_PAUSE_S = 0.2
"""After the process ran out of file descriptors."""


@attrs.frozen
class Listener:
    """A name that brokers have a listener of, and where this node offers it."""

    name: str
    host: str = "127.0.0.1"
    port: int = 0
    """0: any that is free; `Server.ports` tells which."""
    ssl: tls.SSLContext | None = attrs.field(default=None, repr=False)
    """TLS for those who connect; it may ask them for certificates."""
    sasl: bool = False
    """Those who connect say who they are first: nothing but ApiVersions is answered before it."""
    mechanisms: tuple[str, ...] = tuple(ROUNDS)


class Server:
    """`async with Server([Listener("PLAINTEXT")], access) as server: ...`"""

    def __init__(
        self, listeners: Iterable[Listener], access: ControllerAccess, dial: Dial | None = None
    ) -> None:
        """`dial` connects to brokers for the relay; it has to know how where that needs TLS."""
        self._listeners = tuple(listeners)
        self._limits = access.limits
        self._relay = Relay(access.view, dial or dialer(access.limits), access.limits)
        self._broker_versions = BrokerVersions(self._relay)
        self._router = Router(
            access,
            self._broker_versions,
            frozenset(listener.name for listener in self._listeners if listener.sasl),
        )
        self._large_frames = LargeFrames(access.limits)
        self._bound: dict[str, socket.socket] = {}
        self._serving: set[asyncio.Task[None]] = set()
        self._accepted: set[socket.socket] = set()
        """Those whose task has not begun yet."""
        self._by_address: Counter[str] = Counter()

    async def __aenter__(self) -> Self:
        try:
            for listener in self._listeners:
                self._bound[listener.name] = await _bind(listener)
        except OSError:
            self._unbind()
            raise
        for listener in self._listeners:
            self._listen(listener)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._unbind()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)
        for sock in self._accepted:
            sock.close()
        await self._broker_versions.close()
        await asyncio.sleep(0)  # the loop closes aborted sockets in its next round

    @property
    def ports(self) -> Mapping[str, int]:
        """By listener name."""
        return {name: sock.getsockname()[1] for name, sock in self._bound.items()}

    @property
    def connections(self) -> int:
        return len(self._serving)

    def _unbind(self) -> None:
        loop = asyncio.get_running_loop()
        for sock in self._bound.values():
            loop.remove_reader(sock)
            sock.close()
        self._bound.clear()

    def _listen(self, listener: Listener) -> None:
        sock = self._bound.get(listener.name)
        if sock is not None:
            asyncio.get_running_loop().add_reader(sock, self._accept, listener, sock)

    def _accept(self, listener: Listener, bound: socket.socket) -> None:
        """At once and without a task of its own: none is lost when the server ends."""
        loop = asyncio.get_running_loop()
        for _ in range(BACKLOG):
            try:
                sock, address = bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                log.error("cannot accept", listener=listener.name, problem=repr(problem))  # noqa: TRY400
                loop.remove_reader(bound)
                loop.call_later(ACCEPT_PAUSE_S, self._listen, listener)
                return
            host = address[0]
            if not self._may_enter(host):
                log.info("too many connections", listener=listener.name, address=host)
                sock.close()
                continue
            self._by_address[host] += 1
            self._accepted.add(sock)
            task = loop.create_task(self._serve(listener, sock))
            self._serving.add(task)
            task.add_done_callback(partial(self._left, host))

    def _may_enter(self, host: str) -> bool:
        return (
            len(self._serving) < self._limits.connections_max
            and self._by_address[host] < self._limits.connections_per_address_max
        )

    def _left(self, host: str, task: asyncio.Task[None]) -> None:
        self._serving.discard(task)
        self._by_address[host] -= 1
        if not self._by_address[host]:
            del self._by_address[host]

    async def _serve(self, listener: Listener, sock: socket.socket) -> None:
        self._accepted.discard(sock)
        try:
            protocol, writer = await self._streams(listener, sock)
        except (OSError, TimeoutError) as problem:
            log.debug("no handshake", listener=listener.name, problem=repr(problem))
            sock.close()
            return
        pin = Pin(self._relay, listener.name)
        peer = Peer(listener.name, pin)
        if listener.ssl is not None and listener.ssl.verify_mode != tls.CERT_NONE:
            peer.by_certificate = not listener.sasl
            peer.principal = principal_of(writer.get_extra_info("peercert"))
        connection = Connection(
            FrameReader(protocol.reader, self._limits, self._large_frames),
            writer,
            self._router,
            peer,
            self._limits,
            Introduction(pin, listener.mechanisms) if listener.sasl else None,
        )
        protocol.on_end = connection.client_left
        try:
            await connection.serve()
        except Exception as error:
            # A bug; it must not end the others' connections.
            log.exception("request failed", listener=listener.name, exc_info=error)

    async def _streams(
        self, listener: Listener, sock: socket.socket
    ) -> tuple["ClientProtocol", asyncio.StreamWriter]:
        """Counted before the handshake: one that never ends takes a place, too."""
        loop = asyncio.get_running_loop()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        protocol = ClientProtocol(asyncio.StreamReader(loop=loop), loop)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            sock,
            ssl=listener.ssl,
            ssl_handshake_timeout=self._limits.handshake_s if listener.ssl else None,
        )
        return protocol, asyncio.StreamWriter(transport, protocol, protocol.reader, loop)


class ClientProtocol(asyncio.StreamReaderProtocol):
    """Streams that also say when the other side is gone, without anybody reading."""

    def __init__(self, reader: asyncio.StreamReader, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(reader, loop=loop)
        self.reader = reader
        self.on_end: Callable[[], None] = _nobody_cares

    def eof_received(self) -> bool | None:
        self.on_end()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.on_end()
        super().connection_lost(exc)


def _nobody_cares() -> None:
    pass


async def _bind(listener: Listener) -> socket.socket:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    family, _, _, _, address = found[0]
    sock = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    sock.setblocking(False)
    return sock
