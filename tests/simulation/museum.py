"""The bug museum: bugs that Kafka's controller once had, put back into this one by a patch.

Each exhibit changes one thing, names the bug it stands for, and must be noticed by the simulator.
The patches live here and nowhere in the product.
"""

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest

from kctl.logic import (
    broker_answers,
    broker_changes,
    controllership,
    deletion,
    dispatch,
    failover,
    isr_changes,
    partitions,
    reassignment,
    recipients,
    replicas,
    topics,
    writing,
)
from kctl.logic.elections import Strategy
from kctl.messages import answers
from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.messages import queue as queues
from kctl.messages.outbox import Outbox
from kctl.model.cluster import ClusterState, Node
from kctl.model.codes import Code, KafkaError, Malformed
from kctl.model.names import TopicPartition
from kctl.model.rows import Assignment, Leadership, Replicas, Row
from kctl.simulation import channels
from kctl.simulation import controllers as processes
from kctl.zookeeper import batches, paths
from kctl.zookeeper import controllership as store_controllership
from kctl.zookeeper import writing as store_writes
from kctl.zookeeper.multi import Check

Patch = pytest.MonkeyPatch


@attrs.frozen
class Exhibit:
    number: int
    """In the list of bugs of the ZooKeeper controller."""
    bug: str
    put_back: Callable[[Patch], None]

    def __str__(self) -> str:
        return self.bug


EXHIBITS: list[Exhibit] = []


def exhibit(number: int, bug: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def add(put_back: Callable[[Patch], None]) -> Callable[[Patch], None]:
        EXHIBITS.append(Exhibit(number, bug, put_back))
        return put_back

    return add


# -- election, sessions, zombies -------------------------------------------------------------


@exhibit(1, "KAFKA-6082 a controller that was replaced goes on writing")
def unfenced_writes(patch: Patch) -> None:
    """The fence always holds: the multi checks a znode whose version never changes."""

    def check(fence: batches.Fence) -> Check:
        return Check(paths.TOPICS, 0)

    patch.setattr(batches.Fence, "check", check)


@exhibit(2, "KAFKA-1096 a zombie learns the new epoch and uses it as its own")
def adopted_epoch(patch: Patch) -> None:
    async def maybe_resign(node: Node, outbox: Outbox) -> bool:
        seen = await ef.ReadControllership()
        if node.cluster is not None and seen.epoch is not None:
            node.cluster.epoch = seen.epoch
            return True
        return seen.controller is not None and seen.controller.ours

    patch.setattr(controllership, "maybe_resign", maybe_resign)


@exhibit(5, "KAFKA-4447 queued events are handled after the resignation")
def events_after_resignation(patch: Patch) -> None:
    """Session expiry neither drops the queue nor the cluster."""

    def clear_and_put(queue: queues.EventQueue, event: ev.Event) -> list[answers.Answer]:
        queue.put(event)
        return []

    patch.setattr(queues.EventQueue, "clear_and_put", clear_and_put)
    patch.setattr(controllership, "resign", lambda *_: None)
    patch.setattr(processes.ControllerProcess, "_end_term", lambda *_: None)


@exhibit(6, "KAFKA-5310 what was known before the resignation is believed after the next election")
def state_not_cleared(patch: Patch) -> None:
    remembered: dict[int, ClusterState] = {}
    elect = controllership.elect

    async def elect_with_memory(node: Node, outbox: Outbox) -> ClusterState | None:
        cluster = await elect(node, outbox)
        if cluster is not None:
            old = remembered.get(id(node))
            remembered[id(node)] = cluster
            if old is not None:
                cluster.rows.update(old.rows)
                cluster.topics.update(old.topics)
                cluster.reassigning.update(old.reassigning)
        return cluster

    patch.setattr(controllership, "elect", elect_with_memory)


@exhibit(7, "KAFKA-928 after a re-election in the same process new topics are ignored")
def flag_not_cleared(patch: Patch) -> None:
    on_topic_change = topics.on_topic_change

    async def on_change(cluster: ClusterState, outbox: Outbox) -> None:
        if cluster.epoch == 1:
            await on_topic_change(cluster, outbox)

    patch.setattr(topics, "on_topic_change", on_change)


@exhibit(11, "KAFKA-1387 the ephemeral node of one's own earlier session is taken for one's own")
def own_old_ephemeral(patch: Patch) -> None:
    """By the id in it; and so is the epoch that goes with it."""
    elect = controllership.elect
    read = store_controllership.Controllership.read

    async def elect_believing_the_id(node: Node, outbox: Outbox) -> ClusterState | None:
        seen = await ef.ReadControllership()
        holder = seen.controller
        if holder is None or holder.broker_id != node.settings.controller_id:
            return await elect(node, outbox)
        node.active_id = holder.broker_id
        node.cluster = ClusterState(node.settings, seen.epoch or 0, seen.epoch_zk_version)
        return node.cluster

    async def read_believing_the_id(own: Any, effect: ef.ReadControllership) -> ef.Controllership:
        seen = await read(own, effect)
        if seen.controller is not None and seen.controller.broker_id == own._controller_id:
            own._fence.version = seen.epoch_zk_version
        return seen

    patch.setattr(controllership, "elect", elect_believing_the_id)
    patch.setattr(store_controllership.Controllership, "read", read_believing_the_id)


@exhibit(22, "KAFKA-10193 callers whose events are dropped wait for ever")
def callers_not_answered(patch: Patch) -> None:
    patch.setattr(queues, "preempted", lambda _: None)
    patch.setattr(processes, "preempted", lambda _: None)
    patch.setattr(dispatch, "preempted", lambda _: None)


@exhibit(28, "one malformed registration stops every controller")
def poison(patch: Patch) -> None:
    def strict(cluster: ClusterState, found: Mapping[int, Any], outbox: Outbox) -> dict[int, Any]:
        for broker in found.values():
            if isinstance(broker, Malformed):
                raise TypeError(broker.reason)
        return dict(found)

    patch.setattr(broker_changes, "usable_brokers", strict)
    patch.setattr(failover, "usable_brokers", strict)


# -- brokers and channels --------------------------------------------------------------------


@exhibit(29, "KAFKA-7235 a broker that bounced between two reads is not noticed")
def unseen_bounce(patch: Patch) -> None:
    usable = broker_changes.usable_brokers

    def with_old_epochs(
        cluster: ClusterState, found: Mapping[int, Any], outbox: Outbox
    ) -> dict[int, Any]:
        return {
            b: attrs.evolve(broker, epoch=cluster.brokers[b].epoch)
            if b in cluster.brokers
            else broker
            for b, broker in usable(cluster, found, outbox).items()
        }

    patch.setattr(broker_changes, "usable_brokers", with_old_epochs)


@exhibit(30, "KAFKA-9839 a broker that refused once stays stale")
def refusals_ignored(patch: Patch) -> None:
    patch.setattr(broker_answers, "resync_later", lambda *_: None)


@exhibit(38, "KAFKA-7482 the leaving leader is not told that it leads no more")
def leaver_not_told(patch: Patch) -> None:
    recipients_of = partitions.lisr_recipients

    def without_leavers(
        cluster: ClusterState, tp: TopicPartition, row: Row, strategy: Strategy
    ) -> Replicas:
        told = recipients_of(cluster, tp, row, strategy)
        return tuple(b for b in told if b not in cluster.shutting_down)

    patch.setattr(partitions, "lisr_recipients", without_leavers)


@exhibit(39, "KAFKA-1738 a request is lost when the connection dies before its answer")
def request_lost(patch: Patch) -> None:
    def skip(channel: channels.Channel, attempt: int) -> None:
        if not channel.closed and attempt == channel._attempt:
            channel._queue.popleft()
            channel._busy = False
            channel._pump()

    patch.setattr(channels.Channel, "_again", skip)


@exhibit(67, "KAFKA-4443 LeaderAndIsr reaches a broker before it knows the live brokers")
def leaders_before_live_brokers(patch: Patch) -> None:
    patch.setattr(recipients, "_seal_live_brokers", lambda *_: None)


# -- leader epochs, ISRs ---------------------------------------------------------------------


@exhibit(45, "KAFKA-2729 a row whose version is behind is never read again")
def stale_version_for_ever(patch: Patch) -> None:
    async def give_up(
        cluster: ClusterState,
        result: writing.Written,
        proposals: Mapping[TopicPartition, Leadership],
        doubtful: Mapping[TopicPartition, Code],
    ) -> None:
        result.failed.update(dict.fromkeys(doubtful, "cached version not equal"))

    patch.setattr(writing, "_read_back", give_up)


def judged(patch: Patch, change: Callable[..., Leadership | KafkaError]) -> None:
    """Replace the judgement on a proposal; `change` gets the true one first."""
    judge = isr_changes.judge

    def changed(
        cluster: ClusterState,
        tp: TopicPartition,
        event: ev.AlterPartitionReceived,
        proposal: ev.IsrProposal,
    ) -> Leadership | KafkaError:
        return change(judge(cluster, tp, event, proposal), cluster, tp, event, proposal)

    patch.setattr(isr_changes, "judge", changed)


def as_proposed(
    cluster: ClusterState, tp: TopicPartition, event: Any, proposal: ev.IsrProposal
) -> Leadership | None:
    row = cluster.rows.get(tp)
    if row is None or row.leadership is None:
        return None
    current = row.leadership
    if (proposal.leader_epoch, proposal.partition_epoch) != (
        current.leader_epoch,
        current.zk_version,
    ):
        return None
    return Leadership(
        event.broker,
        tuple(proposal.isr),
        current.leader_epoch,
        cluster.epoch,
        current.zk_version,
        proposal.recovering,
    )


@exhibit(46, "KAFKA-14144 a repeated proposal is refused although it was carried out")
def no_idempotence(patch: Patch) -> None:
    def change(true: Any, cluster: Any, tp: Any, event: Any, proposal: ev.IsrProposal) -> Any:
        row = cluster.rows.get(tp)
        if isinstance(true, Leadership) and row is not None and true is row.leadership:
            return KafkaError.FENCED_LEADER_EPOCH
        return true

    judged(patch, change)


@exhibit(47, "KAFKA-14154 a zombie answers with authority")
def zombie_with_authority(patch: Patch) -> None:
    def change(true: Any, *_: Any) -> Any:
        return KafkaError.FENCED_LEADER_EPOCH if true is KafkaError.NOT_CONTROLLER else true

    judged(patch, change)


@exhibit(49, "KAFKA-14140 a replica that is offline or leaving is put back into the ISR")
def offline_replica_in_isr(patch: Patch) -> None:
    def change(true: Any, cluster: Any, tp: Any, event: Any, proposal: Any) -> Any:
        if true in (KafkaError.INELIGIBLE_REPLICA, KafkaError.OPERATION_NOT_ATTEMPTED):
            return as_proposed(cluster, tp, event, proposal) or true
        return true

    judged(patch, change)


@exhibit(50, "KIP-903 a delayed proposal puts a broker with a new, empty disk into the ISR")
def outsiders_not_fenced(patch: Patch) -> None:
    take_offline = replicas.take_offline

    async def without_fence(
        cluster: ClusterState, gone: Mapping[TopicPartition, Replicas], *args: Any, **kwargs: Any
    ) -> Any:
        kwargs["fenced"] = dict.fromkeys(gone)
        return await take_offline(cluster, gone, *args, **kwargs)

    for module in (broker_changes, failover):
        patch.setattr(module, "take_offline", without_fence)


@exhibit(51, "a proposal is accepted from anybody, for any ISR")
def unchecked_proposals(patch: Patch) -> None:
    def change(true: Any, cluster: Any, tp: Any, event: Any, proposal: Any) -> Any:
        if true is KafkaError.INVALID_REQUEST:
            return as_proposed(cluster, tp, event, proposal) or true
        return true

    judged(patch, change)


@exhibit(52, "KAFKA-708 the last member leaves the ISR")
def empty_isr(patch: Patch) -> None:
    def removed(leadership: Leadership, gone: Any, controller_epoch: int) -> Leadership | None:
        isr = tuple(b for b in leadership.isr if b not in gone)
        leader = -1 if leadership.leader in gone else leadership.leader
        if isr == leadership.isr and leader == leadership.leader:
            return None
        return Leadership(
            leader, isr, leadership.leader_epoch + 1, controller_epoch, leadership.zk_version
        )

    patch.setattr(replicas, "removed_from_isr", removed)


@exhibit(55, "KAFKA-9212 the leader epoch rises in ZooKeeper but not in the cache")
def cached_epoch_behind(patch: Patch) -> None:
    """Phase A of a reassignment: everybody is told the old epoch."""
    write = writing.write_leaderships

    async def forget_the_epoch(cluster: ClusterState, proposals: Any, *args: Any) -> Any:
        before = {tp: cluster.rows[tp] for tp in proposals}
        written = await write(cluster, proposals, *args)
        for tp in written.done:
            row = cluster.rows[tp]
            old = before[tp].leadership
            assert row.leadership is not None
            assert old is not None
            if row.leader == old.leader and row.isr == old.isr:
                behind = Leadership(
                    row.leader, row.isr, old.leader_epoch, cluster.epoch, row.leadership.zk_version
                )
                cluster.put(tp, row.led(behind))
        return written

    patch.setattr(reassignment, "write_leaderships", forget_the_epoch)


# -- deletion --------------------------------------------------------------------------------


@exhibit(64, "KAFKA-9539 StopReplica of a deletion has an ordinary leader epoch")
def deletion_without_sentinel(patch: Patch) -> None:
    patch.setattr(recipients, "EPOCH_DURING_DELETE", 0)


@exhibit(73, "KAFKA-6650 an interrupted deletion is not resumed")
def deletion_not_resumed(patch: Patch) -> None:
    async def only_the_known(cluster: ClusterState, marked: Any, outbox: Outbox) -> None:
        for topic in marked:
            known = cluster.topics.get(topic)
            if known is not None and all(
                cluster.rows[tp].leadership is not None for tp in known.partitions.values()
            ):
                cluster.queue_deletion(topic)

    patch.setattr(failover, "_queue_deletions", only_the_known)


@exhibit(74, "KAFKA-10548 a broker dies while it deletes, and the topic waits for ever")
def deletion_waits_for_the_dead(patch: Patch) -> None:
    async def nothing(*_: Any) -> None:
        return None

    patch.setattr(deletion, "fail_replicas", nothing)


@exhibit(84, "a deletion leaves the topic's config behind")
def config_left(patch: Patch) -> None:
    def elsewhere(name: str) -> str:
        return f"{paths.topic_config(name)}-none"

    patch.setattr(store_writes, "paths", _PathsWith(paths, topic_config=elsewhere))


class _PathsWith:
    """A module with one function replaced, for one of its users only."""

    def __init__(self, module: Any, **replaced: Any) -> None:
        self._module = module
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


# -- reassignment, topic ids -----------------------------------------------------------------


@exhibit(53, "KAFKA-1097 a removed replica stays in the ISR")
def removed_replica_in_isr(patch: Patch) -> None:
    def keep_all(
        cluster: ClusterState, tp: TopicPartition, leadership: Leadership, keep: Replicas
    ) -> Leadership | None:
        leader = next((b for b in keep if b in leadership.isr and cluster.is_online(b, tp)), None)
        if leader is None:
            return None
        return Leadership(
            leader,
            leadership.isr,
            leadership.leader_epoch + 1,
            cluster.epoch,
            leadership.zk_version,
        )

    patch.setattr(reassignment, "_narrowed", keep_all)


@exhibit(65, "KAFKA-13972 a cancelled reassignment leaves the added replica running")
def cancelled_but_not_stopped(patch: Patch) -> None:
    retire = replicas.retire

    def only_removing(
        cluster: ClusterState, outbox: Outbox, tp: TopicPartition, brokers: Replicas
    ) -> None:
        adding = cluster.rows[tp].assignment.adding
        retire(cluster, outbox, tp, brokers)
        for broker in brokers:
            stopped = outbox.gathered.stop.get(broker, {})
            if broker in adding:
                stopped.pop(tp, None)

    patch.setattr(reassignment, "retire", only_removing)


@exhibit(70, "KAFKA-12835 rewriting a topic loses its id")
def topic_id_lost(patch: Patch) -> None:
    compose = writing.compose

    def without_id(
        cluster: ClusterState, topic: str, change: Mapping[int, Assignment]
    ) -> ef.TopicNode:
        node = compose(cluster, topic, change)
        return attrs.evolve(node, topic_id=None) if change else node

    patch.setattr(writing, "compose", without_id)


@exhibit(85, "KAFKA-9089 memory takes the new assignment before ZooKeeper has it")
def memory_before_zookeeper(patch: Patch) -> None:
    async def pretend(cluster: ClusterState, assignments: Any, outbox: Outbox) -> dict[Any, str]:
        return {}

    patch.setattr(reassignment, "write_assignments", pretend)


@exhibit(87, "KAFKA-4214 a reassignment is not resumed by the next controller")
def reassignment_not_resumed(patch: Patch) -> None:
    async def nothing(*_: Any) -> None:
        return None

    patch.setattr(reassignment, "resume", nothing)
