"""A fold that writes a base anew, over values of every type of the lake."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from headwater.backfill.files import FileWriter
from headwater.decode.values import _ARROW, arrow_schema
from headwater.meta.store import Meta
from headwater.model import Column, CoveredSpan, Layout, Span
from headwater.relation import base, fold
from headwater.relation.overlay import Overlays
from headwater.storage import LocalStorage
from support.owned import PERMIT
from support.relation import INT4, relation_of


def test_a_base_that_is_rewritten_keeps_every_value_of_every_type(spark: SparkSession, tmp_path: Path) -> None:
    nan, infinity = float("nan"), float("inf")
    values: dict[str, list[Any]] = {
        "INT": [2**31 - 1, -(2**31), 0],
        "BOOLEAN": [True, False, None],
        "TINYINT": [127, -128, None],
        "SMALLINT": [2**15 - 1, -(2**15), None],
        "BIGINT": [2**63 - 1, -(2**63), None],
        "FLOAT": [nan, -infinity, -0.0],
        "DOUBLE": [nan, infinity, -0.0],
        "DECIMAL(38,10)": [Decimal(10**28 - 1), Decimal("-0.0000000001"), None],
        "STRING": ["", "a\U0001f600\x00b", None],
        "BINARY": [b"", b"\x00\xff", None],
        "DATE": [date(1, 1, 1), date(9999, 12, 31), None],
        "TIMESTAMP": [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), None],
        "TIMESTAMP_NTZ": [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999), None],
        "ARRAY<INT>": [[], [1, None], None],
        "ARRAY<TIMESTAMP>": [[datetime(1582, 10, 10, tzinfo=UTC)], [None], None],
        "ARRAY<DECIMAL(12,2)>": [[Decimal("1.10"), None], [], None],
    }
    assert {*_ARROW} <= {*values}, "a new type needs its values here"
    columns = tuple(Column(f"c{i}", t, INT4) for i, t in enumerate(values))
    relation = replace(relation_of(columns, ("c0",)), base_version=-1)
    storage, schema = LocalStorage(tmp_path), arrow_schema(columns)
    base.create(storage, relation)
    rows = pa.table([pa.array(v, f.type) for v, f in zip(values.values(), schema, strict=True)], schema=schema)
    with FileWriter(storage, relation.base_path, schema, PERMIT, "scan-1", key=relation.key) as writer:
        for batch in rows.to_batches():
            writer.write(batch)
        version = base.add_files(storage, relation.base_path, writer.close(), "scan", 1)
    layout = Layout(relation.id, version, (CoveredSpan(Span(None, None), 0, 0),), True)
    overlays = Overlays(storage, Meta(f"sqlite:///{tmp_path}/meta.db"), sees=lambda *_: False)
    with overlays.use(relation, layout, 0) as overlay:
        files = fold._write(spark, storage, relation, layout, overlay, PERMIT, fold.fold_label(1))
    made = base.replace_files(storage, relation.base_path, version, files, "fold", 1)
    (file,) = DeltaTable(storage.address(relation.base_path), version=made).file_uris()
    found = pq.read_table(file).sort_by([("c0", "descending")])
    assert str(found.to_pylist()) == str(rows.sort_by([("c0", "descending")]).to_pylist())
    assert found.schema == schema
