"""Taking, finding and giving up the controllership on a real ZooKeeper."""

import json

import pytest

from kctl.messages import effects as ef
from kctl.messages.term import ControllerMoved
from kctl.model.brokers import Endpoint
from kctl.model.codes import Code
from kctl.model.names import TopicPartition
from kctl.zookeeper import paths, znodes
from kctl.zookeeper.errors import ConnectionLoss
from kctl.zookeeper.registrations import encode_registration
from kctl.zookeeper.session import Session
from kctl.zookeeper.store import Store, Unusable
from kctl.zookeeper.wire import CreateMode
from tests.zookeeper.offices import US, Between, kazoo, leadership, make_topic, ruling

pytestmark = [pytest.mark.zookeeper, pytest.mark.asyncio]

ENDPOINTS = (Endpoint("PLAINTEXT", "127.0.0.1", 9999),)
GARBAGE = [b"", b"garbage", b"{}", b'{"brokerid":"x"}', b"\xff\xfe", b'{"brokerid":1e99}', b"[1]"]


async def test_bootstrap_on_an_empty_ensemble(zk: Session, chroot: str) -> None:
    store = Store(zk, US)
    assert await store.perform(ef.ReadControllership()) == ef.Controllership(None, None)
    assert await store.perform(ef.Bootstrap()) is Code.OK
    assert await store.perform(ef.Bootstrap()) is Code.OK
    with kazoo(chroot) as kz:
        for path in paths.PERSISTENT:
            assert kz.exists(path).dataLength == 0, path
    assert await store.perform(ef.CreateControllerEpoch()) is Code.OK
    assert await store.perform(ef.CreateControllerEpoch()) is Code.NODE_EXISTS
    assert await store.perform(ef.ReadControllership()) == ef.Controllership(None, 0, 0)


async def test_bootstrap_without_a_chroot(zk: Session, chroot: str) -> None:
    async with Session.open(chroot + "/absent") as nowhere:
        assert await Store(nowhere, US).perform(ef.Bootstrap()) is Code.NO_NODE


async def test_a_term_from_claim_to_release(zk: Session, chroot: str) -> None:
    store = await ruling(zk, now_ms=lambda: 1_729_800_000_000)
    assert store.fence_version == 1
    ours = ef.ControllerNode(US, ours=True, kctl=True, zk_version=0)
    assert await store.perform(ef.ReadControllership()) == ef.Controllership(ours, 1, 1)
    with kazoo(chroot) as kz:
        data, stat = kz.get(paths.CONTROLLER)
        assert json.loads(data)["timestamp"] == "1729800000000"
        assert stat.ephemeralOwner == zk.session_id
        assert kz.get(paths.CONTROLLER_EPOCH)[0] == b"1"
        assert await store.perform(ef.ReleaseControllership(1)) is Code.OK
        assert kz.exists(paths.CONTROLLER) is None
    with pytest.raises(ControllerMoved):
        await store.perform(ef.MarkForDeletion(("t",)))


async def test_a_claim_that_is_refused(zk: Session, chroot: str) -> None:
    async with Session.open(chroot) as other_session:
        store = await ruling(zk)
        other = Store(other_session, 1001)
        absent = ef.ControllerNode(US, ours=False, kctl=True, zk_version=3)
        claim = ef.ClaimControllership
        assert await other.perform(claim(2, 1, None)) is Code.NODE_EXISTS
        assert await other.perform(claim(2, 0, None)) is Code.BAD_VERSION
        assert await other.perform(claim(2, 1, absent)) is Code.BAD_VERSION
        assert await store.perform(ef.ReleaseControllership(1)) is Code.OK
        assert await other.perform(claim(2, 1, absent)) is Code.NO_NODE
        with kazoo(chroot) as kz:
            assert kz.get(paths.CONTROLLER_EPOCH)[0] == b"1", "all or nothing"
            kz.delete(paths.CONTROLLER_EPOCH)
        assert await other.perform(claim(2, 1, None)) is Code.NO_NODE
        with pytest.raises(ControllerMoved):
            await other.perform(ef.MarkForDeletion(("t",)))


async def test_a_takeover_leaves_no_moment_without_a_controller(zk: Session, chroot: str) -> None:
    async with Session.open(chroot) as other_session:
        store = await ruling(zk)
        other = Store(other_session, 1001)
        seen = await other.perform(ef.ReadControllership())
        assert seen.controller == ef.ControllerNode(US, ours=False, kctl=True, zk_version=0)
        claim = ef.ClaimControllership(2, seen.epoch_zk_version, seen.controller)
        assert await other.perform(claim) is Code.OK
        with pytest.raises(ControllerMoved):
            await store.perform(ef.MarkForDeletion(("t",)))
        assert await store.perform(ef.ReleaseControllership(1)) is Code.BAD_VERSION
        assert (await other.perform(ef.MarkForDeletion(("t",)))) == {"t": Code.OK}
        seen = await store.perform(ef.ReadControllership())
        assert seen.controller == ef.ControllerNode(1001, ours=False, kctl=True, zk_version=0)


@pytest.mark.parametrize("landed", [True, False])
async def test_a_claim_whose_reply_is_lost(zk: Session, landed: bool) -> None:
    between = Between(zk)
    store = Store(between, US)
    await store.perform(ef.Bootstrap())
    await store.perform(ef.CreateControllerEpoch())

    def lose(call: str) -> None:
        if call == "multi":
            between.before = between.after = lambda _: None
            raise ConnectionLoss

    if landed:
        between.after = lose
    else:
        between.before = lose
    assert await store.perform(ef.ClaimControllership(1, 0, None)) is Code.UNKNOWN
    seen = await store.perform(ef.ReadControllership())
    if landed:
        assert seen == ef.Controllership(ef.ControllerNode(US, ours=True, kctl=True), 1, 1)
        assert store.fence_version == 1
        await make_topic(store, "t", 1)
        row = {TopicPartition("t", 0): leadership(2)}
        assert set((await store.perform(ef.WritePartitions(row))).values()) == {Code.OK}
    else:
        assert seen == ef.Controllership(None, 0, 0)
        assert store.fence_version is None


@pytest.mark.parametrize("data", GARBAGE)
async def test_a_controller_that_cannot_be_understood(
    zk: Session, chroot: str, data: bytes
) -> None:
    """It holds the place all the same, and can be replaced."""
    store = Store(zk, US)
    await store.perform(ef.Bootstrap())
    await store.perform(ef.CreateControllerEpoch())
    with kazoo(chroot) as kz:
        kz.create(paths.CONTROLLER, data)
        seen = await store.perform(ef.ReadControllership())
        assert seen.controller == ef.ControllerNode(-1, ours=False, kctl=False, zk_version=0)
        claim = ef.ClaimControllership(1, 0, seen.controller)
        assert await store.perform(claim) is Code.OK
        assert znodes.decode_controller("", kz.get(paths.CONTROLLER)[0]) == znodes.Claim(US, True)


async def test_an_epoch_that_cannot_be_understood(zk: Session, chroot: str) -> None:
    """No epoch can be made up: brokers would not obey a smaller one than they have seen."""
    store = Store(zk, US)
    with kazoo(chroot) as kz:
        kz.create(paths.CONTROLLER_EPOCH, b"garbage")
        with pytest.raises(Unusable, match="controller_epoch"):
            await store.perform(ef.ReadControllership())
        kz.set(paths.CONTROLLER_EPOCH, b"41")
        assert await store.perform(ef.ReadControllership()) == ef.Controllership(None, 41, 1)


# -- our registration, for brokers up to 2.8 -------------------------------------------------


async def test_the_registration_comes_and_goes(zk: Session, chroot: str) -> None:
    store = await ruling(zk)
    assert await store.perform(ef.RegisterController(ENDPOINTS, "r1")) is Code.OK
    with kazoo(chroot) as kz:
        data, stat = kz.get(paths.broker(US))
        assert stat.ephemeralOwner == zk.session_id, "it goes with the session, as /controller does"
        assert json.loads(data)["endpoints"] == ["PLAINTEXT://127.0.0.1:9999"]
        assert await store.perform(ef.ReadBrokers()) == {}, "we are no broker"
        assert await store.perform(ef.UnregisterController()) is Code.OK
        assert kz.get_children(paths.BROKER_IDS) == []
        assert await store.perform(ef.UnregisterController()) is Code.NO_NODE


async def test_the_loser_s_registration_goes_with_it(zk: Session, chroot: str) -> None:
    async with Session.open(chroot) as other_session:
        loser = await ruling(zk)
        assert await loser.perform(ef.RegisterController(ENDPOINTS)) is Code.OK
        other = Store(other_session, 1001)
        seen = await other.perform(ef.ReadControllership())
        claim = ef.ClaimControllership(2, 1, seen.controller)
        assert await other.perform(claim) is Code.OK
        assert await zk.children(paths.BROKER_IDS) == []
        with pytest.raises(ControllerMoved):
            await loser.perform(ef.RegisterController(ENDPOINTS))
        assert await zk.children(paths.BROKER_IDS) == []


async def test_our_registration_of_a_session_before(zk: Session, chroot: str) -> None:
    """A restarted kctl finds the ephemerals of its old session, which is not expired yet."""
    async with Session.open(chroot) as old_session:
        old = await ruling(old_session)
        assert await old.perform(ef.RegisterController(ENDPOINTS)) is Code.OK
        store = Store(zk, US)
        seen = await store.perform(ef.ReadControllership())
        assert seen.controller == ef.ControllerNode(US, ours=False, kctl=True, zk_version=0)
        claim = ef.ClaimControllership(2, 1, seen.controller)
        assert await store.perform(claim) is Code.OK
        assert await store.perform(ef.RegisterController(ENDPOINTS)) is Code.OK
        stat = await zk.exists(paths.broker(US))
        assert stat is not None
        assert stat.ephemeral_owner == zk.session_id


async def test_a_broker_with_our_id(zk: Session) -> None:
    """It is reported as a broker, so that the core refuses to rule under that id."""
    store = await ruling(zk)
    broker = json.loads(encode_registration(ENDPOINTS, None, 1))
    del broker["kctl"]
    await zk.create(paths.broker(US), json.dumps(broker).encode(), CreateMode.EPHEMERAL)
    found = await store.perform(ef.ReadBrokers())
    assert list(found) == [US]
    with pytest.raises(Unusable, match="id of this controller"):
        await store.perform(ef.RegisterController(ENDPOINTS))
