"""The rows of `changelog('connection', …)`: a connection's changes in Debezium's shape, the newest unless told."""

from __future__ import annotations

import pyarrow as pa

from headwater import __version__
from headwater.changelog.envelope import SCHEMA, Place, envelope
from headwater.changelog.reader import read_table, read_transactions
from headwater.decode.changes import decode_changes
from headwater.engine.home import Home
from headwater.errors import DefinitionError
from headwater.meta import changes as changes_of
from headwater.meta import connections, relations, segments
from headwater.model import ConnectionInfo, Epoch, RelationInfo
from headwater.source.kinds import kind

NEWEST = 10_000  # changes that are shown when no range is given


def changelog_rows(
    home: Home, epoch: Epoch, connection: str, table: str | None, first: int | None, last: int | None
) -> pa.Table:
    """Changes with first <= index <= last of the connection's tables (or of one), in index order."""
    with home.meta.read() as c:
        found = connections.find(c, connection)
        if found is None:
            raise DefinitionError(
                "name.unknown", f"there is no connection {connection}", "SHOW CONNECTIONS lists them."
            )
        meant = [r for r in relations.all(c, found.id) if table is None or r.name.lower() == table.lower()]
    if table is not None and not meant:
        raise DefinitionError(
            "name.unknown", f"connection {connection} has no table {table}", "SHOW TABLES lists what there is."
        )
    newest = epoch.index_of(found.id)
    upto = newest if last is None else min(last, newest)
    after = max(upto - NEWEST, 0) if first is None else max(first - 1, 0)
    pieces = [_of_table(home, found, relation, after, upto) for relation in meant]
    return pa.concat_tables([SCHEMA.empty_table(), *pieces]).sort_by("index")


def _of_table(home: Home, connection: ConnectionInfo, relation: RelationInfo, after: int, upto: int) -> pa.Table:
    with home.meta.read() as c:
        pieces = changes_of.pieces(c, relation, after, upto)
        versions = {v.id: v for v in changes_of.schemas(c, relation)}
        around = segments.in_range(c, connection.id, after, connection.committed_index) if pieces else []
    raw = read_table(home.storage, pieces, after, upto)
    changes = decode_changes(raw, versions, relation.columns, relation.key)
    place = Place(
        __version__,
        connection.name,
        connection.options.get("database.name", ""),
        relation.origin.schema,
        relation.origin.table,
        kind(connection.type).origin,
    )
    return envelope(changes.table, read_transactions(home.storage, [s.path for s in around]), relation.key, place)
