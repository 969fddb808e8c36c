"""Znodes that cannot be used: one line when one is found, one when it is repaired."""

import structlog

from kctl.messages.outbox import NOTIFICATION_DROPPED, Story
from kctl.model.cluster import ClusterState
from kctl.runtime.meters import Meters

CONFIGS_MAX = 1_000
"""Remembered; notices of changes come and go."""
log = structlog.get_logger("kctl.controller")


class QuarantineLog:
    """Remembers over terms what was said, so that an election does not say it again."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters
        self._said: dict[str, str] = {}
        self._configs: dict[str, str] = {}

    def hear(self, story: Story) -> None:
        """A notification is removed with what is wrong in it: it is named once, and gone."""
        if story.what == NOTIFICATION_DROPPED:
            self._meters.quarantined += 1
            log.warning(story.what, path=story.key, reason=story.why)

    def config(self, path: str, reason: str | None) -> None:
        """Of a dynamic config or the notice of its change; None: it can be used."""
        if reason is None:
            if self._configs.pop(path, None) is not None:
                log.info("healed", path=path)
        elif self._configs.get(path) != reason:
            self._configs[path] = reason
            if len(self._configs) > CONFIGS_MAX:
                del self._configs[next(iter(self._configs))]
            self._meters.quarantined += 1
            log.warning("config ignored", path=path, reason=reason)

    def look(self, cluster: ClusterState | None) -> None:
        """After each event."""
        if cluster is None or not (cluster.quarantine or self._said):
            return
        now = cluster.quarantine
        for path, reason in now.items():
            if self._said.get(path) != reason:
                self._said[path] = reason
                self._meters.quarantined += 1
                log.warning("quarantined", path=path, reason=reason)
        for path in [path for path in self._said if path not in now]:
            del self._said[path]
            log.info("healed", path=path)
