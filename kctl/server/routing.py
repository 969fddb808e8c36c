"""From a request to its answer: ours, the controller's, or a broker's.

| what | who answers |
|---|---|
| the controller's RPCs | the controller, through its queue |
| ApiVersions; what everyone asks of every node | this server |
| configs of this node | this server; those of others in the same request, a broker |
| LeaderAndIsr, StopReplica, UpdateMetadata, Envelope | refused with CLUSTER_AUTHORIZATION_FAILED: only
  the controller sends the first three, and to brokers; the last belongs to a migration |
| KRaft's keys, WriteTxnMarkers, unknown keys and versions | nobody: the connection is closed, as
  Kafka does |
| everything else | the broker that is pinned to the connection |
"""

import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import attrs
import msgspec
import structlog

from kctl.model.codes import KafkaError
from kctl.server import own_answers, versions
from kctl.server.access import ControllerAccess
from kctl.server.broker_calls import allocate_producer_ids, alter_partition, controlled_shutdown
from kctl.server.cluster_calls import alter_user_scram_credentials, update_features
from kctl.server.frames import Unacceptable, read_request
from kctl.server.partition_calls import (
    alter_partition_reassignments,
    elect_leaders,
    list_partition_reassignments,
)
from kctl.server.relay import Pin
from kctl.server.rights import ANONYMOUS, refusal
from kctl.server.sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE, SASL_HANDSHAKE_VERSIONS
from kctl.server.topic_calls import create_partitions, create_topics, delete_topics
from kctl.server.versions import LIST_TRANSACTIONS, BrokerVersions
from kctl.wire.admin import AlterConfigsResponse, DescribeConfigsResponse
from kctl.wire.admin import IncrementalAlterConfigsResponse as IncrementalResponse
from kctl.wire.apis import (
    API_VERSIONS,
    APIS,
    RequestHeader,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    refuse_api_versions,
)
from kctl.wire.client import ApiVersionsRequest, EnvelopeResponse
from kctl.wire.control_plane import (
    LeaderAndIsrResponse,
    StopReplicaResponse,
    UpdateMetadataResponse,
)
from kctl.wire.primitives import WireError
from kctl.wire.schema import Struct

log = structlog.get_logger("kctl.server")

Handler = Callable[[ControllerAccess, Any, int], Awaitable[Struct]]

CONTROLLER_CALLS: Mapping[int, Handler] = {
    7: controlled_shutdown,
    19: create_topics,
    20: delete_topics,
    37: create_partitions,
    43: elect_leaders,
    45: alter_partition_reassignments,
    46: list_partition_reassignments,
    51: alter_user_scram_credentials,
    56: alter_partition,
    57: update_features,
    67: allocate_producer_ids,
}

LIST_GROUPS, DESCRIBE_LOG_DIRS = 16, 35
OWN_ANSWERS: Mapping[int, Callable[[], Struct]] = {
    LIST_GROUPS: own_answers.list_groups,
    DESCRIBE_LOG_DIRS: own_answers.describe_log_dirs,
}

DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 33, 44
CONFIGS = (DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS)

REFUSED: Mapping[int, Struct] = {
    4: LeaderAndIsrResponse(error_code=KafkaError.CLUSTER_AUTHORIZATION_FAILED),
    5: StopReplicaResponse(error_code=KafkaError.CLUSTER_AUTHORIZATION_FAILED),
    6: UpdateMetadataResponse(error_code=KafkaError.CLUSTER_AUTHORIZATION_FAILED),
    58: EnvelopeResponse(error_code=KafkaError.CLUSTER_AUTHORIZATION_FAILED),
}

WRITE_TXN_MARKERS = 27
RELAYED = frozenset({*range(52), 57, 60, 61, 65, 66, 68, 69}) - {
    *REFUSED,
    *CONTROLLER_CALLS,
    *OWN_ANSWERS,
    API_VERSIONS,
    LIST_TRANSACTIONS,
    SASL_HANDSHAKE,
    SASL_AUTHENTICATE,
    WRITE_TXN_MARKERS,
}
"""What brokers in ZooKeeper mode offer to clients. Nothing that only brokers may ask of each other:
the relay speaks to them in this node's name, not in that of its client."""


_PREFIX = struct.Struct(">hhi")
"""API key, version and correlation id: how every request begins."""


@attrs.define(eq=False)
class Peer:
    """Whoever is at the other end of a connection."""

    listener: str
    pin: Pin
    principal: str | None = ANONYMOUS
    """None: somebody whose name we cannot know."""
    by_certificate: bool = False
    """Known by a certificate, which brokers cannot see behind this node."""


@attrs.frozen
class Router:
    access: ControllerAccess
    broker_versions: BrokerVersions
    sasl_listeners: frozenset[str] = frozenset()

    async def answer(self, frame: bytes, peer: Peer) -> bytes | None:
        """What goes back to the client, without the length; None if nothing does."""
        key, version, correlation_id = _PREFIX.unpack_from(frame)
        if key == API_VERSIONS and version not in APIS[API_VERSIONS]:
            # Of a client newer than this code: what follows may have any form.
            return refuse_api_versions(correlation_id)
        try:
            header, body = decode_request_header(frame)
            return await self._route(header, frame, body, peer)
        except WireError as problem:
            raise Unacceptable(str(problem)) from None

    async def _route(
        self, header: RequestHeader, frame: bytes, body: int, peer: Peer
    ) -> bytes | None:
        key, version = header.api_key, header.api_version
        if key == API_VERSIONS:
            return await self._api_versions(header, frame, body, peer.listener)
        if key == LIST_TRANSACTIONS:
            first, last = versions.our_range(key)
            if not first <= version <= last:
                raise Unacceptable(f"ListTransactions has no version {version}")
            return own_answers.list_transactions(header.correlation_id)
        if key in CONTROLLER_CALLS:
            answer = await self._controller_call(header, frame, body, peer)
            return encode_response(answer, version, header.correlation_id)
        if key in CONFIGS:
            return await self._configs(header, frame, body, peer)
        if key in OWN_ANSWERS or key in REFUSED:
            read_request(APIS[key].request, version, frame, body)
            if key in REFUSED:
                log.warning("refused", api=APIS[key].name, listener=peer.listener)
            answer = OWN_ANSWERS[key]() if key in OWN_ANSWERS else REFUSED[key]
            return encode_response(answer, version, header.correlation_id)
        if key in RELAYED:
            return await self._relayed(header, frame, body, peer)
        raise Unacceptable(f"API key {key}, version {version}")

    async def _controller_call(
        self, header: RequestHeader, frame: bytes, body: int, peer: Peer
    ) -> Struct:
        key, version = header.api_key, header.api_version
        request = read_request(APIS[key].request, version, frame, body)
        if not self.access.rights.may_call(key, peer.principal, peer.listener):
            log.warning(
                "refused", api=APIS[key].name, listener=peer.listener, principal=peer.principal
            )
            return refusal(request)
        return await CONTROLLER_CALLS[key](self.access, request, version)

    async def _relayed(
        self, header: RequestHeader, frame: bytes, body: int, peer: Peer
    ) -> bytes | None:
        if peer.by_certificate and not self.access.rights.may_be_relayed_as_us(peer.principal):
            raise Unacceptable(f"{peer.principal} would be relayed under the controller's name")
        return await peer.pin.relay(header, frame, body)

    # -- ApiVersions --------------------------------------------------------------------------

    async def _api_versions(
        self, header: RequestHeader, frame: bytes, body: int, listener: str
    ) -> bytes:
        version = header.api_version
        request = read_request(ApiVersionsRequest, version, frame, body)
        if versions.refuses(request, version):
            answer = versions.invalid_request()
        else:
            answer = versions.response(await self.ranges(listener))
        return encode_response(answer, version, header.correlation_id)

    async def ranges(self, listener: str) -> Mapping[int, tuple[int, int]]:
        ours = (API_VERSIONS, LIST_TRANSACTIONS, *CONTROLLER_CALLS, *OWN_ANSWERS)
        served = {key: versions.our_range(key) for key in ours}
        shared = {key: versions.our_range(key) for key in CONFIGS}
        if listener in self.sasl_listeners:
            shared[SASL_HANDSHAKE] = SASL_HANDSHAKE_VERSIONS
            shared[SASL_AUTHENTICATE] = versions.our_range(SASL_AUTHENTICATE)
        of_brokers = [
            {key: span for key, span in ranges.items() if key in RELAYED or key in shared}
            for ranges in await self.broker_versions.of_live_brokers(listener)
        ]
        return versions.merged(served, shared, of_brokers)

    # -- configs ------------------------------------------------------------------------------

    async def _configs(
        self, header: RequestHeader, frame: bytes, body: int, peer: Peer
    ) -> bytes | None:
        """Of this node, of others, or of both in one request."""
        api, version = APIS[header.api_key], header.api_version
        request: Any = read_request(api.request, version, frame, body)
        own_id = self.access.controller_id
        own = [r for r in request.resources if own_answers.is_own(r, own_id)]
        if not own:
            return await self._relayed(header, frame, body, peer)
        state = self.access.view()
        results = {
            (r.resource_type, r.resource_name): own_answers.own_configs_result(r, own_id, state)
            for r in own
        }
        others = tuple(r for r in request.resources if not own_answers.is_own(r, own_id))
        if others:
            results |= await self._configs_of_others(header, request, others, peer)
        listed = tuple(results.values())
        answer: Struct
        match header.api_key:
            case 32:
                answer = DescribeConfigsResponse(results=listed)  # type: ignore[arg-type]
            case 33:
                answer = AlterConfigsResponse(responses=listed)  # type: ignore[arg-type]
            case _:
                answer = IncrementalResponse(responses=listed)  # type: ignore[arg-type]
        return encode_response(answer, version, header.correlation_id)

    async def _configs_of_others(
        self, header: RequestHeader, request: Any, others: tuple[Any, ...], peer: Peer
    ) -> dict[tuple[int, str], own_answers.ConfigsResult]:
        version = header.api_version
        rest: Struct = msgspec.structs.replace(request, resources=others)
        frame = encode_request(rest, version, header.correlation_id, header.client_id)
        answer = await self._relayed(header, frame, len(frame), peer)
        assert answer is not None
        response: Any = decode_response(APIS[header.api_key].response, version, answer)[1]
        results = response.results if header.api_key == DESCRIBE_CONFIGS else response.responses
        return {(r.resource_type, r.resource_name): r for r in results}
