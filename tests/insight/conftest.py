"""The real ZooKeeper of `tests/zookeeper`, where a test asks for it."""

from tests.zookeeper.conftest import chroot, proxy, zk, zookeeper

__all__ = ["chroot", "proxy", "zk", "zookeeper"]
