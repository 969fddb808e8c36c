"""Real, unmodified Kafka brokers in ZooKeeper mode as child processes, and Kafka's own tools.

They listen on 127.0.0.1 only, have small heaps, start in a few seconds, keep their logs in a
temporary folder, and end with their parent even if that is killed.
"""

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from kctl.zookeeper.embedded import HOST, free_ports
from kctl.zookeeper.jars import (
    ServerUnavailable,
    dying_with_parent,
    fetched_jars,
    find_java,
    freeze,
)

DEFAULT_VERSION: Final = "3.9.1"
VERSIONS: Final = ("3.9.1", "2.8.2", "2.4.1")
READY_BOUND_S: Final = 90.0
STOP_BOUND_S: Final = 60.0
SESSION_TIMEOUT_MS: Final = 6_000

QUICK_START: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For a JVM that need not be fast for long."""

_LOG4J: Final = """\
log4j.rootLogger=INFO, OUT
log4j.appender.OUT=org.apache.log4j.ConsoleAppender
log4j.appender.OUT.layout=org.apache.log4j.PatternLayout
log4j.appender.OUT.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.org.apache.zookeeper=WARN
log4j.logger.kafka.authorizer.logger=WARN
log4j.logger.state.change.logger=INFO
"""


def class_path(version: str = DEFAULT_VERSION) -> list[Path]:
    """The broker's jars and those of the tools, fetched once."""
    wanted = [
        ("org.apache.kafka", "kafka_2.13", version),
        ("org.apache.kafka", "kafka-tools", version),
        ("org.slf4j", "slf4j-reload4j", "1.7.36"),
    ]
    jars = fetched_jars(f"kafka-{version}", wanted)
    # Two logging backends would quarrel; the one that writes what Kafka writes stays.
    return [jar for jar in jars if not jar.name.startswith(("slf4j-simple", "slf4j-log4j12"))]


def _release(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


class KafkaBroker:
    """One broker. After a kill it can be started again once ZooKeeper has expired its session."""

    def __init__(
        self,
        broker_id: int,
        zookeeper: str,
        *,
        version: str = DEFAULT_VERSION,
        rack: str | None = None,
        log_dirs: int = 1,
        heap_mb: int = 384,
        jvm_options: Sequence[str] = QUICK_START,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.id = broker_id
        self.version = version
        self.zookeeper = zookeeper
        self._rack = rack
        self._heap_mb = heap_mb
        self._jvm_options = jvm_options
        self._settings = dict(settings or {})
        self.folder = Path(tempfile.mkdtemp(prefix=f"kctl-kafka-{broker_id}-"))
        self.log_dirs = [self.folder / f"data-{n}" for n in range(log_dirs)]
        self.log_file = self.folder / "broker.log"
        (self.port,) = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        if not self.log_file.exists():
            return ""
        return self.log_file.read_text("utf-8", errors="replace")

    def errors(self) -> list[str]:
        """Lines at level ERROR or FATAL, each with the exception below it."""
        return re.findall(
            r"^\[[^\]]*\] (?:ERROR|FATAL) .*(?:\n(?!\[).*)?$", self.log(), re.MULTILINE
        )

    def spawn(self) -> None:
        """Start the process; `wait_ready` says when it serves."""
        assert not self.running, "runs already"
        properties = self.folder / "server.properties"
        properties.write_text("".join(f"{k}={v}\n" for k, v in self._configuration().items()))
        (self.folder / "log4j.properties").write_text(_LOG4J)
        command = [
            str(find_java()),
            f"-Xmx{self._heap_mb}m",
            *self._jvm_options,
            f"-Dlog4j.configuration=file:{self.folder / 'log4j.properties'}",
            "-cp",
            ":".join(map(str, class_path(self.version))),
            "kafka.Kafka",
            str(properties),
        ]
        launcher = dying_with_parent(command)
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                launcher,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for its parent
            )

    def wait_ready(self) -> None:
        """Block until its port answers; raises with its log if it ends or takes too long."""
        deadline = time.monotonic() + READY_BOUND_S
        while True:
            try:
                socket.create_connection((HOST, self.port), timeout=1).close()
                return
            except OSError:
                pass
            if not self.running:
                raise ServerUnavailable(f"broker {self.id} ended:\n{self.log()[-3000:]}")
            if time.monotonic() > deadline:
                raise ServerUnavailable(f"broker {self.id} does not serve:\n{self.log()[-3000:]}")
            time.sleep(0.05)

    def start(self) -> None:
        self.spawn()
        self.wait_ready()

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None and self.running:
            self._process.kill()
            self._process.wait()

    def terminate(self) -> int:
        """SIGTERM, and wait: a controlled shutdown. Gives the exit code."""
        assert self._process is not None, "not started"
        if self.running:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(STOP_BOUND_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        return self._process.returncode

    def pause(self) -> None:
        freeze(self.pid)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def wipe(self) -> None:
        """Lose the disk; only while it is stopped."""
        assert not self.running, "runs"
        for folder in self.log_dirs:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _configuration(self) -> dict[str, str]:
        configuration = {
            "broker.id": str(self.id),
            "zookeeper.connect": self.zookeeper,
            "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
            "listeners": f"PLAINTEXT://{HOST}:{self.port}",
            "log.dirs": ",".join(map(str, self.log_dirs)),
            "num.partitions": "3",
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.num.partitions": "5",
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.num.partitions": "5",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
            "group.initial.rebalance.delay.ms": "0",
            "replica.lag.time.max.ms": "6000",
            "log.cleaner.dedupe.buffer.size": "16777216",
            "auto.leader.rebalance.enable": "false",
        }
        if self._rack is not None:
            configuration["broker.rack"] = self._rack
        return configuration | self._settings


class KafkaBrokers:
    """Several brokers of one cluster: `with KafkaBrokers(3, zookeeper) as brokers: ...`"""

    def __init__(
        self,
        count: int,
        zookeeper: str,
        *,
        version: str = DEFAULT_VERSION,
        versions: Sequence[str] = (),
        log_dirs: int = 1,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.brokers = {
            broker_id: KafkaBroker(
                broker_id,
                zookeeper,
                version=versions[(broker_id - 1) % len(versions)] if versions else version,
                log_dirs=log_dirs,
                settings=settings,
            )
            for broker_id in range(1, count + 1)
        }

    def __getitem__(self, broker_id: int) -> KafkaBroker:
        return self.brokers[broker_id]

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def start(self) -> None:
        for broker in self.brokers.values():
            broker.spawn()
        for broker in self.brokers.values():
            broker.wait_ready()

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.close()

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
            # Not started in a thread: they would end with it.
            for version in dict.fromkeys(b.version for b in self.brokers.values()):
                await asyncio.to_thread(class_path, version)
            for broker in self.brokers.values():
                broker.spawn()
            for broker in self.brokers.values():
                await asyncio.to_thread(broker.wait_ready)
        except BaseException:
            self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)


TOOLS: Final = {
    "kafka-topics": ("org.apache.kafka.tools.TopicCommand", "kafka.admin.TopicCommand"),
    "kafka-configs": ("kafka.admin.ConfigCommand", "kafka.admin.ConfigCommand"),
    "kafka-reassign-partitions": (
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        "kafka.admin.ReassignPartitionsCommand",
    ),
    "kafka-leader-election": (
        "org.apache.kafka.tools.LeaderElectionCommand",
        "kafka.admin.LeaderElectionCommand",
    ),
    "kafka-console-producer": (
        "org.apache.kafka.tools.ConsoleProducer",
        "kafka.tools.ConsoleProducer",
    ),
    "kafka-console-consumer": (
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "kafka.tools.ConsoleConsumer",
    ),
    "kafka-producer-perf-test": (
        "org.apache.kafka.tools.ProducerPerformance",
        "org.apache.kafka.tools.ProducerPerformance",
    ),
    "kafka-consumer-groups": (
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        "kafka.admin.ConsumerGroupCommand",
    ),
    "kafka-log-dirs": ("org.apache.kafka.tools.LogDirsCommand", "kafka.admin.LogDirsCommand"),
}
"""The main class since 3.7, and before."""


class ToolFailed(Exception):
    """A tool of Kafka's ended with an error; the message is what it printed."""


def run_tool(
    name: str,
    *arguments: str,
    version: str = DEFAULT_VERSION,
    stdin: str | None = None,
    timeout_s: float = 90,
) -> str:
    """Run one of Kafka's own tools; what it printed, or `ToolFailed`."""
    newer, older = TOOLS[name]
    main = newer if _release(version) >= (3, 7) else older
    command = [
        str(find_java()),
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        ":".join(map(str, class_path(version))),
        main,
        *arguments,
    ]
    run = subprocess.run(
        command, input=stdin or "", capture_output=True, text=True, timeout=timeout_s, check=False
    )
    if run.returncode != 0:
        raise ToolFailed(f"{name} {' '.join(arguments)}:\n{run.stdout}\n{run.stderr[-3000:]}")
    return run.stdout
