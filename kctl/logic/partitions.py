"""The partition state machine: entering Online, by initialisation or by election."""

from collections.abc import Iterable, Mapping, Sequence

import attrs

from kctl.logic import elections
from kctl.logic.chunks import SMALL, WRITE, chunks, paced
from kctl.logic.elections import Strategy, bumped
from kctl.logic.recipients import flush, tell_leadership, tell_leaderships
from kctl.logic.replicas import take_offline
from kctl.logic.writing import (
    ATTEMPTS_MAX,
    Written,
    refresh,
    retry_later,
    tell_changes,
    write_leaderships,
)
from kctl.messages.effects import CreatePartitionStates, Flush, ReadPartitions, ReadTopicConfigs
from kctl.messages.outbox import Outbox
from kctl.model.cluster import ClusterState
from kctl.model.codes import Code, Malformed
from kctl.model.names import TopicPartition
from kctl.model.rows import Leadership, Replicas, Row
from kctl.model.states import PartitionState, ReplicaState

UNCLEAN_CONFIG = "unclean.leader.election.enable"
NO_ELIGIBLE_LEADER = "no eligible leader"


@attrs.define
class ElectionOutcome:
    elected: dict[TopicPartition, Row] = attrs.field(factory=dict)
    failed: dict[TopicPartition, str] = attrs.field(factory=dict)


async def trigger_online(
    cluster: ClusterState, outbox: Outbox, why: str, topic: str | None = None
) -> dict[TopicPartition, Row]:
    """Try every New and Offline partition; the ones that were elected or initialised."""
    new: list[TopicPartition] = []
    offline: list[TopicPartition] = []
    for pause, chunk in paced(list(cluster.not_online)):
        if pause:
            await Flush()
        for tp in chunk:
            asked = topic is None or tp.topic == topic
            if asked and cluster.is_led(tp) and tp not in cluster.poisoned:
                (new if cluster.rows[tp].leadership is None else offline).append(tp)
    online = await initialize_partitions(cluster, new, outbox, why)
    outcome = await elect_leaders(cluster, offline, Strategy.OFFLINE, outbox, why)
    return {**online, **outcome.elected}


# -- New to Online ---------------------------------------------------------------------------


async def initialize_partitions(
    cluster: ClusterState, tps: Iterable[TopicPartition], outbox: Outbox, why: str
) -> dict[TopicPartition, Row]:
    """First leader and ISR are the assigned replicas that are online; without any it stays New."""
    online: dict[TopicPartition, Row] = {}
    lived: list[TopicPartition] = []
    for batch in chunks(tps, WRITE):
        proposals: dict[TopicPartition, Leadership] = {}
        for pause, chunk in paced(batch):
            if pause:
                await Flush()
            for tp in chunk:
                isr = cluster.online_replicas(tp, cluster.rows[tp].assignment.replicas)
                if isr:
                    proposals[tp] = Leadership(isr[0], isr, 0, cluster.epoch, 0)
        written = await _create_states(cluster, proposals, lived) if proposals else Written()
        for pause, chunk in paced(written.done):
            if pause:
                await Flush()
            for tp in chunk:
                row = online[tp] = written.done[tp][1]
                tell_leadership(cluster, outbox, tp, row.isr, is_new=True)
        tell_changes(outbox, "partition initialised", why, written.done)
        for tp, reason in written.failed.items():
            outbox.tell("partition not initialised", reason, key=str(tp))
        if written.stale:
            retry_later(outbox)
        await flush(cluster, outbox)
    if lived:
        online.update(await _take_up(cluster, lived, outbox, why))
    return online


async def _create_states(
    cluster: ClusterState,
    proposals: Mapping[TopicPartition, Leadership],
    lived: list[TopicPartition],
) -> Written:
    """Those that turn out to have a state already are put into `lived`."""
    result = Written()
    codes = await CreatePartitionStates(proposals)
    doubtful: dict[TopicPartition, None] = {}
    for pause, chunk in paced(proposals, SMALL):
        if pause:
            await Flush()
        for tp in chunk:
            code = codes.get(tp, Code.UNKNOWN)
            if code is Code.OK:
                _enter_online(cluster, result, tp, proposals[tp])
            elif code is Code.NODE_EXISTS or code is Code.UNKNOWN:
                doubtful[tp] = None
            else:
                result.failed[tp] = f"its state znode could not be created: {code.value}"
    if not doubtful:
        return result
    found = await ReadPartitions(tuple(doubtful), sync=True)
    for tp in doubtful:
        seen = found.get(tp, Code.NO_NODE)
        if seen == proposals[tp]:
            _enter_online(cluster, result, tp, proposals[tp])
            continue
        if seen is Code.NO_NODE:
            result.stale[tp] = None  # the write did not land
            continue
        reason = refresh(cluster, tp, seen)
        if reason is None:
            lived.append(tp)
        else:
            result.failed[tp] = reason
    return result


async def _take_up(
    cluster: ClusterState, tps: Sequence[TopicPartition], outbox: Outbox, why: str
) -> dict[TopicPartition, Row]:
    """They have lived already, as those of a topic whose znode was repaired: as at failover."""
    dead: dict[TopicPartition, Replicas] = {}
    for tp in tps:
        row = cluster.rows[tp]
        replicas = row.assignment.replicas
        online = cluster.online_replicas(tp, replicas)
        states = cluster.share_states(row.states_with(online, ReplicaState.ONLINE))
        cluster.put(tp, Row(row.assignment, row.leadership, row.state, states))
        if len(online) < len(replicas):
            dead[tp] = tuple([b for b in replicas if b not in online])
    # Their leaders may wait for a word that does not repeat an epoch they have heard.
    led = [tp for tp in tps if cluster.rows[tp].state is PartitionState.ONLINE]
    await renew_leaderships(cluster, led, outbox, why)
    offline = [tp for tp in tps if cluster.rows[tp].state is PartitionState.OFFLINE]
    outcome = await elect_leaders(cluster, offline, Strategy.OFFLINE, outbox, why)
    await take_offline(cluster, dead, outbox, why, fenced=outcome.elected)
    return outcome.elected


def _enter_online(
    cluster: ClusterState, result: Written, tp: TopicPartition, leadership: Leadership
) -> None:
    before = cluster.rows[tp]
    states = cluster.share_states(
        tuple(
            ReplicaState.ONLINE if broker in leadership.isr else ReplicaState.OFFLINE
            for broker in before.assignment.replicas
        )
    )
    after = Row(before.assignment, leadership, PartitionState.ONLINE, states)
    cluster.put(tp, after)
    result.done[tp] = (before, after)


# -- elections -------------------------------------------------------------------------------


async def elect_leaders(
    cluster: ClusterState,
    tps: Iterable[TopicPartition],
    strategy: Strategy,
    outbox: Outbox,
    why: str,
) -> ElectionOutcome:
    """Elect in chunks; each is written, told to the brokers, and only then the next one begun."""
    outcome = ElectionOutcome()
    for chunk in chunks(tps, WRITE):
        part = await _elect_chunk(cluster, chunk, strategy, outbox, why)
        outcome.elected.update(part.elected)
        outcome.failed.update(part.failed)
        await flush(cluster, outbox)
    return outcome


async def _elect_chunk(
    cluster: ClusterState,
    tps: Iterable[TopicPartition],
    strategy: Strategy,
    outbox: Outbox,
    why: str,
) -> ElectionOutcome:
    outcome = ElectionOutcome()
    pending = dict.fromkeys(tps)
    for _ in range(ATTEMPTS_MAX):
        proposals: dict[TopicPartition, Leadership] = {}
        undecided: list[TopicPartition] = []
        for pause, chunk in paced(pending):
            if pause:
                await Flush()
            for tp in chunk:
                proposal = decide(cluster, tp, strategy)
                if proposal is None:
                    undecided.append(tp)
                else:
                    proposals[tp] = proposal
        unclean = await _unclean_topics(cluster, undecided, strategy)
        for tp in undecided:
            allowed = unclean.get(tp.topic, False)
            proposal = decide(cluster, tp, strategy, unclean=True) if allowed else None
            if proposal is None:
                outcome.failed[tp] = NO_ELIGIBLE_LEADER
            else:
                proposals[tp] = proposal
        written = await write_leaderships(cluster, proposals, PartitionState.ONLINE)
        outcome.failed.update(written.failed)
        for pause, done in paced(written.done.items()):
            if pause:
                await Flush()
            outcome.elected.update([(tp, row) for tp, (_, row) in done])
            told = [(tp, lisr_recipients(cluster, tp, row, strategy)) for tp, (row, _) in done]
            tell_leaderships(cluster, outbox, told)
        tell_changes(outbox, "leader elected", f"{why} ({strategy.value})", written.done)
        pending = written.stale
        if not pending:
            break
    if pending:
        outcome.failed.update(dict.fromkeys(pending, "its state kept changing"))
        retry_later(outbox)
    return outcome


async def renew_leaderships(
    cluster: ClusterState, tps: Iterable[TopicPartition], outbox: Outbox, why: str
) -> None:
    """The same leader and ISR at a higher epoch: brokers heed an epoch once, and a leader whose
    version of the state is behind learns the true one only this way."""
    for chunk in chunks(tps):
        pending = dict.fromkeys(chunk)
        for _ in range(ATTEMPTS_MAX):
            proposals = {
                tp: bumped(leadership, leadership.leader, within_replicas(row), cluster.epoch)
                for tp in pending
                if (leadership := (row := cluster.rows[tp]).leadership) is not None
            }
            written = await write_leaderships(cluster, proposals)
            for tp, (_, row) in written.done.items():
                tell_leadership(cluster, outbox, tp, row.assignment.replicas)
            tell_changes(outbox, "leader epoch raised", why, written.done)
            pending = written.stale
            if not pending:
                break
        else:
            retry_later(outbox)
        await flush(cluster, outbox)


def within_replicas(row: Row) -> Replicas:
    """The ISR without replicas that are none: an old leader, late to learn, may have added one."""
    replicas, isr = row.assignment.replicas, row.isr
    if isr is replicas:
        return isr
    return tuple([b for b in isr if b in replicas]) or isr


def decide(
    cluster: ClusterState, tp: TopicPartition, strategy: Strategy, *, unclean: bool = False
) -> Leadership | None:
    row = cluster.rows[tp]
    leadership = row.leadership
    if leadership is None:
        return None
    assignment = row.assignment
    # Compared by identity, the most frequent first: a match would look up every member.
    if strategy is Strategy.OFFLINE or strategy is Strategy.UNCLEAN:
        return elections.elect_offline(
            assignment,
            leadership,
            cluster.online_replicas(tp, assignment.replicas),
            cluster.epoch,
            unclean=unclean or strategy is Strategy.UNCLEAN,
            marks_recovery=cluster.has_recovery_state,
        )
    if strategy is Strategy.PREFERRED:
        online = cluster.online_replicas(tp, assignment.replicas)
        return elections.elect_preferred(assignment, leadership, online, cluster.epoch)
    if strategy is Strategy.CONTROLLED_SHUTDOWN:
        return elections.elect_for_controlled_shutdown(
            assignment,
            leadership,
            _reachable(cluster, tp, assignment.replicas),
            cluster.shutting_down,
            cluster.epoch,
        )
    assert strategy is Strategy.REASSIGN
    target = assignment.target
    online = cluster.online_replicas(tp, target)
    return elections.elect_reassigned(target, leadership, online, cluster.epoch)


def lisr_recipients(
    cluster: ClusterState, tp: TopicPartition, row: Row, strategy: Strategy
) -> Replicas:
    """Who is told of an election; brokers that are gone are left out when it is sent."""
    if strategy is Strategy.OFFLINE or strategy is Strategy.UNCLEAN:
        return cluster.online_replicas(tp, row.assignment.replicas)
    if strategy is Strategy.PREFERRED:
        return row.assignment.replicas
    if strategy is Strategy.CONTROLLED_SHUTDOWN:
        return _reachable(cluster, tp, row.assignment.replicas)
    assert strategy is Strategy.REASSIGN
    return row.assignment.target


def _reachable(cluster: ClusterState, tp: TopicPartition, replicas: Replicas) -> Replicas:
    brokers, dirs = cluster.brokers, cluster.offline_dirs
    for broker in replicas:
        if dirs or broker not in brokers:
            return tuple([b for b in replicas if b in brokers and tp not in dirs.get(b, ())])
    return replicas


async def _unclean_topics(
    cluster: ClusterState, tps: Iterable[TopicPartition], strategy: Strategy
) -> dict[str, bool]:
    """Where an unclean election is allowed, of topics in which a replica is there to be elected."""
    if strategy is not Strategy.OFFLINE:
        return {}
    topics: dict[str, None] = {}
    for pause, chunk in paced(tps):
        if pause:
            await Flush()
        for tp in chunk:
            if cluster.online_replicas(tp, cluster.rows[tp].assignment.replicas):
                topics[tp.topic] = None
    return await unclean_allowed(cluster, tuple(topics)) if topics else {}


async def unclean_allowed(cluster: ClusterState, topics: tuple[str, ...]) -> dict[str, bool]:
    """By topic config, else by the brokers' default. A config that cannot be read allows nothing."""
    configs = await ReadTopicConfigs(topics)
    allowed: dict[str, bool] = {}
    for topic in topics:
        config = configs.get(topic, Code.NO_NODE)
        if config is Code.NO_NODE:
            allowed[topic] = cluster.settings.unclean_leader_election
        elif isinstance(config, Malformed):
            cluster.quarantine[config.path] = config.reason
            allowed[topic] = False
        elif isinstance(config, Code):
            allowed[topic] = False
        else:
            value = config.get(UNCLEAN_CONFIG)
            allowed[topic] = (
                cluster.settings.unclean_leader_election
                if value is None
                else value.strip().lower() == "true"
            )
    return allowed
