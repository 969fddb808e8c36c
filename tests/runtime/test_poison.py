"""L10: one malformed znode concerns only what it describes, is named, and heals when repaired.

Three of these inputs take Kafka 3.9.1 its controller away for good.
"""

import asyncio
import json

import attrs
import pytest
from structlog.typing import EventDict

from kctl.messages import events as ev
from kctl.model.invariants import violations
from kctl.runtime.controller import Controller
from kctl.zookeeper.wire import CreateMode
from tests.runtime.surroundings import (
    Surroundings,
    cluster_has,
    registration,
    row_is,
    state,
    topic,
)

pytestmark = [pytest.mark.zookeeper, pytest.mark.asyncio, pytest.mark.timeout(60)]

DEEP = b"[" * 100_000 + b"]" * 100_000
DEEP_OBJECT = b'{"version":1,"partitions":' + DEEP + b"}"
STATE = "/brokers/topics/sick/partitions/0/state"


@attrs.frozen
class Poison:
    path: str
    data: bytes
    repaired: bytes | None
    """None: it is removed."""


REGISTRATION = registration(99)
TOPIC = topic({0: [1, 2, 3]})
UNCLEAN = b'{"version":1,"config":{"unclean.leader.election.enable":"true"}}'

POISONS = {
    "registration: garbage": Poison("/brokers/ids/99", b"garbage", REGISTRATION),
    "registration: empty": Poison("/brokers/ids/99", b"", REGISTRATION),
    "registration: version 0": Poison("/brokers/ids/99", b'{"version":0}', REGISTRATION),
    "registration: version as text": Poison("/brokers/ids/99", b'{"version":"5"}', REGISTRATION),
    "registration: no endpoints": Poison(
        "/brokers/ids/99", b'{"version":5,"endpoints":[]}', REGISTRATION
    ),
    "registration: port out of range": Poison(
        "/brokers/ids/99", b'{"version":1,"host":"h","port":99999999999}', REGISTRATION
    ),
    "registration: not a number": Poison("/brokers/ids/abc", b"{}", None),
    "registration: nested": Poison("/brokers/ids/99", DEEP, REGISTRATION),
    "topic: partition x": Poison(
        "/brokers/topics/bad", b'{"version":2,"partitions":{"x":[1]}}', TOPIC
    ),
    "topic: truncated": Poison("/brokers/topics/bad", TOPIC[:-9], TOPIC),
    "topic: not UTF-8": Poison("/brokers/topics/bad", b'{"partitions":{"\xff":[1]}}', TOPIC),
    "topic: empty": Poison("/brokers/topics/bad", b"", TOPIC),
    "topic: null": Poison("/brokers/topics/bad", b"null", TOPIC),
    "topic: no replicas": Poison("/brokers/topics/bad", b'{"partitions":{"0":[]}}', TOPIC),
    "topic: a replica twice": Poison("/brokers/topics/bad", b'{"partitions":{"0":[1,1]}}', TOPIC),
    "topic: huge id": Poison("/brokers/topics/bad", b'{"partitions":{"0":[%d]}}' % 10**40, TOPIC),
    "topic: bad topic id": Poison(
        "/brokers/topics/bad", b'{"partitions":{"0":[1]},"topic_id":"short"}', TOPIC
    ),
    "topic: nested": Poison("/brokers/topics/bad", DEEP_OBJECT, TOPIC),
    "state: leader as text": Poison(
        STATE, state(1, [1, 2, 3]).replace(b'"leader": 1', b'"leader": "one"'), state(1, [1, 2, 3])
    ),
    "state: not JSON": Poison(STATE, b"not-json", state(1, [1, 2, 3])),
    "state: huge epoch": Poison(
        STATE,
        state(1, [1, 2, 3]).replace(b'"leader_epoch": 0', b'"leader_epoch": %d' % 10**30),
        state(1, [1, 2, 3]),
    ),
    "state: nested": Poison(STATE, DEEP, state(1, [1, 2, 3])),
    "reassign: not JSON": Poison("/admin/reassign_partitions", b"not-json", None),
    "reassign: nested": Poison("/admin/reassign_partitions", DEEP_OBJECT, None),
    "feature: garbage": Poison("/feature", b"garbage", None),
}


async def healthy_cluster(around: Surroundings) -> None:
    await around.start_brokers(1, 2, 3)
    await around.create_topic("good", {0: [1, 2, 3]})
    await around.create_topic("sick", {0: [1, 2, 3]})
    for name in ("good", "sick"):
        await around.put(f"/brokers/topics/{name}/partitions/0/state", state(1, [1, 2, 3]))


async def others_work(around: Surroundings, controller: Controller) -> None:
    """Brokers go and come, topics are made, and none of it minds the poison."""
    await around.stop_brokers(1)
    await controller.until(row_is("good", leader=2, isr=(2, 3)))
    await around.start_brokers(1)
    await controller.until(cluster_has(lambda c: 1 in c.live))
    await around.create_topic("later", {0: [3, 1]})
    await controller.until(row_is("later", leader=3))


async def repair(around: Surroundings, controller: Controller, poison: Poison) -> None:
    if poison.repaired is None:
        await around.remove(poison.path)
    else:
        await around.put(poison.path, poison.repaired)
    controller.put(ev.QuarantineCheck())  # what its timer does
    await controller.until(cluster_has(lambda c: poison.path not in c.quarantine))


def lines_on(logged: list[EventDict], path: str) -> list[EventDict]:
    return [line for line in logged if line.get("path") == path]


@pytest.mark.parametrize("name", POISONS)
async def test_present_at_failover(
    around: Surroundings, name: str, logged: list[EventDict]
) -> None:
    poison = POISONS[name]
    await healthy_cluster(around)
    await around.put(poison.path, poison.data)
    async with around.controller() as controller:
        await controller.until(cluster_has(lambda c: poison.path in c.quarantine))
        await others_work(around, controller)
        await sound_and_named_once(around, controller, poison, logged)


@pytest.mark.parametrize("name", POISONS)
async def test_put_while_running(around: Surroundings, name: str, logged: list[EventDict]) -> None:
    poison = POISONS[name]
    await healthy_cluster(around)
    async with around.controller() as controller:
        await controller.until(row_is("good", leader=1))
        await around.put(poison.path, poison.data)
        await others_work(around, controller)
        if poison.path == "/feature":
            return  # read at the next failover
        await controller.until(cluster_has(lambda c: poison.path in c.quarantine))
        await sound_and_named_once(around, controller, poison, logged)


async def sound_and_named_once(
    around: Surroundings, controller: Controller, poison: Poison, logged: list[EventDict]
) -> None:
    controller.put(ev.QuarantineCheck())
    controller.put(ev.BrokerChange())
    await controller.until(lambda c: c.queue_size == 0 and c.meters.state == 0)
    assert [line["event"] for line in lines_on(logged, poison.path)] == ["quarantined"]
    assert controller.meters.quarantined == 1
    assert controller.meters.faults == 0
    assert controller.meters.elections_won == 1
    await repair(around, controller, poison)
    assert [line["event"] for line in lines_on(logged, poison.path)] == ["quarantined", "healed"]
    if poison.path == STATE:
        await controller.until(row_is("sick", leader=1))
    elif poison.path == "/brokers/topics/bad":
        await controller.until(row_is("bad", leader=1))
    elif poison.path == "/brokers/ids/99":
        await controller.until(cluster_has(lambda c: 99 in c.live))
    assert controller.state is not None
    assert violations(controller.state) == []


async def test_a_topic_config_that_is_not_json_forbids_unclean_election(
    around: Surroundings, logged: list[EventDict]
) -> None:
    await healthy_cluster(around)
    await around.write_state("sick", 0, leader=-1, isr=[9])
    await around.put("/config/topics/sick", b"not-json")
    async with around.controller(unclean_leader_election_enable=True) as controller:
        await controller.until(cluster_has(lambda c: "/config/topics/sick" in c.quarantine))
        await others_work(around, controller)
        assert row_is("sick", leader=-1)(controller)
        await around.put("/config/topics/sick", UNCLEAN)
        controller.put(ev.QuarantineCheck())
        await controller.until(row_is("sick", leader=1, isr=(1,)))
        lines = [line["event"] for line in lines_on(logged, "/config/topics/sick")]
        assert lines == ["quarantined", "healed"]


@pytest.mark.parametrize("data", [b"{]", b"", DEEP_OBJECT])
async def test_an_election_znode_that_is_not_json_is_named_and_removed(
    around: Surroundings, data: bytes, logged: list[EventDict]
) -> None:
    """Once at failover, once while running: it would block the next one who asks this way."""
    path = "/admin/preferred_replica_election"
    await healthy_cluster(around)
    await around.put(path, data)
    async with around.controller() as controller:
        await controller.until(row_is("good", leader=1))
        await around.until_gone(path)
        await controller.until(cluster_has(lambda c: not c.quarantine))
        await around.put(path, data)
        await around.until_gone(path)
        await others_work(around, controller)
        await controller.until(cluster_has(lambda c: not c.quarantine))
        lines = [line["event"] for line in lines_on(logged, path)]
        assert lines == 2 * ["quarantined", "healed"]


@pytest.mark.parametrize(
    "data",
    [
        b"not-json",
        b"",
        DEEP_OBJECT,
        b'{"version":1,"partitions":[{"topic":"unknown","partition":7}]}',
        b'{"version":1,"partitions":[{"topic":"../../controller","partition":0}]}',
        b'{"version":1,"partitions":[{"topic":"good","partition":-1}]}',
    ],
)
@pytest.mark.parametrize("parent", ["/isr_change_notification", "/log_dir_event_notification"])
async def test_notifications_that_say_nothing_are_cleared(
    around: Surroundings, parent: str, data: bytes, logged: list[EventDict]
) -> None:
    await healthy_cluster(around)
    await around.make(f"{parent}/old", data)
    async with around.controller() as controller:
        await controller.until(row_is("good", leader=1))
        await around.until_gone(f"{parent}/old")
        made = await around.zk.create(f"{parent}/n_", data, CreateMode.PERSISTENT_SEQUENTIAL)
        await around.until_gone(made.path)
        assert [line["event"] for line in lines_on(logged, made.path)] == ["notification dropped"]
        assert controller.meters.quarantined >= 1
        await others_work(around, controller)
        assert controller.meters.faults == 0
        assert controller.meters.elections_won == 1


async def test_configs_that_are_not_json_change_nothing(
    around: Surroundings, logged: list[EventDict]
) -> None:
    await healthy_cluster(around)
    await around.put("/config/brokers/<default>", b"\xff\xfe")
    await around.make("/config/changes/config_change_0000000000", b"garbage")
    async with around.controller() as controller:
        await controller.until(row_is("good", leader=1))
        for data in (b"garbage", b"", DEEP, b'{"version":9}', b'{"version":2,"entity_path":7}'):
            await around.zk.create(
                "/config/changes/config_change_", data, CreateMode.PERSISTENT_SEQUENTIAL
            )
            await around.put("/config/brokers/<default>", data)
        await others_work(around, controller)
        assert controller.meters.faults == 0
        await around.put("/config/brokers/<default>", UNCLEAN)
        await controller.until(cluster_has(lambda c: c.settings.unclean_leader_election))
        assert controller.meters.quarantined >= 2
    of_default = [line["event"] for line in lines_on(logged, "/config/brokers/<default>")]
    assert "config ignored" in of_default
    assert of_default[-1] == "healed"
    notices = {line["path"] for line in logged if line["event"] == "config ignored"}
    assert any(path.startswith("/config/changes/") for path in notices)


async def test_an_epoch_that_is_no_number_is_waited_for(
    around: Surroundings, logged: list[EventDict]
) -> None:
    """To guess one would undercut what brokers have seen; nobody can control until it is repaired."""
    await healthy_cluster(around)
    await around.put("/controller_epoch", b"many")
    async with around.controller() as controller:
        while controller.meters.faults < 2:  # noqa: ASYNC110 nothing is handled meanwhile
            await asyncio.sleep(0.01)
        assert controller.stood_down is None
        await around.put("/controller_epoch", b"41")
        await controller.until(row_is("good", leader=1))
        assert await around.epoch() == 42
    faults = [line for line in logged if line["event"] == "fault"]
    assert "/controller_epoch" in faults[0]["exception"]


@pytest.mark.parametrize("data", [b"", b"garbage", b'{"brokerid":"one"}', b"null"])
async def test_a_controller_znode_that_nobody_owns(around: Surroundings, data: bytes) -> None:
    """KAFKA-9267: a tool made it, and no session's end removes it. Only a takeover replaces it."""
    await healthy_cluster(around)
    await around.put("/controller", data)
    await around.put("/controller_epoch", b"5")
    async with around.controller() as polite:
        await polite.until(lambda c: c.active_id == -1)
        async with around.controller(broker_id=1001, takeover=True) as controller:
            await controller.until(row_is("good", leader=1))
            assert json.loads((await around.zk.get("/controller"))[0])["brokerid"] == 1001
            assert polite.meters.faults == 0
