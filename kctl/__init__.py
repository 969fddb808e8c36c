"""A Kafka controller for clusters in ZooKeeper mode.

`kctl.Controller` and `kctl.Config` are imported when they are first used, so that `import kctl` and
the command line start quickly.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kctl.runtime.config import Config as Config
    from kctl.runtime.config import ConfigError as ConfigError
    from kctl.runtime.controller import Controller as Controller

__version__ = version("kctl")

__all__ = ["Config", "ConfigError", "Controller", "__version__"]

_HOMES = {
    "Config": "kctl.runtime.config",
    "ConfigError": "kctl.runtime.config",
    "Controller": "kctl.runtime.controller",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
