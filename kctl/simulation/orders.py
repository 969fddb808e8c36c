"""What brokers are owed when something is decided about them: nobody is left in the dark.

Whether a request arrives is the channels' affair; here it matters that it was sent at all.
"""

from typing import TYPE_CHECKING

from kctl.messages.requests import LeaderAndIsrRequest, Request, StopReplicaRequest
from kctl.model.names import BrokerId, TopicPartition
from kctl.simulation.ledger import TopicRecord

if TYPE_CHECKING:
    from kctl.simulation.controllers import ControllerProcess
    from kctl.simulation.safety import Safety

Office = tuple[int, BrokerId, int]
"""A controller's epoch, a broker and its epoch."""


class Orders:
    def __init__(self, safety: "Safety") -> None:
        self._safety = safety
        self._leading: dict[Office, dict[TopicPartition, None]] = {}
        """Partitions whose leader a broker is, by what it was told last."""
        self._dismissed: dict[tuple[BrokerId, TopicPartition], None] = {}
        """Replicas that a controller has taken out of an assignment in what it is doing."""
        self._stopped: dict[tuple[BrokerId, TopicPartition], None] = {}

    def claimed(self) -> None:
        """What the last controller still had to say died with its term."""
        self._dismissed.clear()
        self._stopped.clear()

    def queued(self, request: Request) -> None:
        if isinstance(request, LeaderAndIsrRequest):
            leading = self._leads(request.controller_epoch, request.broker, request.broker_epoch)
            for tp, row in request.rows.items():
                if row.leader == request.broker:
                    leading[tp] = None
                else:
                    leading.pop(tp, None)
        elif isinstance(request, StopReplicaRequest):
            leading = self._leads(request.controller_epoch, request.broker, request.broker_epoch)
            for tp, order in request.partitions.items():
                leading.pop(tp, None)
                if order.delete:
                    self._stopped[request.broker, tp] = None

    def _leads(self, *office: int) -> dict[TopicPartition, None]:
        epoch, broker, incarnation = office
        return self._leading.setdefault((epoch, broker, incarnation), {})

    def reassigned(self, topic: str, old: TopicRecord | None) -> None:
        """A controller wrote a topic: who is no replica any more?"""
        ledger = self._safety.ledger
        new = ledger.topics.get(topic)
        if old is None or new is None or topic in ledger.marked:
            return
        for partition, before in (old.partitions or {}).items():
            tp = TopicPartition(topic, partition)
            after = (new.partitions or {}).get(partition)
            if after is not None and ledger.states.get(tp) is not None:
                gone = [b for b in before.replicas if b not in after.replicas]
                self._dismissed.update(dict.fromkeys((b, tp) for b in gone))

    def handled(self, process: "ControllerProcess") -> None:
        """L5: replicas that leave an assignment are told to delete what they have (KAFKA-13972)."""
        cluster = process.node.cluster
        if cluster is not None and cluster.epoch == self._safety.ledger.epoch:
            for broker, tp in self._dismissed:
                told = (broker, tp) in self._stopped or broker not in cluster.brokers
                self._safety.check(
                    "L5",
                    told,
                    f"broker {broker} is not told to delete {tp}, which left it",
                    str(tp),
                )
            self._dismissed.clear()
            self._stopped.clear()

    def check_leave(self, process: "ControllerProcess", broker: BrokerId) -> None:
        """S16: who may go has been told of each leader that came in its place (KAFKA-7482): else it
        takes records until it is gone, and nobody has them."""
        ledger, cluster = self._safety.ledger, process.node.cluster
        if cluster is None or broker not in cluster.brokers:
            return
        incarnation = cluster.brokers[broker].epoch
        for tp in self._leads(cluster.epoch, broker, incarnation):
            state = ledger.states.get(tp)
            if state is not None and tp.topic not in ledger.marked and tp in cluster.rows:
                message = f"{broker} was not told that it does not lead {tp} any more: {state}"
                self._safety.check("S16", state.leader == broker, message, str(tp))
