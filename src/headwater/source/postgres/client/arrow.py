"""A PostgreSQL session that returns Arrow: ADBC below its DB-API, which would load pandas into every worker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any

import adbc_driver_manager
import adbc_driver_postgresql
import pyarrow as pa
from adbc_driver_postgresql import StatementOptions

from headwater.source.postgres.client.refusals import broken_stream, translate
from headwater.source.postgres.client.session import Endpoint


@lru_cache(maxsize=32)
def _database(uri: str) -> Any:
    """The driver's knowledge of a database: no session, but the whole type catalog, which takes 50 ms to read.

    Only built-in types reach the driver (others are selected as text), so it never goes stale.
    """
    return adbc_driver_postgresql.connect(uri)


class ArrowSession:
    """An autocommit session with the fixed settings; one statement at a time. Failures are raised as our own errors."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._parts: list[Any] = []  # what must be closed, in opening order
        self._stream: pa.RecordBatchReader | None = None
        try:
            connection = adbc_driver_manager.AdbcConnection(_database(endpoint.uri()))
            self._parts.append(connection)
            self._statement = adbc_driver_manager.AdbcStatement(connection)
            self._parts.append(self._statement)
        except adbc_driver_manager.Error as e:
            self.close()
            raise translate(endpoint, e) from e

    def execute(self, statement: str) -> None:
        """Runs a statement that returns no rows."""
        try:
            self._statement.set_sql_query(statement)
            self._statement.execute_update()
        except adbc_driver_manager.Error as e:
            raise translate(self.endpoint, e) from e

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """The rows of a small statement."""
        table = self._run(statement).read_all()
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def stream(self, statement: str, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """The rows of a statement in batches of about `batch_bytes`, as they arrive."""
        self._statement.set_options(**{StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(batch_bytes)})
        self._stream = self._run(statement)
        while self._stream is not None:
            try:
                batch = self._stream.read_next_batch()
            except StopIteration:
                self._stream = None
                return
            except (adbc_driver_manager.Error, OSError, pa.ArrowException) as e:
                raise broken_stream(self.endpoint, e) from e
            yield batch

    def stop(self) -> None:
        """Ends a stream early; the transaction is aborted, the session stays usable."""
        try:
            self._statement.cancel()
            if self._stream is not None:
                self._stream.close()
                self._stream = None
        except adbc_driver_manager.Error as e:
            raise translate(self.endpoint, e) from e

    def close(self) -> None:
        """Closes the session with any transaction and unread stream, even if the upstream is gone."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        while self._parts:
            with suppress(adbc_driver_manager.Error):  # nothing can be lost any more: the session ends either way
                self._parts.pop().close()

    def _run(self, statement: str) -> pa.RecordBatchReader:
        try:
            self._statement.set_sql_query(statement)
            stream, _ = self._statement.execute_query()
            return pa.RecordBatchReader._import_from_c(stream.address)
        except adbc_driver_manager.Error as e:
            raise translate(self.endpoint, e) from e
