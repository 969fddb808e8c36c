"""A controller among brokers: channels to them, and the door at which they and clients knock."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

from kctl.brokers.channel import ChannelSettings
from kctl.brokers.manager import ChannelManager
from kctl.messages.events import Event
from kctl.model.cluster import ClusterState
from kctl.model.names import TopicPartition
from kctl.runtime import security
from kctl.runtime.config import Config
from kctl.server.access import Ask, ControllerAccess
from kctl.server.relay import dialer
from kctl.server.server import Server


class ToldByChannels:
    """What the brokers have acknowledged, by the channels' marks."""

    def __init__(self, channels: ChannelManager) -> None:
        self._channels = channels

    async def until_told(
        self, partitions: Collection[TopicPartition], timeout_s: float
    ) -> Collection[TopicPartition]:
        try:
            async with asyncio.timeout(timeout_s):
                await self._channels.acknowledged(self._channels.mark())
        except TimeoutError:
            return partitions
        return ()


@asynccontextmanager
async def open_channels(
    config: Config, emit: Callable[[Event], None]
) -> AsyncIterator[ChannelManager]:
    settings = ChannelSettings(
        controller_id=config.broker_id,
        listener=security.channel_listener(config) or None,
        inter_broker_listener=config.inner_listener or None,
        security=security.towards_brokers(config),
        inter_broker_protocol=config.inter_broker_protocol_version,
        request_timeout_ms=config.request_timeout_ms,
    )
    async with ChannelManager(settings, emit) as channels:
        yield channels


@asynccontextmanager
async def open_door(
    config: Config,
    ask: Ask,
    view: Callable[[], ClusterState | None],
    channels: ChannelManager,
) -> AsyncIterator[Server]:
    access = ControllerAccess(
        controller_id=config.broker_id,
        ask=ask,
        view=view,
        acknowledgements=ToldByChannels(channels),
        rights=security.rights(config),
    )
    dial = dialer(access.limits, security.relay_contexts(config))
    async with Server(security.listeners(config), access, dial) as server:
        yield server
