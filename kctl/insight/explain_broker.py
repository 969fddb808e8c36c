"""How a broker stands, and who is controller."""

from kctl.insight.explanation import Draft, Explanation, Scene, Unknown, counted, ids, some
from kctl.insight.plan import min_isr
from kctl.insight.snapshot import UNREADABLE
from kctl.model.names import BrokerId, TopicPartition
from kctl.zookeeper import paths

FRESH_MS = 60_000


def explain_broker(scene: Scene, broker: BrokerId) -> Explanation:
    cluster = scene.cluster
    tps = list(cluster.partitions_on(broker))
    path = paths.broker(broker)
    draft = Draft(f"broker {broker}")
    if not scene.is_registered(broker) and not tps and path not in cluster.quarantine:
        known = ids(sorted(cluster.brokers))
        raise Unknown(f"broker {broker} is not registered and has no replica; registered: {known}")
    leads = [tp for tp in tps if cluster.rows[tp].leader == broker]
    behind = [tp for tp in tps if broker not in cluster.rows[tp].isr]
    draft.because.append(
        f"it has {counted(len(tps), 'replica')}, leads {len(leads)}, is out of sync in {len(behind)}"
    )
    if path in cluster.quarantine:
        draft.because.append(f"{path}: {cluster.quarantine[path]}")
        draft.until.append("it registers again")
        draft.advise(f"restart broker {broker}: it writes its registration anew")
        return draft.sum_up("left alone: its registration cannot be understood")
    if not scene.is_registered(broker):
        return _gone(scene, broker, tps, draft)
    return _registered(scene, broker, leads, behind, draft)


def _gone(scene: Scene, broker: BrokerId, tps: list[TopicPartition], draft: Draft) -> Explanation:
    rows = scene.cluster.rows
    offline = [tp for tp in tps if not any(scene.cluster.is_online(b, tp) for b in rows[tp].isr)]
    if offline:
        draft.because.append(
            f"without it no live ISR member is left for {counted(len(offline), 'partition')}: {some(offline)}"
        )
    draft.until.append("it starts and catches up")
    draft.advise(f"start broker {broker}")
    if not offline:
        draft.advise(
            "or move its replicas to other brokers by a reassignment; no data depend on it"
        )
    since = scene.gone_since_ms(broker)
    verdict = "not registered"
    if since is not None:
        verdict += f", since {scene.when(since)} at the latest"
    return draft.sum_up(verdict)


def _registered(
    scene: Scene,
    broker: BrokerId,
    leads: list[TopicPartition],
    behind: list[TopicPartition],
    draft: Draft,
) -> Explanation:
    cluster = scene.cluster
    registration = cluster.brokers[broker]
    verdict = "registered"
    since = scene.snapshot.times.registered.get(broker)
    fresh = since is not None and scene.snapshot.times.taken - since < FRESH_MS
    if since is not None:
        verdict += f" since {scene.when(since)}"
    if registration.rack:
        verdict += f", rack {registration.rack}"
    if scene.snapshot.controller_id == broker:
        verdict += ", the controller"
    rows = cluster.rows
    alone = [tp for tp in leads if len(rows[tp].isr) == 1]
    if alone:
        draft.because.append(
            f"it is the only member of the ISR of {counted(len(alone), 'partition')}: {some(alone)}; "
            "stopping it takes them offline"
        )
    tight = [
        tp
        for tp in cluster.partitions_on(broker)
        if tp not in alone and broker in rows[tp].isr and len(rows[tp].isr) <= _needed(scene, tp)
    ]
    tight = [tp for tp in tight if _needed(scene, tp) > 1]
    if tight:
        draft.because.append(
            f"{counted(len(tight), 'partition')} would be under min ISR without it: {some(tight)}"
        )
    on_it = len(cluster.partitions_on(broker))
    if on_it and len(behind) == on_it and not leads:
        if fresh:
            draft.because.append("it has just started and is in no ISR yet")
            draft.until.append("it has caught up: its leaders take it into their ISRs")
            return draft.sum_up(f"{verdict}, catching up")
        draft.because.append(
            "it leads nothing and is in no ISR: it is being shut down in order (its leaderships "
            "were moved first), or cannot fetch"
        )
        draft.until.append("it is gone, or it catches up")
        draft.advise(
            f"if nobody is stopping broker {broker}, look for ReplicaFetcher errors in its log"
        )
        return draft.sum_up(f"{verdict}, but in no ISR")
    if behind:
        draft.because.append(f"not in sync: {some(behind)}")
        draft.until.append("it catches up")
    if alone or tight:
        draft.advise(f"before you stop it: kctl plan --shutdown {broker} --fail-if 'offline>0'")
    return draft.sum_up(verdict, healthy=not behind and not alone)


def _needed(scene: Scene, tp: TopicPartition) -> int:
    configs = scene.snapshot.zookeeper.configs
    return min_isr(configs, scene.snapshot.default_config, tp.topic)[0]


def explain_controller(scene: Scene) -> Explanation:
    snapshot, cluster = scene.snapshot, scene.cluster
    draft = Draft("controller")
    epoch = scene.known_epoch
    if epoch is not None:
        draft.because.append(f"{paths.CONTROLLER_EPOCH} is {epoch}")
    newer = [
        tp
        for tp, row in cluster.rows.items()
        if epoch is not None
        and row.leadership is not None
        and row.leadership.controller_epoch > epoch
    ]
    if newer:
        highest = max(
            leadership.controller_epoch
            for tp in newer
            if (leadership := cluster.rows[tp].leadership) is not None
        )
        draft.because.append(
            f"{counted(len(newer), 'state')} written under a later epoch, up to {highest}: "
            f"{some(newer)}; the epoch was set back or lost, and brokers refuse this controller"
        )
        draft.advise(
            f"set {paths.CONTROLLER_EPOCH} to {highest} or more and delete {paths.CONTROLLER}",
            "a moment without a controller",
        )
    for path, reason in cluster.quarantine.items():
        draft.because.append(f"cannot be understood: {path}: {reason}")
    holder = snapshot.controller_id
    trouble = scene.controller_trouble()
    if trouble is not None:
        draft.because.append(trouble)
        draft.until.append("a broker or a kctl stands for election and wins")
        scene.advise_on_controller(draft)
        verdict = "nobody" if holder != UNREADABLE else "nobody knows who"
        return draft.sum_up(f"{verdict}; no leader is elected and no topic made meanwhile")
    kind = "kctl" if snapshot.controller_is_kctl else "broker"
    since = snapshot.times.controller
    when = "" if since is None else f" since {scene.when(since)}"
    registered = snapshot.controller_is_kctl or holder in cluster.brokers
    if not registered:
        draft.because.append(
            f"broker {holder} holds {paths.CONTROLLER}, but is not registered: its session is about "
            "to end, or it is half dead"
        )
        draft.until.append("its session ends and another broker takes over")
    verdict = f"{kind} {holder}{when}"
    if cluster.quarantine:
        verdict += f"; {counted(len(cluster.quarantine), 'znode')} cannot be understood"
        draft.until.append("somebody repairs those znodes")
    healthy = registered and not newer and not cluster.quarantine
    return draft.sum_up(verdict, healthy=healthy)
