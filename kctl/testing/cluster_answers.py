"""What a controller answers to a test: nothing, or why it refuses."""

from collections.abc import Iterable

from kctl.messages.answers import AnswerValue, ApiError, PartitionErrors, Refused, TopicResults
from kctl.model.codes import KafkaError


class RequestRefused(Exception):
    """The controller refused a request; `error` is Kafka's code."""

    def __init__(self, what: str, error: ApiError) -> None:
        super().__init__(
            f"{what}: {error.code.name}{f' ({error.message})' if error.message else ''}"
        )
        self.error = error.code


def expect_done(answer: AnswerValue, what: str, but: tuple[KafkaError, ...] = ()) -> None:
    errors: Iterable[ApiError]
    match answer:
        case TopicResults(topics=topics):
            errors = [topic.error for topic in topics]
        case PartitionErrors(errors=by_partition):
            errors = list(by_partition.values())
        case Refused(error=error):
            errors = [error]
        case _:
            raise TypeError(f"{what}: {answer!r}")
    for error in errors:
        if error.code not in (KafkaError.NONE, *but):
            raise RequestRefused(what, error)
