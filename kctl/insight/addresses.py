"""What stands at an address that does not speak ZooKeeper: people mix the two up."""

import asyncio
import struct

from kctl.wire import apis
from kctl.wire.client import ApiVersionsRequest, ApiVersionsResponse
from kctl.zookeeper.ensemble import parse_connect_string

ANSWER_BOUND_S = 2.0
FRAME_MAX = 1 << 20
_SERVERS_MAX = 3


async def find_broker(connect: str) -> str | None:
    """The first of these addresses where a Kafka broker answers."""
    servers, _ = parse_connect_string(connect)
    for server in servers[:_SERVERS_MAX]:
        try:
            if await is_kafka(server.host, server.port):
                return str(server)
        except (OSError, EOFError, TimeoutError, ValueError, struct.error):
            continue
    return None


async def is_kafka(host: str, port: int) -> bool:
    """Whether ApiVersions is understood there."""
    async with asyncio.timeout(ANSWER_BOUND_S):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            request = apis.encode_request(ApiVersionsRequest(), 0, 1, "kctl")
            writer.write(apis.framed(request))
            await writer.drain()
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            if not 0 < size <= FRAME_MAX:
                return False
            answer = await reader.readexactly(size)
        finally:
            writer.close()
    _, versions = apis.decode_response(ApiVersionsResponse, 0, answer)
    return versions.error_code == 0 and bool(versions.api_keys)
