"""How a message is written down: a struct whose annotations say how each field travels.

    class DeletableTopicResult(Struct):
        name: Annotated[String | None, nullable_since(6)] = ""
        topic_id: Annotated[Uuid, since(6)] = NULL_UUID
        error_code: Int16 = 0

Fields stand in the order of the wire. Every field has a default: it is what a reader finds where
the version does not carry the field, and what is left out where the field is tagged. A writer
leaves out what the version cannot carry.
"""

from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import attrs
import msgspec

LATEST = 32767


if TYPE_CHECKING:
    # msgspec hands `frozen` down to subclasses; type checkers want it said again for each.
    @dataclass_transform(frozen_default=True)
    class Struct:
        """Base of all messages and of their parts."""
else:

    class Struct(msgspec.Struct, frozen=True, gc=False):
        """Base of all messages and of their parts."""


@attrs.frozen
class Primitive:
    name: str
    code: str | None = None
    """Of the `struct` module, for those of fixed size."""
    size: int = 0


Bool = Annotated[bool, Primitive("bool", "?", 1)]
Int8 = Annotated[int, Primitive("int8", "b", 1)]
Int16 = Annotated[int, Primitive("int16", "h", 2)]
Int32 = Annotated[int, Primitive("int32", "i", 4)]
Int64 = Annotated[int, Primitive("int64", "q", 8)]
Uuid = Annotated[bytes, Primitive("uuid", "16s", 16)]
String = Annotated[str, Primitive("string")]
Bytes = Annotated[bytes, Primitive("bytes")]


@attrs.frozen
class Versions:
    first: int = 0
    last: int = LATEST

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


@attrs.frozen
class NullableSince:
    version: int


@attrs.frozen
class Tag:
    number: int


def since(version: int) -> Versions:
    return Versions(first=version)


def until(version: int) -> Versions:
    return Versions(last=version)


def versions(first: int, last: int) -> Versions:
    return Versions(first, last)


def nullable_since(version: int) -> NullableSince:
    return NullableSince(version)


def tagged(number: int) -> Tag:
    return Tag(number)


@attrs.frozen
class Field:
    name: str
    kind: Primitive | type[Struct]
    """Of the field, or of its elements when it is an array."""
    array: bool
    versions: Versions
    nullable: Versions | None
    tag: int | None
    default: object

    def is_nullable(self, version: int) -> bool:
        return self.nullable is not None and version in self.nullable


def fields_of(cls: type[Struct]) -> tuple[Field, ...]:
    hints = get_type_hints(cls, include_extras=True)
    return tuple(
        _field(cls, info.name, hints[info.name], info.default)
        for info in msgspec.structs.fields(cast(type[msgspec.Struct], cls))
    )


def _field(cls: type[Struct], name: str, hint: object, default: object) -> Field:
    if default is msgspec.NODEFAULT:
        raise TypeError(f"{cls.__name__}.{name} has no default")
    held = Versions()
    nullable_from: int | None = None
    tag: int | None = None
    primitive: Primitive | None = None
    array = False
    nullable = False
    while True:
        origin = get_origin(hint)
        if origin is Annotated:
            hint, *marks = get_args(hint)
            for mark in marks:
                match mark:
                    case Versions():
                        held = mark
                    case NullableSince(version=version):
                        nullable_from = version
                    case Tag(number=number):
                        tag = number
                    case Primitive():
                        primitive = mark
        elif origin in (Union, UnionType):
            hint = next(arg for arg in get_args(hint) if arg is not NoneType)
            nullable = True
        elif origin is tuple:
            hint = get_args(hint)[0]
            array = True
        else:
            break
    kind: Primitive | type[Struct]
    if primitive is not None:
        kind = primitive
    elif isinstance(hint, type) and issubclass(hint, Struct):
        kind = hint
    else:
        raise TypeError(f"{cls.__name__}.{name}: {hint!r} is nothing that the wire knows")
    return Field(
        name,
        kind,
        array,
        held,
        Versions(first=nullable_from or 0) if nullable else None,
        tag,
        default,
    )
