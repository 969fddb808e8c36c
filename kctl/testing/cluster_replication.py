"""Followers that catch up: what makes an ISR grow again, without any records.

A real leader asks the controller for a larger ISR when a follower has fetched all that it has. Here
a follower has caught up as soon as it and its leader were told that they are. Whoever wants it to
lag hooks AlterPartition, or the LeaderAndIsr that makes it follow.
"""

import asyncio
from collections.abc import Mapping

from kctl.brokers.simulated import SimulatedBroker
from kctl.messages import events as ev
from kctl.model.cluster import ClusterState
from kctl.model.names import BrokerId, TopicPartition
from kctl.model.rows import Leadership
from kctl.runtime.controller import Controller
from kctl.testing.cluster_hooks import Hooks, Request
from kctl.testing.simulated import RegisteredBrokers

AGAIN_S = 0.02
ALTER_PARTITION_BY_NAME = 1

Proposals = dict[tuple[BrokerId, str], dict[TopicPartition, ev.IsrProposal]]
"""By leader and topic."""


def caught_up(cluster: ClusterState, brokers: RegisteredBrokers) -> Proposals:
    """What leaders have reason to ask for now."""
    wanted: Proposals = {}
    live = {b: brokers[b] for b in brokers.live}
    for tp, row in cluster.rows.items():
        led = row.leadership
        if led is None or led.leader not in live or not knows(live[led.leader], tp, led):
            continue
        joined = followers_in_step(live, tp, row.replicas, led)
        if joined or led.recovering:
            proposal = ev.IsrProposal((*led.isr, *joined), led.leader_epoch, led.zk_version)
            wanted.setdefault((led.leader, tp.topic), {})[tp] = proposal
    return wanted


def followers_in_step(
    live: Mapping[BrokerId, SimulatedBroker],
    tp: TopicPartition,
    replicas: tuple[BrokerId, ...],
    led: Leadership,
) -> tuple[BrokerId, ...]:
    """Those out of the ISR that were told to follow this leader in this epoch."""
    if len(led.isr) == len(replicas):
        return ()
    return tuple(b for b in replicas if b not in led.isr and b in live and knows(live[b], tp, led))


def knows(broker: SimulatedBroker, tp: TopicPartition, led: Leadership) -> bool:
    """It hosts the replica, and was told of this leader and epoch."""
    hosted = broker.belief.hosted.get(tp)
    return (
        hosted is not None
        and hosted.started
        and (hosted.state.leader, hosted.state.leader_epoch) == (led.leader, led.leader_epoch)
    )


class Replication:
    """Lets followers catch up for as long as `run` runs."""

    def __init__(self, controller: Controller, brokers: RegisteredBrokers, hooks: Hooks) -> None:
        self._controller = controller
        self._brokers = brokers
        self._hooks = hooks
        self._changed = asyncio.Event()
        self._asking: dict[tuple[BrokerId, str], None] = {}
        """A leader has one request for a topic on its way at a time."""

    async def run(self) -> None:
        unsubscribe = self._controller.on_handled(lambda _done: self._changed.set())
        try:
            async with asyncio.TaskGroup() as requests:
                while True:
                    self._changed.clear()
                    cluster = self._controller.state
                    wanted = {} if cluster is None else caught_up(cluster, self._brokers)
                    for key, proposals in wanted.items():
                        if key not in self._asking:
                            self._asking[key] = None
                            requests.create_task(self._alter_partitions(*key, proposals))
                    await self._next_look(soon=bool(wanted))
        finally:
            unsubscribe()

    async def _next_look(self, *, soon: bool) -> None:
        try:
            # What was dropped or refused is asked for again.
            async with asyncio.timeout(AGAIN_S if soon else None):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _alter_partitions(
        self, leader: BrokerId, topic: str, proposals: Mapping[TopicPartition, ev.IsrProposal]
    ) -> None:
        request = Request(leader, "AlterPartition", (topic,), proposals)
        epoch = self._brokers[leader].epoch
        try:
            if await self._hooks.arrives(request):
                await self._controller.ask(
                    lambda caller: ev.AlterPartitionReceived(
                        caller, leader, epoch, ALTER_PARTITION_BY_NAME, proposals
                    )
                )
        finally:
            del self._asking[leader, topic]
