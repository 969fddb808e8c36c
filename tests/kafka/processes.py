"""`kctl run` as a process of its own, so that it can be killed."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kctl.insight.snapshot import open_reader
from kctl.testing.kafka import SESSION_TIMEOUT_MS
from kctl.zookeeper import paths
from kctl.zookeeper.embedded import HOST, free_ports
from kctl.zookeeper.jars import dying_with_parent, freeze

BOUND_S = 90.0


class KctlProcess:
    """`with kctl_run(zookeeper, folder) as process: ...`; its log is JSON lines in a file."""

    def __init__(self, zookeeper: str, log_file: Path, controller_id: int, *options: str) -> None:
        self.id = controller_id
        self.log_file = log_file
        self._log_from = len(log_file.read_text()) if log_file.exists() else 0
        (port,) = free_ports(1)
        self.address = f"{HOST}:{port}"
        command = [
            *(sys.executable, "-m", "kctl", "run", "--json", "--takeover"),
            *("--zookeeper", zookeeper, "--id", str(controller_id)),
            *("--listen", f"PLAINTEXT://{self.address}"),
            *("-o", f"zookeeper.session.timeout.ms={SESSION_TIMEOUT_MS}"),
            *("-o", "auto.leader.rebalance.enable=false"),
            *options,
        ]
        launcher = dying_with_parent(command)
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(launcher, stdin=subprocess.DEVNULL, stderr=log)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def terminate(self) -> int:
        """SIGTERM, and its exit code."""
        self._process.terminate()
        return self._process.wait(BOUND_S)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def pause(self) -> None:
        freeze(self._process.pid)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def log(self) -> list[dict[str, Any]]:
        """What this process, and not an earlier one of its id, has written."""
        written = self.log_file.read_text()[self._log_from :]
        return [json.loads(line) for line in written.splitlines() if line.endswith("}")]

    async def until_logged(self, event: str) -> None:
        try:
            async with asyncio.timeout(BOUND_S):
                while not any(line["event"] == event for line in self.log()):  # noqa: ASYNC110 a file
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{event!r} is not logged: {self.log()[-5:]}") from None

    def faults(self) -> list[dict[str, Any]]:
        return [line for line in self.log() if line["level"] in ("error", "critical")]


@contextlib.contextmanager
def kctl_run(
    zookeeper: str, folder: Path, controller_id: int = 1000, *, force: bool = False
) -> Iterator[KctlProcess]:
    options = ("-o", "kctl.takeover.force=true") if force else ()
    log_file = folder / f"kctl-{controller_id}.log"
    process = KctlProcess(zookeeper, log_file, controller_id, *options)
    try:
        yield process
    finally:
        process.kill()


async def until_controller(zookeeper: str, *ids: int) -> int:
    """Wait till one of these is the controller."""
    found: int | None = None
    try:
        async with asyncio.timeout(BOUND_S), open_reader(zookeeper) as reader:
            while True:
                (node,) = await reader.read_many([paths.CONTROLLER])
                found = int(json.loads(node[0])["brokerid"]) if isinstance(node, tuple) else None
                if found is not None and found in ids:
                    return found
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"the controller is {found}, not of {ids}") from None
