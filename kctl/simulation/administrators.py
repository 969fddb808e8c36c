"""People and tools: topics made, grown, moved, deleted, elections, configs; by request and by znode."""

import json
from collections.abc import Callable

from kctl.messages import events as ev
from kctl.messages.answers import AnswerValue
from kctl.model.names import BrokerId, TopicPartition, topic_id_from_bits
from kctl.model.rows import Replicas
from kctl.model.settings import TOPIC_IDS_SINCE
from kctl.simulation.controllers import ControllerHost
from kctl.simulation.ledger import UNCLEAN, Ledger, TopicRecord
from kctl.simulation.surroundings import Surroundings
from kctl.zookeeper.multi import Create, Delete, SetData
from kctl.zookeeper.wire import CreateMode

REQUEST_TIMEOUT_MS = 15_000
TOPICS_MAX = 6
PARTITIONS_MAX = 5


def ignore(_: AnswerValue | None) -> None:
    """Nobody waits for this answer; the checkers look at it."""


class Administrators:
    def __init__(self, world: Surroundings) -> None:
        self.world = world
        self.chance = world.chance
        self.session = world.ensemble.open("admin")
        self._made = 0
        self._deeds: list[tuple[int, Callable[[], None]]] = [
            (3, self.create_by_request),
            (2, self.create_by_znode),
            (2, self.grow_by_request),
            (1, self.grow_by_znode),
            (2, self.delete_by_request),
            (1, self.delete_by_znode),
            (4, self.reassign_by_request),
            (2, self.cancel_reassignment),
            (2, self.reassign_by_znode),
            (2, self.elect_by_request),
            (1, self.elect_by_znode),
            (2, self.flip_topic_config),
            (1, self.flip_default_config),
            (1, self.ask_small_things),
        ]

    @property
    def ledger(self) -> Ledger:
        return self.world.safety.ledger

    def act(self) -> None:
        weights = [weight for weight, _ in self._deeds]
        deed = self.chance.choices(self._deeds, weights)[0][1]
        self.world.note("admin", deed.__name__)
        deed()

    # -- choosing -------------------------------------------------------------------------------

    def ask(self, make: Callable[[ev.Caller], ev.Event]) -> None:
        hosts = list(self.world.controllers.values())
        active = [host for host in hosts if host.active]
        host: ControllerHost
        host = self.chance.choice(active if active and self.chance.random() < 0.9 else hosts)
        delay = self.chance.randint(0, 10)
        self.world.callers.ask(host, make, ignore, delay, REQUEST_TIMEOUT_MS)

    def some_topic(self) -> tuple[str, TopicRecord] | None:
        usable = [
            (name, record)
            for name, record in self.ledger.topics.items()
            if record.partitions and name not in self.ledger.marked
        ]
        return self.chance.choice(usable) if usable else None

    def some_partitions(self, count: int) -> list[TopicPartition]:
        tps = [
            TopicPartition(name, p)
            for name, record in self.ledger.topics.items()
            for p in record.partitions or ()
            if name not in self.ledger.marked
        ]
        return self.chance.sample(tps, min(len(tps), count))

    def some_replicas(self, size: int) -> Replicas:
        brokers = list(self.world.brokers)
        return tuple(self.chance.sample(brokers, min(size, len(brokers))))

    def new_name(self) -> str:
        """A new one, or one that existed before: a topic created again is another topic."""
        by_hand = self.world.removed_by_hand
        gone = [t for t in self.world.safety.removed if t not in self.ledger.topics]
        removed = sorted(t for t in gone if t not in by_hand)
        if removed and self.chance.random() < 0.4:
            return self.chance.choice(removed)
        self._made += 1
        return f"t{self._made}"

    def put(self, path: str, content: object) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        ensemble = self.world.ensemble
        if ensemble.try_commit(self.session, Create(path, data)) is None:
            ensemble.try_commit(self.session, SetData(path, data))

    # -- topics ---------------------------------------------------------------------------------

    def create_by_request(self) -> None:
        if len(self.ledger.topics) >= TOPICS_MAX:
            return
        name = self.new_name()
        count, factor = self.chance.randint(1, 4), min(3, len(self.world.brokers))
        configs = {UNCLEAN: "true"} if self.chance.random() < 0.1 else {}
        topic = ev.NewTopic(name, count, factor, None, configs)
        if self.chance.random() < 0.3:
            assignments = {p: self.some_replicas(self.chance.choice((2, 3))) for p in range(count)}
            size = min(map(len, assignments.values()))
            assignments = {p: replicas[:size] for p, replicas in assignments.items()}
            topic = ev.NewTopic(name, assignments=assignments, configs=configs)
        self.ask(lambda caller: ev.CreateTopics(caller, (topic,)))

    def create_by_znode(self) -> None:
        """As brokers do for topics that are missing: they take the controller for a broker."""
        if len(self.ledger.topics) >= TOPICS_MAX:
            return
        name = self.new_name()
        size = self.chance.choice((2, 3))
        partitions = {str(p): list(self.some_replicas(size)) for p in range(3)}
        if self.chance.random() < 0.2:
            partitions["0"][-1] = self.chance.choice(list(self.world.controllers))
        body: dict[str, object] = {"version": 1, "partitions": partitions}
        releases = [broker.release for broker in self.world.brokers.values()]
        topic_id = topic_id_from_bits(self.chance.getrandbits(128))
        if min(releases) >= TOPIC_IDS_SINCE and topic_id and self.chance.random() < 0.7:
            body = {"version": 3, "topic_id": topic_id, "partitions": partitions}
        config = json.dumps({"version": 1, "config": {}}).encode()
        self.world.ensemble.try_commit(self.session, Create(f"/config/topics/{name}", config))
        self.world.ensemble.try_commit(
            self.session, Create(f"/brokers/topics/{name}", json.dumps(body).encode())
        )

    def grow_by_request(self) -> None:
        found = self.some_topic()
        if found is not None and found[1].partitions:
            name, count = found[0], len(found[1].partitions) + 1
            if count <= PARTITIONS_MAX:
                self.ask(
                    lambda caller: ev.CreatePartitions(caller, (ev.NewPartitions(name, count),))
                )

    def grow_by_znode(self) -> None:
        """As old tools do: the whole znode is written anew, by some without the topic's id."""
        found = self.some_topic()
        if found is None or not found[1].partitions:
            return
        name, record = found
        partitions = record.partitions or {}
        if len(partitions) >= PARTITIONS_MAX or any(
            a.adding or a.removing for a in partitions.values()
        ):
            return
        size = len(partitions[min(partitions)].replicas)
        body: dict[str, object] = {
            "version": 2,
            "partitions": {
                **{str(p): list(a.replicas) for p, a in partitions.items()},
                str(max(partitions) + 1): list(self.some_replicas(size)),
            },
            "adding_replicas": {},
            "removing_replicas": {},
        }
        if record.id is not None and self.chance.random() < 0.7:
            body |= {"version": 3, "topic_id": record.id}
        data = json.dumps(body).encode()
        self.world.ensemble.try_commit(
            self.session, SetData(f"/brokers/topics/{name}", data, record.version)
        )

    def delete_by_request(self) -> None:
        found = self.some_topic()
        if found is not None:
            name, record = found
            topic: tuple[str | None, str | None] = (name, None)
            if record.id is not None and self.chance.random() < 0.5:
                topic = (None, record.id)
            self.ask(lambda caller: ev.DeleteTopics(caller, (topic,)))

    def delete_by_znode(self) -> None:
        found = self.some_topic()
        name = "never-existed" if found is None or self.chance.random() < 0.1 else found[0]
        self.world.ensemble.try_commit(self.session, Create(f"/admin/delete_topics/{name}"))

    def remove_by_hand(self) -> None:
        """Behind the controller's back: the topic's znodes, without a marker."""
        found = self.some_topic()
        if found is not None:
            name = found[0]
            self.world.mishap("topic removed by hand", name, name)
            self.world.removed_by_hand[name] = None
            paths = list(self.world.ensemble.tree.below(f"/brokers/topics/{name}"))
            for path in paths:
                self.world.ensemble.try_commit(self.session, Delete(path))
            self.world.ensemble.try_commit(self.session, Delete(f"/config/topics/{name}"))

    # -- reassignments --------------------------------------------------------------------------

    def targets(self) -> dict[TopicPartition, Replicas | None]:
        return {
            tp: self.some_replicas(self.chance.choice((2, 3, 3)))
            for tp in self.some_partitions(self.chance.randint(1, 3))
        }

    def reassign_by_request(self) -> None:
        targets = self.targets()
        if targets:
            self.ask(lambda caller: ev.ApiPartitionReassignment(caller, targets))

    def cancel_reassignment(self) -> None:
        running = [
            TopicPartition(name, p)
            for name, record in self.ledger.topics.items()
            for p, assigned in (record.partitions or {}).items()
            if assigned.adding or assigned.removing
        ]
        if running:
            tp = self.chance.choice(running)
            self.ask(lambda caller: ev.ApiPartitionReassignment(caller, {tp: None}))

    def reassign_by_znode(self) -> None:
        entries: list[dict[str, object]] = [
            {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas or ())}
            for tp, replicas in self.targets().items()
        ]
        if not entries:
            return
        if self.chance.random() < 0.1:
            entries.append({"topic": "never-existed", "partition": 0, "replicas": [1, 2]})
        data = json.dumps({"version": 1, "partitions": entries}).encode()
        self.world.ensemble.try_commit(self.session, Create("/admin/reassign_partitions", data))

    # -- elections and configs ------------------------------------------------------------------

    def elect_by_request(self) -> None:
        unclean = self.chance.random() < 0.25
        kind = ev.ElectionType.UNCLEAN if unclean else ev.ElectionType.PREFERRED
        tps: tuple[TopicPartition, ...] | None = tuple(self.some_partitions(3))
        if self.chance.random() < 0.2:
            tps = None
        self.ask(
            lambda caller: ev.ReplicaLeaderElection(
                caller, tps, kind, ev.ElectionTrigger.ADMIN_CLIENT
            )
        )

    def elect_by_znode(self) -> None:
        entries = [{"topic": tp.topic, "partition": tp.partition} for tp in self.some_partitions(3)]
        data = json.dumps({"version": 1, "partitions": entries}).encode()
        self.world.ensemble.try_commit(
            self.session, Create("/admin/preferred_replica_election", data)
        )

    def flip_topic_config(self) -> None:
        found = self.some_topic()
        if found is None:
            return
        name = found[0]
        on = name not in self.ledger.unclean and self.chance.random() < 0.5
        config = {UNCLEAN: "true"} if on else {}
        self.put(f"/config/topics/{name}", {"version": 1, "config": config})
        self._announce(f"topics/{name}")

    def flip_default_config(self) -> None:
        on = not self.ledger.unclean_default and self.chance.random() < 0.3
        self.set_default_unclean(on=on)

    def set_default_unclean(self, *, on: bool) -> None:
        config = {UNCLEAN: "true" if on else "false"}
        self.put("/config/brokers/<default>", {"version": 1, "config": config})
        self._announce("brokers/<default>")

    def _announce(self, entity: str) -> None:
        data = json.dumps({"version": 2, "entity_path": entity}).encode()
        path = "/config/changes/config_change_"
        self.world.ensemble.try_commit(
            self.session, Create(path, data, CreateMode.PERSISTENT_SEQUENTIAL)
        )

    def ask_small_things(self) -> None:
        self.ask(lambda caller: ev.ListPartitionReassignments(caller, None))
        self.ask(lambda caller: ev.UpdateFeatures(caller, (ev.FeatureUpdate("f", 1),)))
        broker: BrokerId = self.chance.choice(list(self.world.brokers))
        epoch = self.world.brokers[broker].epoch
        self.ask(lambda caller: ev.AllocateProducerIds(caller, broker, epoch))
