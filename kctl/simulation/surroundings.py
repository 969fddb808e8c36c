"""What everybody in the world shares: time, chance, ZooKeeper, the trace, and who else is there."""

from collections import Counter
from random import Random
from typing import TYPE_CHECKING

from kctl.model.names import BrokerId, TopicId
from kctl.simulation.scheduler import Scheduler
from kctl.simulation.trace import Trace
from kctl.simulation.zookeeper_model import Ensemble

if TYPE_CHECKING:
    from kctl.simulation.brokers_model import ModelBroker
    from kctl.simulation.callers import Callers
    from kctl.simulation.controllers import ControllerHost
    from kctl.simulation.safety import Safety


class Surroundings:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = Random(seed)
        self.scheduler = Scheduler()
        self.trace = Trace()
        self.ensemble = Ensemble(self.scheduler, Random(f"{seed} ensemble"))
        self.mishaps: Counter[str] = Counter()
        """Faults by kind."""
        self.faulty = True
        """Mishaps happen; after healing nothing is lost, late or refused any more."""
        self.brokers: dict[BrokerId, ModelBroker] = {}
        self.controllers: dict[BrokerId, ControllerHost] = {}
        self.poison: dict[str, bytes | None] = {}
        """Malformed znodes that were put, and what they held before (None: they were not there)."""
        self.edited: dict[str, None] = {}
        """State znodes that somebody wrote by hand. Nobody watches them, and to a controller that
        comes later a repaired one looks like any other: the leader learns its version only when it
        asks for another ISR."""
        self.healed: dict[str, None] = {}
        """Those that a controller found unusable and, in the same term, repaired."""
        self.removed_by_hand: dict[str, None] = {}
        """Topics that somebody removed behind the controller's back."""
        self.topic_names: dict[TopicId, str] = {}
        """Topic ids as leaders used them in their proposals."""
        self.safety: Safety
        self.callers: Callers

    @property
    def now(self) -> int:
        return self.scheduler.now

    def note(self, who: str, what: str, key: str = "") -> None:
        self.trace.add(self.scheduler.now, who, what, key)

    def mishap(self, kind: str, what: str, key: str = "") -> None:
        self.mishaps[kind] += 1
        self.trace.add(self.scheduler.now, "MISHAP", f"{kind}: {what}", key or "*")

    def unlucky(self, probability: float) -> bool:
        return self.faulty and self.chance.random() < probability

    def is_spoilt(self, topic: str) -> bool:
        """Some znode of the topic cannot be used: nothing is claimed about it until it is repaired."""
        if topic in self.safety.topics.forgotten:
            return True  # brokers refuse another id than the one in their logs
        paths = (f"/brokers/topics/{topic}", f"/config/topics/{topic}")
        return any(p in paths or p.startswith(f"{paths[0]}/") for p in self.poison)
