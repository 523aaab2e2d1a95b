"""The type table of MySQL and MariaDB: which lake type holds which of theirs. `docs/types.md` is its page for users.

A type is named as information_schema.columns.data_type names it. Every type may also be kept as STRING: the text that
SELECT prints; of binary strings, bits, geometries and vectors, which have none, `0x…` as the `mysql` client prints it.
"""

from __future__ import annotations

from headwater.decode.values import MAX_PRECISION, decimal_size
from headwater.model import UpstreamType

FREE_DECIMAL = "DECIMAL(38,18)"  # what a bare `decimal` means for one of more than 38 digits
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
# Lake integers and floats, with how many bits of a signed number each keeps exactly
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
    """The lake type that an upstream type has by default."""
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
    """A declared lake type with nothing left open: a bare DECIMAL takes the upstream's own precision and scale."""
    if declared != "DECIMAL":
        return declared
    if upstream.name in INTEGERS:
        return f"DECIMAL({_digits(upstream)},0)"
    own = lake_type(upstream)
    return own if own.startswith("DECIMAL") else FREE_DECIMAL


def can_hold(upstream: UpstreamType, declared: str) -> bool:
    """Whether a column may be declared so: every value fits, or (decimal of more than 38 digits) may fit."""
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
    """Whether it is how the servers write a boolean: `tinyint(1)`, which is also what BOOL means, or `bit(1)`."""
    return upstream.name in ("tinyint", "bit") and upstream.length == 1


def signed_bits(upstream: UpstreamType) -> int:
    """How many bits a signed number needs to hold every value of an integer type."""
    return INTEGERS[upstream.name] + upstream.unsigned


def decimal_of(upstream: UpstreamType) -> tuple[int, int]:
    """Precision and scale of a decimal."""
    return upstream.precision or 10, upstream.scale or 0


def _digits(upstream: UpstreamType) -> int:
    bits = INTEGERS[upstream.name]
    return _UNSIGNED_BIGINT_DIGITS if bits == 64 and upstream.unsigned else _DIGITS[bits]
