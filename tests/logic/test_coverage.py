"""Which of Kafka's features and events these tests show.

The numbers are the rows of the list of features that the parity table of this project is made of.
A test says which rows it shows with `@pytest.mark.parity(12)`, and which events it is about with
`@pytest.mark.handles("BrokerChange")`.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from kctl.messages import events as ev

TESTS = Path(__file__).parent.parent
FOLDERS = ("logic", "messages", "model")

KAFKAS_EVENTS = [
    *("Startup", "ControllerChange", "Reelect", "RegisterBrokerAndReelect", "Expire"),
    *("ShutdownEventThread", "AutoPreferredReplicaLeaderElection", "ReplicaLeaderElection"),
    *("UncleanLeaderElectionEnable", "TopicUncleanLeaderElectionEnable", "ControlledShutdown"),
    *("LeaderAndIsrResponseReceived", "UpdateMetadataResponseReceived"),
    *("TopicDeletionStopReplicaResponseReceived", "BrokerChange", "BrokerModifications"),
    *("TopicChange", "PartitionModifications", "TopicDeletion", "LogDirEventNotification"),
    *("ZkPartitionReassignment", "ApiPartitionReassignment", "PartitionReassignmentIsrChange"),
    *("ListPartitionReassignments", "IsrChangeNotification", "AlterPartitionReceived"),
    *("UpdateFeatures", "AllocateProducerIds"),
]
"""The 28 event classes of Kafka's controller."""

FEATURES = {
    1: "single active controller",
    2: "epoch +1 for each election",
    3: "lost reply of a won election",
    4: "re-election when /controller is deleted",
    5: "resignation when another id appears",
    6: "session expiry",
    7: "writes fenced by the epoch",
    8: "newer stored controller epoch",
    9: "full load at failover",
    10: "live brokers before any LeaderAndIsr",
    11: "broker added",
    12: "broker death",
    13: "fast bounce",
    14: "endpoint change",
    15: "broker epoch in requests",
    16: "topic creation",
    17: "creation with some replicas down",
    18: "creation with all replicas down",
    19: "partition expansion",
    20: "expansion undone while deleting",
    21: "topic ids created",
    22: "topic ids kept",
    23: "topic deletion",
    24: "deletion paused by a dead replica",
    25: "deletion paused by reassignment",
    26: "deletion retried after an error",
    27: "deletion resumed at failover",
    28: "delete.topic.enable=false",
    29: "leader -2 and epoch -2 during deletion",
    30: "offline election in assignment order",
    31: "unclean election by config",
    32: "unclean election switched on later",
    33: "leader recovery state",
    34: "ElectLeaders preferred",
    35: "ElectLeaders unclean",
    36: "preferred election by znode",
    37: "automatic balance",
    38: "controlled shutdown",
    39: "controlled shutdown refused",
    40: "reassignment by API",
    41: "reassignment cancelled",
    42: "reassignment overridden",
    43: "reassignment by znode",
    44: "reassignment resumed",
    45: "reassignment validation",
    46: "list reassignments",
    47: "removed replicas deleted",
    48: "AlterPartition",
    49: "AlterPartition errors and idempotence",
    50: "leaving broker kept out of the ISR",
    51: "ISR notifications",
    52: "mixed cluster reassignment",
    53: "log dir failure",
    54: "offline replicas in metadata",
    55: "CreateTopics validation",
    56: "rack-aware placement",
    57: "DeleteTopics",
    58: "CreatePartitions",
    60: "AllocateProducerIds",
    61: "features",
    62: "NOT_CONTROLLER while passive",
    66: "preemption answers",
    72: "controller listed, never a replica",
    73: "auto-created assignments repaired",
    74: "take-over",
    75: "hand-back",
}
"""Those that can be shown without a network; the others are shown with servers and brokers."""


@cache
def marks(name: str) -> Mapping[object, tuple[str, ...]]:
    """What tests name with this mark, and the tests that do."""
    found: dict[object, tuple[str, ...]] = {}
    for folder in FOLDERS:
        for path in sorted((TESTS / folder).glob("test_*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    for value in values(node, name):
                        found[value] = (*found.get(value, ()), f"{path.name}::{node.name}")
    return found


def values(test: ast.FunctionDef, name: str) -> Iterator[object]:
    for decorator in test.decorator_list:
        if (
            isinstance(decorator, ast.Call)
            and isinstance(decorator.func, ast.Attribute)
            and decorator.func.attr == name
        ):
            for value in decorator.args:
                assert isinstance(value, ast.Constant)
                yield value.value


def test_all_28_events_are_handled_in_a_test_that_names_them() -> None:
    assert len(KAFKAS_EVENTS) == 28
    assert all(issubclass(getattr(ev, name), ev.Event) for name in KAFKAS_EVENTS)
    assert set(marks("handles")) == set(KAFKAS_EVENTS)


@pytest.mark.parametrize("row", FEATURES, ids=lambda row: f"{row}-{FEATURES[row]}")
def test_every_feature_that_needs_no_network_is_shown(row: int) -> None:
    assert marks("parity").get(row)


def test_no_test_claims_a_feature_that_is_not_listed() -> None:
    assert set(marks("parity")) <= set(FEATURES)
