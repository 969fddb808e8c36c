"""One ZooKeeper in memory and the controllers that share it, driven step by step and written down.

Nothing here is random or concurrent: a command changes ZooKeeper, tells the controllers what their
watches would tell, and returns what they read, wrote, sent, answered and told, in that order.
"""

from collections.abc import Iterable
from typing import Any, cast

import attrs

from kctl.logic.dispatch import handle
from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.messages.answers import preempted
from kctl.messages.driver import Finished, step
from kctl.messages.outbox import CancelTimers, Outbox, StartTimer
from kctl.messages.queue import EventQueue
from kctl.messages.requests import DisconnectAll
from kctl.messages.term import ControllerMoved
from kctl.model.brokers import Endpoint
from kctl.model.cluster import ClusterState, Node
from kctl.model.codes import Code
from kctl.model.invariants import violations
from kctl.model.names import BrokerId
from kctl.model.settings import LATEST_RELEASE, Settings
from kctl.simulation.memory import MemoryZooKeeper
from tests.scenarios import wording

UNFENCED = (
    ef.Bootstrap,
    ef.CreateControllerEpoch,
    ef.ClaimControllership,
    ef.WriteFeatures,
    ef.WriteProducerIds,
)
WRITES = (
    ef.ReleaseControllership,
    ef.WriteTopics,
    ef.CreateTopicNodes,
    ef.WritePartitions,
    ef.CreatePartitionStates,
    ef.MarkForDeletion,
    ef.UnmarkForDeletion,
    ef.RemovePartitionNodes,
    ef.RemoveTopicNodes,
    ef.WriteReassignments,
    ef.RemovePreferredElection,
    ef.RemoveNotifications,
)
FIRST_CONTROLLER: BrokerId = 1000


def settings_for(controller: BrokerId) -> Settings:
    return Settings(
        controller,
        endpoints=(Endpoint("PLAINTEXT", "controller", 9999),),
        inter_broker_protocol=LATEST_RELEASE,
        auto_leader_rebalance=False,
    )


@attrs.define
class Controller:
    """One candidate, with its queue and timers."""

    node: Node
    queue: EventQueue = attrs.field(factory=EventQueue)
    timers: dict[str, StartTimer] = attrs.field(factory=dict)

    @property
    def id(self) -> BrokerId:
        return self.node.settings.controller_id

    @property
    def cluster(self) -> ClusterState:
        assert self.node.cluster is not None, f"{self.id} is not the active controller"
        return self.node.cluster


@attrs.define
class World:
    zookeeper: MemoryZooKeeper = attrs.field(factory=MemoryZooKeeper)
    controllers: dict[BrokerId, Controller] = attrs.field(factory=dict)
    settings: Settings = attrs.field(factory=lambda: settings_for(FIRST_CONTROLLER))
    czxid: int = 0
    written_behind: bool = False
    """An old leader wrote a state znode and nobody was told yet: the cache may differ."""

    def candidate(self, controller: BrokerId, **changes: Any) -> Controller:
        settings = attrs.evolve(self.settings, controller_id=controller, **changes)
        added = self.controllers[controller] = Controller(Node(settings))
        return added

    def active(self) -> list[Controller]:
        """Those that believe to be the controller; a zombie is one of them."""
        return [c for c in self.controllers.values() if c.node.cluster is not None]

    def happens(self, *events: ev.Event) -> list[str]:
        """What all controllers in office make of it, the older one first."""
        lines = []
        for controller in self.active():
            output = self.run(controller, events)
            if len(self.controllers) > 1:
                output = [f"[{controller.id}] {line}" for line in output]
            lines += output
        return lines

    def run(self, controller: Controller, events: Iterable[ev.Event]) -> list[str]:
        lines: list[str] = []
        for event in events:
            controller.queue.put(event)
        while len(controller.queue):
            lines += self._handle(controller, controller.queue.take())
        self._check(controller)
        return lines

    def _handle(self, controller: Controller, events: tuple[ev.Event, ...]) -> list[str]:
        lines: list[str] = []
        outbox = Outbox()
        procedure = handle(controller.node, events, outbox)
        try:
            wanted = step(procedure)
            while not isinstance(wanted, Finished):
                if isinstance(wanted, ef.Flush):
                    lines += self._flush(controller, outbox)
                lines += wording.effect(wanted, self.zookeeper)
                reply = self._perform(controller, wanted)
                if isinstance(wanted, WRITES):
                    lines += wording.refusals(reply)
                wanted = step(procedure, reply)
        except ControllerMoved as moved:
            procedure.close()
            lines.append(f"     {moved}")
            outbox = Outbox()
            self._end_term(controller, events, outbox)
        lines += self._flush(controller, outbox)
        return lines

    def _end_term(
        self, controller: Controller, events: tuple[ev.Event, ...], outbox: Outbox
    ) -> None:
        controller.node.cluster = None
        outbox.answers += [a for event in events if (a := preempted(event)) is not None]
        outbox.dispatches.append(DisconnectAll())
        outbox.timers.append(CancelTimers())
        outbox.tell("term over", "somebody else is controller", key=str(controller.id))
        controller.queue.put(ev.ControllerChange())

    def _perform(self, controller: Controller, wanted: ef.Effect[Any]) -> object:
        zookeeper = self.zookeeper
        if isinstance(wanted, WRITES):
            cluster = controller.node.cluster
            held = (
                wanted.epoch_zk_version
                if isinstance(wanted, ef.ReleaseControllership)
                else None
                if cluster is None
                else cluster.epoch_zk_version
            )
            if held != zookeeper.epoch_zk_version:
                raise ControllerMoved("refused: /controller_epoch has another version")
        reply = zookeeper.perform(wanted)
        if isinstance(wanted, ef.ClaimControllership) and reply is Code.OK:
            zookeeper.controller = ef.ControllerNode(controller.id, ours=False, kctl=True)
        if isinstance(wanted, ef.ReadControllership):
            seen = cast(ef.Controllership, reply)
            holder = seen.controller
            if holder is not None:
                holder = attrs.evolve(holder, ours=holder.broker_id == controller.id)
            reply = attrs.evolve(seen, controller=holder)
        return reply

    def _flush(self, controller: Controller, outbox: Outbox) -> list[str]:
        lines = wording.dispatches(outbox.dispatches)
        for answer in outbox.answers:
            lines += wording.answer(answer.value)
        lines += map(wording.story, outbox.stories)
        for timer in outbox.timers:
            lines.append(wording.timer(timer))
            if isinstance(timer, StartTimer):
                controller.timers[timer.tag] = timer
            else:
                controller.timers.clear()
        for event in outbox.events:
            lines.append(f"event {type(event).__name__}")
            controller.queue.put(event)
        outbox.dispatches, outbox.answers, outbox.stories = [], [], []
        outbox.timers, outbox.events = [], []
        return lines

    def _check(self, controller: Controller) -> None:
        """The cache is what ZooKeeper holds, and sound in itself."""
        cluster = controller.node.cluster
        if cluster is None or cluster.epoch_zk_version != self.zookeeper.epoch_zk_version:
            return
        assert violations(cluster) == []
        for tp, row in cluster.rows.items():
            known = self.zookeeper.states.get(tp)
            if not self.written_behind and tp not in cluster.poisoned:
                assert row.leadership == known, f"{tp}: {row.leadership} in memory, {known} stored"
        for topic, node in self.zookeeper.topics.items():
            if isinstance(node, ef.TopicNode) and topic in cluster.topics:
                for partition, tp in cluster.topics[topic].partitions.items():
                    assert node.partitions.get(partition) == cluster.rows[tp].assignment, str(tp)
