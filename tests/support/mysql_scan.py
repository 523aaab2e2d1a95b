"""Scans against a real MySQL or MariaDB: a table's columns as a relation would have them, rows of the files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.backfill.plan import Plan, spans
from headwater.backfill.read_span import ScanJob
from headwater.decode.mysql.resultset import select_expression, text_expression, to_lake
from headwater.decode.mysql.types import lake_type
from headwater.model import Column, Condition, Span
from headwater.source.mysql.binlog.position import table_number
from headwater.source.mysql.catalog.types import RawType, upstream_type
from headwater.source.mysql.reach import MysqlReach
from headwater.source.spans import ScanTable
from headwater.storage import LocalStorage
from support.mysql import MyDatabase
from support.scanned import Scanned


@dataclass(frozen=True)
class Bench(Scanned):
    """A table on a real server and a home for its files."""

    reach: MysqlReach
    table: ScanTable
    home: Path

    @property
    def key_columns(self) -> tuple[Column, ...]:
        by_name = {c.name: c for c in self.table.columns}
        return tuple(by_name[k] for k in self.table.key)

    def job(self, span: Span, **changes: Any) -> ScanJob:
        return replace(ScanJob(self.reach, self.table, span, LocalStorage(self.home), "base"), **changes)

    def plan(self, **options: int) -> Plan:
        return Plan.of(self.reach.read_extent(self.table), tuple(c.lake_type for c in self.key_columns), **options)

    def spans(self, plan: Plan, **options: Any) -> list[Span]:
        with self.reach.walk(self.table) as walk:
            return [*spans(plan, walk.next_bound, **options), plan.beyond]

    def lake(self, batch: pa.RecordBatch) -> list[dict[str, Any]]:
        """A batch's rows as the lake would have them."""
        rows: list[dict[str, Any]] = to_lake(batch, self.table.columns, self.table.key)[0].to_pylist()
        return rows


COLUMNS = """
SELECT column_name, data_type, column_type, character_maximum_length, numeric_precision, numeric_scale,
       datetime_precision, character_set_name, collation_name, is_nullable, column_key
FROM information_schema.columns WHERE table_schema = '{schema}' AND table_name = '{name}' ORDER BY ordinal_position
"""
KEY = """
SELECT index_name, column_name FROM information_schema.statistics
WHERE table_schema = '{schema}' AND table_name = '{name}' AND index_name IN ('PRIMARY', 'declared')
ORDER BY index_name = 'PRIMARY', seq_in_index
"""


def bench(
    database: MyDatabase,
    home: Path,
    table: str,
    *,
    lake: dict[str, str] | None = None,
    filter: Condition | None = None,
    identity: dict[str, str] | None = None,
) -> Bench:
    """The named table of a test's database, with the default lake types or those of `lake`."""
    place = {"schema": database.name, "name": table.replace("'", "''")}
    columns = []
    for name, *raw, null, key in database.execute(COLUMNS.format(**place)):
        type = upstream_type(RawType(*raw), in_key=key in ("PRI", "UNI"), booleans=True)
        columns.append(Column(name, (lake or {}).get(name) or lake_type(type), type, null == "YES"))
    by_name = {c.name: c for c in columns}
    indexes: dict[str, list[str]] = {}
    for index, name in database.execute(KEY.format(**place)):
        indexes.setdefault(index, []).append(name)
    key_columns = tuple(next(iter(indexes.values())))  # the declared one before the primary key
    return Bench(
        MysqlReach(database.endpoint),
        ScanTable(
            schema=database.name,
            name=table,
            columns=tuple(columns),
            key=key_columns,
            select=tuple(select_expression(c) for c in columns),
            key_text=tuple(text_expression(by_name[k]) for k in key_columns),
            filter=filter,
            upstream_id=table_number(database.name, table),
            identity=identity or {},
        ),
        home,
    )
