"""The controller's three requests, straight from `kctl.messages.requests` to bytes.

These are the only messages with a hundred thousand entries, so they do not go through the message
classes (`states` says how they are written instead). The encoders are generators that pause every
few thousand rows, so that a large request need not be encoded in one go; `finish` runs one to its
end.
"""

import struct
from collections.abc import Generator, Iterable, Mapping

import attrs

from kctl.messages.requests import (
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kctl.model.brokers import Broker, Endpoint
from kctl.model.names import TopicPartition
from kctl.model.rows import Assignment
from kctl.wire.primitives import WireError
from kctl.wire.states import NO_MARK, Form, broker_ids, count, states, string

SECURITY_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

Steps = Generator[None, None, bytes]
"""Pauses now and then, and returns the body."""

_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")


def finish(steps: Steps) -> bytes:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            body: bytes = done.value
            return body


def _guarded(steps: Steps, what: str) -> Steps:
    try:
        return (yield from steps)
    except (struct.error, UnicodeEncodeError) as problem:
        raise WireError(f"{what}: {problem}") from problem


# -- LeaderAndIsr ----------------------------------------------------------------------------


def leader_and_isr(
    request: LeaderAndIsrRequest, controller_id: int, version: int, listener: str | None = None
) -> Steps:
    """The body of a LeaderAndIsrRequest. Leaders are named by their endpoint of that listener."""
    return _guarded(
        _leader_and_isr(request, controller_id, version, listener),
        f"LeaderAndIsrRequest v{version}",
    )


def _leader_and_isr(
    request: LeaderAndIsrRequest, controller_id: int, version: int, listener: str | None
) -> Steps:
    flexible = version >= 4
    of_partitions = yield from states(request.rows, _leader_and_isr_form(request, version))
    parts = [_INT.pack(controller_id)]
    if version >= 7:
        parts.append(b"\0")  # not a KRaft controller
    parts.append(_INT.pack(request.controller_epoch))
    if version >= 2:
        parts.append(_LONG.pack(request.broker_epoch))
    if version >= 5:
        parts.append(b"\0")  # type: unknown; only KRaft controllers say full or incremental
    parts.extend(of_partitions)
    parts.append(count(len(request.live_leaders), flexible=flexible))
    for broker in request.live_leaders:
        endpoint = endpoint_of(broker, listener)
        parts.append(_INT.pack(broker.id))
        parts.append(string(endpoint.host, flexible=flexible))
        parts.append(_INT.pack(endpoint.port))
        if flexible:
            parts.append(b"\0")
    if flexible:
        parts.append(b"\0")
    return b"".join(parts)


def _leader_and_isr_form(request: LeaderAndIsrRequest, version: int) -> Form:
    flexible = version >= 4

    def tail(assignment: Assignment, is_new: object, recovering: bool) -> bytes:
        parts = [broker_ids(assignment.replicas, flexible=flexible)]
        if version >= 3:
            parts.append(broker_ids(assignment.adding, flexible=flexible))
            parts.append(broker_ids(assignment.removing, flexible=flexible))
        if version >= 1:
            parts.append(b"\1" if is_new else b"\0")
        if version >= 6:
            parts.append(b"\1" if recovering else b"\0")
        if flexible:
            parts.append(b"\0")
        return b"".join(parts)

    return Form(
        flexible=flexible,
        grouped=version >= 2,
        topic_ids=request.topic_ids if version >= 5 else None,
        deleted={},
        marks=dict.fromkeys(request.new, True),
        tail=tail,
    )


def endpoint_of(broker: Broker, listener: str | None) -> Endpoint:
    """Of that listener; the first one if no listener is named or the broker does not have it."""
    if not broker.endpoints:
        raise WireError(f"broker {broker.id} is registered without an endpoint")
    return next((e for e in broker.endpoints if e.listener == listener), broker.endpoints[0])


# -- UpdateMetadata --------------------------------------------------------------------------


def update_metadata_head(
    request: UpdateMetadataRequest, controller_id: int, version: int, broker_epoch: int
) -> bytes:
    """What stands before the part that all recipients share."""
    try:
        head = _INT.pack(controller_id)
        if version >= 8:
            head += b"\0"  # not a KRaft controller
        head += _INT.pack(request.controller_epoch)
        return head + _LONG.pack(broker_epoch) if version >= 5 else head
    except struct.error as problem:
        raise WireError(f"UpdateMetadataRequest v{version}: {problem}") from problem


def update_metadata_body(request: UpdateMetadataRequest, version: int) -> Steps:
    """What follows the head: the same for all recipients of one version."""
    return _guarded(_update_metadata_body(request, version), f"UpdateMetadataRequest v{version}")


def _update_metadata_body(request: UpdateMetadataRequest, version: int) -> Steps:
    flexible = version >= 6
    parts = yield from states(request.rows, _update_metadata_form(request, version))
    parts.append(count(len(request.live_brokers), flexible=flexible))
    parts.extend(_live_broker(broker, version) for broker in request.live_brokers)
    if flexible:
        parts.append(b"\0")
    return b"".join(parts)


def _update_metadata_form(request: UpdateMetadataRequest, version: int) -> Form:
    flexible = version >= 6

    def tail(assignment: Assignment, offline: object, _recovering: bool) -> bytes:
        end = b""
        if version >= 4:
            assert offline is NO_MARK or isinstance(offline, tuple)
            end = broker_ids(offline or (), flexible=flexible)
        if flexible:
            end += b"\0"
        return broker_ids(assignment.replicas, flexible=flexible) + end

    return Form(
        flexible=flexible,
        grouped=version >= 5,
        topic_ids=request.topic_ids if version >= 7 else None,
        deleted=request.deleted,
        marks=request.offline,
        tail=tail,
    )


def _live_broker(broker: Broker, version: int) -> bytes:
    flexible = version >= 6
    parts = [_INT.pack(broker.id)]
    if version == 0:
        plaintext = [e for e in broker.endpoints if e.security_protocol == "PLAINTEXT"]
        if len(plaintext) != 1:
            raise WireError(
                f"UpdateMetadataRequest v0: broker {broker.id} needs exactly one PLAINTEXT endpoint"
            )
        parts.append(string(plaintext[0].host, flexible=False))
        parts.append(_INT.pack(plaintext[0].port))
        return b"".join(parts)
    parts.append(count(len(broker.endpoints), flexible=flexible))
    for endpoint in broker.endpoints:
        parts.append(_INT.pack(endpoint.port))
        parts.append(string(endpoint.host, flexible=flexible))
        if version >= 3:
            parts.append(string(endpoint.listener, flexible=flexible))
        elif endpoint.listener != endpoint.security_protocol:
            raise WireError(
                f"UpdateMetadataRequest v{version} cannot carry the listener name"
                f" {endpoint.listener!r} of broker {broker.id}"
            )
        protocol = SECURITY_PROTOCOL_IDS.get(endpoint.security_protocol)
        if protocol is None:
            raise WireError(f"broker {broker.id}: protocol {endpoint.security_protocol!r}")
        parts.append(_SHORT.pack(protocol))
        if flexible:
            parts.append(b"\0")
    if version >= 2:
        parts.append(string(broker.rack, flexible=flexible))
    if flexible:
        parts.append(b"\0")
    return b"".join(parts)


# -- StopReplica -----------------------------------------------------------------------------


@attrs.frozen
class StopReplicaBody:
    body: bytes
    deletes: tuple[TopicPartition, ...]
    """Those whose answer matters."""


def stop_replica(
    request: StopReplicaRequest, controller_id: int, version: int
) -> tuple[StopReplicaBody, ...]:
    """One body; up to version 2, where deleting is said once for all, first those that delete."""
    try:
        if version >= 3:
            deletes = tuple(tp for tp, stop in request.partitions.items() if stop.delete)
            head = _stop_replica_head(request, controller_id, version)
            return (StopReplicaBody(head + _stop_replica_states(request), deletes),)
        bodies = []
        for delete in (True, False):
            tps = tuple(tp for tp, stop in request.partitions.items() if stop.delete is delete)
            if tps:
                head = _stop_replica_head(request, controller_id, version)
                rest = _stop_replica_names(tps, version)
                body = head + (b"\1" if delete else b"\0") + rest
                bodies.append(StopReplicaBody(body, tps if delete else ()))
        return tuple(bodies)
    except (struct.error, UnicodeEncodeError) as problem:
        raise WireError(f"StopReplicaRequest v{version}: {problem}") from problem


def _topics(states: Mapping[str, list[bytes]], *, flexible: bool) -> Iterable[bytes]:
    """An array of topics, each with its array of states."""
    yield count(len(states), flexible=flexible)
    for topic, of_topic in states.items():
        yield string(topic, flexible=flexible)
        yield count(len(of_topic), flexible=flexible)
        yield from of_topic
        if flexible:
            yield b"\0"


def _stop_replica_head(request: StopReplicaRequest, controller_id: int, version: int) -> bytes:
    kraft = b"\0" if version >= 4 else b""
    head = _INT.pack(controller_id) + kraft + _INT.pack(request.controller_epoch)
    return head + _LONG.pack(request.broker_epoch) if version >= 1 else head


def _stop_replica_states(request: StopReplicaRequest) -> bytes:
    pack = struct.Struct(">ii?x").pack  # x: no tagged fields
    states: dict[str, list[bytes]] = {}
    for (topic, partition), stop in request.partitions.items():
        states.setdefault(topic, []).append(pack(partition, stop.leader_epoch, stop.delete))
    return b"".join(_topics(states, flexible=True)) + b"\0"


def _stop_replica_names(tps: tuple[TopicPartition, ...], version: int) -> bytes:
    flexible = version >= 2
    by_topic: dict[str, list[bytes]] = {}
    for topic, partition in tps:
        by_topic.setdefault(topic, []).append(_INT.pack(partition))
    if version == 0:
        named = (
            string(topic, flexible=False) + index
            for topic, indexes in by_topic.items()
            for index in indexes
        )
        return _INT.pack(len(tps)) + b"".join(named)
    return b"".join(_topics(by_topic, flexible=flexible)) + (b"\0" if flexible else b"")
