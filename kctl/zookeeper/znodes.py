"""What stands in Kafka's znodes: encoders and decoders, every JSON version that brokers wrote.

A decoder never raises, whatever the bytes are: it returns the value or `Malformed`, so that a bad
znode quarantines what it describes and nothing else. Decoders ignore keys that they do not know, as
Kafka's do; encoders write what Kafka 3.9 writes. Broker registrations are in `registrations`.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Final, TypeVar

import attrs
import msgspec

from kctl.messages.effects import FeatureNode, ProducerIds, TopicNode
from kctl.model.codes import Malformed
from kctl.model.names import NO_LEADER, BrokerId, TopicPartition
from kctl.model.rows import Assignment, Leadership, Replicas
from kctl.zookeeper.paths import is_name

T = TypeVar("T")

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=INT_MAX)]
NonNegative = Annotated[int, msgspec.Meta(ge=0, le=INT_MAX)]
LeaderId = Annotated[int, msgspec.Meta(ge=NO_LEADER, le=INT_MAX)]
Flag = Annotated[int, msgspec.Meta(ge=0, le=1)]
BrokerIds = tuple[NonNegative, ...]


def parse(decoder: msgspec.json.Decoder[T], path: str, data: bytes | None) -> T | Malformed:
    """The typed value, or why it cannot be read."""
    try:
        return decoder.decode(data or b"")
    except (ValueError, RecursionError) as error:
        # ValueError covers JSON, types and UTF-8. The data itself is never repeated: it may be a
        # secret, and it may be long.
        return Malformed(path, "empty" if not data else str(error))


def _encode(value: object) -> bytes:
    return msgspec.json.encode(value)


# -- controller ------------------------------------------------------------------------------


@attrs.frozen
class Claim:
    """What `/controller` says about who holds it."""

    broker_id: BrokerId
    kctl: bool


class _Controller(msgspec.Struct, gc=False):
    brokerid: Int
    kctl: object = False
    """Only `true` counts, and nothing else in its place may hide the id."""


_CONTROLLER: Final = msgspec.json.Decoder(_Controller)


def decode_controller(path: str, data: bytes | None) -> Claim | Malformed:
    found = parse(_CONTROLLER, path, data)
    return found if isinstance(found, Malformed) else Claim(found.brokerid, found.kctl is True)


def encode_controller(broker_id: BrokerId, now_ms: int) -> bytes:
    """Version 2. Brokers read `brokerid` and `kraftControllerEpoch`; `kctl` is for other kctls."""
    return _encode(
        {
            "version": 2,
            "brokerid": broker_id,
            "timestamp": str(now_ms),
            "kraftControllerEpoch": -1,
            "kctl": True,
        }
    )


_DECIMAL: Final = re.compile(rb"[0-9]{1,10}")


def decode_controller_epoch(path: str, data: bytes | None) -> int | Malformed:
    if not _DECIMAL.fullmatch(data or b"") or int(data or b"0") > INT_MAX:
        return Malformed(path, "not a decimal number")
    return int(data or b"0")


def encode_controller_epoch(epoch: int) -> bytes:
    return b"%d" % epoch


# -- topics ----------------------------------------------------------------------------------


class _Topic(msgspec.Struct, gc=False):
    partitions: dict[NonNegative, BrokerIds]
    topic_id: str | None = None
    adding_replicas: dict[NonNegative, BrokerIds] | None = None
    removing_replicas: dict[NonNegative, BrokerIds] | None = None


_TOPIC: Final = msgspec.json.Decoder(_Topic)
_TOPIC_ID: Final = re.compile(r"(?!A{22})[A-Za-z0-9_-]{22}")


def decode_topic(path: str, data: bytes | None, zk_version: int) -> TopicNode | Malformed:
    found = parse(_TOPIC, path, data)
    if isinstance(found, Malformed):
        return found
    if found.topic_id is not None and not _TOPIC_ID.fullmatch(found.topic_id):
        return Malformed(path, "topic_id is not the text of a topic id")
    for partition, replicas in found.partitions.items():
        if not replicas:
            return Malformed(path, f"partition {partition} has no replicas")
        if len(set(replicas)) != len(replicas):
            return Malformed(path, f"partition {partition} names a replica twice")
    if not found.adding_replicas and not found.removing_replicas:
        partitions = {p: Assignment(replicas) for p, replicas in found.partitions.items()}
        return TopicNode(partitions, found.topic_id, zk_version)
    return _reassigning_topic(path, found, zk_version)


def _reassigning_topic(path: str, found: _Topic, zk_version: int) -> TopicNode | Malformed:
    partitions: dict[int, Assignment] = {}
    adding, removing = found.adding_replicas or {}, found.removing_replicas or {}
    for partition, replicas in found.partitions.items():
        added, removed = adding.get(partition, ()), removing.get(partition, ())
        for key, changing in (("adding_replicas", added), ("removing_replicas", removed)):
            if len(set(changing)) != len(changing) or not set(changing) <= set(replicas):
                return Malformed(path, f"{key} of partition {partition} are not among its replicas")
        if len(removed) == len(replicas):
            return Malformed(path, f"partition {partition} would keep no replica")
        partitions[partition] = Assignment(replicas, added, removed)
    return TopicNode(partitions, found.topic_id, zk_version)


def encode_topic(node: TopicNode) -> bytes:
    """Version 3, or 2 without a topic id: that is what brokers older than 2.8 understand."""
    partitions = node.partitions
    content: dict[str, object] = {"version": 2 if node.topic_id is None else 3}
    if node.topic_id is not None:
        content["topic_id"] = node.topic_id
    content["partitions"] = {str(p): a.replicas for p, a in partitions.items()}
    content["adding_replicas"] = {str(p): a.adding for p, a in partitions.items() if a.adding}
    content["removing_replicas"] = {str(p): a.removing for p, a in partitions.items() if a.removing}
    return _encode(content)


# -- partition states ------------------------------------------------------------------------


class _State(msgspec.Struct, gc=False):
    leader: LeaderId
    leader_epoch: Int
    controller_epoch: Int
    isr: BrokerIds
    leader_recovery_state: Flag = 0


_STATE: Final = msgspec.json.Decoder(_State)
_decode_state: Final = _STATE.decode


def decode_state(path: str, data: bytes | None, zk_version: int) -> Leadership | Malformed:
    # The hot one, hence no call to `parse`.
    try:
        found = _decode_state(data or b"")
    except (ValueError, RecursionError) as error:
        return Malformed(path, "empty" if not data else str(error))
    isr = found.isr
    if len(set(isr)) != len(isr):
        return Malformed(path, "isr names a replica twice")
    return Leadership(
        found.leader,
        isr,
        found.leader_epoch,
        found.controller_epoch,
        zk_version,
        found.leader_recovery_state == 1,
    )


class _WrittenState(msgspec.Struct, gc=False, omit_defaults=True):
    version: int
    leader: int
    leader_epoch: int
    controller_epoch: int
    isr: Replicas
    leader_recovery_state: int = 0
    """Only while recovering: older brokers do not know it."""


_encode_state: Final = msgspec.json.Encoder().encode


def encode_state(leadership: Leadership) -> bytes:
    """Version 1."""
    return _encode_state(
        _WrittenState(
            1,
            leadership.leader,
            leadership.leader_epoch,
            leadership.controller_epoch,
            leadership.isr,
            1 if leadership.recovering else 0,
        )
    )


# -- partitions that are named: reassignments, elections, notifications -----------------------


class _Reassignment(msgspec.Struct, gc=False):
    topic: str
    partition: NonNegative
    replicas: BrokerIds


class _Reassignments(msgspec.Struct, gc=False):
    partitions: list[_Reassignment]


class _Named(msgspec.Struct, gc=False):
    topic: str
    partition: NonNegative


class _NamedPartitions(msgspec.Struct, gc=False):
    partitions: list[_Named]


_REASSIGNMENTS: Final = msgspec.json.Decoder(_Reassignments)
_NAMED_PARTITIONS: Final = msgspec.json.Decoder(_NamedPartitions)


def decode_reassignments(
    path: str, data: bytes | None
) -> Mapping[TopicPartition, Replicas] | Malformed:
    """Targets as they stand; whether they make sense is the core's to say."""
    found = parse(_REASSIGNMENTS, path, data)
    if isinstance(found, Malformed):
        return found
    return {
        TopicPartition(entry.topic, entry.partition): entry.replicas
        for entry in found.partitions
        if is_name(entry.topic)
    }


def encode_reassignments(targets: Mapping[TopicPartition, Replicas]) -> bytes:
    entries = [_Reassignment(tp.topic, tp.partition, to) for tp, to in targets.items()]
    return _encode({"version": 1, "partitions": entries})


def decode_named_partitions(
    path: str, data: bytes | None
) -> tuple[TopicPartition, ...] | Malformed:
    """`/admin/preferred_replica_election` and the ISR change notifications."""
    found = parse(_NAMED_PARTITIONS, path, data)
    if isinstance(found, Malformed):
        return found
    named = (TopicPartition(n.topic, n.partition) for n in found.partitions if is_name(n.topic))
    return tuple(dict.fromkeys(named))


def encode_named_partitions(partitions: tuple[TopicPartition, ...]) -> bytes:
    entries = [_Named(tp.topic, tp.partition) for tp in partitions]
    return _encode({"version": 1, "partitions": entries})


class _LogDirEvent(msgspec.Struct, gc=False):
    broker: NonNegative


_LOG_DIR_EVENT: Final = msgspec.json.Decoder(_LogDirEvent)


def decode_log_dir_event(path: str, data: bytes | None) -> BrokerId | Malformed:
    found = parse(_LOG_DIR_EVENT, path, data)
    return found if isinstance(found, Malformed) else found.broker


# -- configs ---------------------------------------------------------------------------------


class _Config(msgspec.Struct, gc=False):
    config: dict[str, str]
    version: int = 1


class _ConfigChange(msgspec.Struct, gc=False):
    version: int
    entity_type: str = ""
    entity_name: str = ""
    entity_path: str = ""


_CONFIG: Final = msgspec.json.Decoder(_Config)
_CONFIG_CHANGE: Final = msgspec.json.Decoder(_ConfigChange)


def decode_config(path: str, data: bytes | None) -> Mapping[str, str] | Malformed:
    if not data:
        return {}
    found = parse(_CONFIG, path, data)
    if isinstance(found, Malformed):
        return found
    if found.version != 1:
        return Malformed(path, f"version {found.version} is not known")
    return found.config


def encode_config(config: Mapping[str, str]) -> bytes:
    return _encode({"version": 1, "config": dict(config)})


def encode_config_change(entity: str) -> bytes:
    return _encode({"version": 2, "entity_path": entity})


def decode_config_change(path: str, data: bytes | None) -> str | Malformed:
    """What changed, as a path below `/config`: `topics/orders`."""
    found = parse(_CONFIG_CHANGE, path, data)
    if isinstance(found, Malformed):
        return found
    if found.version == 1 and found.entity_type in {"topics", "clients"} and found.entity_name:
        return f"{found.entity_type}/{found.entity_name}"
    if found.version == 2 and found.entity_path:
        return found.entity_path
    return Malformed(path, f"version {found.version} does not name an entity")


# -- features, producer ids, cluster id ------------------------------------------------------


class _FeatureLevel(msgspec.Struct, gc=False):
    max_version_level: Annotated[int, msgspec.Meta(ge=1, le=2**15 - 1)]


class _Feature(msgspec.Struct, gc=False):
    version: Annotated[int, msgspec.Meta(ge=1, le=2)]
    status: Flag
    features: dict[str, _FeatureLevel] = {}


class _ProducerIds(msgspec.Struct, gc=False):
    block_start: str
    block_end: str


class _ClusterId(msgspec.Struct, gc=False):
    id: str


_FEATURE: Final = msgspec.json.Decoder(_Feature)
_PRODUCER_IDS: Final = msgspec.json.Decoder(_ProducerIds)
_CLUSTER_ID: Final = msgspec.json.Decoder(_ClusterId)
_LONG: Final = re.compile(r"[0-9]{1,19}")


def decode_feature(path: str, data: bytes | None) -> FeatureNode | Malformed:
    found = parse(_FEATURE, path, data)
    if isinstance(found, Malformed):
        return found
    levels = {name: level.max_version_level for name, level in found.features.items()}
    return FeatureNode(found.status == 1, levels, found.version)


def encode_feature(node: FeatureNode) -> bytes:
    """Version 1 also has a minimum; controllers always wrote the same number there."""
    keys = ("min_version_level", "max_version_level")[node.version - 1 :]
    features = {name: dict.fromkeys(keys, level) for name, level in node.features.items()}
    return _encode({"version": node.version, "status": int(node.enabled), "features": features})


def decode_producer_ids(path: str, data: bytes | None, zk_version: int) -> ProducerIds | Malformed:
    """No data: no block was handed out yet."""
    if not data:
        return ProducerIds(-1, zk_version)
    found = parse(_PRODUCER_IDS, path, data)
    if isinstance(found, Malformed):
        return found
    if not _LONG.fullmatch(found.block_start) or not _LONG.fullmatch(found.block_end):
        return Malformed(path, "block_start and block_end are not decimal numbers")
    start, end = int(found.block_start), int(found.block_end)
    if start > end or end > LONG_MAX:
        return Malformed(path, f"a block from {start} to {end}")
    return ProducerIds(end, zk_version)


def encode_producer_ids(broker: BrokerId, start: int, end: int) -> bytes:
    return _encode(
        {"version": 1, "broker": broker, "block_start": str(start), "block_end": str(end)}
    )


def decode_cluster_id(path: str, data: bytes | None) -> str | Malformed:
    found = parse(_CLUSTER_ID, path, data)
    return found if isinstance(found, Malformed) else found.id


def encode_cluster_id(cluster_id: str) -> bytes:
    return _encode({"version": "1", "id": cluster_id})
