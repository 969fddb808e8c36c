"""What the deletion of a topic waits for."""

from kctl.insight.explanation import Draft, Explanation, Scene, counted, ids, some
from kctl.model.names import BrokerId
from kctl.zookeeper import paths

LONG_MS = 60_000
"""A deletion that nothing stands in the way of takes seconds."""


def explain_deletion(scene: Scene, topic: str, draft: Draft, verdict: str) -> Explanation:
    cluster = scene.cluster
    marked = scene.snapshot.times.marked.get(topic)
    since = "" if marked is None else f" since {scene.when(marked)}"
    draft.because.append(f"{paths.deletion(topic)} marks the topic for deletion{since}")
    gone: dict[BrokerId, int] = {}
    moving = []
    for tp in cluster.partitions_of(topic):
        row = cluster.rows[tp]
        if row.assignment.is_reassigning:
            moving.append(tp)
        for broker in row.replicas:
            if not scene.is_registered(broker):
                gone[broker] = gone.get(broker, 0) + 1
    for broker, count in gone.items():
        draft.because.append(f"{scene.absent(broker)}, and has {counted(count, 'replica')} of it")
        draft.until.append(f"broker {broker} returns and deletes them")
        draft.advise(f"start broker {broker}: the deletion goes on by itself")
    if moving:
        draft.because.append(f"{some(moving)}: being reassigned, which comes first")
        draft.until.append("those reassignments finish or are cancelled")
        waiting = {
            b: None
            for tp in moving
            for b in cluster.rows[tp].assignment.target
            if b not in cluster.rows[tp].isr
        }
        draft.advise(
            f"see what they wait for (kctl explain {moving[0]}"
            + (f": {ids(waiting)} are not in sync" if waiting else "")
            + "), or cancel them with kafka-reassign-partitions --cancel"
        )
    trouble = scene.controller_trouble()
    if trouble:
        draft.because.append(trouble)
        draft.until.append("there is a controller again")
        scene.advise_on_controller(draft)
    if not gone and not moving and trouble is None:
        draft.because.append("all its brokers are registered: nothing is to be seen in the way")
        draft.until.append("its brokers have answered StopReplica")
        if marked is not None and scene.snapshot.times.taken - marked > LONG_MS:
            draft.advise(
                "it takes too long: look for StopReplica errors in the logs of its brokers (a "
                "failed log dir) and for delete.topic.enable=false in the controller's file; a "
                "refused deletion is tried again when that broker restarts"
            )
            return draft.sum_up(f"{verdict}, and not getting on")
    if gone:
        return draft.sum_up(f"{verdict}, waiting for {ids(gone)}")
    if moving:
        return draft.sum_up(f"{verdict}, waiting for a reassignment")
    return draft.sum_up(verdict)
