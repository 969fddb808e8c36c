"""All channels of a controller: opens, closes and feeds them, in the order of its dispatches."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Self

import attrs
import structlog

from kctl.brokers.bodies import SharedBodies
from kctl.brokers.channel import Channel, ChannelSettings, Emit
from kctl.brokers.versions import Told, release_of
from kctl.messages.events import BrokerVersions
from kctl.messages.requests import (
    Connect,
    Disconnect,
    DisconnectAll,
    Dispatch,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kctl.model.brokers import Broker
from kctl.model.names import BrokerId
from kctl.model.settings import Release
from kctl.wire.primitives import WireError

log = structlog.get_logger("kctl.brokers")

Mark = Mapping[BrokerId, tuple[int, int]]
"""Broker epoch and number of the last request, by broker: a point in what is sent."""


@attrs.define
class _Open:
    channel: Channel
    task: asyncio.Task[None]
    release: Release | None = None
    """Not known before the broker has answered to ApiVersions."""


class ChannelManager:
    """`async with ChannelManager(settings, emit) as channels: channels.send(dispatch)`"""

    def __init__(self, settings: ChannelSettings, emit: Emit) -> None:
        self._settings = settings
        self._emit = emit
        self._bodies = SharedBodies()
        self._open: dict[BrokerId, _Open] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._epoch = -1
        self._told_release: Release | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_problem: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all channels and wait till they are gone."""
        self.send(DisconnectAll())
        if self._closing:
            await asyncio.wait(self._closing)
        await asyncio.sleep(0)  # the loop closes aborted sockets in its next round

    @property
    def channels(self) -> Mapping[BrokerId, Channel]:
        return {broker: open_.channel for broker, open_ in self._open.items()}

    # -- dispatches ---------------------------------------------------------------------------

    def send(self, dispatch: Dispatch) -> None:
        """Never waits, and never fails because of a broker."""
        match dispatch:
            case Connect(broker=broker):
                self._connect(broker)
            case Disconnect(broker=broker_id):
                self._disconnect(broker_id)
                self._tell_release()
            case DisconnectAll():
                for broker_id in tuple(self._open):
                    self._disconnect(broker_id)
                self._told_release = None
            case UpdateMetadataRequest():
                self._note_epoch(dispatch.controller_epoch)
                self._share(dispatch)
            case LeaderAndIsrRequest() | StopReplicaRequest():
                self._note_epoch(dispatch.controller_epoch)
                open_ = self._open.get(dispatch.broker)
                if open_ is None:
                    log.warning("no channel to this broker", broker=dispatch.broker)
                else:
                    open_.channel.send(dispatch)

    def _share(self, request: UpdateMetadataRequest) -> None:
        channels = [self._open[b].channel for b in request.recipients if b in self._open]
        if len(channels) < len(request.recipients):
            missing = [b for b in request.recipients if b not in self._open]
            log.warning("no channel to these brokers", brokers=missing)
        shared = self._bodies.share(request, len(channels))
        for channel in channels:
            channel.send(shared)

    def _note_epoch(self, epoch: int) -> None:
        self._epoch = max(self._epoch, epoch)

    def _connect(self, broker: Broker) -> None:
        self._disconnect(broker.id)
        self._told_release = None
        try:
            channel = Channel(
                broker,
                self._settings,
                bodies=self._bodies,
                emit=self._emit,
                current_epoch=lambda: self._epoch,
                on_versions=lambda told: self._versions_told(channel, told),
            )
        except WireError as problem:
            log.error("broker cannot be spoken to", broker=broker.id, why=str(problem))  # noqa: TRY400  the registration is at fault, no trace helps
            return
        task = asyncio.get_running_loop().create_task(
            channel.run(), name=f"channel to broker {broker.id}"
        )
        self._open[broker.id] = _Open(channel, task)

    def _disconnect(self, broker: BrokerId) -> None:
        open_ = self._open.pop(broker, None)
        if open_ is not None:
            self._closing.add(open_.task)
            open_.task.add_done_callback(self._closing.discard)
            open_.task.cancel()

    # -- versions -----------------------------------------------------------------------------

    def _versions_told(self, channel: Channel, told: Told) -> None:
        open_ = self._open.get(channel.broker.id)
        if open_ is not None and open_.channel is channel:
            open_.release = release_of(told)
            self._tell_release()

    def _tell_release(self) -> None:
        """The lowest of all, once all are known: a broker that is silent may be the oldest."""
        releases = [open_.release for open_ in self._open.values()]
        if not releases or None in releases:
            return
        lowest = min(release for release in releases if release is not None)
        if lowest != self._told_release:
            self._told_release = lowest
            self._emit(BrokerVersions(lowest))

    # -- acknowledgements ---------------------------------------------------------------------

    def mark(self) -> Mark:
        """Where each channel stands: all that was sent up to now."""
        return {
            broker: (open_.channel.broker.epoch, open_.channel.accepted)
            for broker, open_ in self._open.items()
        }

    async def acknowledged(self, mark: Mark, brokers: Iterable[BrokerId] | None = None) -> None:
        """Wait till these brokers (all of the mark) have answered all that was sent up to it.

        A broker whose channel was closed since is not waited for. Bound it with a timeout.
        """
        for broker in mark if brokers is None else brokers:
            if broker not in mark or broker not in self._open:
                continue
            epoch, number = mark[broker]
            channel = self._open[broker].channel
            if channel.broker.epoch == epoch:
                reached = channel.reached(number)
                if reached is not None:
                    await reached
