"""Clients of other makes, and frames that our own codec had no part in."""

import asyncio
import dataclasses
import datetime as dt
import importlib
import io
import re
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewPartitions
from confluent_kafka.cimpl import NewTopic as NewLibrdkafkaTopic
from kio.serial import entity_reader, entity_writer

from kctl.model.names import TopicPartition, topic_id_to_bytes
from kctl.wire.apis import framed
from tests.logic.notation import topic_id
from tests.server.office import FakeBroker, Office, metadata_of, office

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def node(*lines: str) -> AsyncIterator[Office]:
    """A cluster whose metadata names this node only, as the controller."""
    async with FakeBroker().running() as fake, office(*lines, brokers={1: fake, 2: fake}) as one:
        fake.metadata = metadata_of((1000, one.port))
        yield one


# -- librdkafka ------------------------------------------------------------------------------


async def done(futures: dict[Any, Any]) -> list[Any]:
    return [await asyncio.to_thread(future.result, 15) for future in futures.values()]


async def test_librdkafka_creates_grows_and_deletes_topics() -> None:
    async with node("old-0: 1*,2", "old-1: 2*,1") as one:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{one.port}"})
        listed = await asyncio.to_thread(admin.list_topics, None, 15)
        assert (list(listed.brokers), listed.controller_id) == ([1000], 1000)
        await done(
            admin.create_topics([NewLibrdkafkaTopic("t", 2, 2, config={"retention.ms": "9"})])
        )
        assert one.world.zk.configs["t"] == {"retention.ms": "9"}
        await done(admin.create_partitions([NewPartitions("t", 3)]))
        assert len(one.world.cluster.topics["t"].partitions) == 3
        await done(admin.delete_topics(["t", "old"]))
        one.world.settle()
        assert one.world.zk.topics == {}


async def test_librdkafka_is_told_what_is_wrong() -> None:
    async with node("old-0: 1*,2") as one:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{one.port}"})
        for topic, name in (
            (NewLibrdkafkaTopic("old", 1, 1), "TOPIC_ALREADY_EXISTS"),
            (NewLibrdkafkaTopic("t", 1, 9), "INVALID_REPLICATION_FACTOR"),
            (NewLibrdkafkaTopic("t", 1, 1, config={"no": "1"}), "INVALID_CONFIG"),
        ):
            (future,) = admin.create_topics([topic]).values()
            with pytest.raises(Exception, match=name) as caught:
                await asyncio.to_thread(future.result, 15)
            assert caught.value.args[0].name() == name


async def test_librdkafka_asks_this_node_for_itself() -> None:
    async with node("t-0: 1,2*", "t-1: 1*,2") as one:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{one.port}"})
        (configs,) = await done(
            admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1000")])
        )
        assert configs["broker.id"].value == "1000"
        groups = await asyncio.to_thread(admin.list_consumer_groups().result, 15)
        assert (groups.valid, groups.errors) == ([], [])


# -- aiokafka --------------------------------------------------------------------------------


async def test_aiokafka_creates_and_deletes_topics() -> None:
    async with node() as one:
        admin = AIOKafkaAdminClient(bootstrap_servers=f"127.0.0.1:{one.port}")
        await admin.start()
        try:
            answer = await admin.create_topics([NewTopic("t", 2, 2)])
            assert [error[1] for error in answer.topic_errors] == [0]
            assert len(one.world.cluster.topics["t"].partitions) == 2
            answer = await admin.delete_topics(["t"])
            assert [code for _, code in answer.topic_error_codes] == [0]
        finally:
            await admin.close()
        one.world.settle()
        assert one.world.zk.topics == {}


# -- kio -------------------------------------------------------------------------------------


def kio_module(api: str, version: int, direction: str) -> Any:
    package = re.sub(r"(?<!^)(?=[A-Z])", "_", api).lower()
    return importlib.import_module(f"kio.schema.{package}.v{version}.{direction}")


async def exchange(one: Office, api: str, version: int, **fields: Any) -> Any:
    """A request that kio wrote; the answer as kio reads it."""
    module = kio_module(api, version, "request")
    request = getattr(module, f"{api}Request")
    built = request(**{name: _built(module, value) for name, value in fields.items()})
    header = request.__header_schema__
    names = {"request_api_key": request.__api_key__, "request_api_version": request.__version__}
    names |= {"correlation_id": 77, "client_id": "kio"}
    buffer = io.BytesIO()
    known = [field.name for field in dataclasses.fields(header)]
    entity_writer(header)(buffer, header(**{name: names[name] for name in known}))
    entity_writer(request)(buffer, built)
    async with one.client() as client:
        await client.write(framed(buffer.getvalue()))
        frame = await client.frame()
    assert frame is not None
    response = getattr(kio_module(api, version, "response"), f"{api}Response")
    return read_all(frame, response)


def read_all(frame: bytes, response: Any) -> Any:
    view = memoryview(frame)
    header, size = entity_reader(response.__header_schema__)(view, 0)
    assert header.correlation_id == 77
    body, more = entity_reader(response)(view, size)
    assert size + more == len(frame), "bytes are left"
    return body


def _built(module: Any, value: Any) -> Any:
    """`("CreatableTopic", {...})` stands for an instance of that class of the module."""
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict):
        known = [field.name for field in dataclasses.fields(getattr(module, value[0]))]
        fields = {n: _built(module, v) for n, v in value[1].items() if n in known}
        return getattr(module, value[0])(**fields)
    if isinstance(value, tuple):
        return tuple(_built(module, item) for item in value)
    return value


SECONDS = dt.timedelta(seconds=5)


@pytest.mark.parametrize("version", range(8))
async def test_create_topics_by_kio(version: int) -> None:
    async with office(others=(1, 2)) as one:
        topic = {"name": "t", "num_partitions": 2, "replication_factor": 2}
        topic |= {"assignments": (), "configs": ()}
        more = {"validate_only": False} if version >= 1 else {}
        answer = await exchange(
            one,
            "CreateTopics",
            version,
            topics=(("CreatableTopic", topic),),
            timeout=SECONDS,
            **more,
        )
        (result,) = answer.topics
        assert (result.name, result.error_code) == ("t", 0)
        assert TopicPartition("t", 1) in one.world.cluster.rows


@pytest.mark.parametrize("version", range(7))
async def test_delete_topics_by_kio(version: int) -> None:
    async with office("t-0: 1*,2") as one:
        raw = uuid.UUID(bytes=topic_id_to_bytes(topic_id("t")))
        named = {"topic_names": ("t",)}
        by_id = {"topics": (("DeleteTopicState", {"name": None, "topic_id": raw}),)}
        answer = await exchange(
            one, "DeleteTopics", version, timeout=SECONDS, **(named if version < 6 else by_id)
        )
        assert [(r.name, r.error_code) for r in answer.responses] == [("t", 0)]
        assert "t" in one.world.zk.deletions
        one.world.settle()


@pytest.mark.parametrize("version", range(4))
async def test_alter_partition_by_kio(version: int) -> None:
    async with office("t-0: 1*,2 epoch=5") as one:
        state = ("BrokerState", {"broker_id": 1, "broker_epoch": -1})
        partition = {
            "partition_index": 0,
            "leader_epoch": 5,
            "new_isr": (1,),
            "new_isr_with_epochs": (state,),
            "leader_recovery_state": 0,
            "partition_epoch": 5,
        }
        topic = {
            "topic_name": "t",
            "topic_id": uuid.UUID(bytes=topic_id_to_bytes(topic_id("t"))),
            "partitions": (("PartitionData", partition),),
        }
        answer = await exchange(
            one,
            "AlterPartition",
            version,
            broker_id=1,
            broker_epoch=101,
            topics=(("TopicData", topic),),
        )
        (found,) = answer.topics[0].partitions
        assert (found.error_code, found.isr, found.partition_epoch) == (0, (1,), 6)


@pytest.mark.parametrize("version", range(4))
async def test_controlled_shutdown_by_kio(version: int) -> None:
    async with office("t-0: 1*,2") as one:
        more = {"broker_epoch": 101} if version >= 2 else {}
        answer = await exchange(one, "ControlledShutdown", version, broker_id=1, **more)
        assert (answer.error_code, answer.remaining_partitions) == (0, ())
        assert one.world["t-0"] == "1,2* isr=2 epoch=1"


async def test_allocate_producer_ids_by_kio() -> None:
    async with office(others=(1,)) as one:
        answer = await exchange(one, "AllocateProducerIds", 0, broker_id=1, broker_epoch=101)
        assert (answer.error_code, answer.producer_id_start, answer.producer_id_len) == (0, 0, 1000)


@pytest.mark.parametrize("version", [0, 1])
async def test_list_transactions_by_kio(version: int) -> None:
    async with office(others=(1,)) as one:
        more = {"duration_filter": -1} if version >= 1 else {}
        answer = await exchange(
            one, "ListTransactions", version, state_filters=(), producer_id_filters=(), **more
        )
        assert (answer.error_code, answer.transaction_states) == (0, ())


@pytest.mark.parametrize("version", range(5))
async def test_api_versions_by_kio(version: int) -> None:
    async with office(others=(1,)) as one:
        more = {"client_software_name": "kio", "client_software_version": "1"}
        answer = await exchange(one, "ApiVersions", version, **(more if version >= 3 else {}))
        assert answer.error_code == 0
        assert {19, 20, 56, 7} <= {v.api_key for v in answer.api_keys}
