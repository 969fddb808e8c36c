"""The whole process is stopped for longer than the session timeout, as by a debugger or a host."""

import subprocess
import sys
import time
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest

PROGRAM = Path(__file__).with_name("stopped_client.py")
TIMEOUT_MS = 1000

pytestmark = pytest.mark.zookeeper


def test_nothing_is_written_after_waking_up(chroot: str) -> None:
    """What the ensemble took away meanwhile must not be used, not even for a moment."""
    client = subprocess.Popen(
        [sys.executable, PROGRAM, chroot, str(TIMEOUT_MS)], stdout=subprocess.PIPE, text=True
    )
    assert client.stdout is not None
    try:
        for line in client.stdout:
            if line == "wrote 5\n":
                break
        client.send_signal(SIGSTOP)
        time.sleep(1.5 * TIMEOUT_MS / 1000)
        client.send_signal(SIGCONT)
        rest = client.stdout.read().split("\n")
        assert client.wait() == 0
    finally:
        client.kill()
        client.wait()
        client.stdout.close()
    # Lines from before the stop may still be in the pipe; the fence is the first sign of waking.
    woken = rest[rest.index("state fenced") :]
    assert woken[-2:] == ["ended", ""]
    assert "state expired" in woken
    assert [line for line in woken if line.startswith("wrote")] == []
    assert [line for line in woken if line.startswith("state")] == ["state fenced", "state expired"]
