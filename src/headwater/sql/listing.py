"""SHOW, SHOW CREATE and DESCRIBE: what meta knows, as rows. Nothing secret is in them."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from headwater.engine.home import Home
from headwater.engine.results import Result
from headwater.errors import SqlError
from headwater.meta import connections, epochs, relations, spans, tables
from headwater.sql import statements as st
from headwater.sql.define import unknown

EPOCHS_SHOWN = 100
SEGMENTS_SHOWN = 1000

STRING, LONG, TIME = pa.string(), pa.int64(), pa.timestamp("us", tz="UTC")
DDL = {STRING: "STRING", LONG: "BIGINT", TIME: "TIMESTAMP"}
Columns = Sequence[tuple[str, pa.DataType]]


def run(home: Home, statement: st.Statement) -> Result:
    """The rows of a listing."""
    with home.meta.read() as c:
        match statement:
            case st.Show(kind=st.Listing.CONNECTIONS):
                return _connections(c)
            case st.Show(kind=st.Listing.TABLES):
                return _tables(c)
            case st.Show(kind=st.Listing.EPOCHS):
                return _epochs(c)
            case st.Show(kind=st.Listing.SEGMENTS):
                return _segments(c)
            case st.ShowCreate():
                return _create(c, statement)
            case st.Describe():
                return _describe(c, statement)
    raise SqlError("sql.unsupported", f"line {statement.line}: this statement does not stand here", "See docs/sql.md.")


def _rows(columns: Columns, rows: Sequence[Sequence[object]], statement: str) -> Result:
    by_column = list(zip(*rows, strict=True)) if rows else [() for _ in columns]
    arrays = [pa.array(list(v), type) for v, (_, type) in zip(by_column, columns, strict=True)]
    names = tuple(name for name, _ in columns)
    table = pa.Table.from_arrays(arrays, names=list(names))
    return Result(names, tuple(DDL[type] for _, type in columns), table, statement=statement)


def _connections(c: Connection) -> Result:
    columns = [("name", STRING), ("type", STRING), ("state", STRING), ("index", LONG), ("position", STRING)]
    columns += [("tables", LONG), ("error", STRING)]
    rows = [
        (
            x.name,
            x.type,
            x.state,
            x.committed_index,
            x.position,
            sum(not r.replaces for r in relations.all(c, x.id)),
            _error(x.error),
        )
        for x in connections.all(c)
    ]
    return _rows(columns, rows, "SHOW CONNECTIONS")


def _tables(c: Connection) -> Result:
    columns = [("name", STRING), ("connection", STRING), ("upstream", STRING), ("state", STRING)]
    columns += [("spans", STRING), ("scanned_rows", LONG), ("notices", LONG), ("error", STRING)]
    by_id = {x.id: x.name for x in connections.all(c)}
    rows = []
    for r in relations.named(c):
        found = spans.all(c, r.id)
        covered = sum(s.cover_index is not None for s in found)
        upstream = f"{r.upstream_schema}.{r.upstream_table}"
        notices = sum(n.count for n in relations.notices(c, r.id))
        rows.append(
            (
                *(r.name, by_id.get(r.connection_id, ""), upstream, r.state, f"{covered}/{len(found)}"),
                *(spans.rows(c, r.id), notices, _error(r.error)),
            )
        )
    return _rows(columns, rows, "SHOW TABLES")


def _epochs(c: Connection) -> Result:
    columns = [("epoch", LONG), ("published_at", TIME), ("connection", STRING), ("index", LONG), ("position", STRING)]
    names = {x.id: x.name for x in connections.all(c)}
    rows = [
        (e.id, _time(e.created_at), names.get(cut.connection_id), cut.index, cut.position)
        for e in epochs.recent(c, EPOCHS_SHOWN)
        for cut in e.cuts
    ]
    return _rows(columns, rows, "SHOW EPOCHS")


def _segments(c: Connection) -> Result:
    columns = [("connection", STRING), ("first_index", LONG), ("last_index", LONG), ("bytes", LONG)]
    columns += [("published_at", TIME), ("path", STRING)]
    names = {x.id: x.name for x in connections.all(c)}
    s = tables.segment
    found = c.execute(sa.select(s).order_by(s.c.connection_id, s.c.first_index.desc()).limit(SEGMENTS_SHOWN))
    rows = [
        (names.get(x.connection_id), x.first_index, x.last_index, x.bytes, _time(x.created_at), x.path) for x in found
    ]
    return _rows(columns, rows, "SHOW SEGMENTS")


def _create(c: Connection, statement: st.ShowCreate) -> Result:
    if statement.kind is st.ObjectKind.CONNECTION:
        connection = connections.find(c, statement.name)
        if connection is None:
            raise unknown("connection", statement.name, [x.name for x in connections.all(c)])
        text = connections.statement(c, connection.id)
    else:
        text = relations.statement(c, _relation(c, statement.name))
    return _rows([("statement", STRING)], [(text + ";",)], f"SHOW CREATE {statement.kind.upper()} {statement.name}")


def _describe(c: Connection, statement: st.Describe) -> Result:
    relation = relations.get(c, _relation(c, statement.name))
    columns = [("column", STRING), ("type", STRING), ("key", LONG), ("upstream_type", STRING)]
    rows = [
        (x.name, x.lake_type, relation.key.index(x.name) + 1 if x.name in relation.key else None, x.upstream.name)
        for x in relation.columns
    ]
    result = _rows(columns, rows, f"DESCRIBE {relation.name}")
    notices = tuple(f"{relation.name}: {n.text} ({n.count})" for n in relations.notices(c, relation.id))
    return Result(result.columns, result.types, result.rows, "", notices, result.statement)


def _relation(c: Connection, name: str) -> int:
    relation = relations.find(c, name)
    if relation is None:
        raise unknown("table", name, [x.name for x in relations.named(c)])
    return relation.id


def _error(error: dict[str, str] | None) -> str | None:
    return None if error is None else f"{error['message']} ({error['code']})"


def _time(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
