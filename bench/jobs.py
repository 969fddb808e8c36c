"""Steps of a benchmark that are processes of their own: the Spark jobs."""

import argparse
import subprocess
import sys
import time

from rich.console import Console

from kctl.zookeeper.jars import dying_with_parent


class StepFailed(Exception):
    """A step ended with an error, which it has printed."""

    def __init__(self, job: str, code: int) -> None:
        super().__init__(f"{job} failed")
        self.code = code


def step(console: Console, job: str, *arguments: object) -> None:
    """Run `bench.<job>` to its end."""
    console.rule(job)
    began = time.monotonic()
    command = [sys.executable, "-m", f"bench.{job}", *map(str, arguments)]
    code = subprocess.run(dying_with_parent(command), check=False).returncode
    if code != 0:
        raise StepFailed(job, code)
    console.print(f"{job} took {time.monotonic() - began:.1f} s")


def positive(text: str) -> int:
    """For an option that counts something."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)
