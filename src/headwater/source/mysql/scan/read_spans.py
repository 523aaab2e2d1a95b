"""The MySQL side of a scan: one short transaction that locks, takes its read view and streams rows as they arrive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa
import pymysql

from headwater.errors import DataError
from headwater.model import Bound, SchemaVersion, Span
from headwater.source.keyset import order
from headwater.source.mysql.catalog.table import Table, describe, selection
from headwater.source.mysql.client.ask import qualified, query
from headwater.source.mysql.client.session import Endpoint, Session
from headwater.source.mysql.scan.keyset import condition
from headwater.source.mysql.scan.low import binlog_end, prove_low
from headwater.source.mysql.server import expect_server
from headwater.source.spans import Hooks, ScanTable, Seen

if TYPE_CHECKING:
    from headwater.source.mysql.client.rows import RowStream

# While a batch is decoded the server keeps filling the socket's buffer; with larger batches it would wait for us.
BATCH_BYTES = 2 << 20


class TableReader:
    """Reads a table through a session with an open transaction: rows in key order, and results of small queries."""

    def __init__(self, endpoint: Endpoint, session: Session, table: ScanTable, at: Table, batch_bytes: int) -> None:
        self._endpoint = endpoint
        self._session = session
        self._selection = selection(table, at)
        self._batch_bytes = min(batch_bytes, BATCH_BYTES)
        self._stream: RowStream | None = None
        self.at = at

    def batches(self, span: Span, max_rows: int = 0) -> Iterator[pa.RecordBatch]:
        """The span's rows in key order, limited to `max_rows` if that is not 0; `decode.scanned` reads them."""
        chosen, limit = self._selection, f" LIMIT {max_rows}" if max_rows else ""
        statement = (
            f"SELECT {', '.join(chosen.expressions)} FROM {self.at.source} "
            f"WHERE {condition(self.at.key, span)}{chosen.filter} ORDER BY {order(self.at.key)}{limit}"
        )
        try:
            self._stream = _stream(self._session, statement)
            yield from self._stream.batches(self._batch_bytes)
        except (pymysql.Error, OSError) as e:
            raise self._endpoint.translate(e) from e

    def bound_after(self, batch: pa.RecordBatch) -> Bound:
        """The place just after the last row of a batch."""
        from headwater.source.mysql.client.rows import texts_of

        values = texts_of(batch.column(0)[batch.num_rows - 1].as_py())
        return Bound(tuple(values[i] for i in self._selection.key_places), after=True)

    def texts(self, statement: str) -> list[tuple[str, ...]]:
        """The rows of a small statement, as the server's own texts."""
        from headwater.source.mysql.client.rows import texts_of

        try:
            stream = _stream(self._session, statement)
            return [texts_of(row) for batch in stream.batches(self._batch_bytes) for row in batch.column(0).to_pylist()]
        except (pymysql.Error, OSError) as e:
            raise self._endpoint.translate(e) from e

    def stop(self) -> None:
        """Ends the stream of rows early: the query is killed, the transaction stays open."""
        if self._stream is None or self._stream.ended:
            return
        with self._endpoint.connect() as other:
            query(other, f"KILL QUERY {self._session.thread_id()}")
        try:
            self._stream.drain()
        except (pymysql.Error, OSError) as e:
            raise self._endpoint.translate(e) from e


class MysqlScan:
    """An open scan: `seen` is fixed when it opens; then read `batches()`, or `stop()`; `close()` ends the transaction.

    The metadata lock is what any SELECT takes. It comes before the read view, so that no TRUNCATE or rewriting
    ALTER lies between them. The low comes before both: those in between are waited for without a lock.
    """

    described: SchemaVersion | None = None

    def __init__(
        self,
        endpoint: Endpoint,
        table: ScanTable,
        *,
        lock_timeout_s: float,
        batch_bytes: int,
        hooks: Hooks = lambda _: None,
    ) -> None:
        self._endpoint = endpoint
        self._session = endpoint.connect()
        try:
            life = expect_server(self._session, table.identity)
            shift = int(table.identity.get("shift", "0"))
            configure(self._session, lock_timeout_s)
            low = prove_low(endpoint, self._session, shift, lock_timeout_s)
            hooks("scan.before_snapshot")
            at = begin(self._session, table)
            # Everything the read view shows is in the binlog by now.
            high = binlog_end(self._session, shift)
            self.seen = Seen(str(low), str(high), life)
            self.reader = TableReader(endpoint, self._session, table, at, batch_bytes)
            hooks("scan.after_snapshot")
        except BaseException:
            self.close()
            raise

    def batches(self, span: Span, max_rows: int = 0) -> Iterator[pa.RecordBatch]:
        """The span's rows in key order, limited to `max_rows` if that is not 0; `decode.scanned` reads them."""
        return self.reader.batches(span, max_rows)

    def bound_after(self, batch: pa.RecordBatch) -> Bound:
        """The place just after the last row of a batch."""
        return self.reader.bound_after(batch)

    def stop(self) -> None:
        """Ends the stream of rows early, and with it the session: the server notices when it writes."""
        self.close()

    def finish(self) -> None:
        """Ends the transaction. The log's own heartbeat brings an idle database to `seen.high`."""
        if self._session.open:
            query(self._session, "ROLLBACK")

    def close(self) -> None:
        """Closes the session, and with it the transaction and any unread stream."""
        with suppress(pymysql.Error, OSError):  # nothing can be lost any more: the session ends either way
            self._session._force_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()


class CutScan:
    """A scan in a transaction that somebody else opened and will end."""

    described: SchemaVersion | None = None

    def __init__(self, reader: TableReader, seen: Seen) -> None:
        self._reader = reader
        self.seen = seen
        self.batches = reader.batches
        self.bound_after = reader.bound_after
        self.stop = reader.stop

    def finish(self) -> None:
        """Does nothing: the cut stays open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._reader.stop()


def configure(session: Session, lock_timeout_s: float) -> None:
    """Makes texts come in the bytes of their column's charset: what decoding reads, and what the log has."""
    seconds = max(1, round(lock_timeout_s))
    query(session, f"SET SESSION lock_wait_timeout = {seconds}, character_set_results = NULL")


def begin(session: Session, table: ScanTable) -> Table:
    """Opens the transaction, locks the table as it is now, and then takes the read view: the first row requested."""
    query(session, "START TRANSACTION READ ONLY")
    try:
        query(session, f"SELECT 1 FROM {qualified(table.schema, table.name)} LIMIT 0")
    except DataError:
        describe(session, table)  # which knows what happened to it
        raise
    at = describe(session, table)
    query(session, f"SELECT 1 FROM {at.source} LIMIT 1")
    return at


def _stream(session: Session, statement: str) -> RowStream:
    from headwater.source.mysql.client.rows import RowStream  # only scans need its kernel: definitions need none

    return RowStream(session, statement)
