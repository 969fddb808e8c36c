"""The store: performs effects on ZooKeeper and gives their replies.

One store belongs to one session. It remembers the version of `/controller_epoch` that its claim
produced, and every write of the term stands on it. `ControllerMoved` and `SessionLost` are raised,
they are no replies.
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast

from kctl.messages import effects as ef
from kctl.model.codes import Code
from kctl.model.names import BrokerId
from kctl.zookeeper import batches, calls, reading
from kctl.zookeeper.client import Client
from kctl.zookeeper.controllership import Controllership, Unusable
from kctl.zookeeper.reading import Reading
from kctl.zookeeper.watches import Watches
from kctl.zookeeper.writing import Writing

__all__ = ["Store", "Unusable"]

R = TypeVar("R")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Store:
    def __init__(
        self,
        client: Client,
        controller_id: BrokerId,
        *,
        watches: Watches | None = None,
        set_acl: bool = False,
        now_ms: Callable[[], int] = _now_ms,
        in_flight_max: int | None = None,
    ) -> None:
        """Without `watches` nothing is armed, for those who only look. `set_acl` is Kafka's
        `zookeeper.set.acl`. With `in_flight_max=1` requests go one after the other, and the store
        needs no event loop of asyncio."""
        fence = batches.Fence()
        read = Reading(client, watches, in_flight_max or reading.IN_FLIGHT_MAX)
        write = Writing(client, fence, watches, set_acl, in_flight_max or batches.IN_FLIGHT_MAX)
        rule = Controllership(
            client,
            controller_id,
            fence,
            watch=watches is not None,
            secure=set_acl,
            now_ms=now_ms,
        )
        self._client = client
        self._fence = fence
        self._in_doubt = False
        """A write's outcome is unknown: another server may know more than ours."""
        self._performers: Mapping[type[ef.Effect[Any]], Callable[[Any], Awaitable[Any]]] = {
            ef.ReadControllership: rule.read,
            ef.ClaimControllership: rule.claim,
            ef.ReleaseControllership: rule.release,
            ef.RegisterController: rule.register,
            ef.UnregisterController: rule.unregister,
            ef.CreateControllerEpoch: write.create_controller_epoch,
            ef.Bootstrap: write.bootstrap,
            ef.ReadBrokers: read.read_brokers,
            ef.ListTopics: read.list_topics,
            ef.ReadTopics: read.read_topics,
            ef.WriteTopics: write.write_topics,
            ef.CreateTopicNodes: write.create_topic_nodes,
            ef.ReadTopicConfigs: read.read_topic_configs,
            ef.ReadPartitions: read.read_partitions,
            ef.WatchPartitions: read.watch_partitions,
            ef.WritePartitions: write.write_partitions,
            ef.CreatePartitionStates: write.create_partition_states,
            ef.ListDeletions: read.list_deletions,
            ef.MarkForDeletion: write.mark_for_deletion,
            ef.UnmarkForDeletion: write.unmark_for_deletion,
            ef.RemovePartitionNodes: write.remove_partition_nodes,
            ef.RemoveTopicNodes: write.remove_topic_nodes,
            ef.ReadReassignments: read.read_reassignments,
            ef.WriteReassignments: write.write_reassignments,
            ef.ReadPreferredElection: read.read_preferred_election,
            ef.RemovePreferredElection: write.remove_preferred_election,
            ef.ReadIsrNotifications: read.read_isr_notifications,
            ef.ReadLogDirNotifications: read.read_log_dir_notifications,
            ef.RemoveNotifications: write.remove_notifications,
            ef.ReadFeatures: read.read_features,
            ef.WriteFeatures: write.write_features,
            ef.ReadProducerIds: write.read_producer_ids,
            ef.WriteProducerIds: write.write_producer_ids,
            ef.AlterUsers: write.alter_users,
        }

    @property
    def fence_version(self) -> int | None:
        """The version of `/controller_epoch` that writes stand on; None before a claim."""
        return self._fence.version

    async def perform(self, effect: ef.Effect[R]) -> R:
        """The reply to any effect but Flush and Draw, which are the driver's."""
        performer = self._performers[type(effect)]
        if self._in_doubt:
            await calls.reading(self._client.sync)
            self._in_doubt = False
        reply = await performer(effect)
        self._in_doubt = reply is Code.UNKNOWN or (
            isinstance(reply, dict) and Code.UNKNOWN in reply.values()
        )
        return cast(R, reply)
