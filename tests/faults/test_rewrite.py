"""A base beyond what one rewrite may read (512 MB): upkeep mends it range by range, and no row changes. `make soak`.

HEADWATER_REWRITE_ROWS makes the table smaller (default 1,400,000 rows of about 450 bytes that do not compress).
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headwater.demo.embedded import EmbeddedPostgres
from headwater.relation.upkeep import STEP_BYTES
from support.lake import ROWS_PER_SPAN, Lake, assert_equal, definitions
from support.wait import wait_for

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

ROWS = int(os.environ.get("HEADWATER_REWRITE_ROWS", "1400000"))


def files_of(base: Path) -> tuple[int, int]:
    """How many files the base has, and their bytes."""
    actions = pa.table(DeltaTable(str(base)).get_add_actions(flatten=True))
    return actions.num_rows, sum(actions["size_bytes"].to_pylist())


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_base_larger_than_one_rewrite_is_repaired_range_by_range(tmp_path: Path) -> None:
    with EmbeddedPostgres(18, {"fsync": "off", "max_wal_size": "20GB"}, database="big") as pg:
        database: Any = SimpleNamespace(server=pg, name="big")
        wide = " || ".join(f"sha512((i * 7 + {n})::text::bytea)" for n in range(7))
        pg.execute("CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL, big bytea)")
        pg.execute(f"INSERT INTO t SELECT i, 0, {wide} FROM generate_series(1, {ROWS}) i")
        pg.execute("ANALYZE t")
        text = definitions(database, ["t"]).replace(f"rows_per_span = {ROWS_PER_SPAN}", "rows_per_span = 200000")
        lake = Lake(tmp_path / "home", text)
        lake.start(HEADWATER_TAIL_CHANGES="50000", HEADWATER_SLICE_CHANGES="500000", HEADWATER_BASE_FILES="8")
        try:
            lake.wait_live(900)
            (base,) = (p for p in (lake.home / "warehouse").iterdir() if p.is_dir())
            count, size = files_of(base)
            print(f"filled: {count} files, {size >> 20} MB")
            assert size > STEP_BYTES or ROWS < 1_400_000
            # two of three rows change in most of the table: they are marked in old files, and stand in new ones
            for low in range(1, ROWS * 3 // 4, 50_000):
                pg.execute(f"UPDATE t SET n = n + 1 WHERE id >= {low} AND id < {low + 50_000} AND id % 3 <> 0")
            lake.remote().ask("FOLD TABLE t")
            count, size = files_of(base)
            print(f"folded: {count} files, {size >> 20} MB")
            wait_for(lambda: _said(lake, "rewriting"), "upkeep begins", 300)
            lake.stop()  # within a minute: a rewrite does not hold a stop up
            lake.start(HEADWATER_TAIL_CHANGES="50000", HEADWATER_SLICE_CHANGES="500000", HEADWATER_BASE_FILES="8")
            assert_equal(lake.verify("t"))
            rewritten = _rewritten(lake)
            print(f"rewritten: {rewritten}; now {files_of(base)}")
            assert "range" in rewritten or ROWS < 1_400_000
            assert_equal(lake.verify("t"))
        finally:
            lake.stop()


def _rewritten(lake: Lake) -> list[str]:
    """The ways in which upkeep has rewritten the base, once it has and nothing more happens for a while."""

    wait_for(lambda: bool(_said(lake, "rewritten")), "upkeep rewrites the base", 900)
    seen, since = len(_said(lake, "rewritten")), time.monotonic()

    def calm() -> bool:
        nonlocal seen, since
        if len(_said(lake, "rewritten")) != seen:
            seen, since = len(_said(lake, "rewritten")), time.monotonic()
        return time.monotonic() - since > 60

    wait_for(calm, "upkeep rests", 1200)
    return _said(lake, "rewritten")


def _said(lake: Lake, word: str) -> list[str]:
    """The ways of the rewrites that the server's log tells of."""
    path = lake.home / "logs" / "server.log"
    text = path.read_text(errors="replace") if path.exists() else ""
    return re.findall(rf"{word} relation=\d+ way=(\w+)", text)
