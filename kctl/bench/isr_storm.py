"""AlterPartition as leaders send it: one request in flight for each broker."""

import asyncio
from collections.abc import Mapping

from kctl.bench.calls import Line
from kctl.bench.stage import Stage
from kctl.bench.truth import Truth
from kctl.model.names import BrokerId, TopicPartition, topic_id_to_bytes
from kctl.model.rows import Replicas
from kctl.wire import control_plane as cp

VERSION = 3

Asked = list[tuple[TopicPartition, Replicas]]


class Refused(Exception):
    """The controller did not do what it was rightly asked for."""


class Leaders:
    """The leaders of a cluster, and what they know of their partitions' versions."""

    def __init__(self, stage: Stage, truth: Truth | None = None) -> None:
        """With a `truth` of their own, leaders may be refused: somebody else was quicker."""
        self._stage = stage
        self._strict = truth is None
        self._truth = truth or stage.truth
        self.refused = 0
        self._ids = {
            name: topic_id_to_bytes(node.topic_id)
            for name, node in self._truth.topics.items()
            if node.topic_id is not None
        }
        self._names = {topic_id: name for name, topic_id in self._ids.items()}
        self._versions: dict[TopicPartition, int] = {}

    async def ask(self, isrs: Mapping[TopicPartition, Replicas], a_request: int) -> int:
        """For these ISRs, so many in a request; how many requests it took."""
        by_leader: dict[BrokerId, Asked] = {}
        for tp, isr in isrs.items():
            by_leader.setdefault(self._truth.states[tp].leader, []).append((tp, isr))
        counts = await asyncio.gather(
            *(self._lead(broker, asked, a_request) for broker, asked in by_leader.items())
        )
        return sum(counts)

    async def _lead(self, broker: BrokerId, asked: Asked, a_request: int) -> int:
        assert self._stage.system is not None
        count = 0
        async with Line(self._stage.system.address, f"broker-{broker}") as line:
            for at in range(0, len(asked), a_request):
                request = self._request(broker, asked[at : at + a_request])
                answer = await line.call(request, VERSION, cp.AlterPartitionResponse)
                self._note(answer)
                count += 1
        return count

    def _request(self, broker: BrokerId, asked: Asked) -> cp.AlterPartitionRequest:
        brokers = self._stage.brokers
        by_topic: dict[str, list[cp.AlterPartitionData]] = {}
        for tp, isr in asked:
            state = self._truth.states[tp]
            by_topic.setdefault(tp.topic, []).append(
                cp.AlterPartitionData(
                    partition_index=tp.partition,
                    leader_epoch=state.leader_epoch,
                    new_isr_with_epochs=tuple(cp.BrokerState(b, brokers[b].epoch) for b in isr),
                    partition_epoch=self._versions.get(tp, state.zk_version),
                )
            )
        topics = tuple(
            cp.AlterPartitionTopic(topic_id=self._ids[name], partitions=tuple(data))
            for name, data in by_topic.items()
        )
        return cp.AlterPartitionRequest(broker, brokers[broker].epoch, topics)

    def _note(self, answer: cp.AlterPartitionResponse) -> None:
        """Leaders learn the new version of the state from the answer."""
        if answer.error_code:
            self._refuse(f"AlterPartition: error {answer.error_code}")
        for topic in answer.topics:
            name = self._names[topic.topic_id]
            for data in topic.partitions:
                if data.error_code:
                    self._refuse(f"AlterPartition of {name}-{data.partition_index}: {data}")
                else:
                    tp = TopicPartition(name, data.partition_index)
                    self._versions[tp] = data.partition_epoch

    def _refuse(self, reason: str) -> None:
        self.refused += 1
        if self._strict:
            raise Refused(reason)
