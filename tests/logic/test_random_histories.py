"""Random histories of a small cluster: nothing may raise, and in the end all must be well.

After each step the invariants hold and every request has exactly one answer. When the faults end
(brokers back, znodes repaired) everything converges: leaders, full ISRs, no deletion, reassignment
or marker left. A seed that fails becomes a named test of its own.
"""

import random
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.messages.requests import StopReplicaRequest
from kctl.model.codes import Code, Malformed
from kctl.model.names import TopicPartition
from kctl.model.rows import Leadership
from kctl.model.states import ReplicaState
from kctl.simulation.memory import MemoryZooKeeper
from tests.logic.broker_views import disagreements, views
from tests.logic.notation import broker, show
from tests.logic.test_unknown_outcomes import WRITES, rows_of, with_zookeeper
from tests.logic.world import World, build_zookeeper, malformed

SEEDS = 60
STEPS = 40
ADMIN = ev.ElectionTrigger.ADMIN_CLIENT


@attrs.define
class Flaky(MemoryZooKeeper):
    """Loses replies: the write has landed or has not."""

    dice: random.Random = attrs.field(factory=random.Random)
    rate: float = 0.0

    def perform(self, effect: ef.Effect[Any]) -> object:
        if not isinstance(effect, WRITES) or self.dice.random() >= self.rate:
            return super().perform(effect)
        reply = super().perform(effect) if self.dice.random() < 0.5 else rows_of(effect)
        if isinstance(reply, dict):
            return dict.fromkeys(reply, Code.UNKNOWN)
        return None if isinstance(effect, ef.RemoveNotifications) else Code.UNKNOWN


class History:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.brokers = list(range(1, self.dice.randint(3, 6)))
        options: dict[str, Any] = {"unclean_leader_election": self.dice.random() < 0.3}
        if self.dice.random() < 0.3:
            options["inter_broker_protocol"] = (2, 6)
        world = World.over(build_zookeeper(*self.lines(), brokers=self.brokers), **options)
        rate = self.dice.choice([0.0, 0.0, 0.05, 0.2])
        self.world = with_zookeeper(world, Flaky, dice=random.Random(seed + 1), rate=rate)
        self.epoch, self.caller, self.answered = 1000, 10**6, 0
        self.spoilt: dict[TopicPartition, Leadership] = {}
        self.told: list[str] = []
        self.world.run(ev.Startup())

    def lines(self) -> list[str]:
        made = []
        for topic in range(self.dice.randint(1, 3)):
            for partition in range(self.dice.randint(1, 3)):
                replicas = self.some(self.brokers, 3)
                isr = self.some(replicas, 3)
                marked = [f"{b}*" if b == isr[0] else str(b) for b in replicas]
                state = f"isr={','.join(map(str, isr))}"
                made.append(f"t{topic}-{partition}: {','.join(marked)} {state}")
        return made

    def some(self, items: list[Any], most: int) -> list[Any]:
        return self.dice.sample(items, self.dice.randint(1, min(most, len(items))))

    def register(self, number: int) -> None:
        self.epoch += 1
        self.world.zk.brokers[number] = broker(number, self.epoch)

    def partition(self) -> TopicPartition:
        return self.dice.choice([*self.world.cluster.rows, TopicPartition("nobody", 0)])

    def ask(self, make: Callable[[int], ev.Event]) -> None:
        self.caller += 1
        mark = len(self.world.log.answers)
        self.world.run(make(self.caller))
        callers = [answer.caller for answer in self.world.log.answers[mark:]]
        assert callers.count(self.caller) == 1

    # -- what may happen ---------------------------------------------------------------------

    def brokers_come_and_go(self) -> None:
        for number in self.some(self.brokers, len(self.brokers)):
            if number in self.world.zk.brokers and self.dice.random() < 0.5:
                del self.world.zk.brokers[number]
            else:
                self.register(number)
        self.world.run(ev.BrokerChange())

    def a_topic_is_created(self) -> None:
        topic = ev.NewTopic(f"n{self.dice.randint(0, 3)}", self.dice.randint(1, 3), 1)
        self.ask(lambda caller: ev.CreateTopics(caller, (topic,)))

    def a_topic_grows(self) -> None:
        more = ev.NewPartitions(self.partition().topic, self.dice.randint(1, 5))
        self.ask(lambda caller: ev.CreatePartitions(caller, (more,)))

    def a_topic_is_deleted(self) -> None:
        topic = self.partition().topic
        if self.dice.random() < 0.5:
            self.world.delete(topic)
        else:
            self.ask(lambda caller: ev.DeleteTopics(caller, ((topic, None),)))

    def a_partition_is_reassigned(self) -> None:
        target = {self.partition(): tuple(self.some(self.brokers, 3))}
        self.ask(lambda caller: ev.ApiPartitionReassignment(caller, target))

    def a_reassignment_is_cancelled(self) -> None:
        cancelled = dict.fromkeys(self.world.cluster.reassigning)
        self.ask(lambda caller: ev.ApiPartitionReassignment(caller, cancelled))

    def a_reassignment_by_znode(self) -> None:
        self.world.zk.reassignments = {self.partition(): tuple(self.some(self.brokers, 3))}
        self.world.run(ev.ZkPartitionReassignment())

    def a_broker_leaves(self) -> None:
        number = self.dice.choice(self.brokers)
        self.ask(lambda caller: ev.ControlledShutdown(caller, number))

    def leaders_take_in_who_caught_up(self) -> None:
        self.world.run(*self.world.caught_up())

    def a_leader_proposes_something(self) -> None:
        tp = self.partition()
        row = self.world.cluster.rows.get(tp)
        if row is None or row.leadership is None:
            return
        isr = tuple(self.some(list(row.replicas), 3))
        proposal = ev.IsrProposal(isr, row.leadership.leader_epoch, row.leadership.zk_version)
        known = self.world.cluster.brokers.get(row.leader)
        epoch = 0 if known is None else known.epoch
        self.ask(
            lambda caller: ev.AlterPartitionReceived(caller, row.leader, epoch, 1, {tp: proposal})
        )

    def leaders_are_elected(self) -> None:
        kind = self.dice.choice(list(ev.ElectionType))
        self.ask(lambda caller: ev.ReplicaLeaderElection(caller, None, kind, ADMIN))
        self.world.run(ev.AutoPreferredReplicaLeaderElection())

    def the_session_expires(self) -> None:
        self.world.expire()

    def a_log_dir_fails_or_is_back(self) -> None:
        number = self.dice.choice(self.brokers)
        known = self.world.cluster.brokers.get(number)
        replicas = list(self.world.cluster.partitions_on(number))
        if known is not None and replicas:
            errors = {tp: self.dice.choice([0, 56]) for tp in self.some(replicas, 3)}
            self.world.run(ev.LeaderAndIsrResponseReceived(number, known.epoch, 0, errors))

    def brokers_answer_deletions(self) -> None:
        requests = self.world.log.dispatches[self.answered :]
        self.answered = len(self.world.log.dispatches)
        for request in requests:
            if isinstance(request, StopReplicaRequest):
                errors = {tp: self.dice.choice([0, 0, 56]) for tp in request.partitions}
                error = self.dice.choice([0, 0, 0, -1])
                self.world.run(
                    ev.TopicDeletionStopReplicaResponseReceived(
                        request.broker, request.broker_epoch, error, errors
                    )
                )

    def timers_are_due(self) -> None:
        for tag in list(self.world.timers):
            self.world.fire(tag)

    def a_state_is_spoilt(self) -> None:
        tp = self.partition()
        state = self.world.zk.states.get(tp)
        if isinstance(state, Leadership):
            self.spoilt[tp] = state
            path = f"/brokers/topics/{tp.topic}/partitions/{tp.partition}/state"
            self.world.zk.states[tp] = malformed(path)

    def states_are_repaired(self) -> None:
        for tp, state in self.spoilt.items():
            if isinstance(self.world.zk.states.get(tp), Malformed):
                self.world.zk.states[tp] = state.written()
        self.spoilt.clear()

    def watches_fire_for_nothing(self) -> None:
        topics = [ev.PartitionModifications(t) for t in self.world.cluster.topics]
        self.world.run(ev.BrokerChange(), ev.TopicChange(), ev.TopicDeletion(), *topics)

    # -- and what must hold ------------------------------------------------------------------

    def step(self) -> None:
        name = self.dice.choice(STEPS_THAT_HAPPEN)
        self.told.append(name)
        getattr(self, name)()
        # What ZooKeeper holds moves without us: by lost replies and by those who repair znodes.
        problems = [p for p in self.world.problems() if "in memory" not in p]
        assert problems == [], self.told

    def end_of_faults(self) -> None:
        assert isinstance(self.world.zk, Flaky)
        self.world.zk.rate = 0.0
        self.states_are_repaired()
        for number in self.brokers:
            self.register(number)
        self.watches_fire_for_nothing()
        for _ in range(4):
            self.timers_are_due()
            self.world.settle()

    def what_is_left(self) -> list[str]:
        cluster, zk = self.world.cluster, self.world.zk
        left = self.world.problems()
        for tp, row in cluster.rows.items():
            shown = f"{tp}: {show(row.assignment, row.leadership)}"
            if row.leader not in cluster.live or set(row.isr) != set(row.replicas):
                left.append(shown)
            if set(row.replica_states) != {ReplicaState.ONLINE}:
                left.append(f"{shown} {row.replica_states}")
        left += [f"{topic} in deletion" for topic in (*cluster.deletions, *zk.deletions)]
        left += [f"{tp} reassigning" for tp in cluster.reassigning]
        states = {tp: state for tp, state in zk.states.items() if isinstance(state, Leadership)}
        told = views(self.world.log.dispatches)
        left += disagreements(told, cluster.live, states, cluster.rows)
        return left if zk.reassignments is None else [*left, "the reassignment znode"]


STEPS_THAT_HAPPEN = [
    name
    for name, member in vars(History).items()
    if callable(member) and name.split("_")[0] in ("a", "brokers", "leaders", "the", "timers")
] + ["states_are_repaired", "watches_fire_for_nothing"]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_random_history_ends_well(seed: int) -> None:
    history = History(seed)
    for _ in range(STEPS):
        history.step()
    history.end_of_faults()
    assert history.what_is_left() == [], history.told


def test_the_histories_are_made_of_many_things() -> None:
    assert len(STEPS_THAT_HAPPEN) > 15
