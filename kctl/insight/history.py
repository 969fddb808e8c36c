"""What a journal tells: the state at a point, what lies between two, the story of one thing."""

from collections.abc import Iterable, Iterator

import attrs

from kctl.insight.replay import Record, Replay, ReplayError
from kctl.messages.outbox import Story
from kctl.model.cluster import ClusterState
from kctl.model.names import NO_LEADER
from kctl.model.rows import Row

NOBODY = "no cluster: this node was not the controller"


@attrs.frozen
class Told:
    """What the core told about one event."""

    event: int
    at_ms: int
    name: str
    stories: tuple[Story, ...]


@attrs.frozen
class Chapter:
    """One thing that happened to a partition, topic or broker."""

    event: int
    at_ms: int
    name: str
    what: str
    why: str
    change: str = ""


def told(records: Iterable[Record]) -> Iterator[Told]:
    """Event by event."""
    replay = Replay()
    at_ms, name = 0, ""

    def finished() -> Told:
        return Told(replay.events, at_ms, name, tuple(replay.stories))

    for record in records:
        if record.kind == "event":
            if replay.events:
                yield finished()
            at_ms, name = record.at_ms, type(record.value[0]).__name__
        replay.take(record)
    if replay.events:
        yield finished()


def state_at(records: Iterable[Record], point: int) -> Replay:
    """After so many events."""
    replay = Replay()
    replay.run(records, point)
    if replay.events < point:
        raise ReplayError(f"the journal has only {replay.events} events, not {point}")
    return replay


def story_of(records: Iterable[Record], key: str) -> Iterator[Chapter]:
    """Of `orders-0`, a topic, a broker's id or a path."""
    for one in told(records):
        for story in one.stories:
            for tp, (before, after) in story.changes.items():
                if key in (str(tp), tp.topic):
                    which = "" if key == str(tp) else f"{tp}: "
                    change = which + f"{described(before)} -> {described(after)}"
                    yield Chapter(one.event, one.at_ms, one.name, story.what, story.why, change)
            if story.key == key:
                yield Chapter(one.event, one.at_ms, one.name, story.what, story.why)


def described(row: Row | None) -> str:
    if row is None:
        return "nothing"
    if row.leadership is None:
        return f"no state, replicas {list(row.replicas)}"
    leader = "no leader" if row.leader == NO_LEADER else f"leader {row.leader}"
    text = f"{leader}, ISR {list(row.isr)}, epoch {row.leadership.leader_epoch}"
    if row.assignment.is_reassigning:
        text += f", moving to {list(row.assignment.target)}"
    return text


def differences(before: ClusterState | None, after: ClusterState | None) -> Iterator[str]:
    """What is different at the later point, in words."""
    if before is None or after is None:
        if before is not after:
            yield f"{_whole(before)} -> {_whole(after)}"
        return
    if before.epoch != after.epoch:
        yield f"controller epoch {before.epoch} -> {after.epoch}"
    for broker in sorted({**before.brokers, **after.brokers}):
        was, is_ = before.brokers.get(broker), after.brokers.get(broker)
        if was is None or is_ is None:
            yield f"broker {broker} {'came' if was is None else 'went'}"
        elif was.epoch != is_.epoch:
            yield f"broker {broker} restarted"
    for topic in sorted({**before.topics, **after.topics}):
        if (topic in before.topics) != (topic in after.topics):
            yield f"topic {topic} was {'created' if topic in after.topics else 'deleted'}"
        elif (topic in before.deletions) != (topic in after.deletions):
            yield f"topic {topic} is marked for deletion"
    for tp in sorted({**before.rows, **after.rows}):
        old, new = before.rows.get(tp), after.rows.get(tp)
        if described(old) != described(new) or _replicas(old) != _replicas(new):
            yield f"{tp}: {described(old)} -> {described(new)}{_moved(old, new)}"
    for path in sorted({**before.quarantine, **after.quarantine}):
        if path not in before.quarantine:
            yield f"{path} is put aside: {after.quarantine[path]}"
        elif path not in after.quarantine:
            yield f"{path} can be used again"


def _whole(cluster: ClusterState | None) -> str:
    if cluster is None:
        return NOBODY
    return f"{len(cluster.brokers)} brokers, {len(cluster.topics)} topics, {len(cluster.rows)} partitions"


def _replicas(row: Row | None) -> object:
    return None if row is None else row.assignment


def _moved(old: Row | None, new: Row | None) -> str:
    if old is None or new is None or old.replicas == new.replicas:
        return ""
    return f", replicas {list(old.replicas)} -> {list(new.replicas)}"
