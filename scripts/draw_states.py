"""Draw docs/states.md from the transition tables.

    .venv/bin/python -m scripts.draw_states

The page is committed; a test compares it with what this prints.
"""

from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from typing import TypeVar

from kctl.model.states import (
    PARTITION_CAME_FROM,
    REPLICA_CAME_FROM,
    PartitionState,
    ReplicaState,
)

PAGE = Path(__file__).parent.parent / "docs" / "states.md"

S = TypeVar("S", bound=IntEnum)

PARTITION_MEANS = {
    PartitionState.NEW: "known, but without leadership: no replica has been alive yet",
    PartitionState.ONLINE: "has a leader; entered by initialisation or by an election",
    PartitionState.OFFLINE: "its leader is gone and nobody could be elected yet",
    PartitionState.NON_EXISTENT: "before creation, and while its topic is being deleted",
}
REPLICA_MEANS = {
    ReplicaState.NEW: "assigned; told to start with isNew, so that the log may be created",
    ReplicaState.ONLINE: "its broker is alive and was told the leadership",
    ReplicaState.OFFLINE: "its broker or log dir is gone; it left the ISR unless it was the last",
    ReplicaState.DELETION_STARTED: "told to delete (StopReplica), not answered yet",
    ReplicaState.DELETION_SUCCESSFUL: "answered that it is deleted",
    ReplicaState.DELETION_INELIGIBLE: "cannot be deleted now; the topic waits",
    ReplicaState.NON_EXISTENT: "before assignment, and after it left the assignment",
}

INTRODUCTION = """\
# The state machines

Drawn from the tables in `kctl/model/states.py` by `scripts/draw_states.py`; do not edit it by hand.
`ClusterState.put` refuses every change that is not drawn here. An arrow from a state to itself means
that it may be entered again, for instance Online by another election.
"""


def name(state: IntEnum) -> str:
    return "".join(part.capitalize() for part in state.name.split("_"))


def diagram(came_from: Mapping[S, frozenset[S]], first: S) -> list[str]:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {name(first)}"]
    lines += [
        f"    {name(before)} --> {name(state)}"
        for state in sorted(came_from)
        for before in sorted(came_from[state])
    ]
    return [*lines, "```"]


def table(came_from: Mapping[S, frozenset[S]], means: Mapping[S, str]) -> list[str]:
    lines = ["| state | number in Kafka | meaning | entered from |", "|---|---|---|---|"]
    lines += [
        f"| {name(state)} | {state.value} | {means[state]} "
        f"| {', '.join(map(name, sorted(came_from[state])))} |"
        for state in sorted(came_from)
    ]
    return lines


def page() -> str:
    lines = [
        INTRODUCTION,
        "## Partitions",
        "",
        *diagram(PARTITION_CAME_FROM, PartitionState.NON_EXISTENT),
        "",
        *table(PARTITION_CAME_FROM, PARTITION_MEANS),
        "",
        "## Replicas",
        "",
        *diagram(REPLICA_CAME_FROM, ReplicaState.NON_EXISTENT),
        "",
        *table(REPLICA_CAME_FROM, REPLICA_MEANS),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(PAGE.parent.parent)}")
