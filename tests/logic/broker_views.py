"""What brokers know from the requests that they were sent, by the rules that brokers follow."""

from collections.abc import Iterable

import attrs

from kctl.messages.requests import (
    Connect,
    Disconnect,
    DisconnectAll,
    Dispatch,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kctl.model.names import BrokerId, TopicPartition
from kctl.model.rows import Leadership, Row


@attrs.define
class View:
    epoch: int
    replicas: dict[TopicPartition, Row] = attrs.field(factory=dict)
    """By LeaderAndIsr: an epoch that did not rise is ignored."""
    metadata: dict[TopicPartition, Row] = attrs.field(factory=dict)
    live: tuple[BrokerId, ...] = ()


def views(dispatches: Iterable[Dispatch]) -> dict[BrokerId, View]:
    """A broker loses all it knew with its next life, not with a new controller."""
    known: dict[BrokerId, View] = {}
    for dispatch in dispatches:
        match dispatch:
            case Connect(broker=broker):
                if broker.id not in known or known[broker.id].epoch != broker.epoch:
                    known[broker.id] = View(broker.epoch)
            case Disconnect() | DisconnectAll():
                pass
            case LeaderAndIsrRequest(broker=number, rows=rows):
                replicas = known[number].replicas
                for tp, row in rows.items():
                    if tp not in replicas or _epoch(row) > _epoch(replicas[tp]):
                        replicas[tp] = row
            case UpdateMetadataRequest():
                for number in dispatch.recipients:
                    _update(known[number], dispatch)
            case StopReplicaRequest(broker=number, partitions=partitions):
                for tp in partitions:
                    known[number].replicas.pop(tp, None)
    return known


def _update(view: View, request: UpdateMetadataRequest) -> None:
    view.live = tuple(broker.id for broker in request.live_brokers)
    for tp, row in request.rows.items():
        if tp.topic in request.deleted:
            view.metadata.pop(tp, None)
        else:
            view.metadata[tp] = row


def _epoch(row: Row) -> int:
    assert row.leadership is not None
    return row.leadership.leader_epoch


def disagreements(
    known: dict[BrokerId, View],
    live: Iterable[BrokerId],
    states: dict[TopicPartition, Leadership],
    rows: dict[TopicPartition, Row],
) -> list[str]:
    """Where a live broker's picture is not what ZooKeeper holds."""
    wrong: list[str] = []
    ids = sorted(live)
    for number in ids:
        view = known[number]
        if sorted(view.live) != ids:
            wrong.append(f"broker {number} believes {view.live} alive")
        if set(view.metadata) != set(states):
            wrong.append(f"broker {number} lists {set(view.metadata) ^ set(states)} wrongly")
        for tp, state in states.items():
            told = view.metadata.get(tp)
            if told is not None and (told.leadership, told.assignment) != (
                state,
                rows[tp].assignment,
            ):
                wrong.append(f"broker {number} lists {tp} as {told.leadership}, it is {state}")
            if number in rows[tp].replicas:
                replica = view.replicas.get(tp)
                if replica is None or _epoch(replica) != state.leader_epoch:
                    wrong.append(f"broker {number} was not told epoch {state.leader_epoch} of {tp}")
                elif replica.assignment != rows[tp].assignment:
                    wrong.append(f"broker {number} holds {tp} as {replica.assignment}")
    return wrong
