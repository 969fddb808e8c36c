"""What brokers believe, asked from each of them, beside what ZooKeeper holds."""

import asyncio
import struct
from collections.abc import Iterable

from kctl.insight.snapshot import open_reader, take_snapshot
from kctl.model.names import NO_LEADER, TopicPartition
from kctl.model.rows import Leadership
from kctl.wire import apis
from kctl.wire.client import MetadataRequest, MetadataResponse

METADATA_VERSION = 7
"""With leader epochs, and known to brokers since 2.1."""
ANSWER_BOUND_S = 10.0


async def fetch_metadata(address: str) -> MetadataResponse:
    """Metadata of all topics from exactly this broker."""
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(ANSWER_BOUND_S):
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
            frame = apis.encode_request(request, METADATA_VERSION, 1, "kctl-view")
            writer.write(apis.framed(frame))
            await writer.drain()
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            answer = await reader.readexactly(size)
        finally:
            writer.close()
    return apis.decode_response(MetadataResponse, METADATA_VERSION, answer)[1]


async def differences(zookeeper: str, brokers: Iterable[str]) -> list[str]:
    """Where the Metadata of these brokers is not what ZooKeeper holds; empty when all agree."""
    async with open_reader(zookeeper) as reader:
        snapshot = await take_snapshot(reader)
    wanted = {
        tp: _shown(state)
        for tp, state in snapshot.zookeeper.states.items()
        if isinstance(state, Leadership) and tp.topic not in snapshot.zookeeper.deletions
    }
    found: list[str] = []
    for address in brokers:
        metadata = await fetch_metadata(address)
        told = {
            TopicPartition(topic.name or "", p.partition_index): (
                p.leader_id,
                p.leader_epoch,
                tuple(sorted(p.isr_nodes)),
            )
            for topic in metadata.topics
            for p in topic.partitions
        }
        if metadata.controller_id != snapshot.controller_id:
            found.append(
                f"{address}: controller {metadata.controller_id}, not {snapshot.controller_id}"
            )
        found += [
            f"{address}: {tp} is {told.get(tp)}, not {state}"
            for tp, state in wanted.items()
            if told.get(tp) != state and not _leaderless(told.get(tp), state)
        ]
        found += [
            f"{address}: {tp} is known but not in ZooKeeper" for tp in told if tp not in wanted
        ]
    return found


def _shown(state: Leadership) -> tuple[int, int, tuple[int, ...]]:
    return state.leader, state.leader_epoch, tuple(sorted(state.isr))


def _leaderless(
    told: tuple[int, int, tuple[int, ...]] | None, state: tuple[int, int, tuple[int, ...]]
) -> bool:
    """Without a live leader brokers answer LEADER_NOT_AVAILABLE and may leave the rest out."""
    return told is not None and told[0] == NO_LEADER == state[0]


async def until_agreed(zookeeper: str, brokers: Iterable[str], *, bound_s: float = 30.0) -> None:
    """Wait till all of them show what ZooKeeper holds; fails with the differences."""
    addresses = tuple(brokers)
    last = ["nothing was asked"]
    try:
        async with asyncio.timeout(bound_s):
            while last:
                try:
                    last = await differences(zookeeper, addresses)
                except (OSError, asyncio.IncompleteReadError) as error:
                    last = [repr(error)]
                if last:
                    await asyncio.sleep(0.2)
    except TimeoutError:
        raise AssertionError("brokers and ZooKeeper differ:\n" + "\n".join(last[:20])) from None
