"""A data set on disk: a folder of tables and, written last, the manifest that says what they are.

Without its manifest a folder is not a data set, and nobody reads it as one.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs
import msgspec

from kctl.bench.shapes import ImpossibleShape, Shape
from kctl.bench.tables import DATA_SET, SCHEMA_VERSION

MANIFEST: Final = "_manifest.json"


class NotADataSet(Exception):
    """There is no data set here, or not one that this kctl can read."""


class TableContent(msgspec.Struct, frozen=True):
    rows: int
    hash: str
    """Sum of the rows' hashes: it does not depend on their order."""


class Manifest(msgspec.Struct, frozen=True):
    schema_version: int
    seed: int
    shape: Mapping[str, object]
    tables: Mapping[str, TableContent]
    content_hash: str

    @property
    def preset(self) -> str:
        return str(self.shape["name"])


def manifest_of(of: Shape, seed: int, tables: Mapping[str, TableContent]) -> Manifest:
    listing = "".join(
        f"{name} {tables[name].rows} {tables[name].hash}\n" for name in sorted(tables)
    )
    digest = hashlib.blake2b(listing.encode(), digest_size=16).hexdigest()
    return Manifest(SCHEMA_VERSION, seed, attrs.asdict(of), tables, digest)


def encode_manifest(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def decode_manifest(data: bytes, where: str) -> Manifest:
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except ValueError as error:
        raise NotADataSet(f"{where} is not the manifest of a data set: {error}") from None
    if manifest.schema_version != SCHEMA_VERSION:
        raise NotADataSet(
            f"{where} has schema version {manifest.schema_version}, this kctl reads {SCHEMA_VERSION}"
        )
    if set(manifest.tables) != set(DATA_SET):
        raise NotADataSet(f"{where} does not name the tables {', '.join(DATA_SET)}")
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """Of a data set in the local file system."""
    at = folder / MANIFEST
    if not at.is_file():
        raise NotADataSet(
            f"{folder} is not a data set: {MANIFEST}, which is written last, is not there"
        )
    return decode_manifest(at.read_bytes(), str(at))


def shape_of(manifest: Manifest) -> Shape:
    """The shape, for making the same again."""
    fields = {field.name for field in attrs.fields(Shape)}
    values = dict(manifest.shape)
    if set(values) != fields:
        odd = ", ".join(sorted(set(values) ^ fields))
        raise NotADataSet(f"the manifest's shape has too much or too little: {odd}")
    try:
        return msgspec.convert(values, Shape)
    except (msgspec.ValidationError, ImpossibleShape) as error:
        raise NotADataSet(f"the manifest's shape cannot be used: {error}") from None
