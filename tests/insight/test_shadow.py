"""The shadow without a cluster: what is seen goes in, what it makes of it comes out."""

import asyncio

import attrs

from kctl.insight import inputs as told
from kctl.insight.fork import Fork, copied
from kctl.insight.inputs import Input
from kctl.insight.shadow import DIVERGED_AFTER_S, SETTLE_S, Finding, Shadow, Verdict
from kctl.insight.sightings import (
    BrokerSeen,
    ConfigSeen,
    ControllerSeen,
    MarkerSeen,
    Seen,
    StateSeen,
    TopicSeen,
    differences,
    take_in,
)
from kctl.messages.effects import TopicNode
from kctl.model.brokers import Broker, Endpoint
from kctl.model.names import TopicPartition
from kctl.model.rows import Assignment, Leadership
from kctl.simulation.memory import MemoryZooKeeper
from tests.insight.test_explain import snapshot_of

SCENE = """
controller 1 epoch=1
broker 1
broker 2
broker 3
topic t 0=1,2,3
state t-0 leader=1 isr=1,2,3 epoch=4
"""
T0 = TopicPartition("t", 0)


def registration(broker: int, epoch: int = 500) -> Broker:
    return Broker(broker, epoch, (Endpoint("PLAINTEXT", "127.0.0.1", 9000 + broker),))


def state(leader: int, isr: tuple[int, ...], epoch: int, version: int | None = None) -> Leadership:
    return Leadership(leader, isr, epoch, 1, epoch if version is None else version)


@attrs.define
class Beside:
    """A shadow, and a clock that is moved by hand."""

    shadow: Shadow
    now_s: float = 0.0

    @classmethod
    def of(cls, scene: str = SCENE) -> "Beside":
        beside = cls(Shadow(asyncio.run(snapshot_of(scene)), 0.0, stuck_after_s=30))
        (settled,) = beside.wait(SETTLE_S)
        assert settled.verdict is Verdict.AGREED
        return beside

    def see(self, *seen: Seen) -> None:
        self.shadow.see(seen, self.now_s)

    def wait(self, seconds: float) -> list[Finding]:
        findings: list[Finding] = []
        end = self.now_s + seconds
        while self.now_s < end:
            self.now_s = min(end, self.now_s + 0.25)
            findings += self.shadow.check(self.now_s)
        return findings

    def verdicts(self, seconds: float = SETTLE_S + DIVERGED_AFTER_S + 1) -> list[Verdict]:
        return [finding.verdict for finding in self.wait(seconds)]


# -- decisions -------------------------------------------------------------------------------


def test_the_same_leader_after_a_death() -> None:
    beside = Beside.of()
    beside.see(BrokerSeen(1, None))
    assert beside.verdicts(2) == []  # the controller is not that quick
    beside.see(StateSeen(T0, state(2, (2, 3), 5)))
    (finding,) = beside.wait(SETTLE_S)
    assert finding.verdict is Verdict.AGREED
    assert finding.decisions["leader elected"] == 1


def test_epochs_are_not_compared() -> None:
    beside = Beside.of()
    beside.see(BrokerSeen(1, None), StateSeen(T0, state(-1, (2, 3), 5)))
    beside.see(StateSeen(T0, state(2, (3, 2), 6)))
    assert beside.verdicts() == [Verdict.AGREED]


def test_another_leader_is_a_divergence_with_its_trace() -> None:
    beside = Beside.of()
    beside.see(BrokerSeen(1, None), StateSeen(T0, state(3, (2, 3), 5)))
    (finding,) = beside.wait(SETTLE_S + DIVERGED_AFTER_S + 1)
    assert finding.verdict is Verdict.DIVERGED
    assert [d.key for d in finding.differences] == ["t-0"]
    assert finding.trace[0] == "input: broker 1 is gone"
    assert (
        "kctl: t-0 leader elected: leader 1, ISR [1, 2, 3] -> leader 2, ISR [2, 3]"
        in finding.trace[1]
    )
    assert finding.trace[-1] == (
        "t-0: kctl replicas [1, 2, 3], leader 2, ISR [2, 3], "
        "found replicas [1, 2, 3], leader 3, ISR [2, 3]"
    )
    assert beside.verdicts() == []  # told once
    beside.see(BrokerSeen(2, None), StateSeen(T0, state(3, (3,), 6)))
    assert beside.verdicts() == [Verdict.AGREED]  # and it goes on from there


def test_a_member_left_in_the_isr_is_a_divergence() -> None:
    beside = Beside.of()
    beside.see(BrokerSeen(1, None), StateSeen(T0, state(2, (1, 2, 3), 5)))
    assert beside.verdicts() == [Verdict.DIVERGED]


def test_a_cluster_that_never_comes_to_rest() -> None:
    beside = Beside.of(SCENE + "topic u 0=2,3\nstate u-0 leader=2 isr=2,3 epoch=1\n")
    u0 = TopicPartition("u", 0)
    verdicts: list[Verdict] = []

    def churn(seconds: int) -> None:
        for version in range(2, 2 + 2 * seconds):
            isr = (2,) if version % 2 else (2, 3)
            version += u0_version  # noqa: PLW2901
            beside.see(StateSeen(u0, state(2, isr, 1, version=version)))
            verdicts.extend(finding.verdict for finding in beside.wait(0.5))

    u0_version = 0
    churn(15)
    assert set(verdicts) == {Verdict.AGREED}
    beside.see(StateSeen(T0, state(3, (1, 2, 3), 5)))
    u0_version = 100
    churn(25)
    assert verdicts.count(Verdict.DIVERGED) == 1


def test_no_reaction_is_told_once_and_ends_when_there_is_one() -> None:
    beside = Beside.of()
    beside.see(BrokerSeen(1, None))
    assert beside.verdicts(20) == []
    assert beside.verdicts(60) == [Verdict.STUCK]
    beside.see(StateSeen(T0, state(2, (2, 3), 5)))
    assert beside.verdicts() == [Verdict.AGREED]


def test_no_controller() -> None:
    beside = Beside.of()
    beside.see(ControllerSeen(None, 1))
    assert beside.verdicts(20) == []
    assert beside.verdicts(60) == [Verdict.ABSENT]
    beside.see(ControllerSeen(2, 2), ControllerSeen(None, 2))
    assert beside.verdicts(40) == [Verdict.ABSENT]


def test_what_is_due_at_the_start_and_not_done() -> None:
    scene = SCENE.replace("leader=1 isr=1,2,3", "leader=-1 isr=2")
    shadow = Shadow(asyncio.run(snapshot_of(scene)), 0.0, stuck_after_s=30)
    assert Beside(shadow).verdicts(40) == [Verdict.STUCK]


# -- what comes by request -------------------------------------------------------------------


def test_the_leaders_isr_changes_are_no_decisions() -> None:
    beside = Beside.of()
    beside.see(StateSeen(T0, state(1, (1, 2), 4, version=5)))
    beside.see(StateSeen(T0, state(1, (1, 2, 3), 4, version=6)))
    (finding,) = beside.wait(SETTLE_S)
    assert finding.verdict is Verdict.AGREED
    assert dict(finding.decisions) == {"ISR change allowed": 2}


def test_preferred_election() -> None:
    beside = Beside.of(SCENE.replace("leader=1", "leader=2"))
    beside.see(StateSeen(T0, state(1, (1, 2, 3), 5)))
    assert beside.verdicts() == [Verdict.AGREED]


def test_what_no_request_explains() -> None:
    """Leadership goes to somebody who is neither preferred nor next, and nobody has left."""
    beside = Beside.of()
    beside.see(StateSeen(T0, state(3, (1, 2, 3), 5)))
    assert beside.verdicts() == [Verdict.DIVERGED]


def test_controlled_shutdown_and_what_follows_while_it_goes_on() -> None:
    beside = Beside.of()
    beside.see(StateSeen(T0, state(2, (2, 3), 5)))
    assert beside.verdicts() == [Verdict.AGREED]
    # Broker 1 is registered, but must not be elected any more.
    beside.see(BrokerSeen(2, None), StateSeen(T0, state(3, (3,), 6)))
    assert beside.verdicts() == [Verdict.AGREED]
    beside.see(BrokerSeen(1, None))
    assert beside.verdicts() == [Verdict.AGREED]


def test_unclean_election_by_request() -> None:
    beside = Beside.of(
        SCENE.replace("broker 1\n", "").replace("leader=1 isr=1,2,3", "leader=-1 isr=1")
    )
    beside.see(StateSeen(T0, state(2, (2,), 5)))
    assert beside.verdicts() == [Verdict.AGREED]
    beside = Beside.of(
        SCENE.replace("broker 1\n", "").replace("leader=1 isr=1,2,3", "leader=-1 isr=1")
    )
    beside.see(StateSeen(T0, state(3, (3,), 5)))  # not the first that is alive
    assert beside.verdicts() == [Verdict.DIVERGED]


def test_a_failed_log_dir() -> None:
    scene = SCENE + "topic u 0=1,2\nstate u-0 leader=1 isr=1,2 epoch=1\n"
    beside = Beside.of(scene)
    beside.see(StateSeen(TopicPartition("u", 0), state(2, (2,), 2)))
    assert beside.verdicts() == [Verdict.AGREED]
    assert beside.shadow.is_settled


def test_a_config_that_was_overtaken() -> None:
    """Turned on and off again before the controller looked: it never elected uncleanly."""
    beside = Beside.of(
        SCENE.replace("broker 1\n", "").replace("leader=1 isr=1,2,3", "leader=-1 isr=1")
    )
    on = {"unclean.leader.election.enable": "true"}
    beside.see(ConfigSeen("t", on), ConfigSeen("t", {"unclean.leader.election.enable": "false"}))
    assert beside.verdicts() == [Verdict.AGREED]
    beside.see(ConfigSeen("t", on))
    assert beside.verdicts(40) == [Verdict.STUCK]


def test_two_deaths_met_as_one() -> None:
    beside = Beside.of(SCENE.replace("isr=1,2,3", "isr=1,3"))
    beside.see(BrokerSeen(3, None), BrokerSeen(1, None), StateSeen(T0, state(-1, (3,), 5)))
    assert beside.verdicts() == [Verdict.AGREED]


# -- topics ----------------------------------------------------------------------------------


def node(*replicas: int, adding: tuple[int, ...] = (), removing: tuple[int, ...] = ()) -> TopicNode:
    return TopicNode({0: Assignment(replicas, adding, removing)}, "uAAAAAAAAAAAAAAAAAAAAw", 0)


def test_a_topic_is_created_and_deleted() -> None:
    beside = Beside.of()
    u0 = TopicPartition("u", 0)
    beside.see(TopicSeen("u", node(3, 1)), StateSeen(u0, state(3, (1, 3), 0)))
    (finding,) = beside.wait(SETTLE_S)
    assert (finding.verdict, finding.decisions["first leader"]) == (Verdict.AGREED, 1)
    beside.see(MarkerSeen("u", True))
    assert beside.verdicts(3) == []
    beside.see(StateSeen(u0, None), TopicSeen("u", None), MarkerSeen("u", False))
    (finding,) = beside.wait(SETTLE_S)
    assert (finding.verdict, finding.decisions["topic deleted"]) == (Verdict.AGREED, 1)


def test_a_topic_is_begun_with_the_wrong_leader() -> None:
    beside = Beside.of()
    beside.see(TopicSeen("u", node(3, 1)), StateSeen(TopicPartition("u", 0), state(1, (3, 1), 0)))
    assert Verdict.DIVERGED in beside.verdicts()


def test_a_reassignment_from_beginning_to_end() -> None:
    beside = Beside.of(SCENE + "topic u 0=1,2\nstate u-0 leader=1 isr=1,2 epoch=1\n")
    u0 = TopicPartition("u", 0)
    moving = node(3, 1, 2, adding=(3,), removing=(1, 2))
    beside.see(TopicSeen("u", moving), StateSeen(u0, state(1, (1, 2), 2)))
    assert beside.verdicts() == [Verdict.AGREED]
    beside.see(StateSeen(u0, state(1, (1, 2, 3), 2, version=3)))
    assert beside.verdicts(3) == []  # the target is in sync: it has to be finished
    beside.see(StateSeen(u0, state(3, (3,), 4, version=5)), TopicSeen("u", node(3)))
    (finding,) = beside.wait(SETTLE_S)
    assert finding.decisions["reassignment finished"] == 1


def test_a_deletion_remembers_what_is_deleted_already() -> None:
    """A broker deletes its replica and stops; the topic goes when the other one has done the same."""
    scene = SCENE.replace("broker 1\n", "").replace("leader=1 isr=1,2,3", "leader=2 isr=2,3")
    beside = Beside.of(scene + "topic u 0=1,2\nstate u-0 leader=2 isr=2 epoch=1\n")
    beside.see(MarkerSeen("u", True))
    assert beside.verdicts() == [Verdict.AGREED]  # on hold for broker 1
    beside.see(BrokerSeen(2, None), StateSeen(T0, state(3, (3,), 5)))
    assert Verdict.DIVERGED not in beside.verdicts()
    beside.see(BrokerSeen(1, registration(1)))
    beside.see(
        StateSeen(TopicPartition("u", 0), None), TopicSeen("u", None), MarkerSeen("u", False)
    )
    assert beside.verdicts() == [Verdict.AGREED]


HELD = SCENE + "topic u 0=3,1+3-1\nstate u-0 leader=1 isr=1 epoch=1\n"


def test_a_reassignment_that_held_a_deletion_was_finished_unseen() -> None:
    beside = Beside.of(HELD)
    beside.see(MarkerSeen("u", True))
    assert beside.verdicts() == [Verdict.AGREED]  # it waits for the reassignment
    beside.see(StateSeen(TopicPartition("u", 0), None), TopicSeen("u", None))
    assert beside.verdicts() == [Verdict.AGREED]


def test_a_broker_that_returns_while_a_reassignment_holds_a_deletion() -> None:
    """Kafka forgets what the deletion waits for when a broker returns; kctl goes on waiting."""
    beside = Beside.of(HELD.replace("broker 3\n", "").replace("isr=1,2,3", "isr=1,2"))
    beside.see(MarkerSeen("u", True))
    assert beside.verdicts() == [Verdict.AGREED]
    beside.see(BrokerSeen(2, registration(2)))
    beside.see(StateSeen(T0, state(1, (1,), 5)))
    assert Verdict.DIVERGED not in beside.verdicts()
    beside.see(StateSeen(TopicPartition("u", 0), None), TopicSeen("u", None))
    (finding,) = beside.wait(SETTLE_S + DIVERGED_AFTER_S + 1)
    assert finding.verdict is Verdict.EXPLAINED
    assert finding.differences[0].deviation == (
        "a broker returns while a reassignment holds a deletion"
    )


def test_known_deviations_are_explained() -> None:
    """Kafka overrides a reassignment whose new replica alone is in sync, and loses the partition."""
    scene = SCENE + "topic u 0=3,1+3-1\nstate u-0 leader=3 isr=3 epoch=1\n"
    shadow = Shadow(asyncio.run(snapshot_of(scene)), 0.0, stuck_after_s=3)
    beside = Beside(shadow)
    assert beside.verdicts() == [Verdict.STUCK]  # it only had to be finished
    shadow.stuck_after_s = 30
    moved = node(2, 1, adding=(2,), removing=(1,))
    beside.see(TopicSeen("u", moved), StateSeen(TopicPartition("u", 0), state(-1, (3,), 2)))
    (finding,) = beside.wait(SETTLE_S + DIVERGED_AFTER_S + 1)
    assert finding.verdict is Verdict.EXPLAINED
    assert finding.differences[0].deviation == "a reassignment is cancelled or overridden"


# -- what it is made of ----------------------------------------------------------------------


def test_differences_are_what_makes_one_the_other() -> None:
    old = asyncio.run(snapshot_of(SCENE)).zookeeper
    new = copied(old)
    new.brokers.pop(1)
    new.brokers[4] = registration(4)
    new.states[T0] = state(2, (2,), 9)
    new.topics["u"] = node(1)
    new.configs["u"] = {"a": "b"}
    new.deletions["t"] = None
    new.preferred_election = (T0,)
    found = list(differences(old, new))
    copy: MemoryZooKeeper = copied(old)
    for one in found:
        take_in(copy, one)
    assert copy == new
    assert list(differences(copy, new)) == []


def test_a_fork_is_apart() -> None:
    zookeeper = asyncio.run(snapshot_of(SCENE)).zookeeper
    fork = Fork(zookeeper)
    other = fork.fork()
    gone: Input = told.broker_change([BrokerSeen(1, None)])
    gone.apply(other)
    assert other.cluster.rows[T0].leader == 2
    assert fork.cluster.rows[T0].leader == 1
    assert 1 in zookeeper.brokers
