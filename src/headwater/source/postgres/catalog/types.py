"""A column's upstream type from the catalog, and whether its order is also ours."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.model import UpstreamType

# PostgreSQL compares these as the lake compares their lake values.
ORDERED = frozenset({"int2", "int4", "int8", "bool", "date", "timestamp", "timestamptz", "uuid", "bytea"})
TEXT = frozenset({"text", "varchar", "name"})
# Names under which C libraries offer code point order; trusted only if the server's own probe agrees.
CODE_POINT_LOCALES = frozenset({"C.UTF-8", "C.utf8"})
# Their text is their value, so it sorts as they do.
TEXTUAL = TEXT | {"uuid"}
# Types whose values are always stored in the row itself.
FIXED = frozenset(
    {"bool", "int2", "int4", "int8", "oid", "float4", "float8", "money", "date", "time", "timetz", "timestamp"}
    | {"timestamptz", "interval", "uuid", "enum", "name", "char", "macaddr", "macaddr8", "pg_lsn"}
)
DIALECT = "postgres"
KINDS = {"e": "enum", "c": "composite", "r": "range", "m": "range"}
MAX_DIGITS = 38


@dataclass(frozen=True, slots=True)
class Text:
    """How a database stores and orders text by default. `bytewise`: tricky strings sorted in byte order."""

    utf8: bool
    provider: str  # c libc, i ICU, b built-in
    collate: str
    bytewise: bool


@dataclass(frozen=True, slots=True)
class RawType:
    """A column's type as the catalog has it: the declared one, its base (domains resolved), its element."""

    oid: int
    modifier: int
    dimensions: int
    base_name: str
    base_kind: str
    base_modifier: int
    element_name: str | None
    element_kind: str | None
    element_modifier: int | None
    collation_provider: str
    collation_locale: str


def upstream_type(raw: RawType, text: Text) -> UpstreamType:
    """The type of a column; `oid` and `modifier` are the log's, the rest is the base type's."""
    is_array = raw.element_name is not None
    name = raw.element_name or raw.base_name
    kind = raw.element_kind or raw.base_kind
    modifier = raw.base_modifier if raw.element_modifier is None else raw.element_modifier
    name = KINDS.get(kind, name)
    precision, scale, length = _measures(name, modifier)
    return UpstreamType(
        dialect=DIALECT,
        textual=not is_array and name in TEXTUAL,
        stored_aside=is_array or name not in FIXED,
        name=f"_{name}" if is_array else name,
        oid=raw.oid,
        modifier=raw.modifier,
        precision=precision,
        scale=scale,
        length=length,
        dimensions=raw.dimensions if is_array else 0,
        ordered=not is_array and _is_ordered(name, precision, scale, raw, text),
    )


def _measures(name: str, modifier: int) -> tuple[int | None, int | None, int | None]:
    """Precision, scale and length from a type modifier."""
    if name == "numeric" and modifier >= 4:
        packed = modifier - 4
        return (packed >> 16) & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024, None
    if name in ("varchar", "bpchar") and modifier >= 4:
        return None, None, modifier - 4
    if name in ("bit", "varbit") and modifier >= 0:
        return None, None, modifier
    return None, None, None


def _is_ordered(name: str, precision: int | None, scale: int | None, raw: RawType, text: Text) -> bool:
    if name == "numeric":
        return precision is not None and scale is not None and precision <= MAX_DIGITS and 0 <= scale <= precision
    if name in TEXT:
        return text.utf8 and _is_bytewise(raw, text)
    return name in ORDERED


def _is_bytewise(raw: RawType, text: Text) -> bool:
    """Whether text compares by code point, which in UTF-8 is byte order."""
    if raw.collation_provider == "d":
        by_name = text.provider == "b" or (text.provider == "c" and text.collate in {"C", "POSIX"} | CODE_POINT_LOCALES)
        return by_name and text.bytewise
    return raw.collation_provider == "b" or (raw.collation_provider == "c" and raw.collation_locale in ("C", "POSIX"))
