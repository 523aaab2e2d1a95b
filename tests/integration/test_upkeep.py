"""Upkeep beside everything else: bases are rewritten and vacuumed, segments merged, and no reader notices."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import headwater
from headwater.engine.commit import clean, upkeep
from headwater.meta import merged, relations, tables
from headwater.model import Bound, Span
from headwater.relation import commits, rewrite
from headwater.relation.upkeep import Rewrite, Way
from headwater.storage import Storage
from support.home import change_settings
from support.lake import assert_equal, definitions
from support.relation import History, Lake, columns_of
from support.wait import wait_for

ROWS = 600


# Everything that waits for minutes waits for a second; and nothing is due before there is a reader.
SOON = {"segment.age": "1s", "epoch.history": "2s", "upkeep.budget": "1", "base.files": "1000"}


def data_files(home: Path, id: int) -> set[str]:
    return {p.name for p in (home / "warehouse" / str(id)).glob("*.parquet")}


def live_files(home: Path, id: int) -> set[str]:
    return {Path(f).name for f in DeltaTable(str(home / "warehouse" / str(id))).file_uris()}


def change(database: Any, turn: int) -> None:
    database.execute(f"UPDATE t SET n = n + {turn} WHERE id % 5 = {turn % 5}")
    database.execute(f"DELETE FROM t WHERE id % 97 = {turn}")
    database.execute(f"INSERT INTO t SELECT i, i, 'new' FROM generate_series({turn * 1000}, {turn * 1000 + 20}) i")


def test_upkeep_changes_nothing_that_a_reader_sees_and_leaves_few_files(
    database: Any, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setattr(clean, "RETIRED_KEPT_S", 1.0)
    database.execute("CREATE TABLE t (id int PRIMARY KEY, n int, note text)")
    database.execute(f"INSERT INTO t SELECT i, i % 10, 'x' FROM generate_series(1, {ROWS}) i")
    with headwater.open(home, spark=spark, settings=SOON) as hw, hw.running():
        hw.sql(definitions(database, ()))
        hw.sql("CREATE TABLE t FROM CONNECTION pg WITH (backfill.rows_per_span = 30)")
        wait_for(lambda: hw.status().tables[0].state == "live", "the table is filled")
        with hw._home.meta.read() as c:
            found = relations.find(c, "t")
        assert found is not None
        old = hw.table("t")  # pinned until it is closed
        before = sorted(old.collect())
        scanned = live_files(home, found.id)
        # VACUUM counts in hours: without this there would be nothing for it to do, and nothing for a pin to prevent
        change_settings(hw._home, base_files=16, history_s=0.0)
        monkeypatch.setattr(upkeep, "vacuum_due", lambda *_, **__: True)
        for turn in range(1, 5):
            change(database, turn)
            hw.sql("FOLD TABLE t")
        wait_for(lambda: len(live_files(home, found.id)) < 6, "the base is rewritten")
        wait_for(
            lambda: len(list(hw._home.storage.list("changelog"))) < 16, "segments are merged and the old ones removed"
        )
        vacuumed = home / found.base_path / "_delta_log" / "_last_vacuum_info"
        wait_for(vacuumed.exists, "VACUUM has run beside the pin")
        assert scanned <= data_files(home, found.id), "what a pin needs stays"
        assert sorted(old.collect()) == before
        assert_equal(hw.verify())
        hw._server.reader.close()  # the statement ends
        change(database, 5)
        wait_for(lambda: not scanned & data_files(home, found.id), "dead files are removed")
        assert len(data_files(home, found.id)) < 10
        assert_equal(hw.verify())
        with hw._home.meta.read() as c:
            assert c.execute(sa.select(sa.func.count()).select_from(tables.layout)).scalar_one() < 6
            assert set(hw._home.storage.list("changelog")) <= merged.paths(c)


def test_a_rewritten_base_is_in_key_order_and_holds_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    h = History(columns_of(1), ("k",), random.Random(11), keys=400, truncates=False)
    h.begin(200)
    lake = Lake(spark, tmp_path, h)
    bounds = [None, *(Bound((str(i),)) for i in range(50, 400, 50)), None]
    for i, (lo, hi) in enumerate(itertools.pairwise(bounds)):
        lake.scan(Span(lo, hi), i, at=0)
    h.run(80)
    index = lake.publish()
    lake.fold(lake.layout(), index)
    pinned = lake.layout()
    _, files = rewrite.look(lake.storage, lake.relation)
    assert sum(f.deleted for f in files) > 0, "the fold marks rows"
    assert sum(f.rows - f.deleted for f in files) == len(h.states[index])

    def rewritten(way: Rewrite) -> list[tuple[int | None, int | None]]:
        rewrite.rewrite(spark, lake.storage, lake.relation, way)
        lake.version, files = rewrite.look(lake.storage, lake.relation)
        assert lake.read(lake.layout(), index) == h.states[index]
        assert lake.read(pinned, index) == h.states[index], "the version before it stays readable"
        return sorted((f.low, f.high) for f in files)

    ranges = rewritten(Rewrite(Way.RANGE, 1, 100, 249))
    inside = [r for r in ranges if r[0] is not None and r[1] is not None and r[0] >= 100 and r[1] < 250]
    assert len(inside) == 1, f"one file holds the range: {ranges}"
    rewrite.checkpoint(lake.storage, lake.relation)
    assert commits.last_checkpoint(lake.storage, lake.relation.base_path) == lake.version
    shutil.copytree(lake.storage.address(lake.relation.base_path), tmp_path / "copy")  # Spark has not seen it before
    copied = spark.read.format("delta").load(str(tmp_path / "copy"))
    assert copied.count() == len(h.states[index]), "a checkpoint of delta-rs keeps the marks that Spark made"
    rewritten(Rewrite(Way.PURGE, 1))
    _, files = rewrite.look(lake.storage, lake.relation)
    assert not any(f.deleted for f in files)
    rewritten(Rewrite(Way.COMPACT, 1))
    assert len(rewritten(Rewrite(Way.WHOLE, 1))) == 1
    (path,) = live(lake.storage, lake.relation.base_path)
    keys = spark.read.parquet(path).select("k").collect()
    assert keys == sorted(keys) and len(keys) == len(h.states[index])


def live(storage: Storage, base_path: str) -> list[str]:
    return list(DeltaTable(storage.address(base_path)).file_uris())
