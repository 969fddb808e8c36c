"""docs/states.md shows the tables as they are."""

from kctl.model.states import PARTITION_CAME_FROM, REPLICA_CAME_FROM, PartitionState, ReplicaState
from scripts.draw_states import PAGE, name, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m scripts.draw_states"


def test_every_state_and_arrow_is_drawn() -> None:
    drawn = page()
    for state in (*PartitionState, *ReplicaState):
        assert f"| {name(state)} |" in drawn
    arrows = sum(len(s) for s in (*PARTITION_CAME_FROM.values(), *REPLICA_CAME_FROM.values()))
    assert drawn.count(" --> ") == arrows + 2
