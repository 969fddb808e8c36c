"""What an exception out of a handler means: one table, and the memory of what failed before.

| raised                     | meaning                                   | then                       |
|----------------------------|-------------------------------------------|----------------------------|
| ControllerMoved            | another controller was elected            | resign quietly, look again |
| SessionLost                | the ZooKeeper session is over             | resign, new session        |
| ControllerIdTaken          | a broker has our id                       | stand down, say so         |
| Unusable                   | a znode that nothing works without is bad | report, try again later    |
| anything else              | a fault of ours                           | report, resign, reload     |
| the same fault for a third | it would only go on like this             | stand down, alarm          |
| time in a row              |                                           |                            |

Standing down means that this node does not campaign any more; a Kafka broker, or another kctl,
takes over from what ZooKeeper holds. There is no row for logging and going on.
"""

import random
import traceback
from enum import Enum

import attrs

from kctl.logic.failover import ControllerIdTaken
from kctl.messages.term import ControllerMoved, SessionLost
from kctl.zookeeper.store import Unusable

SAME_FAULT_MAX = 3
BACKOFF_MIN_MS = 100
BACKOFF_MAX_MS = 30_000


class Verdict(Enum):
    RESIGN = "resign quietly"
    NEW_SESSION = "resign and wait for a new session"
    RELOAD = "report, resign and reload"
    WAIT = "report, and try again until it is repaired"
    STAND_DOWN = "stand down"


@attrs.define
class FaultHistory:
    """Faults in a row; a term that went well for a while ends the row."""

    chance: random.Random
    fingerprint: str = ""
    in_a_row: int = 0
    """Of the same fault."""
    since_healthy: int = 0
    """Of any: two faults in turn must not keep the delay short."""

    def judge(self, error: BaseException) -> Verdict:
        match error:
            case ControllerMoved():
                return Verdict.RESIGN
            case SessionLost():
                return Verdict.NEW_SESSION
            case ControllerIdTaken():
                return Verdict.STAND_DOWN
        self.since_healthy += 1
        if isinstance(error, Unusable):
            return Verdict.WAIT
        seen = fingerprint(error)
        self.in_a_row = self.in_a_row + 1 if seen == self.fingerprint else 1
        self.fingerprint = seen
        return Verdict.STAND_DOWN if self.in_a_row >= SAME_FAULT_MAX else Verdict.RELOAD

    def backoff_ms(self) -> int:
        """Doubles with each fault, and is spread so that several nodes do not march in step."""
        bound = min(BACKOFF_MAX_MS, BACKOFF_MIN_MS << min(self.since_healthy, 16))
        return self.chance.randint(bound // 2, bound)

    def forget(self) -> None:
        self.fingerprint, self.in_a_row, self.since_healthy = "", 0, 0


def fingerprint(error: BaseException) -> str:
    """Kind and place: two faults are the same if they happen at the same line."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "nowhere"
    return f"{type(error).__name__} at {where}"


def traceback_of(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
