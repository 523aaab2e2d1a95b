"""The type table of MySQL and MariaDB: which lake type holds which of theirs. `docs/types.md` documents it for users.

A type has its name in information_schema.columns.data_type. Every type may also be stored as STRING: the text that
SELECT prints; for binary strings, bits, geometries and vectors, which have none, `0x…` as the `mysql` client prints it.
"""

from __future__ import annotations

from headwater.decode.values import MAX_PRECISION, decimal_size
from headwater.model import UpstreamType

FREE_DECIMAL = "DECIMAL(38,18)"  # what a bare `decimal` means for one with more than 38 digits
INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
BINARIES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
GEOMETRIES = frozenset({"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"})
GEOMETRIES |= {"geometrycollection", "geomcollection"}
_LAKE = {
    "float": "FLOAT",
    "double": "DOUBLE",
    "year": "INT",
    "date": "DATE",
    "datetime": "TIMESTAMP_NTZ",
    "timestamp": "TIMESTAMP",
    "vector": "ARRAY<FLOAT>",
}
_LAKE |= dict.fromkeys(BINARIES | GEOMETRIES, "BINARY")
# Lake integers and floats, and how many bits of a signed number each represents exactly
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64, "FLOAT": 25, "DOUBLE": 54}
_DIGITS = {8: 3, 16: 5, 24: 8, 32: 10, 64: 19}
_UNSIGNED_BIGINT_DIGITS = 20
_WIDER = {
    "float": {"DOUBLE"},
    "year": {"SMALLINT", "BIGINT", "FLOAT", "DOUBLE"},
    "datetime": {"TIMESTAMP"},
    "timestamp": {"TIMESTAMP_NTZ"},
    "vector": {"ARRAY<DOUBLE>"},
}


def lake_type(upstream: UpstreamType) -> str:
    """The default lake type of an upstream type."""
    if is_boolean(upstream):
        return "BOOLEAN"
    if upstream.name in INTEGERS:
        bits = signed_bits(upstream)
        fitting = [lake for lake, kept in _BITS.items() if kept >= bits and lake not in ("FLOAT", "DOUBLE")]
        return fitting[0] if fitting else f"DECIMAL({_UNSIGNED_BIGINT_DIGITS},0)"
    if upstream.name == "decimal":
        precision, scale = decimal_of(upstream)
        return f"DECIMAL({precision},{scale})" if precision <= MAX_PRECISION else "STRING"
    if upstream.name == "bit":
        return "BINARY"
    return _LAKE.get(upstream.name, "STRING")


def resolve_type(upstream: UpstreamType, declared: str) -> str:
    """A fully specified lake type: a bare DECIMAL takes the upstream's own precision and scale."""
    if declared != "DECIMAL":
        return declared
    if upstream.name in INTEGERS:
        return f"DECIMAL({_digits(upstream)},0)"
    own = lake_type(upstream)
    return own if own.startswith("DECIMAL") else FREE_DECIMAL


def can_hold(upstream: UpstreamType, declared: str) -> bool:
    """Whether a column may be declared so: every value fits, or (a decimal with more than 38 digits) may fit."""
    declared = resolve_type(upstream, declared)
    if declared in (lake_type(upstream), "STRING"):
        return True
    size = decimal_size(declared)
    if upstream.name in INTEGERS:
        return size[0] - size[1] >= _digits(upstream) if size else _BITS.get(declared, 0) >= signed_bits(upstream)
    if size is None:
        return declared in _WIDER.get(upstream.name, ())
    if upstream.name == "year":
        return size[0] - size[1] >= 4
    if upstream.name != "decimal":
        return False
    precision, scale = decimal_of(upstream)
    return precision > MAX_PRECISION or (size[1] >= scale and size[0] - size[1] >= precision - scale)


def is_boolean(upstream: UpstreamType) -> bool:
    """Whether it is a boolean as the servers write it: `tinyint(1)`, which BOOL also means, or `bit(1)`."""
    return upstream.name in ("tinyint", "bit") and upstream.length == 1


def signed_bits(upstream: UpstreamType) -> int:
    """The bits that a signed number needs to hold every value of an integer type."""
    return INTEGERS[upstream.name] + upstream.unsigned


def decimal_of(upstream: UpstreamType) -> tuple[int, int]:
    """Precision and scale of a decimal."""
    return upstream.precision or 10, upstream.scale or 0


def _digits(upstream: UpstreamType) -> int:
    bits = INTEGERS[upstream.name]
    return _UNSIGNED_BIGINT_DIGITS if bits == 64 and upstream.unsigned else _DIGITS[bits]
