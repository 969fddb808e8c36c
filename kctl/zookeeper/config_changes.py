"""Dynamic configuration: what of it concerns the controller, as events.

Whoever changes a config writes a notification below `/config/changes`. Of topics, only unclean
election turned on is news: every other time their configs are read when they are needed. The default
for all brokers changes the settings of the core.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from kctl.messages import events as ev
from kctl.model.codes import Malformed
from kctl.model.settings import Settings
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.calls import read_many, reading
from kctl.zookeeper.client import Client
from kctl.zookeeper.errors import NoNode

UNCLEAN: Final = "unclean.leader.election.enable"
NOTIFICATIONS_MAX: Final = 10_000
"""More than that at once are brokers' leftovers: the newest are looked at."""


class ConfigChanges:
    def __init__(
        self,
        client: Client,
        emit: Callable[[ev.Event], None],
        settings: Settings,
        unusable: Callable[[str, str | None], None],
    ) -> None:
        """`unusable` is told the path of a config and why it cannot be used, or None: it can."""
        self._client = client
        self._emit = emit
        self._unusable = unusable
        self._static = settings
        self._settings = settings
        self._last_seen: int | None = None
        """The highest number among the notifications; None before the first look."""

    async def look(self) -> None:
        """Arm the watches, then report what is new."""
        await self._look_at_default()
        await self._look_at_topics()

    async def _look_at_default(self) -> None:
        path = paths.BROKERS_DEFAULT_CONFIG
        _ = await reading(lambda: self._client.exists(path, watch=True))
        (read,) = await read_many(self._client, (path,))
        config = znodes.decode_config(path, read[0]) if isinstance(read, tuple) else {}
        if isinstance(config, Malformed):
            self._unusable(path, config.reason)
            return  # what held so far goes on
        self._unusable(path, None)
        old, self._settings = self._settings, with_dynamic(self._static, config)
        if self._settings != old:
            self._emit(ev.SettingsChange(self._settings))
            if self._settings.unclean_leader_election and not old.unclean_leader_election:
                self._emit(ev.UncleanLeaderElectionEnable())

    async def _look_at_topics(self) -> None:
        parent = paths.CONFIG_CHANGES
        try:
            names = await reading(lambda: self._client.children(parent, watch=True))
        except NoNode:
            # No broker has been here yet: whatever comes is new.
            self._last_seen = -1
            if await reading(lambda: self._client.exists(parent, watch=True)) is not None:
                await self._look_at_topics()
            return
        numbered = {n: name for name in names if (n := paths.child_number(name)) is not None}
        newest = max(numbered, default=-1)
        if self._last_seen is None:
            # The first look: every election reads the configs of the topics that it is about.
            self._last_seen = newest
            return
        new = sorted(n for n in numbered if n > self._last_seen)[-NOTIFICATIONS_MAX:]
        self._last_seen = max(self._last_seen, newest)
        for topic in await self._topics_named([f"{parent}/{numbered[n]}" for n in new]):
            self._emit(ev.TopicUncleanLeaderElectionEnable(topic))

    async def _topics_named(self, notifications: list[str]) -> list[str]:
        """Topics named by these that have unclean election turned on."""
        topics: dict[str, None] = {}
        reads = await read_many(self._client, notifications) if notifications else []
        for path, read in zip(notifications, reads, strict=True):
            entity = znodes.decode_config_change(path, read[0]) if isinstance(read, tuple) else ""
            if isinstance(entity, Malformed):
                self._unusable(path, entity.reason)
            elif entity.startswith("topics/"):
                topic = entity.removeprefix("topics/")
                if paths.is_name(topic):
                    topics[topic] = None
        configs = [paths.topic_config(topic) for topic in topics]
        reads = await read_many(self._client, configs) if configs else []
        unclean = []
        for topic, path, read in zip(topics, configs, reads, strict=True):
            config = znodes.decode_config(path, read[0]) if isinstance(read, tuple) else {}
            if isinstance(config, Malformed):
                self._unusable(path, config.reason)
                continue
            self._unusable(path, None)
            if config.get(UNCLEAN, "").lower() == "true":
                unclean.append(topic)
        return unclean


def with_dynamic(settings: Settings, config: Mapping[str, str]) -> Settings:
    """The settings under this dynamic default. A value that makes no sense changes nothing."""
    percentage = _number(config, "leader.imbalance.per.broker.percentage")
    interval_s = _number(config, "leader.imbalance.check.interval.seconds")
    return attrs.evolve(
        settings,
        unclean_leader_election=_flag(config, UNCLEAN, settings.unclean_leader_election),
        auto_leader_rebalance=_flag(
            config, "auto.leader.rebalance.enable", settings.auto_leader_rebalance
        ),
        leader_imbalance_per_broker_percentage=(
            settings.leader_imbalance_per_broker_percentage if percentage is None else percentage
        ),
        leader_imbalance_check_interval_ms=(
            1_000 * interval_s if interval_s else settings.leader_imbalance_check_interval_ms
        ),
    )


def _flag(config: Mapping[str, str], name: str, otherwise: bool) -> bool:
    return {"true": True, "false": False}.get(config.get(name, "").strip().lower(), otherwise)


def _number(config: Mapping[str, str], name: str) -> int | None:
    text = config.get(name, "").strip()
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None
