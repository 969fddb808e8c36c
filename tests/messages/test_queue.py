"""The queue: merged where a re-read covers it, grouped where one write serves many, never lost."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.messages import events as ev
from kctl.messages.answers import (
    Answer,
    ApiError,
    CreatedTopic,
    PartitionErrors,
    Refused,
    TopicResults,
    preempted,
)
from kctl.messages.queue import GROUP_MAX, EventQueue
from kctl.model.codes import KafkaError
from kctl.model.names import TopicPartition

T0 = TopicPartition("t", 0)
NOT_CONTROLLER = ApiError(KafkaError.NOT_CONTROLLER)


def alter(caller: int) -> ev.AlterPartitionReceived:
    return ev.AlterPartitionReceived(caller, 1, 1)


def drained(queue: EventQueue) -> list[tuple[ev.Event, ...]]:
    taken = []
    while len(queue):
        taken.append(queue.take())
    return taken


def queue_of(*events: ev.Event) -> EventQueue:
    queue = EventQueue()
    for event in events:
        queue.put(event)
    return queue


@pytest.mark.parametrize(
    "event",
    [
        ev.BrokerChange(),
        ev.TopicChange(),
        ev.TopicDeletion(),
        ev.IsrChangeNotification(),
        ev.LogDirEventNotification(),
        ev.PartitionModifications("t"),
        ev.BrokerModifications(1),
        ev.QuarantineCheck(),
        ev.Retry(),
    ],
)
def test_what_a_re_read_covers_waits_once(event: ev.Event) -> None:
    queue = queue_of(event, ev.Reelect(), event)
    assert drained(queue) == [(event,), (ev.Reelect(),)]
    queue.put(event)
    assert drained(queue) == [(event,)]  # taken: what changes from now on needs a look again


def test_merging_looks_at_the_whole_event() -> None:
    one, other = ev.PartitionModifications("t"), ev.PartitionModifications("u")
    assert drained(queue_of(one, other, one)) == [(one,), (other,)]


@pytest.mark.parametrize("event", [ev.Reelect(), ev.ZkPartitionReassignment(), ev.Startup()])
def test_other_events_are_not_merged(event: ev.Event) -> None:
    assert drained(queue_of(event, event)) == [(event,), (event,)]


def test_adjacent_alter_partitions_are_committed_together() -> None:
    queue = queue_of(alter(1), alter(2), ev.BrokerChange(), alter(3))
    assert drained(queue) == [(alter(1), alter(2)), (ev.BrokerChange(),), (alter(3),)]


def test_answers_without_an_error_part_nobody() -> None:
    well = ev.UpdateMetadataResponseReceived(1, 7), ev.LeaderAndIsrResponseReceived(1, 7, 0, {})
    queue = queue_of(alter(1), *well, alter(2), *well)
    assert drained(queue) == [(alter(1), alter(2))]


def test_answers_with_something_to_say_are_queued() -> None:
    refused = ev.UpdateMetadataResponseReceived(1, 7, KafkaError.STALE_BROKER_EPOCH)
    all_refused = ev.LeaderAndIsrResponseReceived(1, 7, KafkaError.STALE_CONTROLLER_EPOCH, {})
    back = ev.LeaderAndIsrResponseReceived(1, 7, 0, {T0: KafkaError.NONE})
    assert drained(queue_of(refused, all_refused, back)) == [(refused,), (all_refused,), (back,)]


def test_adjacent_stop_replica_answers_are_taken_together() -> None:
    answers = [ev.TopicDeletionStopReplicaResponseReceived(b, 1) for b in (1, 2)]
    assert drained(queue_of(*answers, alter(1))) == [tuple(answers), (alter(1),)]


def test_a_group_is_bounded() -> None:
    queue = queue_of(*(alter(n) for n in range(GROUP_MAX + 1)))
    assert [len(group) for group in drained(queue)] == [GROUP_MAX, 1]


REQUESTS: dict[str, tuple[ev.Event, object]] = {
    "ControlledShutdown": (
        ev.ControlledShutdown(1, 2, 3),
        Refused(ApiError(KafkaError.STALE_CONTROLLER_EPOCH)),
    ),
    "ReplicaLeaderElection": (
        ev.ReplicaLeaderElection(1, (T0,), trigger=ev.ElectionTrigger.ADMIN_CLIENT),
        PartitionErrors({T0: NOT_CONTROLLER}),
    ),
    "ReplicaLeaderElection of all": (
        ev.ReplicaLeaderElection(1, None, trigger=ev.ElectionTrigger.ADMIN_CLIENT),
        PartitionErrors({}),
    ),
    "ApiPartitionReassignment": (
        ev.ApiPartitionReassignment(1, {T0: (1,)}),
        Refused(NOT_CONTROLLER),
    ),
    "ListPartitionReassignments": (ev.ListPartitionReassignments(1), Refused(NOT_CONTROLLER)),
    "AlterPartitionReceived": (alter(1), Refused(NOT_CONTROLLER)),
    "UpdateFeatures": (ev.UpdateFeatures(1), Refused(NOT_CONTROLLER)),
    "AllocateProducerIds": (ev.AllocateProducerIds(1, 1, 1), Refused(NOT_CONTROLLER)),
    "AlterUserScramCredentials": (
        ev.AlterUserScramCredentials(1, {"alice": {"SCRAM-SHA-256": None}}),
        Refused(NOT_CONTROLLER),
    ),
    "CreateTopics": (
        ev.CreateTopics(1, (ev.NewTopic("t"),)),
        TopicResults((CreatedTopic("t", NOT_CONTROLLER),)),
    ),
    "CreatePartitions": (
        ev.CreatePartitions(1, (ev.NewPartitions("t", 2),)),
        TopicResults((CreatedTopic("t", NOT_CONTROLLER),)),
    ),
    "DeleteTopics": (
        ev.DeleteTopics(1, (("t", None), (None, "id"))),
        TopicResults((CreatedTopic("t", NOT_CONTROLLER), CreatedTopic("", NOT_CONTROLLER, "id"))),
    ),
}
"""Every event that somebody waits for, and what he is told when it is thrown away."""


@pytest.mark.parity(66)
@pytest.mark.parametrize("name", REQUESTS)
def test_a_thrown_away_request_is_answered(name: str) -> None:
    event, value = REQUESTS[name]
    assert preempted(event) == Answer(1, value)  # type: ignore[arg-type]
    queue = queue_of(ev.BrokerChange(), event)
    assert queue.clear_and_put(ev.Expire()) == [Answer(1, value)]  # type: ignore[arg-type]
    assert drained(queue) == [(ev.Expire(),)]


@pytest.mark.parity(66)
def test_every_event_with_a_caller_has_an_answer() -> None:
    """A new request without one would leave its caller waiting when the controller moves."""
    kinds = [
        kind
        for kind in vars(ev).values()
        if isinstance(kind, type)
        and issubclass(kind, ev.Event)
        and "caller" in kind.__annotations__
    ]
    assert {kind.__name__ for kind in kinds} == {name.split()[0] for name in REQUESTS}


def test_events_that_nobody_waits_for_are_dropped_silently() -> None:
    queue = queue_of(ev.BrokerChange(), ev.ReplicaLeaderElection(), ev.Startup())
    assert queue.clear_and_put(ev.ShutdownEventThread()) == []
    assert drained(queue) == [(ev.ShutdownEventThread(),)]


def test_after_the_queue_was_cleared_nothing_counts_as_waiting() -> None:
    queue = queue_of(ev.BrokerChange())
    queue.clear_and_put(ev.Expire())
    queue.put(ev.BrokerChange())
    assert drained(queue) == [(ev.Expire(),), (ev.BrokerChange(),)]


commands = st.lists(st.sampled_from(["alter", "shutdown", "broker", "take", "clear"]), max_size=40)


@given(commands)
def test_each_caller_is_handled_or_answered_exactly_once(steps: list[str]) -> None:
    queue, fate, caller = EventQueue(), Counter[int](), 0
    for step in steps:
        if step == "alter":
            caller += 1
            queue.put(alter(caller))
        elif step == "shutdown":
            caller += 1
            queue.put(ev.ControlledShutdown(caller, 1))
        elif step == "broker":
            queue.put(ev.BrokerChange())
        elif step == "clear":
            fate.update(answer.caller for answer in queue.clear_and_put(ev.Expire()))
        elif len(queue):
            fate.update(e.caller for e in queue.take() if hasattr(e, "caller"))
    for group in drained(queue):
        fate.update(e.caller for e in group if hasattr(e, "caller"))
    assert fate == Counter(range(1, caller + 1))
