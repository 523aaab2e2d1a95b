"""A column's type as a statement writes it, and whether it takes every value of the column's previous type."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.model import LogColumn, UpstreamType
from headwater.source.mysql.binlog import codes
from headwater.source.mysql.catalog.types import WITH_CHARSET
from headwater.source.mysql.client.charsets import collation_name
from headwater.source.mysql.client.codepoints import bytes_of_character
from headwater.source.mysql.ddl.lexer import Kind, Token
from headwater.source.mysql.ddl.words import Words

_SAME_TYPE = {"INTEGER": "int", "DEC": "decimal", "NUMERIC": "decimal", "FIXED": "decimal"}
_WHOLE = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}  # bits
_CLOCKS = frozenset({"time", "datetime", "timestamp"})
# followed only if unchanged
_EXACT = frozenset({"float", "double", "bit", "year", "date", "json", "uuid", "inet4", "inet6", "vector", "binary"})
_LONGER = frozenset({"char", "varchar", "varbinary"})  # may get longer
_ROOM = {"tinytext": 1, "text": 2, "mediumtext": 3, "longtext": 4, "tinyblob": 1, "blob": 2, "mediumblob": 3}
_ROOM |= {"longblob": 4}  # length bytes of a value
_DEFAULT_SIZE = {"decimal": (10, 0), "char": (1,), "binary": (1,), "bit": (1,)}
_DEFAULT_SIZE |= dict.fromkeys(_CLOCKS, (0,))
_WITHOUT_SIZE = _WHOLE.keys() | {"float", "double", "year", "date", "json", "uuid", "inet4", "inet6"}
_INERT = frozenset({"VISIBLE", "INVISIBLE", "FIRST", "SIGNED", "ENFORCED", "UNIQUE"})


@dataclass(frozen=True, slots=True)
class Type:
    """A type as far as it decides which values fit: its size is in digits, characters, bytes, or length bytes."""

    name: str
    size: tuple[int, ...] = ()
    unsigned: bool = False
    charset: str = ""  # '': the table's default, or none
    collation: str = ""  # '': unknown, or none
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Definition:
    """What a statement says about a column; `plain` if it is only a type and attributes that touch no value."""

    type: Type
    nullable: bool | None = None  # None: not given
    numbered: bool = False  # AUTO_INCREMENT: it may renumber rows that have a zero
    plain: bool = True


def read_definition(words: Words) -> Definition:
    """The definition of a column, after its name. Anything not known for certain makes it not plain."""
    name = words.take_word()
    name = _SAME_TYPE.get(name, name.lower())
    if name in ("bool", "boolean"):
        name = "tinyint"
    words.take_any("PRECISION")
    if name in ("char", "character"):
        name = "varchar" if words.take_any("VARYING") else "char"
    found = Definition(_sized(Type(name), words.take_group() if words.peek() == "(" else []))
    while words.more and found.plain:
        if words.peek() in ("PARTITION", "REMOVE"):
            break  # no longer part of the column
        found = _with_attribute(found, words)
    return found


def _sized(type: Type, arguments: list[Token]) -> Type:
    if type.name in ("enum", "set"):
        return replace(type, labels=tuple(a.text for a in arguments if a.kind is Kind.TEXT))
    numbers = tuple(int(a.text) for a in arguments if a.kind is Kind.WORD and a.text.isdecimal())
    if type.name in _WHOLE or type.name in ("year", *_ROOM):  # a width, or a hint that may choose another type
        return replace(type, size=numbers if type.name in _ROOM else ())
    if type.name == "decimal" and len(numbers) == 1:
        numbers = (*numbers, 0)
    return replace(type, size=numbers or _DEFAULT_SIZE.get(type.name, ()))


def _with_attribute(found: Definition, words: Words) -> Definition:
    """Adds one attribute."""
    type = found.type
    match words.take_word():
        case "UNSIGNED" | "ZEROFILL":
            return replace(found, type=replace(type, unsigned=True))
        case "CHARSET":
            return replace(found, type=replace(type, charset=_charset(words)))
        case "CHARACTER" if words.take_any("SET"):
            return replace(found, type=replace(type, charset=_charset(words)))
        case "COLLATE":
            collation = collation_name(words.take_part() or "?")
            return replace(found, type=replace(type, charset=collation.split("_")[0], collation=collation))
        case "NOT" if words.take_any("NULL"):
            return replace(found, nullable=False)
        case "NOT" if words.take_any("ENFORCED"):
            return found
        case "NULL":
            return replace(found, nullable=True)
        case "AUTO_INCREMENT":
            return replace(found, numbered=True)
        case "DEFAULT":
            _skip_value(words)
        case "ON" if words.take_any("UPDATE"):
            _skip_value(words)
        case "COMMENT" | "COLUMN_FORMAT" | "STORAGE":
            words.take_value()
        case "AFTER":
            words.take_part()
        case "CONSTRAINT":
            if words.peek() != "CHECK":
                words.take_part()
        case "CHECK" if words.peek() == "(":
            words.take_group()
        case "REFERENCES":
            words.skip_to()  # to the end: its effect on rows is handled elsewhere
        case word if word in _INERT:
            if word == "UNIQUE":
                words.take_any("KEY")
        case _:
            return replace(found, plain=False)
    return found


def _charset(words: Words) -> str:
    return collation_name(words.take_part() or "?")


def _skip_value(words: Words) -> None:
    """Skips a default: a literal, a function, or an expression in parentheses."""
    if words.peek() == "(":
        words.take_group()
        return
    words.take_any("-", "+")
    first = words.take() if words.more else None
    if words.take_any("."):  # 1.5
        words.take_word()
    if first is None or first.kind is Kind.TEXT:
        return
    if words.peek() == "(":
        words.take_group()
    elif first.word in ("B", "X", "N") or first.word.startswith("_"):  # b'0', _utf8'x'
        words.take_value()


def type_of(upstream: UpstreamType) -> Type:
    """A relation's type for a column."""
    size = {
        "decimal": (upstream.precision or 10, upstream.scale or 0),
        **dict.fromkeys(_CLOCKS, (upstream.scale or 0,)),
        **{name: (room,) for name, room in _ROOM.items()},
    }.get(upstream.name, () if upstream.length is None else (upstream.length,))
    size = () if upstream.name in _WITHOUT_SIZE else size
    return Type(upstream.name, size, upstream.unsigned, upstream.charset, upstream.collation, upstream.labels)


def as_logged(type: Type, column: LogColumn) -> Type:
    """The type as the log last described it: it may have been widened since the relation was defined."""
    if type.name in _LONGER and column.type_oid in (codes.VARCHAR, codes.VAR_STRING, codes.STRING):
        return replace(type, size=(column.modifier // bytes_of_character(column.charset),), charset=column.charset)
    if type.name in _ROOM and column.type_oid == codes.BLOB:
        return replace(type, size=(column.modifier,), charset=column.charset)
    if type.name in ("enum", "set") and column.labels:
        return replace(type, labels=column.labels)
    if type.name in _WHOLE and column.type_oid in codes.INTEGER_NAMES:
        return replace(type, name=codes.INTEGER_NAMES[column.type_oid], unsigned=column.unsigned)
    if type.name == "decimal" and column.type_oid == codes.DECIMAL:
        return replace(type, size=divmod(column.modifier, 256), unsigned=column.unsigned)
    if type.name == "float" and column.type_oid == codes.DOUBLE:
        return replace(type, name="double")
    if type.name in _CLOCKS and column.type_oid in codes.WHOLE_SECONDS:
        return replace(type, size=(column.modifier,))
    return type


def takes_all(old: Type, new: Type) -> bool:
    """Whether the new type certainly holds every value of the old one, in a strict session."""
    if new.charset and (old.name not in WITH_CHARSET or new.charset != old.charset):
        return False
    if old.name in _ROOM:
        same_kind = new.name in _ROOM and old.name[-4:] == new.name[-4:]
        return same_kind and not new.size and _ROOM[new.name] >= old.size[0]
    if old.name in _WHOLE and new.name in _WHOLE:
        return _holds_sign(old, new) and _WHOLE[new.name] + new.unsigned >= _WHOLE[old.name] + old.unsigned
    if (old.name, new.name) == ("float", "double"):
        return not new.size and _holds_sign(old, new)
    if old.name != new.name:
        return False
    if old.name == "decimal":
        (digits, scale), (new_digits, new_scale) = old.size, new.size
        return _holds_sign(old, new) and new_scale >= scale and new_digits - new_scale >= digits - scale
    if old.name in _CLOCKS:
        return new.size[0] >= old.size[0]
    if old.unsigned != new.unsigned:
        return False
    if old.name in ("enum", "set"):
        return new.labels[: len(old.labels)] == old.labels
    if old.name in _LONGER:
        return bool(new.size and old.size) and new.size[0] >= old.size[0]
    return old.name in _EXACT and old.size == new.size


def _holds_sign(old: Type, new: Type) -> bool:
    return old.unsigned or not new.unsigned
