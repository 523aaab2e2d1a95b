"""The PostgreSQL side of planning: the ends of a table under one snapshot, and the keys at which spans end."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from headwater.config import LOCK_TIMEOUT_S, SCAN_BATCH_BYTES
from headwater.model import Bound, Span
from headwater.source.keyset import order
from headwater.source.postgres.client.ask import query
from headwater.source.postgres.client.session import Endpoint
from headwater.source.postgres.scan.keyset import ROW, condition
from headwater.source.postgres.scan.read_spans import TableScan, describe, key_texts
from headwater.source.spans import Extent, ScanTable

# Of the table itself, or of all leaves of a partitioned one. `reltuples` is -1 if it was never analyzed.
SIZE = """
SELECT coalesce(sum(pg_table_size(c.oid)), 0)::bigint,
       CASE WHEN min(c.reltuples) < 0 THEN -1 ELSE coalesce(sum(c.reltuples), -1)::bigint END
FROM pg_class c
WHERE c.relkind <> 'p' AND c.oid IN (SELECT {oid}::oid UNION SELECT relid FROM pg_partition_tree({oid}::oid::regclass))
"""


def read_extent(endpoint: Endpoint, table: ScanTable) -> Extent:
    """The table's ends and size, read in its own REPEATABLE READ transaction, which has ended on return."""
    with TableScan(endpoint, table, lock_timeout_s=LOCK_TIMEOUT_S, batch_bytes=SCAN_BATCH_BYTES) as scan:
        at = scan.upstream
        keys = f"SELECT {', '.join(key_texts(table))} FROM {at.source} AS {ROW} ORDER BY"
        first, last = (scan.rows(f"{keys} {order(at.key, descending=d)} LIMIT 1") for d in (False, True))
        ((size, estimate),) = scan.rows(SIZE.format(oid=at.oid))
        seen = scan.seen
        scan.finish()
    return Extent(
        first=first[0] if first else None,
        last=last[0] if last else None,
        bytes=size,
        rows_estimate=estimate,
        saw=seen.saw,
        high=seen.high,
        server_life=seen.server_life,
    )


class PostgresKeyWalk:
    """A session that walks along a table's key; every call is its own short transaction."""

    def __init__(self, endpoint: Endpoint, table: ScanTable) -> None:
        self._table = table
        self._session = endpoint.connect()
        try:
            query(
                self._session,
                f"SET lock_timeout = '{int(LOCK_TIMEOUT_S * 1000)}ms'; SET row_security = off; "
                "SET enable_seqscan = off; SET enable_sort = off; SET max_parallel_workers_per_gather = 0",
            )
            self._upstream = describe(lambda statement: query(self._session, statement), table)
        except BaseException:
            self._session.close()
            raise

    def next_bound(self, after: Bound | None, upto: Bound, rows: int) -> Bound | None:
        """The place `rows` rows after `after` in the database's own order, if it is before the key of `upto`."""
        at = self._upstream
        found = query(
            self._session,
            f"SELECT {', '.join(key_texts(self._table))} FROM {at.source} AS {ROW} "
            f"WHERE {condition(at.key, Span(after, Bound(upto.key, after=False)))} "
            f"ORDER BY {order(at.key)} OFFSET {rows - 1} LIMIT 1",
        )
        return Bound(found[0], after=True) if found else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._session.close()
