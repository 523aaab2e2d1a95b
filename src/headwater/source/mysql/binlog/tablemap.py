"""Table maps: the log's description of a table before its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headwater.errors import DataError
from headwater.model import LogColumn
from headwater.source.mysql.binlog import codes
from headwater.source.mysql.binlog.position import table_number
from headwater.source.mysql.client.charsets import charset_of
from headwater.source.mysql.client.codepoints import knows, read_text
from headwater.source.mysql.client.unpack import damaged, lenenc

NUMERIC = frozenset({*codes.INTEGER_BYTES, codes.FLOAT, codes.DOUBLE, codes.DECIMAL, codes.YEAR})
TEXTUAL = codes.STRINGS | codes.BLOBS

_PLAIN = "utf8mb4"  # how labels are read if their charset is binary or missing

# the optional metadata's fields
_SIGNEDNESS, _DEFAULT_CHARSET, _COLUMN_CHARSET, _NAMES, _SETS, _ENUMS = 1, 2, 3, 4, 5, 6
_KEY, _KEY_WITH_PREFIX, _LABEL_DEFAULT_CHARSET, _LABEL_CHARSET = 8, 9, 10, 11


@dataclass(frozen=True, slots=True)
class TableMap:
    """A table as the log describes it.

    `columns` have names only if `named`; `has_…` says which metadata the log has.
    `sizes` are (bytes, length bytes before them) per column: all that splitting a row needs. `unreadable` says why
    the description could not be read: such a table has no columns here, and no other table is affected.
    """

    schema: str
    table: str
    columns: tuple[LogColumn, ...]
    sizes: tuple[tuple[int, int], ...]
    named: bool
    has_signs: bool = False
    has_charsets: bool = False
    has_labels: bool = False
    unreadable: str = ""

    @property
    def id(self) -> int:
        return table_number(self.schema, self.table)

    @property
    def shape(self) -> tuple[tuple[int, int], ...]:
        """The columns' types, without what a rename changes."""
        return shape(self.columns)

    @property
    def complete(self) -> bool:
        """Whether the log has everything itself."""
        return self.named and self.has_signs and self.has_charsets and self.has_labels


def shape(columns: Sequence[LogColumn]) -> tuple[tuple[int, int], ...]:
    """The columns' types as the log writes them."""
    return tuple((c.type_oid, c.modifier) for c in columns)


def parse(content: bytes, mariadb: bool) -> TableMap:
    """A table map event's content, after the table's number and flags.

    The log describes every table of the server. An unreadable description affects only that table: it is `unreadable`.
    """
    names = []
    at = 0
    for _ in range(2):
        end = at + 1 + content[at]
        names.append(content[at + 1 : end].decode("utf-8", "replace"))
        at = end + 1
    schema, table = names
    try:
        return _described(schema, table, content, at, mariadb)
    except DataError as e:
        return TableMap(schema, table, (), (), named=False, unreadable=e.message)
    except (LookupError, ValueError) as e:  # a form that no known version writes
        return TableMap(schema, table, (), (), named=False, unreadable=f"its description has an unknown form ({e})")


def _described(schema: str, table: str, content: bytes, at: int, mariadb: bool) -> TableMap:
    count, at = lenenc(content, at)
    types = content[at : at + count]
    size, at = lenenc(content, at + count)
    columns, sizes = _columns(types, content[at : at + size])
    at += size + (count + 7) // 8
    bare = TableMap(schema, table, tuple(columns), tuple(sizes), named=count == 0)
    return _with_metadata(bare, dict(_fields(content, at)), codes.GEOMETRY if mariadb else codes.VECTOR)


def _columns(types: bytes, metadata: bytes) -> tuple[list[LogColumn], list[tuple[int, int]]]:
    columns, sizes, at = [], [], 0
    for type in types:
        width = _metadata_width(type)
        real, modifier = _real(type, metadata[at : at + width])
        at += width
        columns.append(LogColumn("", real, modifier, key=False))
        size = codes.value_size(real, modifier)
        if size is None:
            raise damaged(f"a column has the unknown type {real}")
        sizes.append(size)
    return columns, sizes


def _metadata_width(type: int) -> int:
    if type in codes.STRINGS or type in (codes.DECIMAL, codes.BIT, codes.ENUM, codes.SET):
        return 2
    return 1 if type in codes.PREFIXED or type in codes.WHOLE_SECONDS or type in (codes.FLOAT, codes.DOUBLE) else 0


def _real(type: int, metadata: bytes) -> tuple[int, int]:
    """The type and its modifier: the log writes an enum or set as a STRING, with its length in odd bits."""
    if type == codes.DECIMAL:
        return type, metadata[0] << 8 | metadata[1]
    if type == codes.STRING:
        first, length = metadata
        if first & 0x30 != 0x30:
            return first | 0x30, length | ((first & 0x30) ^ 0x30) << 4
        return first, length
    if type in (codes.ENUM, codes.SET):
        return type, metadata[1]
    return type, int.from_bytes(metadata, "little")


def _fields(content: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    while at < len(content):
        kind = content[at]
        length, at = lenenc(content, at + 1)
        yield kind, content[at : at + length]
        at += length


def _with_metadata(bare: TableMap, fields: dict[int, bytes], counted: int) -> TableMap:
    """Adds the optional metadata; `counted` is a type without text that the server still counts as textual."""
    columns = list(bare.columns)
    numeric = [i for i, c in enumerate(columns) if c.type_oid in NUMERIC]
    textual = [i for i, c in enumerate(columns) if c.type_oid in TEXTUAL or c.type_oid == counted]
    labelled = [i for i, c in enumerate(columns) if c.type_oid in (codes.ENUM, codes.SET)]
    if _SIGNEDNESS in fields:
        for bit, i in enumerate(numeric):
            unsigned = fields[_SIGNEDNESS][bit // 8] >> (7 - bit % 8) & 1
            columns[i] = replace(columns[i], unsigned=bool(unsigned) and columns[i].type_oid != codes.YEAR)
    for which, default, each in (
        (textual, _DEFAULT_CHARSET, _COLUMN_CHARSET),
        (labelled, _LABEL_DEFAULT_CHARSET, _LABEL_CHARSET),
    ):
        for i, collation in zip(which, _collations(fields, default, each, len(which)), strict=False):
            columns[i] = replace(columns[i], charset="" if columns[i].type_oid == counted else charset_of(collation))
    if _NAMES in fields:
        for i, name in enumerate(_texts(fields[_NAMES])):
            columns[i] = replace(columns[i], name=name.decode())
    for type, field in ((codes.SET, _SETS), (codes.ENUM, _ENUMS)):
        which = [i for i in labelled if columns[i].type_oid == type]
        for i, labels in zip(which, _label_lists(fields.get(field, b"")), strict=False):
            charset = columns[i].charset if knows(columns[i].charset) else _PLAIN
            columns[i] = replace(columns[i], labels=tuple(read_text(text, charset) for text in labels))
    for i in _key(fields):
        columns[i] = replace(columns[i], key=True)
    charsets = bool(fields.keys() & {_DEFAULT_CHARSET, _COLUMN_CHARSET})
    # for an unknown collation, the upstream's catalog has the charset and the labels in characters
    unknown = {i for i in (*textual, *labelled) if not columns[i].charset and columns[i].type_oid != counted}
    return replace(
        bare,
        columns=tuple(columns),
        named=bare.named or _NAMES in fields,
        has_signs=not numeric or _SIGNEDNESS in fields,
        has_charsets=not textual or (charsets and unknown.isdisjoint(textual)),
        has_labels=not labelled or (bool(fields.keys() & {_SETS, _ENUMS}) and unknown.isdisjoint(labelled)),
    )


def _numbers(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = lenenc(data, at)
        yield value


def _texts(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        length, at = lenenc(data, at)
        yield data[at : at + length]
        at += length


def _label_lists(data: bytes) -> Iterator[list[bytes]]:
    at = 0
    while at < len(data):
        count, at = lenenc(data, at)
        labels = []
        for _ in range(count):
            length, at = lenenc(data, at)
            labels.append(data[at : at + length])
            at += length
        yield labels


def _collations(fields: dict[int, bytes], default: int, each: int, count: int) -> list[int]:
    if each in fields:
        return list(_numbers(fields[each]))
    if default not in fields:
        return []
    first, *pairs = _numbers(fields[default])
    collations = [first] * count
    for i, collation in zip(pairs[::2], pairs[1::2], strict=True):
        collations[i] = collation
    return collations


def _key(fields: dict[int, bytes]) -> list[int]:
    if _KEY in fields:
        return list(_numbers(fields[_KEY]))
    return list(_numbers(fields.get(_KEY_WITH_PREFIX, b"")))[::2]
