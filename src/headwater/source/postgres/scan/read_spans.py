"""The PostgreSQL side of a scan: one short transaction that locks, takes its snapshot and streams rows as Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from headwater.errors import DataError, SourceError
from headwater.model import Bound, LogColumn, SchemaVersion, Span
from headwater.source.keyset import order
from headwater.source.postgres.client.arrow import ArrowSession
from headwater.source.postgres.client.ask import qualified
from headwater.source.postgres.client.session import Endpoint, quote_identifier, quote_literal
from headwater.source.postgres.scan.filter import filter_text
from headwater.source.postgres.scan.keyset import KEY, ROW, KeyColumn, condition
from headwater.source.spans import Hooks, ScanTable, Seen

# Their Arrow value prints as the database prints it, so it can be used directly as a bound. For any other key column a
# scan also selects the database's own text, as a twin after the table's columns.
DIRECT = frozenset({"int2", "int4", "int8", "text", "varchar", "bpchar", "name"})

TABLE = """
SELECT c.oid::bigint, c.relkind::text, a.attname::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE n.nspname = {schema} AND c.relname = {name}
"""

COLUMNS = """
SELECT a.attname::text, a.attnum::int8, a.atttypid::int8, a.atttypmod::int8
FROM pg_attribute a WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""

# One statement, so all of it belongs to the transaction's snapshot. `high` may be read as soon as the snapshot exists:
# whatever is visible in it has already written its commit record.
SEEN = """
SELECT pg_is_in_recovery()::text,
       (SELECT system_identifier::text FROM pg_control_system()),
       CASE WHEN NOT pg_is_in_recovery() THEN substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) END,
       to_char(pg_postmaster_start_time() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'),
       pg_current_snapshot()::text,
       CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_insert_lsn()::text END,
       {table}::regclass::oid::bigint::text
"""


@dataclass(frozen=True, slots=True)
class ScannedTable:
    """A table as the upstream has it now: how to read it, its key with operators, its current columns."""

    oid: int
    source: str  # the text after FROM and LOCK TABLE
    key: tuple[KeyColumn, ...]
    columns: frozenset[str]


class TableScan:
    """An open scan: `seen` is fixed when it opens; then read `batches()`, or `stop()`; `close()` ends the transaction.

    ACCESS SHARE is what any SELECT takes. It must come before the snapshot: an older snapshot reads nothing from a
    table that a TRUNCATE or a rewriting ALTER emptied in between, without an error.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        table: ScanTable,
        *,
        lock_timeout_s: float,
        batch_bytes: int,
        hooks: Hooks = lambda _: None,
        snapshot: str = "",
    ) -> None:
        self.endpoint = endpoint
        self.table = table
        self._batch_bytes = batch_bytes
        self._snapshot = snapshot
        self._session = ArrowSession(endpoint)
        try:
            # Read before the transaction, so that the lock comes before the snapshot.
            self.upstream = describe(self.rows, table)
            self._begin(lock_timeout_s)
            hooks("scan.before_snapshot")
            self.seen = self._look()
            self.described: SchemaVersion | None = self._describe()
            hooks("scan.after_snapshot")
        except BaseException:
            self.close()
            raise

    def batches(self, span: Span, max_rows: int = 0) -> Iterator[pa.RecordBatch]:
        """The span's rows in key order, limited to `max_rows` if that is not 0.

        Each batch has the table's columns first, as `decode.scanned` expects them.
        """
        at = self.upstream
        limit = f" LIMIT {max_rows}" if max_rows else ""
        return self._session.stream(
            f"SELECT {', '.join(self._select())} FROM {at.source} AS {ROW} "
            f"WHERE {condition(at.key, span)}{self._filter()} ORDER BY {order(at.key)}{limit}",
            self._batch_bytes,
        )

    def _filter(self) -> str:
        return f" AND {filter_text(self.table.filter)}" if self.table.filter else ""

    def bound_after(self, batch: pa.RecordBatch) -> Bound:
        """The place just after the last row of a batch."""
        last = batch.slice(batch.num_rows - 1)
        return Bound(tuple(str(last.column(i)[0].as_py()) for i in self._key_places()), after=True)

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a small statement inside the transaction."""
        return self._session.rows(statement)

    def stop(self) -> None:
        """Ends the stream of rows early; the rest of the span was not read."""
        self._session.stop()

    def finish(self) -> None:
        """Ends the transaction and advances the log with a message, so that even an idle database reaches `high`.

        The message's commit is flushed but waits for no standby: `synchronous_commit` may be off, or may hang.
        """
        self._session.execute("ROLLBACK")
        self._session.execute("SET synchronous_commit = local")
        self.rows("SELECT pg_logical_emit_message(true, 'headwater', 'scan')::text")

    def close(self) -> None:
        """Closes the session, and with it the transaction."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def _begin(self, lock_timeout_s: float) -> None:
        """Opens the transaction and locks. None of these statements takes a snapshot."""
        self._session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        for setting, value in {
            "lock_timeout": f"{int(lock_timeout_s * 1000)}ms",
            "row_security": "off",  # rows that a policy would hide become an error
            "max_parallel_workers_per_gather": "0",  # a scan costs the upstream one backend
            "jit": "off",
            # The key's index returns rows in order, immediately, for any share of the table and any age of its
            # statistics.
            "enable_seqscan": "off",
            "enable_sort": "off",
        }.items():
            self._session.execute(f"SET LOCAL {setting} = {quote_literal(value)}")
        self._session.execute(f"LOCK TABLE {self.upstream.source} IN ACCESS SHARE MODE")
        if self._snapshot:  # for a comparison's cut; a scan takes its own
            self._session.execute(import_statement(self._snapshot))

    def _look(self) -> Seen:
        ((standby, system, timeline_hex, start, saw, high, oid),) = self.rows(
            SEEN.format(table=quote_literal(qualified(self.table.schema, self.table.name)))
        )
        if standby == "true":
            raise SourceError(
                "source.standby",
                f"{self.endpoint.host}:{self.endpoint.port} is a standby",
                "Point the connection's hostname and port at the primary.",
            )
        timeline = int(timeline_hex, 16)
        expected = self.table.identity
        if expected.get("system_identifier", system) != system or expected.get("timeline", str(timeline)) != str(
            timeline
        ):
            raise SourceError(
                "source.replaced",
                f"another server (or another timeline of it) answers at {self.endpoint.host}:{self.endpoint.port}",
                "Point the connection back at the original server, or DROP and CREATE it.",
            )
        if int(oid) != (self.table.upstream_id or self.upstream.oid):
            raise _gone(self.table)
        return Seen(saw, high, f"{start}/{timeline}")

    def _describe(self) -> SchemaVersion:
        """The table as its log would describe it: the lock keeps it so, and the snapshot is newer than the lock."""
        table, key = self.table, {k.name for k in self.upstream.key}
        found = self.rows(COLUMNS.format(oid=self.upstream.oid))
        numbers = {name: number for name, number, _, _ in found}
        for column in table.columns:
            place = column.upstream.number
            if place and numbers.get(column.name, place) != place:
                raise DataError(
                    "data.schema_changed",
                    f"column {column.name} of {table.schema}.{table.name} was dropped and added again, or renamed",
                    "RESYNC TABLE reads it again in its new form.",
                )
        columns = tuple(LogColumn(name, type_oid, modifier, name in key) for name, _, type_oid, modifier in found)
        return SchemaVersion(0, self.upstream.oid, 0, table.schema, table.name, "d", columns)

    def _select(self) -> Iterator[str]:
        table = self.table
        for column, expression in zip(table.columns, table.select, strict=True):
            name = quote_identifier(column.name)
            if column.name not in self.upstream.columns:  # dropped upstream: NULL from then on
                kind = quote_identifier(column.upstream.name) if expression == "{0}" else "text"
                yield f"NULL::{kind} AS {name}"
            else:
                yield f"{expression.format(name)} AS {name}"
        twins = len(table.columns)
        yield from (text for text, i in zip(key_texts(table), self._key_places(), strict=True) if i >= twins)

    def _key_places(self) -> list[int]:
        """Where a batch holds the texts of the key columns: the column itself, or a twin after all columns."""
        own = {c.name: i for i, c in enumerate(self.table.columns) if c.upstream.name in DIRECT}
        twins = count(len(self.table.columns))
        return [own[name] if name in own else next(twins) for name in self.table.key]


def key_texts(table: ScanTable) -> list[str]:
    """The expressions that return the texts of the key's columns."""
    return [text.format(quote_identifier(k)) for text, k in zip(table.key_text, table.key, strict=True)]


def import_statement(snapshot: str) -> str:
    """The statement that makes a transaction see a cut; must come before its first query."""
    return f"SET TRANSACTION SNAPSHOT {quote_literal(snapshot).strip()}"


def describe(rows: Callable[[str], list[tuple[Any, ...]]], table: ScanTable) -> ScannedTable:
    """The table as it is now; it must exist and have the relation's key."""
    found = rows(TABLE.format(schema=quote_literal(table.schema), name=quote_literal(table.name)))
    if not found:
        raise _gone(table)
    oid, kind, _ = found[0]
    found_key = {name: KeyColumn(name, operators, cast) for name, operators, cast in rows(KEY.format(oid=oid))}
    if set(found_key) != set(table.key):
        raise DataError(
            "data.schema_changed",
            f"the primary key of {table.schema}.{table.name} is no longer ({', '.join(table.key)})",
            "RESYNC TABLE reads it again with its new key, or restore the key.",
        )
    name = qualified(table.schema, table.name)
    return ScannedTable(
        oid=oid,
        # Plain inheritance would return the children's rows; a partitioned table is read through its root.
        source=name if kind == "p" else f"ONLY {name}",
        key=tuple(found_key[name] for name in table.key),
        columns=frozenset(name for _, _, name in found),
    )


def _gone(table: ScanTable) -> DataError:
    return DataError(
        "data.rewritten",
        f"the upstream table {table.schema}.{table.name} was dropped or created again",
        f"RESYNC TABLE reads it again, once {table.name} exists.",
    )
