"""The type table: which lake type holds which upstream type. `docs/types.md` is its page for users.

Lake types are Spark DDL in capitals: `INT`, `DECIMAL(10,2)`, `ARRAY<STRING>`. What is not in the table is STRING: the
database's own text form, lossless.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from headwater.errors import DefinitionError
from headwater.model import Column, UpstreamType

MAX_PRECISION = 38  # of a Spark DECIMAL
FREE_DECIMAL = "DECIMAL(38,18)"  # what a bare `decimal` means for a numeric that has no precision of its own

_LAKE = {
    "bool": "BOOLEAN",
    "int2": "SMALLINT",
    "int4": "INT",
    "int8": "BIGINT",
    "oid": "BIGINT",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "bytea": "BINARY",
    "date": "DATE",
    "timestamp": "TIMESTAMP_NTZ",
    "timestamptz": "TIMESTAMP",
}
_DIGITS = {"int2": 5, "int4": 10, "int8": 19, "oid": 10}
_TEXTS = frozenset({"text", "varchar", "bpchar", "name"})
# What ADBC gives exactly. Not oid (its upper half turns negative), "char" (raw bytes), uuid, json, time (other types).
_NATIVE = frozenset({"bool", "int2", "int4", "int8", "float4", "float8", "bytea", "date", "timestamp", "timestamptz"})
# Lake types that hold every value of the upstream type, beside its own, DECIMAL and STRING.
_WIDER = {
    "int2": {"INT", "BIGINT", "FLOAT", "DOUBLE"},
    "int4": {"BIGINT", "DOUBLE"},
    "float4": {"DOUBLE"},
    "timestamp": {"TIMESTAMP"},
    "timestamptz": {"TIMESTAMP_NTZ"},
}
_ARROW: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}
_SYNONYMS = {
    "bool": "BOOLEAN",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "int2": "SMALLINT",
    "integer": "INT",
    "int4": "INT",
    "long": "BIGINT",
    "int8": "BIGINT",
    "real": "FLOAT",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "double precision": "DOUBLE",
    "text": "STRING",
    "bytea": "BINARY",
    "blob": "BINARY",
    "timestamptz": "TIMESTAMP",
    "timestamp_ltz": "TIMESTAMP",
    "timestamp with time zone": "TIMESTAMP",
    "timestamp without time zone": "TIMESTAMP_NTZ",
    "datetime": "TIMESTAMP_NTZ",
}
_TEXT_NAMES = frozenset({"string", "varchar", "char", "character", "character varying", "nvarchar"})
_DECIMAL_NAMES = frozenset({"decimal", "dec", "numeric"})
_FORM = re.compile(r"([a-z_0-9 ]+?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")


def lake_type(upstream: UpstreamType) -> str:
    """The lake type that an upstream type has by default."""
    if is_array(upstream):
        return f"ARRAY<{lake_type(element_of(upstream))}>"
    if upstream.name == "numeric":
        precision, scale = numeric_size(upstream)
        return f"DECIMAL({precision},{scale})" if _is_decimal(precision, scale) else "STRING"
    if upstream.name == "bit" and _bit_length(upstream) == 1:
        return "BOOLEAN"
    return _LAKE.get(upstream.name, "STRING")


def resolve_type(upstream: UpstreamType, declared: str) -> str:
    """A declared lake type with nothing left open: a bare DECIMAL takes the upstream's own precision and scale."""
    if declared.startswith("ARRAY<") and is_array(upstream):
        return f"ARRAY<{resolve_type(element_of(upstream), declared[6:-1])}>"
    if declared != "DECIMAL":
        return declared
    own = lake_type(upstream)
    if own.startswith("DECIMAL"):
        return own
    return f"DECIMAL({_DIGITS[upstream.name]},0)" if upstream.name in _DIGITS else FREE_DECIMAL


def can_hold(upstream: UpstreamType, declared: str) -> bool:
    """Whether a column may be declared so: every value fits, or (numeric without a usable size) may fit."""
    declared = resolve_type(upstream, declared)
    own = lake_type(upstream)
    if declared in (own, "STRING"):
        return True
    if own.startswith("ARRAY<"):
        return declared.startswith("ARRAY<") and can_hold(element_of(upstream), declared[6:-1])
    size = decimal_size(declared)
    if size is None:
        return declared in _WIDER.get(upstream.name, ())
    whole = size[0] - size[1]
    if upstream.name in _DIGITS:
        return whole >= _DIGITS[upstream.name]
    if upstream.name != "numeric":
        return False
    own_size = decimal_size(own)
    return own_size is None or (size[1] >= own_size[1] and whole >= own_size[0] - own_size[1])


def normalise_type(text: str) -> str:
    """A type as a user writes it, in Spark's DDL. A bare `decimal` stays `DECIMAL`: see `resolve_type`."""
    plain = " ".join(text.lower().split())
    if plain.endswith("[]"):
        return f"ARRAY<{normalise_type(plain[:-2])}>"
    if plain.startswith("array<") and plain.endswith(">"):
        return f"ARRAY<{normalise_type(plain[6:-1])}>"
    match = _FORM.fullmatch(plain)
    if match is None:
        raise _no_type(text)
    name, first, second = match.groups()
    if name in _TEXT_NAMES and second is None:
        return "STRING"
    if name in _DECIMAL_NAMES:
        if first is None:
            return "DECIMAL"
        precision, scale = int(first), int(second or 0)
        if not _is_decimal(precision, scale):
            raise _no_type(text)
        return f"DECIMAL({precision},{scale})"
    known = _SYNONYMS.get(name, name.upper())
    if first is not None or known not in _ARROW:
        raise _no_type(text)
    return known


def arrow_type(lake: str) -> pa.DataType:
    """The Arrow type of a lake type."""
    if lake.startswith("ARRAY<"):
        return pa.list_(arrow_type(lake[6:-1]))
    size = decimal_size(lake)
    return pa.decimal128(*size) if size else _ARROW[lake]


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """The relation's columns in Arrow. All may be NULL: a value that cannot be kept is, whatever the upstream says."""
    return pa.schema([pa.field(c.name, arrow_type(c.lake_type)) for c in columns])


def scans_as_text(upstream: UpstreamType, lake: str | None = None) -> bool:
    """Whether a scan must select the database's text form, because ADBC does not give the lake's value itself."""
    if upstream.name in _TEXTS:
        return False
    return upstream.name not in _NATIVE or lake == "STRING"


def is_array(upstream: UpstreamType) -> bool:
    """Whether it becomes an ARRAY: declared with one dimension, of elements that a comma separates."""
    return upstream.name.startswith("_") and upstream.name != "_box" and upstream.dimensions <= 1


def element_of(upstream: UpstreamType) -> UpstreamType:
    """The type of an array's elements."""
    return replace(upstream, name=upstream.name[1:], oid=0, dimensions=0)


def numeric_size(upstream: UpstreamType) -> tuple[int, int]:
    """Precision and scale of a numeric; (0, 0) if it has none."""
    if upstream.precision is not None:
        return upstream.precision, upstream.scale or 0
    if upstream.modifier < 4:
        return 0, 0
    packed = upstream.modifier - 4
    return packed >> 16 & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024  # the scale is an 11-bit signed number


def decimal_size(lake: str) -> tuple[int, int] | None:
    """Precision and scale of a lake DECIMAL, None for any other type."""
    match = _DECIMAL.fullmatch(lake)
    return (int(match[1]), int(match[2])) if match else None


def _is_decimal(precision: int, scale: int) -> bool:
    return 1 <= precision <= MAX_PRECISION and 0 <= scale <= precision


def _bit_length(upstream: UpstreamType) -> int:
    return upstream.length if upstream.length is not None else upstream.modifier


def _no_type(text: str) -> DefinitionError:
    return DefinitionError(
        "table.column_type",
        f"{text!r} is not a type of the lake",
        "Use BOOLEAN, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p,s) with p up to 38, STRING, BINARY, DATE, "
        "TIMESTAMP, TIMESTAMP_NTZ or ARRAY<…> of these.",
    )
