"""Where the real ZooKeeper server comes from: Java, and jars that Maven fetches once."""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

DEFAULT_VERSION: Final = "3.8.4"
JAVA_MIN: Final = 17
FETCH_BOUND_S: Final = 600

# What the server needs at run time beyond what its own pom hands on.
_PROVIDED: Final = (
    ("org.xerial.snappy", "snappy-java", "1.1.10.5"),
    ("io.dropwizard.metrics", "metrics-core", "4.1.12.1"),
)

_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kctl</groupId><artifactId>embedded-zookeeper</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY: Final = "    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


# Runs between fork and java: the kernel kills the server when the thread that started it is gone.
_DIE_WITH_PARENT: Final = """\
import ctypes, os, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the parent is gone already")
os.execv(sys.argv[2], sys.argv[2:])
"""


class ServerUnavailable(Exception):
    """The embedded server cannot be started here; the message says what to do."""


def dying_with_parent(command: Sequence[str]) -> list[str]:
    """The command line for a child that the kernel ends with the thread that starts it."""
    return [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *command]


def freeze(pid: int) -> None:
    """Stop a child with SIGSTOP, and wait till the last of its threads stands still."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED)


def find_java() -> Path:
    """A Java 17 or later: from JAVA_HOME, the PATH, or where Linux packages put it."""
    candidates = [Path(home) / "bin" / "java" for home in [os.environ.get("JAVA_HOME")] if home]
    on_path = shutil.which("java")
    if on_path:
        candidates.append(Path(on_path))
    candidates += sorted(Path("/usr/lib/jvm").glob("*/bin/java"))
    for candidate in candidates:
        if candidate.is_file() and _java_version(candidate) >= JAVA_MIN:
            return candidate
    raise ServerUnavailable(
        f"Java {JAVA_MIN} or later is needed: install it (Debian, Ubuntu: apt-get install "
        "openjdk-17-jre-headless) or set JAVA_HOME to where it is"
    )


def _java_version(java: Path) -> int:
    try:
        run = subprocess.run(  # noqa: S603 - a java that the user's own environment names
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', run.stderr)
    return int(match[1]) if match else 0


def cache_dir() -> Path:
    """``~/.cache/kctl`` or what XDG_CACHE_HOME makes of it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kctl"


def class_path(version: str = DEFAULT_VERSION) -> list[Path]:
    """The server's jars: cached, else by Maven, else (for the default) those inside pyspark."""
    name = f"zookeeper-{version}"
    wanted = [("org.apache.zookeeper", "zookeeper", version)]
    if _minor(version) >= (3, 6):
        wanted += _PROVIDED
    try:
        return fetched_jars(name, wanted)
    except ServerUnavailable:
        borrowed = _pyspark_jars() if version == DEFAULT_VERSION else []
        if borrowed:
            return borrowed
        raise


def _find_maven() -> str | None:
    mvn = shutil.which("mvn")
    apt_get = shutil.which("apt-get")
    if mvn is None and apt_get is not None and os.geteuid() == 0:
        for arguments in (["update", "-q"], ["install", "-qy", "--no-install-recommends", "maven"]):
            subprocess.run(  # noqa: S603 - fixed arguments
                [apt_get, *arguments], capture_output=True, timeout=FETCH_BOUND_S, check=False
            )
        mvn = shutil.which("mvn")
    return mvn


def fetched_jars(name: str, coordinates: Sequence[tuple[str, str, str]]) -> list[Path]:
    """The jars of these artifacts and all that they need, fetched by Maven once under this name."""
    target = cache_dir() / name
    if not target.is_dir():
        mvn = _find_maven()
        if mvn is None:
            raise ServerUnavailable(
                f"{name} is fetched by Maven, and there is no mvn on the PATH: install it (Debian, "
                f"Ubuntu: apt-get install maven) and run this again, or put its jars into {target}"
            )
        _fetch(mvn, name, coordinates, target)
    return sorted(target.glob("*.jar"))


def _fetch(mvn: str, name: str, coordinates: Sequence[tuple[str, str, str]], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as folder:
        dependencies = "\n".join(_DEPENDENCY.format(*artifact) for artifact in coordinates)
        pom = Path(folder) / "pom.xml"
        pom.write_text(_POM.format(dependencies=dependencies), encoding="utf-8")
        jars = Path(folder) / "jars"
        command = [mvn, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={jars}", "-DincludeScope=runtime"]
        run = subprocess.run(  # noqa: S603 - the user's own mvn
            command, capture_output=True, text=True, timeout=FETCH_BOUND_S, check=False
        )
        if run.returncode != 0 or not jars.is_dir():
            raise ServerUnavailable(
                f"Maven could not fetch {name}:\n{(run.stdout + run.stderr)[-2000:]}"
            )
        try:
            jars.rename(target)
        except OSError:
            if not target.is_dir():  # else another process was quicker
                raise


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def _pyspark_jars() -> list[Path]:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return []
    jars = Path(spec.origin).parent / "jars"
    if not any(jars.glob("zookeeper-3.*.jar")):
        return []
    needed = ("zookeeper-", "netty-", "slf4j-", "log4j-", "snappy-", "metrics-core", "commons-")
    return sorted(jar for jar in jars.glob("*.jar") if jar.name.startswith(needed))
