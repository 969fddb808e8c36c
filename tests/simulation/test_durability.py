"""S8, the checker of durability: what it must notice, and what it forgives because Kafka loses it too."""

from kctl.simulation.replica_log import ReplicaLog
from kctl.zookeeper.multi import Delete, SetData
from tests.simulation.history import (
    STATE,
    T0,
    TOPIC_ID,
    History,
    acknowledge,
    allow_unclean,
    violated,
)


def test_s8_a_leader_without_an_acknowledged_record(history: History) -> None:
    acknowledge(history, [1])
    history.world.brokers[2].logs[T0] = ReplicaLog(TOPIC_ID)
    history.kill(1)
    with violated("S8"):
        history.put_state(2, [2], 1)


def test_s8_holds_if_the_leader_has_it(history: History) -> None:
    acknowledge(history, [1, 2])
    history.kill(1)
    history.put_state(2, [2], 1)
    history.safety.durability.check_all()


def test_s8_forgives_when_everybody_lost_the_log(history: History) -> None:
    acknowledge(history, [1, 2])
    for broker in (1, 2):
        history.world.brokers[broker].lose_logs([T0])
    history.safety.durability.check_all()
    assert history.safety.durability.excused == 1


def test_s8_does_not_forgive_while_one_has_it(history: History) -> None:
    acknowledge(history, [1, 2])
    history.world.brokers[1].lose_logs([T0])
    with violated("S8"):
        history.safety.durability.check_all()


def test_s8_forgives_what_a_controller_cannot_know(history: History) -> None:
    """The leader came back empty after the claim, and before the registrations were first read."""
    acknowledge(history, [1, 2])
    history.ensemble.commit(history.people, [Delete("/controller")])
    history.now(20)
    two = history.controller("two")
    history.now(30)
    history.claim(two, 2, 1)
    come_back_empty(history, 1)
    history.now(40)
    history.ensemble.noted_broker_read(two.client.session_id, history.ensemble.zxid)
    history.write(SetData(STATE, history.state(1, [1, 2], 1, by=2)), by=two, fence=2)
    history.safety.durability.check_all()
    assert history.safety.durability.excused == 1


def test_s8_does_not_forgive_what_the_epochs_tell(history: History) -> None:
    """The same, but the controller had seen the broker before: another epoch under its id."""
    acknowledge(history, [1, 2])
    history.learn()
    come_back_empty(history, 1)
    history.learn()
    history.put_state(1, [1, 2], 1)
    with violated("S8"):
        history.safety.durability.check_all()


def test_s8_forgives_what_happened_while_the_state_was_malformed(history: History) -> None:
    acknowledge(history, [1, 2])
    history.learn()
    history.one.node.cluster.poisoned[T0] = STATE
    come_back_empty(history, 1)
    history.one.node.cluster.poisoned.clear()
    history.learn()
    history.put_state(1, [1, 2], 1)
    history.safety.durability.check_all()
    assert history.safety.durability.excused == 1


def test_s8_forgives_what_an_old_leader_acknowledges_after_an_unclean_election(
    history: History,
) -> None:
    allow_unclean(history)
    acknowledge(history, [1, 2])
    for broker in (1, 2):
        history.kill(broker)
    history.put_state(3, [3], 5, leader_recovery_state=1)
    history.safety.acknowledged(T0, TOPIC_ID, 4, 2)
    history.safety.durability.check_all()
    history.safety.acknowledged(T0, TOPIC_ID, 5, 3)
    with violated("S8"):
        history.safety.durability.check_all()


def come_back_empty(history: History, broker: int) -> None:
    model = history.world.brokers[broker]
    model.stop(expire_after=0, wiped=True)
    model.start()
    model.logs[T0] = ReplicaLog(TOPIC_ID)
