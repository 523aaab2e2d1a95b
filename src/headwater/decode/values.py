"""The lake's types: as users write them, as Arrow has them, and which of them holds an upstream's type.

Lake types are Spark DDL in upper case: `INT`, `DECIMAL(10,2)`, `ARRAY<STRING>`, ``STRUCT<`a b`: INT>``. `docs/types.md`
documents those that tables have.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from headwater.decode.dialects import dialect_of
from headwater.errors import DefinitionError
from headwater.model import Column, UpstreamType

MAX_PRECISION = 38  # of a Spark DECIMAL


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
_FIELD = re.compile(r"`((?:[^`]|``)+)`\s*:\s*(.*)|([^:`]+?)\s*:\s*(.*)", re.DOTALL)
_FORM = re.compile(r"([a-z_0-9 ]+?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")


def lake_type(upstream: UpstreamType) -> str:
    """The default lake type of an upstream type."""
    return dialect_of(upstream).lake_type(upstream)


def resolve_type(upstream: UpstreamType, declared: str) -> str:
    """A fully specified lake type: a bare DECIMAL takes the upstream's own precision and scale."""
    return dialect_of(upstream).resolve_type(upstream, declared)


def can_hold(upstream: UpstreamType, declared: str) -> bool:
    """Whether a column may be declared so: every value fits, or (for a number without a usable size) may fit."""
    return dialect_of(upstream).can_hold(upstream, declared)


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
        if not is_decimal(precision, scale):
            raise _no_type(text)
        return f"DECIMAL({precision},{scale})"
    known = _SYNONYMS.get(name, name.upper())
    if first is not None or known not in _ARROW:
        raise _no_type(text)
    return known


def arrow_type(lake: str) -> pa.DataType:
    """The Arrow type of a lake type."""
    if lake.endswith(">"):
        kind, _, inner = lake[:-1].partition("<")
        parts = _split(inner)
        if kind == "ARRAY":
            return pa.list_(arrow_type(inner))
        if kind == "MAP":
            return pa.map_(*(arrow_type(part) for part in parts))
        return pa.struct([_field(part) for part in parts])
    size = decimal_size(lake)
    return pa.decimal128(*size) if size else _ARROW[lake]


def _split(inner: str) -> list[str]:
    """The parts of a nested type, which commas separate outside brackets and quotes."""
    parts, depth, quoted = [""], 0, False
    for character in inner:
        quoted ^= character == "`"
        depth += 0 if quoted else {"<": 1, "(": 1, ">": -1, ")": -1}.get(character, 0)
        if character == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def _field(text: str) -> pa.Field:
    """A field of a STRUCT, `name: TYPE`; a name that is no identifier stands in backticks."""
    match = _FIELD.fullmatch(text)
    assert match is not None, text
    quoted, of_quoted, plain, of_plain = match.groups()
    return pa.field(plain or quoted.replace("``", "`"), arrow_type(of_plain or of_quoted))


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """The relation's columns in Arrow. All are nullable: an unrepresentable value is NULL even if declared NOT NULL."""
    return pa.schema([pa.field(c.name, arrow_type(c.lake_type)) for c in columns])


def decimal_size(lake: str) -> tuple[int, int] | None:
    """Precision and scale of a lake DECIMAL, None for any other type."""
    match = _DECIMAL.fullmatch(lake)
    return (int(match[1]), int(match[2])) if match else None


def is_decimal(precision: int, scale: int) -> bool:
    """Whether Spark has such a DECIMAL."""
    return 1 <= precision <= MAX_PRECISION and 0 <= scale <= precision


def _no_type(text: str) -> DefinitionError:
    return DefinitionError(
        "table.column_type",
        f"{text!r} is not a supported lake type",
        "Use BOOLEAN, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p,s) with p up to 38, STRING, BINARY, DATE, "
        "TIMESTAMP, TIMESTAMP_NTZ or ARRAY<…> of these.",
    )
