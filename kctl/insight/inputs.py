"""What a controller is told, worked out from what changed in ZooKeeper.

Some of it stands in znodes: registrations, new topics, markers, configs. Some is only to be seen by
its effect, because it comes by request: an ISR that changes at the same leader epoch was asked for
by the leader; a topic znode with adding and removing replicas was asked for by an administrator.
What changes neither way is the controller's own decision, and no input.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs

from kctl.insight.fork import Fork
from kctl.insight.sightings import (
    BrokerSeen,
    ConfigSeen,
    ControllerSeen,
    DefaultConfigSeen,
    MarkerSeen,
    PreferredElectionSeen,
    ReassignmentsSeen,
    Seen,
    StateSeen,
    TopicSeen,
)
from kctl.logic.partitions import UNCLEAN_CONFIG
from kctl.messages import events as ev
from kctl.messages.effects import TopicNode
from kctl.model.brokers import Broker
from kctl.model.codes import KafkaError, Malformed
from kctl.model.names import NO_LEADER, BrokerId, TopicPartition
from kctl.model.rows import Assignment, Leadership, Replicas
from kctl.simulation.memory import MemoryZooKeeper, Recorded
from kctl.zookeeper.config_changes import with_dynamic


@attrs.frozen
class Input:
    text: str
    apply: Callable[[Fork], Recorded | None]
    broker: BrokerSeen | None = None
    """Set for registrations: controllers may see several of them at once."""
    config_of: str | None = None
    """Set for configs: who acts on one reads what it says then, not what it said before."""
    inferred: bool = False


def inputs_of(seen: Seen, reality: MemoryZooKeeper) -> Iterator[Input]:
    """`reality` as it was before."""
    match seen:
        case BrokerSeen():
            yield broker_change([seen])
        case TopicSeen(topic, value):
            yield from _of_topic(topic, reality.topics.get(topic), value)
        case StateSeen(tp, value):
            yield from _of_state(tp, reality.states.get(tp), value)
        case ConfigSeen(topic, config):
            yield topic_config(topic, config)
        case DefaultConfigSeen(config):
            yield default_config(config)
        case MarkerSeen(topic, present):
            if present and topic in reality.topics:
                yield deletion(topic)
        case ReassignmentsSeen(targets):
            if targets:
                yield admin_reassignment(targets)
        case PreferredElectionSeen(asked):
            if asked and not isinstance(asked, Malformed):
                yield preferred_election(asked, "asked for by znode")
        case ControllerSeen():
            pass


# -- what stands in znodes -------------------------------------------------------------------


def broker_change(seen: list[BrokerSeen]) -> Input:
    def apply(fork: Fork) -> Recorded:
        for one in seen:
            if one.value is None:
                fork.zookeeper.brokers.pop(one.broker, None)
            else:
                fork.zookeeper.brokers[one.broker] = one.value
        return fork.run(ev.BrokerChange())

    words = []
    for one in seen:
        what = "gone" if one.value is None else "registered"
        what = (
            "registered in a way that cannot be read" if isinstance(one.value, Malformed) else what
        )
        words.append(f"broker {one.broker} is {what}")
    return Input(", ".join(words), apply, broker=seen[0] if len(seen) == 1 else None)


def topic_config(topic: str, config: Mapping[str, str] | Malformed | None) -> Input:
    def apply(fork: Fork) -> Recorded | None:
        if config is None:
            fork.zookeeper.configs.pop(topic, None)
        else:
            fork.zookeeper.configs[topic] = config
        if not isinstance(config, Malformed) and _is_true(config):
            return fork.run(ev.TopicUncleanLeaderElectionEnable(topic))
        return None

    return Input(
        f"the config of topic {topic} changed{_unclean_says(config)}", apply, config_of=topic
    )


def default_config(config: Mapping[str, str]) -> Input:
    def apply(fork: Fork) -> Recorded:
        settings = with_dynamic(fork.cluster.settings, config)
        recorded = fork.run(ev.SettingsChange(settings))
        if settings.unclean_leader_election:
            return fork.run(ev.UncleanLeaderElectionEnable())
        return recorded

    return Input("the brokers' default config changed", apply)


def _unclean_says(config: Mapping[str, str] | Malformed | None) -> str:
    if config is None or isinstance(config, Malformed) or UNCLEAN_CONFIG not in config:
        return ""
    return f", {UNCLEAN_CONFIG}={config[UNCLEAN_CONFIG]}"


def _is_true(config: Mapping[str, str] | None) -> bool:
    return config is not None and config.get(UNCLEAN_CONFIG, "").strip().lower() == "true"


def deletion(topic: str, *, inferred: bool = False) -> Input:
    def apply(fork: Fork) -> Recorded:
        fork.zookeeper.deletions[topic] = None
        return fork.run(ev.TopicDeletion())

    return Input(f"topic {topic} is marked for deletion", apply, inferred=inferred)


def admin_reassignment(targets: Mapping[TopicPartition, Replicas] | Malformed) -> Input:
    def apply(fork: Fork) -> Recorded:
        kept = targets if isinstance(targets, Malformed) else dict(targets)
        fork.zookeeper.reassignments = kept
        return fork.run(ev.ZkPartitionReassignment())

    return Input("/admin/reassign_partitions was written", apply)


def _of_topic(
    topic: str, before: TopicNode | Malformed | None, after: TopicNode | Malformed | None
) -> Iterator[Input]:
    if after is None or isinstance(after, Malformed):
        return  # a deletion that is through, or a znode that no controller can use
    if before is None or isinstance(before, Malformed):
        yield _created(topic, after)
    elif before.topic_id != after.topic_id and None not in (before.topic_id, after.topic_id):
        yield _recreated(topic, after)
    else:
        yield from _changed(topic, before, after)


def _created(topic: str, node: TopicNode) -> Input:
    def apply(fork: Fork) -> Recorded:
        fork.zookeeper.topics[topic] = node
        return fork.run(ev.TopicChange())

    return Input(f"topic {topic} was created with {len(node.partitions)} partitions", apply)


def _recreated(topic: str, node: TopicNode) -> Input:
    def apply(fork: Fork) -> Recorded:
        fork.zookeeper.deletions[topic] = None
        fork.run(ev.TopicDeletion())
        if topic in fork.zookeeper.topics:
            for tp in [tp for tp in fork.zookeeper.states if tp.topic == topic]:
                del fork.zookeeper.states[tp]
            del fork.zookeeper.topics[topic]
            fork.zookeeper.deletions.pop(topic, None)
            fork.run(ev.TopicChange())
        fork.zookeeper.topics[topic] = node
        return fork.run(ev.TopicChange())

    return Input(f"topic {topic} was deleted and created again", apply)


def _changed(topic: str, before: TopicNode, after: TopicNode) -> Iterator[Input]:
    added = {p: a for p, a in after.partitions.items() if p not in before.partitions}
    if added:
        yield _grown(topic, added)
    targets: dict[TopicPartition, Replicas | None] = {}
    for partition, old in before.partitions.items():
        new = after.partitions.get(partition)
        if new is None or new == old:
            continue
        if old.is_reassigning and not new.is_reassigning:
            if new.replicas == old.target:
                continue  # the controller is through with it
            if new.replicas == old.origin:
                targets[TopicPartition(topic, partition)] = None
                continue
        targets[TopicPartition(topic, partition)] = new.target
    if targets:
        yield reassignment(targets)


def _grown(topic: str, added: Mapping[int, Assignment]) -> Input:
    def apply(fork: Fork) -> Recorded | None:
        node = fork.zookeeper.topics.get(topic)
        if not isinstance(node, TopicNode):
            return None
        fork.zookeeper.topics[topic] = attrs.evolve(
            node, partitions={**node.partitions, **added}, zk_version=node.zk_version + 1
        )
        return fork.run(ev.PartitionModifications(topic))

    return Input(f"topic {topic} got {len(added)} more partitions", apply)


# -- what comes by request -------------------------------------------------------------------


def reassignment(targets: Mapping[TopicPartition, Replicas | None]) -> Input:
    def apply(fork: Fork) -> Recorded:
        return fork.run(ev.ApiPartitionReassignment(fork.caller(), targets))

    words = [
        f"{tp} is to stay where it was" if to is None else f"{tp} is to move to {list(to)}"
        for tp, to in targets.items()
    ]
    return Input(", ".join(words), apply)


def reassignment_again(targets: Mapping[TopicPartition, Replicas]) -> Input:
    """Asked for once more, or looked at by a new controller: nothing of that is to be seen."""
    text = f"the reassignment of {_named(tuple(targets))} was asked for again"
    return attrs.evolve(reassignment(targets), text=text, inferred=True)


def _of_state(
    tp: TopicPartition, before: Leadership | Malformed | None, after: Leadership | Malformed | None
) -> Iterator[Input]:
    if not isinstance(before, Leadership) or not isinstance(after, Leadership):
        return
    joined = tuple(b for b in after.isr if b not in before.isr)
    if after.leader_epoch == before.leader_epoch:
        left = tuple(b for b in before.isr if b not in after.isr)
        if (joined or left) and after.leader == before.leader:
            yield isr_change(tp, joined, left)
    elif joined and after.leader in before.isr:
        # Controllers take nobody into an ISR; two writes were seen as one.
        yield isr_change(tp, joined, ())


def unseen_writes(before: Leadership, after: Leadership) -> int:
    """Writes by the leader's wish that were seen together with a decision of the controller."""
    return (after.zk_version - before.zk_version) - (after.leader_epoch - before.leader_epoch)


def isr_change(tp: TopicPartition, joined: Iterable[BrokerId], left: Iterable[BrokerId]) -> Input:
    came, went = tuple(joined), tuple(left)
    words = [f"{list(came)} in"] * bool(came) + [f"{list(went)} out"] * bool(went)
    return Input(
        f"the leader of {tp} changes its ISR: {', '.join(words)}",
        lambda fork: fork.change_isr(tp, came, went),
    )


def caught_up(targets: Mapping[TopicPartition, Replicas]) -> Input:
    """New replicas that were in sync for so short a time that nobody saw it."""

    def apply(fork: Fork) -> Recorded | None:
        recorded = [fork.change_isr(tp, joined, ()) for tp, joined in targets.items()]
        return next((one for one in reversed(recorded) if one is not None), None)

    text = f"the new replicas of {_named(tuple(targets))} have caught up"
    return Input(text, apply, inferred=True)


def preferred_election(
    asked: Iterable[TopicPartition], why: str, *, inferred: bool = False
) -> Input:
    tps = tuple(asked)

    def apply(fork: Fork) -> Recorded:
        trigger = ev.ElectionTrigger.ADMIN_CLIENT
        kind = ev.ElectionType.PREFERRED
        return fork.run(ev.ReplicaLeaderElection(fork.caller(), tps, kind, trigger))

    return Input(f"preferred leaders for {_named(tps)}, {why}", apply, inferred=inferred)


def unclean_election(asked: Iterable[TopicPartition]) -> Input:
    tps = tuple(asked)

    def apply(fork: Fork) -> Recorded:
        trigger = ev.ElectionTrigger.ADMIN_CLIENT
        kind = ev.ElectionType.UNCLEAN
        return fork.run(ev.ReplicaLeaderElection(fork.caller(), tps, kind, trigger))

    text = f"unclean leaders for {_named(tps)}, by request or by the brokers' files"
    return Input(text, apply, inferred=True)


def controlled_shutdown(broker: BrokerId) -> Input:
    def apply(fork: Fork) -> Recorded:
        return fork.run(ev.ControlledShutdown(fork.caller(), broker))

    return Input(f"broker {broker} asks for a controlled shutdown", apply, inferred=True)


def log_dir_failure(broker: BrokerId, asked: Iterable[TopicPartition]) -> Input:
    tps = tuple(asked)

    def apply(fork: Fork) -> Recorded | None:
        known = fork.cluster.brokers.get(broker)
        if not isinstance(known, Broker):
            return None
        errors = dict.fromkeys(tps, int(KafkaError.KAFKA_STORAGE_ERROR))
        return fork.run(ev.LeaderAndIsrResponseReceived(broker, known.epoch, 0, errors))

    text = f"a log dir of broker {broker} failed, with {_named(tps)}"
    return Input(text, apply, inferred=True)


def _named(tps: tuple[TopicPartition, ...], limit: int = 5) -> str:
    more = f" and {len(tps) - limit} more" if len(tps) > limit else ""
    return ", ".join(map(str, tps[:limit])) + more


def without_leader(state: Leadership | Malformed | None) -> bool:
    return not isinstance(state, Leadership) or state.leader == NO_LEADER
