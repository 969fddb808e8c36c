"""The real ZooKeeper of `tests/zookeeper`, and a cluster's surroundings on it."""

from tests.runtime.conftest import around, chroot, logged, proxy, zk, zookeeper

__all__ = ["around", "chroot", "logged", "proxy", "zk", "zookeeper"]
