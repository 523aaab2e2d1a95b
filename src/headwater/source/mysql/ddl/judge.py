"""Whether a table can still be followed after a statement that altered it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headwater.model import LogColumn
from headwater.source.frames import Taken
from headwater.source.mysql.catalog.types import TEXTUAL, WITH_CHARSET
from headwater.source.mysql.ddl.alter import UNKNOWN, Alteration, Touches
from headwater.source.mysql.ddl.definition import Definition, Type, as_logged, takes_all, type_of
from headwater.source.mysql.ddl.statement import NO_AUTO_VALUE_ON_ZERO, OTHER_TYPES, Statement


@dataclass(frozen=True, slots=True)
class Subject:
    """A followed table: what relations follow of it, and how the log last described it, by names in lower case.

    `gone`: columns dropped since then. `primary` is its primary key. `hides_cascades`: the server's log does not
    show what foreign keys change.
    """

    taken: Sequence[Taken]
    logged: Mapping[str, LogColumn]
    primary: frozenset[str]
    hides_cascades: bool
    gone: frozenset[str] = frozenset()

    def has(self, column: str) -> bool | None:
        """Whether it has the column now; None if the log never said."""
        return column.lower() in self.logged.keys() - self.gone if self.logged else None


def obstacle(alterations: Sequence[Alteration], statement: Statement, subject: Subject) -> str:
    """Why the table cannot be followed past the statement, in words; '' if it certainly can."""
    made = [c for c in alterations if not _was_noop(c, alterations, subject)]
    return next((r for c in made for t in subject.taken for r in _reasons(c, statement, t, subject)), "")


def _was_noop(alteration: Alteration, alterations: Sequence[Alteration], subject: Subject) -> bool:
    """Whether IF EXISTS or IF NOT EXISTS certainly made it a no-op: unless another clause also names the column."""
    only = alteration.only
    if only is None or not only.column or subject.has(only.column) in (None, only.there):
        return False
    return not any(c.only != only and c.name.lower() == only.column.lower() for c in alterations)


def _reasons(alteration: Alteration, statement: Statement, taken: Taken, subject: Subject) -> Iterator[str]:
    columns = {c.name.lower(): c for c in taken.columns}
    key = {k.lower() for k in taken.key}
    declared = key != subject.primary or _is_unique_index(taken)
    name = alteration.name.lower()
    match alteration.touches:
        case Touches.ROWS:
            yield alteration.reason
        # a new one may remove NULLs from columns
        case Touches.KEY if not (_is_unique_index(taken) and statement.strict):
            yield "its primary key changed"
        case Touches.INDEX if declared:
            yield "an index was dropped, which may have been the one behind its key"
        case Touches.CASCADE if subject.hides_cascades:
            yield f"it got a foreign key ({alteration.reason}) that changes rows without log events"
        case Touches.TEXTS if not _converts_safely(alteration, statement, taken):
            yield f"its text was converted to the character set {alteration.name}"
        case Touches.NAME if not name:
            yield UNKNOWN
        case Touches.NAME if name in columns:
            yield f"its column {columns[name].name} was renamed, or was dropped and added again"
        case Touches.DROP if not name or name in key:
            yield f"its key column {alteration.name} was dropped"
        case Touches.TYPE if name in columns or not name:
            known = columns.get(name)
            if known is None or known.name != alteration.name or alteration.definition is None:
                yield f"its column {alteration.name} was renamed"
            else:
                logged = subject.logged.get(name)
                old = type_of(known.upstream)
                types = [old] if logged is None else [old, as_logged(old, logged)]
                if name in key and not _keeps_order(old, alteration.definition.type):
                    yield f"its key column {known.name} was redefined, which may change its collation"
                if not _keeps_values(alteration.definition, statement, types, declared and name in key):
                    yield f"its column {known.name} was redefined, which may change its values"


def _is_unique_index(taken: Taken) -> bool:
    """Whether the key was declared and is not the primary key; a key of unknown origin may be."""
    return any(c.upstream.unique for c in taken.columns if c.name in taken.key)


def _converts_safely(alteration: Alteration, statement: Statement, taken: Taken) -> bool:
    """Whether a conversion keeps all text: to utf8mb4, which has every character, in a strict session, not in keys."""
    texts = [c.name for c in taken.columns if c.upstream.name in WITH_CHARSET]
    return not texts or (alteration.name == "utf8mb4" and statement.strict and not set(texts) & set(taken.key))


def _keeps_order(old: Type, new: Type) -> bool:
    """Whether a key column keeps its collation, in whose order span bounds were chosen. An omitted one is a default."""
    return old.name not in TEXTUAL or (old.collation != "" and old.collation == new.collation)


def _keeps_values(definition: Definition, statement: Statement, types: Sequence[Type], declared: bool) -> bool:
    if not definition.plain or not statement.strict or statement.mode & OTHER_TYPES:
        return False
    if definition.numbered and not statement.mode & NO_AUTO_VALUE_ON_ZERO:
        return False  # a zero gets the next number
    if types[0].name == "timestamp" and definition.nullable is not True:
        return False  # NULL becomes the current time, even in a strict session
    if declared and definition.nullable is not False:
        return False  # a unique key of nullable columns does not identify rows
    return all(takes_all(old, definition.type) for old in types)
