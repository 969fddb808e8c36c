"""S12, S14 and S15: topics keep their ids, reassignments their algebra, and nobody loses a topic
that was not marked for deletion."""

from typing import TYPE_CHECKING

from kctl.model.names import TopicPartition
from kctl.simulation.ledger import TOPIC, Ledger, TopicRecord
from kctl.simulation.zookeeper_tree import Transaction

if TYPE_CHECKING:
    from kctl.simulation.controllers import ControllerProcess
    from kctl.simulation.safety import Safety


def touched(ledger: Ledger, transaction: Transaction) -> dict[str, TopicRecord | None]:
    return {
        match[1]: ledger.topics.get(match[1])
        for change in transaction.changes
        if change.kind != "check" and (match := TOPIC.match(change.path))
    }


class TopicHistory:
    def __init__(self) -> None:
        self._ids: dict[str, tuple[str, int]] = {}
        """The topic and the zxid of its creation, by id."""
        self._id_of: dict[tuple[str, int], str] = {}

    def check(
        self,
        safety: "Safety",
        topic: str,
        old: TopicRecord | None,
        new: TopicRecord | None,
        writer: "ControllerProcess | None",
        marked: dict[str, None],
    ) -> None:
        if new is None:
            if writer is not None and old is not None:
                safety.check(
                    "S15", topic in marked, f"{writer.name} removes the topic {topic}", topic
                )
            return
        if new.partitions is None:
            safety.check("S14", writer is None, f"a controller wrote rubbish for {topic}", topic)
            return
        self._check_id(safety, topic, new, writer)
        for partition, assigned in new.partitions.items():
            tp = TopicPartition(topic, partition)
            safety.assigned.add((tp, assigned.replicas))
            safety.assigned.add((tp, assigned.target))
            if writer is not None:
                inside = all(b in assigned.replicas for b in (*assigned.adding, *assigned.removing))
                apart = not set(assigned.adding) & set(assigned.removing)
                single = len(set(assigned.replicas)) == len(assigned.replicas)
                good = inside and apart and single and assigned.target
                safety.check("S14", good, f"{tp}: {assigned}", topic)
        if writer is not None and old is not None and old.partitions is not None:
            lost = [p for p in old.partitions if p not in new.partitions]
            known = [p for p in lost if TopicPartition(topic, p) in safety.ledger.states]
            safety.check("S15", not known, f"{writer.name} drops {known} of {topic}", topic)

    def _check_id(
        self,
        safety: "Safety",
        topic: str,
        new: TopicRecord,
        writer: "ControllerProcess | None",
    ) -> None:
        known = self._id_of.get((topic, new.born))
        if known is not None and writer is not None:
            safety.check("S12", new.id == known, f"{topic}: id {known} became {new.id}", topic)
        if new.id is not None:
            owner = self._ids.setdefault(new.id, (topic, new.born))
            safety.check("S12", owner == (topic, new.born), f"{new.id} is used twice", topic)
            self._id_of.setdefault((topic, new.born), new.id)
