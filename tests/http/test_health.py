"""`/healthz` and `/readyz` as an orchestrator sees them."""

import asyncio
import time

import pytest

from kctl.http import Http
from kctl.logic import broker_changes
from kctl.messages import events as ev
from kctl.messages.outbox import Outbox
from kctl.model.cluster import ClusterState
from kctl.runtime import faults
from tests.http.served import Served, standing_alone
from tests.runtime.surroundings import Surroundings
from tests.zookeeper.fault_proxy import FaultProxy

BOUND_S = 30


async def until(served: Served, path: str, status: int) -> str:
    """Ask till the answer has this status; its reason."""
    async with asyncio.timeout(BOUND_S):
        while (answer := await served.get(path))[0] != status:  # noqa: ASYNC110 polled, as outside
            await asyncio.sleep(0.02)
    return answer[1]


@pytest.mark.asyncio
async def test_without_zookeeper_it_is_alive_but_not_ready() -> None:
    async with standing_alone() as alone:
        assert (await alone.json("healthz"))["status"] == "ok"
        answer = await alone.json("readyz", 503)
        assert "no ZooKeeper session" in answer["reason"]


@pytest.mark.asyncio
async def test_an_event_that_takes_too_long() -> None:
    async with standing_alone() as alone:
        meters = alone.controller.meters
        meters.begin(ev.BrokerChange())
        assert (await alone.json("healthz"))["status"] == "ok"
        meters.began_at = time.monotonic() - 100
        assert "BrokerChange" in (await alone.json("healthz", 503))["reason"]
        meters.end()
        assert (await alone.json("healthz"))["status"] == "ok"


@pytest.mark.asyncio
async def test_an_event_that_waits_too_long() -> None:
    async with standing_alone() as alone:
        alone.controller._mailbox._since[1] = time.monotonic() - 100
        assert "waited" in (await alone.json("healthz", 503))["reason"]


@pytest.mark.asyncio
async def test_a_controller_that_has_stopped() -> None:
    async with standing_alone() as alone:
        alone.controller._actor.stop()
        await alone.controller._actor_done.wait()
        assert "stopped" in (await alone.json("healthz", 503))["reason"]
        assert "stopped" in (await alone.json("readyz", 503))["reason"]


@pytest.mark.zookeeper
@pytest.mark.asyncio
async def test_active_and_standing_by(around: Surroundings) -> None:
    async with (
        around.controller(broker_id=1000) as first,
        Http(first) as http,
        Served.open(first, http) as active,
    ):
        await first.until(lambda c: c.is_active)
        async with (
            around.controller(broker_id=2000) as second,
            Http(second) as other,
            Served.open(second, other) as standby,
        ):
            await second.until(lambda c: c.active_id == 1000)
            assert (await active.json("readyz"))["reason"] == "active controller"
            answer = await standby.json("readyz")
            assert answer["reason"] == "standing by, the controller is 1000"
            state = await standby.json("state")
            assert state["controller"]["active_id"] == 1000
            assert state["controller"]["since_ms"] is not None
            assert not state["controller"]["active"]


@pytest.mark.zookeeper
@pytest.mark.asyncio
async def test_zookeeper_goes_and_comes_back(around: Surroundings, proxy: FaultProxy) -> None:
    chroot = around.connect.partition("/")[2]
    async with (
        around.controller(
            zookeeper_connect=f"{proxy.address}/{chroot}", zookeeper_session_timeout_ms=1_000
        ) as controller,
        Http(controller) as http,
        Served.open(controller, http) as served,
    ):
        await controller.until(lambda c: c.is_active)
        await until(served, "readyz", 200)
        await proxy.stop_listening()
        proxy.cut_rst()
        assert "session" in await until(served, "readyz", 503)
        assert (await served.json("healthz"))["status"] == "ok"
        await proxy.listen()
        await until(served, "readyz", 200)
        assert (await served.json("healthz"))["status"] == "ok"


@pytest.mark.zookeeper
@pytest.mark.asyncio
async def test_stood_down(around: Surroundings) -> None:
    await around.start_brokers(1000)
    async with (
        around.controller() as controller,
        Http(controller) as http,
        Served.open(controller, http) as served,
    ):
        reason = await until(served, "readyz", 503)
        async with asyncio.timeout(BOUND_S):
            while "stood down" not in reason:
                reason = (await served.get("readyz"))[1]
                await asyncio.sleep(0.02)
        assert "1000" in reason
        assert (await served.json("state"))["controller"]["stood_down"]
        assert "kctl_stood_down 1.0" in (await served.get("metrics"))[1]


@pytest.mark.zookeeper
@pytest.mark.asyncio
async def test_resting_after_a_fault(around: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "BACKOFF_MIN_MS", 60_000)
    monkeypatch.setattr(faults, "BACKOFF_MAX_MS", 60_000)

    async def fails(cluster: ClusterState, outbox: Outbox) -> None:
        raise RuntimeError(f"planted at epoch {cluster.epoch}: {len(outbox.events)}")

    async with (
        around.controller() as controller,
        Http(controller) as http,
        Served.open(controller, http) as served,
    ):
        await controller.until(lambda c: c.is_active)
        monkeypatch.setattr(broker_changes, "on_broker_change", fails)
        controller.put(ev.BrokerChange())
        assert "resting" in await until(served, "readyz", 503)
        assert "kctl_faults_total 1.0" in (await served.get("metrics"))[1]
