"""The log's type codes, as in a table map (ENUM and SET resolved from STRING), and the sizes of their values."""

from __future__ import annotations

TINY, SHORT, LONG, LONGLONG, INT24 = 1, 2, 3, 8, 9
FLOAT, DOUBLE, DECIMAL = 4, 5, 246
NULL, BIT, YEAR = 6, 16, 13
DATE, NEWDATE = 10, 14
OLD_TIMESTAMP, OLD_TIME, OLD_DATETIME = 7, 11, 12  # before MySQL 5.6, and MariaDB without mysql56_temporal_format
TIMESTAMP, DATETIME, TIME = 17, 18, 19
VARCHAR, VAR_STRING, STRING = 15, 253, 254
TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB = 249, 250, 251, 252
ENUM, SET = 247, 248
JSON, GEOMETRY, VECTOR = 245, 255, 242
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141  # MariaDB's COMPRESSED columns

INTEGER_BYTES = {TINY: 1, SHORT: 2, INT24: 3, LONG: 4, LONGLONG: 8}
INTEGER_NAMES = {TINY: "tinyint", SHORT: "smallint", INT24: "mediumint", LONG: "int", LONGLONG: "bigint"}
STRINGS = frozenset({VARCHAR, VAR_STRING, STRING, VARCHAR_COMPRESSED})
BLOBS = frozenset({TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB, BLOB_COMPRESSED})
PREFIXED = BLOBS | {JSON, GEOMETRY, VECTOR}  # the modifier is the number of length bytes
WHOLE_SECONDS = {TIMESTAMP: 4, DATETIME: 5, TIME: 3}  # bytes; plus one for every two fractional digits
_FIXED = {
    **INTEGER_BYTES,
    FLOAT: 4,
    DOUBLE: 8,
    NULL: 0,
    YEAR: 1,
    DATE: 3,
    NEWDATE: 3,
    OLD_TIME: 3,
    OLD_TIMESTAMP: 4,
    OLD_DATETIME: 8,
}
_SHORT_STRING = 255  # the longest column whose length takes one byte
_DIGITS_OF_WORD = 9  # decimals are packed as nine digits in four bytes
_BYTES_OF_DIGITS = (0, 1, 1, 2, 2, 3, 3, 4, 4)


def value_size(code: int, modifier: int) -> tuple[int, int] | None:
    """The bytes that a value takes, and the length bytes before it (the first is then 0); None for an unknown type."""
    if code in _FIXED:
        return _FIXED[code], 0
    if code in WHOLE_SECONDS:
        return WHOLE_SECONDS[code] + (modifier + 1) // 2, 0
    if code in STRINGS:
        return 0, 1 if modifier <= _SHORT_STRING else 2
    if code in PREFIXED:
        return 0, modifier
    if code in (ENUM, SET):
        return modifier, 0
    if code == BIT:
        return (modifier >> 8) + ((modifier & 0xFF) + 7) // 8, 0
    if code == DECIMAL:
        return decimal_bytes(modifier >> 8, modifier & 0xFF), 0
    return None


def decimal_bytes(precision: int, scale: int) -> int:
    """The bytes that a packed decimal takes."""
    return sum(n // _DIGITS_OF_WORD * 4 + _BYTES_OF_DIGITS[n % _DIGITS_OF_WORD] for n in (precision - scale, scale))
