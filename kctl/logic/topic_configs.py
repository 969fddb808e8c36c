"""The topic configs that CreateTopics accepts, with the ranges that Kafka 3.9 allows."""

from collections.abc import Callable, Mapping

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1

Check = Callable[[str], str | None]
"""None if the value is fine, else what is wrong with it."""


def _whole(low: int, high: int = LONG_MAX) -> Check:
    def check(value: str) -> str | None:
        try:
            number = int(value)
        except ValueError:
            return "is not a whole number"
        return None if low <= number <= high else f"must be from {low} to {high}"

    return check


def _ratio(value: str) -> str | None:
    try:
        number = float(value)
    except ValueError:
        return "is not a number"
    return None if 0 <= number <= 1 else "must be from 0 to 1"


def _one_of(*allowed: str) -> Check:
    def check(value: str) -> str | None:
        return None if value in allowed else f"must be one of {', '.join(allowed)}"

    return check


def _boolean(value: str) -> str | None:
    return None if value.strip().lower() in ("true", "false") else "must be true or false"


def _never_true(value: str) -> str | None:
    wrong = _boolean(value)
    if wrong is not None:
        return wrong
    return "cannot be true in ZooKeeper mode" if value.strip().lower() == "true" else None


def _list_of(*allowed: str) -> Check:
    def check(value: str) -> str | None:
        items = [item.strip() for item in value.split(",")]
        wrong = [item for item in items if item not in allowed]
        return f"may only list {', '.join(allowed)}" if wrong else None

    return check


def _throttled_replicas(value: str) -> str | None:
    if value.strip() in ("", "*"):
        return None
    for entry in value.split(","):
        parts = entry.strip().split(":")
        if len(parts) != 2 or not all(part.isdecimal() for part in parts):
            return "must be * or a list like 0:1,0:2 of partition:broker"
    return None


def _gzip_level(value: str) -> str | None:
    return None if value.strip() == "-1" else _whole(1, 9)(value)


def _anything(_value: str) -> str | None:
    return None


_INT = _whole(0, INT_MAX)
_LONG = _whole(0)

TOPIC_CONFIGS: Mapping[str, Check] = {
    "segment.bytes": _whole(14, INT_MAX),
    "segment.ms": _whole(1),
    "segment.jitter.ms": _LONG,
    "segment.index.bytes": _whole(4, INT_MAX),
    "flush.messages": _whole(1),
    "flush.ms": _LONG,
    "retention.bytes": _whole(-LONG_MAX - 1),
    "retention.ms": _whole(-1),
    "max.message.bytes": _INT,
    "index.interval.bytes": _INT,
    "delete.retention.ms": _LONG,
    "min.compaction.lag.ms": _LONG,
    "max.compaction.lag.ms": _whole(1),
    "file.delete.delay.ms": _LONG,
    "min.cleanable.dirty.ratio": _ratio,
    "cleanup.policy": _list_of("compact", "delete"),
    "unclean.leader.election.enable": _boolean,
    "min.insync.replicas": _whole(1, INT_MAX),
    "compression.type": _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "compression.gzip.level": _gzip_level,
    "compression.lz4.level": _whole(1, 17),
    "compression.zstd.level": _whole(-131072, 22),
    "preallocate": _boolean,
    "message.format.version": _anything,
    "message.timestamp.type": _one_of("CreateTime", "LogAppendTime"),
    "message.timestamp.difference.max.ms": _LONG,
    "message.timestamp.before.max.ms": _LONG,
    "message.timestamp.after.max.ms": _LONG,
    "leader.replication.throttled.replicas": _throttled_replicas,
    "follower.replication.throttled.replicas": _throttled_replicas,
    "message.downconversion.enable": _boolean,
    "remote.storage.enable": _boolean,
    "local.retention.ms": _whole(-2),
    "local.retention.bytes": _whole(-2),
    "remote.log.copy.disable": _never_true,
    "remote.log.delete.on.disable": _never_true,
}


def invalid_config(configs: Mapping[str, str | None]) -> str | None:
    """What is wrong with a topic's configs, or None."""
    for name, value in configs.items():
        if value is None:
            return f"the value of {name} is null"
        check = TOPIC_CONFIGS.get(name)
        if check is None:
            return f"unknown topic config {name}"
        wrong = check(value)
        if wrong is not None:
            return f"{name}={value}: {wrong}"
    shortest = int(configs.get("min.compaction.lag.ms") or 0)
    longest = int(configs.get("max.compaction.lag.ms") or LONG_MAX)
    if shortest > longest:
        return "min.compaction.lag.ms is larger than max.compaction.lag.ms"
    return None
