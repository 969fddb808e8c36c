"""Connect strings: the ensemble's servers in the order in which to try them, and the chroot."""

from collections.abc import Sequence
from random import Random
from typing import Final

import attrs

DEFAULT_PORT: Final = 2181


@attrs.frozen
class Server:
    """One server of the ensemble."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@attrs.frozen
class Chroot:
    """The znode that a client takes for the root; empty for the real one."""

    prefix: str

    def full(self, path: str) -> str:
        """The path as the server knows it."""
        # Without the slash, "x" under /kafka would name /kafkax, outside of the chroot.
        if path[:1] != "/":
            raise ValueError(f"a znode path starts with a slash: {path!r}")
        if not self.prefix:
            return path
        return self.prefix + path if path != "/" else self.prefix

    def relative(self, full: str) -> str:
        """The path as the client knows it. Outside of the chroot it stays as it is."""
        if full == self.prefix:
            return "/"
        if self.prefix and full.startswith(self.prefix + "/"):
            return full[len(self.prefix) :]
        return full


def parse_connect_string(text: str) -> tuple[tuple[Server, ...], Chroot]:
    """Read ``host1:port1,host2:port2/chroot``, as in Kafka's ``zookeeper.connect``."""
    addresses, slash, path = text.strip().partition("/")
    servers = tuple(_parse_server(part.strip()) for part in addresses.split(",") if part.strip())
    if not servers:
        raise ValueError(f"no server in the connect string {text!r}")
    prefix = (slash + path).rstrip("/")
    if "//" in prefix:
        raise ValueError(f"empty name in the chroot of {text!r}")
    return servers, Chroot(prefix)


def _parse_server(text: str) -> Server:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif text.count(":") > 1:
        host, port = text, ""
    else:
        host, _, port = text.partition(":")
    if not host or (port and not port.isdecimal()):
        raise ValueError(f"not a server address: {text!r}")
    return Server(host, int(port) if port else DEFAULT_PORT)


class DialOrder:
    """Which server to try next: shuffled once, and whoever failed last goes to the end."""

    def __init__(self, servers: Sequence[Server], rng: Random) -> None:
        self._servers = list(servers)
        rng.shuffle(self._servers)

    def __len__(self) -> int:
        return len(self._servers)

    @property
    def first(self) -> Server:
        """The server to try next."""
        return self._servers[0]

    def failed(self, server: Server) -> None:
        """This server was lost or could not be reached: try all others before it."""
        self._servers.remove(server)
        self._servers.append(server)
