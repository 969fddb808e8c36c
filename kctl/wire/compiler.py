"""Makes an encoder and a decoder for one version of a message, as source text that is run once.

What is decided here is decided once and not for each message: which fields the version has, how
their lengths are written, which of them stand side by side and fit one `struct` format. The
decoder checks each length and count against the bytes that are left before it allocates anything,
and leaves plain overruns to `struct` and to indexing, whose errors `decode` turns into WireError.
"""

import struct
from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar

import attrs

from kctl.wire.primitives import (
    PackedInts,
    WireError,
    check_uuid,
    long_uvarint,
    read_uvarint,
    uvarint,
)
from kctl.wire.schema import Field, Primitive, Struct, fields_of

S = TypeVar("S", bound=Struct)

Encode = Callable[[Struct, bytearray], None]
Decode = Callable[[bytes, int, int], tuple[Any, int]]
"""Of (data, position, length of the data) gives (value, position after it)."""


@attrs.frozen
class Codec:
    encode: Encode
    decode: Decode
    size_min: int
    """No encoding is shorter: bounds how many elements can follow a count."""


def refuse(name: str, pos: int, why: str) -> NoReturn:
    raise WireError(f"{name} at byte {pos}: {why}")


def tag_section(parts: list[tuple[int, bytes]]) -> bytes:
    out = bytearray(uvarint(len(parts)))
    for number, data in parts:
        out += uvarint(number)
        out += uvarint(len(data))
        out += data
    return bytes(out)


def skip_tags(data: bytes, pos: int, size: int, count: int) -> int:
    """Past so many tagged fields, none of which is known here."""
    if count * 2 > size - pos:
        refuse("tagged fields", pos, f"{count} of them in {size - pos} bytes")
    for _ in range(count):
        _number, pos = read_uvarint(data, pos)
        length, pos = read_uvarint(data, pos)
        if length > size - pos:
            refuse("tagged field", pos, f"{length} bytes in {size - pos}")
        pos += length
    return pos


_ARRAYS = {code: PackedInts(code) for code in ("b", "h", "i", "q", "?")}
_SHORT = struct.Struct(">h")
_INT = struct.Struct(">i")


class _Source:
    """Lines of a function under construction, and the names that they use."""

    def __init__(self, version: int, *, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.indent = 1
        self.names: dict[str, object] = {
            "uvarint": uvarint,
            "long_uvarint": long_uvarint,
            "read_uvarint": read_uvarint,
            "skip_tags": skip_tags,
            "tag_section": tag_section,
            "refuse": refuse,
            "uuid": check_uuid,
            "short": _SHORT,
            "int4": _INT,
            **{f"array_{'bool' if c == '?' else c}": a for c, a in _ARRAYS.items()},
        }

    def add(self, *lines: str) -> None:
        self.lines.extend("    " * self.indent + line for line in lines)

    def name(self, value: object, stem: str) -> str:
        name = f"{stem}_{len(self.names)}"
        self.names[name] = value
        return name

    def function(self, signature: str) -> Any:
        text = f"def {signature}:\n" + "\n".join(self.lines or ["    pass"])
        exec(text, self.names)  # noqa: S102  made of our own schemas, never of input
        return self.names[signature.partition("(")[0]]


_CODECS: dict[tuple[type[Struct], int, bool], Codec] = {}
"""A part that two APIs share may be flexible in one of them only, at the same version."""


def codec(cls: type[Struct], version: int, *, flexible: bool) -> Codec:
    found = _CODECS.get((cls, version, flexible))
    if found is None:
        found = _CODECS[cls, version, flexible] = _compile(cls, version, flexible=flexible)
    return found


def _compile(cls: type[Struct], version: int, *, flexible: bool) -> Codec:
    fields = [f for f in fields_of(cls) if version in f.versions]
    plain = [f for f in fields if f.tag is None or not flexible]
    tagged = sorted((f for f in fields if f not in plain), key=lambda f: f.tag or 0)
    return Codec(
        _encoder(version, plain, tagged, flexible=flexible),
        _decoder(cls, version, plain, tagged, flexible=flexible),
        sum(_size_min(f, version, flexible=flexible) for f in plain) + flexible,
    )


def _size_min(field: Field, version: int, *, flexible: bool) -> int:
    if field.array:
        return 1 if flexible else 4
    if isinstance(field.kind, Primitive):
        if field.kind.code is not None:
            return field.kind.size
        return 1 if flexible else (2 if field.kind.name == "string" else 4)
    return codec(field.kind, version, flexible=flexible).size_min


def _is_fixed(field: Field) -> bool:
    return not field.array and isinstance(field.kind, Primitive) and field.kind.code is not None


def _runs(fields: Iterable[Field]) -> Iterable[list[Field]]:
    """Neighbours of fixed size together, the others alone."""
    run: list[Field] = []
    for field in fields:
        if _is_fixed(field):
            run.append(field)
            continue
        if run:
            yield run
        yield [field]
        run = []
    if run:
        yield run


def _packed(run: list[Field]) -> struct.Struct:
    return struct.Struct(
        ">" + "".join(f.kind.code or "" for f in run if not isinstance(f.kind, type))
    )


# -- encoding --------------------------------------------------------------------------------


def _encoder(version: int, plain: list[Field], tagged: list[Field], *, flexible: bool) -> Encode:
    source = _Source(version, flexible=flexible)
    for run in _runs(plain):
        if _is_fixed(run[0]):
            values = ", ".join(
                f"uuid(m.{f.name})"
                if isinstance(f.kind, Primitive) and f.kind.name == "uuid"
                else f"m.{f.name}"
                for f in run
            )
            source.add(f"out += {source.name(_packed(run).pack, 'pack')}({values})")
        else:
            source.add(f"v = m.{run[0].name}")
            _encode_value(source, run[0])
    if flexible and tagged:
        source.add("whole = out", "tags = []")
        for field in tagged:
            source.add(
                f"v = m.{field.name}",
                f"if v != {source.name(field.default, 'default')}:",
                "    out = bytearray()",
            )
            source.indent += 1
            if _is_fixed(field):
                source.add(f"out += {source.name(_packed([field]).pack, 'pack')}(v)")
            else:
                _encode_value(source, field)
            source.add(f"tags.append(({field.tag}, out))")
            source.indent -= 1
        source.add("whole += tag_section(tags)")
    elif flexible:
        source.add(r"out += b'\0'")
    function: Encode = source.function("encode(m, out)")
    return function


def _encode_value(source: _Source, field: Field) -> None:
    """`v` is to be written: a string, bytes, a struct or an array."""
    nullable = field.is_nullable(source.version)
    text = isinstance(field.kind, Primitive) and not field.array
    source.add("if v is None:")
    if nullable:
        is_string = isinstance(field.kind, Primitive) and field.kind.name == "string"
        short = is_string and not field.array
        null = b"\0" if source.flexible else (b"\xff\xff" if short else b"\xff\xff\xff\xff")
        source.add(f"    out += {null!r}", "else:")
        source.indent += 1
    else:
        source.add(f"    refuse({field.name!r}, len(out), 'null where a value is needed')")
    if text:
        _encode_text(source, field.kind)
    elif field.array:
        _encode_array(source, field.kind)
    else:
        assert isinstance(field.kind, type)
        source.add(f"{_part(source, field.kind).encode_name}(v, out)")
    if nullable:
        source.indent -= 1


def _encode_text(source: _Source, kind: object) -> None:
    assert isinstance(kind, Primitive)
    if kind.name == "string":
        source.add("v = v.encode()")
    if source.flexible:
        source.add("out += uvarint(len(v) + 1)", "out += v")
    else:
        source.add(
            f"out += {'short' if kind.name == 'string' else 'int4'}.pack(len(v))", "out += v"
        )


def _encode_array(source: _Source, kind: Primitive | type[Struct]) -> None:
    source.add("out += uvarint(len(v) + 1)" if source.flexible else "out += int4.pack(len(v))")
    if isinstance(kind, Primitive):
        if kind.code in _ARRAYS:
            source.add(f"out += {_array_name(kind)}[len(v)].pack(*v)")
            return
        source.add("for v in v:")
        source.indent += 1
        if kind.name == "uuid":
            source.add("out += uuid(v)")
        else:
            _encode_text(source, kind)
        source.indent -= 1
    else:
        source.add("for e in v:", f"    {_part(source, kind).encode_name}(e, out)")


def _array_name(kind: Primitive) -> str:
    return f"array_{'bool' if kind.code == '?' else kind.code}"


@attrs.frozen
class _Part:
    encode_name: str
    decode_name: str
    size_min: int


def _part(source: _Source, kind: type[Struct]) -> _Part:
    part = codec(kind, source.version, flexible=source.flexible)
    return _Part(
        source.name(part.encode, "encode"), source.name(part.decode, "decode"), part.size_min
    )


# -- decoding --------------------------------------------------------------------------------


def _decoder(
    cls: type[Struct], version: int, plain: list[Field], tagged: list[Field], *, flexible: bool
) -> Decode:
    source = _Source(version, flexible=flexible)
    for run in _runs(plain):
        if _is_fixed(run[0]):
            packed = _packed(run)
            targets = ", ".join(f"f_{f.name}" for f in run)
            unpack = source.name(packed.unpack_from, "unpack")
            source.add(f"{targets}, = {unpack}(data, pos)", f"pos += {packed.size}")
        else:
            _decode_value(source, run[0], f"f_{run[0].name}")
    if flexible:
        _decode_tags(source, tagged)
    present = {f.name for f in (*plain, *tagged)}
    values = ", ".join(
        f"f_{f.name}" if f.name in present else source.name(f.default, "default")
        for f in fields_of(cls)
    )
    source.add(f"return {source.name(cls, 'cls')}({values}), pos")
    function: Decode = source.function("decode(data, pos, size)")
    return function


def _decode_tags(source: _Source, tagged: list[Field]) -> None:
    for field in tagged:
        source.add(f"f_{field.name} = {source.name(field.default, 'default')}")
    source.add("n = data[pos]", "pos += 1", "if n:")
    source.indent += 1
    source.add("if n > 127: n, pos = long_uvarint(data, pos, n)")
    if not tagged:
        source.add("pos = skip_tags(data, pos, size, n)")
        source.indent -= 1
        return
    source.add("if n * 2 > size - pos: refuse('tagged fields', pos, f'{n} in {size - pos} bytes')")
    source.add("for _ in range(n):")
    source.indent += 1
    source.add("tag, pos = read_uvarint(data, pos)", "length, pos = read_uvarint(data, pos)")
    source.add("if length > size - pos: refuse('tagged field', pos, f'{length} bytes')")
    source.add("tag_end = pos + length")
    for i, field in enumerate(tagged):
        source.add(f"{'el' if i else ''}if tag == {field.tag}:")
        source.indent += 1
        if _is_fixed(field):
            unpack = source.name(_packed([field]).unpack_from, "unpack")
            source.add(f"f_{field.name}, = {unpack}(data, pos)")
            source.add(f"pos += {_packed([field]).size}")
        else:
            _decode_value(source, field, f"f_{field.name}")
        source.add(
            f"if pos != tag_end: refuse({field.name!r}, pos, f'not the {{length}} bytes announced')"
        )
        source.indent -= 1
    source.add("else: pos = tag_end")
    source.indent -= 2


def _decode_value(source: _Source, field: Field, target: str) -> None:
    if not field.array and isinstance(field.kind, type):
        source.add(f"{target}, pos = {_part(source, field.kind).decode_name}(data, pos, size)")
        return
    short = not field.array and isinstance(field.kind, Primitive) and field.kind.name == "string"
    if source.flexible:
        source.add("n = data[pos] - 1", "pos += 1")
        source.add("if n > 126: n, pos = long_uvarint(data, pos, n + 1); n -= 1")
    else:
        source.add(f"n, = {'short' if short else 'int4'}.unpack_from(data, pos)")
        source.add(f"pos += {2 if short else 4}")
    source.add("if n < 0:")
    if field.is_nullable(source.version):
        source.add(
            f"    if n < -1: refuse({field.name!r}, pos, f'length {{n}}')", f"    {target} = None"
        )
    else:
        source.add(f"    refuse({field.name!r}, pos, f'length {{n}}')")
    if isinstance(field.kind, Primitive):
        element_size = field.kind.size or (1 if source.flexible else 2)
    else:
        element_size = _part(source, field.kind).size_min
    unit = element_size if field.array else 1
    source.add(
        f"elif n * {unit} > size - pos: "
        f"refuse({field.name!r}, pos, f'{{n}} announced, {{size - pos}} bytes left')",
        "else:",
    )
    source.indent += 1
    if field.array:
        _decode_elements(source, field, target)
    else:
        source.add("stop = pos + n")
        text = ".decode()" if short else ""
        source.add(f"{target} = data[pos:stop]{text}", "pos = stop")
    source.indent -= 1


def _decode_elements(source: _Source, field: Field, target: str) -> None:
    kind = field.kind
    if isinstance(kind, Primitive) and kind.code in _ARRAYS:
        source.add(f"{target} = {_array_name(kind)}[n].unpack_from(data, pos) if n else ()")
        source.add(f"pos += n * {kind.size}")
        return
    elements = f"{target}_elements"
    source.add(f"{elements} = []", "for _ in range(n):")
    source.indent += 1
    if isinstance(kind, type):
        source.add(f"e, pos = {_part(source, kind).decode_name}(data, pos, size)")
    elif kind.name == "uuid":
        source.add("e = data[pos:pos + 16]", "pos += 16")
    else:
        element = attrs.evolve(field, array=False, nullable=None)
        _decode_value(source, element, "e")
    source.add(f"{elements}.append(e)")
    source.indent -= 1
    source.add(f"{target} = tuple({elements})")


# -- whole messages --------------------------------------------------------------------------


def encode_with(codec: Codec, message: Struct, out: bytearray) -> None:
    try:
        codec.encode(message, out)
    except (struct.error, UnicodeEncodeError) as problem:
        raise WireError(f"{type(message).__name__}: {problem}") from problem


def decode_with(codec: Codec, cls: type[S], data: bytes, pos: int) -> S:
    """All the bytes from here on are one message."""
    try:
        message, end = codec.decode(data, pos, len(data))
    except WireError as problem:
        raise WireError(f"{cls.__name__}: {problem}") from None
    except (struct.error, IndexError) as problem:
        raise WireError(f"{cls.__name__}: ends too early, {len(data)} bytes") from problem
    except UnicodeDecodeError as problem:
        raise WireError(f"{cls.__name__}: {problem}") from problem
    if end != len(data):
        raise WireError(f"{cls.__name__}: {len(data) - end} bytes too many after byte {end}")
    assert isinstance(message, cls)
    return message
