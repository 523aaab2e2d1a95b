"""The rows of `changelog('connection', …)`: a connection's changes in Debezium's shape; by default the newest."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from headwater import __version__
from headwater.changelog.envelope import TableSource, envelope
from headwater.changelog.reader import read_transactions
from headwater.engine.home import Home
from headwater.errors import unknown_name
from headwater.meta import connections, relations, segments
from headwater.model import ConnectionInfo, Epoch, RelationInfo, TableState
from headwater.relation.changes import Changes
from headwater.source.kinds import kind

NEWEST = 10_000  # changes shown when no range is given


def changelog_rows(
    home: Home, changes: Changes, epoch: Epoch, connection: str, table: str | None, first: int | None, last: int | None
) -> Iterator[pa.Table]:
    """Changes with first <= index <= last of the connection's tables (or of one), in pieces of bounded size."""
    with home.meta.read() as c:
        found = connections.find(c, connection)
        if found is None:
            raise unknown_name("connection", connection, [x.name for x in connections.all(c)])
        shown = [r for r in relations.named(c) if r.view is None and r.table_origin.connection_id == found.id]
    meant = _one_each(shown if table is None else _named(shown, table))
    newest = epoch.index_of(found.id)
    upto = newest if last is None else min(last, newest)
    after = max(upto - NEWEST, 0) if first is None else max(first - 1, 0)
    return (rows for relation in meant for rows in _of_table(home, changes, found, relation, after, upto))


def _named(shown: list[RelationInfo], table: str) -> list[RelationInfo]:
    """The relation with that name, or those that follow the upstream table: `schema.table`, or `table` if it is one."""
    name = table.lower()
    for match in (
        [r for r in shown if r.name.lower() == name],
        [r for r in shown if r.table_origin.name.lower() == name],
        [r for r in shown if r.table_origin.table.lower() == name],
    ):
        if len({r.table_origin.name for r in match}) == 1:
            return match
    raise unknown_name("table", table, [*(r.name for r in shown), *(r.table_origin.name for r in shown)])


def _one_each(meant: list[RelationInfo]) -> list[RelationInfo]:
    """One relation for each upstream table, so that each change is shown once: the one that shows most of its columns.

    Preferably one that has not failed: it may have failed because such changes cannot be decoded.
    """
    best: dict[int, RelationInfo] = {}
    for relation in sorted(meant, key=lambda r: (r.state is TableState.FAILED, -len(r.columns))):
        best.setdefault(relation.table_origin.upstream_id, relation)
    return [relation for relation in meant if best[relation.table_origin.upstream_id] is relation]


def _of_table(
    home: Home, changes: Changes, connection: ConnectionInfo, relation: RelationInfo, after: int, upto: int
) -> Iterator[pa.Table]:
    source = TableSource(
        __version__,
        connection.name,
        connection.options.get("database.name", ""),
        relation.table_origin.schema,
        relation.table_origin.table,
        kind(connection.type).source_block,
    )
    for part in changes.slices(relation, after, upto, apart=True):
        if part.table.num_rows:
            with home.meta.read() as c:
                found = segments.completing(c, connection.id, part.after, part.upto)
            transactions = read_transactions(home.storage, found)
            for start in range(0, part.table.num_rows, NEWEST):  # an envelope is JSON, row by row
                yield envelope(part.table.slice(start, NEWEST), transactions, relation.key, source)
