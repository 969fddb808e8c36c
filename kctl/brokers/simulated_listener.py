"""A listening socket that can be closed at any moment without losing a connection.

asyncio's own server forgets a connection that comes in just while it is closed, and leaves its
socket to the garbage collector. Simulated brokers are killed all the time, often while somebody
connects.
"""

import asyncio
import socket
from collections.abc import Callable

HOST = "127.0.0.1"
BACKLOG = 100


class Listener:
    def __init__(self, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        self._make_protocol = make_protocol
        self._socket: socket.socket | None = None
        self._taking: set[asyncio.Task[None]] = set()

    def open(self, port: int = 0) -> int:
        """Listen, on any port for 0; which one it is."""
        listening = self._socket = socket.socket()
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((HOST, port))
            listening.listen(BACKLOG)
        except OSError:
            listening.close()
            raise
        listening.setblocking(False)
        asyncio.get_running_loop().add_reader(listening, self._accept)
        return int(listening.getsockname()[1])

    async def close(self, cut: Callable[[], None]) -> None:
        """Refuse others from now on, and cut what there is; also what was just coming in."""
        loop = asyncio.get_running_loop()
        if self._socket is not None:
            loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        cut()
        if self._taking:
            await asyncio.wait(self._taking)
            cut()
        await asyncio.sleep(0)  # the loop closes aborted sockets in its next round

    def _accept(self) -> None:
        assert self._socket is not None, "the reader goes with the socket"
        for _ in range(BACKLOG):
            try:
                connection, _address = self._socket.accept()
            except OSError:
                return  # none is left, or the other side has gone again
            connection.setblocking(False)
            task = asyncio.get_running_loop().create_task(self._take(connection))
            self._taking.add(task)
            task.add_done_callback(self._taking.discard)

    async def _take(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(self._make_protocol, connection)
        except OSError:
            connection.close()
