"""The commands of scenario files: what happens to brokers, topics and znodes, in one line each."""

import inspect
from collections.abc import Callable
from typing import Any

import attrs

from kctl.messages import effects as ef
from kctl.messages import events as ev
from kctl.model.brokers import Broker, Endpoint
from kctl.model.codes import KafkaError, Malformed
from kctl.model.names import TopicPartition
from kctl.model.rows import Assignment, Leadership, Replicas
from tests.scenarios import wording
from tests.scenarios.world import FIRST_CONTROLLER, World

CALLER = 7


def ids(text: str) -> Replicas:
    """`1,2,3`; `none` for none."""
    return () if text == "none" else tuple(map(int, text.split(",")))


def options(words: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    """Plain words, and those of the form name=value."""
    plain = [w for w in words if "=" not in w]
    return plain, dict(w.split("=", 1) for w in words if "=" in w)


def tps(words: list[str] | tuple[str, ...]) -> tuple[TopicPartition, ...]:
    return tuple(map(TopicPartition.parse, words))


class Commands:
    """A method for each command; dashes in a command are underscores here."""

    def __init__(self) -> None:
        self.world = World()
        self.zookeeper = self.world.zookeeper

    def __call__(self, line: str) -> list[str]:
        name, *words = line.split()
        if name == "quietly":
            self(" ".join(words))
            return []
        command: Callable[..., list[str] | None] = getattr(self, name.replace("-", "_"))
        try:
            inspect.signature(command).bind(*words)
        except TypeError as wrong:
            raise AssertionError(f"{line!r}: {wrong}") from wrong
        return command(*words) or []

    # -- before anybody is in office: what is found ------------------------------------------

    def brokers(self, *words: str) -> None:
        """`brokers 1 2 3 racks=a,b,c version=4`"""
        plain, given = options(words)
        racks = given.get("racks", "").split(",")
        for index, broker in enumerate(map(int, plain)):
            rack = racks[index] if "racks" in given else None
            self._register(broker, rack, int(given.get("version", 5)))

    def _register(self, broker: int, rack: str | None = None, version: int = 5) -> None:
        self.world.czxid += 1
        self.zookeeper.brokers[broker] = Broker(
            broker,
            self.world.czxid,
            (Endpoint("PLAINTEXT", f"b{broker}", 9092),),
            rack,
            registration_version=version,
        )

    def set(self, *words: str) -> list[str]:
        """`set delete_topic_enable=false`: also while a controller is in office."""
        changes: dict[str, Any] = {}
        for name, text in options(words)[1].items():
            kind = type(getattr(self.world.settings, name))
            changes[name] = text == "true" if kind is bool else kind(text)
        self.world.settings = attrs.evolve(self.world.settings, **changes)
        return self.world.happens(ev.SettingsChange(self.world.settings))

    def protocol(self, release: str) -> None:
        """`protocol 2.4`: inter.broker.protocol.version."""
        major, minor = map(int, release.split("."))
        self.world.settings = attrs.evolve(
            self.world.settings, inter_broker_protocol=(major, minor)
        )

    def topic(self, name: str, *partitions: str) -> list[str]:
        """`topic orders 0:1,2,3 1:2,3,1`: lives already, or appears while somebody is in office."""
        assigned = dict(self._partition(p) for p in partitions)
        self.zookeeper.topics[name] = ef.TopicNode(assigned, f"id-of-{name}", 0)
        if not self.world.active():
            for partition, assignment in assigned.items():
                replicas = assignment.replicas
                self.zookeeper.states[TopicPartition(name, partition)] = Leadership(
                    replicas[0], replicas, 0, self.zookeeper.epoch, 0
                )
        return self.world.happens(ev.TopicChange())

    @staticmethod
    def _partition(text: str) -> tuple[int, Assignment]:
        number, _, rest = text.partition(":")
        replicas, *marks = rest.split("/")
        adding = next((ids(m[1:]) for m in marks if m.startswith("+")), ())
        removing = next((ids(m[1:]) for m in marks if m.startswith("-")), ())
        return int(number), Assignment(ids(replicas), adding, removing)

    def state(self, tp: str, *words: str) -> None:
        """`state orders-0 leader=2 isr=2,3 epoch=5`, or `state orders-0 none`: as it is found."""
        plain, given = options(words)
        key = TopicPartition.parse(tp)
        if plain == ["none"]:
            del self.zookeeper.states[key]
            return
        self.zookeeper.states[key] = Leadership(
            int(given["leader"]),
            ids(given["isr"]),
            int(given.get("epoch", 0)),
            int(given.get("controller-epoch", self.zookeeper.epoch)),
            int(given.get("version", 0)),
            "recovering" in plain,
        )

    def marked(self, *topics: str) -> None:
        """Markers for deletion that an earlier controller left."""
        self.zookeeper.deletions.update(dict.fromkeys(topics))

    # -- the controllers ---------------------------------------------------------------------

    def elect(self) -> list[str]:
        controller = self.world.candidate(FIRST_CONTROLLER)
        return self.world.run(controller, [ev.Startup()])

    def takeover(self, controller: str) -> list[str]:
        """Another kctl takes the office by force; the one that had it has not heard yet."""
        second = self.world.candidate(int(controller), force_takeover=True)
        lines = self.world.run(second, [ev.Startup()])
        return [f"[{second.id}] {line}" for line in lines]

    def stand(self, controller: str) -> list[str]:
        """Another kctl stands for election, without force."""
        second = self.world.candidate(int(controller), takeover=True)
        return [f"[{second.id}] {line}" for line in self.world.run(second, [ev.Startup()])]

    def hand_over(self) -> list[str]:
        """The controller stops."""
        return self.world.happens(ev.ShutdownEventThread())

    def fire(self, *tag: str) -> list[str]:
        """`fire leader balance`: the timer of this name is due."""
        (controller,) = self.world.active()
        timer = controller.timers.pop(" ".join(tag))
        return self.world.happens(timer.event)

    # -- brokers -----------------------------------------------------------------------------

    def kill(self, *brokers: str) -> list[str]:
        for broker in map(int, brokers):
            del self.zookeeper.brokers[broker]
        return self.world.happens(ev.BrokerChange())

    def start(self, *brokers: str) -> list[str]:
        for broker in map(int, brokers):
            self._register(broker)
        return self.world.happens(ev.BrokerChange())

    bounce = start
    """Down and up again before anybody looked: only the epoch tells."""

    def shutdown(self, broker: str, *words: str) -> list[str]:
        """`shutdown 3`, or with an epoch: the broker asks to leave."""
        given = options(words)[1]
        epoch = int(given.get("epoch", self._epoch(int(broker))))
        return self.world.happens(ev.ControlledShutdown(CALLER, int(broker), epoch))

    def _epoch(self, broker: int) -> int:
        known = self.zookeeper.brokers.get(broker)
        return known.epoch if isinstance(known, Broker) else -1

    def stop_answer(self, broker: str, *words: str) -> list[str]:
        """`stop-answer 2 orders-0 orders-1 ok`: to StopReplica with deletion."""
        *named, outcome = words
        error = KafkaError.NONE if outcome == "ok" else KafkaError.KAFKA_STORAGE_ERROR
        return self.world.happens(
            ev.TopicDeletionStopReplicaResponseReceived(
                int(broker),
                self._epoch(int(broker)),
                partition_errors=dict.fromkeys(tps(named), error),
            )
        )

    def lisr_answer(self, broker: str, *words: str) -> list[str]:
        """`lisr-answer 2 orders-0=KAFKA_STORAGE_ERROR`, or one error for the whole request."""
        plain, given = options(words)
        return self.world.happens(
            ev.LeaderAndIsrResponseReceived(
                int(broker),
                self._epoch(int(broker)),
                KafkaError[plain[0]] if plain else KafkaError.NONE,
                {TopicPartition.parse(tp): KafkaError[e] for tp, e in given.items()},
            )
        )

    def log_dir(self, broker: str) -> list[str]:
        """The broker writes that one of its log dirs failed."""
        number = len(self.zookeeper.log_dir_notifications)
        path = f"/log_dir_event_notification/log_dir_event_{number:010}"
        self.zookeeper.log_dir_notifications[path] = int(broker)
        return self.world.happens(ev.LogDirEventNotification())

    def isr(self, tp: str, members: str, *words: str) -> list[str]:
        """`isr orders-0 1,2`: AlterPartition, by default from the leader and with true epochs."""
        plain, given = options(words)
        key = TopicPartition.parse(tp)
        known = self.zookeeper.states[key]
        assert isinstance(known, Leadership)
        broker = int(given.get("from", known.leader))
        proposal = ev.IsrProposal(
            ids(members),
            int(given.get("epoch", known.leader_epoch)),
            int(given.get("version", known.zk_version)),
            "recovering" in plain,
        )
        return self.world.happens(
            ev.AlterPartitionReceived(
                CALLER,
                broker,
                int(given.get("broker-epoch", self._epoch(broker))),
                int(given.get("api", 3)),
                partitions={key: proposal},
            )
        )

    def isr_written(self, tp: str, members: str, *how: str) -> list[str]:
        """An old leader writes the state znode itself, and tells; or `unnoticed`, not yet."""
        key = TopicPartition.parse(tp)
        known = self.zookeeper.states[key]
        assert isinstance(known, Leadership)
        self.zookeeper.states[key] = Leadership(
            known.leader,
            ids(members),
            known.leader_epoch,
            known.controller_epoch,
            known.zk_version + 1,
        )
        self.world.written_behind = how == ("unnoticed",)
        if self.world.written_behind:
            return []
        number = len(self.zookeeper.isr_notifications)
        self.zookeeper.isr_notifications[f"/isr_change_notification/isr_change_{number:010}"] = (
            key,
        )
        return self.world.happens(ev.IsrChangeNotification())

    # -- topics ------------------------------------------------------------------------------

    def create(self, name: str, *words: str) -> list[str]:
        """CreateTopics: `create orders partitions=2 rf=3`, or `create orders 0:1,2 1:2,3`."""
        plain, given = options(words)
        manual = {p: a.replicas for p, a in map(self._partition, plain)}
        return self.world.happens(
            ev.CreateTopics(
                CALLER,
                (
                    ev.NewTopic(
                        name,
                        int(given.get("partitions", -1)),
                        int(given.get("rf", -1)),
                        manual or None,
                    ),
                ),
            )
        )

    def add_partitions(self, name: str, count: str) -> list[str]:
        """CreatePartitions: `add-partitions orders 3` makes three in all."""
        return self.world.happens(
            ev.CreatePartitions(CALLER, (ev.NewPartitions(name, int(count)),))
        )

    def grow(self, name: str, *partitions: str) -> list[str]:
        """`grow orders 2:1,2`: somebody rewrites the topic's znode with more partitions."""
        node = self.zookeeper.topics[name]
        assert isinstance(node, ef.TopicNode)
        added = dict(self._partition(p) for p in partitions)
        self.zookeeper.topics[name] = attrs.evolve(
            node, partitions={**node.partitions, **added}, zk_version=node.zk_version + 1
        )
        return self.world.happens(ev.PartitionModifications(name))

    def recreate(self, name: str, *partitions: str) -> list[str]:
        """Deleted and created again, behind the controller's back and before it looked."""
        assigned = dict(self._partition(p) for p in partitions)
        self.zookeeper.topics[name] = ef.TopicNode(assigned, f"another-id-of-{name}", 0)
        for tp in [tp for tp in self.zookeeper.states if tp.topic == name]:
            del self.zookeeper.states[tp]
        return self.world.happens(ev.TopicChange(), ev.PartitionModifications(name))

    def vanish(self, name: str) -> list[str]:
        """Somebody removes the topic's znodes, without asking."""
        del self.zookeeper.topics[name]
        for tp in [tp for tp in self.zookeeper.states if tp.topic == name]:
            del self.zookeeper.states[tp]
        return self.world.happens(ev.TopicChange())

    def delete(self, *topics: str) -> list[str]:
        """Somebody writes the markers."""
        self.zookeeper.deletions.update(dict.fromkeys(topics))
        return self.world.happens(ev.TopicDeletion())

    def delete_rpc(self, *topics: str) -> list[str]:
        return self.world.happens(ev.DeleteTopics(CALLER, tuple((t, None) for t in topics)))

    def unclean(self, topic: str, switch: str) -> list[str]:
        """`unclean orders on`: the topic's config changes while a controller is in office."""
        value = "true" if switch == "on" else "false"
        self.zookeeper.configs[topic] = {"unclean.leader.election.enable": value}
        if switch == "on":
            return self.world.happens(ev.TopicUncleanLeaderElectionEnable(topic))
        return []

    # -- reassignment and elections ----------------------------------------------------------

    def reassign(self, *words: str) -> list[str]:
        """AlterPartitionReassignments: `reassign orders-0 4,5,6 orders-1 5,6,4`."""
        pairs = zip(words[::2], words[1::2], strict=True)
        targets: dict[TopicPartition, Replicas | None] = {
            TopicPartition.parse(tp): ids(target) for tp, target in pairs
        }
        return self.world.happens(ev.ApiPartitionReassignment(CALLER, targets))

    def cancel(self, *partitions: str) -> list[str]:
        targets = dict.fromkeys(tps(partitions))
        return self.world.happens(ev.ApiPartitionReassignment(CALLER, targets))

    def reassign_znode(self, *words: str) -> list[str]:
        """The same by `/admin/reassign_partitions`, the way of old tools."""
        pairs = zip(words[::2], words[1::2], strict=True)
        self.zookeeper.reassignments = {TopicPartition.parse(tp): ids(t) for tp, t in pairs}
        return self.world.happens(ev.ZkPartitionReassignment())

    def list_reassignments(self) -> list[str]:
        return self.world.happens(ev.ListPartitionReassignments(CALLER))

    def elect_leaders(self, kind: str, *partitions: str) -> list[str]:
        """ElectLeaders: `elect-leaders preferred orders-0`; without partitions, all."""
        return self.world.happens(
            ev.ReplicaLeaderElection(
                CALLER,
                tps(partitions) or None,
                ev.ElectionType[kind.upper()],
                ev.ElectionTrigger.ADMIN_CLIENT,
            )
        )

    def elect_znode(self, *partitions: str) -> list[str]:
        """The same by `/admin/preferred_replica_election`, the way of old tools."""
        self.zookeeper.preferred_election = tps(partitions)
        return self.world.happens(ev.ReplicaLeaderElection())

    # -- bad znodes --------------------------------------------------------------------------

    def poison(self, path: str, *reason: str) -> None:
        """`poison /brokers/topics/x not JSON`: the znode can no longer be understood."""
        bad = Malformed(path, " ".join(reason))
        match path.strip("/").split("/"):
            case ["brokers", "ids", broker]:
                self.zookeeper.brokers[int(broker)] = bad
            case ["brokers", "topics", topic]:
                self.zookeeper.topics[topic] = bad
            case ["brokers", "topics", topic, "partitions", partition, "state"]:
                self.zookeeper.states[TopicPartition(topic, int(partition))] = bad
            case ["admin", "reassign_partitions"]:
                self.zookeeper.reassignments = bad
            case ["config", "topics", topic]:
                self.zookeeper.configs[topic] = bad
            case _:
                raise AssertionError(f"poison {path}: no such znode here")

    def noticed(self, what: str) -> list[str]:
        """`noticed orders`, `noticed /brokers/ids`: the watch on it fires."""
        events: dict[str, ev.Event] = {
            "/brokers/ids": ev.BrokerChange(),
            "/brokers/topics": ev.TopicChange(),
            "/admin/reassign_partitions": ev.ZkPartitionReassignment(),
            "/controller": ev.ControllerChange(),
        }
        return self.world.happens(events.get(what, ev.PartitionModifications(what)))

    # -- looking -----------------------------------------------------------------------------

    def show(self, *partitions: str) -> list[str]:
        """Rows in memory."""
        lines = []
        for controller in self.world.active():
            rows = controller.cluster.rows
            lines += [wording.row(tp, rows[tp]) for tp in tps(partitions)]
        return lines

    def quarantine(self) -> list[str]:
        (controller,) = self.world.active()
        return [f"{path}: {why}" for path, why in controller.cluster.quarantine.items()] or ["none"]

    def topics(self) -> list[str]:
        """Topics in ZooKeeper, and the markers of those to be deleted."""
        named = wording.listed(self.zookeeper.topics) or "none"
        return [f"topics {named}, marked {wording.listed(self.zookeeper.deletions) or 'none'}"]
