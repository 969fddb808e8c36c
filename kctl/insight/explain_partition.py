"""Why a partition is as it is."""

from kctl.insight.explain_deletion import explain_deletion
from kctl.insight.explanation import Draft, Explanation, Scene, counted, ids
from kctl.insight.plan import min_isr
from kctl.logic.elections import Strategy
from kctl.logic.partitions import decide
from kctl.logic.reassignment import is_complete
from kctl.model.codes import Malformed
from kctl.model.names import NO_LEADER, BrokerId, TopicPartition
from kctl.model.rows import Leadership, Row
from kctl.zookeeper import paths

LOSES = "loses the records that only the ISR has"


def explain_partition(scene: Scene, tp: TopicPartition) -> Explanation:
    cluster = scene.cluster
    row = cluster.rows[tp]
    draft = Draft(str(tp))
    draft.because.append(_assigned(scene, row))
    if tp in cluster.poisoned:
        path = cluster.poisoned[tp]
        draft.because.append(f"{path}: {cluster.quarantine[path]}")
        draft.until.append("somebody repairs that znode")
        draft.advise(
            f"write a valid state into {path}: a leader and ISR whose data are known to be whole",
            "a wrong leader loses records; Kafka's own controller fails over this znode again and "
            "again",
        )
        return draft.sum_up("left alone: its state znode cannot be understood")
    if tp.topic in cluster.deletions:
        return explain_deletion(
            scene, tp.topic, draft, "being deleted with its topic; it gets no leader any more"
        )
    leadership = row.leadership
    if leadership is None:
        return _never_led(scene, tp, row, draft)
    draft.because.append(
        f"its state says leader {leadership.leader}, ISR {ids(leadership.isr)}, "
        f"leader epoch {leadership.leader_epoch}{_written(scene, tp)}"
    )
    _note_oddities(scene, row, leadership, draft)
    _note_asked_for(scene, tp, draft)
    led = cluster.is_online(leadership.leader, tp)
    reassigned = _note_reassignment(scene, row, draft, led=led)
    if not led:
        return _without_leader(scene, tp, leadership, draft)
    return _led(scene, tp, leadership, draft, reassigned=reassigned)


def _assigned(scene: Scene, row: Row) -> str:
    gone = [b for b in row.replicas if not scene.is_registered(b)]
    text = f"it is assigned to {ids(row.replicas)}"
    if not gone:
        return f"{text}, all registered"
    alive = [b for b in row.replicas if b not in gone]
    count = len(scene.cluster.brokers)
    text = f"{text}; registered {ids(alive)}, not registered {ids(gone)}"
    if len(row.replicas) > count:
        text += f" (more replicas than the {counted(count, 'broker')} that the cluster has now)"
    return text


def _written(scene: Scene, tp: TopicPartition) -> str:
    at = scene.snapshot.times.states.get(tp)
    return f"; written {scene.when(at)}" if at else ""


def _note_oddities(scene: Scene, row: Row, leadership: Leadership, draft: Draft) -> None:
    epoch = scene.known_epoch
    if epoch is not None and leadership.controller_epoch > epoch:
        draft.because.append(
            f"it was written under controller epoch {leadership.controller_epoch}, but "
            f"{paths.CONTROLLER_EPOCH} says {epoch}: that znode was set back or lost"
        )
        draft.advise(
            f"set {paths.CONTROLLER_EPOCH} to {leadership.controller_epoch} or more and delete "
            f"{paths.CONTROLLER}, so that the next controller is obeyed",
            "brokers refuse every request of a controller with a smaller epoch until then",
        )
    strangers = [b for b in leadership.isr if b not in row.replicas]
    if strangers:
        draft.because.append(
            f"{ids(strangers)} of the ISR {ids(leadership.isr)} are no replicas of it any more: left "
            "by a reassignment that was overridden, or written by hand"
        )
        draft.advise(
            f"reassign it so that {ids(strangers)} are replicas again, if they still have its data",
            "brokers delete what they are no replica of",
        )
    if leadership.recovering:
        draft.because.append("its leader was elected uncleanly and has not reported recovery yet")


def _note_asked_for(scene: Scene, tp: TopicPartition, draft: Draft) -> None:
    """What old tools have written and no controller has taken up."""
    zookeeper = scene.snapshot.zookeeper
    targets, elections = zookeeper.reassignments, zookeeper.preferred_election
    for node in (targets, elections):
        if isinstance(node, Malformed):
            draft.because.append(f"{node.path} cannot be understood: {node.reason}")
    target = targets.get(tp) if isinstance(targets, dict) else None
    if target is not None and not scene.cluster.rows[tp].assignment.is_reassigning:
        draft.because.append(
            f"{paths.REASSIGN_PARTITIONS} asks for {ids(target)}, which has not begun"
        )
        _note_absent_controller(scene, draft)
    if isinstance(elections, tuple) and tp in elections:
        draft.because.append(
            f"{paths.PREFERRED_REPLICA_ELECTION} asks for its preferred leader, which has not been "
            "elected"
        )
        _note_absent_controller(scene, draft)


def _note_reassignment(scene: Scene, row: Row, draft: Draft, *, led: bool) -> str | None:
    """What a reassignment waits for, in a few words; None if there is none."""
    assignment = row.assignment
    if not assignment.is_reassigning:
        return None
    draft.because.append(
        f"a reassignment to {ids(assignment.target)} runs: adding {ids(assignment.adding)}, "
        f"removing {ids(assignment.removing)}"
    )
    if not led:
        draft.because.append("nobody can copy it while it has no leader")
        return "which waits for a leader"
    cancel = "cancel it with kafka-reassign-partitions --cancel"
    if is_complete(row):
        draft.until.append("the controller finishes it: every target replica is in sync")
        trouble = scene.controller_trouble()
        if trouble:
            draft.because.append(trouble)
        draft.advise(
            "if it stays so, submit the same reassignment again: Kafka's controller looks at it "
            "only when something changes"
        )
        return "which only has to be finished"
    waiting = [b for b in assignment.target if b not in row.isr]
    dead = [b for b in waiting if not scene.is_registered(b)]
    for broker in waiting:
        if broker in dead:
            draft.because.append(f"target {scene.absent(broker)}")
            draft.until.append(f"broker {broker} starts, copies the data and joins the ISR")
            draft.advise(f"start broker {broker}")
        else:
            draft.because.append(f"target broker {broker} is alive, but not in the ISR yet")
            draft.until.append(f"broker {broker} has copied the data and its leader takes it in")
    if dead:
        draft.advise(f"{cancel}, or submit another one without {ids(dead)}")
        return f"waiting for {ids(dead)}, not registered"
    draft.advise(
        f"look at the throttles and the disk of {ids(waiting)} if it takes too long; or {cancel}"
    )
    return f"waiting for {ids(waiting)} to catch up"


# -- no leader -------------------------------------------------------------------------------


def _never_led(scene: Scene, tp: TopicPartition, row: Row, draft: Draft) -> Explanation:
    draft.because.append("it has no state znode: no controller has ever given it a leader")
    online = scene.cluster.online_replicas(tp, row.replicas)
    if not online:
        draft.until.append(f"one of the brokers {ids(row.replicas)} starts")
        draft.advise(f"start one of {ids(row.replicas)}; the first to be seen leads it")
        return draft.sum_up("new, without a leader: none of its replicas is alive")
    _note_absent_controller(scene, draft)
    draft.until.append(f"the controller handles it: it would make {online[0]} the leader")
    behind = "the controller is behind" if scene.controller_trouble() is None else "no controller"
    return draft.sum_up(f"new, without a leader although replicas are alive: {behind}")


def _note_absent_controller(scene: Scene, draft: Draft) -> None:
    trouble = scene.controller_trouble()
    if trouble is None:
        draft.advise(
            "if it stays so the controller is stuck: look at its log, or delete "
            f"{paths.CONTROLLER} so that another one takes over",
            "the next controller needs some seconds to load",
        )
    else:
        draft.because.append(trouble)
        scene.advise_on_controller(draft)


def _without_leader(
    scene: Scene, tp: TopicPartition, leadership: Leadership, draft: Draft
) -> Explanation:
    cluster = scene.cluster
    row = cluster.rows[tp]
    if leadership.leader != NO_LEADER:
        draft.because.append(f"its leader is gone: {scene.absent(leadership.leader)}")
    clean = decide(cluster, tp, Strategy.OFFLINE)
    if clean is not None:
        return _electable(scene, tp, leadership, clean.leader, draft)
    members = tuple(b for b in leadership.isr if b in row.replicas)
    if members:
        draft.because.append(f"the ISR is {ids(leadership.isr)}, and nobody in it is alive")
        draft.advise(f"start {_either(members)} with its data; nothing is lost")
    for broker in members:
        draft.because.append(scene.absent(broker))
        draft.until.append(f"broker {broker} returns: it is in the ISR and leads at once")
    others = [b for b in row.replicas if cluster.is_online(b, tp) and b not in leadership.isr]
    if not others:
        draft.because.append("no other replica is alive either")
        return draft.sum_up("no leader: all its replicas are gone")
    draft.because.append(f"{_brokers(others)} alive but not in the ISR: behind, or wiped")
    allowed, reason = scene.unclean_setting(tp.topic)
    draft.because.append(reason)
    if allowed:
        _note_absent_controller(scene, draft)
        draft.until.insert(0, f"the controller elects {others[0]} uncleanly, as configured")
        return draft.sum_up(f"no leader: {others[0]} would be elected uncleanly, and is not yet")
    draft.advise(
        f"if {ids(leadership.isr)} will not come back: kafka-leader-election --election-type "
        f"unclean --topic {tp.topic} --partition {tp.partition} makes {others[0]} the leader",
        LOSES,
    )
    return draft.sum_up("no leader: only replicas out of sync are alive")


def _electable(
    scene: Scene, tp: TopicPartition, leadership: Leadership, leader: BrokerId, draft: Draft
) -> Explanation:
    if leadership.leader == NO_LEADER and scene.controller_trouble() is None:
        # A controller is at work and has left it without a leader: it knows something more.
        draft.because.append(
            f"broker {leader} is registered and in the ISR, and yet the controller has not made it "
            "the leader: most often its log dir for this partition has failed"
        )
        if any(b == leader for b in scene.snapshot.zookeeper.log_dir_notifications.values()):
            draft.because.append(f"broker {leader} has just reported a failed log dir")
        draft.until.append(f"broker {leader} is restarted with a working disk")
        draft.advise(
            f"look at broker {leader}: kafka-log-dirs --describe --broker-list {leader} and its "
            "log; repair the disk and restart it"
        )
        others = [b for b in scene.cluster.rows[tp].replicas if b not in leadership.isr]
        alive = [b for b in others if scene.is_registered(b)]
        if alive:
            draft.advise(
                f"give the partition up to {alive[0]} by an unclean election if the disk is lost",
                LOSES,
            )
        return draft.sum_up(f"no leader, although {leader} is registered and in the ISR")
    draft.because.append(f"by the rules broker {leader} can lead: alive and in the ISR")
    draft.until.insert(0, f"the controller elects {leader}")
    _note_absent_controller(scene, draft)
    return draft.sum_up(f"without a live leader; {leader} would be elected, and is not yet")


def _either(brokers: tuple[BrokerId, ...]) -> str:
    if len(brokers) == 1:
        return f"broker {brokers[0]}"
    return f"one of the brokers {ids(brokers)}"


def _brokers(brokers: list[BrokerId]) -> str:
    if len(brokers) == 1:
        return f"broker {brokers[0]} is"
    return f"brokers {ids(brokers)} are"


# -- led -------------------------------------------------------------------------------------


def _led(
    scene: Scene,
    tp: TopicPartition,
    leadership: Leadership,
    draft: Draft,
    *,
    reassigned: str | None,
) -> Explanation:
    row = scene.cluster.rows[tp]
    healthy = True
    verdict = f"led by {leadership.leader}"
    missing = [b for b in row.assignment.target if b not in leadership.isr]
    needed, source = min_isr(
        scene.snapshot.zookeeper.configs, scene.snapshot.default_config, tp.topic
    )
    if reassigned is not None:
        verdict += f", being reassigned, {reassigned}"
        healthy = False
    elif missing:
        verdict += f", under-replicated: {ids(missing)} not in the ISR"
        healthy = False
        _note_missing(scene, missing, draft)
    else:
        verdict += ", all replicas in sync"
    if len(leadership.isr) < needed:
        verdict += f"; under min ISR: {len(leadership.isr)} of {needed}"
        healthy = False
        draft.because.append(
            f"min.insync.replicas is {needed} by {source}: producers with acks=all are refused"
        )
        draft.advise(
            f"bring replicas back; or lower min.insync.replicas of {tp.topic} for the time being",
            "acknowledged records are then on fewer brokers",
        )
    elif len(leadership.isr) == needed and missing and needed > 1:
        draft.because.append(
            f"it is at min ISR ({needed} by {source}): one more loss and acks=all is refused"
        )
    if leadership.leader != row.replicas[0] and reassigned is None:
        preferred = row.replicas[0]
        verdict += f"; preferred is {preferred}"
        _note_preferred(scene, tp, preferred, draft)
        healthy = False
    stale = [b for b in leadership.isr if not scene.is_registered(b)]
    if stale:
        draft.because.append(f"{ids(stale)} of the ISR are not registered: it must shrink")
        _note_absent_controller(scene, draft)
        healthy = False
    return draft.sum_up(verdict, healthy=healthy and not draft.advice)


def _note_missing(scene: Scene, missing: list[BrokerId], draft: Draft) -> None:
    for broker in missing:
        if scene.is_registered(broker):
            draft.because.append(f"broker {broker} is alive but not in sync")
            draft.until.append(f"broker {broker} catches up and its leader takes it into the ISR")
            draft.advise(
                f"if it stays so look at broker {broker}: disk, network, replica.lag.time.max.ms, "
                "ReplicaFetcher errors in its log"
            )
        else:
            draft.because.append(scene.absent(broker))
            draft.until.append(f"broker {broker} returns and catches up")
            draft.advise(f"start broker {broker}, or move its replicas away by a reassignment")


def _note_preferred(scene: Scene, tp: TopicPartition, preferred: BrokerId, draft: Draft) -> None:
    if decide(scene.cluster, tp, Strategy.PREFERRED) is None:
        draft.until.append(f"broker {preferred} is back in the ISR, and a preferred election")
        return
    draft.until.append("a preferred election, asked for or by the balance timer (5 minutes)")
    draft.advise(
        f"kafka-leader-election --election-type preferred --topic {tp.topic} "
        f"--partition {tp.partition} gives it back to {preferred}"
    )
