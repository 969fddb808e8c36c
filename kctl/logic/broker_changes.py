"""Brokers that start, fail, restart unnoticed, or change their endpoints."""

from collections.abc import Iterable, Mapping

from kctl.logic import deletion, reassignment
from kctl.logic.chunks import CHUNK, chunks, paced
from kctl.logic.partitions import trigger_online
from kctl.logic.recipients import (
    flush,
    stop_replica,
    tell_departed,
    tell_leadership,
    tell_live_brokers,
)
from kctl.logic.replicas import replicas_on, take_offline, take_online, tell_everything
from kctl.logic.topics import mint_missing_topic_ids, repair_assignments
from kctl.messages.effects import Flush, ReadBrokers
from kctl.messages.events import BrokerModifications, BrokerResync, BrokerVersions
from kctl.messages.outbox import Outbox, StartTimer
from kctl.messages.requests import Connect, Disconnect
from kctl.model.brokers import Broker
from kctl.model.cluster import ClusterState
from kctl.model.codes import Malformed
from kctl.model.names import BrokerId, TopicPartition
from kctl.model.rows import Replicas
from kctl.model.states import PartitionState

IDS = "/brokers/ids/"


async def on_broker_change(cluster: ClusterState, outbox: Outbox) -> None:
    """Compare the registrations with memory; a larger epoch under a known id is a bounce."""
    registered = usable_brokers(cluster, await ReadBrokers(), outbox)
    known = cluster.brokers
    new = [b for b in sorted(registered) if b not in known]
    dead = [b for b in sorted(known) if b not in registered]
    bounced = [b for b in sorted(registered) if b in known and registered[b].epoch > known[b].epoch]
    if new:
        _connect(cluster, [registered[b] for b in new], outbox)
        await on_broker_startup(cluster, new, outbox)
    if bounced:
        await on_broker_failure(cluster, bounced, outbox)
        _connect(cluster, [registered[b] for b in bounced], outbox)
        await on_broker_startup(cluster, bounced, outbox)
    if dead:
        await on_broker_failure(cluster, dead, outbox)
    for broker, registration in registered.items():
        _note_endpoints(cluster, broker, registration, outbox)


def usable_brokers(
    cluster: ClusterState, found: Mapping[BrokerId, Broker | Malformed], outbox: Outbox
) -> dict[BrokerId, Broker]:
    """A registration that cannot be understood keeps its broker as it was, and hurts no other."""
    usable: dict[BrokerId, Broker] = {}
    for broker, registration in found.items():
        if isinstance(registration, Malformed):
            if cluster.quarantine.get(registration.path) != registration.reason:
                outbox.tell("quarantined", registration.reason, key=registration.path)
            cluster.quarantine[registration.path] = registration.reason
            if broker in cluster.brokers:
                usable[broker] = cluster.brokers[broker]
        else:
            cluster.heal(f"{IDS}{broker}")
            usable[broker] = registration
    malformed = {r.path: None for r in found.values() if isinstance(r, Malformed)}
    for path in [p for p in cluster.quarantine if p.startswith(IDS) and p not in malformed]:
        cluster.heal(path)
    return usable


def _connect(cluster: ClusterState, brokers: Iterable[Broker], outbox: Outbox) -> None:
    for broker in brokers:
        cluster.add_broker(broker)
        outbox.dispatches.append(Connect(broker))


async def on_broker_startup(cluster: ClusterState, ids: list[BrokerId], outbox: Outbox) -> None:
    """Others learn of the newcomers, who are told everything; then see what they make possible."""
    why = f"broker {_list(ids)} started"
    outbox.tell("broker started", why, key=_list(ids))
    tell_live_brokers(outbox, cluster.brokers)
    tell_departed(cluster, outbox, ids)
    await take_online(cluster, await replicas_on(cluster, ids), outbox)
    await tell_everything(cluster, ids, outbox)
    await repair_assignments(cluster, outbox)
    await mint_missing_topic_ids(cluster, outbox)
    await trigger_online(cluster, outbox, why)
    await reassignment.resume_on_brokers(cluster, ids, outbox)
    await deletion.resume_on_brokers(cluster, ids, outbox)


async def on_broker_failure(cluster: ClusterState, ids: list[BrokerId], outbox: Outbox) -> None:
    why = f"broker {_list(ids)} is gone"
    outbox.tell("broker gone", why, key=_list(ids))
    # One that left by a controlled shutdown was fenced then: its epochs need not rise again.
    left_properly = [b for b in ids if b in cluster.shutting_down]
    for broker in ids:
        cluster.remove_broker(broker)
        outbox.dispatches.append(Disconnect(broker))
    replicas = await replicas_on(cluster, ids)
    fenced: Mapping[TopicPartition, object] = {}
    if len(left_properly) == len(ids):
        fenced = replicas
    elif left_properly:
        fenced = await _of_those_alone(replicas, tuple(left_properly))
    await replicas_become_offline(cluster, replicas, outbox, why, fenced)


async def _of_those_alone(
    replicas: Mapping[TopicPartition, Replicas], brokers: Replicas
) -> dict[TopicPartition, None]:
    """Partitions of which no other broker's replica is concerned."""
    found: dict[TopicPartition, None] = {}
    for pause, chunk in paced(replicas.items(), 2 * CHUNK):
        if pause:
            await Flush()
        found.update([(tp, None) for tp, gone in chunk if all(b in brokers for b in gone)])
    return found


async def replicas_become_offline(
    cluster: ClusterState,
    replicas: Mapping[TopicPartition, Replicas],
    outbox: Outbox,
    why: str,
    fenced: Mapping[TopicPartition, object],
) -> None:
    """Brokers or log dirs are gone: elect new leaders first, then shrink ISRs."""
    doomed: Mapping[TopicPartition, Replicas] = {}
    others = replicas
    if cluster.deletions:
        doomed = {tp: bs for tp, bs in replicas.items() if not cluster.is_led(tp)}
        others = {tp: bs for tp, bs in replicas.items() if cluster.is_led(tp)}
    for chunk in chunks(others):
        for tp in chunk:
            row = cluster.rows[tp]
            if row.state is PartitionState.ONLINE and row.leader in others[tp]:
                cluster.put(tp, row.in_state(PartitionState.OFFLINE))
        await flush(cluster, outbox)
    elected = await trigger_online(cluster, outbox, why)
    await take_offline(cluster, others, outbox, why, fenced={**fenced, **elected})
    if doomed:
        await deletion.fail_replicas(cluster, doomed, outbox, why)
    # Everybody learns of the broker list even when no partition was concerned.
    tell_live_brokers(outbox, cluster.brokers)
    await flush(cluster, outbox)


async def on_broker_modifications(
    cluster: ClusterState, event: BrokerModifications, outbox: Outbox
) -> None:
    found = usable_brokers(cluster, await ReadBrokers(), outbox)
    registration = found.get(event.broker)
    known = cluster.brokers.get(event.broker)
    if registration is None or known is None or registration.epoch != known.epoch:
        return await on_broker_change(cluster, outbox)
    _note_endpoints(cluster, event.broker, registration, outbox)
    return None


def _note_endpoints(
    cluster: ClusterState, broker: BrokerId, registration: Broker, outbox: Outbox
) -> None:
    known = cluster.brokers.get(broker)
    if known is None or known.epoch != registration.epoch:
        return
    if known.endpoints != registration.endpoints or known.features != registration.features:
        cluster.update_broker(registration)
        outbox.tell("broker changed", "its registration has other endpoints", key=str(broker))
        tell_live_brokers(outbox, cluster.brokers)


async def on_broker_resync(cluster: ClusterState, event: BrokerResync, outbox: Outbox) -> None:
    """It missed requests: the same as after its start, and the deletions that it still owes."""
    broker = cluster.brokers.get(event.broker)
    if broker is None or broker.epoch != event.broker_epoch:
        return
    cluster.told.pop(broker.id, None)
    tell_departed(cluster, outbox, (broker.id,))
    tell_live_brokers(outbox, (broker.id,))
    for chunk in chunks(list(cluster.partitions_on(broker.id))):
        for tp in chunk:
            row = cluster.rows[tp]
            if row.leadership is not None and cluster.is_led(tp):
                tell_leadership(cluster, outbox, tp, (broker.id,))
        await flush(cluster, outbox)
    await tell_everything(cluster, (broker.id,), outbox)
    owed = dict.fromkeys(event.owed_deletions)
    owed.update(dict.fromkeys(deletion.started_on(cluster, broker.id)))
    for tp in owed:
        if tp.topic in cluster.deletions or tp not in cluster.partitions_on(broker.id):
            stop_replica(cluster, outbox, tp, broker.id, delete=True)


def resync_later(cluster: ClusterState, broker: BrokerId, outbox: Outbox) -> None:
    """Anti-entropy: a broker that refused something is told everything again, after a pause."""
    known = cluster.brokers.get(broker)
    if known is not None:
        outbox.timers.append(
            StartTimer(
                f"resync-{broker}",
                cluster.settings.resync_backoff_ms,
                BrokerResync(broker, known.epoch),
            )
        )


async def on_broker_versions(cluster: ClusterState, event: BrokerVersions, outbox: Outbox) -> None:
    cluster.raise_release(event.release)
    await mint_missing_topic_ids(cluster, outbox)


def _list(ids: Iterable[BrokerId]) -> str:
    return ", ".join(map(str, ids))
