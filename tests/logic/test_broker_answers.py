"""Failed log dirs, seen in notifications and in answers to LeaderAndIsr."""

import pytest

from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.messages.requests import UpdateMetadataRequest
from kctl.model.codes import KafkaError
from kctl.model.names import TopicPartition
from kctl.model.states import ReplicaState
from tests.logic.notation import describe, tp_of, tps
from tests.logic.world import MakeWorld, foreign_controller, malformed

NOTICE = "/log_dir_event_notification/log_dir_event_0"
FAILED = KafkaError.KAFKA_STORAGE_ERROR


def answer(broker: int, *, error: int = 0, **errors: int) -> ev.LeaderAndIsrResponseReceived:
    named: dict[TopicPartition, int] = {
        tp_of(name.replace("_", "-")): code for name, code in errors.items()
    }
    return ev.LeaderAndIsrResponseReceived(broker, 100 + broker, error, named)


@pytest.mark.handles("LogDirEventNotification")
@pytest.mark.parity(53)
def test_a_notified_broker_is_asked_about_all_its_replicas(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", "t-1: 2*,1", "t-2: 2*,3", "t-3: 1,3 new", dead=(3,))
    one.zk.log_dir_notifications[NOTICE] = 1
    recorded = one.run(ev.LogDirEventNotification())
    assert [describe(d) for d in recorded.dispatches] == [
        "LeaderAndIsr to 1: t-0, t-1, t-3",
        "UpdateMetadata to 1,2: t-0, t-1, t-3",
    ]
    assert not one.zk.log_dir_notifications
    assert one["t-0"] == "1*,2 isr=1,2 epoch=0"


@pytest.mark.handles("LogDirEventNotification")
@pytest.mark.parity(53)
def test_notices_of_unknown_brokers_and_broken_ones_are_cleared(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    one.zk.log_dir_notifications[NOTICE] = 77
    one.zk.log_dir_notifications["/broken"] = malformed("/broken")
    recorded = one.run(ev.LogDirEventNotification())
    assert recorded.dispatches == []
    assert ef.RemoveNotifications((NOTICE, "/broken")) in recorded.effects
    assert one.told("notification dropped") == [
        f"{NOTICE}: broker 77 is not known",
        "/broken: not JSON",
    ]


@pytest.mark.handles("LeaderAndIsrResponseReceived")
@pytest.mark.parity(53, 54)
def test_replicas_on_a_failed_dir_are_as_good_as_dead(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", "t-1: 2*,1", "t-2: 1*,2")
    recorded = one.run(answer(1, t_0=FAILED, t_1=FAILED, t_2=0))
    assert one["t-0"] == "1,2* isr=2 epoch=1"
    assert one["t-1"] == "2*,1 isr=2 epoch=1"
    assert one["t-2"] == "1*,2 isr=1,2 epoch=0"
    assert "StopReplica to 1: t-0" in [describe(d) for d in recorded.dispatches][-1]
    offline: dict[TopicPartition, tuple[int, ...]] = {}
    for dispatch in recorded.dispatches:
        if isinstance(dispatch, UpdateMetadataRequest):
            offline.update(dispatch.offline)
    assert offline == {tp_of("t-0"): (1,), tp_of("t-1"): (1,)}
    assert list(one.cluster.offline_dirs[1]) == [*tps("t-0", "t-1")]


@pytest.mark.parity(53)
def test_a_failed_replica_is_neither_elected_nor_taken_into_an_isr(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3")
    one.run(answer(2, t_0=FAILED))
    refused = one.propose("t-0", 1, 3, 2, api_version=2)
    assert refused.partitions == {tp_of("t-0"): KafkaError.INELIGIBLE_REPLICA}  # type: ignore[union-attr]
    one.kill(1)
    assert one["t-0"] == "1,2,3* isr=3 epoch=2"


@pytest.mark.parity(53)
def test_a_restart_forgets_the_failed_dirs(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    one.run(answer(2, t_0=FAILED))
    one.bounce(2)
    assert not one.cluster.offline_dirs
    one.settle()
    assert one["t-0"].startswith("1*,2 isr=1,2")


@pytest.mark.handles("LeaderAndIsrResponseReceived")
@pytest.mark.parity(53)
def test_a_replica_that_answers_well_again_is_back(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    one.run(answer(2, t_0=FAILED))
    assert one.cluster.rows[tp_of("t-0")].replica_state(2) is ReplicaState.OFFLINE
    recorded = one.run(answer(2, t_0=0))
    assert not one.cluster.offline_dirs
    assert one.cluster.rows[tp_of("t-0")].replica_state(2) is ReplicaState.ONLINE
    assert "LeaderAndIsr to 2: t-0" in [describe(d) for d in recorded.dispatches]


def test_the_same_failure_twice_is_handled_once(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    one.run(answer(1, t_0=FAILED))
    assert one.run(answer(1, t_0=FAILED)).effects == []
    assert one["t-0"] == "1,2* isr=2 epoch=1"


def test_the_last_in_sync_replica_on_a_failed_dir(world: MakeWorld) -> None:
    one = world("t-0: 1*,2 isr=1")
    one.run(answer(1, t_0=FAILED))
    assert one["t-0"] == "1,2 isr=1 epoch=1"
    one.bounce(1)
    assert one["t-0"].startswith("1*,2 isr=1")


@pytest.mark.handles("LeaderAndIsrResponseReceived")
@pytest.mark.parametrize(
    "response",
    [
        answer(1, t_0=KafkaError.STALE_CONTROLLER_EPOCH),
        answer(1, t_0=KafkaError.UNKNOWN_TOPIC_OR_PARTITION),
        answer(1, nobody_0=FAILED),
        answer(3, t_0=FAILED),
        answer(9, t_0=FAILED),
        ev.LeaderAndIsrResponseReceived(1, 55, 0, {tp_of("t-0"): FAILED}),
        answer(1, error=KafkaError.STALE_BROKER_EPOCH, t_0=FAILED),
    ],
    ids=[
        *("epoch not risen", "unknown there", "unknown here", "not its replica"),
        *("unknown broker", "older incarnation", "restarted"),
    ],
)
def test_answers_that_change_nothing(world: MakeWorld, response: ev.Event) -> None:
    one = world("t-0: 1*,2", brokers=(3,))
    assert one.run(response).effects == []
    assert one["t-0"] == "1*,2 isr=1,2 epoch=0"
    assert not one.cluster.offline_dirs


@pytest.mark.parametrize(
    "error", [KafkaError.FENCED_LEADER_EPOCH, KafkaError.INCONSISTENT_TOPIC_ID]
)
def test_answers_that_a_person_should_hear_of(world: MakeWorld, error: KafkaError) -> None:
    one = world("t-0: 1*,2")
    one.run(answer(1, t_0=error))
    assert one.told("broker refused a partition") == [f"t-0: broker 1 answered {error.name}"]


@pytest.mark.handles("LeaderAndIsrResponseReceived")
def test_a_request_refused_as_a_whole_is_sent_again(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    one.run(answer(1, error=KafkaError.CLUSTER_AUTHORIZATION_FAILED))
    assert one.timers["resync-1"].event == ev.BrokerResync(1, 101)


@pytest.mark.handles("LeaderAndIsrResponseReceived")
def test_refused_for_a_newer_controller(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    one.zk.controller = foreign_controller(2)
    one.run(answer(1, error=KafkaError.STALE_CONTROLLER_EPOCH))
    assert one.node.cluster is None


def test_a_failed_dir_during_a_deletion(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    one.delete("t")
    one.run(answer(1, t_0=FAILED))
    assert one.cluster.rows[tp_of("t-0")].replica_state(1) is ReplicaState.DELETION_INELIGIBLE
    one.bounce(1)
    one.settle()
    assert not one.zk.topics


def test_a_replica_that_is_moved_away_leaves_its_failed_dir_behind(world: MakeWorld) -> None:
    """Moved back later, it may well lie on another dir."""
    one = world("t-0: 1*,2", brokers=(3,))
    one.run(answer(2, t_0=FAILED))
    one.reassign(t_0=(1, 3))
    one.settle()
    assert not one.cluster.offline_dirs.get(2)
    one.reassign(t_0=(1, 2))
    one.settle()
    assert one["t-0"].startswith("1*,2 isr=1,2")
