"""A table as the upstream has it now, and what a scan selects from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from headwater.errors import DataError
from headwater.model import UpstreamType
from headwater.source.mysql.catalog.types import TEXTUAL, labels
from headwater.source.mysql.client.ask import qualified, query, records
from headwater.source.mysql.client.charsets import collation_name
from headwater.source.mysql.client.session import Session, quote_identifier
from headwater.source.mysql.scan.filter import filter_text
from headwater.source.mysql.scan.keyset import FLOATS, INTEGERS, ROW, KeyColumn
from headwater.source.spans import ScanTable

COLUMNS = """
SELECT column_name, lower(data_type), column_type, coalesce(character_set_name, ''), coalesce(collation_name, '')
FROM information_schema.columns WHERE table_schema = %s AND table_name = %s
"""
INDEXES = """
SELECT * FROM information_schema.statistics WHERE table_schema = %s AND table_name = %s AND non_unique = 0
ORDER BY index_name <> 'PRIMARY', index_name, seq_in_index
"""


@dataclass(frozen=True, slots=True)
class Table:
    """A table as it is now: the text after FROM, its key, its current columns."""

    source: str
    key: tuple[KeyColumn, ...]
    columns: frozenset[str]


@dataclass(frozen=True, slots=True)
class Selection:
    """What a scan selects, where the key's texts are in it, and the additional condition on rows."""

    expressions: tuple[str, ...]
    key_places: tuple[int, ...]
    filter: str


def describe(session: Session, table: ScanTable) -> Table:
    """The table as it is now; it must exist and have the relation's key."""
    found = {name: rest for name, *rest in query(session, COLUMNS, (table.schema, table.name))}
    if not found:
        raise DataError(
            "data.rewritten",
            f"the upstream table {table.schema}.{table.name} was dropped",
            f"RESYNC TABLE reads it again, once {table.name} exists.",
        )
    forced = _index(session, table)
    types = {c.name: c.upstream for c in table.columns}
    for name, (now, _, charset, collation) in found.items():
        if name in types and not _same_kind(types[name], now, charset):
            raise DataError(
                "data.schema_changed",
                f"the type of column {name} of {table.schema}.{table.name} changed",
                "RESYNC TABLE reads it again in its new form.",
            )
        known = types[name].collation if name in table.key else ""
        if known and known != collation_name(collation):
            raise DataError(
                "data.schema_changed",
                f"the collation of key column {name} of {table.schema}.{table.name} changed",
                "RESYNC TABLE reads it again in its new order, or restore the collation.",
            )
    return Table(
        # Rows come in order, immediately, for any share of the table and any age of its statistics.
        source=f"{qualified(table.schema, table.name)} AS {ROW}{forced}",
        key=tuple(KeyColumn(k, _present(types[k], found[k][1])) for k in table.key),
        columns=frozenset(found),
    )


def _index(session: Session, table: ScanTable) -> str:
    """The hint to read by the index of the relation's key: primary, or unique and without NULLs."""
    indexes: dict[str, list[dict[str, Any]]] = {}
    for part in records(session, INDEXES, (table.schema, table.name)):
        indexes.setdefault(part["index_name"], []).append(part)
    columns = {name: [p["column_name"] for p in parts if _is_whole(p)] for name, parts in indexes.items()}
    wanted = list(table.key)
    # one in the key's own order returns rows without sorting
    for name in sorted(columns, key=lambda n: columns[n] != wanted):
        if set(columns[name]) == set(wanted) and len(indexes[name]) == len(wanted):
            hidden = any(p.get("is_visible", "YES") == "NO" or p.get("ignored", "NO") == "YES" for p in indexes[name])
            return "" if hidden else f" FORCE INDEX ({quote_identifier(name)})"
    raise DataError(
        "data.schema_changed",
        f"({', '.join(wanted)}) is no longer the primary key of {table.schema}.{table.name}, nor a unique key",
        "RESYNC TABLE reads it again with its new key, or restore the key.",
    )


def _is_whole(part: dict[str, Any]) -> bool:
    """Whether an index column distinguishes rows by its whole value, and can be read in order."""
    return part["sub_part"] is None and part["nullable"] != "YES" and part["index_type"] == "BTREE"


def selection(table: ScanTable, at: Table) -> Selection:
    """The columns first, as decoding expects them; then the texts of key columns that need another form."""
    chosen = []
    for column, expression in zip(table.columns, table.select, strict=True):
        present = column.name in at.columns  # dropped upstream: NULL from then on
        chosen.append(_of(expression, column.name) if present else "NULL")
    own = {(c.name, e): i for i, (c, e) in enumerate(zip(table.columns, table.select, strict=True))}
    twins = count(len(chosen))
    places = []
    for name, text in zip(table.key, table.key_text, strict=True):
        if (name, text) in own:
            places.append(own[name, text])
        else:
            chosen.append(_of(text, name))
            places.append(next(twins))
    condition = f" AND {filter_text(table.filter)}" if table.filter else ""
    return Selection(tuple(chosen), tuple(places), condition)


def key_texts(table: ScanTable) -> str:
    """The key's texts as a SELECT list."""
    return ", ".join(_of(text, name) for name, text in zip(table.key, table.key_text, strict=True))


def _same_kind(type: UpstreamType, now: str, charset: str) -> bool:
    """Whether values of the current type can be read as the relation's type; it may have been widened."""
    if type.name == "geometry" or now == type.name or {now, type.name} <= INTEGERS or {now, type.name} <= FLOATS:
        return (type.charset or "binary") == (charset or "binary")
    return {now, type.name} <= TEXTUAL and type.charset == charset


def _present(type: UpstreamType, column_type: str) -> UpstreamType:
    return replace(type, labels=labels(column_type)) if type.name in ("enum", "set") else type


def _of(expression: str, column: str) -> str:
    return expression.format(f"{ROW}.{quote_identifier(column)}")
