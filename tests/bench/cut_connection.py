"""A way to ZooKeeper that breaks for good after so many bytes: gone in the middle, every time."""

import socket
import threading
from types import TracebackType
from typing import Self


class CutAfter:
    """Passes on what clients send until `limit` bytes, then closes everything and listens no more."""

    def __init__(self, port: int, limit: int) -> None:
        self._to = port
        self._left = limit
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets.append(self._listener)
        self.cut = threading.Event()

    @property
    def connect_string(self) -> str:
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                return
            with self._lock:
                self._sockets += [client, server]
            threading.Thread(target=self._pass, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, False), daemon=True).start()

    def _pass(self, source: socket.socket, to: socket.socket, counted: bool) -> None:
        try:
            while data := source.recv(4096):
                if counted:
                    with self._lock:
                        self._left -= len(data)
                    if self._left < 0:
                        self.cut.set()
                        self._close()
                        return
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def _close(self) -> None:
        with self._lock:
            for each in self._sockets:
                try:
                    each.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it was closed, or listens
                each.close()
