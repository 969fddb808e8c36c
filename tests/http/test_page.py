"""The page as a document: complete in itself, and guarded."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from kctl.http.cells import (
    DELETING,
    NEW,
    NOT_PREFERRED,
    OFFLINE,
    QUARANTINED,
    REASSIGNING,
    UNDER_REPLICATED,
)
from kctl.http.server import page
from tests.http.served import standing_alone


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in {"src", "srcset", "data", "poster", "action"} or (
                name == "href" and tag == "link"
            ):
                self.loads.append(value or "")
            assert name != "style", "the policy does not allow it"
            assert not name.startswith("on"), "the policy does not allow it"


def parsed() -> Elements:
    elements = Elements()
    elements.feed(page().decode())
    return elements


def test_it_loads_nothing_from_anywhere() -> None:
    text = page().decode()
    assert not re.search(r"(?i)https?:|//[a-z0-9-]+\.[a-z]|@import|url\(", text)
    assert parsed().loads == ["data:,"]
    assert "<style></style>" not in text
    assert "<script></script>" not in text


def test_every_element_that_the_script_looks_up_is_there() -> None:
    ids = parsed().ids
    assert len(ids) == len(set(ids))
    text = page().decode()
    made = {"since"}  # by the script itself
    wanted = set(re.findall(r"\$\(\"([\w-]+)\"\)", text))
    assert len(wanted) > 15
    assert wanted - made <= set(ids)


def test_the_script_knows_the_marks_of_the_map() -> None:
    (line,) = re.findall(r"const (OFFLINE = .*?);", page().decode())
    marks = {name: int(value) for name, value in re.findall(r"(\w+) = (\d+)", line)}
    assert marks == {
        "OFFLINE": OFFLINE,
        "UNDER": UNDER_REPLICATED,
        "AWAY": NOT_PREFERRED,
        "MOVING": REASSIGNING,
        "LEAVING": DELETING,
        "ODD": QUARANTINED,
        "NEW": NEW,
    }


def test_it_is_for_phones_and_for_both_schemes() -> None:
    text = page().decode()
    assert 'name="viewport" content="width=device-width' in text
    for feature in ("prefers-color-scheme: dark", "prefers-reduced-motion", ":focus-visible"):
        assert feature in text


@pytest.mark.asyncio
async def test_its_policy_allows_its_own_script_and_style_and_nothing_else() -> None:
    async with standing_alone() as alone, alone.client.get(alone.http.url) as answer:
        policy, body = answer.headers["Content-Security-Policy"], await answer.read()
        assert answer.content_type == "text/html"
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    for tag in ("script", "style"):
        (text,) = re.findall(rb"<%b>(.*?)</%b>" % (tag.encode(), tag.encode()), body, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text).digest()).decode()
        assert rules[f"{tag}-src"] == f"'sha256-{digest}'"
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == "'none'"
