"""What ZooKeeper held at each zxid, folded from the journal of committed transactions.

It reads the JSON by itself: the checkers share no code with what they check. Content that cannot be
read is `None` here, and nothing is claimed about it.
"""

import json
import re
from typing import Any

import attrs

from kctl.model.names import BrokerId, TopicPartition
from kctl.simulation.zookeeper_tree import Change, Transaction

STATE = re.compile(r"^/brokers/topics/([^/]+)/partitions/(\d+)/state$")
TOPIC = re.compile(r"^/brokers/topics/([^/]+)$")
BROKER = re.compile(r"^/brokers/ids/(\d+)$")
MARKER = re.compile(r"^/admin/delete_topics/([^/]+)$")
CONFIG = re.compile(r"^/config/topics/([^/]+)$")
CONTROLLER_IDS_FROM = 1_000
"""Controllers register among the brokers too, where old brokers look for them."""
UNCLEAN = "unclean.leader.election.enable"


@attrs.frozen
class State:
    leader: int
    isr: tuple[int, ...]
    leader_epoch: int
    controller_epoch: int
    version: int
    recovering: bool


@attrs.frozen
class Assigned:
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(b for b in self.replicas if b not in self.removing)


@attrs.frozen
class TopicRecord:
    born: int
    """The zxid of its creation: another one under this name is another topic."""
    id: str | None
    version: int
    partitions: dict[int, Assigned] | None
    """None: not to be understood."""


def parse_state(data: bytes, version: int) -> State | None:
    try:
        found: Any = json.loads(data)
        numbers = (found["leader"], found["leader_epoch"], found["controller_epoch"], *found["isr"])
        if not all(type(n) is int for n in numbers) or type(found["isr"]) is not list:
            return None
        return State(
            found["leader"],
            tuple(found["isr"]),
            found["leader_epoch"],
            found["controller_epoch"],
            version,
            found.get("leader_recovery_state", 0) == 1,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def parse_partitions(data: bytes) -> tuple[str | None, dict[int, Assigned] | None]:
    try:
        found: Any = json.loads(data)
        adding, removing = found.get("adding_replicas", {}), found.get("removing_replicas", {})
        partitions = {
            int(p): Assigned(
                tuple(map(int, replicas)), tuple(adding.get(p, ())), tuple(removing.get(p, ()))
            )
            for p, replicas in found["partitions"].items()
        }
        return found.get("topic_id"), partitions
    except (ValueError, KeyError, TypeError, AttributeError):
        return None, None


def parse_reassignments(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    try:
        found: Any = json.loads(data)
        return {
            TopicPartition(entry["topic"], entry["partition"]): tuple(entry["replicas"])
            for entry in found["partitions"]
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def is_unclean(data: bytes) -> bool:
    try:
        found: Any = json.loads(data)
        return bool(found["config"].get(UNCLEAN) == "true")
    except (ValueError, KeyError, TypeError, AttributeError):
        return False


class Ledger:
    def __init__(self) -> None:
        self.zxid = 0
        self.topics: dict[str, TopicRecord] = {}
        self.states: dict[TopicPartition, State | None] = {}
        self.brokers: dict[BrokerId, int] = {}
        """Broker epochs by id."""
        self.registered: dict[BrokerId, int] = {}
        """The zxid from which on it is registered without a gap."""
        self.last_seen: dict[BrokerId, int] = {}
        """The last zxid at which it was registered, for those that are gone."""
        self.marked: dict[str, None] = {}
        self.unclean: dict[str, None] = {}
        self.unclean_default = False
        self.reassignments: dict[TopicPartition, tuple[int, ...]] = {}
        """What the last transaction wrote into `/admin/reassign_partitions`."""
        self.controller: int = 0
        """The session that owns `/controller`."""
        self.epoch = 0
        self.epoch_version = -1
        self.claimant: int = 0
        """The session that made the current epoch."""

    def apply(self, transaction: Transaction) -> None:
        self.zxid = transaction.zxid
        self.reassignments = {}
        for change in transaction.changes:
            self._apply(transaction, change)

    def _apply(self, transaction: Transaction, change: Change) -> None:
        path, gone = change.path, change.kind == "delete"
        if change.kind == "check":
            return
        if found := STATE.match(path):
            tp = TopicPartition(found[1], int(found[2]))
            if gone:
                self.states.pop(tp, None)
            else:
                self.states[tp] = parse_state(change.data or b"", change.version)
        elif found := TOPIC.match(path):
            self._topic(found[1], change)
        elif (found := BROKER.match(path)) and int(found[1]) < CONTROLLER_IDS_FROM:
            self._broker(int(found[1]), change)
        elif found := MARKER.match(path):
            self._set(self.marked, found[1], here=not gone)
        elif found := CONFIG.match(path):
            self._set(self.unclean, found[1], here=not gone and is_unclean(change.data or b""))
        elif path == "/admin/reassign_partitions" and not gone:
            self.reassignments = parse_reassignments(change.data or b"")
        elif path == "/config/brokers/<default>":
            self.unclean_default = not gone and is_unclean(change.data or b"")
        elif path == "/controller":
            self.controller = 0 if gone else change.owner
        elif path == "/controller_epoch" and not gone:
            self.epoch = int(change.data or b"0")
            self.epoch_version = change.version
            self.claimant = transaction.session

    def _topic(self, topic: str, change: Change) -> None:
        if change.kind == "delete":
            self.topics.pop(topic, None)
            return
        known = self.topics.get(topic)
        born = self.zxid if change.kind == "create" or known is None else known.born
        topic_id, partitions = parse_partitions(change.data or b"")
        self.topics[topic] = TopicRecord(born, topic_id, change.version, partitions)

    def _broker(self, broker: BrokerId, change: Change) -> None:
        if change.kind == "delete":
            self.brokers.pop(broker, None)
            self.registered.pop(broker, None)
            self.last_seen[broker] = self.zxid - 1
        elif change.kind == "create":
            self.brokers[broker] = self.registered[broker] = self.zxid

    @staticmethod
    def _set(group: dict[str, None], name: str, *, here: bool) -> None:
        if here:
            group[name] = None
        else:
            group.pop(name, None)

    # -- questions ------------------------------------------------------------------------------

    def assigned(self, tp: TopicPartition) -> Assigned | None:
        topic = self.topics.get(tp.topic)
        if topic is None or topic.partitions is None:
            return None
        return topic.partitions.get(tp.partition)

    def born(self, topic: str) -> int:
        record = self.topics.get(topic)
        return 0 if record is None else record.born

    def was_live_since(self, broker: BrokerId, zxid: int) -> bool:
        """Registered at this zxid or at a later one."""
        return broker in self.brokers or self.last_seen.get(broker, -1) >= zxid

    def lives_since(self, broker: BrokerId, zxid: int) -> bool:
        """Registered without a gap from that zxid until now."""
        return broker in self.registered and self.registered[broker] <= zxid
