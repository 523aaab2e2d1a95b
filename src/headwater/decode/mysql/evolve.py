"""How a column's upstream type may change after the relation was defined, and still decode."""

from __future__ import annotations

from dataclasses import replace

from headwater.decode.mysql.types import (
    BINARIES,
    GEOMETRIES,
    INTEGERS,
    TEXTS,
    can_hold,
    decimal_of,
    lake_type,
    signed_bits,
)
from headwater.decode.values import MAX_PRECISION
from headwater.model import Column, LogColumn, SchemaVersion, UpstreamType
from headwater.source.mysql.binlog import codes
from headwater.source.mysql.client.codepoints import EVERY_CHARACTER, bytes_of_character

# Other types that the log writes in only one form, or in an old and a new one that mean the same
_SAME = {
    "year": {codes.YEAR},
    "date": {codes.DATE, codes.NEWDATE},
    "json": {codes.JSON},
    "vector": {codes.VECTOR, codes.VARCHAR},
    "float": {codes.FLOAT, codes.DOUBLE},
    "double": {codes.DOUBLE},
    **{name: {codes.STRING} for name in ("uuid", "inet4", "inet6")},
    **{name: {codes.GEOMETRY} for name in GEOMETRIES},
}
_CLOCKS = {
    "datetime": {codes.DATETIME, codes.OLD_DATETIME},
    "timestamp": {codes.TIMESTAMP, codes.OLD_TIMESTAMP},
    "time": {codes.TIME, codes.OLD_TIME},
}
_BASIC_PLANE = frozenset({"utf8mb3", "ucs2"})  # they hold every text of a charset that lacks some characters
_BLOB_SIZE = {"tiny": 1, "": 2, "medium": 3, "long": 4}  # length bytes of a value


def as_written(upstream: UpstreamType, written: LogColumn) -> UpstreamType | None:
    """The type to decode with, or None if values of the old type may have changed with it.

    It is the same type, or a wider one: rows written before the change keep their value, and their text if the lake
    stores that. `oid` and `modifier` are then the log's own, which the decoder uses.
    """
    new = replace(
        upstream,
        oid=written.type_oid,
        modifier=written.modifier,
        unsigned=written.unsigned,
        charset=written.charset,
        labels=written.labels,
    )
    name, code = upstream.name, written.type_oid
    if name in INTEGERS:
        return _integer(upstream, new)
    if name == "decimal":
        return _decimal(upstream, new)
    if name in _CLOCKS:
        return _clock(upstream, new)
    if name == "bit":
        return _bit(upstream, new)
    if name in ("enum", "set"):
        return _labels(upstream, new)
    if name in TEXTS or name in BINARIES:
        same = written.charset == "binary" if name in BINARIES else _holds(written.charset, upstream.charset)
        return new if same and _fits(upstream, new) else None
    return new if code in _SAME.get(name, ()) else None


def _integer(old: UpstreamType, new: UpstreamType) -> UpstreamType | None:
    name = codes.INTEGER_NAMES.get(new.oid)
    if name is None:
        return None
    new = replace(new, name=name, length=old.length if name == old.name else None)
    if new.unsigned and not old.unsigned:
        return None  # negative numbers are gone
    return new if signed_bits(new) >= signed_bits(old) else None


def _decimal(old: UpstreamType, new: UpstreamType) -> UpstreamType | None:
    if new.oid != codes.DECIMAL or (new.unsigned and not old.unsigned):
        return None
    new = replace(new, precision=new.modifier >> 8, scale=new.modifier & 0xFF)
    (precision, scale), (new_precision, new_scale) = decimal_of(old), decimal_of(new)
    if precision > MAX_PRECISION and scale != new_scale:
        return None  # the lake stores its text, and older rows now have a different number of zeros
    return new if new_scale >= scale and new_precision - new_scale >= precision - scale else None


def _clock(old: UpstreamType, new: UpstreamType) -> UpstreamType | None:
    if new.oid not in _CLOCKS[old.name]:
        return None
    digits = new.modifier if new.oid in (codes.DATETIME, codes.TIMESTAMP, codes.TIME) else 0
    if old.name == "time" and digits != (old.scale or 0):
        return None  # as for decimals
    return replace(new, scale=digits) if digits >= (old.scale or 0) else None


def _bit(old: UpstreamType, new: UpstreamType) -> UpstreamType | None:
    bits = (new.modifier >> 8) * 8 + (new.modifier & 0xFF)
    length = old.length or 1
    same_bytes = (bits + 7) // 8 == (length + 7) // 8
    return replace(new, length=bits) if new.oid == codes.BIT and bits >= length and same_bytes else None


def _labels(old: UpstreamType, new: UpstreamType) -> UpstreamType | None:
    """Whether labels are kept: an enum's rows keep theirs when members move; a set's print them in member order."""
    if new.oid != (codes.ENUM if old.name == "enum" else codes.SET):
        return None
    if old.name == "enum":
        return new if set(old.labels) <= set(new.labels) else None
    return new if new.labels[: len(old.labels)] == old.labels else None


def _holds(new: str, old: str) -> bool:
    """Whether text keeps its characters from one charset to the other."""
    if new == old or (new in EVERY_CHARACTER and old != "binary"):
        return True
    return (new in _BASIC_PLANE and old not in EVERY_CHARACTER and old != "binary") or (
        old == "ascii" and new != "binary"
    )


def _fits(old: UpstreamType, new: UpstreamType) -> bool:
    """Whether a string column still has room for every value, and returns it unchanged."""
    fixed = old.name in ("char", "binary")
    if new.oid in codes.BLOBS:
        return new.modifier >= _length_bytes(old)
    if new.oid not in codes.STRINGS or old.name.endswith(("text", "blob")):
        return False
    length = new.modifier // bytes_of_character(new.charset)
    if new.oid == codes.STRING:
        if not fixed:
            return False  # trailing blanks or zero bytes would be lost
        if old.name == "binary" and length != old.length:
            return False  # older rows have more zero bytes now
    return old.length is None or length >= old.length


def _length_bytes(old: UpstreamType) -> int:
    """The length bytes that a blob needs to hold the old column's values."""
    for ending in ("text", "blob"):
        if old.name.endswith(ending):
            return _BLOB_SIZE[old.name.removesuffix(ending)]
    most = (old.length or 0) * bytes_of_character(old.charset)
    return (most.bit_length() + 7) // 8


def still_holds(column: Column, written: UpstreamType) -> bool:
    """Whether the lake type holds every value of a wider type, and older rows still look the same in it."""
    old, lake = column.upstream, column.lake_type
    same_decimal = old.name == "decimal" and decimal_of(old) == decimal_of(written)
    if lake == "STRING":
        changed = old.name == "decimal" and decimal_of(old)[1] != decimal_of(written)[1]
        return not changed and (old.name != "float" or written.oid == codes.FLOAT)
    if old.name == "float" and written.oid == codes.DOUBLE:
        return lake == "DOUBLE"
    own = lake_type(written)
    return own == lake or same_decimal or (own != "STRING" and can_hold(written, lake))


def logged_key(version: SchemaVersion) -> set[str] | None:
    """The key according to the log, which has it only if it describes tables in full."""
    return {c.name for c in version.columns if c.key} or None


def whole_old(version: SchemaVersion) -> bool:
    """Always true: a table is followed only while the server logs full row images."""
    return True
