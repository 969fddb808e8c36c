"""Whether two clusters are equal, as kctl means it.

The same topics, assignments, leaders and sets of in-sync replicas. Epochs are not compared, nor the
ISRs of a topic that is being deleted. What else may differ stands in `docs/deviations.md`.
"""

from collections.abc import Iterator

import attrs

from kctl.insight.fork import Fork
from kctl.messages.effects import TopicNode
from kctl.model.names import NO_LEADER, TopicPartition
from kctl.model.rows import Assignment, Leadership
from kctl.simulation.memory import MemoryZooKeeper

HELD = "a broker returns while a reassignment holds a deletion"
LEADERLESS = "a reassignment whose target has no live in-sync leader"
"""As `docs/deviations.md` calls them."""


@attrs.frozen
class Difference:
    key: str
    ours: str
    found: str
    decided: bool
    """The controller has done something about it since the input came."""
    deviation: str | None = None

    def __str__(self) -> str:
        return f"{self.key}: kctl {self.ours}, found {self.found}"


def compare(model: Fork, reality: MemoryZooKeeper, before: MemoryZooKeeper) -> Iterator[Difference]:
    ours = model.zookeeper
    for topic in {**ours.topics, **reality.topics}:
        mine, theirs = ours.topics.get(topic), reality.topics.get(topic)
        if mine is None or theirs is None:
            decided = (topic in before.topics) != (topic in reality.topics)
            held = theirs is None and topic in ours.deletions and _is_reassigned(mine)
            deviation = HELD if held else None
            yield Difference(topic, _existing(mine), _existing(theirs), decided, deviation)
        elif topic not in reality.deletions and topic not in ours.deletions:
            yield from _compare_topic(topic, model, reality, before)


def _compare_topic(
    topic: str, model: Fork, reality: MemoryZooKeeper, before: MemoryZooKeeper
) -> Iterator[Difference]:
    mine, theirs = model.zookeeper.topics[topic], reality.topics[topic]
    if not isinstance(mine, TopicNode) or not isinstance(theirs, TopicNode):
        return  # it cannot be understood
    old = before.topics.get(topic)
    for partition in {**mine.partitions, **theirs.partitions}:
        tp = TopicPartition(topic, partition)
        a, b = mine.partitions.get(partition), theirs.partitions.get(partition)
        x, y = model.zookeeper.states.get(tp), reality.states.get(tp)
        if tp in model.cluster.poisoned:
            continue
        leadership = _words(x), _words(y)
        if _same_assignment(a, b) and leadership[0] == leadership[1]:
            continue
        was, is_ = before.states.get(tp), y
        decided = isinstance(old, TopicNode) and old.partitions.get(partition) != b
        if isinstance(was, Leadership) and isinstance(is_, Leadership):
            decided = decided or was.leader_epoch != is_.leader_epoch
        elif was is None and is_ is not None:
            decided = True
        ours = f"{_assigned(a)}, {leadership[0]}"
        found = f"{_assigned(b)}, {leadership[1]}"
        yield Difference(str(tp), ours, found, decided, _deviation(a, b, y))


def _deviation(mine: Assignment | None, theirs: Assignment | None, state: object) -> str | None:
    if mine is None or theirs is None or not isinstance(state, Leadership):
        return None
    if mine.is_reassigning and theirs.replicas == mine.target and state.leader == NO_LEADER:
        return LEADERLESS
    return None


def _is_reassigned(node: object) -> bool:
    return isinstance(node, TopicNode) and any(a.is_reassigning for a in node.partitions.values())


def _existing(node: object) -> str:
    return "has no such topic" if node is None else "has the topic"


def _same_assignment(a: Assignment | None, b: Assignment | None) -> bool:
    if a is None or b is None:
        return a is b
    return (
        a.replicas == b.replicas
        and set(a.adding) == set(b.adding)
        and set(a.removing) == set(b.removing)
    )


def _assigned(assignment: Assignment | None) -> str:
    if assignment is None:
        return "no such partition"
    text = f"replicas {list(assignment.replicas)}"
    if assignment.adding:
        text += f" adding {list(assignment.adding)}"
    if assignment.removing:
        text += f" removing {list(assignment.removing)}"
    return text


def _words(state: object) -> str:
    """Leader and ISR as a set: equal words mean equal states."""
    if not isinstance(state, Leadership):
        return "no state"
    return f"leader {state.leader}, ISR {sorted(state.isr)}"
