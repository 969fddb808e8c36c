"""How leaders change their ISR: by AlterPartition, or, if they are old, in ZooKeeper themselves."""

import json
from typing import TYPE_CHECKING

from kctl.messages import events as ev
from kctl.messages.answers import AlteredPartitions, AnswerValue, Refused
from kctl.model.codes import KafkaError
from kctl.model.names import TopicPartition
from kctl.model.rows import Leadership, Replicas
from kctl.model.settings import RECOVERY_STATE_SINCE
from kctl.simulation.hosted import Hosted
from kctl.zookeeper.multi import Create, SetData
from kctl.zookeeper.wire import CreateMode

if TYPE_CHECKING:
    from kctl.simulation.brokers_model import ModelBroker

LAG_TIME_MAX_MS = 4_000
REPLY_TIMEOUT_MS = 3_000
RETRY_MS = 50
GIVEN_UP = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.INVALID_UPDATE_VERSION,
        KafkaError.INVALID_REQUEST,
        KafkaError.UNKNOWN_TOPIC_ID,
    }
)
"""After these a leader waits for a new LeaderAndIsr; what it asked for stays pending."""
TAKEN_BACK = frozenset({KafkaError.INELIGIBLE_REPLICA, KafkaError.OPERATION_NOT_ATTEMPTED})


def maintain_isr(broker: "ModelBroker", tp: TopicPartition, hosted: Hosted) -> None:
    """Ask for another ISR if a follower fell behind or caught up."""
    now = broker.world.now
    if hosted.proposed is not None or now < hosted.wait_until:
        return
    wanted = wanted_isr(broker, tp, hosted)
    if set(wanted) == set(hosted.isr):
        return
    hosted.proposal += 1
    if broker.writes_isr_itself:
        write_isr(broker, tp, hosted, wanted)
    else:
        hosted.proposed = wanted
        world = broker.world
        world.safety.decided(tp, broker.id, (hosted.leader_epoch, hosted.partition_epoch), wanted)
        send_proposal(broker, tp, hosted)


def wanted_isr(broker: "ModelBroker", tp: TopicPartition, hosted: Hosted) -> Replicas:
    now, end = broker.world.now, broker.logs[tp].end
    behind = [
        b
        for b in hosted.isr
        if b != broker.id
        and hosted.ends.get(b, -1) < end
        and now - hosted.caught_up.setdefault(b, now) > LAG_TIME_MAX_MS
    ]
    if behind:
        return tuple(b for b in hosted.isr if b not in behind)
    caught_up = [
        b
        for b in hosted.replicas
        if b not in hosted.isr
        and b in broker.live
        and hosted.ends.get(b, -1) >= max(hosted.high_watermark, hosted.epoch_start)
    ]
    return (*hosted.isr, *caught_up)


def send_proposal(broker: "ModelBroker", tp: TopicPartition, hosted: Hosted) -> None:
    """Send what is pending, again and again until it is answered or no longer of interest."""
    world = broker.world
    if not pending(broker, tp, hosted):
        return
    assert hosted.proposed is not None
    proposal = hosted.proposal
    broker.asks = broker.controller if broker.asks is None else broker.asks
    target = None if broker.asks is None else world.controllers.get(broker.asks)
    again = (send_again, broker, broker.incarnation, tp, hosted, proposal)
    if target is None:
        world.scheduler.after(500, *again)
        return
    asked = ev.IsrProposal(hosted.proposed, hosted.leader_epoch, hosted.partition_epoch)
    topic_id = broker.knows_topic_id(tp.topic)
    by_id = topic_id is not None and broker.release >= RECOVERY_STATE_SINCE

    def event(caller: ev.Caller) -> ev.Event:
        if by_id:
            assert topic_id is not None
            world.topic_names[topic_id] = tp.topic
            return ev.AlterPartitionReceived(
                caller, broker.id, broker.epoch, 3, by_id={(topic_id, tp.partition): asked}
            )
        return ev.AlterPartitionReceived(caller, broker.id, broker.epoch, 1, partitions={tp: asked})

    incarnation = broker.incarnation

    def answered(value: AnswerValue | None) -> None:
        if broker.incarnation != incarnation or not broker.up:
            return
        if value is None or denied(value):
            broker.asks = None
        if hosted.proposal == proposal:
            took_answer(broker, tp, hosted, value)

    world.note(broker.name, f"proposes {asked} to {target.name}", str(tp))
    delay = world.chance.randint(0, 5)
    if world.unlucky(0.05):
        world.mishap("late request", f"AlterPartition of {broker.name}", str(tp))
        delay += world.chance.randint(500, 20_000)
    world.callers.ask(target, event, answered, delay, timeout_ms=delay + REPLY_TIMEOUT_MS)


def denied(value: AnswerValue) -> bool:
    """Whether it says anywhere that it is not the controller, or not the latest."""
    if isinstance(value, Refused):
        return value.error.code is KafkaError.NOT_CONTROLLER
    return isinstance(value, AlteredPartitions) and (
        KafkaError.NOT_CONTROLLER in value.partitions.values()
    )


def pending(broker: "ModelBroker", tp: TopicPartition, hosted: Hosted) -> bool:
    return broker.up and broker.hosted.get(tp) is hosted and hosted.proposed is not None


def send_again(
    broker: "ModelBroker", incarnation: int, tp: TopicPartition, hosted: Hosted, proposal: int
) -> None:
    if broker.incarnation == incarnation and hosted.proposal == proposal:
        send_proposal(broker, tp, hosted)


def took_answer(
    broker: "ModelBroker", tp: TopicPartition, hosted: Hosted, value: AnswerValue | None
) -> None:
    """As Kafka's leaders: commit, take back, give up until told otherwise, or send again."""
    if not pending(broker, tp, hosted):
        return
    broker.world.note(broker.name, f"is answered {value}", str(tp))
    result: Leadership | KafkaError | None = None
    if isinstance(value, AlteredPartitions):
        result = value.partitions.get(tp)
        if result is None:
            for (_, partition), error in value.unknown_ids.items():
                if partition == tp.partition:
                    result = error
    if isinstance(result, Leadership):
        committed(broker, hosted, result)
    elif result in TAKEN_BACK:
        hosted.proposed = None
        hosted.wait_until = broker.world.now + 1_000
    elif result not in GIVEN_UP:
        again = (send_again, broker, broker.incarnation, tp, hosted, hosted.proposal)
        broker.world.scheduler.after(RETRY_MS, *again)


def committed(broker: "ModelBroker", hosted: Hosted, found: Leadership) -> None:
    if found.leader_epoch == hosted.leader_epoch and found.zk_version >= hosted.partition_epoch:
        hosted.isr = found.isr
        hosted.partition_epoch = found.zk_version
        hosted.proposed = None
        hosted.wait_until = broker.world.now + broker.world.chance.randint(0, 300)


def write_isr(broker: "ModelBroker", tp: TopicPartition, hosted: Hosted, wanted: Replicas) -> None:
    """A broker older than 2.7: a conditional write, and a note for the controller."""
    world = broker.world
    path = f"/brokers/topics/{tp.topic}/partitions/{tp.partition}/state"
    body = {
        "version": 1,
        "leader": broker.id,
        "leader_epoch": hosted.leader_epoch,
        "controller_epoch": broker.controller_epoch,
        "isr": list(wanted),
    }
    state = SetData(path, json.dumps(body).encode(), hosted.partition_epoch)
    if world.ensemble.try_commit(broker.session, state) is None:
        # As real ones do: the version is behind, so it waits for the controller to tell the new one.
        hosted.wait_until = world.now + 1_000
        return
    hosted.isr = wanted
    hosted.partition_epoch += 1
    world.scheduler.after(world.chance.randint(100, 2_500), notify, broker, broker.incarnation, tp)


def notify(broker: "ModelBroker", incarnation: int, tp: TopicPartition) -> None:
    if broker.up and broker.incarnation == incarnation:
        body = {"version": 1, "partitions": [{"topic": tp.topic, "partition": tp.partition}]}
        path = "/isr_change_notification/isr_change_"
        note = Create(path, json.dumps(body).encode(), CreateMode.PERSISTENT_SEQUENTIAL)
        broker.world.ensemble.try_commit(broker.session, note)
