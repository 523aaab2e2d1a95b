"""Relations on Spark and Delta against the naive model, with spans scanned at different times and folds in between."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from headwater.backfill.span import locate
from headwater.decode.literals import key_array
from headwater.errors import HeadwaterError
from headwater.model import Bound, Column, Op, Span, UpstreamType
from headwater.relation import base, fold, read, runs
from headwater.relation.keys import in_span
from headwater.settings.table import DEFAULTS, Settings
from support import turns
from support.owned import acquired
from support.relation import Change, History, Lake, columns_of, inside


def thirds(width: int) -> tuple[Span, Span, Span]:
    """The key order in three spans; with two key columns a bound may stand between keys of one first value."""
    first, second = Bound(("3", "b")[:width]), Bound(("8", "a")[:width])
    return Span(None, first), Span(first, second), Span(second, None)


SPANS = thirds(1)


def history(seed: int, width: int = 1, truncates: bool = False) -> History:
    print(f"seed {seed}")
    made = History(columns_of(width), ("k", "k2")[:width], random.Random(seed), truncates=truncates)
    made.begin(8)
    return made


def truth(h: History, index: int, spans: tuple[Span, ...]) -> dict:  # type: ignore[type-arg]
    return {k: r for k, r in h.states[index].items() if any(inside(s, k) for s in spans)}


MERGED, ANEW = 0, DEFAULTS.replaced_bytes  # the two ways in which a fold changes a base
WAYS = pytest.mark.parametrize("replaced_bytes", [MERGED, ANEW], ids=["merged", "anew"])


def in_part(
    spark: SparkSession, tmp_path: Path, h: History, at_once: int = 100
) -> tuple[Lake, tuple[Span, Span, Span]]:
    """The first and the last span of a table, read at different times while it changed."""
    lake, spans = Lake(spark, tmp_path, h, at_once=at_once), thirds(len(h.key))
    h.run(10)
    lake.scan(spans[0], 0, at=4)
    h.run(10)
    lake.scan(spans[2], 2, at=15, log_index=4)
    return lake, spans


# Seeds whose every row can be completed once all spans are read; 2 and 22 have some that cannot before.
@turns.some(3)
@pytest.mark.parametrize(
    ("seed", "replaced_bytes", "at_once", "broadcast"),
    [(22, MERGED, 100, True), (1, ANEW, 4, True), (2, ANEW, 100, True), (3, MERGED, 5, False), (22, MERGED, 3, False)],
)
def test_a_read_equals_the_upstream_during_and_after_backfill_and_folds(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    replaced_bytes: int,
    at_once: int,
    broadcast: bool,
) -> None:
    if not broadcast:
        monkeypatch.setattr(read, "BROADCAST_KEYS", 2)  # so that layers are sorted and joined, as large ones are
        monkeypatch.setattr(read, "SORTED_ROWS", 5)
    h = history(seed, width=1 + seed % 2, truncates=seed in (2, 3))
    lake, spans = in_part(spark, tmp_path, h, at_once)
    lake.settings = Settings(replaced_bytes=replaced_bytes)
    index = lake.publish()
    part = lake.layout(complete=False)
    hidden = {tuple(r.values()) for r in lake.overlays.at(lake.relation, part, index).holes.to_pylist()}
    expected = truth(h, index, (spans[0], spans[2]))
    assert lake.read(part, index) == {k: r for k, r in expected.items() if k not in hidden}

    lake.scan(spans[1], 1, at=20, log_index=11)
    h.run(15)
    index = lake.publish()
    whole = lake.layout()
    assert not lake.overlays.at(lake.relation, whole, index).holes.num_rows
    assert lake.read(whole, index) == h.states[index]
    lake.fold(whole, index)
    assert lake.read(lake.layout(), index) == h.states[index]

    h.run(20)
    later = lake.publish()
    assert lake.layout().settled
    assert lake.read(lake.layout(), later) == h.states[later]
    assert lake.read(whole, index) == h.states[index], "an older layout still gives the older rows"
    lake.fold(lake.layout(), later, version=2)
    assert lake.read(lake.layout(), later) == h.states[later]


def test_a_fold_waits_for_rows_that_nothing_can_complete(spark: SparkSession, tmp_path: Path) -> None:
    h = history(0)
    lake, spans = in_part(spark, tmp_path, h)
    lake.scan(spans[1], 1, at=20, log_index=11)
    h.run(15)
    index, whole = lake.publish(), lake.layout()
    assert lake.overlays.at(lake.relation, whole, index).holes.num_rows
    version = lake.version
    with pytest.raises(HeadwaterError, match="scanned again"):
        lake.fold(whole, index)
    assert base.current_version(lake.storage, lake.relation.base_path) == version


def test_runs_and_tail_together_are_the_upstream(spark: SparkSession, tmp_path: Path) -> None:
    h = history(77, truncates=True)
    lake = Lake(spark, tmp_path, h)
    lake.scan(Span(None, None), 0, at=0)
    lake.fold(lake.layout(), 0)
    with lake.meta.write() as c:
        lease = acquired(c)
    writer = runs.RunWriter(lake.storage, lake.meta, lake.overlays.changes)
    for _ in range(6):
        h.run(12)
        index = lake.publish()
        made = writer.write(lake.relation, lake.layout(), index, lake.overlays._sees(lake.relation), lease, limit=10)
        assert made.runs
        h.run(5)
        index = lake.publish()
        layout = lake.layout()
        assert lake.read(layout, index) == h.states[index]
        assert len(lake.overlays.at(lake.relation, layout, index).layers) <= 3
    assert lake.read(lake.layout(), 30) == h.states[30], "a run that ends later is not used"
    lake.fold(lake.layout(), index, version=2)
    assert lake.read(lake.layout(), index) == h.states[index]
    assert lake.read(lake.layout(), index) == h.states[index]


@WAYS
def test_a_fold_or_an_add_that_is_repeated_changes_nothing(
    spark: SparkSession, tmp_path: Path, replaced_bytes: int
) -> None:
    h = history(5)
    lake = Lake(spark, tmp_path, h)
    lake.settings = Settings(replaced_bytes=replaced_bytes)
    lake.scan(Span(None, None), 0, at=0)
    added = lake.version
    lake.scan(Span(None, None), 0, at=0)
    assert lake.version == added == base.current_version(lake.storage, lake.relation.base_path)
    lake.covered.pop()
    h.run(10)
    index, layout = lake.publish(), lake.layout()
    lake.fold(layout, index)
    folded = lake.version
    assert folded > added
    lake.fold(layout, index)
    assert lake.version == folded == base.current_version(lake.storage, lake.relation.base_path)
    assert lake.read(lake.layout(), index) == h.states[index]


def test_a_base_is_rewritten_only_if_it_holds_what_its_layout_shows(spark: SparkSession, tmp_path: Path) -> None:
    h = history(6)
    lake, spans = Lake(spark, tmp_path, h), thirds(len(h.key))
    for ordinal, span in enumerate(spans):
        lake.scan(span, ordinal, at=0)
    whole = lake.layout()
    part = replace(whole, spans=whole.spans[:2], complete=False)
    h.run(30)
    index = lake.publish()
    lake.fold(part, index)  # the third span stays in the base, for whoever covers it
    stored = spark.read.format("delta").load(lake.storage.address(lake.relation.base_path)).collect()
    kept = {h.key_of(r.asDict()) for r in stored if inside(spans[2], h.key_of(r.asDict()))}
    assert kept == {k for k in h.states[0] if inside(spans[2], k)} != set()
    few = base.few_files(lake.storage, lake.relation.base_path, lake.version)
    assert few is not None and not few.marked, "a small base gets no deletion vectors"


@pytest.mark.parametrize(
    ("behind", "replaced_bytes", "merges"), [(0, ANEW, False), (1, ANEW, True), (0, MERGED, True)], ids=str
)
def test_a_base_that_moved_on_since_its_layout_is_merged_into(
    spark: SparkSession,
    tmp_path: Path,
    behind: int,
    replaced_bytes: int,
    merges: bool,
) -> None:
    h = history(7)
    lake = Lake(spark, tmp_path, h)
    lake.settings = Settings(replaced_bytes=replaced_bytes)
    lake.scan(Span(None, None), 0, at=0)
    h.run(10)
    index, layout = lake.publish(), lake.layout()
    for i in range(behind):
        base.add_files(lake.storage, lake.relation.base_path, [], "another", i)
    lake.fold(layout, index)
    assert lake.read(lake.layout(), index) == h.states[index]
    (last,) = DeltaTable(lake.storage.address(lake.relation.base_path)).history(1)
    assert (last["operation"] == "MERGE") is merges


def test_a_base_that_moved_on_while_it_was_rewritten_stays_as_it_is(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    h = history(8)
    lake, write = Lake(spark, tmp_path, h), fold._write
    lake.scan(Span(None, None), 0, at=0)
    h.run(10)
    index, layout = lake.publish(), lake.layout()

    def overtaken(*given: Any) -> Any:
        files = write(*given)
        monkeypatch.setattr(fold, "_write", write)
        h.run(10)
        lake.fold(layout, lake.publish(), version=2)  # by the next owner
        return files

    monkeypatch.setattr(fold, "_write", overtaken)
    with pytest.raises(DeltaError):
        lake.fold(layout, index)
    assert lake.version == base.current_version(lake.storage, lake.relation.base_path)
    assert lake.read(lake.layout(), len(h.changes)) == h.now


@pytest.mark.parametrize("wide", ["", "base", "overlay"])
def test_rows_that_are_small_on_disk_alone_are_merged_and_not_held_in_memory(
    spark: SparkSession, tmp_path: Path, wide: str
) -> None:
    h = history(9)
    for row in h.now.values():
        row["t"] = "x" * 20_000 if wide == "base" else "x"
    lake = Lake(spark, tmp_path, h)
    lake.settings = Settings(replaced_memory_bytes=100_000)
    lake.scan(Span(None, None), 0, at=0)
    few = base.few_files(lake.storage, lake.relation.base_path, lake.version)
    assert few is not None and few.bytes < 10_000, "values that repeat take no room on disk"
    changed = [{**row, "t": "y" * 20_000 if wide == "overlay" else "y"} for row in h.now.values()]
    for i, row in enumerate(changed, 1):
        h.changes.append(Change(i, i * 10, Op.UPDATE, row))
        h.states.append({**h.now, h.key_of(row): row})
    index = lake.publish()
    lake.fold(lake.layout(), index)
    assert lake.read(lake.layout(), index) == h.states[index]
    (last,) = DeltaTable(lake.storage.address(lake.relation.base_path)).history(1)
    assert (last["operation"] == "MERGE") is bool(wide)


def test_a_truncate_empties_only_the_spans_whose_scan_did_not_see_it(spark: SparkSession, tmp_path: Path) -> None:
    h = History(columns_of(), ("k",), random.Random(1))
    h.begin(8)
    h.changes.append(Change(1, 10, Op.TRUNCATE, {}))
    h.states.append({})
    for i in (2, 5, 10):
        row = {"n": i, "k": i, "a`b.c": "new", "t": None}
        h.changes.append(Change(len(h.changes) + 1, 10 * (len(h.changes) + 1), Op.INSERT, row))
        h.states.append({**h.now, (i,): row})
    lake = Lake(spark, tmp_path, h)
    lake.scan(SPANS[0], 0, at=0)
    lake.scan(SPANS[1], 1, at=3)
    lake.scan(SPANS[2], 2, at=0)
    index = lake.publish()
    layout = lake.layout()
    assert lake.overlays.at(lake.relation, layout, index).emptied == {0, 2}
    assert lake.read(layout, index) == h.states[index]
    assert lake.read(layout, 3) == h.states[3]
    lake.fold(layout, index)
    assert lake.read(lake.layout(), index) == h.states[index]


def test_the_base_alone_is_a_table_for_other_engines(spark: SparkSession, tmp_path: Path) -> None:
    h = history(9)
    lake = Lake(spark, tmp_path, h, deletion_vectors="false")
    lake.scan(Span(None, None), 0, at=0)
    h.run(20)
    index = lake.publish()
    lake.fold(lake.layout(), index)
    frame = pl.read_delta(lake.storage.address(lake.relation.base_path))
    assert {(r["k"],): r for r in frame.to_dicts()} == h.states[index]


def test_a_base_asks_readers_for_what_it_uses_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    """delta-rs, asked for deletion vectors, writes a feature into the table that hardly anybody reads."""
    h = history(9)
    lake = Lake(spark, tmp_path, h)
    lake.scan(Span(None, None), 0, at=0)
    protocol = DeltaTable(lake.storage.address(lake.relation.base_path)).protocol()
    assert set(protocol.reader_features or ()) == {"deletionVectors"}
    assert set(protocol.writer_features or ()) <= {"deletionVectors", "appendOnly", "invariants"}


def test_many_added_files_are_one_table_for_spark(spark: SparkSession, tmp_path: Path) -> None:
    h = history(3)
    lake = Lake(spark, tmp_path, h)
    for i in range(25):  # past a checkpoint made by delta-rs
        lake.scan(Span(Bound((str(i),)), Bound((str(i + 1),))), i, at=0)
    assert lake.read(lake.layout(complete=False), 0) == truth(h, 0, tuple(s.span for s in lake.covered))
    logs = [p for p in lake.storage.list(f"{lake.relation.base_path}/_delta_log") if "checkpoint" in p]
    assert logs, "no checkpoint was written"


def test_tail_files_go_when_nobody_uses_them(spark: SparkSession, tmp_path: Path) -> None:
    h = history(4)
    lake = Lake(spark, tmp_path, h)
    lake.scan(Span(None, None), 0, at=0)
    layout = lake.layout()
    for _ in range(3):
        h.run(3)
        lake.read(layout, lake.publish())
    assert len(list(lake.storage.list("tmp/tail"))) == 1
    held = lake.overlays.at(lake.relation, layout, lake.published)
    h.run(3)
    lake.read(layout, lake.publish())
    assert len(list(lake.storage.list("tmp/tail"))) == 2
    lake.overlays.release(held)
    h.run(3)
    lake.read(layout, lake.publish())
    assert len(list(lake.storage.list("tmp/tail"))) == 1


def test_a_home_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    h = history(6)
    root = tmp_path / "o'dd {h}[o]m* `e`"
    root.mkdir()
    lake = Lake(spark, root, h)
    lake.scan(Span(None, None), 0, at=0)
    h.run(6)
    assert lake.read(lake.layout(), lake.publish()) == h.now


KEYS = {
    "BIGINT": ("int8", ["-9223372036854775808", "-1", "0", "7", "9223372036854775807"]),
    "DECIMAL(20,3)": ("numeric", ["-99999999999999999.999", "-0.001", "0.000", "12.500"]),
    "DATE": ("date", ["0001-01-01", "1969-12-31", "2024-02-29"]),
    "TIMESTAMP_NTZ": ("timestamp", ["1582-10-14 12:00:00", "1970-01-01 00:00:00.000001", "2024-02-29 23:59:59.999999"]),
    "TIMESTAMP": ("timestamptz", ["1800-01-01 00:00:00+00", "1970-01-01 00:00:00.000001+00", "2024-02-29 23:59:59+00"]),
    "STRING": ("text", ["", "A", "a'\\b", "é", "\U0001f600"]),
    "BINARY": ("bytea", ["\\x", "\\x00", "\\x00ff", "\\xff"]),
    "BOOLEAN": ("bool", ["f", "t"]),
}


@pytest.mark.parametrize("lake_type", KEYS)
def test_a_key_range_means_the_same_to_spark_as_to_the_rule(spark: SparkSession, lake_type: str) -> None:
    name, texts = KEYS[lake_type]
    upstream = UpstreamType(name, 0, ordered=True, precision=20, scale=3)
    column = Column("k`ey", lake_type, upstream)
    values = key_array(texts, column)
    frame = spark.createDataFrame(pa.table({"k`ey": values, "at": pa.array(range(len(texts)))}))
    conditions, expected = [], []
    for text in texts:
        for after in (True, False):
            bound = Bound((text,), after)
            for span in (Span(bound, None), Span(None, bound)):
                conditions.append(in_span(span, [column]).alias(f"c{len(conditions)}"))
                expected.append((locate([span], [column], pa.table({"k`ey": values})) == 0).tolist())
    rows = sorted(frame.select("at", *conditions).collect())
    assert [[row[i + 1] for row in rows] for i in range(len(conditions))] == expected
