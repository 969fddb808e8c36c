"""Every version of every message, byte for byte as kio writes it, and read back as it was."""

import dataclasses
import datetime as dt
import importlib
import io
import re
import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from kctl.wire import apis
from kctl.wire.schema import Primitive, Struct, fields_of
from tests.wire.generated import MESSAGES, NAMES, messages

SAMPLES = 15


def kio_class(cls: type[Struct], version: int) -> Any:
    api = apis.OF_MESSAGE[cls]
    package = re.sub(r"(?<!^)(?=[A-Z])", "_", api.name).lower()
    direction = "request" if cls is api.request else "response"
    module = importlib.import_module(f"kio.schema.{package}.v{version}.{direction}")
    return getattr(module, cls.__name__)


def to_kio(message: Struct, target: Any, version: int) -> Any:
    ours = [f for f in fields_of(type(message)) if version in f.versions]
    theirs = dataclasses.fields(target)
    assert [plain(f.name) for f in ours] == [plain(f.name) for f in theirs]
    types = {f.name: f.type for f in theirs}
    values = {}
    for mine, their in zip(ours, theirs, strict=True):
        value = getattr(message, mine.name)
        kafka_type = their.metadata.get("kafka_type")
        if isinstance(mine.kind, Primitive):
            if mine.array and value is not None:
                value = tuple(primitive(v, kafka_type) for v in value)
            elif value is not None:
                value = primitive(value, kafka_type)
        elif mine.array and value is not None:
            element = element_type(types[their.name])
            value = tuple(to_kio(v, element, version) for v in value)
        values[their.name] = value
    return target(**values)


def plain(name: str) -> str:
    return name.rstrip("_").removesuffix("_ms").replace("_", "")


def primitive(value: Any, kafka_type: str | None) -> Any:
    match kafka_type:
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return dt.timedelta(milliseconds=value)
        case "uuid":
            return uuid.UUID(bytes=value) if any(value) else None
        case _:
            return value


def element_type(annotation: Any) -> Any:
    """Of `tuple[X, ...]` or `tuple[X, ...] | None`."""
    options = getattr(annotation, "__args__", ())
    for option in options:
        if dataclasses.is_dataclass(option):
            return option
        found = element_type(option)
        if found is not None:
            return found
    return None


@pytest.mark.parametrize("cls, version", MESSAGES, ids=NAMES)
def test_every_version_of_every_message(cls: type[Struct], version: int) -> None:
    target = kio_class(cls, version)
    write = entity_writer(target)
    for message in messages(cls, version, SAMPLES):
        with io.BytesIO() as buffer:
            write(buffer, to_kio(message, target, version))
            expected = buffer.getvalue()
        assert apis.encode(message, version) == expected
        assert apis.decode(cls, version, expected) == message


def test_versions_and_flexible_versions_are_kio_s() -> None:
    for cls, version in MESSAGES:
        api = apis.OF_MESSAGE[cls]
        target = kio_class(cls, version)
        assert target.__api_key__ == api.key
        assert target.__flexible__ == api.is_flexible(version)
        header_version = target.__header_schema__.__version__
        if cls is api.request:
            assert header_version == api.request_header_version(version)
        else:
            assert header_version == api.response_header_version(version)
