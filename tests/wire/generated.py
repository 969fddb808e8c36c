"""Messages made from a seed, for any version of any API."""

import random
from collections.abc import Iterator
from typing import Any

from kio.schema.errors import ErrorCode

from kctl.wire import apis
from kctl.wire.primitives import NULL_UUID
from kctl.wire.schema import Field, Primitive, Struct, fields_of

EDGES = {
    "int8": (-128, -1, 0, 1, 127),
    "int16": (-32768, -1, 0, 1, 32767),
    "int32": (-(2**31), -1, 0, 1, 127, 128, 2**31 - 1),
    "int64": (-(2**63), -1, 0, 1, 2**40, 2**63 - 1),
}
TEXTS = ("", "t", "orders", "Straße", "日本語", "x" * 126, "y" * 127, "z" * 300)
ERROR_CODES = tuple(code.value for code in ErrorCode)
MESSAGES = [
    (cls, version)
    for api in apis.APIS.values()
    for cls in (api.request, api.response)
    for version in range(api.first, api.last + 1)
]
NAMES = [f"{cls.__name__}-v{version}" for cls, version in MESSAGES]


def messages(cls: type[Struct], version: int, count: int) -> Iterator[Struct]:
    chance = random.Random(f"{cls.__name__} {version}")
    for _ in range(count):
        yield message(cls, version, chance)


def message(cls: type[Struct], version: int, chance: random.Random) -> Struct:
    """Fields that the version does not have keep their default, so that it comes back equal."""
    values: dict[str, Any] = {
        field.name: _field(field, version, chance)
        for field in fields_of(cls)
        if version in field.versions
    }
    return cls(**values)


def _field(field: Field, version: int, chance: random.Random) -> object:
    if field.is_nullable(version) and chance.random() < 0.25:
        return None
    if field.tag is not None and chance.random() < 0.4:
        return field.default
    if field.array:
        length = chance.choice((0, 1, 2, 3, 3, 5))
        if isinstance(field.kind, Primitive) and chance.random() < 0.05:
            length = 130  # its length needs two bytes as a varint
        return tuple(_value(field, version, chance) for _ in range(length))
    return _value(field, version, chance)


def _value(field: Field, version: int, chance: random.Random) -> object:
    kind = field.kind
    if not isinstance(kind, Primitive):
        return message(kind, version, chance)
    if field.name.endswith("error_code"):
        return chance.choice(ERROR_CODES)
    if field.name.endswith("_ms"):
        return chance.choice((0, 1, 2**31 - 1))  # kio takes them for durations
    match kind.name:
        case "bool":
            return chance.random() < 0.5
        case "uuid":
            return NULL_UUID if chance.random() < 0.3 else chance.randbytes(16)
        case "string":
            return chance.choice(TEXTS)
        case "bytes":
            return chance.randbytes(chance.choice((0, 1, 16, 200)))
        case name:
            return chance.choice(EDGES[name])
