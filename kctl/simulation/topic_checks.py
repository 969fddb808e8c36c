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


def check_nothing_left(safety: "Safety", topic: str, old: TopicRecord) -> None:
    """L4: the last znode of a topic goes only when no replica has data of it any more."""
    for partition, assigned in (old.partitions or {}).items():
        tp = TopicPartition(topic, partition)
        for replica in assigned.replicas:
            broker = safety.world.brokers.get(replica)
            log = None if broker is None else broker.logs.get(tp)
            left = log is not None and (log.topic_id is None or log.topic_id == old.id)
            safety.check("L4", not left, f"{topic} is gone, but not {tp} on {replica}", topic)


def is_remembered(safety: "Safety", topic: str, topic_id: str) -> bool:
    """Whether the controller at work knows the id, and can restore it; not one that was replaced."""
    for host in safety.world.controllers.values():
        cluster = None if host.process is None else host.process.node.cluster
        if cluster is not None and cluster.epoch == safety.ledger.epoch and topic in cluster.topics:
            return cluster.topics[topic].id == topic_id
    return False


class TopicHistory:
    def __init__(self) -> None:
        self._ids: dict[str, tuple[str, int]] = {}
        """The topic and the zxid of its creation, by id."""
        self._id_of: dict[tuple[str, int], str] = {}
        self._dropped: dict[tuple[str, int], int] = {}
        """When a tool wrote a topic without its id: how many terms there had been."""
        self.forgotten: dict[str, None] = {}
        """Topics whose id was gone before a new controller looked: it can only make another."""

    def check(
        self,
        safety: "Safety",
        topic: str,
        old: TopicRecord | None,
        *,
        writer: "ControllerProcess | None",
        marked: dict[str, None],
    ) -> None:
        new = safety.ledger.topics.get(topic)
        if new is None:
            if writer is not None and old is not None:
                safety.check(
                    "S15", topic in marked, f"{writer.name} removes the topic {topic}", topic
                )
                check_nothing_left(safety, topic, old)
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
            lost = safety.claims > self._dropped.get((topic, new.born), safety.claims)
            if lost and new.id != known:
                self.forgotten[topic] = None
            else:
                safety.check("S12", new.id == known, f"{topic}: {known} became {new.id}", topic)
                self._dropped.pop((topic, new.born), None)
        elif known is not None and new.id is None:
            at = safety.claims if is_remembered(safety, topic, known) else -1
            self._dropped.setdefault((topic, new.born), at)
        if new.id is not None:
            owner = self._ids.setdefault(new.id, (topic, new.born))
            safety.check("S12", owner == (topic, new.born), f"{new.id} is used twice", topic)
            self._id_of[topic, new.born] = new.id
