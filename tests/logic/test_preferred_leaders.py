"""Elections on request (RPC and znode) and by the balance timer."""

import attrs
import pytest

from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.messages.answers import OK, ApiError, PartitionErrors
from kctl.messages.events import ElectionTrigger, ElectionType
from kctl.messages.outbox import StartTimer
from kctl.model.codes import Code, KafkaError
from kctl.simulation.memory import MemoryZooKeeper
from tests.logic.notation import describe, tp_of, tps
from tests.logic.world import MakeWorld, World, malformed

K = KafkaError
PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN


def elect(one: World, kind: ElectionType, *names: str, every: bool = False) -> dict[str, ApiError]:
    one.callers += 1
    partitions = None if every else tps(*names)
    event = ev.ReplicaLeaderElection(
        one.callers, partitions, kind, trigger=ElectionTrigger.ADMIN_CLIENT
    )
    answer = one.ask(event)
    assert isinstance(answer, PartitionErrors)
    return {str(tp): error for tp, error in answer.errors.items()}


def waiting(one: World) -> object:
    return one.zk.preferred_election


@pytest.mark.handles("ReplicaLeaderElection")
@pytest.mark.parity(34)
def test_preferred_by_rpc_each_partition_its_answer(world: MakeWorld) -> None:
    one = world(
        "t-0: 1,2*",
        "t-1: 1*,2",
        "t-2: 1,2* isr=2",
        "t-3: 3,2* isr=2,3",
        "t-4: 3 new",
        "going-0: 1,2*,3",
        dead=(3,),
    )
    one.delete("going")
    errors = elect(one, PREFERRED, "t-0", "t-1", "t-2", "t-3", "t-4", "going-0", "nobody-0")
    assert {name: error.code for name, error in errors.items()} == {
        "t-0": K.NONE,
        "t-1": K.ELECTION_NOT_NEEDED,
        "t-2": K.PREFERRED_LEADER_NOT_AVAILABLE,
        "t-3": K.PREFERRED_LEADER_NOT_AVAILABLE,
        "t-4": K.PREFERRED_LEADER_NOT_AVAILABLE,
        "going-0": K.INVALID_TOPIC_EXCEPTION,
        "nobody-0": K.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert errors["t-4"].message == "t-4 never had a leader"
    assert one["t-0"] == "1*,2 isr=1,2 epoch=1"


@pytest.mark.parity(34)
def test_preferred_for_all_leaves_out_those_that_need_none(world: MakeWorld) -> None:
    one = world("t-0: 1,2*", "t-1: 1*,2")
    assert elect(one, PREFERRED, every=True) == {"t-0": OK}


@pytest.mark.parity(34)
def test_all_replicas_are_told_of_a_preferred_leader(world: MakeWorld) -> None:
    one = world("t-0: 1,2*,3 isr=1,2")
    mark = len(one.log.dispatches)
    elect(one, PREFERRED, "t-0")
    assert [describe(d) for d in one.log.dispatches[mark:]] == [
        *("LeaderAndIsr to 1: t-0", "LeaderAndIsr to 2: t-0", "LeaderAndIsr to 3: t-0"),
        "UpdateMetadata to 1,2,3: t-0",
    ]
    assert one["t-0"] == "1*,2,3 isr=1,2 epoch=1"


@pytest.mark.handles("ReplicaLeaderElection")
@pytest.mark.parity(35)
def test_unclean_by_rpc(world: MakeWorld) -> None:
    """The caller's word counts: no config is asked."""
    one = world("t-0: 1*,2 isr=1", "t-1: 2*,1", "t-2: 1*", "t-3: 1*,2,3")
    one.kill(1)
    effects = len(one.log.effects)
    errors = elect(one, UNCLEAN, "t-0", "t-1", "t-2", "t-3")
    assert {name: error.code for name, error in errors.items()} == {
        "t-0": K.NONE,
        "t-1": K.ELECTION_NOT_NEEDED,
        "t-2": K.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        "t-3": K.ELECTION_NOT_NEEDED,
    }
    assert one["t-0"] == "1,2* isr=2 epoch=2 recovering"
    assert not [e for e in one.log.effects[effects:] if isinstance(e, ef.ReadTopicConfigs)]


@pytest.mark.handles("ReplicaLeaderElection")
@pytest.mark.parity(36)
def test_preferred_by_znode(world: MakeWorld) -> None:
    one = world("t-0: 1,2*", "t-1: 1,2*")
    one.zk.preferred_election = tps("t-0", "nobody-0")
    recorded = one.run(ev.ReplicaLeaderElection())
    assert one["t-0"] == "1*,2 isr=1,2 epoch=1"
    assert one["t-1"] == "1,2* isr=1,2 epoch=0"
    assert waiting(one) is None
    # It looks once more, so that the watch is armed and a znode made meanwhile is seen.
    reads = [e for e in recorded.effects if isinstance(e, ef.ReadPreferredElection)]
    assert len(reads) == 2
    assert recorded.answers == []


@pytest.mark.parity(36)
def test_a_broken_znode_is_removed_and_reported(world: MakeWorld) -> None:
    one = world("t-0: 1,2*")
    one.zk.preferred_election = malformed("/admin/preferred_replica_election")
    one.run(ev.ReplicaLeaderElection())
    assert waiting(one) is None
    assert one.cluster.quarantine == {}
    assert one.told("quarantined") == ["/admin/preferred_replica_election: not JSON"]


def test_a_znode_that_may_not_be_removed_is_not_tried_for_ever(world: MakeWorld) -> None:
    one = world("t-0: 1,2*")

    class NoRights(MemoryZooKeeper):
        __slots__ = ()

        def perform(self, effect: ef.Effect[object]) -> object:
            if isinstance(effect, ef.RemovePreferredElection):
                return Code.NO_AUTH
            return super().perform(effect)

    one.zk.__class__ = NoRights
    one.zk.preferred_election = tps("t-0")
    one.run(ev.ReplicaLeaderElection())
    assert one["t-0"] == "1*,2 isr=1,2 epoch=1"
    assert one.told("znode not removed")


# -- the balance timer ---------------------------------------------------------------------------


@pytest.mark.handles("AutoPreferredReplicaLeaderElection")
@pytest.mark.parity(37)
def test_a_broker_that_lost_more_than_its_share_gets_it_back(world: MakeWorld) -> None:
    one = world("t-0: 1,2*", "t-1: 1,2* isr=2", "t-2: 1*,2", "t-3: 2*,1")
    one.run(ev.AutoPreferredReplicaLeaderElection())
    assert one["t-0"] == "1*,2 isr=1,2 epoch=1"
    assert one["t-1"] == "1,2* isr=2 epoch=0"  # not in sync: never a leader by balance
    assert one.timers["leader balance"] == StartTimer(
        "leader balance", 300_000, ev.AutoPreferredReplicaLeaderElection()
    )


@pytest.mark.handles("AutoPreferredReplicaLeaderElection")
@pytest.mark.parity(37)
@pytest.mark.parametrize("lost, moves", [(1, False), (2, True)])
def test_exactly_the_percentage_is_not_yet_too_much(
    world: MakeWorld, lost: int, moves: bool
) -> None:
    lines = [f"t-{p}: 1,2*" if p < lost else f"t-{p}: 1*,2" for p in range(10)]
    one = world(*lines, leader_imbalance_per_broker_percentage=10)
    one.fire("leader balance")
    assert one["t-0"].startswith("1*,2") is moves


@pytest.mark.parity(37)
def test_ratios_are_by_broker(world: MakeWorld) -> None:
    lines = [f"a-{p}: 1*,2" for p in range(9)]
    one = world(*lines, "a-9: 1,2*", "b-0: 2,1*", leader_imbalance_per_broker_percentage=20)
    one.fire("leader balance")
    assert one["a-9"] == "1,2* isr=1,2 epoch=0"
    assert one["b-0"] == "2*,1 isr=2,1 epoch=1"


@pytest.mark.parity(37)
def test_balance_switched_off(world: MakeWorld) -> None:
    one = world("t-0: 1,2*", auto_leader_rebalance=False)
    assert "leader balance" not in one.timers
    assert one.run(ev.AutoPreferredReplicaLeaderElection()).effects == []
    assert one["t-0"] == "1,2* isr=1,2 epoch=0"


@pytest.mark.parity(37)
def test_a_dead_or_leaving_preferred_replica_is_not_elected(world: MakeWorld) -> None:
    one = world("t-0: 1,2*,3", "t-1: 3,2*,1")
    one.ask(ev.ControlledShutdown(1, 1))
    before = one["t-0"]
    one.fire("leader balance")
    assert one["t-0"] == before
    assert one["t-1"].startswith("3*,2,1")


def test_the_timer_goes_on_after_settings_changed(world: MakeWorld) -> None:
    one = world("t-0: 1,2*", leader_imbalance_per_broker_percentage=100)
    one.fire("leader balance")
    assert one["t-0"] == "1,2* isr=1,2 epoch=0"
    changed = attrs.evolve(one.node.settings, leader_imbalance_per_broker_percentage=10)
    one.run(ev.SettingsChange(changed))
    one.fire("leader balance")
    assert one["t-0"] == "1*,2 isr=1,2 epoch=1"
    assert tp_of("t-0") not in one.cluster.unbalanced
