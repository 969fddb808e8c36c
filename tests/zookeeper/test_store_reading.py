"""The store's reads on a real ZooKeeper, and poison: one bad znode never hides the others."""

import pytest

from kctl.messages import effects as ef
from kctl.model.brokers import Broker, Endpoint
from kctl.model.codes import Code, Malformed
from kctl.model.names import TopicPartition
from kctl.zookeeper import paths
from kctl.zookeeper.registrations import encode_registration
from kctl.zookeeper.session import Session
from kctl.zookeeper.store import Store
from kctl.zookeeper.wire import CREATOR_ALL_ACL, CreateMode
from tests.zookeeper.offices import (
    US,
    kazoo,
    leadership,
    make_topic,
    partitions,
    ruling,
    topic_node,
)

pytestmark = [pytest.mark.zookeeper, pytest.mark.asyncio]

POISON: dict[str, bytes | None] = {
    "null": None,
    "empty": b"",
    "garbage": b"garbage",
    "truncated": b'{"partitions":{"0":[1',
    "not UTF-8": b'{"partitions":{"\xff":[1]},"leader":"\xff"}',
    "wrong types": b'{"partitions":{"0":"1"},"leader":"1","isr":1}',
    "huge numbers": b'{"partitions":{"0":[1%s]},"leader":1%s}' % (b"0" * 30, b"0" * 30),
    "partition x": b'{"partitions":{"x":[1]}}',
    "no replicas": b'{"partitions":{"0":[]}}',
    "negative": b'{"partitions":{"0":[-5]},"leader":-5,"isr":[-1]}',
    "deep": b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "NaN": b"NaN",
    "JSON null": b"null",
    "byte order mark": b'\xef\xbb\xbf{"partitions":{"0":[1]}}',
    "wrong shape": b"[[]]",
    "one megabyte": b"x" * 1_000_000,
}


@pytest.mark.parametrize("kind", POISON)
async def test_one_bad_znode_of_each_sort(zk: Session, kind: str) -> None:
    """In a topic, a state, a registration, a config and a notification."""
    store = await ruling(zk)
    await make_topic(store, "good", 3)
    await make_topic(store, "bad", 1)
    data = POISON[kind]
    bad = TopicPartition("bad", 0)
    await zk.set(paths.topic("bad"), data)
    await zk.set(paths.partition_state(bad), data)
    await zk.set(paths.topic_config("bad"), data)
    await zk.create(paths.broker(1), b'{"version":2,"endpoints":["PLAINTEXT://b:1"]}')
    await zk.create(paths.broker(2), data)
    await zk.create(f"{paths.ISR_CHANGES}/isr_change_0000000000", data)

    topics = await store.perform(ef.ReadTopics(("bad", "good")))
    assert isinstance(topics["bad"], Malformed)
    assert topics["bad"].path == paths.topic("bad")
    assert topics["good"] == topic_node(3)
    tps = (bad, *partitions("good", 3))
    states = await store.perform(ef.ReadPartitions(tps))
    assert isinstance(states[bad], Malformed)
    assert [states[tp] for tp in tps[1:]] == [leadership()] * 3
    brokers = await store.perform(ef.ReadBrokers())
    assert isinstance(brokers[2], Malformed)
    assert isinstance(brokers[1], Broker)
    configs = await store.perform(ef.ReadTopicConfigs(("bad", "good")))
    assert configs["good"] == {}
    assert isinstance(configs["bad"], Malformed) == (data not in {None, b""})
    (notification,) = (await store.perform(ef.ReadIsrNotifications())).values()
    assert isinstance(notification, Malformed)

    await zk.set(paths.topic("bad"), b'{"version":1,"partitions":{"0":[1,2]}}')
    repaired = await store.perform(ef.ReadTopics(("bad",)))
    assert isinstance(repaired["bad"], ef.TopicNode)


async def test_registrations(zk: Session) -> None:
    store = await ruling(zk)
    data = b'{"version":2,"endpoints":["PLAINTEXT://b1:9092"]}'
    created = await zk.create(paths.broker(7), data, CreateMode.EPHEMERAL)
    for name in ("07", "x", "-1", "\u0661"):
        await zk.create(f"{paths.BROKER_IDS}/{name}", data)
    for kctl in (US, US + 1):
        await zk.create(paths.broker(kctl), encode_registration((), None, 1))
    brokers = await store.perform(ef.ReadBrokers())
    found = dict(brokers)
    assert created.stat is not None
    assert found.pop(7) == Broker(
        7, created.stat.czxid, (Endpoint("PLAINTEXT", "b1", 9092),), registration_version=2
    )
    assert all(broker < 0 for broker in found), "names that are no ids belong to no broker"
    bad = {value.path for value in found.values() if isinstance(value, Malformed)}
    assert bad == {f"{paths.BROKER_IDS}/{name}" for name in ("07", "x", "-1", "\u0661")}


async def test_znodes_that_may_not_be_read(zk: Session, chroot: str) -> None:
    store = await ruling(zk)
    await make_topic(store, "good", 1)
    async with Session.open(chroot, auth=[("digest", b"other:secret")]) as other:
        await other.create(paths.topic("hidden"), b"{}", acl=CREATOR_ALL_ACL)
        await other.create(paths.broker(3), b"{}", acl=CREATOR_ALL_ACL)
        await other.create(f"{paths.ISR_CHANGES}/isr_change_1", b"{}", acl=CREATOR_ALL_ACL)
    topics = await store.perform(ef.ReadTopics(("good", "hidden", "absent")))
    assert topics == {"good": topic_node(1), "hidden": Code.NO_AUTH, "absent": Code.NO_NODE}
    assert isinstance((await store.perform(ef.ReadBrokers()))[3], Malformed)
    (notification,) = (await store.perform(ef.ReadIsrNotifications())).values()
    assert isinstance(notification, Malformed)


async def test_many_topics_in_the_order_asked_for(zk: Session) -> None:
    store = await ruling(zk)
    names = [f"t{n:04}" for n in range(1300)]
    new = {name: ef.TopicToCreate(topic_node(2), {"k": name}) for name in names}
    assert set((await store.perform(ef.CreateTopicNodes(new))).values()) == {Code.OK}
    assert await store.perform(ef.ListTopics()) == tuple(names)
    asked = (*reversed(names), "absent")
    found = await store.perform(ef.ReadTopics(asked))
    assert list(found) == list(asked)
    assert [found[name] for name in names] == [topic_node(2)] * 1300
    configs = await store.perform(ef.ReadTopicConfigs(asked))
    assert [configs[name] for name in names] == [{"k": name} for name in names]
    assert configs["absent"] is Code.NO_NODE


async def test_an_empty_ensemble_has_nothing(zk: Session, chroot: str) -> None:
    store = Store(zk, US)
    assert await store.perform(ef.ListTopics()) == ()
    assert await store.perform(ef.ListDeletions()) == ()
    assert await store.perform(ef.ReadBrokers()) == {}
    assert await store.perform(ef.ReadTopics(())) == {}
    assert await store.perform(ef.ReadPartitions(())) == {}
    assert await store.perform(ef.ReadIsrNotifications()) == {}
    with kazoo(chroot) as kz:
        assert kz.get_children("/") == [], "looking changes nothing"
