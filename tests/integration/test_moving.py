"""A home that is copied while no server runs: the copy goes on, and an older one stops instead of skipping changes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import headwater
from support.lake import assert_equal, definitions
from support.wait import wait_for

COUNT = "SELECT count(*) AS n FROM t"


def test_a_copied_home_continues_and_an_older_one_does_not_skip_what_the_slot_has_passed(
    database: Any, spark: SparkSession, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.execute("INSERT INTO t SELECT i, 'v' || i FROM generate_series(1, 100) i")
    old, new = tmp_path / "home", tmp_path / "elsewhere" / "moved"
    with headwater.open(old, spark=spark) as hw:
        hw.run(definitions(database, ["t"]), once=True)
    shutil.copytree(old, new)
    database.execute("INSERT INTO t SELECT i, 'w' FROM generate_series(101, 150) i")
    with headwater.open(new, spark=spark) as hw:
        hw.run(once=True)
        assert hw.sql(COUNT)[0].rows.to_pylist() == [{"n": 150}]
        with hw.running():
            assert_equal(hw.verify())
    with headwater.open(old, spark=spark) as hw, hw.running():
        wait_for(lambda: hw.status().connections[0].code == "source.slot_moved", "the older copy stops")
        assert hw.sql(COUNT)[0].rows.to_pylist() == [{"n": 100}]
