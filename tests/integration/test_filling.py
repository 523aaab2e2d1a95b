"""Tables read while they are being filled, at whatever epoch there is, against a naive history of the upstream."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession

import headwater
from headwater.engine.commit.folds import Folds
from headwater.engine.fill import backfill, scanner
from headwater.errors import DefinitionError, IncompleteWarning
from headwater.meta import epochs, relations, spans
from headwater.model import Layout
from support.history import Key
from support.lake import assert_equal, definitions
from support.naive import TRUNCATES, Writers, changes_of, keep_history, state_at
from support.relation import inside
from support.wait import wait_for

KEYS = 1600
ROWS_PER_SPAN = 200
AHEAD = 2  # scans that see more than the changelog holds


@dataclass(frozen=True)
class Observed:
    """What a query got, and of which cut."""

    epoch: int
    position: str
    layout: Layout
    rows: dict[Key, int]


@pytest.fixture
def meta_on_postgres(database: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    database.execute("CREATE DATABASE meta_of_" + database.name)
    monkeypatch.setenv("HEADWATER_META", database.server.dsn("meta_of_" + database.name))


class Steps:
    """Lets one more scan begin for each time that the table was looked at, and cuts scans into small pieces."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._allowed = threading.Semaphore(0)
        job_for = scanner.job_for

        def small(*arguments: Any) -> Any:
            """Many batches and several files per span."""
            assert self._allowed.acquire(timeout=240)
            return replace(job_for(*arguments), batch_bytes=400, row_group_bytes=800, file_bytes=600)

        monkeypatch.setattr(scanner, "job_for", small)

    def one_more(self) -> None:
        self._allowed.release()


@pytest.mark.usefixtures("meta_on_postgres")
def test_a_filling_table_is_at_every_epoch_the_upstream_at_that_cut(
    database: Any, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v int)")
    database.execute(f"INSERT INTO t SELECT i, i FROM generate_series(0, {KEYS - 1}, 2) i")
    first = keep_history(database)
    steps = Steps(monkeypatch)
    monkeypatch.setenv("HEADWATER_CAPTURE_SILENCE_S", "600")  # it is stopped for as long as a scan and a cover take
    with headwater.open(tmp_path / "home", spark=spark) as hw, hw.running():
        writers = Writers(database, seed, keys=KEYS, pause_s=0.05, truncates=0.0)  # an empty table has no spans to plan
        try:
            hw.sql(definitions(database, ()))
            hw.sql(f"CREATE TABLE t FROM CONNECTION pg WITH (backfill.rows_per_span = {ROWS_PER_SPAN});")
            queried = query_until_live(hw, database, steps, writers)
        finally:
            writers.stop()
        seen = [*queried, *each_cover(hw)]
    history = changes_of(database)
    assert len({o.layout.spans for o in queried}) >= 3, "it was hardly seen while it was filled"
    for o in seen:
        state = state_at(first, history, o.position)
        expected = {k: v for k, v in state.items() if any(inside(s.span, k) for s in o.layout.spans)}
        assert o.rows == expected, f"epoch {o.epoch} at {o.position}, seed {seed}"


def query_until_live(hw: Any, database: Any, steps: Steps, writers: Writers) -> list[Observed]:
    """What queries get while the table is filled, and once more."""
    seen: list[Observed] = []
    while not seen or not seen[-1].layout.complete:
        with hw._read().pinned({"t"}) as pinned:
            (shown,) = pinned.seen
            if shown.layout is None or not shown.layout.spans:
                continue
            found = rows(pinned.session.table("t"))
            seen.append(Observed(pinned.epoch.id, pinned.epoch.entries[0].position, shown.layout, found))
        if len(seen) <= AHEAD:
            scan_ahead(hw, database, steps)
        else:
            steps.one_more()
            writers.truncates = TRUNCATES
    return seen


def scan_ahead(hw: Any, database: Any, steps: Steps) -> None:
    """A scan that sees what the changelog does not hold yet: it may not be shown before the changelog does."""
    with hw._home.meta.read() as c:
        relation = relations.find(c, "t")
        assert relation is not None
    captures = [psutil.Process(pid) for pid in hw._server.supervisor.pids()]
    for capture in captures:
        capture.suspend()
    try:
        change_every_row(database)
        before = rows_read(hw, relation.id)
        steps.one_more()
        wait_for(lambda: rows_read(hw, relation.id) > before, "a span is scanned")
        hw._server.committer.cover(relation.id)  # as the server's own loop does, too
    finally:
        for capture in captures:
            capture.resume()


def change_every_row(database: Any) -> None:
    def changed() -> bool:
        try:
            database.execute("UPDATE t SET v = v + 1")
        except psycopg.errors.DeadlockDetected:
            return False
        return True

    wait_for(changed, "every row is changed")


def rows_read(hw: Any, relation_id: int) -> int:
    with hw._home.meta.read() as c:
        return spans.rows(c, relation_id)


def each_cover(hw: Any) -> list[Observed]:
    """The same at the very epoch with which each span became readable: no later one may have helped."""
    reader, seen = hw._read(), []
    with hw._home.meta.read() as c:
        relation = relations.find(c, "t")
        assert relation is not None
        known = [(e, epochs.layout_at(c, relation.id, e.id)) for e in reversed(epochs.recent(c, 10_000))]
    before = None
    for epoch, layout in known:
        if layout is not None and layout.spans and layout != before:
            with reader.at(relation, layout, epoch.index_for(relation)) as frame:
                seen.append(Observed(epoch.id, epoch.entries[0].position, layout, rows(frame)))
        before = layout
    return seen


def rows(frame: DataFrame) -> dict[Key, int]:
    collected = frame.collect()
    found = {(r["id"],): r["v"] for r in collected}
    assert len(found) == len(collected), "a key came twice"
    return found


def test_a_small_table_is_read_without_a_spark_task_but_no_more_of_it_than_is_small(
    database: Any, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "SMALL_ROWS", 500)
    tasks: list[str] = []
    run_task = scanner.run_task

    def counted(session: SparkSession, pool: str, work: Any) -> str:
        tasks.append(work._job.table.name)
        return run_task(session, pool, work)

    monkeypatch.setattr(scanner, "run_task", counted)
    for name, rows in (("few", 100), ("more", 1200), ("large", 30_000)):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)")
        database.execute(f"INSERT INTO {name} SELECT i, repeat('v', 40) FROM generate_series(1, {rows}) i")
    with headwater.open(tmp_path / "home", spark=spark) as hw, hw.running():
        hw.sql(definitions(database, ()))
        for name in ("few", "more", "large"):
            hw.sql(f"CREATE TABLE {name} FROM CONNECTION pg;")
        wait_for(lambda: all(t.state == "live" for t in hw.status().tables), "all tables live")
        assert sorted(tasks) == ["large", "more"], "what was left of `more`, and all of `large`"
        assert_equal(hw.verify())


def test_rows_that_are_hidden_until_they_are_read_again_are_reported(
    database: Any, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that moved between spans without their stored-aside column, before anybody has come to read them again."""
    monkeypatch.setattr(Folds, "_scan_holes", lambda *_: False)
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text); ALTER TABLE t ALTER v SET STORAGE EXTERNAL")
    database.execute("INSERT INTO t SELECT 10 * g, repeat('v', 3000) FROM generate_series(1, 1000) g")
    count = "SELECT count(*) AS n FROM t"
    with headwater.open(tmp_path / "home", spark=spark) as hw, hw.running():
        hw.sql(definitions(database, ()))
        hw.sql("CREATE TABLE t FROM CONNECTION pg WITH (backfill.rows_per_span = 60, backfill.rate_limit = 30)")
        wait_for(
            lambda: hw.status().tables[0].covered > 0 and hw.status().tables[0].scanned_rows >= 60, "a part is covered"
        )
        hw.sql("PAUSE BACKFILL t")
        database.execute("UPDATE t SET id = id - 9685 WHERE id >= 9700")  # more than a comparison looks at one by one
        hw.sql("ALTER TABLE t SET (backfill.rate_limit = 1000000)")
        hw.sql("RESUME BACKFILL t")
        wait_for(lambda: hw.status().tables[0].state == "live", "the table is live")
        (found,) = hw.sql(count)
        assert found.rows.to_pylist() == [{"n": 969}]
        assert found.warnings == ("t: 31 of its rows are hidden until scanned again",)
        with pytest.warns(IncompleteWarning, match="t: 31 of its rows are hidden until scanned again"):
            assert hw.table("t").count() == 969
        (compared,) = hw.verify()
        assert (compared.equal, compared.skipped) == (False, "it is being read again"), "nothing is known to differ"
        with pytest.raises(DefinitionError) as e:
            hw.sql(count, require_complete=True)
        assert e.value.code == "table.incomplete"
        monkeypatch.undo()
        wait_for(lambda: hw.sql(count)[0].rows.to_pylist() == [{"n": 1000}], "it has been read again")
        assert hw.sql(count, require_complete=True)[0].warnings == ()
