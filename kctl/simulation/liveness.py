"""Liveness: what must hold once nothing goes wrong any more. L1 to L10, and memory = ZooKeeper."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import attrs

from kctl.model.cluster import ClusterState
from kctl.model.names import NO_LEADER, BrokerId, TopicPartition
from kctl.model.settings import Release
from kctl.simulation.ledger import Assigned, Ledger, State

if TYPE_CHECKING:
    from kctl.simulation.brokers_model import ModelBroker
    from kctl.simulation.world import World

FIND_IT_ELSEWHERE_SINCE: Release = (3, 0)


@attrs.frozen
class Problem:
    invariant: str
    message: str
    about: tuple[str, ...] = ()


def first_problem(world: "World") -> Problem | None:
    checks: tuple[Callable[[World], Iterator[Problem]], ...] = (
        controller_at_work,
        everybody_answered,
        topics_deleted,
        leaders_elected,
        caches_right,
        replicas_right,
        reassignments_done,
        notes_drained,
        leaders_preferred,
        memory_right,
    )
    for check in checks:
        world.safety.evaluated[check.__name__] += 1
        problem = next(check(world), None)
        if problem is not None:
            return problem
    return None


def cluster_of(world: "World") -> ClusterState | None:
    for host in world.controllers.values():
        process = host.process
        if process is not None and process.client.session_id == world.safety.ledger.controller:
            return process.node.cluster
    return None


def settled(world: "World") -> Iterator[tuple[TopicPartition, Assigned, State | None]]:
    """Partitions that are neither being deleted nor spoilt."""
    ledger = world.safety.ledger
    for topic, record in ledger.topics.items():
        if record.partitions is None or topic in ledger.marked or world.is_spoilt(topic):
            continue
        for partition, assigned in record.partitions.items():
            tp = TopicPartition(topic, partition)
            path = f"/brokers/topics/{topic}/partitions/{partition}/state"
            if path not in world.edited or path in world.healed:
                yield tp, assigned, ledger.states.get(tp)


def up(world: "World", broker: BrokerId, tp: TopicPartition) -> bool:
    model = world.brokers.get(broker)
    return model is not None and model.up and tp not in model.offline


# -- L1, L6 --------------------------------------------------------------------------------------


def controller_at_work(world: "World") -> Iterator[Problem]:
    cluster = cluster_of(world)
    if cluster is None:
        yield Problem("L1", "nobody controls", ("*",))
    elif any(b.release < FIND_IT_ELSEWHERE_SINCE for b in brokers_up(world)):
        own = f"/brokers/ids/{cluster.settings.controller_id}"
        if own not in world.ensemble.tree.nodes:
            yield Problem("L8", f"old brokers look for {own} when they shut down", ("*",))
    active = [host.name for host in world.controllers.values() if host.active]
    if len(active) != 1:
        yield Problem("L1", f"active are {active}", ("*",))


def everybody_answered(world: "World") -> Iterator[Problem]:
    for caller, asked in world.callers.open.items():
        if world.now - asked.time > 1_000:
            yield Problem("L6", f"caller {caller} of {asked.process.name} waits: {asked.event}")


# -- L4, L5, L7 ----------------------------------------------------------------------------------


def topics_deleted(world: "World") -> Iterator[Problem]:
    ledger = world.safety.ledger
    for topic in ledger.marked:
        record = ledger.topics.get(topic)
        if record is None:
            yield Problem("L4", f"the marker of {topic} is left", (topic,))
        elif not world.is_spoilt(topic) and record.partitions is not None:
            replicas = [
                (b, TopicPartition(topic, p))
                for p, assigned in record.partitions.items()
                for b in assigned.replicas
            ]
            if all(up(world, b, tp) for b, tp in replicas):
                yield Problem("L4", f"{topic} is not deleted: {record}", (topic,))
    for path in world.ensemble.tree.children("/config/topics"):
        if path not in ledger.topics and path not in world.removed_by_hand:
            yield Problem("L4", f"the config of {path} is left", (path,))


def reassignments_done(world: "World") -> Iterator[Problem]:
    for tp, assigned, state in settled(world):
        running = assigned.adding or assigned.removing
        led = state is None or state.leader != NO_LEADER
        if running and led and all(up(world, b, tp) for b in assigned.target):
            yield Problem("L5", f"{tp} is still reassigned: {assigned}", (str(tp), tp.topic))
    if not any(b.dead_for_good for b in world.brokers.values()):
        path = "/admin/reassign_partitions"
        if path in world.ensemble.tree.nodes and path not in world.poison:
            stuck = world.ensemble.tree.data(path)
            if not any(world.is_spoilt(t) for t in world.safety.ledger.topics):
                yield Problem("L5", f"{path} is left: {stuck!r}", (path,))


def notes_drained(world: "World") -> Iterator[Problem]:
    tree = world.ensemble.tree
    for path in ("/isr_change_notification", "/log_dir_event_notification"):
        if tree.children(path):
            yield Problem("L7", f"{path} has {tree.children(path)}", (path,))
    path = "/admin/preferred_replica_election"
    if path in tree.nodes and path not in world.poison:
        yield Problem("L7", f"{path} is left", (path,))


# -- L2, L9 --------------------------------------------------------------------------------------


def leaders_elected(world: "World") -> Iterator[Problem]:
    for tp, assigned, state in settled(world):
        about = (str(tp), tp.topic)
        live = [b for b in assigned.replicas if up(world, b, tp)]
        if state is None:
            if live and tp not in world.safety.ledger.states:
                yield Problem("L2", f"{tp} of {assigned} has no state", about)
            continue
        if any(b in state.isr for b in live):
            if state.leader not in live:
                yield Problem("L2", f"{tp} has no live leader: {state} of {assigned}", about)
        elif live and tp.topic in world.safety.ledger.unclean:
            yield Problem("L2", f"{tp} could be led uncleanly: {state} of {assigned}", about)
        elif state.leader != NO_LEADER:
            yield Problem("L2", f"{tp} is led by the dead: {state}", about)


def leaders_preferred(world: "World") -> Iterator[Problem]:
    """Each broker leads what it should, up to the imbalance that is tolerated (10 %)."""
    groups: dict[BrokerId, list[tuple[TopicPartition, State]]] = {}
    for tp, assigned, state in settled(world):
        if state is not None:
            groups.setdefault(assigned.replicas[0], []).append((tp, state))
    for broker, members in groups.items():
        wrong = [(tp, state) for tp, state in members if state.leader != broker]
        could = [tp for tp, state in wrong if up(world, broker, tp) and broker in state.isr]
        if could and len(could) > 0.1 * preferred_by(world.safety.ledger, broker):
            yield Problem("L9", f"{broker} should lead {could[0]}", (str(could[0]),))


def preferred_by(ledger: Ledger, broker: BrokerId) -> int:
    """How many partitions this broker should lead."""
    return sum(
        assigned.replicas[0] == broker
        for topic, record in ledger.topics.items()
        if topic not in ledger.marked
        for assigned in (record.partitions or {}).values()
    )


# -- L3 ------------------------------------------------------------------------------------------


def brokers_up(world: "World") -> "Iterator[ModelBroker]":
    return (broker for broker in world.brokers.values() if broker.up)


def caches_right(world: "World") -> Iterator[Problem]:
    ledger = world.safety.ledger
    expected = dict(settled_with_state(world))
    cluster = cluster_of(world)
    own = [] if cluster is None else [cluster.settings.controller_id]
    for broker in brokers_up(world):
        name = broker.name
        if sorted(broker.live) != sorted([*(b for b in ledger.brokers if b != 99), *own]):
            yield Problem("L3", f"{name} believes in {sorted(broker.live)}", (name,))
        for tp, (assigned, state) in expected.items():
            about = (str(tp), name)
            cached = broker.cache.get(tp)
            if cached is None:
                yield Problem("L3", f"{name} does not know {tp}", about)
                continue
            known = cached.leadership
            seen = (known.leader, known.isr, known.leader_epoch, known.zk_version)
            if seen != (state.leader, state.isr, state.leader_epoch, state.version):
                yield Problem("L3", f"{name} takes {tp} for {seen}, it is {state}", about)
            if cached.replicas != assigned.replicas:
                yield Problem("L3", f"{name}: {tp} on {cached.replicas}, not {assigned}", about)
            offline = tuple(b for b in assigned.replicas if not up(world, b, tp))
            if cached.offline != offline:
                yield Problem("L3", f"{name}: {tp} offline {cached.offline} != {offline}", about)
        for tp in broker.cache:
            gone = tp.topic not in ledger.topics
            # A later controller knows nothing of the topic, and of who did not hear that it is gone.
            told = world.safety.claims_at_mark.get(tp.topic) == world.safety.claims
            if (
                gone
                and told
                and tp.topic not in world.removed_by_hand
                and not world.is_spoilt(tp.topic)
            ):
                yield Problem("L3", f"{name} still knows {tp}", (str(tp), tp.topic, name))


def settled_with_state(
    world: "World",
) -> Iterator[tuple[TopicPartition, tuple[Assigned, State]]]:
    for tp, assigned, state in settled(world):
        if state is not None:
            yield tp, (assigned, state)


def replicas_right(world: "World") -> Iterator[Problem]:
    for tp, (assigned, state) in settled_with_state(world):
        for replica in assigned.replicas:
            # One that is being removed may be gone already; the end of that is L5.
            if replica not in assigned.removing and up(world, replica, tp):
                problem = replica_problem(world.brokers[replica], tp, state)
                if problem is not None:
                    about = (str(tp), tp.topic, f"broker-{replica}")
                    yield Problem("L3", f"{tp} on broker {replica}: {problem} {state}", about)
        if state.leader != NO_LEADER:
            missing = [b for b in assigned.target if up(world, b, tp) and b not in state.isr]
            if missing:
                message = f"{tp}: {missing} do not get in sync: {state}"
                yield Problem("L3", message, (str(tp), tp.topic))


def replica_problem(broker: "ModelBroker", tp: TopicPartition, state: State) -> str | None:
    if state.leader == NO_LEADER:
        return None  # brokers do not take up an epoch without a leader
    hosted = broker.hosted.get(tp)
    if hosted is None:
        return "it is not hosted;"
    if (hosted.leader, hosted.leader_epoch) != (state.leader, state.leader_epoch):
        return f"it follows {hosted.leader} of epoch {hosted.leader_epoch};"
    if hosted.leads:
        if hosted.proposed is not None:
            return f"its proposal {hosted.proposed} is pending;"
        if set(hosted.isr) != set(state.isr) or hosted.partition_epoch != state.version:
            return f"the leader believes in {hosted.isr} v{hosted.partition_epoch};"
    elif not hosted.fetching:
        return "its follower was stopped;"
    return None


# -- memory --------------------------------------------------------------------------------------


def memory_right(world: "World") -> Iterator[Problem]:
    """Rows equal znodes: memory is a function of ZooKeeper."""
    cluster = cluster_of(world)
    assert cluster is not None
    ledger = world.safety.ledger
    yield from memory_of_brokers(cluster, ledger)
    usable = {t: r for t, r in ledger.topics.items() if r.partitions is not None}
    for topic in cluster.topics:
        if topic not in ledger.topics:
            yield Problem("memory", f"{topic} is remembered", (topic,))
    for topic, record in usable.items():
        if world.is_spoilt(topic):
            continue
        if topic not in cluster.topics:
            yield Problem("memory", f"{topic} is not known", (topic,))
            continue
        known = cluster.topics[topic]
        kept_back = record.id is None and not cluster.has_topic_ids
        if (known.id != record.id and not kept_back) or known.zk_version != record.version:
            yield Problem("memory", f"{topic}: {known} is not {record}", (topic,))
        if sorted(known.partitions) != sorted(record.partitions or ()):
            yield Problem("memory", f"{topic}: partitions {list(known.partitions)}", (topic,))
        if (topic in cluster.deletions) != (topic in ledger.marked):
            yield Problem("memory", f"{topic}: deletion is not as marked", (topic,))
    for tp, assigned, state in settled(world):
        row = cluster.rows.get(tp)
        about = (str(tp), tp.topic)
        if row is None:
            yield Problem("memory", f"{tp} has no row", about)
            continue
        held = Assigned(row.assignment.replicas, row.assignment.adding, row.assignment.removing)
        if held != assigned:
            yield Problem("memory", f"{tp}: {held} is not {assigned}", about)
        led = row.leadership
        found = (
            None
            if led is None
            else State(
                led.leader,
                led.isr,
                led.leader_epoch,
                led.controller_epoch,
                led.zk_version,
                led.recovering,
            )
        )
        if found != state:
            yield Problem("memory", f"{tp}: {found} is not {state}", about)
    if not world.poison and cluster.quarantine:
        yield Problem(
            "L10", f"still in quarantine: {cluster.quarantine}", tuple(cluster.quarantine)
        )


def memory_of_brokers(cluster: ClusterState, ledger: Ledger) -> Iterator[Problem]:
    held = {b: broker.epoch for b, broker in cluster.brokers.items()}
    if held != {b: epoch for b, epoch in ledger.brokers.items() if b != 99}:
        yield Problem("memory", f"brokers {held}, registered {ledger.brokers}", ("broker-",))
