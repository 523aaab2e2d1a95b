"""Changes placed exactly around a scan: before and after its snapshot, before, between and after its rows.

Two spans are scanned one after the other, and the log comes from a real slot; what the rule makes of both must be the
upstream. Last the case that decides between rules: a commit that stands in the log and that nobody sees yet.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.demo.embedded import EmbeddedPostgres
from support.hanging import hanging_commit, server_with_silent_standby
from support.races import LARGE, Race, Rows, Track

CHANGES = {
    "insert": f"INSERT INTO t VALUES (<15>, 7, {LARGE})",
    "update": "UPDATE t SET v = 99 WHERE id = <20>",
    "update_of_every_column": f"UPDATE t SET v = 99, large = {LARGE} WHERE id = <20>",
    "delete": "DELETE FROM t WHERE id = <20>",
    "key_change_within_a_span": "UPDATE t SET id = <12> WHERE id = <20>",
    "key_change_into_the_later_span": "UPDATE t SET id = <35>, v = 98 WHERE id = <20>",
    "key_change_into_the_earlier_span": "UPDATE t SET id = <15> WHERE id = <40>",
    "delete_and_insert_again": f"DELETE FROM t WHERE id = <20>; INSERT INTO t VALUES (<20>, 97, {LARGE})",
}
LATER = "SELECT pg_current_xact_id()"
POINTS = ("scan.before_snapshot", "scan.after_snapshot", "scan.before_rows", "scan.batch", "scan.after_rows")
# (the statement runs at, its commit comes at): at once, or while the scan goes on
BEFORE, AFTER, *_, END = POINTS
MOMENTS = [*((p, p) for p in POINTS), (BEFORE, AFTER), (BEFORE, END), (AFTER, END)]


class Writer:
    """Runs its statement at one point of a scan and commits at the same or at a later one.

    A later transaction ends before it commits, so that a snapshot in between has to name it as running.
    """

    def __init__(self, database: Any, session: Any, statement: str, runs_at: str, commits_at: str) -> None:
        self._left = [
            (runs_at, lambda: session.execute("BEGIN")),
            (runs_at, lambda: session.execute(statement)),
            (runs_at, lambda: database.execute(LATER)),
            (commits_at, lambda: session.execute("COMMIT")),
        ]

    def __call__(self, point: str) -> None:
        while self._left and self._left[0][0] == point:
            self._left.pop(0)[1]()

    @property
    def done(self) -> bool:
        return not self._left


@pytest.mark.parametrize("hooked", [0, 1], ids=["first_scan", "second_scan"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_at_any_moment_of_a_scan_counts_once(change: str, hooked: int, database: Any, tmp_path: Path) -> None:
    track = Track(database, tmp_path, len(MOMENTS))
    with database.connect() as session:
        for race, (runs_at, commits_at) in zip(track.races, MOMENTS, strict=True):
            writer = Writer(database, session, race.statement(CHANGES[change]), runs_at, commits_at)
            for place, span in enumerate(race.spans):
                race.scan(span, writer if place == hooked else lambda _: None)
            assert writer.done
    changes, upstream = track.read_log(), track.upstream()
    track.log.close()
    for race, (runs_at, commits_at) in zip(track.races, MOMENTS, strict=True):
        what = f"{change}: runs at {runs_at}, commits at {commits_at} of scan {hooked}"
        assert_exact(race, changes, race.upstream(upstream), what)


def assert_exact(race: Race, changes: pa.Table, upstream: Rows, what: str) -> None:
    """Each span alone, and then both, are the upstream's rows."""
    both = list(race.scans)
    place = dict(zip(upstream, race.inside(race.spans, list(upstream)), strict=True))
    for number, scan in enumerate(both):
        race.scans = [scan]
        found, again = race.lake(changes)
        assert found == {k: row for k, row in upstream.items() if place[k] == number and k not in again}, what
    race.scans = both
    found, again = race.lake(changes)
    assert found == {k: row for k, row in upstream.items() if k not in again}, what
    for key in again:  # it came without its large value from a key whose scan had seen it leave
        assert what.startswith("key_change_into"), what
        race.scan_again(key)
    assert race.lake(changes) == (upstream, set()), what


@pytest.fixture(scope="module")
def silent() -> Iterator[EmbeddedPostgres]:
    with server_with_silent_standby() as server:
        yield server


class Own:
    """A database of its own on that server, in the shape of the shared fixture."""

    def __init__(self, server: EmbeddedPostgres, name: str) -> None:
        self.server, self.name = server, name
        server.execute(f"CREATE DATABASE {name}")

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        return self.server.execute(statement, self.name)

    def connect(self, **options: Any) -> Any:
        return self.server.connect(self.name, **options)


@pytest.mark.parametrize("change", CHANGES)
def test_a_commit_in_the_log_that_nobody_sees_is_not_lost(
    change: str, silent: EmbeddedPostgres, tmp_path: Path
) -> None:
    """And a watermark of log positions loses it, so this test is known to bite."""
    track = Track(Own(silent, f"invisible_{change}"), tmp_path, 1)
    (race,) = track.races
    before = track.upstream()
    statements = race.statement(CHANGES[change]).split("; ")
    with hanging_commit(silent, *statements, database=track.database.name) as commit:
        assert commit.txn in track.commits(), "the commit is in the log"
        assert track.upstream() == before, "and nobody sees it"
        track.database.execute(LATER)
        for span in race.spans:
            race.scan(span)
    upstream, changes = track.upstream(), track.read_log()
    track.log.close()
    assert upstream != before
    assert race.lake(changes) == (upstream, set())
    assert race.lake(changes, race.by_watermark) == (before, set()), "the wrong rule takes the change for seen"


def test_the_wrong_rule_is_right_where_log_and_sight_agree(database: Any, tmp_path: Path) -> None:
    """So it is its rule, not its code, that loses changes above."""
    moments = ("scan.before_snapshot", "scan.after_rows")
    track = Track(database, tmp_path, len(moments))
    with database.connect() as session:
        for race, at in zip(track.races, moments, strict=True):
            race.scan(race.spans[0], Writer(database, session, race.statement(CHANGES["update"]), at, at))
            race.scan(race.spans[1])
    changes, upstream = track.read_log(), track.upstream()
    track.log.close()
    for race in track.races:
        assert race.lake(changes, race.by_watermark) == race.lake(changes) == (race.upstream(upstream), set())
