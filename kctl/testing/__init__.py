"""A Kafka cluster for tests, with the controller in it, and the pytest plugin.

::

    async with Cluster(brokers=3, topics={"orders": 6}) as c:
        await c.kill(2)
        await c.until(lambda: c.partition("orders", 0).leader not in (None, 2))

Names are imported when they are first used, because pytest imports this package in every run.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kctl.testing.cluster import Cluster as Cluster
    from kctl.testing.cluster import NotReached as NotReached
    from kctl.testing.cluster_answers import RequestRefused as RequestRefused
    from kctl.testing.cluster_hooks import Delay as Delay
    from kctl.testing.cluster_hooks import Drop as Drop
    from kctl.testing.cluster_hooks import Fail as Fail
    from kctl.testing.cluster_hooks import Request as Request
    from kctl.testing.cluster_views import Broker as Broker
    from kctl.testing.cluster_views import Partition as Partition

__all__ = [
    "Broker",
    "Cluster",
    "Delay",
    "Drop",
    "Fail",
    "NotReached",
    "Partition",
    "Request",
    "RequestRefused",
]

_HOMES = {
    "Broker": "kctl.testing.cluster_views",
    "Cluster": "kctl.testing.cluster",
    "Delay": "kctl.testing.cluster_hooks",
    "Drop": "kctl.testing.cluster_hooks",
    "Fail": "kctl.testing.cluster_hooks",
    "NotReached": "kctl.testing.cluster",
    "Partition": "kctl.testing.cluster_views",
    "Request": "kctl.testing.cluster_hooks",
    "RequestRefused": "kctl.testing.cluster_answers",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
