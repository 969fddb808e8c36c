"""What a standby does with events that only the active controller handles: nothing, politely."""

import pytest

from kctl.messages import events as ev
from kctl.messages.answers import preempted
from kctl.model.settings import Settings
from tests.logic.notation import CONTROLLER, tp_of
from tests.logic.world import MakeWorld, foreign_controller

T0 = tp_of("t-0")

SILENT: list[ev.Event] = [
    ev.AutoPreferredReplicaLeaderElection(),
    ev.ReplicaLeaderElection(),
    ev.UncleanLeaderElectionEnable(),
    ev.TopicUncleanLeaderElectionEnable("t"),
    ev.LeaderAndIsrResponseReceived(1, 101),
    ev.UpdateMetadataResponseReceived(1, 101, -1),
    ev.TopicDeletionStopReplicaResponseReceived(1, 101),
    ev.BrokerChange(),
    ev.BrokerModifications(1),
    ev.TopicChange(),
    ev.PartitionModifications("t"),
    ev.TopicDeletion(),
    ev.LogDirEventNotification(),
    ev.IsrChangeNotification(),
    ev.ZkPartitionReassignment(),
    ev.PartitionReassignmentIsrChange(T0),
    ev.BrokerResync(1, 101),
    ev.BrokerVersions((3, 9)),
    ev.QuarantineCheck(),
    ev.Retry(),
]
ANSWERED: list[ev.Event] = [
    ev.ReplicaLeaderElection(1, (T0,), trigger=ev.ElectionTrigger.ADMIN_CLIENT),
    ev.ControlledShutdown(1, 1),
    ev.ApiPartitionReassignment(1, {T0: (1,)}),
    ev.ListPartitionReassignments(1),
    ev.AlterPartitionReceived(1, 1, 101),
    ev.UpdateFeatures(1),
    ev.AllocateProducerIds(1, 1, 101),
    ev.CreateTopics(1, (ev.NewTopic("t"),)),
    ev.CreatePartitions(1, (ev.NewPartitions("t", 2),)),
    ev.DeleteTopics(1, (("t", None),)),
    ev.AlterUserScramCredentials(1, {"alice": {"SCRAM-SHA-256": None}}),
]


def name(event: ev.Event) -> str:
    return type(event).__name__


@pytest.mark.parity(62)
@pytest.mark.parametrize("event", [*SILENT, *ANSWERED], ids=name)
def test_a_standby_reads_writes_and_sends_nothing(world: MakeWorld, event: ev.Event) -> None:
    one = world("t-0: 1*,2", elected=False)
    one.zk.controller = foreign_controller(2)
    one.run(ev.Startup())
    recorded = one.run(event)
    assert recorded.effects == []
    assert recorded.dispatches == []
    assert one.timers == {}
    expected = preempted(event)
    assert recorded.answers == ([] if expected is None else [expected])
    assert (event in ANSWERED) is (expected is not None)


@pytest.mark.parity(62, 66)
def test_a_group_that_arrives_at_a_standby_is_answered_one_by_one(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", elected=False)
    events = [ev.AlterPartitionReceived(caller, 1, 101) for caller in range(5)]
    assert [a.caller for a in one.run(*events).answers] == [0, 1, 2, 3, 4]


def test_settings_reach_a_standby_and_its_later_term(world: MakeWorld) -> None:
    one = world("t-0: 1*,2 isr=1", elected=False)
    one.run(ev.SettingsChange(Settings(CONTROLLER, unclean_leader_election=True)))
    one.run(ev.Startup())
    assert one.cluster.settings.unclean_leader_election
    one.kill(1)
    assert one["t-0"].startswith("1,2* isr=2")


def test_every_event_of_the_union_is_in_one_of_the_lists() -> None:
    kinds = {
        kind
        for kind in vars(ev).values()
        if isinstance(kind, type) and issubclass(kind, ev.Event) and kind is not ev.Event
    }
    listed = {type(event) for event in (*SILENT, *ANSWERED)}
    controllership = {
        *(ev.Startup, ev.ControllerChange, ev.Reelect, ev.RegisterBrokerAndReelect),
        *(ev.Expire, ev.ShutdownEventThread, ev.SettingsChange),
    }
    assert kinds == listed | controllership
