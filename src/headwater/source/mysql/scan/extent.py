"""The MySQL side of planning: the ends of a table under one read view, and the keys at which spans end."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from headwater.config import LOCK_TIMEOUT_S, SCAN_BATCH_BYTES
from headwater.model import Bound, Span
from headwater.source.keyset import order
from headwater.source.mysql.catalog.table import describe, key_texts
from headwater.source.mysql.client.ask import query
from headwater.source.mysql.client.session import Endpoint
from headwater.source.mysql.scan.keyset import condition
from headwater.source.mysql.scan.read_spans import MysqlScan, TableReader, configure
from headwater.source.spans import Extent, ScanTable

# Both are InnoDB's estimates, from a sample of its pages.
SIZE = """
SELECT coalesce(data_length, 0), coalesce(table_rows, -1) FROM information_schema.tables
WHERE table_schema = %s AND table_name = %s
"""


def read_extent(endpoint: Endpoint, table: ScanTable) -> Extent:
    """The table's ends and size, read in its own transaction, which has ended on return."""
    with MysqlScan(endpoint, table, lock_timeout_s=LOCK_TIMEOUT_S, batch_bytes=SCAN_BATCH_BYTES) as scan:
        at = scan.reader.at
        keys = f"SELECT {key_texts(table)} FROM {at.source} ORDER BY"
        first, last = (scan.reader.texts(f"{keys} {order(at.key, descending=d)} LIMIT 1") for d in (False, True))
        seen = scan.seen
        scan.finish()
    with endpoint.connect() as session:
        found = query(session, SIZE, (table.schema, table.name))
    size, estimate = found[0] if found else (0, -1)
    return Extent(
        first=first[0] if first else None,
        last=last[0] if last else None,
        bytes=int(size),
        rows_estimate=int(estimate),
        saw=seen.saw,
        high=seen.high,
        server_life=seen.server_life,
    )


class MysqlKeyWalk:
    """A session that walks along a table's key; every call is its own short transaction."""

    def __init__(self, endpoint: Endpoint, table: ScanTable) -> None:
        self._session = endpoint.connect()
        try:
            at = describe(self._session, table)
            configure(self._session, LOCK_TIMEOUT_S)
            self._keys = f"SELECT {key_texts(table)} FROM {at.source}"
            self._reader = TableReader(endpoint, self._session, table, at, SCAN_BATCH_BYTES)
        except BaseException:
            self._session.close()
            raise

    def next_bound(self, after: Bound | None, upto: Bound, rows: int) -> Bound | None:
        """The place `rows` rows after `after` in the database's own order, if it is before the key of `upto`."""
        key = self._reader.at.key
        found = self._reader.texts(
            f"{self._keys} WHERE {condition(key, Span(after, Bound(upto.key, after=False)))} "
            f"ORDER BY {order(key)} LIMIT 1 OFFSET {rows - 1}"
        )
        return Bound(found[0], after=True) if found else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._session.close()
