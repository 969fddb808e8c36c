"""The configs that CreateTopics shows in its answer: those given, and Kafka's defaults.

What a broker's own server.properties says is not known here; a broker that is asked for the
topic's configs tells the whole truth.
"""

from collections.abc import Mapping

from kctl.wire.admin import CreatableTopicConfigs

DYNAMIC_TOPIC_CONFIG = 1
DEFAULT_CONFIG = 5

FOR_EVER = str(2**63 - 1)

TOPIC_DEFAULTS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": FOR_EVER,
    "flush.ms": FOR_EVER,
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": FOR_EVER,
    "max.message.bytes": "1048588",
    "message.downconversion.enable": "true",
    "message.format.version": "3.0-IV1",
    "message.timestamp.after.max.ms": FOR_EVER,
    "message.timestamp.before.max.ms": FOR_EVER,
    "message.timestamp.difference.max.ms": FOR_EVER,
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def effective_configs(given: Mapping[str, str | None]) -> tuple[CreatableTopicConfigs, ...]:
    return tuple(
        CreatableTopicConfigs(
            name,
            given.get(name, default),
            config_source=DYNAMIC_TOPIC_CONFIG if name in given else DEFAULT_CONFIG,
        )
        for name, default in {**TOPIC_DEFAULTS, **given}.items()
    )
