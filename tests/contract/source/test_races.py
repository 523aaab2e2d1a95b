"""Changes placed exactly around a scan of every upstream: before and after its snapshot, its rows, and between them.

Two spans are scanned one after the other; what the rule makes of scans and log must be the upstream. Last the case that
decides between rules: a commit that stands in the log and that nobody sees yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.errors import Retry, SourceError
from support import upstreams
from support.races import Race, Rows, Track
from support.upstreams import Upstream

CHANGES = {
    "insert": "INSERT INTO t VALUES (<15>, 7, {large})",
    "update": "UPDATE t SET v = 99 WHERE id = <20>",
    "update_of_every_column": "UPDATE t SET v = 99, large = {large} WHERE id = <20>",
    "delete": "DELETE FROM t WHERE id = <20>",
    "key_change_within_a_span": "UPDATE t SET id = <12> WHERE id = <20>",
    "key_change_into_the_later_span": "UPDATE t SET id = <35>, v = 98 WHERE id = <20>",
    "key_change_into_the_earlier_span": "UPDATE t SET id = <15> WHERE id = <40>",
    "delete_and_insert_again": "DELETE FROM t WHERE id = <20>; INSERT INTO t VALUES (<20>, 97, {large})",
}
POINTS = ("scan.before_snapshot", "scan.after_snapshot", "scan.before_rows", "scan.batch", "scan.after_rows")
# (the statement runs at, its commit comes at): at once, or while the scan goes on
BEFORE, AFTER, *_, END = POINTS
MOMENTS = [*((p, p) for p in POINTS), (BEFORE, AFTER), (BEFORE, END), (AFTER, END)]


def statements(race: Race, change: str) -> list[str]:
    text = CHANGES[change].replace("{large}", race.track.upstream.large)
    return race.statement(text).split("; ")


class Writer:
    """Runs its statements at one point of a scan and commits at the same or at a later one.

    A later transaction ends before it commits, so that a snapshot in between has to name it as running.
    """

    def __init__(self, race: Race, run: Callable[[str], object], change: str, runs_at: str, commits_at: str) -> None:
        self._left: list[tuple[str, Callable[[], object]]] = [
            *((runs_at, partial(run, text)) for text in ("BEGIN", *statements(race, change))),
            (runs_at, race.track.later),
            (commits_at, partial(run, "COMMIT")),
        ]

    def __call__(self, point: str) -> None:
        while self._left and self._left[0][0] == point:
            self._left.pop(0)[1]()

    @property
    def done(self) -> bool:
        return not self._left


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_at_any_moment_of_a_scan_counts_once(change: str, upstream: Upstream, tmp_path: Path) -> None:
    cases = [(hooked, *moment) for hooked in (0, 1) for moment in MOMENTS]
    track = Track(upstream, tmp_path, len(cases))
    with upstream.session() as run:
        for race, (hooked, runs_at, commits_at) in zip(track.races, cases, strict=True):
            writer = Writer(race, run, change, runs_at, commits_at)
            for place, span in enumerate(race.spans):
                race.scan(span, writer if place == hooked else lambda _: None)
            assert writer.done
    changes, rows = track.read_log(), track.rows()
    track.log.close()
    for race, (hooked, runs_at, commits_at) in zip(track.races, cases, strict=True):
        what = f"{change}: runs at {runs_at}, commits at {commits_at} of scan {hooked}"
        assert_exact(race, changes, race.upstream(rows), what)


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


Made = dict[type[Upstream], Upstream]
_numbers = count(1)


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Made, ExitStack]]:
    with ExitStack() as stack:
        yield {}, stack


@pytest.fixture
def hanging(request: pytest.FixtureRequest, servers: tuple[Made, ExitStack]) -> Upstream:
    """A fresh database on a server whose commits can be made to hang; the servers are started once."""
    kind: type[Upstream] = request.param
    made, stack = servers
    if kind not in made:
        made[kind] = stack.enter_context(kind.serve_hanging(request))
    return made[kind].another(f"hidden_{next(_numbers)}")


# A scan that waits reads nothing while the commit hangs, whatever the change: one is enough.
HIDDEN = [
    pytest.param(kind, change, id=f"{kind.name}-{change}")
    for kind in upstreams.EVERY
    for change in CHANGES
    if kind.can.judge_hidden or change == "update"
]


@pytest.mark.parametrize(("hanging", "change"), HIDDEN, indirect=["hanging"])
def test_a_commit_in_the_log_that_nobody_sees_is_not_lost(change: str, hanging: Upstream, tmp_path: Path) -> None:
    """And a watermark of log positions loses it, so this test is known to bite."""
    track = Track(hanging, tmp_path, 1)
    (race,) = track.races
    before = track.rows()
    with hanging.hanging_commit(*statements(race, change)) as release:
        assert track.rows() == before, "nobody sees it"
        if not hanging.can.judge_hidden:
            with pytest.raises(SourceError) as e:
                race.scan(race.spans[0], lock_timeout_s=1.0)
            assert (e.value.code, e.value.retry) == ("source.lock_timeout", Retry.AUTO)
            release()
        for span in race.spans:
            race.scan(span)
    rows, changes = track.rows(), track.read_log()
    track.log.close()
    assert rows != before
    assert race.lake(changes) == (rows, set())
    if hanging.can.judge_hidden:
        assert race.lake(changes, race.by_watermark) == (before, set()), "the wrong rule takes the change for seen"


def test_the_wrong_rule_is_right_where_log_and_sight_agree(upstream: Upstream, tmp_path: Path) -> None:
    """So it is its rule, not its code, that loses changes above."""
    moments = ("scan.before_snapshot", "scan.after_rows")
    track = Track(upstream, tmp_path, len(moments))
    with upstream.session() as run:
        for race, at in zip(track.races, moments, strict=True):
            race.scan(race.spans[0], Writer(race, run, "update", at, at))
            race.scan(race.spans[1])
    changes, rows = track.read_log(), track.rows()
    track.log.close()
    for race in track.races:
        assert race.lake(changes, race.by_watermark) == race.lake(changes) == (race.upstream(rows), set())
