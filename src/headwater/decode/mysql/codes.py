"""The binlog's type codes, as a table map gives them (ENUM and SET taken out of STRING), and sizes that follow."""

from __future__ import annotations

TINY, SHORT, LONG, LONGLONG, INT24 = 1, 2, 3, 8, 9
FLOAT, DOUBLE, DECIMAL = 4, 5, 246
BIT, YEAR = 16, 13
DATE, NEWDATE = 10, 14
OLD_TIMESTAMP, OLD_TIME, OLD_DATETIME = 7, 11, 12  # before MySQL 5.6, and MariaDB without mysql56_temporal_format
TIMESTAMP, DATETIME, TIME = 17, 18, 19
VARCHAR, VAR_STRING, STRING = 15, 253, 254
TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB = 249, 250, 251, 252
ENUM, SET = 247, 248
JSON, GEOMETRY, VECTOR = 245, 255, 242
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141  # MariaDB's COMPRESSED columns

INTEGER_BYTES = {TINY: 1, SHORT: 2, INT24: 3, LONG: 4, LONGLONG: 8}
DIGITS_OF_WORD = 9  # decimals are packed by nine digits in four bytes
_BYTES_OF_DIGITS = (0, 1, 1, 2, 2, 3, 3, 4, 4)


def decimal_bytes(precision: int, scale: int) -> int:
    """How many bytes a packed decimal takes."""
    return sum(n // DIGITS_OF_WORD * 4 + _BYTES_OF_DIGITS[n % DIGITS_OF_WORD] for n in (precision - scale, scale))
