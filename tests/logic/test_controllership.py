"""Standing for election, noticing the loss of it, resigning, handing over."""

import attrs
import pytest

from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.messages.answers import ApiError, PartitionErrors, Refused
from kctl.messages.effects import ControllerNode, Controllership
from kctl.messages.requests import DisconnectAll, LeaderAndIsrRequest, StopReplicaRequest
from kctl.model.codes import Code, KafkaError
from kctl.simulation.memory import MemoryZooKeeper
from tests.logic.notation import CONTROLLER, tp_of
from tests.logic.world import MakeWorld, World, build_zookeeper, foreign_controller


@attrs.define
class FirstTime(MemoryZooKeeper):
    """No `/controller_epoch` yet."""

    created: bool = False

    def perform(self, effect: ef.Effect[object]) -> object:
        if isinstance(effect, ef.CreateControllerEpoch):
            self.created = True
        if isinstance(effect, ef.ReadControllership) and not self.created:
            return Controllership(None, None)
        return super().perform(effect)


@attrs.define
class LostReply(MemoryZooKeeper):
    """The connection breaks at the claim, which lands or not."""

    lands: bool = True
    rival: ControllerNode | None = None

    def perform(self, effect: ef.Effect[object]) -> object:
        if not isinstance(effect, ef.ClaimControllership):
            return super().perform(effect)
        if self.lands:
            super().perform(effect)
        elif self.rival is not None:
            self.controller, self.epoch, self.epoch_zk_version = self.rival, effect.epoch, 99
        return Code.UNKNOWN


@pytest.mark.handles("Startup")
@pytest.mark.parity(1, 2)
def test_a_free_controllership_is_claimed_and_the_epoch_rises_by_one(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", elected=False)
    before = one.zk.epoch
    recorded = one.run(ev.Startup())
    claims = [e for e in recorded.effects if isinstance(e, ef.ClaimControllership)]
    assert claims == [ef.ClaimControllership(before + 1, 6, replaces=None)]
    assert one.node.active_id == CONTROLLER
    assert one.cluster.epoch == one.zk.epoch == before + 1
    assert one.cluster.epoch_zk_version == one.zk.epoch_zk_version


@pytest.mark.handles("Startup")
def test_the_first_controller_ever_creates_the_epoch_and_the_paths() -> None:
    one = World.over(FirstTime())
    kinds = [type(e) for e in one.run(ev.Startup()).effects[:5]]
    assert kinds == [
        ef.ReadControllership,
        ef.Bootstrap,
        ef.CreateControllerEpoch,
        ef.ReadControllership,
        ef.ClaimControllership,
    ]
    assert one.cluster.epoch == 1


@pytest.mark.parity(1)
@pytest.mark.parametrize("kctl", [False, True])
def test_a_standing_controller_is_left_alone(world: MakeWorld, kctl: bool) -> None:
    one = world("t-0: 1*,2", elected=False)
    one.zk.controller = foreign_controller(2, kctl=kctl)
    assert [type(e) for e in one.run(ev.Startup()).effects] == [ef.ReadControllership]
    assert one.node.cluster is None
    assert one.node.active_id == 2


@pytest.mark.parity(74)
@pytest.mark.parametrize(
    "options, from_kctl, takes",
    [
        ({}, False, False),
        ({"takeover": True}, False, True),
        ({"takeover": True}, True, False),
        ({"force_takeover": True}, True, True),
        ({"force_takeover": True}, False, True),
    ],
)
def test_who_may_be_taken_from(
    world: MakeWorld, options: dict[str, bool], from_kctl: bool, takes: bool
) -> None:
    """From a broker with takeover, from another kctl by force only: two of them never fight."""
    one = world("t-0: 1*,2", elected=False, **options)
    holder = foreign_controller(2, kctl=from_kctl)
    one.zk.controller = holder
    effects = one.run(ev.Startup()).effects
    claimed = ef.ClaimControllership(7, 6, replaces=holder) in effects
    assert claimed is takes
    assert (one.node.cluster is not None) is takes


@pytest.mark.parity(3)
def test_a_claim_whose_reply_was_lost_counts_if_it_landed() -> None:
    zk = LostReply(epoch=6, epoch_zk_version=6)
    one = World.over(zk)
    one.run(ev.Startup())
    assert one.cluster.epoch == 7
    assert one.problems() == []


@pytest.mark.parity(3)
@pytest.mark.parametrize("rival", [None, foreign_controller(2)])
def test_a_claim_whose_reply_was_lost_is_no_claim_if_it_did_not_land(
    rival: ControllerNode | None,
) -> None:
    one = World.over(LostReply(epoch=6, epoch_zk_version=6, lands=False, rival=rival))
    one.run(ev.Startup())
    assert one.node.cluster is None
    assert one.node.active_id == (None if rival is None else 2)
    assert one.told("election lost") == ["the claim was answered: unknown"]


@pytest.mark.handles("Reelect")
@pytest.mark.parity(4)
def test_a_deleted_controller_node_is_taken_anew(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    one.zk.controller = None
    sent = one.sent(ev.Reelect())
    assert sent[0] == "DisconnectAll"
    assert one.cluster.epoch == 8


@pytest.mark.handles("Reelect")
def test_a_standby_stands_when_the_controller_is_gone(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", elected=False)
    one.zk.controller = foreign_controller(2)
    one.run(ev.Startup())
    one.zk.controller = None
    one.run(ev.Reelect())
    assert one.cluster.epoch == 7


@pytest.mark.handles("ControllerChange")
@pytest.mark.parity(5)
def test_another_controller_means_resigning_at_once(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    one.zk.controller, one.zk.epoch = foreign_controller(2), 8
    recorded = one.run(ev.ControllerChange())
    assert recorded.dispatches == [DisconnectAll()]
    assert one.node.cluster is None
    assert one.node.active_id == 2
    assert one.timers == {}
    assert not [e for e in recorded.effects if not isinstance(e, ef.ReadControllership)]


@pytest.mark.handles("ControllerChange")
def test_our_own_claim_seen_by_the_watch_changes_nothing(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    cluster = one.cluster
    assert one.run(ev.ControllerChange()).dispatches == []
    assert one.cluster is cluster


@pytest.mark.handles("ControllerChange")
def test_a_standby_takes_note_and_does_not_stand(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", elected=False)
    one.zk.controller = foreign_controller(3)
    one.run(ev.ControllerChange())
    assert one.node.cluster is None
    assert one.node.active_id == 3


@pytest.mark.handles("ControllerChange")
@pytest.mark.parity(74)
@pytest.mark.parametrize("kctl", [False, True])
def test_a_standby_with_takeover_does_not_leave_it_to_a_broker(
    world: MakeWorld, kctl: bool
) -> None:
    """The controller died while the standby was cut off: all that it sees is a new one."""
    one = world("t-0: 1*,2", elected=False, takeover=True)
    one.zk.controller = foreign_controller(3, kctl=kctl)
    one.run(ev.ControllerChange())
    assert (one.node.cluster is None) is kctl


@attrs.define
class QuickerBroker(MemoryZooKeeper):
    """A broker claims the free office between our look and our claim."""

    quicker: bool = True

    def perform(self, effect: ef.Effect[object]) -> object:
        if isinstance(effect, ef.ClaimControllership) and self.quicker:
            self.quicker = False
            self.controller = foreign_controller(2)
            self.epoch += 1
            self.epoch_zk_version += 1
        return super().perform(effect)


@pytest.mark.handles("Reelect")
@pytest.mark.parity(74)
@pytest.mark.parametrize("takeover", [False, True])
def test_a_standby_that_lost_the_race_against_a_broker(takeover: bool) -> None:
    one = World.over(QuickerBroker(epoch=6, epoch_zk_version=6), takeover=takeover)
    one.run(ev.Reelect())
    assert one.told("election lost") == ["the claim was answered: bad version"]
    assert one.node.active_id == (CONTROLLER if takeover else 2)
    assert one.zk.epoch == (8 if takeover else 7)


@pytest.mark.handles("ControllerChange")
@pytest.mark.parity(7)
def test_held_but_not_active_is_a_state_that_ends(world: MakeWorld) -> None:
    """Fenced by an epoch that somebody raised, with `/controller` still ours: nobody else can
    stand for it, so it is claimed again with a new epoch."""
    one = world("t-0: 1*,2")
    one.zk.epoch, one.zk.epoch_zk_version = 20, 30
    one.node.cluster = None  # what the driver does when a write is fenced
    one.run(ev.ControllerChange())
    assert one.cluster.epoch == 21
    assert one.cluster.epoch_zk_version == 31


@pytest.mark.parity(7)
def test_a_broker_that_obeys_a_newer_controller_ends_the_term(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    one.zk.controller, one.zk.epoch = foreign_controller(2), 8
    refusal = ev.UpdateMetadataResponseReceived(1, 101, KafkaError.STALE_CONTROLLER_EPOCH)
    one.run(refusal)
    assert one.node.cluster is None
    assert one.node.active_id == 2


@pytest.mark.handles("Expire", "RegisterBrokerAndReelect")
@pytest.mark.parity(6)
def test_a_lost_session_drops_everything_and_a_new_one_starts_over(world: MakeWorld) -> None:
    one = world("t-0: 1*,2,3")
    one.queue.put(ev.BrokerChange())
    one.queue.put(ev.ControlledShutdown(5, 1))
    election = ev.ReplicaLeaderElection(6, (tp_of("t-0"),), trigger=ev.ElectionTrigger.ADMIN_CLIENT)
    one.queue.put(election)
    answers = one.queue.clear_and_put(ev.Expire())
    assert [(a.caller, a.value) for a in answers] == [
        (5, Refused(ApiError(KafkaError.STALE_CONTROLLER_EPOCH))),
        (6, PartitionErrors({tp_of("t-0"): ApiError(KafkaError.NOT_CONTROLLER)})),
    ]
    recorded = one.run()
    assert recorded.effects == []  # without a session nothing can be asked or written
    assert recorded.dispatches == [DisconnectAll()]
    assert (one.node.cluster, one.node.active_id, one.timers) == (None, None, {})
    one.zk.controller = None
    one.run(ev.RegisterBrokerAndReelect())
    assert one.cluster.epoch == 8


@pytest.mark.handles("Expire")
def test_expiry_of_a_standby(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", elected=False)
    assert one.run(ev.Expire()).dispatches == []
    assert one.node.cluster is None


@pytest.mark.handles("RegisterBrokerAndReelect")
def test_many_expiries_in_a_row(world: MakeWorld) -> None:
    """Each term is a function of ZooKeeper alone; nothing of the one before is left."""
    one = world("t-0: 1*,2,3")
    first = one.cluster.fork()
    for term in range(1, 6):
        one.expire()
        assert one.cluster.epoch == first.epoch + term
    assert one.cluster.rows == first.rows
    assert one.cluster.by_broker == first.by_broker
    assert one.kill(1).effects
    assert one["t-0"] == "1,2*,3 isr=2,3 epoch=1"


@pytest.mark.handles("ShutdownEventThread")
@pytest.mark.parity(75)
def test_stopping_frees_the_controllership_under_the_epoch(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    recorded = one.run(ev.ShutdownEventThread())
    assert recorded.effects == [ef.ReleaseControllership(epoch_zk_version=7)]
    assert recorded.dispatches == [DisconnectAll()]
    assert one.zk.controller is None
    assert one.node.cluster is None


@pytest.mark.handles("ShutdownEventThread")
def test_stopping_a_standby_touches_nothing(world: MakeWorld) -> None:
    one = world("t-0: 1*,2", elected=False)
    one.zk.controller = foreign_controller(2)
    recorded = one.run(ev.ShutdownEventThread())
    assert recorded.effects == []
    assert one.zk.controller is not None


def test_a_cancelled_reassignment_does_not_come_back_with_an_old_controller() -> None:
    """C0 has it in memory, C1 sees it cancelled; C0 elected again knows only what ZooKeeper has."""
    zk = build_zookeeper("t-0: 1*,2", brokers=(3,))
    old = World.over(zk)
    old.run(ev.Startup())
    old.reassign(t_0=(3, 2))
    zk.controller = foreign_controller(2)
    old.run(ev.ControllerChange())
    zk.controller = None
    other = World.over(zk)
    other.run(ev.Startup())
    other.reassign(t_0=None)
    zk.controller = None
    other.run(ev.Expire())
    recorded = old.run(ev.Reelect())
    assert old["t-0"].startswith("2,1* isr=") or old["t-0"].startswith("1*,2 isr=")
    assert not old.cluster.reassigning
    assert not [d for d in recorded.dispatches if isinstance(d, StopReplicaRequest)]
    assert old.problems() == []


def test_requests_carry_the_epoch_of_their_term(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    recorded = one.expire()
    lisrs = [d for d in recorded.dispatches if isinstance(d, LeaderAndIsrRequest)]
    assert lisrs
    assert {d.controller_epoch for d in lisrs} == {8}
