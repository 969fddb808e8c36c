"""Events, replies and settings as plain JSON values, and back.

The values of the core are frozen classes of a few kinds; each is written with its class's name and
its fields in order. Nothing but the classes registered here is ever made when reading.
"""

from enum import Enum
from typing import Any

import attrs
import msgspec

from kctl.messages import effects, events
from kctl.model import brokers, codes, rows, secrets, settings
from kctl.model.names import TopicPartition

LARGEST_PLAIN_INT = 2**53


def _classes() -> dict[str, type[Any]]:
    found: dict[str, type[Any]] = {"TopicPartition": TopicPartition}
    for module in (effects, events, brokers, codes, rows, secrets, settings):
        found |= {
            name: value
            for name, value in vars(module).items()
            if isinstance(value, type)
            and value.__module__.startswith("kctl.")
            and (attrs.has(value) or issubclass(value, Enum | msgspec.Struct))
        }
    return found


CLASSES = _classes()


def pack(value: object) -> Any:
    match value:
        case Enum():
            return {"c": type(value).__name__, "n": value.name}
        case bool() | str() | float() | None:
            return value
        case int():
            return value if abs(value) < LARGEST_PLAIN_INT else {"i": hex(value)}
        case TopicPartition(topic, partition):
            return {"c": "TopicPartition", "f": [topic, partition]}
        case tuple() | list():
            return [pack(item) for item in value]
        case dict():
            return {"d": [[pack(k), pack(v)] for k, v in value.items()]}
        case msgspec.Struct():
            fields = [pack(getattr(value, name)) for name in value.__struct_fields__]
            return {"c": type(value).__name__, "f": fields}
        case secrets.Secret():
            # The core decides nothing by it, so a replay does without.
            return {"c": "Secret", "f": []}
    cls: type[Any] = type(value)
    if attrs.has(cls):
        return {
            "c": cls.__name__,
            "f": [pack(getattr(value, field.name)) for field in attrs.fields(cls)],
        }
    raise TypeError(f"{value!r} has no place in a journal")


def unpack(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(unpack(item) for item in value)
    if not isinstance(value, dict):
        return value
    if "d" in value:
        return {unpack(k): unpack(v) for k, v in value["d"]}
    if "i" in value:
        return int(value["i"], 16)
    cls = CLASSES[value["c"]]
    return cls[value["n"]] if "n" in value else cls(*(unpack(field) for field in value["f"]))
