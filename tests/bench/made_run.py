"""The tables of a run that nobody ran: times that grow with the partitions, by three systems."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kctl.bench.tables import RUN, write_rows

SYSTEMS = {"kctl": 10e-6, "kafka-3.9.1": 120e-6, "floor": 4e-6}
"""Seconds a partition."""
SCENARIOS = {"failover": 1.0, "broker_failure": 0.7, "create_100x50": 0.2, "broker_start": 0.1}
SIZES = (10_000, 100_000)
REPEATS = 3


def write_run(folder: Path, *, slower: float = 1.0, wrong_beliefs: bool = False) -> Path:
    write_rows(folder, RUN["scenarios"], scenario_rows(slower))
    write_rows(folder, RUN["events"], event_rows())
    write_rows(folder, RUN["phases"], phase_rows())
    write_rows(folder, RUN["truth"], truth_rows())
    write_rows(folder, RUN["beliefs"], belief_rows(wrong_beliefs))
    return folder


def run_of(size: int) -> str:
    return f"run-{size}"


def scenario_rows(slower: float) -> Iterator[dict[str, Any]]:
    for size in SIZES:
        for scenario, weight in SCENARIOS.items():
            for system, cost in SYSTEMS.items():
                for repeat in range(REPEATS):
                    # The middle one of three repetitions is the plain figure.
                    seconds = size * cost * weight * (1 + 0.1 * (repeat - 1))
                    seconds *= slower if (system, scenario) == ("kctl", "failover") else 1.0
                    yield {
                        "run_id": run_of(size),
                        "system": system,
                        "scenario": scenario,
                        "partitions": size,
                        "brokers": 10,
                        "repeat": repeat,
                        "seconds": seconds,
                        "cpu_seconds": seconds / 2,
                        "peak_rss_bytes": int(size * cost * 1e9),
                        "zookeeper_requests": size // 100,
                        "longest_step": 0.002,
                        "noise": 0.02 * repeat,
                    }


def event_rows() -> Iterator[dict[str, Any]]:
    """A hundred events of each kind, handled in 1 to 100 ms; only the last has a queue before it."""
    for size in SIZES:
        for number in range(100):
            for event in ("BrokerChange", "TopicChange"):
                began = number * 0.05
                yield {
                    "run_id": run_of(size),
                    "system": "kctl",
                    "scenario": "broker_failure",
                    "partitions": size,
                    "repeat": 0,
                    "sequence": number,
                    "event": event,
                    "queued_at": began - (1.0 if number == 99 else 0.0),
                    "started_at": began,
                    "finished_at": began + (number + 1) / 1000,
                    "queue_depth": number % 4,
                    "effects": 2,
                    "zookeeper_requests": 3,
                    "zookeeper_rows": 10,
                    "zookeeper_bytes": 1_000,
                    "longest_step": 0.001,
                    "loop_stall": 0.0,
                }


def phase_rows() -> Iterator[dict[str, Any]]:
    for size in SIZES:
        for system, cost in SYSTEMS.items():
            at = 0.0
            for phase, share in (
                ("elected", 0.05),
                ("loaded", 0.6),
                ("decided", 0.1),
                ("sent", 0.25),
            ):
                yield {
                    "run_id": run_of(size),
                    "system": system,
                    "scenario": "failover",
                    "repeat": 0,
                    "phase": phase,
                    "started_at": at,
                    "finished_at": at + share * size * cost,
                }
                at += share * size * cost


def truth_rows() -> Iterator[dict[str, Any]]:
    for partition in range(20):
        yield {
            "topic": "t",
            "partition": partition,
            "leader": 1 + partition % 3,
            "leader_epoch": 4,
            "isr": [1, 2, 3],
            "replicas": [1, 2, 3],
        }


def belief_rows(wrong: bool) -> Iterator[dict[str, Any]]:
    """As ZooKeeper has it, the ISR in another order; or with one of each mistake, at broker 3."""
    for broker in (1, 2, 3):
        for row in truth_rows():
            belief = {**row, "broker": broker, "isr": [3, 1, 2]}
            if wrong and broker == 3:
                if row["partition"] == 5:
                    continue
                if row["partition"] == 6:
                    belief["leader_epoch"] = 3
                if row["partition"] == 7:
                    belief["topic"] = "deleted"
            yield belief
