"""Topics as a test asks for them."""

from collections.abc import Mapping, Sequence

from kctl.messages.events import NewTopic

TopicShape = int | Mapping[int, Sequence[int]]
"""A number of partitions; or the replicas of each, the preferred leader first."""


def new_topic(
    name: str, shape: TopicShape, factor: int, configs: Mapping[str, str] | None = None
) -> NewTopic:
    given = dict(configs or {})
    if isinstance(shape, int):
        return NewTopic(name, shape, factor, configs=given)
    assignments = {partition: tuple(replicas) for partition, replicas in shape.items()}
    return NewTopic(name, assignments=assignments, configs=given)
