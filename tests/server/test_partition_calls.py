"""AlterPartitionReassignments, ListPartitionReassignments, ElectLeaders; features and users."""

import base64
import hashlib

import pytest

from kctl.model.codes import KafkaError
from kctl.model.names import TopicPartition
from kctl.model.secrets import Secret
from kctl.wire.admin import (
    AlterPartitionReassignmentsRequest,
    AlterUserScramCredentialsRequest,
    ElectLeadersRequest,
    FeatureUpdateKey,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    ReassignablePartition,
    ReassignableTopic,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    TopicPartitions,
    UpdateFeaturesRequest,
)
from tests.server.office import office

pytestmark = pytest.mark.asyncio

ELECT_VERSIONS = pytest.mark.parametrize("version", range(3))


def reassign(**targets: tuple[int, ...] | None) -> AlterPartitionReassignmentsRequest:
    """`t_0=(1, 2)`."""
    topics = []
    for name, replicas in targets.items():
        topic, _, partition = name.rpartition("_")
        topics.append(ReassignableTopic(topic, (ReassignablePartition(int(partition), replicas),)))
    return AlterPartitionReassignmentsRequest(5_000, tuple(topics))


def errors(answer: object) -> dict[str, int]:
    responses = answer.responses  # type: ignore[attr-defined]
    return {f"{t.name}-{p.partition_index}": p.error_code for t in responses for p in t.partitions}


# -- reassignments ---------------------------------------------------------------------------


async def test_a_reassignment_from_start_to_end() -> None:
    async with office("t-0: 1*,2", "t-1: 1*,2", others=(3,)) as one:
        answer = await one.ask(reassign(t_0=(3, 2)), 0)
        assert (answer.error_code, errors(answer)) == (0, {"t-0": 0})
        listed = await one.ask(ListPartitionReassignmentsRequest(5_000, None), 0)
        (topic,) = listed.topics
        assert topic.name == "t"
        assert topic.partitions == (OngoingPartitionReassignment(0, (3, 2, 1), (3,), (1,)),)
        some = ListPartitionReassignmentsTopics("t", (1, 7))
        assert (await one.ask(ListPartitionReassignmentsRequest(5_000, (some,)), 0)).topics == ()
        one.world.settle()
        assert one.world["t-0"].startswith("3*,2 isr=")
        assert (await one.ask(ListPartitionReassignmentsRequest(5_000, None), 0)).topics == ()


async def test_a_reassignment_is_cancelled() -> None:
    async with office("t-0: 1*,2", others=(3,)) as one:
        await one.ask(reassign(t_0=(3, 2)), 0)
        assert errors(await one.ask(reassign(t_0=None), 0)) == {"t-0": 0}
        assert one.world["t-0"].startswith("2,1* isr=1,2")  # as in Kafka, the order is lost
        again = await one.ask(reassign(t_0=None), 0)
        assert errors(again) == {"t-0": KafkaError.NO_REASSIGNMENT_IN_PROGRESS}


async def test_reassignments_that_make_no_sense() -> None:
    async with office("t-0: 1*,2", others=(3,)) as one:
        before = dict(one.world.zk.topics)
        answer = await one.ask(
            reassign(t_0=(1000,), t_1=(1, 2), u_0=(1,), v_0=None, t_2=(-1,), t_3=()), 0
        )
        assert errors(answer)["t-0"] == KafkaError.INVALID_REPLICA_ASSIGNMENT
        assert all(code != 0 for code in errors(answer).values())
        assert one.world.zk.topics == before


async def test_reassignments_at_a_standby() -> None:
    async with office("t-0: 1*,2", elected=False) as one:
        for request in (reassign(t_0=(2, 1)), ListPartitionReassignmentsRequest(5_000, None)):
            assert (await one.ask(request, 0)).error_code == KafkaError.NOT_CONTROLLER


# -- elections -------------------------------------------------------------------------------


def elect(
    *partitions: tuple[str, int], unclean: bool = False, timeout_ms: int = 5_000
) -> ElectLeadersRequest:
    topics = tuple(TopicPartitions(topic, (partition,)) for topic, partition in partitions)
    return ElectLeadersRequest(int(unclean), topics or None, timeout_ms)


def elected(answer: object) -> dict[str, int]:
    results = answer.replica_election_results  # type: ignore[attr-defined]
    return {
        f"{t.topic}-{p.partition_id}": p.error_code for t in results for p in t.partition_result
    }


@ELECT_VERSIONS
async def test_preferred_leaders(version: int) -> None:
    async with office("t-0: 1,2*", "t-1: 1*,2", "u-0: 1,2* isr=2") as one:
        answer = await one.ask(elect(("t", 0), ("t", 1), ("u", 0), ("u", 9)), version)
        assert elected(answer) == {
            "t-0": 0,
            "t-1": KafkaError.ELECTION_NOT_NEEDED,
            "u-0": KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
            "u-9": KafkaError.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert one.world["t-0"] == "1*,2 isr=1,2 epoch=1"
        assert one.told.asked == [(TopicPartition("t", 0),)]


@ELECT_VERSIONS
async def test_all_of_them(version: int) -> None:
    async with office("t-0: 1,2*", "t-1: 1*,2") as one:
        answer = await one.ask(elect(), version)
        assert elected(answer) == {"t-0": 0}


@pytest.mark.parametrize("version", [1, 2])
async def test_unclean_elections(version: int) -> None:
    async with office("t-0: 1*,2 isr=1") as one:
        one.world.kill(1)
        answer = await one.ask(elect(("t", 0), unclean=True), version)
        assert elected(answer) == {"t-0": 0}
        assert one.world["t-0"].startswith("1,2* isr=2")


@pytest.mark.parametrize("version", [1, 2])
async def test_an_election_of_no_known_kind(version: int) -> None:
    async with office("t-0: 1,2*") as one:
        request = ElectLeadersRequest(5, (TopicPartitions("t", (0,)),), 5_000)
        answer = await one.ask(request, version)
        assert answer.error_code == KafkaError.INVALID_REQUEST
        assert one.events == []


@ELECT_VERSIONS
async def test_an_election_that_the_brokers_do_not_hear_of_in_time(version: int) -> None:
    async with office("t-0: 1,2*", "t-1: 1*,2") as one:
        one.told.holding = True
        answer = await one.ask(elect(("t", 0), ("t", 1), timeout_ms=20), version)
        assert elected(answer) == {
            "t-0": KafkaError.REQUEST_TIMED_OUT,
            "t-1": KafkaError.ELECTION_NOT_NEEDED,
        }
        assert one.world["t-0"] == "1*,2 isr=1,2 epoch=1"


@ELECT_VERSIONS
async def test_elections_at_a_standby(version: int) -> None:
    async with office("t-0: 1,2*", elected=False) as one:
        assert elected(await one.ask(elect(("t", 0)), version)) == {
            "t-0": KafkaError.NOT_CONTROLLER
        }
        everything = await one.ask(elect(), version)
        assert elected(everything) == {}
        if version >= 1:
            assert everything.error_code == KafkaError.NOT_CONTROLLER


# -- features --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
async def test_features_are_refused_one_by_one(version: int) -> None:
    async with office(others=(1,)) as one:
        keys = (FeatureUpdateKey("metadata.version", 19), FeatureUpdateKey("", 1))
        answer = await one.ask(UpdateFeaturesRequest(5_000, keys), version)
        assert answer.error_code == 0
        assert [(r.feature, r.error_code) for r in answer.results] == [
            ("metadata.version", KafkaError.INVALID_REQUEST),
            ("", KafkaError.INVALID_REQUEST),
        ]


@pytest.mark.parametrize("version", [0, 1])
async def test_features_at_a_standby(version: int) -> None:
    async with office(others=(1,), elected=False) as one:
        answer = await one.ask(UpdateFeaturesRequest(5_000, (FeatureUpdateKey("f", 1),)), version)
        assert answer.error_code == KafkaError.NOT_CONTROLLER


# -- users -----------------------------------------------------------------------------------


async def test_users_are_written_for_the_brokers() -> None:
    """The credential of alice is that of RFC 7677's example, as its salted password gives it."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    alice = ScramCredentialUpsertion("alice", 1, 4096, salt, salted)
    async with office(others=(1,)) as one:
        one.world.zk.users["frank"] = {"SCRAM-SHA-256": Secret("x"), "SCRAM-SHA-512": Secret("y")}
        request = AlterUserScramCredentialsRequest(
            (
                ScramCredentialDeletion("bob", 2),
                ScramCredentialDeletion("carol", 9),
                ScramCredentialDeletion("frank", 2),
            ),
            (
                alice,
                ScramCredentialUpsertion("dave", 1, 4095, b"salt", b"hashed"),
                ScramCredentialUpsertion("", 1, 8192, b"salt", b"hashed"),
                ScramCredentialUpsertion("erin", 1, 8192, b"salt", b"hashed"),
                ScramCredentialUpsertion("erin", 1, 8192, b"salt", b"other"),
            ),
        )
        answer = await one.ask(request, 0)
        assert {r.user: r.error_code for r in answer.results} == {
            "bob": KafkaError.RESOURCE_NOT_FOUND,
            "carol": KafkaError.UNSUPPORTED_SASL_MECHANISM,
            "frank": 0,
            "alice": 0,
            "dave": KafkaError.UNACCEPTABLE_CREDENTIAL,
            "": KafkaError.UNACCEPTABLE_CREDENTIAL,
            "erin": KafkaError.DUPLICATE_RESOURCE,
        }
        assert one.world.zk.users == {
            "frank": {"SCRAM-SHA-256": Secret("x")},
            "alice": {
                "SCRAM-SHA-256": Secret(
                    "salt=W22ZaJ0SNY7soEsUEjb6gQ==,"
                    "stored_key=WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=,"
                    "server_key=wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=,"
                    "iterations=4096"
                )
            },
        }


@pytest.mark.parametrize("user", ["alice", ""])
async def test_users_at_a_standby(user: str) -> None:
    upsertion = ScramCredentialUpsertion(user, 1, 8192, b"salt", b"hashed")
    async with office(others=(1,), elected=False) as one:
        answer = await one.ask(AlterUserScramCredentialsRequest((), (upsertion,)), 0)
        assert [(r.user, r.error_code) for r in answer.results] == [
            (user, KafkaError.NOT_CONTROLLER)
        ]
