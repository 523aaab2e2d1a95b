"""Rows per second of the decoders on one core: `python bench/decode.py [rows]`."""

from __future__ import annotations

import argparse
import struct
import time
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa

from headwater.decode.changes import decode_changes
from headwater.decode.values import lake_type
from headwater.model import Column, LogColumn, SchemaVersion, UpstreamType

TYPES = {
    "id": UpstreamType("int8", 20),
    "customer": UpstreamType("int4", 23),
    "name": UpstreamType("text", 25),
    "price": UpstreamType("numeric", 1700, (10 << 16 | 2) + 4),
    "status": UpstreamType("int2", 21),
    "created": UpstreamType("timestamp", 1114),
    "score": UpstreamType("float8", 701),
}


def messages(rows: int, kind: bytes, seed: int = 7) -> list[bytes]:
    """Row messages of a 7-column table."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(1, 10**9, rows)
    prices = rng.integers(0, 10**8, rows)
    scores = rng.random(rows)
    head = kind + struct.pack(">I", 1)
    out = []
    for i, p, s in zip(ids.tolist(), prices.tolist(), scores.tolist(), strict=True):
        texts = (str(i), str(i % 5000), f"customer {i}", str(Decimal(p).scaleb(-2)), str(i % 7))
        texts = (*texts, f"2024-{1 + i % 12:02}-{1 + i % 28:02} 12:34:56.{i % 1000000:06}", repr(s))
        body = b"".join(b"t" + struct.pack(">I", len(t)) + t.encode() for t in texts)
        row = struct.pack(">H", 7) + body
        out.append(head + (b"O" + row + b"N" + row if kind == b"U" else b"N" + row))
    return out


def raw_table(payload: list[bytes]) -> pa.Table:
    n = len(payload)
    return pa.table(
        {
            "index": pa.array(np.arange(1, n + 1)),
            "op": pa.array(np.full(n, 1, np.int8)),
            "txn": pa.array(np.full(n, 9, np.int64)),
            "payload": pa.array(payload, pa.binary()),
            "schema_id": pa.array(np.full(n, 1, np.int64)),
        }
    )


def best(work: Callable[[], object], times: int = 5) -> float:
    """Seconds of the fastest of several runs."""
    durations = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        durations.append(time.perf_counter() - start)
    return min(durations)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", type=int, nargs="?", default=500_000)
    rows = parser.parse_args().rows
    columns = tuple(Column(n, lake_type(t), t) for n, t in TYPES.items())
    log = tuple(LogColumn(n, t.oid, t.modifier, n == "id") for n, t in TYPES.items())
    schemas = {1: SchemaVersion(1, 1, 1, "public", "t", "d", log)}
    for what, kind in (("insert", b"I"), ("update, identity full", b"U")):
        raw = raw_table(messages(rows, kind))
        decode_changes(raw.slice(0, 10), schemas, columns, ("id",))
        seconds = best(lambda raw=raw: decode_changes(raw, schemas, columns, ("id",)))  # type: ignore[misc]
        print(f"{what}: 7 columns, {rows:,} rows: {rows / seconds / 1e6:.2f} M rows/s")
        for column in columns:
            wanted = (columns[0],) if column is columns[0] else (columns[0], column)
            took = best(lambda raw=raw, w=wanted: decode_changes(raw, schemas, w, ("id",)), 3)  # type: ignore[misc]
            print(f"    with only id and {column.name:9} {took / rows * 1e9:6.0f} ns/row")
    raw = raw_table(messages(500, b"I"))
    print(f"500 rows: {best(lambda: decode_changes(raw, schemas, columns, ('id',)), 20) * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
