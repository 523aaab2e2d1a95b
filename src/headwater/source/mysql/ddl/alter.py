"""What each clause of an ALTER TABLE may do to the rows and the key of its table.

A clause that certainly affects neither yields nothing. An unknown clause affects everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from headwater.source.mysql.ddl.definition import Definition, read_definition
from headwater.source.mysql.ddl.words import Words

# of partitions: operations that keep every row, and those that may not
_KEEPS = frozenset({"REBUILD", "OPTIMIZE", "ANALYZE", "CHECK"})
_MOVES = frozenset({"DROP", "TRUNCATE", "EXCHANGE", "COALESCE", "REORGANIZE", "DISCARD", "IMPORT", "CONVERT", "REPAIR"})
_INERT_OPTIONS = frozenset({
    "AUTOEXTEND_SIZE", "AUTO_INCREMENT", "AVG_ROW_LENGTH", "CHARSET", "CHECKSUM", "COLLATE", "COMMENT", "COMPRESSION",
    "CONNECTION", "DELAY_KEY_WRITE", "ENCRYPTION", "ENGINE_ATTRIBUTE", "INSERT_METHOD", "KEY_BLOCK_SIZE", "MAX_ROWS",
    "MIN_ROWS", "PACK_KEYS", "PASSWORD", "ROW_FORMAT", "SECONDARY_ENGINE", "SECONDARY_ENGINE_ATTRIBUTE",
    "STATS_AUTO_RECALC", "STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "TABLESPACE", "STORAGE", "PAGE_CHECKSUM",
    "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "ENCRYPTED", "ENCRYPTION_KEY_ID", "TRANSACTIONAL", "TABLE_CHECKSUM",
    "ALGORITHM", "LOCK",
})  # fmt: skip
_INERT_WORDS = (
    ("DISABLE", "KEYS"),
    ("ENABLE", "KEYS"),
    ("FORCE",),
    ("WITH", "VALIDATION"),
    ("WITHOUT", "VALIDATION"),
    ("REMOVE", "PARTITIONING"),
    ("UPGRADE", "PARTITIONING"),
    ("SECONDARY_LOAD",),
    ("SECONDARY_UNLOAD",),
)
_INDEXES = frozenset({"INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "CHECK"})
UNKNOWN = "it was altered in a way that cannot be parsed"


class Touches(StrEnum):
    """What an alteration may affect."""

    ROWS = "rows"  # any row
    KEY = "key"  # the primary key was replaced or dropped
    INDEX = "index"  # an index was dropped, which may be the one behind a declared key
    CASCADE = "cascade"  # a foreign key changes rows from now on
    TEXTS = "texts"  # every text column is converted to the charset in `name`
    NAME = "name"  # what `name` meant is gone, or it means something else now
    DROP = "drop"  # the column `name` was dropped
    TYPE = "type"  # the column `name` was redefined


@dataclass(frozen=True, slots=True)
class Only:
    """IF EXISTS or IF NOT EXISTS: the clause had an effect only if the column existed, or did not."""

    column: str
    there: bool


@dataclass(frozen=True, slots=True)
class Alteration:
    """What a clause does to its table; `reason` in words if it affects rows whatever a relation follows of it."""

    touches: Touches
    name: str = ""
    reason: str = ""
    definition: Definition | None = None
    only: Only | None = None


@dataclass(frozen=True, slots=True)
class OtherTable:
    """Another table that a clause affects."""

    schema: str
    table: str
    reason: str


def alterations(words: Words) -> Iterator[Alteration | OtherTable]:
    """What the clauses after the table's name alter, here and in other tables."""
    for item in words.items():
        first, second = item.peek(), item.peek(1)
        takes_rest = second == "PARTITION" or (first, second) in (("ORDER", "BY"), ("PARTITION", "BY"))
        yield from _clause(item)
        if takes_rest:
            return


def _clause(words: Words) -> Iterator[Alteration | OtherTable]:
    match words.peek(), words.peek(1):
        case (("PARTITION" | "ORDER"), "BY"):
            return
        case verb, "PARTITION" if verb in _KEEPS:
            return
        case verb, ("PARTITION" | "TABLESPACE" | "TABLE") if verb in _MOVES:
            yield from _partitions(words)
        case "ADD", _:
            words.take_word()
            yield from _add(words)
        case "DROP", _:
            words.take_word()
            yield from _drop(words)
        case (("MODIFY" | "CHANGE"), _):
            yield from _redefine(words, renames=words.take_word() == "CHANGE")
        case "RENAME", _:
            words.take_word()
            yield from _rename(words)
        case "ALTER", _:
            return  # a default, or whether something is visible or enforced: affects only future rows
        case "CONVERT", "TO":
            yield from _convert(words)
        case _:
            yield from _options(words)


def _partitions(words: Words) -> Iterator[Alteration | OtherTable]:
    verb, what = words.take_word(), words.take_word()
    yield Alteration(Touches.ROWS, reason=f"its partitions changed: {verb} {what}")
    if verb in ("EXCHANGE", "CONVERT") and (what == "TABLE" or words.skip_to("TABLE")):
        name = words.take_name()
        reason = f"it was exchanged with a partition: {verb} PARTITION"
        yield OtherTable(*(name or ("", "")), reason)


def _add(words: Words) -> Iterator[Alteration]:
    """A column, several, an index or a constraint."""
    if words.peek() == "PARTITION":
        return
    if (words.peek(), words.peek(1)) in (("SYSTEM", "VERSIONING"), ("PERIOD", "FOR")):
        yield Alteration(Touches.ROWS, reason="its rows are now versioned: SYSTEM VERSIONING")
        return
    if words.take_any("CONSTRAINT"):
        words.take_exists()
        if words.peek() not in ("PRIMARY", "FOREIGN", *_INDEXES):
            words.take_part()
    if words.peek() == "PRIMARY":
        yield Alteration(Touches.KEY)
    elif words.peek() == "FOREIGN":
        yield from _cascades(words)
    elif words.peek() not in _INDEXES and (words.peek(), words.peek(1)) != ("VECTOR", "INDEX"):
        words.take_any("COLUMN")
        there = words.take_exists()
        if words.peek() == "(":
            for item in words.group().items():
                yield from _only_if(there, item, _add(item))
            return
        yield from _only_if(there, words, _add_column(words))


def _add_column(words: Words) -> Iterator[Alteration]:
    yield Alteration(Touches.NAME, words.take_part() or "")
    yield from _inline(words)


def _only_if(there: bool | None, words: Words, made: Iterator[Alteration]) -> Iterator[Alteration]:
    """The changes of a clause whose column comes next, with its condition."""
    only = None if there is None else Only(words.peek_part(), there)
    return (replace(c, only=only) for c in made) if only else made


def _drop(words: Words) -> Iterator[Alteration]:
    match words.peek(), words.peek(1):
        case "PRIMARY", _:
            yield Alteration(Touches.KEY)
        case (("FOREIGN" | "CHECK"), _):
            return
        case (("INDEX" | "KEY" | "CONSTRAINT"), _):
            words.take_word()
            words.take_exists()
            name = words.take_part() or ""
            yield Alteration(Touches.KEY if name.upper() == "PRIMARY" else Touches.INDEX)
        case ("SYSTEM", "VERSIONING") | ("PERIOD", "FOR"):
            yield Alteration(Touches.ROWS, reason="its rows are no longer versioned: SYSTEM VERSIONING")
        case _:
            words.take_any("COLUMN")
            there = words.take_exists()
            yield from _only_if(there, words, iter([Alteration(Touches.DROP, words.peek_part())]))


def _redefine(words: Words, *, renames: bool) -> Iterator[Alteration]:
    words.take_any("COLUMN")
    yield from _only_if(words.take_exists(), words, _redefined(words, renames=renames))


def _redefined(words: Words, *, renames: bool) -> Iterator[Alteration]:
    old = words.take_part() or ""
    new = (words.take_part() or "") if renames else old
    if new != old:
        yield Alteration(Touches.NAME, old)
        yield Alteration(Touches.NAME, new)
    yield from _inline(words)
    yield Alteration(Touches.TYPE, new, definition=read_definition(words))


def _rename(words: Words) -> Iterator[Alteration | OtherTable]:
    if words.take_any("INDEX", "KEY"):
        return
    if words.take_any("COLUMN"):
        yield from _only_if(words.take_exists(), words, _renamed(words))
        return
    words.take_any("TO", "AS", "=")
    yield Alteration(Touches.ROWS, reason="it was renamed")
    yield OtherTable(*(words.take_name() or ("", "")), "another table was renamed to its name")


def _renamed(words: Words) -> Iterator[Alteration]:
    yield Alteration(Touches.NAME, words.take_part() or "")
    words.take_any("TO", "AS")
    yield Alteration(Touches.NAME, words.take_part() or "")


def _convert(words: Words) -> Iterator[Alteration]:
    words.take_all("CONVERT", "TO")
    words.take_all("CHARACTER", "SET") or words.take_any("CHARSET", "=")
    words.take_any("=")
    yield Alteration(Touches.TEXTS, (words.take_part() or "").lower())
    yield from _options(words)


def _inline(words: Words) -> Iterator[Alteration]:
    """What a column's definition says about keys; KEY alone means the primary one."""
    said = words.outside()
    if "PARTITION" in said:
        said = said[: said.index("PARTITION")]  # the rest does not belong to the column
    if any(w == "PRIMARY" or (w == "KEY" and said[i - 1 : i] != ["UNIQUE"]) for i, w in enumerate(said)):
        yield Alteration(Touches.KEY)
    yield from _cascades(words)


def _cascades(words: Words) -> Iterator[Alteration]:
    said = " ".join(words.outside())
    for event in ("DELETE", "UPDATE"):
        for action in ("CASCADE", "SET NULL", "SET DEFAULT"):
            if f"ON {event} {action}" in said:
                yield Alteration(Touches.CASCADE, reason=f"ON {event} {action}")


def _options(words: Words) -> Iterator[Alteration]:
    """Options of the table, with or without commas between them."""
    while words.more:
        if any(words.take_all(*inert) for inert in _INERT_WORDS):
            continue
        if words.take_all("PARTITION", "BY"):
            return
        words.take_any("DEFAULT")
        option = words.take_word()
        if option == "CHARACTER" and words.take_any("SET"):
            option = "CHARSET"
        if option in ("DATA", "INDEX") and words.take_any("DIRECTORY"):
            option = "STORAGE"
        words.take_any("=")
        if option == "UNION" and words.peek() == "(":
            words.take_group()
            continue
        value = words.take_value()
        if option == "ENGINE" and value.upper() != "INNODB":
            yield Alteration(Touches.ROWS, reason=f"its engine was changed to {value}")
        elif option != "ENGINE" and option not in _INERT_OPTIONS:
            yield Alteration(Touches.ROWS, reason=UNKNOWN)
            return
