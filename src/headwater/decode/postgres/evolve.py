"""How a column's upstream type may change after the relation was defined, and still decode."""

from __future__ import annotations

from headwater.decode.postgres.types import can_hold, element_of, is_array, lake_type, numeric_size
from headwater.model import Column, LogColumn, SchemaVersion, UpstreamType

# The built-in types that can be widened, by their number in the log; the catalog fixes these numbers.
_NAMES = {
    21: "int2",
    23: "int4",
    20: "int8",
    700: "float4",
    701: "float8",
    25: "text",
    1043: "varchar",
    1700: "numeric",
}
_NAMES |= {1005: "_int2", 1007: "_int4", 1016: "_int8", 1021: "_float4", 1022: "_float8", 1009: "_text"}
_NAMES |= {1015: "_varchar", 1231: "_numeric"}
_FOLLOWS = {("int2", "int4"), ("int2", "int8"), ("int4", "int8"), ("float4", "float8"), ("varchar", "text")}
_FINER = frozenset({"timestamp", "timestamptz", "time", "timetz", "varbit"})
_FREE = -1  # a modifier without a limit


def as_written(upstream: UpstreamType, written: LogColumn) -> UpstreamType | None:
    """The type to decode with, or None if values of the old type may have changed with it.

    It is the same type, or a wider one: rows written before the change keep their value.
    """
    type_oid, modifier = written.type_oid, written.modifier
    if type_oid == upstream.oid:
        if modifier == upstream.modifier:
            return upstream
        new = UpstreamType(upstream.name, type_oid, modifier, dimensions=upstream.dimensions)
        return new if _limits_less(upstream.name.removeprefix("_"), upstream, new) else None
    name = _NAMES.get(type_oid)
    if name is None or name.startswith("_") != upstream.name.startswith("_"):
        return None
    new = UpstreamType(name, type_oid, modifier, dimensions=upstream.dimensions)
    old_base, base = upstream.name.removeprefix("_"), name.removeprefix("_")
    if (old_base, base) in _FOLLOWS:
        return new
    text_to_varchar = (old_base, base) == ("text", "varchar") and modifier == _FREE
    return new if text_to_varchar or (old_base == base and _limits_less(base, upstream, new)) else None


def _limits_less(base: str, old: UpstreamType, new: UpstreamType) -> bool:
    if new.modifier == _FREE:
        return base in _FINER or base in ("varchar", "numeric")
    if old.modifier == _FREE:
        return False
    if base == "varchar" or base in _FINER:
        return new.modifier >= old.modifier
    if base == "numeric":
        (old_precision, old_scale), (precision, scale) = numeric_size(old), numeric_size(new)
        return scale >= old_scale and precision - scale >= old_precision - old_scale
    return False


def still_holds(column: Column, written: UpstreamType) -> bool:
    """Whether the lake type holds every value of a wider type, and older rows still look the same in it."""
    if (written.oid, written.modifier) == (column.upstream.oid, column.upstream.modifier):
        return True
    return _holds(column.upstream, written, column.lake_type)


def _holds(old: UpstreamType, new: UpstreamType, lake: str) -> bool:
    if lake == "STRING":
        return _prints_alike(old, new)
    if lake.startswith("ARRAY<"):
        return is_array(new) and _holds(element_of(old), element_of(new), lake[6:-1])
    own = lake_type(new)
    return own == lake or (own != "STRING" and can_hold(new, lake))  # as STRING: no other type holds all its values


def _prints_alike(old: UpstreamType, new: UpstreamType) -> bool:
    """Whether a value of the old type has the same text under the new one, which is what a STRING stores."""
    before, now = (t.name.removeprefix("_") for t in (old, new))
    if now == "numeric" and new.modifier != _FREE:
        return numeric_size(old)[1] == numeric_size(new)[1]
    return before == now or "float8" not in (before, now)


def logged_key(version: SchemaVersion) -> set[str] | None:
    """The key according to the log: the replica identity, which says nothing about the key if it is the whole row."""
    return None if version.identity == "f" else {c.name for c in version.columns if c.key}


def whole_old(version: SchemaVersion) -> bool:
    """Whether an UPDATE or a DELETE has the whole old row: with REPLICA IDENTITY FULL."""
    return version.identity == "f"
