"""What ZooKeeper holds, what the simulated brokers were told, and where the two differ.

A run is only a figure if it is complete: every request that the scenario calls for was received,
and what brokers believe about the partitions in question is what ZooKeeper holds.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs

from kctl.brokers.simulated import SharedDecoder, SimulatedBroker
from kctl.brokers.simulated_belief import (
    LEADER_DURING_DELETE,
    Belief,
    leader_and_isr_states,
    metadata_states,
    stops_in,
)
from kctl.messages.effects import TopicNode
from kctl.model.codes import KafkaError, Malformed
from kctl.model.names import NO_LEADER, BrokerId, TopicPartition
from kctl.model.rows import Leadership, Replicas
from kctl.wire import control_plane as cp
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.errors import NoNode
from kctl.zookeeper.session import ReadOnlySession

READ_AT_ONCE = 10_000
BELIEFS_MAX = 3_000_000
"""Of all brokers together about all partitions."""
HEARD_MIN = 2
COMPLAINTS_MAX = 5


@attrs.frozen
class Truth:
    """What ZooKeeper holds."""

    topics: Mapping[str, TopicNode]
    states: Mapping[TopicPartition, Leadership]
    mzxids: Mapping[TopicPartition, int]
    mtimes: Mapping[TopicPartition, int]
    """Milliseconds of the wall clock, when each state was written."""

    def replicas(self, tp: TopicPartition) -> Replicas:
        return self.topics[tp.topic].partitions[tp.partition].replicas

    def partitions(self) -> Iterable[TopicPartition]:
        return self.states

    def partitions_on(self, broker: BrokerId) -> list[TopicPartition]:
        return [tp for tp in self.states if broker in self.replicas(tp)]

    def changed_since(self, zxid: int) -> list[TopicPartition]:
        return [tp for tp, mzxid in self.mzxids.items() if mzxid > zxid]


class Unreadable(Exception):
    """ZooKeeper holds something that a benchmark's cluster does not have."""


async def read_truth(session: ReadOnlySession) -> Truth:
    """Everything. Topics whose partitions have no state yet are in `topics` only."""
    try:
        names = sorted(await session.children(paths.TOPICS))
    except NoNode:
        names = []
    topics = await _read_topics(session, names)
    tps = [TopicPartition(name, p) for name, node in topics.items() for p in node.partitions]
    return await _read_states(session, topics, tps)


async def read_some(session: ReadOnlySession, tps: Sequence[TopicPartition]) -> Truth:
    """Only these partitions, where they are there."""
    topics = await _read_topics(session, list(dict.fromkeys(tp.topic for tp in tps)))
    there = [tp for tp in tps if tp.topic in topics and tp.partition in topics[tp.topic].partitions]
    return await _read_states(session, topics, there)


async def _read_topics(session: ReadOnlySession, names: Sequence[str]) -> dict[str, TopicNode]:
    topics: dict[str, TopicNode] = {}
    reads = await session.read_many([paths.topic(name) for name in names])
    for name, read in zip(names, reads, strict=True):
        if not isinstance(read, tuple):
            continue  # deleted meanwhile
        node = znodes.decode_topic(name, read[0], read[1].version)
        if isinstance(node, Malformed):
            raise Unreadable(f"{node.path}: {node.reason}")
        topics[name] = node
    return topics


async def _read_states(
    session: ReadOnlySession, topics: Mapping[str, TopicNode], tps: Sequence[TopicPartition]
) -> Truth:
    truth = Truth(topics, states := {}, mzxids := {}, mtimes := {})
    for start in range(0, len(tps), READ_AT_ONCE):
        chunk = tps[start : start + READ_AT_ONCE]
        at = [paths.partition_state(tp) for tp in chunk]
        for tp, path, read in zip(chunk, at, await session.read_many(at), strict=True):
            if not isinstance(read, tuple):
                continue
            state = znodes.decode_state(path, read[0], read[1].version)
            if isinstance(state, Malformed):
                raise Unreadable(f"{state.path}: {state.reason}")
            states[tp], mzxids[tp], mtimes[tp] = state, read[1].mzxid, read[1].mtime
    return truth


@attrs.frozen
class Expected:
    """What a scenario calls for."""

    metadata: Collection[TopicPartition] = ()
    """Every live broker is told about each of these."""
    leader_and_isr: Mapping[TopicPartition, Replicas] = attrs.field(factory=dict)
    """These brokers, where they live, are told to lead or follow."""
    removed: Mapping[TopicPartition, Replicas] = attrs.field(factory=dict)
    """These brokers, where they live, are told to delete their replica."""


@attrs.define
class Told:
    """What one broker was told in one run."""

    metadata: set[TopicPartition] = attrs.field(factory=set)
    leader_and_isr: set[TopicPartition] = attrs.field(factory=set)
    removed: set[TopicPartition] = attrs.field(factory=set)


@attrs.frozen(eq=False)
class _Gist:
    """The partitions of an UpdateMetadata, which is the same for most brokers."""

    topic_states: tuple[cp.UpdateMetadataTopicState, ...]
    known: dict[TopicPartition, cp.UpdateMetadataPartitionState]
    all: frozenset[TopicPartition]


def _gist(request: cp.UpdateMetadataRequest) -> _Gist:
    states = dict(metadata_states(request))
    known = {tp: s for tp, s in states.items() if s.leader != LEADER_DURING_DELETE}
    return _Gist(request.topic_states, known, frozenset(states))


def _learn(belief: Belief, request: cp.UpdateMetadataRequest, gist: _Gist) -> None:
    """As `Belief.update_metadata`, without going through the states again for each broker."""
    head = cp.UpdateMetadataRequest(
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        live_brokers=request.live_brokers,
    )
    if belief.update_metadata(head) == KafkaError.NONE:
        belief.metadata.update(gist.known)
        for tp in gist.all - gist.known.keys():
            belief.metadata.pop(tp, None)


class Audience:
    """The simulated brokers' beliefs, kept beside them so that reading costs nothing in a run.

    In a very large cluster they would not fit into memory: then only some brokers are listened to,
    and the others keep of each request no more than when it came.
    """

    def __init__(
        self, brokers: Mapping[BrokerId, SimulatedBroker], partitions: int, first: BrokerId
    ) -> None:
        """`first` is listened to in any case."""
        self._brokers = brokers
        heard = max(HEARD_MIN, BELIEFS_MAX // max(1, partitions))
        self.heard = [first, *(b for b in sorted(brokers) if b != first)][:heard]
        for broker_id, broker in brokers.items():
            broker.keeps_stamps_only = broker_id not in self.heard
        self.beliefs = {broker_id: Belief(broker_id) for broker_id in self.heard}
        self.told = {broker_id: Told() for broker_id in self.heard}

    def forget(self, broker_id: BrokerId) -> None:
        """It was started anew."""
        if broker_id in self.beliefs:
            self.beliefs[broker_id] = Belief(broker_id)

    def unlearn(self, topics: Collection[str]) -> None:
        """These were removed without a word to anybody."""
        for belief in self.beliefs.values():
            for known in (belief.metadata, belief.hosted):
                for tp in [tp for tp in known if tp.topic in topics]:
                    del known[tp]

    def begin(self) -> None:
        """A new run."""
        self.listen()
        self.told = {broker_id: Told() for broker_id in self.heard}

    def listen(self) -> None:
        """Read what came in since."""
        decoder = SharedDecoder()
        gists: dict[int, _Gist] = {}
        for broker_id, broker in self._brokers.items():
            frames = broker.hand_over()
            if broker_id not in self.beliefs:
                continue
            belief, told = self.beliefs[broker_id], self.told[broker_id]
            for frame in frames:
                match decoder.request(frame):
                    case cp.UpdateMetadataRequest() as request:
                        gist = gists.get(id(request.topic_states))
                        if gist is None:
                            gist = gists[id(request.topic_states)] = _gist(request)
                        _learn(belief, request, gist)
                        told.metadata |= gist.all
                    case cp.LeaderAndIsrRequest() as request:
                        belief.leader_and_isr(request)
                        told.leader_and_isr.update(
                            tp for tp, _, _ in leader_and_isr_states(request)
                        )
                    case cp.StopReplicaRequest() as request:
                        belief.stop_replica(request)
                        told.removed.update(tp for tp, _, delete in stops_in(request) if delete)

    def complaints(self, expected: Expected, truth: Truth, live: Collection[BrokerId]) -> list[str]:
        """What is missing or wrong; empty if the run is complete."""
        metadata = set(expected.metadata)
        leading, removed = _by_broker(expected.leader_and_isr), _by_broker(expected.removed)
        right: set[int] = set()
        found: list[str] = []
        for broker_id in self.heard:
            if broker_id not in live:
                continue
            told = self.told[broker_id]
            missing = {
                "UpdateMetadata": metadata - told.metadata,
                "LeaderAndIsr": leading.get(broker_id, set()) - told.leader_and_isr,
                "StopReplica": removed.get(broker_id, set()) - told.removed,
            }
            found += [
                f"broker {broker_id} was not told of {len(tps)} partitions by {name}"
                f" ({', '.join(map(str, sorted(tps)[:3]))}, ...)"
                for name, tps in missing.items()
                if tps
            ]
            found += self._wrong_metadata(broker_id, expected.metadata, truth, right)
            found += self._wrong_replicas(broker_id, leading.get(broker_id, set()), truth)
        return found[:COMPLAINTS_MAX]

    def disagreements(self, truth: Truth, live: Collection[BrokerId]) -> list[str]:
        """Where what live brokers believe about any partition is not what ZooKeeper holds."""
        right: set[int] = set()
        return [
            wrong
            for broker_id in self.heard
            if broker_id in live
            for wrong in self._wrong_metadata(broker_id, truth.states, truth, right)
        ]

    def _wrong_metadata(
        self, broker_id: BrokerId, tps: Iterable[TopicPartition], truth: Truth, right: set[int]
    ) -> list[str]:
        """`right` are beliefs, by identity, that were found right: brokers share most of them."""
        believed = self.beliefs[broker_id].metadata
        wrong: list[str] = []
        for tp in tps:
            known = believed.get(tp)
            if id(known) in right:
                continue
            state = truth.states.get(tp)
            if state is None:
                if known is not None and known.leader != LEADER_DURING_DELETE:
                    wrong.append(f"broker {broker_id} still knows {tp}")
            elif known is None or not _same(known, state):
                wrong.append(f"broker {broker_id} believes {known} of {tp}, not {state}")
            elif known is not None:
                right.add(id(known))
            if len(wrong) == COMPLAINTS_MAX:
                break
        return wrong

    def _wrong_replicas(
        self, broker_id: BrokerId, tps: Iterable[TopicPartition], truth: Truth
    ) -> list[str]:
        believed = self.beliefs[broker_id].hosted
        wrong: list[str] = []
        for tp in tps:
            state, hosted = truth.states.get(tp), believed.get(tp)
            if state is None or state.leader == NO_LEADER:
                continue  # brokers do not take up the epoch of a leader that is none
            if hosted is None or hosted.state.leader_epoch != state.leader_epoch:
                wrong.append(f"broker {broker_id} hosts {tp} as {hosted}, not as {state}")
            if len(wrong) == COMPLAINTS_MAX:
                break
        return wrong


def _same(known: cp.UpdateMetadataPartitionState, state: Leadership) -> bool:
    return (
        known.leader == state.leader
        and known.leader_epoch == state.leader_epoch
        and (known.isr == state.isr or set(known.isr) == set(state.isr))
    )


def _by_broker(
    expected: Mapping[TopicPartition, Replicas],
) -> dict[BrokerId, set[TopicPartition]]:
    found: dict[BrokerId, set[TopicPartition]] = {}
    for tp, brokers in expected.items():
        for broker in brokers:
            found.setdefault(broker, set()).add(tp)
    return found
