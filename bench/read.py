"""A full `sum` over 3 M rows with 0, 50,000 and 500,000 changes in the overlay, against the base alone; one run.

    .venv/bin/python bench/read.py [--rows N] [--rounds N] [--changes N]

Every round queries in turn: the base by itself (plain Delta), then Headwater's read with each overlay at a new index,
so netting and handing over are paid each time. 500,000 changes are a run and a tail of 50,000,
as the server keeps them, and once more a single tail, as during a backfill. Prints medians, the cost over the base, and
CPU seconds of Spark and this process together, which a busy machine distorts less than the clock.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from headwater.engine.spark.session import start
from headwater.meta import connections, segments
from headwater.meta.store import Meta
from headwater.model import (
    Column,
    CoveredSpan,
    DataFile,
    Layout,
    Op,
    Part,
    RelationInfo,
    Segment,
    Span,
    TableOrigin,
    TableState,
    UpstreamType,
)
from headwater.ownership.lease import Owner, acquire
from headwater.ownership.names import Name
from headwater.relation import base
from headwater.relation.changes import Slice
from headwater.relation.overlay import Overlays
from headwater.relation.read import dataframe
from headwater.relation.runs import RunWriter
from headwater.relation.schema import key_struct
from headwater.settings.table import DEFAULTS
from headwater.storage import LocalStorage, Storage

INT8, TEXT = UpstreamType("int8", 20, ordered=True), UpstreamType("text", 25)
COLUMNS = (
    Column("id", "BIGINT", INT8, False),
    Column("customer", "INT", UpstreamType("int4", 23)),
    Column("ordered", "TIMESTAMP", UpstreamType("timestamptz", 1184)),
    Column("amount", "DECIMAL(12,2)", UpstreamType("numeric", 1700, precision=12, scale=2)),
    Column("status", "SMALLINT", UpstreamType("int2", 21)),
    Column("note", "STRING", TEXT),
    Column("paid", "BOOLEAN", UpstreamType("bool", 16)),
)
KEY = ("id",)
FILE_ROWS = 200_000
SPARE = 2_000  # changes after the measured ones, so that each query has its own index


def rows(ids: np.ndarray) -> pa.Table:  # type: ignore[type-arg]
    cents = pa.array(ids % 1_000_000).cast(pa.decimal128(38, 2))
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "customer": pa.array(ids % 1000, pa.int32()),
            "ordered": pa.array(1_700_000_000_000_000 + ids, pa.timestamp("us", "UTC")),
            "amount": cents.cast(pa.decimal128(12, 2)),
            "status": pa.array(ids % 5, pa.int16()),
            "note": pa.compute.binary_join_element_wise("order number", pa.array(ids).cast(pa.string()), " "),
            "paid": pa.array(ids % 2 == 0),
        }
    )


class Made:
    """Changes generated here instead of decoded: 60 % updates, 25 % inserts, 15 % deletes, over the whole table."""

    def __init__(self, table_rows: int, count: int) -> None:
        rng = np.random.default_rng(7)
        ids = rng.integers(0, table_rows, count)
        kind = rng.random(count)
        ids = np.where(kind < 0.25, table_rows + np.arange(count), ids)
        op = np.where(kind < 0.25, Op.INSERT, np.where(kind < 0.85, Op.UPDATE, Op.DELETE)).astype(np.int8)
        index = np.arange(1, count + 1)
        self.table = rows(ids)
        extra = {"__index": pa.array(index), "__txn": pa.array(index // 10 + 1000), "__op": pa.array(op)}
        extra["__missing"] = pa.nulls(count, pa.list_(pa.int32()))
        extra["__old"] = pa.nulls(count, key_struct(COLUMNS, KEY))
        for name, values in extra.items():
            self.table = self.table.append_column(name, values)

    def slices(self, _relation: RelationInfo, after: int, upto: int) -> Iterator[Slice]:
        while True:
            end = min(after + DEFAULTS.slice_changes, upto)
            yield Slice(after, end, self.table.slice(after, end - after))
            after = end
            if after >= upto:
                return

    def truncates(self, _relation: RelationInfo, _after: int, _upto: int) -> list[tuple[int, int]]:
        return []


def fill(storage: Storage, relation: RelationInfo, count: int) -> int:
    """Writes the base's files and adds them in one commit."""
    files = []
    for first in range(0, count, FILE_ROWS):
        ids = np.arange(first, min(first + FILE_ROWS, count))
        target = Path(storage.address(f"{relation.base_path}/part-{first}.parquet"))
        pq.write_table(rows(ids), target, compression="zstd", store_decimal_as_integer=True)
        stats = {"numRecords": len(ids), "minValues": {"id": int(ids[0])}, "maxValues": {"id": int(ids[-1])}}
        files.append(
            DataFile(target.name, target.stat().st_size, len(ids), json.dumps({**stats, "nullCount": {"id": 0}}))
        )
    return base.add_files(storage, relation.base_path, files, "bench", 1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--changes", type=int, default=500_000, help="in the largest overlay; another has a tenth")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        measure(Path(folder), arguments.rows, arguments.rounds, arguments.changes)


def measure(home: Path, count: int, rounds: int, most: int) -> None:
    session, storage = start(home), LocalStorage(home)
    made = Made(count, most + SPARE)
    plain = RelationInfo(
        1,
        "orders",
        TableOrigin(1, "public", "orders", 1),
        COLUMNS,
        KEY,
        {},
        TableState.LIVE,
        None,
        "warehouse/orders",
        -1,
    )
    base.create(storage, replace(plain, base_version=-1))
    version = fill(storage, plain, count)
    readers: dict[str, Callable[[int], object]] = {}
    readers["base alone"] = lambda _i: (
        session.read.format("delta").option("versionAsOf", version).load(storage.address(plain.base_path))
    )
    for name, changes, run_to in (
        ("0", 0, 0),
        (f"{most // 10:,}", most // 10, 0),
        (f"{most:,}", most, most * 9 // 10),
        (f"{most:,} tail", most, 0),
    ):
        readers[name] = reader(
            session, storage, home / f"{name.replace(',', '')}.db", plain, made, version, changes, run_to
        )
    took: dict[str, list[float]] = {name: [] for name in readers}
    burnt: dict[str, list[float]] = {name: [] for name in readers}
    for i in range(-3, rounds):  # three rounds warm the JVM up
        for name in list(readers) if i % 2 else list(reversed(readers)):
            began, before = time.monotonic(), cpu_seconds()
            readers[name](i + 3).selectExpr("sum(amount)", "count(*)").collect()  # type: ignore[attr-defined]
            if i >= 0:
                took[name].append(time.monotonic() - began)
                burnt[name].append(cpu_seconds() - before)
        print(f"round {i}", {n: round(t[-1], 2) for n, t in took.items() if t}, file=sys.stderr, flush=True)
    alone = statistics.median(took["base alone"])
    print(f"{'changes in the overlay':>24} {'median s':>9} {'best s':>7} {'over the base alone, s':>23} {'CPU s':>6}")
    for name, times in took.items():
        middle, cpu = statistics.median(times), statistics.median(burnt[name])
        print(f"{name:>24} {middle:9.2f} {min(times):7.2f} {middle - alone:+23.2f} {cpu:6.2f}")
    session.stop()


def cpu_seconds() -> float:
    """CPU time so far of this process and the JVM that it started."""
    own = psutil.Process()
    return sum(sum(p.cpu_times()[:2]) for p in (own, *own.children(recursive=True)))


def reader(
    session: object,
    storage: Storage,
    meta_path: Path,
    relation: RelationInfo,
    made: Made,
    version: int,
    changes: int,
    run_to: int,
) -> Callable[[int], object]:
    """A read with `changes` changes (and a few more each time) after the base."""
    meta = Meta(f"sqlite:///{meta_path}")
    overlays = Overlays(storage, meta, changes=made)  # type: ignore[arg-type]
    layout = Layout(relation.id, version, (CoveredSpan(Span(None, None), 0, 0),), True)
    if changes:
        add_changes(meta, relation, changes)
    if run_to:
        with meta.write() as c:
            lease = acquire(c, Name.server(), Owner("bench", "read"))
        assert lease is not None
        RunWriter(storage, meta, made).write(relation, layout, run_to, lambda *_: False, lease, limit=0)  # type: ignore

    def read(i: int) -> object:
        index = changes + i if changes else 0
        overlay = overlays.at(relation, layout, index)
        return dataframe(session, storage, relation, layout, overlay)  # type: ignore[arg-type]

    return read


def add_changes(meta: Meta, relation: RelationInfo, changes: int) -> None:
    """Records in meta that the log holds these changes, and the spare ones."""
    total = changes + SPARE
    part = Part(relation.origin.upstream_id, 1, 0, total, 1, total)
    with meta.write() as c:
        connections.add(c, name="made", type="postgres-cdc", options={}, secret=None, position="0/1")
        segments.insert(c, Segment(1, 1, total, total, "s", 1, 1000, 10**6, (part,)))


if __name__ == "__main__":
    main()
