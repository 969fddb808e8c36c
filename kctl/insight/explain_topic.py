"""Why a topic is as it is."""

from kctl.insight.explain_deletion import explain_deletion
from kctl.insight.explain_partition import explain_partition
from kctl.insight.explanation import LISTED_MAX, Draft, Explanation, Scene, counted
from kctl.zookeeper import paths


def explain_topic(scene: Scene, topic: str) -> Explanation:
    cluster = scene.cluster
    path = paths.topic(topic)
    draft = Draft(topic)
    if topic not in cluster.topics:
        draft.because.append(f"{path}: {cluster.quarantine[path]}")
        draft.until.append("somebody repairs that znode")
        draft.advise(
            f"write its assignment into {path} again: the partitions below it and the brokers' "
            "log dirs (kafka-log-dirs) tell what it was",
            "a wrong assignment makes brokers delete replicas; Kafka's own controller fails over "
            "this znode again and again",
        )
        return draft.sum_up("left alone: its znode cannot be understood")
    if topic in cluster.deletions:
        return explain_deletion(scene, topic, draft, "being deleted")
    tps = list(cluster.partitions_of(topic))
    sick = [e for e in (explain_partition(scene, tp) for tp in tps) if not e.healthy]
    for one in sick[:LISTED_MAX]:
        draft.because.append(f"{one.subject}: {one.verdict}")
        draft.until += one.until
        draft.advice += one.advice
    if len(sick) > LISTED_MAX:
        draft.because.append(f"and {len(sick) - LISTED_MAX} more")
    config = paths.topic_config(topic)
    if config in cluster.quarantine:
        draft.because.append(f"{config}: {cluster.quarantine[config]}")
        draft.advise(
            f"write its config again: {config} must hold JSON with a config object",
            "until then every setting of the topic counts as unset, and unclean election as off",
        )
    count = len(tps)
    if sick:
        verdict = f"{count - len(sick)} of {count} partitions in order"
    else:
        verdict = f"{counted(count, 'partition')}, all in order"
    if config in cluster.quarantine:
        verdict += "; its config cannot be understood"
    return draft.sum_up(verdict, healthy=not sick and config not in cluster.quarantine)
