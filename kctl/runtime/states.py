"""Kafka's ControllerState gauge: a number and a timer's name for each kind of event."""

from kctl.messages import events as ev

IDLE = 0

CONTROLLER_STATES: dict[type[ev.Event], int] = {
    ev.Startup: 1,
    ev.ControllerChange: 1,
    ev.Reelect: 1,
    ev.RegisterBrokerAndReelect: 1,
    ev.Expire: 1,
    ev.BrokerChange: 2,
    ev.BrokerModifications: 2,
    ev.BrokerResync: 2,
    ev.TopicChange: 3,
    ev.PartitionModifications: 3,
    ev.CreateTopics: 3,
    ev.CreatePartitions: 3,
    ev.TopicDeletion: 4,
    ev.TopicDeletionStopReplicaResponseReceived: 4,
    ev.DeleteTopics: 4,
    ev.ZkPartitionReassignment: 5,
    ev.ApiPartitionReassignment: 5,
    ev.PartitionReassignmentIsrChange: 5,
    ev.AutoPreferredReplicaLeaderElection: 6,
    ev.ReplicaLeaderElection: 7,
    ev.ControlledShutdown: 8,
    ev.IsrChangeNotification: 9,
    ev.AlterPartitionReceived: 9,
    ev.LeaderAndIsrResponseReceived: 10,
    ev.LogDirEventNotification: 11,
    ev.ShutdownEventThread: 12,
    ev.UncleanLeaderElectionEnable: 13,
    ev.TopicUncleanLeaderElectionEnable: 14,
    ev.ListPartitionReassignments: 15,
    ev.UpdateMetadataResponseReceived: 16,
    ev.UpdateFeatures: 17,
}

TIMERS: dict[int, str] = {
    1: "ControllerChange",
    2: "LeaderElection",
    3: "TopicChange",
    4: "TopicDeletion",
    5: "PartitionReassignment",
    6: "AutoLeaderBalance",
    7: "ManualLeaderBalance",
    8: "ControlledShutdown",
    9: "IsrChange",
    10: "LeaderAndIsrResponseReceived",
    11: "LogDirChange",
    12: "ControllerShutdown",
    13: "UncleanLeaderElectionEnable",
    14: "TopicUncleanLeaderElectionEnable",
    15: "ListPartitionReassignment",
    17: "UpdateFeatures",
}
"""`<name>RateAndTimeMs`; two of them have historic names."""


def controller_state(event: ev.Event) -> int:
    return CONTROLLER_STATES.get(type(event), IDLE)
