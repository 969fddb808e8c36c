"""From winning the election to a working controller."""

import pytest

from kctl.logic.chunks import REQUEST, WRITE
from kctl.logic.failover import ControllerIdTaken
from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.messages.requests import LeaderAndIsrRequest, UpdateMetadataRequest
from kctl.model.codes import Code
from kctl.model.states import PartitionState, ReplicaState
from tests.logic.notation import describe, tp_of
from tests.logic.world import MakeWorld, World, build_zookeeper, notified

ONLINE, OFFLINE, INELIGIBLE = (
    ReplicaState.ONLINE,
    ReplicaState.OFFLINE,
    ReplicaState.DELETION_INELIGIBLE,
)


@pytest.mark.parity(9, 10)
def test_a_sound_cluster_is_loaded_told_and_not_written(world: MakeWorld) -> None:
    one = world("t-0: 1*,2 epoch=4", "t-1: 2*,1", "u-0: 3*,1", elected=False)
    recorded = one.run(ev.Startup())
    assert [describe(d) for d in recorded.dispatches] == [
        *("Connect 1", "Connect 2", "Connect 3"),
        "UpdateMetadata to 1,2,3: live brokers",
        *("LeaderAndIsr to 1: t-0, t-1, u-0", "LeaderAndIsr to 2: t-0, t-1"),
        "LeaderAndIsr to 3: u-0",
        "UpdateMetadata to 1,2,3: t-0, t-1, u-0",
    ]
    writes = (ef.WritePartitions, ef.WriteTopics, ef.CreatePartitionStates)
    assert not [e for e in recorded.effects if isinstance(e, writes)]
    assert one["t-0"] == "1*,2 isr=1,2 epoch=4"
    assert one.told("ready") == ["3 brokers, 2 topics, 3 partitions"]
    assert set(one.timers) == {"leader balance", "quarantine"}
    assert one.timers["leader balance"].delay_ms == 5_000


@pytest.mark.parity(10)
def test_every_broker_knows_the_live_brokers_before_its_first_leader_and_isr(
    world: MakeWorld,
) -> None:
    one = world("t-0: 1,2,3 isr=1,2", "t-1: 2*,1", dead=(3,), elected=False)
    knows: set[int] = set()
    for dispatch in one.run(ev.Startup()).dispatches:
        if isinstance(dispatch, UpdateMetadataRequest):
            assert [b.id for b in dispatch.live_brokers] == [1, 2]
            knows.update(dispatch.recipients)
        elif isinstance(dispatch, LeaderAndIsrRequest):
            assert dispatch.broker in knows


@pytest.mark.parity(12)
def test_brokers_that_died_with_the_old_controller(world: MakeWorld) -> None:
    """The leader's successor and the smaller ISR are one write, one epoch (Kafka needs two)."""
    one = world("t-0: 1*,2,3 epoch=4", "t-1: 2*,3,1 epoch=4", "t-2: 1* epoch=4", dead=(1,))
    assert one["t-0"] == "1,2*,3 isr=2,3 epoch=5"
    assert one["t-1"] == "2*,3,1 isr=2,3 epoch=5"
    assert one["t-2"] == "1 isr=1 epoch=5"
    rows = one.cluster.rows
    assert rows[tp_of("t-0")].replica_states == (OFFLINE, ONLINE, ONLINE)
    assert rows[tp_of("t-2")].state is PartitionState.OFFLINE


@pytest.mark.parity(18)
def test_partitions_without_a_state_get_one(world: MakeWorld) -> None:
    one = world("t-0: 1,2 new", "t-1: 3,4 new", dead=(4,))
    assert one["t-0"] == "1*,2 isr=1,2 epoch=0"
    assert one["t-1"] == "3*,4 isr=3 epoch=0"


@pytest.mark.parity(54)
def test_offline_replicas_are_in_the_metadata(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3", dead=(3,), elected=False)
    last = one.run(ev.Startup()).dispatches[-1]
    assert isinstance(last, UpdateMetadataRequest)
    assert last.offline == {tp_of("t-0"): (3,)}


@pytest.mark.parity(22)
def test_topic_ids_survive_a_failover(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    known = one.cluster.topics["t"].id
    one.expire()
    assert one.cluster.topics["t"].id == known
    node = one.zk.topics["t"]
    assert isinstance(node, ef.TopicNode)
    assert node.topic_id == known


@pytest.mark.parity(21)
@pytest.mark.parametrize("release, minted", [((2, 7), False), ((2, 8), True)])
def test_topics_without_an_id_get_one_where_all_brokers_know_ids(
    release: tuple[int, int], minted: bool
) -> None:
    zk = build_zookeeper("t-0: 1*,2")
    node = zk.topics["t"]
    assert isinstance(node, ef.TopicNode)
    zk.topics["t"] = ef.TopicNode(node.partitions, None, 3)
    one = World.over(zk, inter_broker_protocol=release)
    one.run(ev.Startup())
    stored = zk.topics["t"]
    assert isinstance(stored, ef.TopicNode)
    assert (stored.topic_id is not None) is minted
    assert stored.topic_id == one.cluster.topics["t"].id
    assert one.problems() == []


def test_old_notifications_are_thrown_away_unread(world: MakeWorld) -> None:
    """Everything is read anyway."""
    one = world("t-0: 1*,2", elected=False)
    one.zk.isr_notifications.update(notified(isr_change_1=["t-0"]))
    one.zk.log_dir_notifications["/log_dir_event_notification/a"] = 1
    one.run(ev.Startup())
    assert not one.zk.isr_notifications
    assert not one.zk.log_dir_notifications


@pytest.mark.parity(27)
def test_a_half_deleted_topic_is_finished(world: MakeWorld) -> None:
    """The old controller had removed some partitions and died."""
    one = world("t-0: 1*,2", "t-1: 2*,1", "u-0: 1*,2", elected=False)
    del one.zk.states[tp_of("t-0")]
    one.zk.deletions["t"] = None
    one.zk.configs["t"] = {}
    one.run(ev.Startup())
    one.settle()
    assert list(one.zk.topics) == ["u"]
    assert not one.zk.deletions
    assert not one.zk.configs


@pytest.mark.parity(27)
def test_a_marker_whose_topic_is_gone_is_removed_with_the_config(world: MakeWorld) -> None:
    one = world("u-0: 1*,2", elected=False)
    one.zk.deletions["t"] = None
    one.zk.configs["t"] = {"retention.ms": "1"}
    one.run(ev.Startup())
    assert not one.zk.deletions
    assert not one.zk.configs


def test_a_topic_in_deletion_is_not_told_to_its_brokers_again(world: MakeWorld) -> None:
    """A LeaderAndIsr for it could create logs that a broker has just deleted."""
    one = world("t-0: 1*,2,3", dead=(3,), elected=False)
    one.zk.deletions["t"] = None
    sent = [describe(d) for d in one.run(ev.Startup()).dispatches]
    assert not [line for line in sent if line.startswith("LeaderAndIsr")]
    assert "UpdateMetadata to 1,2: t-0(deleted)" in sent


@pytest.mark.parity(43)
def test_the_reassignment_znode_wins_over_the_topics(world: MakeWorld) -> None:
    one = world("t-0: 3,1*,2 adding=3 removing=2 isr=1,2", brokers=(4,), elected=False)
    one.zk.reassignments = {tp_of("t-0"): (4, 1)}
    one.run(ev.Startup())
    assert one["t-0"] == "4,1*,2 adding=4 removing=2 isr=1,2 epoch=1"
    one.settle()
    assert one["t-0"] == "4,1* isr=1,4 epoch=2"
    assert one.zk.reassignments is None


@pytest.mark.parity(44)
def test_a_reassignment_under_way_is_taken_up(world: MakeWorld) -> None:
    one = world("t-0: 3,1*,2 adding=3 removing=2 isr=1,2 epoch=1", elected=False)
    sent = [describe(d) for d in one.run(ev.Startup()).dispatches]
    assert "LeaderAndIsr to 3: t-0(new)" in sent
    one.settle()
    assert one["t-0"] == "3,1* isr=1,3 epoch=3"


@pytest.mark.parity(36)
def test_a_preferred_election_that_waits_in_zookeeper_is_run(world: MakeWorld) -> None:
    one = world("t-0: 1,2* isr=1,2", elected=False)
    one.zk.preferred_election = (tp_of("t-0"),)
    one.run(ev.Startup())
    assert one["t-0"] == "1*,2 isr=1,2 epoch=1"
    assert one.zk.preferred_election is None


def test_a_broker_under_the_controllers_id_is_a_fault_with_advice(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", brokers=(1000,), elected=False)
    with pytest.raises(
        ControllerIdTaken, match=r"id 1000; give this controller another broker\.id"
    ):
        one.run(ev.Startup())
    one.node.cluster = None


@pytest.mark.parity(61)
@pytest.mark.parametrize(
    "release, found, written",
    [
        (None, Code.NO_NODE, ef.FeatureNode(True, {})),
        ((3, 9), Code.NO_NODE, ef.FeatureNode(True, {})),
        ((2, 6), Code.NO_NODE, ef.FeatureNode(False, {})),
        ((3, 9), ef.FeatureNode(True, {}), None),
        ((3, 9), ef.FeatureNode(False, {"f": 2}), ef.FeatureNode(True, {})),
        ((2, 6), ef.FeatureNode(True, {"f": 2}), ef.FeatureNode(False, {})),
        ((2, 6), ef.FeatureNode(False, {}), None),
        ((3, 9), ef.FeatureNode(True, {"f": 2}), None),
    ],
)
def test_the_feature_znode(
    world: MakeWorld,
    release: tuple[int, int] | None,
    found: ef.FeatureNode | Code,
    written: ef.FeatureNode | None,
) -> None:
    one = world("t-0: 1*,2", elected=False, inter_broker_protocol=release)
    one.zk.features = found if isinstance(found, ef.FeatureNode) else None
    effects = one.run(ev.Startup()).effects
    assert [e.node for e in effects if isinstance(e, ef.WriteFeatures)] == (
        [] if written is None else [written]
    )


def test_many_partitions_are_loaded_and_told_in_chunks(world: MakeWorld) -> None:
    """Between two awaits there are a few thousand rows at most; what is read or written at once may
    be more, but it is decided on and taken in with pauses."""
    one = world(*(f"t-{p}: 1*,2 epoch=1" for p in range(WRITE + 2_000)), dead=(1,), elected=False)
    recorded = one.run(ev.Startup())
    reads = [at for at, e in enumerate(recorded.effects) if isinstance(e, ef.ReadPartitions)]
    assert len(reads) == 2
    assert recorded.effects[reads[0] + 1 : reads[0] + 3] == [ef.Flush(), ef.Flush()]
    sizes = [len(e.rows) for e in recorded.effects if isinstance(e, ef.WritePartitions)]
    assert sizes == [WRITE, 2_000]
    assert one[f"t-{WRITE + 1_999}"] == "1,2* isr=2 epoch=2"


def test_requests_of_a_failover_are_bounded(world: MakeWorld) -> None:
    one = world(*(f"t-{p}: 1*,2" for p in range(6_000)), elected=False)
    dispatches = one.run(ev.Startup()).dispatches
    orders = [d for d in dispatches if isinstance(d, LeaderAndIsrRequest)]
    assert [(d.broker, len(d.rows)) for d in orders] == [
        (broker, size) for broker in (1, 2) for size in (REQUEST, 6_000 - REQUEST)
    ]
    told = [len(d.rows) for d in dispatches if isinstance(d, UpdateMetadataRequest) and d.rows]
    assert told == [REQUEST, 6_000 - REQUEST]
