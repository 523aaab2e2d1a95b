"""What happens to a table without a trace in its log: another engine or key, dropped partitions, recomputed columns.

A rebuild alone changes no row (OPTIMIZE TABLE, a new index), and DDL that does is in the log. What remains is DDL that
somebody kept out of the log (`sql_log_bin = 0`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from headwater.errors import DataError
from headwater.source.mysql.binlog.position import table_number
from headwater.source.mysql.client.ask import query
from headwater.source.mysql.client.charsets import collation_name
from headwater.source.mysql.client.session import Session

NAMES = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema = %s"
TABLES = """
SELECT table_name, table_type, coalesce(engine, ''), coalesce(date_format(create_time, '%%Y-%%m-%%dT%%H:%%i:%%s'), '')
FROM information_schema.tables WHERE table_schema = %s AND table_name IN ({names})
"""
COLUMNS = """
SELECT table_name, column_name, if(data_type IN ('enum', 'set'), '', coalesce(collation_name, '')),
       column_type, coalesce(character_set_name, ''), coalesce(generation_expression, '')
FROM information_schema.columns WHERE table_schema = %s AND table_name IN ({names})
"""
KEYS = """
SELECT table_name, index_name, column_name, sub_part IS NULL AND nullable <> 'YES' AND column_name IS NOT NULL
FROM information_schema.statistics WHERE table_schema = %s AND table_name IN ({names}) AND non_unique = 0
ORDER BY table_name, index_name, seq_in_index
"""
PARTITIONS = """
SELECT table_name, partition_method, coalesce(partition_expression, ''), coalesce(subpartition_name, partition_name)
FROM information_schema.partitions
WHERE table_schema = %s AND table_name IN ({names}) AND partition_name IS NOT NULL
ORDER BY partition_ordinal_position, subpartition_ordinal_position
"""


def fingerprints(session: Session, database: str, ids: Sequence[int]) -> dict[int, str]:
    """Each table's engine, shape, keys and partitions as text, by its number; empty if the table is gone."""
    numbers = {table_number(schema, name): name for schema, name in query(session, NAMES, (database,))}
    names = [numbers[i] for i in ids if i in numbers]
    shapes = _shapes(session, database, names) if names else {}
    found = {i: shapes.get(numbers.get(i, "")) for i in ids}
    return {i: json.dumps(shape, sort_keys=True) if shape else "" for i, shape in found.items()}


def verdict(before: str, after: str, table: str, key: Sequence[str]) -> DataError | None:
    """The error that stops the table, if its rows, or the order of its key, may have changed without log events."""
    if before == after or not before:
        return None
    happened = "was dropped" if not after else _change(json.loads(before), json.loads(after), set(key))
    if happened is None:
        return None
    return DataError(
        "data.rewritten",
        f"the upstream table {happened}; the log does not show what that did to the rows",
        f"RESYNC TABLE {table} reads it again.",
    )


def _change(old: dict[str, Any], new: dict[str, Any], key: set[str]) -> str | None:
    if new["kind"] != "BASE TABLE":
        return f"was replaced by a {new['kind'].lower()}"
    if new["engine"] != old["engine"]:
        return f"moved from {old['engine']} to {new['engine']}"
    lost = _lost_key(old.get("keys", {}), new["keys"], key)
    if lost:
        return lost
    for column in sorted(key):  # an earlier version's fingerprint has no collations
        if old.get("collations", {}).get(column) not in (None, new["collations"].get(column)):
            return f"now sorts its key column {column} in a different order (COLLATE)"
    if old["partitioned"] == new["partitioned"]:
        gone = [p for p in old["partitions"] if p not in new["partitions"]]
        if gone:
            return f"lost its partition {gone[0]}"
    # Another type or charset is judged by the log's own description; with the same type, values may differ.
    for name, (type, charset, expression) in old["columns"].items():
        now = new["columns"].get(name)
        if now and now[:2] == [type, charset] and now[2] != expression:
            return f"computes its column {name} differently"
    return None


def _lost_key(old: dict[str, list[str]], new: dict[str, list[str]], key: set[str]) -> str | None:
    """What happened to the index that identifies our rows; other indexes do not matter, nor does its name."""
    primary = old.get("PRIMARY", [])
    if set(primary) == key:
        return f"no longer has the primary key ({', '.join(primary)})" if new.get("PRIMARY") != primary else None
    rests = next((f"{index} ({', '.join(columns)})" for index, columns in old.items() if set(columns) == key), None)
    if rests and not any(set(columns) == key for columns in new.values()):
        return f"lost its unique index {rests}"
    return None


def _shapes(session: Session, schema: str, names: list[str]) -> dict[str, dict[str, Any]]:
    marks = ", ".join(["%s"] * len(names))
    ask = (schema, *names)
    shapes: dict[str, dict[str, Any]] = {
        name: {"kind": kind, "engine": engine, "made": made, "columns": {}, "keys": {}, "collations": {}}
        | {"partitioned": "", "partitions": []}
        for name, kind, engine, made in query(session, TABLES.format(names=marks), ask)
    }
    for name, column, collation, *shape in query(session, COLUMNS.format(names=marks), ask):
        if name in shapes:
            shapes[name]["columns"][column] = shape
            if collation:
                shapes[name]["collations"][column] = collation_name(collation)
    partial = set()  # indexes that do not identify rows: of prefixes or expressions, or with NULL
    for name, index, column, whole in query(session, KEYS.format(names=marks), ask):
        if name in shapes:
            shapes[name]["keys"].setdefault(index, []).append(column)
        if not whole:
            partial.add((name, index))
    for name, index in partial:
        shapes.get(name, {"keys": {}})["keys"].pop(index, None)
    for name, method, expression, partition in query(session, PARTITIONS.format(names=marks), ask):
        if name in shapes:
            shapes[name]["partitioned"] = f"{method} {expression}"
            shapes[name]["partitions"].append(partition)
    return shapes
