"""From an event to its handler."""

from typing import assert_never, cast

from kctl.logic import (
    broker_answers,
    broker_changes,
    controlled_shutdown,
    controllership,
    deletion,
    features,
    isr_changes,
    preferred_leaders,
    quarantine,
    reassignment,
    retry,
    topic_requests,
    topics,
    users,
)
from kctl.logic.failover import fail_over
from kctl.logic.recipients import seal
from kctl.messages import events as ev
from kctl.messages.answers import preempted
from kctl.messages.outbox import Outbox
from kctl.model.cluster import ClusterState, Node
from kctl.model.settings import FOUND_BY_METADATA_SINCE

ControllershipEvent = (
    ev.Startup
    | ev.ControllerChange
    | ev.Reelect
    | ev.RegisterBrokerAndReelect
    | ev.Expire
    | ev.ShutdownEventThread
)

ActiveEvent = (
    ev.BrokerChange
    | ev.BrokerModifications
    | ev.BrokerResync
    | ev.BrokerVersions
    | ev.TopicChange
    | ev.PartitionModifications
    | ev.TopicDeletion
    | ev.CreateTopics
    | ev.CreatePartitions
    | ev.DeleteTopics
    | ev.TopicDeletionStopReplicaResponseReceived
    | ev.AlterPartitionReceived
    | ev.IsrChangeNotification
    | ev.PartitionReassignmentIsrChange
    | ev.LeaderAndIsrResponseReceived
    | ev.UpdateMetadataResponseReceived
    | ev.LogDirEventNotification
    | ev.ControlledShutdown
    | ev.ReplicaLeaderElection
    | ev.AutoPreferredReplicaLeaderElection
    | ev.UncleanLeaderElectionEnable
    | ev.TopicUncleanLeaderElectionEnable
    | ev.ZkPartitionReassignment
    | ev.ApiPartitionReassignment
    | ev.ListPartitionReassignments
    | ev.UpdateFeatures
    | ev.AllocateProducerIds
    | ev.AlterUserScramCredentials
    | ev.QuarantineCheck
    | ev.Retry
)
"""Those that only the active controller handles."""


async def handle(node: Node, events: tuple[ev.Event, ...], outbox: Outbox) -> None:
    """Handle one event, or a group that the queue gave out together."""
    event = events[0]
    if isinstance(event, ControllershipEvent):
        await _on_controllership(node, event, outbox)
    elif isinstance(event, ev.SettingsChange):
        node.settings = event.settings
        if node.cluster is not None:
            node.cluster.settings = event.settings
            preferred_leaders.schedule_balance(
                node.cluster, outbox, event.settings.leader_imbalance_check_interval_ms
            )
    elif node.cluster is None:
        for dropped in events:
            answer = preempted(dropped)
            if answer is not None:
                outbox.answers.append(answer)
    else:
        await _on_active(node.cluster, cast("tuple[ActiveEvent, ...]", events), outbox)
    if node.cluster is not None:
        if _shows_old_brokers(node.cluster, event):
            await controllership.register(node, outbox)
        seal(node.cluster, outbox)


def _shows_old_brokers(cluster: ClusterState, event: ev.Event) -> bool:
    """Those that look for the controller in `/brokers/ids`."""
    if isinstance(event, ev.BrokerVersions):
        return event.release < FOUND_BY_METADATA_SINCE
    if isinstance(event, ev.BrokerChange | ControllershipEvent):
        return any(b.registration_version < 5 for b in cluster.brokers.values())
    return False


async def _on_controllership(node: Node, event: ControllershipEvent, outbox: Outbox) -> None:
    match event:
        case ev.Startup() | ev.ControllerChange() | ev.Reelect() | ev.RegisterBrokerAndReelect():
            stand = True
            if not isinstance(event, ev.Startup):
                held = await controllership.maybe_resign(node, outbox)
                # Held, but not by an active controller: nobody else can stand for it. Free again
                # before the watch was armed anew: nothing will report that it was deleted. And
                # with --takeover a broker that rules is a reason to stand, however it came to rule.
                free = node.active_id is None
                changed_only = isinstance(event, ev.ControllerChange)
                stand = held or free or node.settings.takeover or not changed_only
            if stand and node.cluster is None:
                cluster = await controllership.elect(node, outbox)
                if cluster is not None:
                    await fail_over(cluster, outbox)
        case ev.Expire():
            node.active_id = None
            node.registered = False
            if node.cluster is not None:
                controllership.resign(node, outbox, "the ZooKeeper session is lost")
        case ev.ShutdownEventThread():
            await controllership.hand_over(node, outbox)


async def _on_active(  # noqa: PLR0915 one case for each event
    cluster: ClusterState, events: tuple[ActiveEvent, ...], outbox: Outbox
) -> None:
    event = events[0]
    match event:
        case ev.BrokerChange():
            await broker_changes.on_broker_change(cluster, outbox)
        case ev.BrokerModifications():
            await broker_changes.on_broker_modifications(cluster, event, outbox)
        case ev.BrokerResync():
            await broker_changes.on_broker_resync(cluster, event, outbox)
        case ev.BrokerVersions():
            await broker_changes.on_broker_versions(cluster, event, outbox)
        case ev.TopicChange():
            await topics.on_topic_change(cluster, outbox)
        case ev.PartitionModifications():
            await topics.on_partition_modifications(cluster, event, outbox)
        case ev.TopicDeletion():
            await topics.on_topic_deletion(cluster, outbox)
        case ev.CreateTopics():
            await topic_requests.on_create_topics(cluster, event, outbox)
        case ev.CreatePartitions():
            await topic_requests.on_create_partitions(cluster, event, outbox)
        case ev.DeleteTopics():
            await topic_requests.on_delete_topics(cluster, event, outbox)
        case ev.TopicDeletionStopReplicaResponseReceived():
            group = cast("tuple[ev.TopicDeletionStopReplicaResponseReceived, ...]", events)
            await deletion.on_stop_replica_responses(cluster, group, outbox)
        case ev.AlterPartitionReceived():
            requests = cast("tuple[ev.AlterPartitionReceived, ...]", events)
            await isr_changes.on_alter_partitions(cluster, requests, outbox)
        case ev.IsrChangeNotification():
            await isr_changes.on_isr_change_notification(cluster, outbox)
        case ev.PartitionReassignmentIsrChange():
            await isr_changes.on_reassignment_isr_change(cluster, event, outbox)
        case ev.LeaderAndIsrResponseReceived():
            await broker_answers.on_leader_and_isr_response(cluster, event, outbox)
        case ev.UpdateMetadataResponseReceived():
            await broker_answers.on_update_metadata_response(cluster, event, outbox)
        case ev.LogDirEventNotification():
            await broker_answers.on_log_dir_notification(cluster, outbox)
        case ev.ControlledShutdown():
            await controlled_shutdown.on_controlled_shutdown(cluster, event, outbox)
        case ev.ReplicaLeaderElection():
            await preferred_leaders.on_replica_leader_election(cluster, event, outbox)
        case ev.AutoPreferredReplicaLeaderElection():
            await preferred_leaders.on_auto_balance(cluster, outbox)
        case ev.UncleanLeaderElectionEnable():
            await preferred_leaders.on_unclean_enabled(cluster, outbox)
        case ev.TopicUncleanLeaderElectionEnable(topic=topic):
            await preferred_leaders.on_unclean_enabled(cluster, outbox, topic)
        case ev.ZkPartitionReassignment():
            await reassignment.on_zk_reassignment(cluster, outbox)
        case ev.ApiPartitionReassignment():
            await reassignment.on_api_reassignment(cluster, event, outbox)
        case ev.ListPartitionReassignments():
            reassignment.on_list_reassignments(cluster, event, outbox)
        case ev.UpdateFeatures():
            features.on_update_features(cluster, event, outbox)
        case ev.AllocateProducerIds():
            await features.on_allocate_producer_ids(cluster, event, outbox)
        case ev.AlterUserScramCredentials():
            await users.on_alter_user_scram_credentials(cluster, event, outbox)
        case ev.Retry():
            await retry.on_retry(cluster, outbox)
        case ev.QuarantineCheck():
            await quarantine.on_quarantine_check(cluster, outbox)
        case _:
            assert_never(event)
