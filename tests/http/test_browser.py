"""The page in a real browser: headless Chromium, brokers that really die.

Screenshots go to `.cache/screenshots`, to be looked at. With `KCTL_SCREENSHOTS` set to a folder,
those of the documentation are written there anew.
"""

import os
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from kctl.http import Http
from kctl.model.brokers import Endpoint
from kctl.model.names import TopicPartition
from kctl.runtime.controller import Controller
from kctl.testing.simulated import RegisteredBrokers
from kctl.zookeeper.embedded import free_ports
from tests.http.served import standing_alone, topics_of
from tests.runtime.surroundings import Surroundings

playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed")

SHOTS = Path(os.environ.get("KCTL_SCREENSHOTS", Path(__file__).parents[2] / ".cache/screenshots"))
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CHROMIUM = os.environ.get("KCTL_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
ARGUMENTS = ["--no-sandbox", "--disable-dev-shm-usage"]
BOUND_MS = 20_000
DESK = {"width": 1320, "height": 800}
PHONE = {"width": 360, "height": 740}
TOPICS = {
    "orders": 24,
    "payments": 12,
    "inventory.changes": 18,
    "clicks": 36,
    "users": 6,
    "audit-log": 3,
    "shipments": 9,
    "sessions": 16,
    "__consumer_offsets": 50,
}

pytestmark = [
    pytest.mark.browser,
    pytest.mark.zookeeper,
    pytest.mark.asyncio,
    pytest.mark.skipif(
        CHROMIUM is None,
        reason="no Chromium found; Debian, Ubuntu: apt-get install chromium, or set KCTL_CHROMIUM",
    ),
]


@attrs.define
class Scene:
    around: Surroundings
    controller: Controller
    http: Http
    brokers: RegisteredBrokers
    browser: Any

    @asynccontextmanager
    async def page(self, *, ready: bool = True, **options: Any) -> AsyncIterator[Any]:
        """A tab; what it logs as an error or does not catch fails the test."""
        context = await self.browser.new_context(**({"viewport": DESK} | options))
        tab = await context.new_page()
        tab.set_default_timeout(BOUND_MS)
        wrong: list[str] = []
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on(
            "request", lambda request: wrong.append(request.url) if self._outside(request) else None
        )
        await tab.goto(self.http.url)
        if ready:
            await tab.wait_for_selector("#map .cell[data-key='orders-3']")
            await tab.wait_for_function(
                "pulses => document.querySelector('#f-queue polyline')?.points.length >= pulses",
                arg=15 if "KCTL_SCREENSHOTS" in os.environ else 1,
            )
        try:
            yield tab
        finally:
            await context.close()
        assert wrong == []

    def _outside(self, request: Any) -> bool:
        return not request.url.startswith((self.http.url, "data:"))


async def shoot(tab: Any, name: str) -> None:
    await tab.screenshot(path=SHOTS / f"{name}.png")


@asynccontextmanager
async def scene(around: Surroundings) -> AsyncIterator[Scene]:
    (port,) = free_ports(1)
    config = around.config(listeners=(Endpoint("PLAINTEXT", "127.0.0.1", port),))
    ids = range(1, 6)
    racks = {broker: f"rack-{'abc'[broker % 3]}" for broker in ids}
    async with (
        Controller(config) as controller,
        Http(controller) as http,
        RegisteredBrokers(around.connect, ids, racks=racks) as brokers,
        playwright.async_playwright() as driver,
    ):
        for number, (name, partitions) in enumerate(TOPICS.items()):
            replicas = 2 if name == "clicks" else 3
            await around.create_topic(
                name,
                {p: [(number + p + r) % 5 + 1 for r in range(replicas)] for p in range(partitions)},
            )
        await controller.until(
            lambda c: (
                c.state is not None
                and len(c.state.rows) == sum(TOPICS.values())
                and not c.state.not_online
            )
        )
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            yield Scene(around, controller, http, brokers, browser)
        finally:
            await browser.close()


def led_by(controller: Controller, broker: int) -> list[str]:
    assert controller.state is not None
    return [str(tp) for tp, row in controller.state.rows.items() if row.leader == broker]


async def test_a_broker_dies_and_the_page_shows_it(
    around: Surroundings, capsys: pytest.CaptureFixture[str]
) -> None:
    async with scene(around) as on, on.page() as tab:
        assert "1000" in await tab.inner_text("#who")
        assert await tab.inner_text("#f-offline dd span:last-child") == "0"
        moving = led_by(on.controller, 2)
        assert moving
        look = "keys => keys.map(k => +document.querySelector(`[data-key='${k}']`).textContent)"
        assert set(await tab.evaluate(look, moving)) == {2}

        began = time.monotonic()
        await on.brokers.kill(2)
        await tab.wait_for_function(f"keys => ({look})(keys).every(id => id !== 2)", arg=moving)
        moved = time.monotonic()
        await tab.wait_for_selector("#brokers tr.gone[data-broker='2']")
        gone = time.monotonic()
        await shoot(tab, "page-light")
        with capsys.disabled():
            print(  # noqa: T201 measured, never asserted
                f"\n{len(moving)} leaderships moved on the page {moved - began:.3f} s after a broker"
                f" was killed, the broker is shown as gone after {gone - began:.3f} s"
            )
        state = on.controller.state
        assert state is not None
        assert await tab.evaluate(look, moving) == [
            state.rows[TopicPartition.parse(key)].leader for key in moving
        ]
        assert "broker gone" in await tab.inner_text("#stream")
        assert await tab.inner_text("#broker-count") == "4 of 5 alive"

        await on.brokers.kill(3)
        await tab.wait_for_selector("#map .cell.offline")
        assert int(await tab.inner_text("#f-offline dd span:last-child")) > 0
        await on.brokers.start(2)
        await on.brokers.start(3)
        await tab.wait_for_selector("#brokers:not(:has(tr.gone))")
        await tab.wait_for_function("() => !document.querySelector('#map .cell.offline')")


async def test_without_a_mouse_in_the_dark(around: Surroundings) -> None:
    async with scene(around) as on, on.page(color_scheme="dark") as tab:
        ground = await tab.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert ground == "rgb(20, 22, 26)"
        await on.brokers.kill(2)
        await on.brokers.kill(3)
        await tab.wait_for_selector("#map .cell.offline")

        focused = "document.activeElement.dataset.key ?? document.activeElement.id"
        await tab.keyboard.press("Tab")  # skip link
        await tab.keyboard.press("Tab")
        assert await tab.evaluate(focused) == "find"
        await tab.keyboard.press("Tab")
        first = await tab.evaluate(focused)
        assert first == "__consumer_offsets-0"
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert await tab.evaluate(outline) == "solid"
        await tab.keyboard.press("ArrowRight")
        assert await tab.evaluate(focused) == "__consumer_offsets-1"
        assert (await tab.inner_text("#readout")).startswith("__consumer_offsets-1: leader")
        await tab.keyboard.press("ArrowDown")
        below = await tab.evaluate(focused)
        assert below not in {first, "__consumer_offsets-1"}
        await tab.keyboard.press("ArrowUp")
        assert await tab.evaluate(focused) == "__consumer_offsets-1"
        await tab.keyboard.press("End")
        assert await tab.evaluate(focused) == "users-5"
        await tab.keyboard.press("Tab")
        label = await tab.evaluate("document.activeElement.ariaLabel")
        assert label == "Broker 1: show only what it leads"
        await tab.keyboard.press("Enter")
        assert await tab.evaluate("document.querySelectorAll('#map .cell.dim').length") > 100
        await tab.keyboard.press("Enter")
        assert await tab.evaluate("document.querySelectorAll('#map .cell.dim').length") == 0

        offline = await tab.get_attribute("#map .cell.offline", "data-key")
        await tab.focus("#find")
        await tab.keyboard.type(offline)
        await tab.keyboard.press("Enter")
        await tab.wait_for_selector("#story[open]")
        assert await tab.inner_text("#story-title") == offline
        story = await tab.inner_text("#story-body")
        assert "none" in story
        assert "replicas offline" in story
        assert "partition initialised" in story
        await shoot(tab, "page-dark-story")
        await tab.keyboard.press("Escape")
        await tab.wait_for_selector("#story:not([open])", state="attached")


async def test_on_a_phone(around: Surroundings) -> None:
    async with (
        scene(around) as on,
        on.page(viewport=PHONE, is_mobile=True, has_touch=True, device_scale_factor=2) as tab,
    ):
        await tab.evaluate("document.querySelectorAll('#map section').forEach(s => s.offsetTop)")
        assert await tab.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
        await shoot(tab, "page-phone")
        await tab.tap("#map .cell[data-key='orders-3']")
        await tab.wait_for_selector("#story[open]")
        box = await tab.locator("#story").bounding_box()
        assert box["width"] == PHONE["width"]
        assert await tab.inner_text("#story-title") == "orders-3"
        await shoot(tab, "page-phone-story")
        await tab.tap("#close")
        await tab.wait_for_selector("#story:not([open])", state="attached")


async def test_it_comes_back_after_the_server_does(around: Surroundings) -> None:
    async with scene(around) as on:
        first = await Http(on.controller).__aenter__()
        async with attrs.evolve(on, http=first).page() as tab:
            assert await tab.inner_text("#link") == "live"
            await first.__aexit__(None, None, None)
            await tab.wait_for_selector("#link.lost")
            await on.brokers.kill(4)
            async with Http(on.controller, port=first.port):
                await tab.wait_for_selector("#link:not(.lost)")
                await tab.wait_for_selector("#brokers tr.gone[data-broker='4']")


async def test_a_hundred_thousand_partitions() -> None:
    """One cell a topic; a click opens it, and from there each partition."""
    async with standing_alone() as alone, playwright.async_playwright() as driver:
        alone.holds(topics_of(2_000, 50, brokers=12))
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            tab = await browser.new_page(viewport=DESK)
            tab.set_default_timeout(BOUND_MS)
            await tab.goto(alone.http.url)
            await tab.wait_for_selector("#map .cell[data-key='t01999']")
            assert await tab.locator("#map .cell").count() == 2_000
            assert await tab.inner_text("#f-partitions dd") == "100,000"
            await tab.hover("#map .cell[data-key='t00007']")
            assert "50 partitions" in await tab.inner_text("#readout")
            await shoot(tab, "page-large")
            await tab.click("#map .cell[data-key='t00007']")
            await tab.wait_for_selector("#story[open] .cell")
            assert await tab.locator("#story .cell").count() == 50
            await tab.click("#story .cell >> nth=3")
            await tab.wait_for_function(
                "() => document.querySelector('#story-title').textContent === 't00007-3'"
            )
        finally:
            await browser.close()


async def test_standing_by_and_names_that_look_like_markup(around: Surroundings) -> None:
    """Znodes may have any name, and the page shows some of them."""
    evil = "<img src=x onerror=alert(1)>"
    async with scene(around) as on:
        await around.make(f"/brokers/topics/{evil}", b"not JSON")
        async with on.page() as tab:
            await tab.wait_for_function(
                "() => document.querySelector('#work').innerText.includes('onerror')"
            )
            assert await tab.evaluate("document.querySelectorAll('img').length") == 0
        async with (
            around.controller(broker_id=2000) as second,
            Http(second) as other,
        ):
            await second.until(lambda c: c.active_id == 1000)
            async with attrs.evolve(on, http=other).page(ready=False) as tab:
                await tab.wait_for_function(
                    "() => document.querySelector('#who').innerText.includes('stands by')"
                )
                await tab.wait_for_selector("#map .empty")
                assert "the controller is 1000" in await tab.inner_text("#who")
