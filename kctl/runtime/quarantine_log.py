"""Znodes that cannot be used: one line when one is found, one when it is repaired."""

import structlog

from kctl.model.cluster import ClusterState
from kctl.runtime.meters import Meters

log = structlog.get_logger("kctl.controller")


class QuarantineLog:
    """Remembers over terms what was said, so that an election does not say it again."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters
        self._said: dict[str, str] = {}

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
