"""A TCP proxy that makes the network's faults: cut, stall, delay, refuse."""

import asyncio
import socket
import struct
from typing import Self

HOST = "127.0.0.1"


class FaultProxy:
    """Stands before one server. Faults hit the connections that are open, or those to come."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.port = 0
        self.accepted = 0
        self.bytes_to_server: list[bytes] = []
        """What each connection sent to the server, one entry a connection."""
        self.refuse_next = 0
        """So many connections to come are reset before a byte is answered."""
        self.delay_next_s = 0.0
        """On the next connection the server's first answer is held back for so long."""
        self.delay_all_s = 0.0
        """As `delay_next_s`, on every connection to come."""
        self._flow = asyncio.Event()
        self._flow.set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    async def __aenter__(self) -> Self:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop_listening()
        self.cut_rst()
        self._flow.set()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))

    @property
    def open_connections(self) -> int:
        """How many clients are connected."""
        return len(self._writers) // 2

    # --- faults ----------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Accept connections, on the same port as before."""
        self._server = await asyncio.start_server(self._accept, HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop_listening(self) -> None:
        """Connections to come are refused by the kernel; those that are open go on."""
        if self._server is not None:
            self._server.close()
            self._server = None
            await asyncio.sleep(0)

    def cut_fin(self) -> None:
        """End all connections in order, as a server that shuts down does."""
        for writer in tuple(self._writers):
            writer.close()

    def cut_rst(self) -> None:
        """End all connections with a reset, as a crashed host does."""
        for writer in tuple(self._writers):
            _reset(writer)

    def stall(self) -> None:
        """Forward nothing any more, but leave and accept connections, as a frozen server does."""
        self._flow.clear()

    def flow(self) -> None:
        """Forward again, what was held back first."""
        self._flow.set()

    # --- forwarding ------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.accepted += 1
        self.bytes_to_server.append(b"")
        number = self.accepted - 1
        if self.refuse_next > 0:
            self.refuse_next -= 1
            _reset(writer)
            return
        try:
            await self._flow.wait()
        except asyncio.CancelledError:
            return  # the end of the proxy; the stream's own callback must not log it
        try:
            far_reader, far_writer = await asyncio.open_connection(HOST, self.target_port)
        except OSError:
            _reset(writer)
            return
        self._writers |= {writer, far_writer}
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, far_writer, number, answers=False))
                group.create_task(self._pump(far_reader, writer, number, answers=True))
        except asyncio.CancelledError:
            pass  # the end of the proxy, as above
        finally:
            self._writers -= {writer, far_writer}
            writer.close()
            far_writer.close()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        number: int,
        *,
        answers: bool,
    ) -> None:
        first = True
        try:
            while data := await reader.read(1 << 16):
                if answers and first:
                    await asyncio.sleep(self._delay_of(number))
                first = False
                await self._flow.wait()
                if not answers:
                    self.bytes_to_server[number] += data
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            await self._flow.wait()
            writer.close()

    def _delay_of(self, number: int) -> float:
        # aiozk asks a server for its mode on a connection of its own before it asks for a session.
        if self.bytes_to_server[number].startswith(b"srvr"):
            return 0.0
        delay_s, self.delay_next_s = max(self.delay_next_s, self.delay_all_s), 0.0
        return delay_s


def _reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    if raw is not None and raw.fileno() >= 0:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
