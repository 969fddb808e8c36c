"""AlterUserScramCredentials: handed on, one outcome for each user."""

from typing import Any

import attrs
import pytest

from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.messages.answers import UserErrors
from kctl.model.codes import Code, KafkaError, Malformed
from kctl.model.secrets import Secret
from kctl.simulation.memory import MemoryZooKeeper
from tests.logic.world import MakeWorld, World

SHA = "SCRAM-SHA-256"


@attrs.define
class Refusing(MemoryZooKeeper):
    """Answers the first attempts with these, one after the other; UNKNOWN may have landed."""

    replies: list[Code | Malformed] = attrs.field(factory=list)
    lands: bool = False

    def perform(self, effect: ef.Effect[Any]) -> object:
        if isinstance(effect, ef.AlterUsers) and self.replies:
            if self.lands:
                super().perform(effect)
            return dict.fromkeys(effect.users, self.replies.pop(0))
        return super().perform(effect)


def refusing(one: World, *replies: Code | Malformed, lands: bool = False) -> World:
    fields = {a.name: getattr(one.zk, a.name) for a in attrs.fields(MemoryZooKeeper)}
    one.zk = Refusing(**fields, replies=list(replies), lands=lands)
    return one


def code_for(one: World, credential: Secret | None) -> KafkaError:
    answer = one.ask(ev.AlterUserScramCredentials(1, {"alice": {SHA: credential}}))
    assert isinstance(answer, UserErrors)
    return answer.errors["alice"].code


def test_set_replaced_and_removed(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    for value in ("x", "y"):
        assert code_for(one, Secret(value)) is KafkaError.NONE
        assert one.zk.users == {"alice": {SHA: Secret(value)}}
    assert code_for(one, None) is KafkaError.NONE
    assert code_for(one, None) is KafkaError.RESOURCE_NOT_FOUND
    assert one.told("credentials changed") == ["1 users by request"] * 3


@pytest.mark.parametrize(
    "replies, code",
    [
        ([Code.BAD_VERSION, Code.NODE_EXISTS, Code.UNKNOWN], KafkaError.NONE),
        ([Code.BAD_VERSION] * 5, KafkaError.UNKNOWN_SERVER_ERROR),
        ([Code.NO_AUTH], KafkaError.UNKNOWN_SERVER_ERROR),
        ([Malformed("/config/users/alice", "no JSON")], KafkaError.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_others_write_meanwhile(
    world: MakeWorld, replies: list[Code | Malformed], code: KafkaError
) -> None:
    one = refusing(world("t-0: 1*,2"), *replies)
    assert code_for(one, Secret("x")) is code
    assert one.zk.users == ({"alice": {SHA: Secret("x")}} if code is KafkaError.NONE else {})


def test_a_removal_whose_reply_was_lost_is_no_failure(world: MakeWorld) -> None:
    one = world("t-0: 1*,2")
    one.zk.users["alice"] = {SHA: Secret("x")}
    assert code_for(refusing(one, Code.UNKNOWN, lands=True), None) is KafkaError.NONE


def test_a_secret_is_never_shown() -> None:
    event = ev.AlterUserScramCredentials(1, {"alice": {SHA: Secret("open sesame")}})
    assert "sesame" not in f"{event} {event!r} {ef.AlterUsers(event.users)}"
