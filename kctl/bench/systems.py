"""Controllers that can be measured: each a process of its own, so that its CPU time is its own."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final, Protocol

import msgspec

from kctl.bench.subject import Record
from kctl.zookeeper.embedded import HOST, free_ports
from kctl.zookeeper.jars import ServerUnavailable, dying_with_parent, freeze

CONTROLLER_ID: Final = 1000
STOP_BOUND_S: Final = 60.0

_RECORD: Final = msgspec.json.Decoder(Record)


class System(Protocol):
    """A controller on its own ZooKeeper session."""

    @property
    def name(self) -> str: ...

    @property
    def controller_id(self) -> int: ...

    @property
    def pid(self) -> int: ...

    @property
    def address(self) -> tuple[str, int]:
        """Where it takes requests."""

    async def start(self, zookeeper: str) -> None:
        """Return when the process is there; it stands for election by itself."""

    async def stop(self) -> None:
        """In order, so that its session ends at once."""

    def records(self) -> list[Record]:
        """What it has handled since the last call, if it tells."""

    def profile(self, *, begin: bool) -> None:
        """Begin or end a profile, if it can make one."""


class Kctl:
    """kctl itself, see `subject`."""

    name = "kctl"
    controller_id = CONTROLLER_ID

    def __init__(self, profiles: Path | None = None) -> None:
        self._profiles = profiles
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._read = 0
        self.address = (HOST, 0)

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def _path(self) -> Path:
        assert self._folder is not None, "not started"
        return Path(self._folder.name)

    async def start(self, zookeeper: str) -> None:
        (port,) = free_ports(1)
        self.address = (HOST, port)
        self._folder = tempfile.TemporaryDirectory(prefix="kctl-subject-")
        self._read = 0
        command = [sys.executable, "-m", "kctl.bench.subject", "--zookeeper", zookeeper]
        command += ["--listen", f"PLAINTEXT://{HOST}:{port}", "--id", str(self.controller_id)]
        command += ["--records", str(self._path / "handled.jsonl")]
        if self._profiles is not None:
            self._profiles.mkdir(parents=True, exist_ok=True)
            command += ["--profile", str(self._profiles)]
        # By this thread, with which it would end.
        self._spawn(command)

    def _spawn(self, command: list[str]) -> None:
        with (self._path / "log").open("wb") as log:
            self._process = subprocess.Popen(
                dying_with_parent(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                await asyncio.to_thread(process.wait, STOP_BOUND_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def pause(self) -> None:
        """Freeze it, as a stalled machine would."""
        freeze(self.pid)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def alive(self) -> None:
        """Raise with the end of its log if it has ended."""
        if self._process is None or self._process.poll() is not None:
            log = (self._path / "log").read_text("utf-8", errors="replace")
            raise ServerUnavailable(f"the controller ended:\n{log[-3000:]}")

    def records(self) -> list[Record]:
        self.alive()
        path = self._path / "handled.jsonl"
        if not path.exists():
            return []
        with path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        return [_RECORD.decode(line) for line in whole.splitlines()]

    def profile(self, *, begin: bool) -> None:
        if self._profiles is not None:
            os.kill(self.pid, signal.SIGUSR1 if begin else signal.SIGUSR2)
