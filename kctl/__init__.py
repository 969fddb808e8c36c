"""A Kafka controller for clusters in ZooKeeper mode."""

from importlib.metadata import version

__version__ = version("kctl")

__all__ = ["__version__"]
