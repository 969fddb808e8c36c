"""A trace played on the stage: what happens to the cluster, at its time, as brokers and tools do it.

Long traces are played faster, so that each takes some seconds. What happens within a few
milliseconds is done together.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

import attrs

from kctl.bench import loading, shapes
from kctl.bench.calls import Line
from kctl.bench.isr_storm import Leaders
from kctl.bench.shapes import Topic
from kctl.bench.stage import Measurement, Stage, Trial
from kctl.bench.traces import Happening
from kctl.bench.truth import Expected, Truth, read_some
from kctl.logic.placement import assign_replicas
from kctl.model.names import TopicPartition
from kctl.model.rows import Replicas
from kctl.wire import admin
from kctl.zookeeper import paths
from kctl.zookeeper.errors import MultiError, NodeExists

LASTS_S = 20.0
"""About as long as a trace takes at most."""
TOGETHER_MS = 50
TIMEOUT_MS = 60_000
A_REQUEST = 50


@attrs.define
class Player:
    stage: Stage
    lasts_s: float = LASTS_S
    refused: int = 0
    """Wishes that the controller did not grant, for example for a partition that is gone."""

    async def play(self, name: str, happenings: Sequence[Happening]) -> Measurement:
        """All of one trace; complete when brokers believe what ZooKeeper holds."""

        async def trigger() -> None:
            await self._play(happenings)

        made = [h.topic for h in happenings if h.kind == "create_topic"]
        deleted = [h.topic for h in happenings if h.kind == "delete_topic"]

        def holds(after: Truth) -> Iterable[str]:
            if any(topic not in after.topics for topic in made):
                yield "a topic that was created is not there"
            if any(topic in after.topics for topic in deleted):
                yield "a topic that was to be deleted is still there"
            if len(stage.brokers.live) == len(stage.brokers):
                yield from stage.audience.disagreements(after, stage.brokers.live)

        stage = self.stage
        return await stage.run(Trial(f"trace_{name}", trigger, lambda _: Expected(), holds=holds))

    async def _play(self, happenings: Sequence[Happening]) -> None:
        last_ms = happenings[-1].at_ms if happenings else 0
        speed = max(1.0, last_ms / 1000 / self.lasts_s)
        began = time.monotonic()
        for at_ms, together in _moments(happenings, round(TOGETHER_MS * speed)):
            due = began + at_ms / 1000 / speed
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            for kind, alike in groupby(together, key=lambda h: h.kind):
                await self._happen(kind, list(alike))

    async def _happen(self, kind: str, alike: Sequence[Happening]) -> None:
        brokers = self.stage.brokers
        match kind:
            case "broker_stop":
                for h in alike:
                    assert h.broker is not None
                    if h.broker in brokers.live:
                        await brokers.kill(h.broker)
            case "broker_start":
                for h in alike:
                    assert h.broker is not None
                    if h.broker not in brokers.live:
                        self.stage.audience.forget(h.broker)
                        await brokers.start(h.broker)
            case "create_topic":
                await self._create(alike)
            case "delete_topic":
                await self._delete(alike)
            case "reassign":
                await self._reassign({_tp(h): h.replicas or () for h in alike})
            case "isr_change":
                await self._change_isrs({_tp(h): h.replicas or () for h in alike})
            case _:
                raise ValueError(f"nobody knows how to make {kind!r} happen")

    # -- topics -------------------------------------------------------------------------------

    async def _create(self, alike: Sequence[Happening]) -> None:
        live = [b for b in shapes.brokers(self.stage.shape, 1) if b.id in self.stage.brokers.live]
        factor = min(3, len(live))
        for h in alike:
            assert h.topic is not None
            assert h.partitions is not None
            assigned = assign_replicas(
                live, h.partitions, factor, start_index=h.sequence % len(live), shift=0
            )
            topic = Topic(
                h.sequence, h.topic, shapes.topic_id(h.sequence, 0, 99), h.partitions, factor, {}
            )
            try:
                await self.stage.session.multi(list(loading.topic_creations(topic, assigned)))
            except MultiError:
                self.refused += 1

    async def _delete(self, alike: Sequence[Happening]) -> None:
        for h in alike:
            assert h.topic is not None
            try:
                await self.stage.session.create(paths.deletion(h.topic), None)
            except NodeExists:
                self.refused += 1

    # -- partitions -----------------------------------------------------------------------------

    async def _reassign(self, targets: Mapping[TopicPartition, Replicas]) -> None:
        """Ask for it, and have the new replicas in sync at once."""
        system = self.stage.system
        assert system is not None
        by_topic: dict[str, list[admin.ReassignablePartition]] = {}
        for tp, replicas in targets.items():
            wish = admin.ReassignablePartition(tp.partition, replicas)
            by_topic.setdefault(tp.topic, []).append(wish)
        request = admin.AlterPartitionReassignmentsRequest(
            TIMEOUT_MS,
            tuple(admin.ReassignableTopic(name, tuple(p)) for name, p in by_topic.items()),
        )
        async with Line(system.address) as line:
            answer = await line.call(request, 0, admin.AlterPartitionReassignmentsResponse)
        granted = [
            TopicPartition(topic.name, partition.partition_index)
            for topic in answer.responses
            for partition in topic.partitions
            if not partition.error_code
        ]
        self.refused += len(targets) - len(granted)
        truth = await read_some(self.stage.session, granted)
        wanted = {
            tp: truth.replicas(tp)
            for tp in granted
            if tp in truth.states and set(truth.states[tp].isr) != set(truth.replicas(tp))
        }
        await self._ask(truth, wanted)

    async def _change_isrs(self, isrs: Mapping[TopicPartition, Replicas]) -> None:
        truth = await read_some(self.stage.session, list(isrs))
        wanted = {
            tp: isr
            for tp, isr in isrs.items()
            if (state := truth.states.get(tp)) is not None
            and state.leader in isr
            and set(isr) != set(state.isr)
        }
        await self._ask(truth, wanted)

    async def _ask(self, truth: Truth, wanted: Mapping[TopicPartition, Replicas]) -> None:
        live = self.stage.brokers.live
        usable = {
            tp: isr
            for tp, isr in wanted.items()
            if truth.states[tp].leader in live and all(b in live for b in isr)
        }
        leaders = Leaders(self.stage, truth)
        await leaders.ask(usable, A_REQUEST)
        self.refused += leaders.refused + len(wanted) - len(usable)


def _tp(happening: Happening) -> TopicPartition:
    assert happening.topic is not None
    assert happening.partition is not None
    return TopicPartition(happening.topic, happening.partition)


def _moments(
    happenings: Iterable[Happening], together_ms: int
) -> Iterator[tuple[int, list[Happening]]]:
    for moment, group in groupby(happenings, key=lambda h: h.at_ms // max(1, together_ms)):
        yield moment * max(1, together_ms), list(group)
