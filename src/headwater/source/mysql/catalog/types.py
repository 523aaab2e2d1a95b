"""A column's upstream type from the catalog, and whether its order is also ours."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headwater.model import UpstreamType
from headwater.source.mysql.binlog import codes
from headwater.source.mysql.client.charsets import collation_name
from headwater.source.mysql.client.codepoints import EVERY_CHARACTER
from headwater.source.mysql.ddl.lexer import ESCAPES

DIALECT = "mysql"
MAX_DIGITS = 38

# What a table map calls each type (enum and set resolved, the current form of temporal types).
BINLOG_TYPES = {
    "tinyint": codes.TINY,
    "smallint": codes.SHORT,
    "int": codes.LONG,
    "float": codes.FLOAT,
    "double": codes.DOUBLE,
    "bigint": codes.LONGLONG,
    "mediumint": codes.INT24,
    "date": codes.DATE,
    "year": codes.YEAR,
    "varchar": codes.VARCHAR,
    "varbinary": codes.VARCHAR,
    "bit": codes.BIT,
    "timestamp": codes.TIMESTAMP,
    "datetime": codes.DATETIME,
    "time": codes.TIME,
    "vector": codes.VECTOR,
    "json": codes.JSON,
    "decimal": codes.DECIMAL,
    "enum": codes.ENUM,
    "set": codes.SET,
    **dict.fromkeys(
        ("tinytext", "text", "mediumtext", "longtext", "tinyblob", "blob", "mediumblob", "longblob"), codes.BLOB
    ),
    **dict.fromkeys(("char", "binary", "uuid", "inet4", "inet6"), codes.STRING),
    "geometry": codes.GEOMETRY,
}
SPATIAL = frozenset(
    {"point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geomcollection"}
    | {"geometrycollection"}
)
TEXTUAL = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
WITH_CHARSET = TEXTUAL | {"enum", "set"}
BINARY = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
# The servers compare these as the lake compares their lake values. No floats: 0 and -0 are one key there, two here.
ORDERED = frozenset(
    {"tinyint", "smallint", "mediumint", "int", "bigint", "year", "bit", "date", "datetime", "timestamp"}
    | {"binary", "varbinary"}
)
# Collations in code point order in which a trailing space counts. (With PAD SPACE, 'a' sorts after 'a\t'.) Only for
# varchar: MariaDB compares char under them as if it were padded.
CODE_POINT_ORDER = frozenset(
    {"utf8mb4_0900_bin", "utf8mb4_nopad_bin", "utf8mb3_nopad_bin", "utf8_nopad_bin", "ascii_nopad_bin"}
)

_LABEL = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.S)


@dataclass(frozen=True, slots=True)
class RawType:
    """A column's type as the catalog has it."""

    data_type: str
    column_type: str
    length: int | None
    precision: int | None
    scale: int | None
    fraction: int | None  # fractional digits
    charset: str | None
    collation: str | None

    @property
    def name(self) -> str:
        """The type's own name; all geometry shapes are one type."""
        lower = self.data_type.lower()
        return "geometry" if lower in SPATIAL else lower

    @property
    def is_known(self) -> bool:
        return self.name in BINLOG_TYPES

    @property
    def is_compressed(self) -> bool:
        """Whether it is one of MariaDB's compressed columns, whose bytes in the log are not the value's."""
        return bool(re.search(r"/\*M?!\d+ COMPRESSED\*/$", self.column_type))

    @property
    def is_old_temporal(self) -> bool:
        """Whether it is a temporal column in a format from before MySQL 5.6 or MariaDB 10.1."""
        return bool(re.search(r"/\* (mariadb-5\.3|5\.5 binary format) \*/$", self.column_type))

    @property
    def is_unsigned(self) -> bool:
        return " unsigned" in self.column_type.lower() and self.name not in ("enum", "set")


def upstream_type(raw: RawType, *, in_key: bool, booleans: bool, sorts_text: bool = True) -> UpstreamType:
    """The type of a column. `booleans`: tinyint(1) may become a boolean; never in a key, where 1 and 2 are two rows.

    `sorts_text`: the server follows the order of its own code point collations.
    """
    name = raw.name
    return UpstreamType(
        dialect=DIALECT,
        name=name,
        oid=BINLOG_TYPES[name],
        precision=raw.precision if name == "decimal" else None,
        scale=raw.scale if name == "decimal" else raw.fraction if name in ("time", "datetime", "timestamp") else None,
        length=_length(raw, booleans=booleans and not in_key),
        ordered=_is_ordered(raw, sorts_text),
        textual=name in TEXTUAL,
        stored_aside=False,
        unsigned=raw.is_unsigned,
        charset="binary" if name in BINARY else raw.charset or "",
        labels=labels(raw.column_type) if name in ("enum", "set") else (),
        collation=collation_name(raw.collation or "") if name in TEXTUAL else "",
    )


def labels(column_type: str) -> tuple[str, ...]:
    """The members of an enum or a set, as COLUMN_TYPE lists them: escaped whatever the session's sql_mode."""
    found = _LABEL.findall(column_type[column_type.index("(") :])
    return tuple(re.sub(r"''|\\(.)", lambda m: ESCAPES.get(m[1], m[1]) if m[1] else "'", f, flags=re.S) for f in found)


def doubtful_labels(raw: RawType) -> bool:
    """Whether a label may contain characters that the catalog replaces with a question mark."""
    return raw.name in ("enum", "set") and raw.charset in EVERY_CHARACTER and "?" in raw.column_type


def _length(raw: RawType, *, booleans: bool) -> int | None:
    match raw.name:
        case "tinyint":
            return 1 if booleans and raw.column_type.lower() == "tinyint(1)" else None
        case "bit":
            return raw.precision
        case "vector":
            return raw.length // 4 if raw.length else None
        case name if name in TEXTUAL | BINARY:
            return raw.length
    return None


def _is_ordered(raw: RawType, sorts_text: bool) -> bool:
    if raw.name == "decimal":
        return raw.precision is not None and raw.precision <= MAX_DIGITS
    if raw.name == "varchar":
        return sorts_text and raw.collation in CODE_POINT_ORDER
    return raw.name in ORDERED
