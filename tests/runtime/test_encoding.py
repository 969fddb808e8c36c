"""Every event and every reply survives the journal, whatever is in it."""

import typing
from collections.abc import Mapping
from enum import Enum
from types import UnionType
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.model.names import TopicPartition
from kctl.model.secrets import Secret
from kctl.model.settings import Settings
from kctl.runtime.encoding import pack, unpack

EVENTS = ev.Event.__subclasses__()
EFFECTS = ef.Effect.__subclasses__()


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type, as it is written in the core's annotations."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is None or hint is type(None):
        return st.none()
    if origin in (UnionType, typing.Union):
        return st.one_of([values(argument) for argument in arguments])
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, arguments))
    if origin in (dict, Mapping):
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=3)
    if hint is Secret:
        return st.just(Secret())  # what it holds does not survive, see below
    if hint is TopicPartition:
        return st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 10))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    if hint is bool:
        return st.booleans()
    if hint is int:
        return st.one_of(
            st.integers(-5, 5), st.integers(), st.sampled_from([2**53, -(2**53), 2**63])
        )
    if hint is str:
        return st.text(max_size=8)
    if attrs.has(hint) or issubclass(hint, msgspec.Struct):
        hints = typing.get_type_hints(hint)
        names = (
            [field.name for field in attrs.fields(hint)]
            if attrs.has(hint)
            else hint.__struct_fields__
        )
        return st.tuples(*(values(hints[name]) for name in names)).map(lambda made: hint(*made))
    raise AssertionError(f"no values of {hint!r} are known")


def through_a_file(value: object) -> object:
    return unpack(msgspec.json.decode(msgspec.json.encode(pack(value))))


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_events(event: type[ev.Event]) -> None:
    @settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
    @given(values(event))
    def check(value: ev.Event) -> None:
        assert through_a_file((value,)) == (value,)
        assert type(through_a_file(value)) is event

    check()


@pytest.mark.parametrize("effect", EFFECTS, ids=lambda effect: effect.__name__)
def test_replies(effect: type[ef.Effect[Any]]) -> None:
    (base,) = effect.__orig_bases__  # type: ignore[attr-defined]
    (reply,) = typing.get_args(base)

    @settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
    @given(values(reply))
    def check(value: object) -> None:
        found = through_a_file(value)
        assert found == value
        assert repr(found) == repr(value)  # 1 and True and an enum of 1 are not the same

    check()


@settings(max_examples=40)
@given(values(Settings))
def test_settings(value: Settings) -> None:
    assert through_a_file(value) == value


def test_secrets_do_not_get_into_it() -> None:
    event = ev.AlterUserScramCredentials(1, {"alice": {"SCRAM-SHA-256": Secret("open sesame")}})
    assert b"sesame" not in msgspec.json.encode(pack(event))
    assert through_a_file(Secret("open sesame")) == Secret()


def test_nothing_else_can_be_made() -> None:
    for name in ("Enum", "Path", "Popen", "Mapping", "Generic"):
        with pytest.raises(LookupError):
            unpack({"c": name, "f": []})


def test_what_has_no_place_in_a_journal_is_refused() -> None:
    with pytest.raises(TypeError, match="no place"):
        pack(object())
