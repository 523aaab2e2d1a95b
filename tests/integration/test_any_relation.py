"""Relations that no upstream table is: keys with NULLs, and nested types."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headwater.model import Bound, Column, Op, Span, UpstreamType
from headwater.relation import fold, read, runs
from headwater.relation.near import near
from headwater.settings.table import DEFAULTS, Settings
from support import turns
from support.owned import acquired
from support.relation import Change, History, Lake, Row, Rows

NONE = UpstreamType("", 0)
NESTED = "STRUCT<x: INT, `y``z: w`: MAP<STRING, ARRAY<DECIMAL(10,2)>>>"
COLUMNS = (
    Column("n", "BIGINT", NONE),
    Column("k", "INT", NONE),
    Column("k2", "STRING", NONE),
    Column("s", NESTED, NONE),
    Column("m", "MAP<STRING, STRUCT<a: DATE>>", NONE),
)


class Groups(History):
    """Rows with keys that may be NULL, in part or as a whole; every change carries its whole row."""

    def _key(self) -> tuple[Any, ...]:
        return self.rng.choice([None, *range(4)]), self.rng.choice([None, "", "a"])

    def _row(self, key: tuple[Any, ...]) -> Row:
        inner = self.rng.choice([None, {}, {"p": [None], "q": []}])
        row = {
            "n": self.rng.randrange(10**9),
            "s": self.rng.choice([None, {"x": self.rng.choice([None, 1]), "y`z: w": inner}]),
            "m": self.rng.choice([None, {}, {"u": None, "v": {"a": None}}]),
        }
        return {**row, "k": key[0], "k2": key[1]}

    def _update(self, state: Rows, free: list[tuple[Any, ...]], index: int) -> Change:
        change = super()._update(state, free, index)
        assert not change.missing, "no column of a view's change is ever missing"
        return change


def plain(rows: Rows) -> Rows:
    """The rows with Spark's and Arrow's containers as dictionaries."""
    return {k: {name: _plain(value) for name, value in row.items()} for k, row in rows.items()}


def _plain(value: Any) -> Any:
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value


@turns.some(2)
@pytest.mark.parametrize(
    ("replaced_bytes", "broadcast"), [(DEFAULTS.replaced_bytes, True), (0, True), (0, False)], ids=str
)
def test_keys_with_nulls_and_nested_values_are_read_folded_and_merged(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced_bytes: int, broadcast: bool
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    if not broadcast:
        monkeypatch.setattr(read, "BROADCAST_KEYS", 2)
        monkeypatch.setattr(read, "SORTED_ROWS", 5)
    h = Groups(COLUMNS, ("k", "k2"), random.Random(seed), truncates=False)
    h.begin(8)
    lake = Lake(spark, tmp_path, h, at_once=7)
    lake.settings = Settings(replaced_bytes=replaced_bytes)
    lake.scan(Span(None, None), 0, at=0)
    lake.fold(lake.layout(), 0)
    with lake.meta.write() as c:
        lease = acquired(c)
    writer = runs.RunWriter(lake.storage, lake.meta, lake.overlays.changes)
    for version in (2, 3):
        h.run(25)
        index = lake.publish()
        layout = lake.layout()
        writer.write(lake.relation, layout, index - 5, lake.overlays._sees(lake.relation), lease, limit=5)
        assert plain(lake.read(layout, index)) == h.states[index]
        lake.fold(layout, index, version=version)
        assert plain(lake.read(lake.layout(), index)) == h.states[index]


@pytest.mark.parametrize("there", [True, False])
def test_the_end_of_a_key_that_is_null_as_a_whole_is_merged(spark: SparkSession, tmp_path: Path, there: bool) -> None:
    """Delta's MERGE fails on such a row if the base has none: it came and went after the last fold."""
    h = Groups(COLUMNS, ("k", "k2"), random.Random(1))
    none, one, two = ({**h._row((k, k2)), "k": k, "k2": k2} for k, k2 in ((None, None), (1, "a"), (2, "b")))
    h.states = [{(1, "a"): one, (2, "b"): two} | ({(None, None): none} if there else {})]
    lake = Lake(spark, tmp_path, h)
    lake.settings = Settings(replaced_bytes=0)
    lake.scan(Span(None, None), 0, at=0)
    if not there:
        h.changes.append(Change(1, 10, Op.INSERT, none))
    h.changes.append(Change(len(h.changes) + 1, 20, Op.DELETE, {"k": None, "k2": None}))
    h.changes.append(Change(len(h.changes) + 1, 30, Op.DELETE, {"k": 1, "k2": "a"}))
    index, layout = lake.publish(), lake.layout()
    lake.fold(layout, index)
    assert plain(lake.read(lake.layout(), index)) == {(2, "b"): two}


@pytest.mark.parametrize("nullable", [True, False])
def test_files_are_skipped_by_ranges_alone_unless_a_key_may_be_null(
    spark: SparkSession, tmp_path: Path, nullable: bool
) -> None:
    """A constant in the condition could keep Delta from using its files' statistics."""
    key = Column("k", "INT", NONE, nullable)
    h = History((Column("n", "BIGINT", NONE), key), ("k",), random.Random(1), keys=100, truncates=False)
    h.states = [{(k,): {"n": 1, "k": k} for k in range(100)}]
    lake = Lake(spark, tmp_path, h)
    half = Bound(("49",))
    lake.scan(Span(None, half), 0, at=0)
    lake.scan(Span(half, None), 1, at=0)
    h.changes.append(Change(1, 10, Op.DELETE, {"k": 3}))
    with lake.overlays.use(lake.relation, lake.layout(), lake.publish()) as overlay:
        condition = str(fold._touched_ranges(lake.storage, lake.relation, overlay)).lower()
    assert "false" not in condition and "49" in condition
    assert ("null" in condition) == nullable


def test_rows_near_some_keys_are_all_rows_with_these_keys_from_few_files(spark: SparkSession, tmp_path: Path) -> None:
    h = History((Column("n", "BIGINT", NONE), Column("k", "INT", NONE, False)), ("k",), random.Random(1), keys=100)
    h.states = [{(k,): {"n": 1, "k": k} for k in range(100)}]
    lake = Lake(spark, tmp_path, h)
    bounds = [None, *(Bound((k,)) for k in ("24", "49", "74")), None]
    for ordinal, (low, high) in enumerate(pairwise(bounds)):
        lake.scan(Span(low, high), ordinal, at=0)
    rows = spark.read.format("delta").load(lake.storage.address(lake.relation.base_path))

    def found(*keys: int) -> tuple[set[int], int]:
        """The keys of the rows near these, and how many files have them."""
        wanted = near(lake.storage, lake.relation, lake.version, pa.table({"k": pa.array(keys, pa.int32())}))
        assert wanted is not None
        near_rows = rows.where(wanted)
        return {row["k"] for row in near_rows.collect()}, len(near_rows.inputFiles())

    assert found(60) == ({60}, 1)
    assert found(0, 24, 99) == ({0, 24, 99}, 2), "the first and the last one of a file too"
    many = range(0, 50, 2)
    keys, files = found(*many)
    assert keys >= set(many) and files == 2, "more than there are ranges"
    assert near(lake.storage, lake.relation, lake.version, pa.table({"k": pa.array([1, 30, 60, 90])})) is None
