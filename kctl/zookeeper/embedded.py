"""The real ZooKeeper server as a child process, for tests, the demo and `kctl up`.

It listens on 127.0.0.1 only, keeps its data in a temporary folder, and ends with its parent even if
that is killed. ::

    async with EmbeddedZooKeeper() as server:
        async with Session.open(server.connect_string) as zk: ...
"""

import asyncio
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from kctl.zookeeper.jars import (
    DEFAULT_VERSION,
    ServerUnavailable,
    class_path,
    dying_with_parent,
    find_java,
    freeze,
)

HOST: Final = "127.0.0.1"
READY_BOUND_S: Final = 60.0
STOP_BOUND_S: Final = 10.0
START_ATTEMPTS_MAX: Final = 3

_LOGBACK: Final = """\
<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{ISO8601} %-5level %logger{20} - %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>
"""
_LOG4J: Final = """\
log4j.rootLogger=WARN, OUT
log4j.appender.OUT=org.apache.log4j.ConsoleAppender
log4j.appender.OUT.layout=org.apache.log4j.PatternLayout
log4j.appender.OUT.layout.ConversionPattern=%d %-5p %c{1} - %m%n
"""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on right now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind((HOST, 0))
        return [int(listener.getsockname()[1]) for listener in sockets]


def four_letter_word(port: int, word: str, timeout_s: float = 5.0) -> str:
    """Ask a server ``ruok``, ``srvr`` or ``mntr``; empty if it does not answer."""
    try:
        with socket.create_connection((HOST, port), timeout=timeout_s) as connection:
            if connection.getsockname() == connection.getpeername():
                # Nobody listens yet, and the kernel happened to choose this very port for us: the
                # connection reached itself, and would keep the server from its port.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return ""
            connection.sendall(word.encode())
            parts = []
            while part := connection.recv(65536):
                parts.append(part)
            return b"".join(parts).decode("utf-8", "replace")
    except OSError:
        return ""


class EmbeddedZooKeeper:
    """One server. Use it with ``async with``, or with ``with`` where no event loop runs.

    Start it from a thread that outlives it (see above): the loop's, or the main thread.
    """

    def __init__(
        self,
        *,
        version: str = DEFAULT_VERSION,
        port: int | None = None,
        tick_time_ms: int = 500,
        max_session_timeout_ms: int = 60_000,
        jute_max_buffer: int = 4 << 20,
        force_sync: bool = False,
        heap_mb: int = 512,
        jvm_options: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
        quorum: Sequence[str] = (),
        server_id: int = 1,
    ) -> None:
        self.version = version
        self._fixed_port = port
        self.port = port or 0
        self._tick_time_ms = tick_time_ms
        self._max_session_timeout_ms = max_session_timeout_ms
        self._jute_max_buffer = jute_max_buffer
        self._force_sync = force_sync
        self._heap_mb = heap_mb
        self._jvm_options = jvm_options
        self._settings = dict(settings or {})
        self._quorum = quorum
        self._server_id = server_id
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def connect_string(self) -> str:
        """For a client."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """Of the Java process."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there (it may be paused)."""
        return self._process is not None and self._process.poll() is None

    def mode(self) -> str | None:
        """``standalone``, ``leader`` or ``follower`` when it serves, None when it does not."""
        answer = four_letter_word(self.port, "srvr", timeout_s=1.0)
        modes = [line.split()[-1] for line in answer.splitlines() if line.startswith("Mode:")]
        return modes[0] if modes else None

    def log(self) -> str:
        """The end of what the server wrote."""
        assert self._folder is not None, "not started"
        path = self._folder / "server.log"
        return path.read_text(encoding="utf-8", errors="replace")[-4000:] if path.exists() else ""

    # --- life ------------------------------------------------------------------------------------

    def spawn(self) -> None:
        """Start the process; `wait_ready` says when it serves."""
        assert not self.running, "runs already"
        jars = class_path(self.version)
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="kctl-zookeeper-"))
        if not self.port:
            (self.port,) = free_ports(1)
        self._write_configuration(self._folder)
        java = [
            str(find_java()),
            f"-Xmx{self._heap_mb}m",
            "-XX:+UseSerialGC",
            f"-Djute.maxbuffer={self._jute_max_buffer}",
            f"-Dzookeeper.forceSync={'yes' if self._force_sync else 'no'}",
            # 3.5 reads these only as system properties.
            "-Dzookeeper.admin.enableServer=false",
            "-Dzookeeper.4lw.commands.whitelist=conf,mntr,ruok,srvr",
            *self._jvm_options,
            "-cp",
            ":".join(map(str, [self._folder, *jars])),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            str(self._folder / "zoo.cfg"),
        ]
        launcher = dying_with_parent(java)
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                launcher,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for its parent
            )

    def wait_ready(self) -> None:
        """Block until the server serves; raises with its log if it ends or takes too long."""
        deadline = time.monotonic() + READY_BOUND_S
        while self.mode() is None or not self._owns_port():
            if not self.running:
                raise ServerUnavailable(f"the ZooKeeper server ended at its start:\n{self.log()}")
            if time.monotonic() > deadline:
                raise ServerUnavailable(f"the ZooKeeper server does not serve:\n{self.log()}")
            time.sleep(0.02)

    def _owns_port(self) -> bool:
        """Whether it is this server that answers, not one that was quicker to take the port."""
        return str(self._folder) in four_letter_word(self.port, "conf")

    def start(self) -> None:
        """Start and wait; on a port of its own choice again if another process took it."""
        for attempt in range(START_ATTEMPTS_MAX):
            self.spawn()
            try:
                return self.wait_ready()
            except ServerUnavailable:
                self.kill()
                if not self._may_move(attempt):
                    raise
                self.port = 0
        return None

    async def start_async(self) -> None:
        """As `start`. The process is started by this thread, with which it would end."""
        # Finding the jars may take Maven's time.
        await asyncio.to_thread(class_path, self.version)
        for attempt in range(START_ATTEMPTS_MAX):
            self.spawn()
            try:
                return await asyncio.to_thread(self.wait_ready)
            except ServerUnavailable:
                self.kill()
                if not self._may_move(attempt):
                    raise
                self.port = 0
        return None

    def _may_move(self, attempt: int) -> bool:
        moveable = self._fixed_port is None and not self._quorum
        return moveable and attempt + 1 < START_ATTEMPTS_MAX

    def stop(self) -> None:
        """End it in order, and wait."""
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(STOP_BOUND_S)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """End it as a power failure would, and wait."""
        if self._process is not None and self.running:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Freeze it: connections stay open and nothing is answered."""
        freeze(self.pid)

    def resume(self) -> None:
        """Let it run on after `pause`."""
        assert self._process is not None, "not started"
        self._process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """End it and start it again, with the same data and port."""
        self.stop()
        for attempt in range(START_ATTEMPTS_MAX):
            self.spawn()
            try:
                return self.wait_ready()
            except ServerUnavailable:
                # Somebody's outgoing connection can have the port for a moment.
                self.kill()
                if attempt + 1 == START_ATTEMPTS_MAX:
                    raise
        return None

    def close(self) -> None:
        """End it and remove its data."""
        self.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        try:
            await self.start_async()
        except BaseException:
            self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    # --- configuration ---------------------------------------------------------------------------

    def _write_configuration(self, folder: Path) -> None:
        data = folder / "data"
        data.mkdir(exist_ok=True)
        settings = {
            "tickTime": str(self._tick_time_ms),
            "minSessionTimeout": str(2 * self._tick_time_ms),
            "maxSessionTimeout": str(self._max_session_timeout_ms),
            "dataDir": str(data),
            "clientPort": str(self.port),
            "clientPortAddress": HOST,
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "conf,mntr,ruok,srvr",
            "initLimit": "20",
            "syncLimit": "10",
            **self._settings,
        }
        lines = [f"{name}={value}" for name, value in settings.items()]
        lines += [f"server.{number}={address}" for number, address in enumerate(self._quorum, 1)]
        (folder / "zoo.cfg").write_text("\n".join([*lines, ""]), encoding="utf-8")
        (folder / "logback.xml").write_text(_LOGBACK, encoding="utf-8")
        (folder / "log4j.properties").write_text(_LOG4J, encoding="utf-8")
        if self._quorum:
            (data / "myid").write_text(str(self._server_id), encoding="utf-8")


class EmbeddedEnsemble:
    """Several servers that form a quorum."""

    def __init__(self, size: int = 3, *, version: str = DEFAULT_VERSION) -> None:
        ports = free_ports(3 * size)
        quorum = [
            f"{HOST}:{peer}:{election}"
            for peer, election in zip(ports[size : 2 * size], ports[2 * size :], strict=True)
        ]
        self.servers = [
            EmbeddedZooKeeper(
                version=version, port=ports[index], quorum=quorum, server_id=index + 1, heap_mb=256
            )
            for index in range(size)
        ]

    @property
    def connect_string(self) -> str:
        """For a client: all servers."""
        return ",".join(server.connect_string for server in self.servers)

    def leader(self) -> EmbeddedZooKeeper:
        """The server that leads now."""
        return next(server for server in self.servers if server.mode() == "leader")

    def start(self) -> None:
        """Start all and wait until all serve."""
        for server in self.servers:
            server.spawn()
        for server in self.servers:
            server.wait_ready()

    def close(self) -> None:
        """End all and remove their data."""
        for server in self.servers:
            server.close()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(class_path, self.servers[0].version)
            for server in self.servers:
                server.spawn()
            for server in self.servers:
                await asyncio.to_thread(server.wait_ready)
        except BaseException:
            self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)
