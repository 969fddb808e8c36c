"""ApiVersions: ours for what we answer, and what every live broker speaks for what is relayed."""

import asyncio
import re
from collections.abc import Iterable, Mapping

import structlog

from kctl.model.brokers import Broker, Endpoint
from kctl.model.codes import KafkaError
from kctl.model.names import BrokerId
from kctl.server.frames import read_answer, write_frame
from kctl.server.relay import Relay
from kctl.wire.apis import APIS, decode_response, encode_request
from kctl.wire.client import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kctl.wire.primitives import WireError

log = structlog.get_logger("kctl.server")

Ranges = Mapping[int, tuple[int, int]]
"""First and last version by API key."""

SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

LIST_TRANSACTIONS = 66
LIST_TRANSACTIONS_VERSIONS = (0, 1)

SINCE_2_4: Ranges = {
    key: (0, last)
    for key, last in (
        *((0, 8), (1, 11), (2, 5), (3, 9), (8, 8), (9, 6), (10, 3), (11, 6), (12, 4), (13, 4)),
        *((14, 4), (15, 5), (21, 1), (22, 2), (23, 3), (24, 1), (25, 1), (26, 1), (28, 2)),
        *((29, 1), (30, 1), (31, 1), (32, 2), (33, 1), (34, 1), (42, 2), (44, 1), (47, 0)),
    )
}
"""What any broker that can be in the cluster speaks. Said while none could be asked: a client that
does not find what it needs gives up for good, one whose request is not answered tries again."""

SASL_SINCE_2_4: Ranges = {17: (0, 1), 36: (0, 1)}
"""The same where there is SASL."""

RETRY_S = 1.0
"""A broker that could not be asked is not asked again for so long."""


def refuses(request: ApiVersionsRequest, version: int) -> bool:
    return version >= 3 and not (
        SOFTWARE_NAME.fullmatch(request.client_software_name)
        and SOFTWARE_NAME.fullmatch(request.client_software_version)
    )


def merged(served: Ranges, shared: Ranges, relayed: Iterable[Ranges]) -> dict[int, tuple[int, int]]:
    """`served` is ours alone; of `shared` we answer a part, so both sides must speak the version."""
    common: dict[int, tuple[int, int]] | None = None
    for ranges in relayed:
        common = dict(ranges) if common is None else _intersection(common, ranges)
    if common is None:
        common = {**SINCE_2_4, **{k: SASL_SINCE_2_4[k] for k in SASL_SINCE_2_4 if k in shared}}
    for key, (first, last) in shared.items():
        if key in common:
            common[key] = (max(first, common[key][0]), min(last, common[key][1]))
    return {**common, **served}


def _intersection(one: Ranges, other: Ranges) -> dict[int, tuple[int, int]]:
    both = {
        key: (max(first, other[key][0]), min(last, other[key][1]))
        for key, (first, last) in one.items()
        if key in other
    }
    return {key: (first, last) for key, (first, last) in both.items() if first <= last}


def response(ranges: Ranges) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=tuple(ApiVersion(key, *ranges[key]) for key in sorted(ranges))
    )


def invalid_request() -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=KafkaError.INVALID_REQUEST)


def our_range(key: int) -> tuple[int, int]:
    if key == LIST_TRANSACTIONS:
        return LIST_TRANSACTIONS_VERSIONS
    return (APIS[key].first, APIS[key].last)


class BrokerVersions:
    """What each incarnation of a broker speaks: asked once, by whoever needs it first."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._known: dict[tuple[BrokerId, int], Ranges] = {}
        self._asking: dict[tuple[BrokerId, int], asyncio.Task[None]] = {}
        self._failed: dict[tuple[BrokerId, int], float] = {}

    async def of_live_brokers(self, listener: str) -> list[Ranges]:
        """Those that are known, or become known while somebody can be kept waiting for them."""
        brokers = {(b.id, b.epoch): b for b in self._relay.brokers()}
        for gone in [key for key in self._known if key not in brokers]:
            del self._known[gone]
        for gone in [key for key in self._failed if key not in brokers]:
            del self._failed[gone]
        for key, broker in brokers.items():
            self._ask(key, broker, listener)
        # One that has failed to answer is asked again, but nobody is kept waiting for it.
        asking = [
            task for key, task in self._asking.items() if key in brokers and key not in self._failed
        ]
        if asking:
            await asyncio.wait(asking, timeout=self._relay.limits.versions_s)
        return [self._known[key] for key in brokers if key in self._known]

    def _ask(self, key: tuple[BrokerId, int], broker: Broker, listener: str) -> None:
        endpoint = next((e for e in broker.endpoints if e.listener == listener), None)
        loop = asyncio.get_running_loop()
        failed = self._failed.get(key)
        recently = failed is not None and loop.time() - failed < RETRY_S
        if endpoint is None or key in self._known or key in self._asking or recently:
            return
        task = loop.create_task(self._learn(key, endpoint))
        self._asking[key] = task
        task.add_done_callback(lambda _: self._asking.pop(key, None))

    async def _learn(self, key: tuple[BrokerId, int], endpoint: Endpoint) -> None:
        try:
            self._known[key] = await self._asked(endpoint)
            self._failed.pop(key, None)
        except (OSError, TimeoutError, WireError) as problem:
            self._failed[key] = asyncio.get_running_loop().time()
            log.debug("versions not learnt", broker=key[0], problem=repr(problem))

    async def _asked(self, endpoint: Endpoint) -> Ranges:
        limits = self._relay.limits
        reader, writer = await self._relay.dial(endpoint)
        try:
            async with asyncio.timeout(limits.connect_s):
                request = encode_request(ApiVersionsRequest(), 0, 0, "kctl")
                await write_frame(writer, request, limits.connect_s)
                answer = await read_answer(reader, limits)
        finally:
            writer.transport.abort()
        _, versions = decode_response(ApiVersionsResponse, 0, answer)
        if versions.error_code != KafkaError.NONE:
            raise WireError(f"ApiVersions answered with error {versions.error_code}")
        return {v.api_key: (v.min_version, v.max_version) for v in versions.api_keys}

    async def close(self) -> None:
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
