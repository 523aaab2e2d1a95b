"""Scans of a real MySQL or MariaDB: a table's columns as a relation would have them."""

from __future__ import annotations

from pathlib import Path

from headwater.decode.mysql.types import lake_type
from headwater.model import Column, Condition
from headwater.source.mysql.binlog.position import table_number
from headwater.source.mysql.catalog.types import RawType, upstream_type
from headwater.source.mysql.reach import MysqlReach
from support.mysql import MyDatabase
from support.scanned import Bench

__all__ = ["Bench", "bench"]

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
    indexes: dict[str, list[str]] = {}
    for index, name in database.execute(KEY.format(**place)):
        indexes.setdefault(index, []).append(name)
    key_columns = tuple(next(iter(indexes.values())))  # the declared one before the primary key
    return Bench.of(
        MysqlReach(database.endpoint),
        home,
        (database.name, table),
        table_number(database.name, table),
        tuple(columns),
        key_columns,
        filter=filter,
        identity=identity,
    )
