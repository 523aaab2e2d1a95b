"""SHOW, SHOW CREATE and DESCRIBE: the contents of meta as rows, without secrets."""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from headwater.backfill.span import joined
from headwater.config import Secret
from headwater.engine.commit.holds import holds
from headwater.engine.failures import Failures
from headwater.engine.home import Home
from headwater.engine.results import Result, Status
from headwater.engine.running import Running
from headwater.engine.status.metrics import Family, collect
from headwater.engine.status.progress import about, percent
from headwater.engine.status.status import connection_error, status_of
from headwater.errors import SqlError, unknown_name
from headwater.meta import connections, epochs, progress, relations, spans, tables
from headwater.model import RelationInfo
from headwater.source.options import SECRET
from headwater.sql import statements as st
from headwater.sql.ranges import condition
from headwater.sql.tokens import hide_passwords
from headwater.sql.view import names
from headwater.sql.view.listing import materialized_views, plain_views
from headwater.sql.view.rows import DOUBLE, LONG, STRING, TIME, error_text, rows_of

EPOCHS_SHOWN = 100
SEGMENTS_SHOWN = 1000
RANGES_SHOWN = 5


def run(home: Home, statement: st.Statement) -> Result:
    """The rows of a listing."""
    match statement:
        case st.Show(kind=st.Listing.BACKFILLS):
            return _backfills(status_of(home, home.live.server))
        case st.Show(kind=st.Listing.METRICS):
            return _metrics(collect(home, home.live.server))
        case st.Show(kind=st.Listing.QUERIES):
            return _queries(home.live.queries.all())
    with home.meta.read() as c:
        match statement:
            case st.Show(kind=st.Listing.CONNECTIONS):
                return _connections(c, home.live.failures)
            case st.Show(kind=st.Listing.TABLES):
                return _tables(c)
            case st.Show(kind=st.Listing.EPOCHS):
                return _epochs(c)
            case st.Show(kind=st.Listing.SEGMENTS):
                return _segments(c)
            case st.Show(kind=st.Listing.HOLDS):
                return _holds(c)
            case st.ShowCreate():
                return _create(c, statement)
            case st.Describe():
                return _describe(c, statement)
            case st.Show(kind=st.Listing.MATERIALIZED_VIEWS):
                return materialized_views(c, home.live.server)
            case st.Show(kind=st.Listing.VIEWS):
                return plain_views(c)
    raise SqlError("sql.unsupported", f"line {statement.line}: this statement is not allowed here", "See docs/sql.md.")


def _connections(c: Connection, failures: Failures) -> Result:
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
            error_text(connection_error(x, failures) or None),
        )
        for x in connections.all(c)
    ]
    return rows_of(columns, rows, "SHOW CONNECTIONS")


def _tables(c: Connection) -> Result:
    columns = [("name", STRING), ("connection", STRING), ("upstream", STRING), ("state", STRING)]
    columns += [("spans", STRING), ("scanned_rows", LONG), ("notices", LONG), ("error", STRING)]
    by_id = {x.id: x.name for x in connections.all(c)}
    found, noted = progress.of_all(c), progress.notices(c)
    rows = []
    for r in relations.tables(c):
        if r.replaces:
            continue
        p = found[r.id]
        upstream = r.table_origin.name
        rows.append(
            (
                *(
                    r.name,
                    by_id.get(r.table_origin.connection_id, ""),
                    upstream,
                    r.shown_state,
                    f"{p.covered}/{p.total}",
                ),
                *(p.rows, noted.get(r.id, 0), error_text(r.error)),
            )
        )
    return rows_of(columns, rows, "SHOW TABLES")


def _backfills(status: Status) -> Result:
    columns = [("table", STRING), ("state", STRING), ("covered", STRING), ("spans", STRING), ("scanned_rows", LONG)]
    columns += [("estimated_rows", LONG), ("rows_per_second", LONG), ("time_left", STRING), ("position", STRING)]
    columns += [("lag_seconds", DOUBLE), ("lag_bytes", LONG), ("waits_for", STRING), ("note", STRING)]
    columns += [("error", STRING), ("hint", STRING), ("retry", STRING)]
    rows = [
        (
            *(t.name, t.state, percent(t.covered), f"{t.spans_done}/{t.spans_total}", t.scanned_rows, t.rows_estimate),
            *(round(t.rate) if t.rate else None, None if t.left_s is None else about(t.left_s), t.position or None),
            *(None if t.lag_s is None else round(t.lag_s, 1), t.lag_bytes, t.waiting_for or None, t.note or None),
            *(f"{t.error} ({t.code})" if t.error else None, t.hint or None, t.retry or None),
        )
        for t in status.tables
    ]
    return rows_of(columns, rows, "SHOW BACKFILLS")


def _metrics(families: Sequence[Family]) -> Result:
    columns = [("name", STRING), ("labels", STRING), ("value", DOUBLE), ("help", STRING)]
    rows = [
        (x.name, ", ".join(f"{k}={v}" for k, v in zip(f.metric.labels, x.labels, strict=True)), x.value, f.metric.help)
        for f in families
        for x in f.samples
    ]
    return rows_of(columns, rows, "SHOW METRICS")


def _queries(running: Sequence[Running]) -> Result:
    columns = [("id", LONG), ("started_at", TIME), ("seconds", DOUBLE), ("client", STRING), ("state", STRING)]
    columns += [("query", STRING)]
    now = time.time()
    rows = [
        (q.id, _time(q.since), round(now - q.since, 1), str(q.caller), q.state, hide_passwords(q.text)) for q in running
    ]
    return rows_of(columns, rows, "SHOW QUERIES")


def _epochs(c: Connection) -> Result:
    columns = [("epoch", LONG), ("published_at", TIME), ("connection", STRING), ("index", LONG), ("position", STRING)]
    names = {x.id: x.name for x in connections.all(c)}
    rows = [
        (e.id, _time(e.created_at), names.get(entry.connection_id), entry.index, entry.position)
        for e in epochs.recent(c, EPOCHS_SHOWN)
        for entry in e.entries
    ]
    return rows_of(columns, rows, "SHOW EPOCHS")


def _segments(c: Connection) -> Result:
    columns = [("connection", STRING), ("first_index", LONG), ("last_index", LONG), ("bytes", LONG)]
    columns += [("published_at", TIME), ("path", STRING)]
    names = {x.id: x.name for x in connections.all(c)}
    s = tables.segment
    found = c.execute(sa.select(s).order_by(s.c.connection_id, s.c.first_index.desc()).limit(SEGMENTS_SHOWN))
    rows = [
        (names.get(x.connection_id), x.first_index, x.last_index, x.bytes, _time(x.created_at), x.path) for x in found
    ]
    return rows_of(columns, rows, "SHOW SEGMENTS")


def _holds(c: Connection) -> Result:
    columns = [("connection", STRING), ("holder", STRING), ("after_index", LONG), ("changes", LONG), ("since", TIME)]
    rows = [
        (h.connection, h.holder, h.index, h.changes, None if h.since is None else _time(h.since))
        for connection in connections.all(c)
        for h in holds(c, connection)
    ]
    return rows_of(columns, rows, "SHOW HOLDS")


def _create(c: Connection, statement: st.ShowCreate) -> Result:
    if statement.kind is st.ObjectKind.CONNECTION:
        connection = connections.find(c, statement.name)
        if connection is None:
            raise unknown_name("connection", statement.name, [x.name for x in connections.all(c)])
        text = _with_reference(connections.statement(c, connection.id), connections.secret(c, connection.id))
    elif statement.kind is st.ObjectKind.VIEW:
        text = names.plain_view(c, statement.name).statement
    else:
        text = relations.statement(c, names.relation(c, statement.kind, statement.name).id)
    return rows_of([("statement", STRING)], [(text + ";",)], f"SHOW CREATE {statement.kind.upper()} {statement.name}")


def _with_reference(statement: str, secret: Secret | None) -> str:
    """The definition with its password's reference, which is not a secret; a password itself is never shown."""
    reference = None if secret is None else secret.reference
    if reference is None:
        return statement
    head, end = statement.rsplit("\n)", 1)
    return f"{head},\n    {SECRET} = {st.quote_text(reference)}\n){end}"


def _describe(c: Connection, statement: st.Describe) -> Result:
    relation = relations.find(c, statement.name)
    if relation is None:
        raise names.unknown(c, st.ObjectKind.TABLE, statement.name)
    columns = [("column", STRING), ("type", STRING), ("key", LONG), ("upstream_type", STRING)]
    rows = [
        (
            x.name,
            x.lake_type,
            relation.key.index(x.name) + 1 if x.name in relation.key else None,
            x.upstream.name or None,
        )
        for x in relation.shown_columns
    ]
    result = rows_of(columns, rows, f"DESCRIBE {relation.name}")
    notices = tuple(f"{relation.name}: {n.text} ({n.count})" for n in relations.notices(c, relation.id))
    return Result(result.columns, result.types, result.rows, "", _covered(c, relation) + notices, result.statement)


def _covered(c: Connection, relation: RelationInfo) -> tuple[str, ...]:
    """The part of a table that a reader sees while it is being filled; empty if that is all of it."""
    p = progress.of_all(c)[relation.id]
    if p.complete or not p.total:
        return ()
    text = f"{relation.name}: {percent(p.share)} covered, {p.covered} of {p.total} spans"
    if not relation.ordered:
        return (f"{text}; only the database can order its keys: readable when complete",)
    read = [x.span for x in spans.all(c, relation.id) if x.state in progress.COVERED]
    shown = [condition(relation.key, x) for x in joined(read)]
    more = f" and {len(shown) - RANGES_SHOWN} more ranges" if len(shown) > RANGES_SHOWN else ""
    return (f"{text}: {'; '.join(shown[:RANGES_SHOWN])}{more}" if shown else text,)


def _time(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)
