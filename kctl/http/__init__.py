"""The controller's HTTP face: page, metrics, health, state and events."""

from kctl.http.metrics import Dialect
from kctl.http.server import Http, HttpUnavailable, listen

__all__ = ["Dialect", "Http", "HttpUnavailable", "listen"]
