"""Why is it so? The state of a partition, topic, broker or the controller, and the rules behind it.

The rules are not repeated here: the core's own decision is asked for, and what it looked at is
written down.
"""

import difflib

from kctl.insight.explain_broker import explain_broker, explain_controller
from kctl.insight.explain_partition import explain_partition
from kctl.insight.explain_topic import explain_topic
from kctl.insight.explanation import Explanation, Scene, Unknown, ids
from kctl.insight.snapshot import Snapshot
from kctl.model.names import TopicPartition
from kctl.zookeeper import paths

__all__ = ["Explanation", "Unknown", "explain"]


def explain(snapshot: Snapshot, subject: str) -> Explanation:
    """`orders-17`, `orders`, `broker 4` or `controller`."""
    scene = Scene.of(snapshot)
    cluster = scene.cluster
    kind, _, number = subject.partition(" ")
    if kind == "broker" and number.strip().isdecimal():
        return explain_broker(scene, int(number))
    if subject in cluster.topics or paths.topic(subject) in cluster.quarantine:
        return explain_topic(scene, subject)
    if subject == "controller":
        return explain_controller(scene)
    try:
        tp = TopicPartition.parse(subject)
    except ValueError:
        raise Unknown(_no_such_topic(scene, subject)) from None
    if tp in cluster.rows:
        return explain_partition(scene, tp)
    if tp.topic in cluster.topics:
        partitions = sorted(cluster.topics[tp.topic].partitions)
        raise Unknown(
            f"topic {tp.topic} has no partition {tp.partition}; it has {len(partitions)}: "
            f"{partitions[0]} to {partitions[-1]}"
        )
    if paths.topic(tp.topic) in cluster.quarantine:
        return explain_topic(scene, tp.topic)
    raise Unknown(_no_such_topic(scene, subject))


def _no_such_topic(scene: Scene, subject: str) -> str:
    topics = scene.cluster.topics
    if subject.startswith("broker"):
        return f"ask for: broker ID, such as broker 1; registered: {ids(scene.cluster.brokers)}"
    name = subject.rpartition("-")[0] or subject
    near = [t for t in topics if name.lower() in t.lower()][:3]
    near = near or difflib.get_close_matches(name, topics, 3)
    hint = f"; near: {', '.join(near)}" if near else ""
    return (
        f"no topic or partition is called {subject!r} (there are {len(topics)} topics{hint}); "
        "ask for TOPIC-PARTITION, TOPIC, broker ID or controller"
    )
