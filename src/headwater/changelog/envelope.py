"""The Debezium-shaped view of a changelog: before, after, source, op, ts_ms, transaction, built on demand.

It is not how changes are stored and not a hot path: without a range the caller limits it to some ten thousand rows.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.errors import DataError
from headwater.model import Op
from headwater.source.base import EPOCH_S
from headwater.source.names import INDEX, MISSING, OLD, OP, OURS

UNAVAILABLE = "__debezium_unavailable_value"  # the log does not have the column because it did not change
SCHEMA = pa.schema(
    [
        pa.field("index", pa.int64(), False),
        pa.field("before", pa.string()),
        pa.field("after", pa.string()),
        pa.field("source", pa.string(), False),
        pa.field("op", pa.string(), False),
        pa.field("ts_ms", pa.int64(), False),
        pa.field("transaction", pa.string(), False),
    ]
)
_OPS = {Op.INSERT: "c", Op.UPDATE: "u", Op.DELETE: "d", Op.TRUNCATE: "t"}
_DAY_0 = dt.date(1970, 1, 1)
_SECOND_0 = dt.datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class TableSource:
    """Where the changes of one table come from, as shown in `source`."""

    version: str
    connection: str
    database: str
    schema: str
    table: str
    source_block: Callable[[int, int], dict[str, Any]]  # (commit, txn) → what this kind of database adds


def envelope(changes: pa.Table, transactions: pa.Table, key: Sequence[str], source: TableSource) -> pa.Table:
    """One row per change, in the given order: index, and before, after, source, transaction as JSON text.

    `changes` is the output of decoding (the table's columns, `__index`, `__op`, `__missing`, `__old`), `transactions`
    that of `reader.read_transactions` for the same range. `before` is present if the upstream sent it: the key of a
    deleted row and of a row whose key changed. `ts_ms` is the commit's time.
    """
    names = [n for n in changes.schema.names if n not in OURS]
    commits = _commits(changes, transactions)
    rows = [
        _row(change, commit, names, key, source) for change, commit in zip(changes.to_pylist(), commits, strict=True)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _commits(changes: pa.Table, transactions: pa.Table) -> Iterator[dict[str, Any]]:
    """The transaction of each change."""
    index = changes[INDEX].to_numpy()
    known = transactions.to_pylist()
    at = np.searchsorted(transactions["last_index"].to_numpy(), index)
    for i, number in zip(index.tolist(), at.tolist(), strict=True):
        if number == len(known) or known[number]["first_index"] > i:
            raise DataError(
                "data.history_missing",
                f"the transaction of change {i} is no longer in the changelog",
                "Query later changes.",
            )
        yield known[number]


def _row(
    change: dict[str, Any], commit: dict[str, Any], names: list[str], key: Sequence[str], source: TableSource
) -> dict[str, Any]:
    op = Op(change[OP])
    missing = {names[i] for i in change[MISSING] or ()}
    after = {n: UNAVAILABLE if n in missing else plain(change[n]) for n in names}
    before = None
    if op is Op.DELETE:
        before = {n: plain(change[n]) if n in key else None for n in names}
    elif change[OLD] is not None:
        before = {n: plain(change[OLD].get(n)) for n in names}
    ts_ms = commit["commit_time_us"] // 1000 + EPOCH_S * 1000
    return {
        "index": change[INDEX],
        "before": None if before is None else _json(before),
        "after": _json(after) if op in (Op.INSERT, Op.UPDATE) else None,
        "source": _json(_source(commit, ts_ms, source)),
        "op": _OPS[op],
        "ts_ms": ts_ms,
        "transaction": _json(
            {"id": str(commit["txn"]), "total_order": change[INDEX] - commit["first_index"] + 1},
        ),
    }


def _source(commit: dict[str, Any], ts_ms: int, source: TableSource) -> dict[str, Any]:
    return {
        "version": source.version,
        "name": source.connection,
        "ts_ms": ts_ms,
        "snapshot": "false",
        "db": source.database,
        "schema": source.schema,
        "table": source.table,
        **source.source_block(commit["commit"], commit["txn"]),
    }


def plain(value: Any) -> Any:
    """A value as in Debezium's JSON: days, microseconds, ISO text for instants, decimals as text, base64."""
    if isinstance(value, dt.datetime):
        if value.tzinfo is not None:
            return value.astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
        return (value - _SECOND_0) // dt.timedelta(microseconds=1)
    if isinstance(value, dt.date):
        return (value - _DAY_0).days
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)
