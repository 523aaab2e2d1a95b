"""Files next to a base: bounded, durable, gone when their writer fails."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.backfill.files import FileWriter
from headwater.ownership.permit import Written, written
from headwater.storage import LocalStorage
from support.owned import PERMIT

SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string())])


def batch(start: int, count: int) -> pa.RecordBatch:
    ids = list(range(start, start + count))
    return pa.record_batch([pa.array(ids), pa.array([f"{i:08d}" for i in ids])], schema=SCHEMA)


def test_batches_come_back_in_order_from_several_files_and_row_groups(tmp_path: Path) -> None:
    with FileWriter(
        LocalStorage(tmp_path), "base", SCHEMA, PERMIT, "scan-1", row_group_bytes=3_000, file_bytes=5_000
    ) as writer:
        for start in range(0, 1000, 50):
            writer.write(batch(start, 50))
        files = writer.close()
    assert len(files) > 1
    tables = [pq.read_table(tmp_path / "base" / f.path) for f in files]
    assert pa.concat_tables(tables)["id"].to_pylist() == list(range(1000))
    assert pq.ParquetFile(tmp_path / "base" / files[0].path).num_row_groups > 1
    for file, table in zip(files, tables, strict=True):
        stats = json.loads(file.stats)
        assert (file.rows, stats["numRecords"]) == (table.num_rows, table.num_rows)
        assert stats["minValues"]["id"] == table["id"][0].as_py()
        assert file.bytes == (tmp_path / "base" / file.path).stat().st_size


def test_nothing_written_is_no_file(tmp_path: Path) -> None:
    with FileWriter(LocalStorage(tmp_path), "base", SCHEMA, PERMIT, "scan-1") as writer:
        writer.write(batch(0, 0))
        assert writer.close() == ()
    assert list(LocalStorage(tmp_path).list("base")) == []


@pytest.mark.parametrize("closed", [False, True])
def test_a_failure_removes_every_file(closed: bool, tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="halfway"),
        FileWriter(
            LocalStorage(tmp_path), "base", SCHEMA, PERMIT, "scan-1", row_group_bytes=100, file_bytes=1_000
        ) as writer,
    ):
        for start in range(0, 200, 50):
            writer.write(batch(start, 50))
        if closed:
            assert len(writer.close()) > 1
        raise RuntimeError("halfway")
    assert list(LocalStorage(tmp_path).list("base")) == []


def test_two_writers_of_one_span_never_meet(tmp_path: Path) -> None:
    paths = set()
    for _ in range(2):
        with FileWriter(LocalStorage(tmp_path), "base", SCHEMA, PERMIT, "scan-7") as writer:
            writer.write(batch(0, 1))
            paths |= {f.path for f in writer.close()}
    assert len(paths) == 2 and {written(p) for p in paths} == {Written("scan-7", PERMIT.fence)}


def test_a_row_group_has_no_range_of_a_float(tmp_path: Path) -> None:
    """Arrow's footer would leave NaN out of it, and Spark would skip the row group for `f > 5`."""
    schema = pa.schema([("id", pa.int64()), ("f", pa.float64()), ("a", pa.list_(pa.float64()))])
    with FileWriter(LocalStorage(tmp_path), "base", schema, PERMIT, "scan-1") as writer:
        writer.write(pa.record_batch([[1, 2], [1.0, float("nan")], [[1.0], None]], schema=schema))
        (file,) = writer.close()
    group = pq.ParquetFile(tmp_path / "base" / file.path).metadata.row_group(0)
    ranged = {group.column(i).path_in_schema for i in range(group.num_columns) if group.column(i).is_stats_set}
    assert ranged == {"id"}
