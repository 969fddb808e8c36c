"""`/metrics`: Kafka's controller metrics under the names that dashboards know, and our own.

The names are those that the JMX exporter makes of Kafka's MBeans with the rules that Confluent
ships, or with those of Strimzi, which name the meters of `...PerSec` otherwise. A timer is a
summary in milliseconds. Types are what they are at the exporter: a meter's count is untyped there.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum

import attrs
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

import kctl
from kctl.brokers.channel import Channel
from kctl.brokers.manager import ChannelManager
from kctl.http.figures import Figures, figures_of
from kctl.http.pacing import Pace
from kctl.model.names import BrokerId
from kctl.runtime.controller import Controller
from kctl.runtime.meters import BOUNDS_S, Timing, quantiles, wall_clock_ms
from kctl.runtime.states import TIMERS
from kctl.zookeeper.link import State

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""Those of Kafka's timers."""
MIGRATION_STATE_ZOOKEEPER = 4
BROKER_STARTING, BROKER_RUNNING = 1, 3

CONTROLLER = "kafka_controller_kafkacontroller"
STATS = "kafka_controller_controllerstats"
EVENTS = "kafka_controller_controllereventmanager"
CHANNELS = "kafka_controller_controllerchannelmanager"
SESSIONS = "kafka_server_sessionexpirelistener"

SESSION_STATES = {
    State.CONNECTING: "CONNECTING",
    State.CONNECTED: "CONNECTED",
    State.SUSPENDED: "CONNECTING",
    State.FENCED: "CONNECTING",
    State.EXPIRED: "CLOSED",
    State.CLOSED: "CLOSED",
}
"""As ZooKeeper's Java client calls them."""


class Dialect(Enum):
    CONFLUENT = "confluent"
    STRIMZI = "strimzi"


@attrs.frozen(eq=False)
class Given(Collector):
    families: tuple[Metric, ...]

    def collect(self) -> Iterable[Metric]:
        return self.families


class Metrics(Collector):
    """Of one controller, in a registry of its own."""

    def __init__(self, controller: Controller, elections: "Elections", dialect: Dialect) -> None:
        self._controller = controller
        self._elections = elections
        self._dialect = dialect
        self._figures = Figures()
        self._sorted: dict[str, tuple[object, list[float]]] = {}
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    async def text(self) -> bytes:
        """For a scraper. Each family is counted and written down in a step of its own."""
        self._figures = await figures_of(self._controller.state)
        pace = Pace()
        for broker, channel in self._channels().items():
            self._queue_times(broker, channel)
            await pace()
        text = []
        for family in self.collect():
            alone = CollectorRegistry(auto_describe=False)
            alone.register(Given((family,)))
            text.append(generate_latest(alone))
            await pace()
        return b"".join(text)

    def collect(self) -> Iterator[Metric]:
        """With the counts of the last scrape, where counting takes a while."""
        yield from self._of_kafka_controller(self._figures)
        yield from self._of_kafka_events()
        yield from self._of_kafka_channels()
        yield from self._of_kafka_server()
        yield from self._own(self._figures)
        yield from self._own_times()
        yield from self._own_traffic()

    # -- Kafka's ------------------------------------------------------------------------------

    def _of_kafka_controller(self, figures: Figures) -> Iterator[Metric]:
        controller = self._controller
        for name, doc, value in (
            ("activecontrollercount", "1 on the active controller", int(controller.is_active)),
            ("offlinepartitionscount", "Partitions without a leader", figures.offline),
            (
                "preferredreplicaimbalancecount",
                "Partitions that their preferred replica does not lead",
                figures.unbalanced,
            ),
            (
                "controllerstate",
                "The kind of event under way, 0 if none",
                controller.meters.state,
            ),
            ("globaltopiccount", "Topics", figures.topics),
            ("globalpartitioncount", "Partitions", figures.partitions),
            ("topicstodeletecount", "Topics to be deleted", figures.topics_to_delete),
            ("replicastodeletecount", "Replicas to be deleted", figures.replicas_to_delete),
            (
                "topicsineligibletodeletecount",
                "Topics whose deletion is on hold",
                figures.topics_ineligible,
            ),
            (
                "replicasineligibletodeletecount",
                "Replicas whose deletion is on hold",
                figures.replicas_ineligible,
            ),
            ("activebrokercount", "Registered brokers", figures.brokers),
            ("fencedbrokercount", "Always 0 in ZooKeeper mode", 0),
            ("zkmigrationstate", "Always 4: ZooKeeper mode", MIGRATION_STATE_ZOOKEEPER),
        ):
            yield GaugeMetricFamily(f"{CONTROLLER}_{name}", doc, value)

    def _of_kafka_events(self) -> Iterator[Metric]:
        controller, meters = self._controller, self._controller.meters
        yield self._meter(
            f"{STATS}_uncleanleaderelections",
            "Leaders elected that were not in sync",
            self._elections.unclean,
        )
        for state, timer in TIMERS.items():
            name = f"{STATS}_{timer.lower()}rateandtimems"
            doc = f"Events of controller state {state}: how many, and how long they took"
            yield self._timer(name, doc, [({}, meters.by_state.get(state) or Timing())])
        yield GaugeMetricFamily(f"{EVENTS}_eventqueuesize", "Waiting events", controller.queue_size)
        yield self._timer(
            f"{EVENTS}_eventqueuetimems", "How long events waited", [({}, meters.queued)]
        )

    def _of_kafka_channels(self) -> Iterator[Metric]:
        channels = self._channels()
        yield GaugeMetricFamily(
            f"{CHANNELS}_totalqueuesize",
            "Requests that wait for brokers",
            sum(channel.backlog for channel in channels.values()),
        )
        sizes = GaugeMetricFamily(
            f"{CHANNELS}_queuesize", "Requests that wait for this broker", labels=["broker_id"]
        )
        waits = Metric(
            f"{CHANNELS}_requestrateandqueuetimems",
            "Requests to this broker: how many, and how long they waited",
            "summary",
        )
        for broker, channel in channels.items():
            sizes.add_metric([str(broker)], channel.backlog)
            found = self._queue_times(broker, channel)
            labels = {"broker_id": str(broker)}
            _add_summary(waits, labels, channel.taken, channel.queue_time_total_s, found)
        yield sizes
        yield waits

    def _of_kafka_server(self) -> Iterator[Metric]:
        controller, meters = self._controller, self._controller.meters
        traffic = controller.traffic
        latency = Metric(
            "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms",
            "Requests to ZooKeeper: how many, and how long they took",
            "summary",
        )
        found = self._quantiles(latency.name, traffic.answered, traffic.latencies_s)
        _add_summary(latency, {}, traffic.answered, traffic.latency_total_s, found)
        yield latency
        for name, doc, count in (
            ("disconnects", "Connections to ZooKeeper lost", meters.session_disconnects),
            ("syncconnects", "Connections to ZooKeeper made", meters.session_connects),
            ("authfailures", "Credentials that ZooKeeper refused", traffic.refused_credentials),
            ("readonlyconnects", "Always 0: no read-only server is used", 0),
            ("saslauthentications", "Always 0: SASL is not used", 0),
            ("expires", "Sessions that ZooKeeper expired", meters.session_expiries),
        ):
            yield self._meter(f"{SESSIONS}_zookeeper{name}", doc, count)
        session = controller.session_state
        state = GaugeMetricFamily(
            f"{SESSIONS}_sessionstate", "1 for the session's state", labels=["state"]
        )
        state.add_metric(["CLOSED" if session is None else SESSION_STATES[session]], 1)
        yield state
        yield GaugeMetricFamily(
            "kafka_server_kafkaserver_brokerstate",
            "3 when running, 1 before the first session",
            BROKER_RUNNING if meters.session_connects else BROKER_STARTING,
        )

    # -- our own ------------------------------------------------------------------------------

    def _own(self, figures: Figures) -> Iterator[Metric]:
        controller, meters = self._controller, self._controller.meters
        info = GaugeMetricFamily("kctl_info", "Which kctl this is", labels=["version", "id"])
        info.add_metric([kctl.__version__, str(controller.config.broker_id)], 1)
        yield info
        cluster = controller.state
        for name, doc, value in (
            (
                "uptime_seconds",
                "Since the controller was started",
                (wall_clock_ms() - meters.started_ms) / 1000,
            ),
            ("stood_down", "1 if it does not campaign any more", int(bool(controller.stood_down))),
            (
                "controller_epoch",
                "Of this term; 0 if none",
                0 if cluster is None else cluster.epoch,
            ),
            ("event_queue_size", "Waiting events", controller.queue_size),
            ("event_queue_age_seconds", "The longest waiting event's", controller.queue_age_s),
            ("event_age_seconds", "Of the event under way; 0 if none", meters.under_way_s),
            ("reassigning_partitions", "Reassignments under way", figures.reassigning),
        ):
            yield GaugeMetricFamily(f"kctl_{name}", doc, value)
        quarantine = GaugeMetricFamily(
            "kctl_quarantined", "Znodes that cannot be used now, by kind", labels=["kind"]
        )
        for kind, count in figures.quarantined.items():
            quarantine.add_metric([kind], count)
        yield quarantine
        for name, doc, count in (
            ("quarantined_found", "Znodes found that cannot be used", meters.quarantined),
            ("faults", "Defects met in handlers", meters.faults),
            ("elections_won", "Terms of this controller", meters.elections_won),
            ("leaders_elected", "Partitions that got a leader", self._elections.leaders),
        ):
            yield CounterMetricFamily(f"kctl_{name}", doc, count)
        effects = CounterMetricFamily(
            "kctl_effects", "What handlers asked for, by kind", labels=["effect"]
        )
        for effect, count in meters.effects.items():
            effects.add_metric([effect], count)
        yield effects

    def _own_times(self) -> Iterator[Metric]:
        meters = self._controller.meters
        events = HistogramMetricFamily(
            "kctl_event_seconds", "How long events took, by type", labels=["event"]
        )
        for event, timing in meters.handled.items():
            _add_histogram(events, [event], timing)
        yield events
        for name, doc, timing in (
            ("event_queue_seconds", "How long events waited", meters.queued),
            ("loop_lag_seconds", "How late the event loop came round", meters.loop_lag),
            ("step_cpu_seconds", "CPU time of handlers between two awaits", meters.steps),
        ):
            family = HistogramMetricFamily(f"kctl_{name}", doc, labels=[])
            _add_histogram(family, [], timing)
            yield family

    def _own_traffic(self) -> Iterator[Metric]:
        traffic = self._controller.traffic
        for name, doc, count in (
            ("requests", "Requests to ZooKeeper, without heartbeats", traffic.requests),
            ("batches", "Those of them that carry many operations", traffic.batches),
            ("sent_bytes", "Sent to ZooKeeper", traffic.bytes_sent),
            ("received_bytes", "Received from ZooKeeper", traffic.bytes_received),
        ):
            yield CounterMetricFamily(f"kctl_zookeeper_{name}", doc, count)
        backlog = GaugeMetricFamily(
            "kctl_channel_backlog", "Requests that wait for this broker", labels=["broker"]
        )
        dropped = CounterMetricFamily(
            "kctl_channel_dropped_backlogs", "Backlogs given up for a resync", labels=["broker"]
        )
        for broker, channel in self._channels().items():
            backlog.add_metric([str(broker)], channel.backlog)
            dropped.add_metric([str(broker)], channel.dropped_backlogs)
        yield backlog
        yield dropped

    # -- how ----------------------------------------------------------------------------------

    def _channels(self) -> dict[BrokerId, Channel]:
        channels = self._controller.channels
        return dict(channels.channels) if isinstance(channels, ChannelManager) else {}

    def _queue_times(self, broker: BrokerId, channel: Channel) -> list[float]:
        version = channel.broker.epoch, channel.taken
        return self._quantiles(f"channel {broker}", version, channel.queue_times_s)

    def _meter(self, name: str, doc: str, count: int) -> Metric:
        if self._dialect is Dialect.STRIMZI:
            return CounterMetricFamily(name, doc, count)
        meter = Metric(f"{name}persec", doc, "unknown")
        meter.add_sample(meter.name, {}, count)
        return meter

    def _timer(
        self, name: str, doc: str, timings: Iterable[tuple[dict[str, str], Timing]]
    ) -> Metric:
        timer = Metric(name, doc, "summary")
        for labels, timing in timings:
            found = self._quantiles(f"{name} {labels}", timing.count, timing.recent_s)
            _add_summary(timer, labels, timing.count, timing.total_s, found)
        return timer

    def _quantiles(self, key: str, version: object, samples: Sequence[float]) -> list[float]:
        """Sorted anew only where something was added."""
        known = self._sorted.get(key)
        if known is None or known[0] != version:
            known = self._sorted[key] = version, quantiles(samples, QUANTILES)
        return known[1]


@attrs.define
class Elections:
    """Counted from the stories."""

    leaders: int = 0
    unclean: int = 0


def _add_summary(
    family: Metric, labels: dict[str, str], count: int, total_s: float, found: list[float]
) -> None:
    for quantile, seconds in zip(QUANTILES, found, strict=True):
        family.add_sample(family.name, {**labels, "quantile": str(quantile)}, seconds * 1000)
    family.add_sample(f"{family.name}_count", labels, count)
    family.add_sample(f"{family.name}_sum", labels, total_s * 1000)


def _add_histogram(family: HistogramMetricFamily, labels: list[str], timing: Timing) -> None:
    below, buckets = 0, []
    for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), timing.bins, strict=True):
        below += count
        buckets.append((bound, float(below)))
    family.add_metric(labels, buckets, timing.total_s)
