"""The type table: which lake type holds which PostgreSQL type. Any other type is STRING: the database's own text."""

from __future__ import annotations

from dataclasses import replace

from headwater.decode.dialects import Comparable
from headwater.decode.values import decimal_size, is_decimal
from headwater.model import UpstreamType

FREE_DECIMAL = "DECIMAL(38,18)"  # what a bare `decimal` means for a numeric without a precision
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
# Types that ADBC returns exactly. Not oid (its upper half turns negative), "char" (raw bytes), uuid, json, time (other
# types).
_NATIVE = frozenset({"bool", "int2", "int4", "int8", "float4", "float8", "bytea", "date", "timestamp", "timestamptz"})
# Lake types that hold every value of the upstream type, in addition to its own, DECIMAL and STRING.
_WIDER = {
    "int2": {"INT", "BIGINT", "FLOAT", "DOUBLE"},
    "int4": {"BIGINT", "DOUBLE"},
    "float4": {"DOUBLE"},
    "timestamp": {"TIMESTAMP"},
    "timestamptz": {"TIMESTAMP_NTZ"},
}


_COMPARABLE = {
    **dict.fromkeys(("int2", "int4", "int8"), Comparable("integer", ordered=True, kept=True)),
    "numeric": Comparable("decimal", ordered=True, kept=False),
    "date": Comparable("date", ordered=True, kept=False),
    "timestamp": Comparable("timestamp", ordered=True, kept=False),
    "timestamptz": Comparable("instant", ordered=True, kept=False),
    "bool": Comparable("bool", ordered=False, kept=True),
    "uuid": Comparable("uuid", ordered=False, kept=True),
    **dict.fromkeys(("text", "varchar", "enum"), Comparable("text", ordered=False, kept=True)),
}


def comparable(upstream: UpstreamType) -> Comparable | None:
    """How a filter may compare values of the type; None: not reliably."""
    return _COMPARABLE.get(upstream.name)


def lake_type(upstream: UpstreamType) -> str:
    """The default lake type of an upstream type."""
    if is_array(upstream):
        return f"ARRAY<{lake_type(element_of(upstream))}>"
    if upstream.name == "numeric":
        precision, scale = numeric_size(upstream)
        return f"DECIMAL({precision},{scale})" if is_decimal(precision, scale) else "STRING"
    if upstream.name == "bit" and _bit_length(upstream) == 1:
        return "BOOLEAN"
    return _LAKE.get(upstream.name, "STRING")


def resolve_type(upstream: UpstreamType, declared: str) -> str:
    """A fully specified lake type: a bare DECIMAL takes the upstream's own precision and scale."""
    if declared.startswith("ARRAY<") and is_array(upstream):
        return f"ARRAY<{resolve_type(element_of(upstream), declared[6:-1])}>"
    if declared != "DECIMAL":
        return declared
    own = lake_type(upstream)
    if own.startswith("DECIMAL"):
        return own
    return f"DECIMAL({_DIGITS[upstream.name]},0)" if upstream.name in _DIGITS else FREE_DECIMAL


def can_hold(upstream: UpstreamType, declared: str) -> bool:
    """Whether a column may be declared so: every value fits, or (a numeric without a usable size) may fit."""
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


def scans_as_text(upstream: UpstreamType, lake: str | None = None) -> bool:
    """Whether a scan must select the database's text form, because ADBC does not return the lake's value itself."""
    if upstream.name in _TEXTS:
        return False
    return upstream.name not in _NATIVE or lake == "STRING"


def is_array(upstream: UpstreamType) -> bool:
    """Whether it becomes an ARRAY: declared with one dimension, with comma-separated elements."""
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


def _bit_length(upstream: UpstreamType) -> int:
    return upstream.length if upstream.length is not None else upstream.modifier
