"""What of a changelog tables need: a table that has failed holds it back for a while at most, and says when it lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater.engine.commit import claims
from headwater.engine.commit.clean import Cleaner
from headwater.engine.commit.holds import holds
from headwater.engine.fill.backfill import Backfill
from headwater.engine.query.read import Reader
from headwater.engine.status.metrics import collect
from headwater.errors import DataError
from headwater.meta import epochs, relations, segments
from headwater.model import Column, CoveredSpan, Layout, RelationInfo, Span, TableState, UpstreamType
from headwater.relation.overlay import Overlays
from support.defined import add_table
from support.home import change_settings
from support.log import Log
from support.messages import begin, commit, relation, row
from support.owned import serving

COLUMNS = (Column("a", "STRING", UpstreamType("text", 25, ordered=True)),)
FAULT = DataError("data.schema_changed", "the type of column a changed", "RESYNC TABLE bad")
HOUR_S = 3600.0


class Lake:
    """A changelog of ten changes, one segment each, and tables with a layout."""

    def __init__(self, path: Path) -> None:
        self.log = Log(path)
        self.home = self.log.home
        for n in range(10):
            self.log.write(begin(101 + n), relation(1, "a"), row("I", 1), commit(200 + n))
        with self.home.meta.write() as c:
            self.leases = serving(c)

    def add(self, name: str, log_index: int, *, complete: bool = True, begin_index: int = 0) -> int:
        with self.home.meta.write() as c:
            id = add_table(c, name, COLUMNS, ("a",), connection_id=self.log.id)
            relations.set_begin(c, id, begin_index)
            relations.set_state(c, id, TableState.LIVE if complete else TableState.FILLING)
            layout = Layout(id, 0, (CoveredSpan(Span(None, None), log_index, log_index),), complete)
            epochs.publish(c, [], {id: layout})
        return id

    def fail(self, id: int) -> None:
        with self.home.meta.write() as c:
            relations.set_state(c, id, TableState.FAILED, FAULT)

    def table(self, id: int) -> RelationInfo:
        with self.home.meta.read() as c:
            return relations.get(c, id)

    def enforce(self, now: float = 0.0, **options: str) -> claims.Kept:
        connection = self.log.info()
        connection.options.update({k.replace("__", "."): v for k, v in options.items()})
        with self.home.meta.write() as c:
            epochs.thin(c, time.time() + 1)  # only the newest epoch is left
            return claims.enforce(c, connection, now or time.time(), self.home.settings)

    def enforce_from_oldest(self) -> claims.Kept:
        with self.home.meta.write() as c:
            return claims.enforce(c, self.log.info())


def no_spark() -> SparkSession:
    raise AssertionError("nothing here needs Spark")


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path / "home")
    yield made
    made.home.meta.close()


def test_a_table_that_runs_keeps_what_it_needs_whatever_the_limits_say(lake: Lake) -> None:
    lake.add("live", 7)
    lake.add("filling", 8, complete=False, begin_index=3)
    assert lake.enforce(now=time.time() + 1e6, retention__hours="0", changelog__max_bytes="1").needed == 3


def test_a_failed_table_keeps_its_claim_for_the_hours_of_retention(lake: Lake) -> None:
    lake.add("good", 9)
    bad = lake.add("bad", 2)
    lake.fail(bad)
    assert lake.enforce(retention__hours="0").needed == 2, "it may be folded to where it stopped first"
    assert lake.enforce(now=time.time() + 23 * HOUR_S).needed == 2
    assert not lake.table(bad).history_missing
    assert lake.enforce(now=time.time() + 25 * HOUR_S).needed == 9
    error = lake.table(bad).error or {}
    assert error["code"] == "data.history_missing" and error["hint"] == "RESYNC TABLE bad reads it again."
    assert "24 h" in error["message"] and FAULT.message in error["message"]
    assert lake.enforce(now=time.time() + 25 * HOUR_S).needed == 9
    assert lake.enforce().needed == 9, "what it has lost is not held back for another day"


def test_a_table_that_failed_before_it_showed_anything_keeps_its_claim_from_its_beginning(lake: Lake) -> None:
    lake.add("good", 9)
    with lake.home.meta.write() as c:
        bad = add_table(c, "bad", COLUMNS, ("a",), connection_id=lake.log.id)
        relations.set_begin(c, bad, 3)
    lake.fail(bad)
    assert lake.enforce().needed == 3, "a start tries it again"
    assert lake.enforce(now=time.time() + 25 * HOUR_S).needed == 9


def test_a_failed_table_loses_its_claim_when_the_changelog_is_too_large(lake: Lake) -> None:
    lake.add("good", 9)
    bad = lake.add("bad", 2)
    lake.fail(bad)
    with lake.home.meta.read() as c:
        ((_, size),) = segments.sizes(c).values()
    later = time.time() + claims.GRACE_S + 1
    assert lake.enforce(later, changelog__max_bytes=str(size)).needed == 2
    assert lake.enforce(changelog__max_bytes=str(size // 2)).needed == 2, "it may be folded to where it stopped first"
    kept = lake.enforce(later, changelog__max_bytes=str(size // 2))
    assert kept.needed == 9 and 4 <= kept.over <= 6
    assert "changelog.max_bytes" in (lake.table(bad).error or {})["message"]


def test_a_connection_that_does_not_say_otherwise_keeps_what_the_settings_say(lake: Lake) -> None:
    lake.add("good", 9)
    with lake.home.meta.read() as c:
        ((_, size),) = segments.sizes(c).values()
    change_settings(lake.home, retention_hours=2, changelog_max_bytes=size // 2)
    kept = lake.enforce()
    assert kept.keep_s == 2 * HOUR_S and kept.over > 0
    kept = lake.enforce(retention__hours="3", changelog__max_bytes="0")
    assert kept.keep_s == 3 * HOUR_S and kept.over == 0


def test_a_failed_table_that_was_folded_to_where_it_stopped_needs_nothing(lake: Lake) -> None:
    lake.add("good", 9)
    bad = lake.add("bad", 2)
    lake.fail(bad)
    with lake.home.meta.write() as c:
        epochs.publish(c, [], {bad: Layout(bad, 1, (CoveredSpan(Span(None, None), 5, 2),), True)})
        relations.set_stopped(c, bad, 5)
    assert lake.enforce().needed == 9
    assert lake.table(bad).error is not None and not lake.table(bad).history_missing


def test_a_failed_table_that_was_folded_loses_nothing_though_older_epochs_need_what_lies_before(lake: Lake) -> None:
    bad = lake.add("bad", 2)
    lake.fail(bad)
    folded = Layout(bad, 1, (CoveredSpan(Span(None, None), 5, 2),), True)
    with lake.home.meta.write() as c:
        epochs.publish(c, [], {bad: folded})
        relations.set_stopped(c, bad, 5)
    connection = lake.log.info()
    connection.options.update({"changelog.max_bytes": "1", "retention.hours": "0"})
    with lake.home.meta.write() as c:
        kept = claims.enforce(c, connection, time.time() + 2 * claims.GRACE_S)
    assert kept.needed == 2 and not lake.table(bad).history_missing
    assert Reader(lake.home, no_spark)._last_shown(lake.table(bad), folded, 10) == 5, "it is shown as it stopped"


def test_the_cleaner_removes_what_a_failed_table_held_back(lake: Lake) -> None:
    lake.add("good", 9)
    bad = lake.add("bad", 2)
    lake.fail(bad)
    with lake.home.meta.write() as c:
        c.exec_driver_sql("UPDATE segment SET created_at = created_at - 100 * 3600")
    cleaner = Cleaner(lake.home, lake.leases, Overlays(lake.home.storage, lake.home.meta))
    cleaner.clean()
    assert [r["index"] for r in lake.log.read(1)] == list(range(3, 11)), "it failed just now"
    with lake.home.meta.write() as c:
        c.exec_driver_sql('UPDATE relation SET error = replace(error, \'"at": "\', \'"at": "-\')')
    cleaner.clean()
    assert [r["index"] for r in lake.log.read(1)] == [10]


def test_the_cleaner_removes_nothing_that_a_running_table_needs_though_the_changelog_is_too_large(lake: Lake) -> None:
    lake.add("live", 7)
    with lake.home.meta.write() as c:
        c.exec_driver_sql('UPDATE connection SET options = \'{"changelog.max_bytes": "1"}\'')
        epochs.thin(c, time.time() + 1)
    Cleaner(lake.home, lake.leases, Overlays(lake.home.storage, lake.home.meta)).clean()
    assert [r["index"] for r in lake.log.read(1)] == [8, 9, 10], "the rest goes before its time"


def test_what_the_changelog_has_lost_is_an_error_and_never_no_change(lake: Lake) -> None:
    """Hazard 75's other half: a table that lost its claim must not be read as if nothing had happened since."""
    bad = lake.add("bad", 2)
    overlays = Overlays(lake.home.storage, lake.home.meta)
    with lake.home.meta.write() as c:
        segments.remove(c, lake.log.id, 10, time.time() + 1)
        layout = epochs.layout_at(c, bad, 10**6)
    assert layout is not None
    with pytest.raises(DataError) as e, overlays.use(lake.table(bad), layout, 10):
        pass
    assert e.value.code == "data.history_missing"
    with overlays.use(lake.table(bad), layout, 2) as overlay:
        assert overlay.empty, "the base itself can be read"


def test_what_is_kept_has_no_gap_though_clocks_went_back(lake: Lake) -> None:
    with lake.home.meta.write() as c:
        c.exec_driver_sql("UPDATE segment SET created_at = 1 WHERE first_index IN (1, 2, 5)")
        segments.remove(c, lake.log.id, 10, 2.0)
        assert segments.first_kept(c, lake.log.id) == 3
    assert [r["index"] for r in lake.log.read(1)] == list(range(3, 11))


@pytest.mark.parametrize("gone", [False, True])
def test_a_start_tries_a_failed_table_again_only_if_its_changes_are_there(lake: Lake, gone: bool) -> None:
    bad = lake.add("bad", 2)
    lake.fail(bad)
    with lake.home.meta.write() as c:
        relations.set_stopped(c, bad, 2)
        if gone:
            segments.remove(c, lake.log.id, 5, time.time() + 1)
    backfill = Backfill(lake.home, lake.leases, lambda: None, lambda: None)  # type: ignore[arg-type,return-value]
    backfill.recover()
    backfill.stop()
    assert lake.table(bad).history_missing is gone
    assert (lake.table(bad).state is TableState.FAILED) is gone


def test_a_table_that_stopped_before_its_spans_were_of_one_moment_is_an_error_and_not_a_mixture(lake: Lake) -> None:
    bad = lake.add("bad", 2)
    lake.fail(bad)
    with lake.home.meta.write() as c:
        relations.set_stopped(c, bad, 5)
    reader = Reader(lake.home, no_spark)
    mixed = Layout(bad, 1, (CoveredSpan(Span(None, None), 3, 6, ("900:900:",)),), True)
    with pytest.raises(DataError, match="made consistent") as e:
        reader._last_shown(lake.table(bad), mixed, 10)
    assert e.value.hint == "RESYNC TABLE bad reads it again."
    covered = Layout(bad, 1, (CoveredSpan(Span(None, None), 3, 5, ("900:900:",)),), True)
    assert reader._last_shown(lake.table(bad), covered, 10) == 5


def holders(lake: Lake) -> dict[str, tuple[int, int]]:
    with lake.home.meta.read() as c:
        return {h.holder: (h.index, h.changes) for h in holds(c, lake.log.info())}


def test_everybody_who_holds_the_changelog_back_is_named_with_what_it_needs(lake: Lake) -> None:
    lake.add("live", 7)
    lake.add("filling", 8, complete=False, begin_index=3)
    assert holders(lake) == {"table filling": (3, 7), "history": (3, 7), "table live": (7, 3)}
    with lake.home.meta.read() as c:
        first, *_ = found = holds(c, lake.log.info())
    assert first.holder in ("table filling", "history") and all(h.since is not None for h in found)


def test_retention_keeps_what_the_lowest_holder_needs(lake: Lake) -> None:
    seen = set()
    for index, complete in ((7, True), (8, False), (3, True), (9, True)):
        lake.add(f"t{index}", index, complete=complete, begin_index=index - 2)
        with lake.home.meta.write() as c:
            newest = epochs.newest(c)
            assert newest is not None
            epochs.take_pin(c, newest.id, f"reader:{index}")
        lowest = min(index for index, _ in holders(lake).values())
        assert lake.enforce_from_oldest().needed == lowest
        seen.add(lowest)
    assert len(seen) > 1


def test_an_epoch_that_is_read_holds_back_what_its_layouts_did_not_hold(lake: Lake) -> None:
    id = lake.add("t", 2)
    with lake.home.meta.write() as c:
        pinned = epochs.newest(c)
        assert pinned is not None
        pin = epochs.take_pin(c, pinned.id, "reader:4711")
        epochs.publish(c, [], {id: Layout(id, 1, (CoveredSpan(Span(None, None), 10, 10),), True)})
        epochs.thin(c, time.time() + 1)
    assert holders(lake) == {"reader:4711": (2, 8), "history": (2, 8), "table t": (10, 0)}
    assert lake.enforce_from_oldest().needed == 2, "retention takes the neediest"
    with lake.home.meta.write() as c:
        epochs.release_pin(c, pin)
        epochs.thin(c, time.time() + 1)
    assert holders(lake) == {"history": (10, 0), "table t": (10, 0)}
    assert lake.enforce_from_oldest().needed == 10
    labels = {
        s.labels: s.value for f in collect(lake.home, None) for s in f.samples if s.name == "headwater_held_changes"
    }
    assert labels == {(lake.log.info().name, "history"): 0, (lake.log.info().name, "table t"): 0}
