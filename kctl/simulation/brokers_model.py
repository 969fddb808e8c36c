"""A broker: its registration, the control requests as real brokers apply them, replication.

A broker obeys whoever has the highest controller epoch it has seen since it started, believes only
requests for its own incarnation, ignores a LeaderAndIsr that does not raise the leader epoch, and
does not follow a leader that it does not know, or none: it stays what it was, and can be told the
same epoch again. How it proposes ISRs is in `isr_proposals`.
"""

import json

import attrs

from kctl.messages.requests import (
    LeaderAndIsrRequest,
    Request,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from kctl.model.codes import KafkaError
from kctl.model.names import BrokerId, TopicId, TopicPartition
from kctl.model.rows import Leadership, Replicas, Row
from kctl.model.settings import ALTER_PARTITION_SINCE, TOPIC_IDS_SINCE, Release
from kctl.simulation.hosted import MIN_ISR, Hosted
from kctl.simulation.isr_proposals import maintain_isr
from kctl.simulation.replica_log import ReplicaLog
from kctl.simulation.surroundings import Surroundings
from kctl.zookeeper.multi import Create, SetData
from kctl.zookeeper.wire import CreateMode

FETCH_MAX = 3
RECORDS_MAX = 60


@attrs.frozen
class Cached:
    """A partition in a broker's metadata cache."""

    leadership: Leadership
    replicas: Replicas
    offline: Replicas


@attrs.frozen
class Response:
    """What a broker answers: the error of the whole request, or one for each partition."""

    error: int
    partitions: dict[TopicPartition, int]


class ModelBroker:
    def __init__(self, world: Surroundings, broker_id: BrokerId, release: Release) -> None:
        self.world = world
        self.id = broker_id
        self.release = release
        self.name = f"broker-{broker_id}"
        self.up = False
        self.dead_for_good = False
        self.shutting_down = False
        self.reachable_after = 0
        """Requests from controllers do not get through before."""
        self.epoch = -1
        self.incarnation = 0
        self.session = 0
        self.logs: dict[TopicPartition, ReplicaLog] = {}
        self.offline: dict[TopicPartition, None] = {}
        """Partitions on a failed log dir."""
        self._forget()

    def _forget(self) -> None:
        self.controller_epoch = 0
        self.controller: BrokerId | None = None
        self.asks: BrokerId | None = None
        """The controller that its proposals go to, until that one denies or does not answer. It may
        have been replaced long ago: who told the newer leader epochs is not looked at."""
        self.live: dict[BrokerId, None] = {}
        self.cache: dict[TopicPartition, Cached] = {}
        self.topic_ids: dict[str, TopicId] = {}
        self.hosted: dict[TopicPartition, Hosted] = {}

    @property
    def writes_isr_itself(self) -> bool:
        return self.release < ALTER_PARTITION_SINCE

    # -- life -----------------------------------------------------------------------------------

    def start(self) -> None:
        if self.up or self.dead_for_good:
            return
        self.up = True
        self.shutting_down = False
        self.incarnation += 1
        self.offline = {}
        self._forget()
        self.register()

    def register(self) -> None:
        """A new session and a new registration: its czxid is the broker epoch."""
        ensemble = self.world.ensemble
        ensemble.expire(self.session)
        self.session = ensemble.open(self.name)
        path = f"/brokers/ids/{self.id}"
        done = ensemble.try_commit(
            self.session,
            Create(path, b"", CreateMode.EPHEMERAL),
            SetData(path, self.registration(), 0),
        )
        if done is None:  # somebody else's znode is in the way: try again
            self.world.scheduler.after(500, self.register_again, self.incarnation)
            return
        self.epoch = done.zxid
        self.world.note(self.name, f"registered with epoch {self.epoch}", self.name)

    def register_again(self, incarnation: int) -> None:
        if self.up and self.incarnation == incarnation:
            self.register()

    def registration(self) -> bytes:
        version = 4 if self.writes_isr_itself else 5
        endpoint = f"PLAINTEXT://b{self.id}:9092"
        body: dict[str, object] = {
            "version": version,
            "host": f"b{self.id}",
            "port": 9092,
            "jmx_port": -1,
            "timestamp": "0",
            "endpoints": [endpoint],
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        }
        if version >= 5:
            body["features"] = {}
        return json.dumps(body).encode()

    def stop(self, *, expire_after: int, wiped: bool = False) -> None:
        """Die, or go: the session ends at once (0) or when its time is over."""
        if not self.up:
            return
        self.up = False
        session = self.session
        if expire_after:
            self.world.scheduler.after(expire_after, self.world.ensemble.expire, session)
        else:
            self.world.ensemble.expire(session)
        if wiped:
            self.lose_logs(list(self.logs))
        self._forget()

    def lose_logs(self, tps: list[TopicPartition]) -> None:
        for tp in tps:
            self.logs.pop(tp, None)
        self.world.safety.logs_lost(self.id, tps)

    def lose_session(self) -> None:
        """Expired, but the broker goes on; it comes back with another epoch."""
        self.world.ensemble.expire(self.session)
        delay = self.world.chance.randint(0, 3_000)
        self.world.scheduler.after(delay, self.register_again, self.incarnation)

    def fail_log_dir(self, *, lost: bool) -> None:
        """Some replicas go offline; their logs are back after a restart, or lost."""
        tps = [tp for tp in self.logs if self.world.chance.random() < 0.5]
        self.offline.update(dict.fromkeys(tps))
        for tp in tps:
            self.hosted.pop(tp, None)
        if lost:
            self.lose_logs(tps)
        body = json.dumps({"version": 1, "broker": self.id, "event": 1}).encode()
        path = "/log_dir_event_notification/log_dir_event_"
        self.world.ensemble.try_commit(
            self.session, Create(path, body, CreateMode.PERSISTENT_SEQUENTIAL)
        )

    # -- control requests -----------------------------------------------------------------------

    def apply(self, request: Request, broker_epoch: int, controller: BrokerId) -> Response:
        if broker_epoch not in {-1, self.epoch} and broker_epoch < self.epoch:
            return Response(KafkaError.STALE_BROKER_EPOCH, {})
        if request.controller_epoch < self.controller_epoch:
            return Response(KafkaError.STALE_CONTROLLER_EPOCH, {})
        self.controller_epoch = request.controller_epoch
        if isinstance(request, UpdateMetadataRequest):
            self.controller = controller
            return self._update_metadata(request)
        if isinstance(request, LeaderAndIsrRequest):
            errors = {
                tp: self._lead_or_follow(request, tp, row) for tp, row in request.rows.items()
            }
            return Response(KafkaError.NONE, errors)
        return Response(KafkaError.NONE, self._stop_replicas(request))

    def _update_metadata(self, request: UpdateMetadataRequest) -> Response:
        self.live = {b.id: None for b in request.live_brokers}
        for tp, row in request.rows.items():
            if tp.topic in request.deleted:
                self.cache.pop(tp, None)
            elif row.leadership is not None:
                offline = request.offline.get(tp, ())
                self.cache[tp] = Cached(row.leadership, row.assignment.replicas, offline)
        for topic, topic_id in request.topic_ids.items():
            gone = topic in request.deleted and not any(tp.topic == topic for tp in self.cache)
            if topic_id is None or gone:
                self.topic_ids.pop(topic, None)
            else:
                self.topic_ids[topic] = topic_id
        return Response(KafkaError.NONE, {})

    def _lead_or_follow(self, request: LeaderAndIsrRequest, tp: TopicPartition, row: Row) -> int:
        leadership = row.leadership
        assert leadership is not None
        topic_id = request.topic_ids.get(tp.topic)
        log = self.logs.get(tp)
        if tp in self.offline:
            return KafkaError.KAFKA_STORAGE_ERROR
        if log is not None and topic_id and log.topic_id and log.topic_id != topic_id:
            return KafkaError.INCONSISTENT_TOPIC_ID
        old = self.hosted.get(tp)
        if old is not None and leadership.leader_epoch <= old.leader_epoch:
            return KafkaError.STALE_CONTROLLER_EPOCH
        if self.id not in row.assignment.replicas:
            return KafkaError.UNKNOWN_TOPIC_OR_PARTITION
        if log is None and self.offline and tp not in request.new:
            return KafkaError.KAFKA_STORAGE_ERROR
        if old is not None and leadership.zk_version < old.partition_epoch:
            return KafkaError.NONE
        if log is None:
            born = self.world.safety.ledger.born(tp.topic)
            log = self.logs[tp] = ReplicaLog(topic_id, born=born)
        log.topic_id = log.topic_id or topic_id
        if leadership.leader == self.id:
            self.hosted[tp] = Hosted.led(row, leadership, log.end)
            if old is not None:
                self.hosted[tp].high_watermark = min(old.high_watermark, log.end)
        elif leadership.leader in self.live:
            self.hosted[tp] = Hosted.followed(row, leadership)
        # Else it has created the log and goes on as before: the epoch counts as not heard.
        return KafkaError.NONE

    def _stop_replicas(self, request: StopReplicaRequest) -> dict[TopicPartition, int]:
        errors: dict[TopicPartition, int] = {}
        for tp, order in request.partitions.items():
            hosted = self.hosted.get(tp)
            if tp in self.offline:
                errors[tp] = KafkaError.KAFKA_STORAGE_ERROR
            elif hosted is not None and 0 <= order.leader_epoch < hosted.leader_epoch:
                errors[tp] = KafkaError.FENCED_LEADER_EPOCH
            else:
                errors[tp] = KafkaError.NONE
                if hosted is not None:
                    hosted.fetching = False
                if order.delete:
                    self.hosted.pop(tp, None)
                    if self.logs.pop(tp, None) is not None:
                        self.world.safety.log_deleted(self.id, tp)
        return errors

    # -- replication ----------------------------------------------------------------------------

    def tick(self) -> None:
        """Produce, fetch and look after the ISRs, once for each hosted partition."""
        for tp, hosted in list(self.hosted.items()):
            if hosted.leads:
                self._produce(tp, hosted)
                maintain_isr(self, tp, hosted)
            elif hosted.fetching:
                self._fetch(tp, hosted)

    def _produce(self, tp: TopicPartition, hosted: Hosted) -> None:
        world, log = self.world, self.logs[tp]
        if (
            len(hosted.isr) >= MIN_ISR
            and log.end < RECORDS_MAX
            and world.faulty
            and world.chance.random() < 0.2
        ):
            number = world.safety.next_record()
            hosted.unacknowledged.append((log.end, number))
            log.records.append((hosted.leader_epoch, number))
        self.acknowledge(tp, hosted)

    def acknowledge(self, tp: TopicPartition, hosted: Hosted) -> None:
        log = self.logs[tp]
        for number in hosted.advance(self.id, log.end):
            self.world.safety.acknowledged(tp, log.topic_id, hosted.leader_epoch, number)

    def _fetch(self, tp: TopicPartition, hosted: Hosted) -> None:
        leader = self.world.brokers.get(hosted.leader)
        if leader is None or not leader.up or self.world.unlucky(0.05):
            return
        theirs = leader.hosted.get(tp)
        if theirs is None or not theirs.leads or theirs.leader_epoch != hosted.leader_epoch:
            return
        log, source = self.logs[tp], leader.logs[tp]
        if log.topic_id and source.topic_id and log.topic_id != source.topic_id:
            return
        if not hosted.cut_back or not log.continues(source):
            log.cut(log.in_common(source))
            hosted.cut_back = True
        theirs.ends[self.id] = log.end
        if log.end >= source.end:
            theirs.caught_up[self.id] = self.world.now
        leader.acknowledge(tp, theirs)
        log.records.extend(source.records[log.end : log.end + FETCH_MAX])

    def knows_topic_id(self, topic: str) -> TopicId | None:
        return self.topic_ids.get(topic) if self.release >= TOPIC_IDS_SINCE else None
