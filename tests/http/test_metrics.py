"""`/metrics`: names that dashboards know, with Kafka's meaning."""

from pathlib import Path

import attrs
import pytest
from prometheus_client import REGISTRY, generate_latest

import kctl
from kctl.http import Dialect, Http
from kctl.messages.outbox import Story
from kctl.model.brokers import Endpoint
from kctl.model.cluster import ClusterState
from kctl.model.names import TopicPartition
from kctl.model.rows import Assignment
from kctl.model.states import PartitionState, ReplicaState
from kctl.runtime.controller import Controller
from kctl.runtime.meters import Timing
from kctl.testing.simulated import RegisteredBrokers
from kctl.zookeeper.embedded import free_ports
from tests.http.served import Served, cluster_of, standing_alone, values
from tests.runtime.surroundings import Surroundings

CONTROLLER = "kafka_controller_kafkacontroller_"
STATS = "kafka_controller_controllerstats_"
CHANNELS = "kafka_controller_controllerchannelmanager_"
GAUGES = [
    *(
        CONTROLLER + name
        for name in (
            "activecontrollercount",
            "offlinepartitionscount",
            "preferredreplicaimbalancecount",
            "controllerstate",
            "globaltopiccount",
            "globalpartitioncount",
            "topicstodeletecount",
            "replicastodeletecount",
            "topicsineligibletodeletecount",
            "replicasineligibletodeletecount",
            "activebrokercount",
            "fencedbrokercount",
            "zkmigrationstate",
        )
    ),
    CHANNELS + "totalqueuesize",
    "kafka_controller_controllereventmanager_eventqueuesize",
    "kafka_server_kafkaserver_brokerstate",
]
BY_BROKER = {CHANNELS + "queuesize": "gauge", CHANNELS + "requestrateandqueuetimems": "summary"}
TIMERS = [
    "kafka_controller_controllereventmanager_eventqueuetimems",
    "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms",
    *(
        f"{STATS}{name}rateandtimems"
        for name in (
            "controllerchange",
            "leaderelection",
            "topicchange",
            "topicdeletion",
            "partitionreassignment",
            "autoleaderbalance",
            "manualleaderbalance",
            "controlledshutdown",
            "isrchange",
            "leaderandisrresponsereceived",
            "logdirchange",
            "controllershutdown",
            "uncleanleaderelectionenable",
            "topicuncleanleaderelectionenable",
            "listpartitionreassignment",
            "updatefeatures",
        )
    ),
]
METERS = [
    STATS + "uncleanleaderelections",
    *(
        f"kafka_server_sessionexpirelistener_zookeeper{name}"
        for name in (
            "disconnects",
            "syncconnects",
            "authfailures",
            "readonlyconnects",
            "saslauthentications",
            "expires",
        )
    ),
]
OWN = [
    "kctl_info",
    "kctl_uptime_seconds",
    "kctl_stood_down",
    "kctl_controller_epoch",
    "kctl_event_queue_size",
    "kctl_event_queue_age_seconds",
    "kctl_event_age_seconds",
    "kctl_reassigning_partitions",
    "kctl_quarantined",
    "kctl_quarantined_found",
    "kctl_faults",
    "kctl_elections_won",
    "kctl_leaders_elected",
    "kctl_effects",
    "kctl_event_seconds",
    "kctl_event_queue_seconds",
    "kctl_loop_lag_seconds",
    "kctl_step_cpu_seconds",
    "kctl_zookeeper_requests",
    "kctl_zookeeper_batches",
    "kctl_zookeeper_sent_bytes",
    "kctl_zookeeper_received_bytes",
    "kctl_channel_backlog",
    "kctl_channel_dropped_backlogs",
]


@pytest.mark.asyncio
@pytest.mark.parametrize("active", [True, False])
async def test_every_name_is_there(active: bool) -> None:
    async with standing_alone() as alone:
        if active:
            alone.holds(cluster_of({"orders-0": ((1, 2), 1, (1, 2))}, alive=(1, 2)))
        families = await alone.metrics()
        found = values(families)
        for name in GAUGES:
            assert families[name].type == "gauge"
            assert name in found
        for name in TIMERS:
            assert families[name].type == "summary"
            assert {f"{name}_count", f"{name}_sum"} <= set(found)
            assert next(s.labels["quantile"] for s in families[name].samples if s.labels) == "0.5"
        for name in METERS:
            assert families[f"{name}persec"].type == "unknown"
            assert f"{name}persec" in found
        for name, kind in BY_BROKER.items():
            assert families[name].type == kind
        assert set(OWN) <= set(families)
        assert all(family.documentation for family in families.values())
        assert found[CONTROLLER + "activecontrollercount"] == active


@pytest.mark.asyncio
async def test_the_registry_serves_other_exporters_too() -> None:
    async with standing_alone() as alone:
        alone.holds(cluster_of({"a-0": ((1,), 1, (1,))}, alive=(1,)))
        _, scraped = await alone.get("metrics")
        text = generate_latest(alone.http.metrics.registry).decode()
    assert f"{CONTROLLER}globaltopiccount 1.0" in text

    def defined(text: str) -> list[str]:
        return [line for line in text.splitlines() if line.startswith("#")]

    assert defined(text) == defined(scraped)


@pytest.mark.asyncio
async def test_no_family_is_defined_twice() -> None:
    async with standing_alone() as alone:
        _, text = await alone.get("metrics")
        types = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
        assert len(types) == len(set(types)) > 60
        assert text.count("# HELP") == len(types)


@pytest.mark.asyncio
async def test_strimzi_names_meters_otherwise() -> None:
    async with standing_alone() as alone:
        async with (
            Http(alone.controller, dialect=Dialect.STRIMZI) as http,
            Served.open(alone.controller, http) as served,
        ):
            families = await served.metrics()
        for name in METERS:
            assert families[name].type == "counter"
            assert f"{name}_total" in values(families)
            assert f"{name}persec" not in families
        assert set(GAUGES) <= set(families)
        assert set(TIMERS) <= set(families)


def troubled() -> ClusterState:
    """Every count has something to count, and something that does not count."""
    cluster = cluster_of(
        {
            "orders-0": ((1, 2, 3), 1, (1, 2, 3)),
            "orders-1": ((2, 3, 1), 3, (3, 1)),
            "orders-2": ((9, 8), -1, (9,)),
            "doomed-0": ((2, 1), 1, (1,)),
            "begun-0": ((8, 9), -1, (8,)),
            "moving-0": ((3, 1), 1, (1,)),
            "moved-0": ((3, 1), 1, (1, 3)),
        },
        alive=(1, 2, 3),
    )
    for name in ("moving", "moved"):
        tp = TopicPartition(name, 0)
        row = cluster.rows[tp].reassigned(Assignment((3, 1), adding=(3,), removing=(1,)))
        cluster.put(tp, row)
        cluster.reassigning[tp] = None
    cluster.queue_deletion("doomed").ineligible = "broker 2 is gone"
    begun = cluster.queue_deletion("begun")
    begun.started = True
    row = cluster.rows[TopicPartition("begun", 0)]
    for state in (ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL):
        row = row.with_replicas_in((8,), state)
        cluster.put(TopicPartition("begun", 0), row)
    cluster.add_topic("young", None, 0)
    cluster.add_unread("young", {0: Assignment((1, 2)), 1: Assignment((2, 1))})
    young = cluster.rows[TopicPartition("young", 0)]
    cluster.load(TopicPartition("young", 0), young)
    cluster.poison(
        TopicPartition("young", 1), "/brokers/topics/young/partitions/1/state", "not JSON"
    )
    cluster.quarantine["/brokers/ids/5"] = "not JSON"
    cluster.quarantine["/brokers/ids/6"] = "not JSON"
    cluster.quarantine["/brokers/topics/odd"] = "not JSON"
    cluster.quarantine["/config/topics/odd"] = "not JSON"
    return cluster


@pytest.mark.asyncio
async def test_counts_have_kafkas_meaning() -> None:
    async with standing_alone() as alone:
        cluster = troubled()
        assert cluster.rows[TopicPartition("young", 0)].state is PartitionState.NEW
        alone.holds(cluster)
        families = await alone.metrics()
        found = values(families)
        counts = {
            name.removeprefix(CONTROLLER): found[name] for name in found if CONTROLLER in name
        }
        assert counts == {
            "activecontrollercount": 1,
            "offlinepartitionscount": 1,  # orders-2; begun-0 is being deleted
            "preferredreplicaimbalancecount": 3,  # orders-1, orders-2, moved-0
            "controllerstate": counts["controllerstate"],
            "globaltopiccount": 6,
            "globalpartitioncount": 7,  # those of young have no leadership
            "topicstodeletecount": 2,
            "replicastodeletecount": 3,  # one of begun-0 is gone
            "topicsineligibletodeletecount": 1,
            "replicasineligibletodeletecount": 0,
            "activebrokercount": 3,
            "fencedbrokercount": 0,
            "zkmigrationstate": 4,
        }
        kinds = {s.labels["kind"]: s.value for s in families["kctl_quarantined"].samples}
        assert kinds == {"partition": 1, "broker": 2, "topic": 1, "config": 1}
        assert found["kctl_reassigning_partitions"] == 2
        assert found["kctl_controller_epoch"] == 7


@pytest.mark.asyncio
async def test_all_zero_while_another_node_is_controller() -> None:
    async with standing_alone() as alone:
        alone.holds(troubled())
        alone.holds(None)
        found = values(await alone.metrics())
        counts = {
            name.removeprefix(CONTROLLER): found[name] for name in found if CONTROLLER in name
        }
        assert counts.pop("zkmigrationstate") == 4
        counts.pop("controllerstate")
        assert set(counts.values()) == {0}


@pytest.mark.asyncio
async def test_elections_are_counted_from_stories() -> None:
    async with standing_alone() as alone:
        before = cluster_of(
            {
                "a-0": ((1, 2), 1, (1, 2)),
                "a-1": ((1, 2), -1, (1,)),
                "a-2": ((1, 2), 1, (1, 2)),
            },
            alive=(1, 2),
        )
        after = cluster_of(
            {
                "a-0": ((1, 2), 2, (2,)),
                "a-1": ((1, 2), 2, (2,)),  # 2 was not in sync
                "a-2": ((1, 2), 1, (1,)),  # only its ISR has changed
            },
            alive=(2,),
        )
        changes = {tp: (before.rows[tp], after.rows[tp]) for tp in before.rows}
        alone.controller._tell(Story("leader elected", "broker 1 is gone", changes))
        found = values(await alone.metrics())
        assert found["kctl_leaders_elected_total"] == 2
        assert found[STATS + "uncleanleaderelectionspersec"] == 1


@pytest.mark.asyncio
async def test_histograms_and_timers() -> None:
    async with standing_alone() as alone:
        meters = alone.controller.meters
        timing = meters.handled["BrokerChange"] = meters.by_state[2] = Timing()
        for seconds in (0.0001, 0.003, 0.003, 0.2, 120.0):
            timing.add(seconds)
        families = await alone.metrics()
        buckets = {
            s.labels["le"]: s.value
            for s in families["kctl_event_seconds"].samples
            if s.name.endswith("_bucket") and s.labels["event"] == "BrokerChange"
        }
        assert list(buckets.values()) == sorted(buckets.values())
        assert (buckets["0.0001"], buckets["0.005"], buckets["60.0"]) == (1, 3, 4)
        assert buckets["+Inf"] == 5
        timer = families[STATS + "leaderelectionrateandtimems"]
        found = {s.labels.get("quantile", s.name): s.value for s in timer.samples}
        assert found["0.5"] == 3
        assert found[f"{timer.name}_count"] == 5
        assert found[f"{timer.name}_sum"] == pytest.approx(120_206.1)


@pytest.mark.asyncio
async def test_several_controllers_share_nothing() -> None:
    async with standing_alone() as alone:
        config = attrs.evolve(alone.controller.config, broker_id=2000)
        async with (
            Controller(config) as second,
            Http(second) as http,
            Served.open(second, http) as other,
        ):
            alone.holds(cluster_of({"a-0": ((1,), 1, (1,))}, alive=(1,)))
            ones, twos = await alone.metrics(), await other.metrics()
        assert values(ones)[CONTROLLER + "globaltopiccount"] == 1
        assert values(twos)[CONTROLLER + "globaltopiccount"] == 0
        ids = [f["kctl_info"].samples[0].labels["id"] for f in (ones, twos)]
        assert ids == ["1000", "2000"]
        assert not [f.name for f in REGISTRY.collect() if f.name.startswith(("kafka_", "kctl_"))]


@pytest.mark.zookeeper
@pytest.mark.asyncio
async def test_of_a_controller_at_work(around: Surroundings) -> None:
    (port,) = free_ports(1)
    config = around.config(listeners=(Endpoint("PLAINTEXT", "127.0.0.1", port),))
    async with (
        kctl.Controller(config) as controller,
        Http(controller) as http,
        Served.open(controller, http) as served,
        RegisteredBrokers(around.connect, (1, 2, 3)) as brokers,
    ):
        await around.create_topic(
            "orders", {p: [1 + (p + r) % 3 for r in range(3)] for p in range(6)}
        )
        await controller.until(
            lambda c: c.state is not None and len(c.state.rows) == 6 and not c.state.not_online
        )
        first = values(await served.metrics())
        await brokers.kill(2)
        await controller.until(lambda c: c.state is not None and 2 not in c.state.brokers)
        families = await served.metrics()
        found = values(families)
    assert first[CONTROLLER + "globalpartitioncount"] == 6
    assert first[CONTROLLER + "activebrokercount"] == 3
    assert found[CONTROLLER + "activebrokercount"] == 2
    assert found[CONTROLLER + "preferredreplicaimbalancecount"] == 2
    assert found["kctl_leaders_elected_total"] == first["kctl_leaders_elected_total"] + 2
    for name in (
        STATS + "leaderelectionrateandtimems_count",
        STATS + "controllerchangerateandtimems_count",
        "kafka_controller_controllereventmanager_eventqueuetimems_count",
        "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms_count",
        "kafka_server_sessionexpirelistener_zookeepersyncconnectspersec",
        "kctl_zookeeper_requests_total",
        "kctl_zookeeper_batches_total",
        "kctl_zookeeper_sent_bytes_total",
        "kctl_zookeeper_received_bytes_total",
        "kctl_elections_won_total",
        "kctl_step_cpu_seconds_count",
    ):
        assert found[name] > 0, name
    waits = families[CHANNELS + "requestrateandqueuetimems"]
    sent = {s.labels["broker_id"]: s.value for s in waits.samples if s.name.endswith("_count")}
    assert set(sent) == {"1", "3"}
    assert min(sent.values()) > 0
    states = families["kafka_server_sessionexpirelistener_sessionstate"].samples
    assert [s.labels["state"] for s in states] == ["CONNECTED"]
    assert found["kafka_server_kafkaserver_brokerstate"] == 3


@pytest.mark.asyncio
async def test_the_documentation_has_every_name() -> None:
    text = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
    async with standing_alone() as alone:
        families = await alone.metrics()
    for name, family in families.items():
        shown = name.removeprefix(CONTROLLER).removeprefix(STATS)
        total = "_total" if family.type == "counter" else ""
        assert f"`{shown}{total}`" in text, name
