"""What the capture promises over every upstream."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.capture.process import PAUSE, RESUME
from headwater.demo.process import PASSWORD
from headwater.model import ConnectionState
from headwater.ownership.names import Name
from support import turns, upstreams
from support.captured import Captured, captured
from support.owned import acquired
from support.upstreams import Upstream
from support.wait import wait_for

pytestmark = turns.TAKEN

LARGE = 20_000  # rows of a transaction that takes several segments


def test_the_changelog_holds_each_committed_change_once_in_commit_order(upstream: Upstream, tmp_path: Path) -> None:
    with captured(tmp_path, upstream.prepare_capture()) as c:
        c.start()
        with upstream.capture_writers(upstreams.new_seed(), threads=3) as writers:
            wait_for(lambda: writers.commits > 300)
        c.wait_caught_up()
        assert c.close() == 0
        assert c.transactions() == c.upstream.oracle() != []


def test_it_ends_cleanly_on_sigterm_and_lets_the_next_owner_in_at_once(upstream: Upstream, tmp_path: Path) -> None:
    with captured(tmp_path, upstream.prepare_capture()) as c:
        process = c.start()
        c.wait_caught_up()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        with c.home.meta.write() as m:
            assert acquired(m, Name.connection(c.id), "somebody else").fence > 1


def test_an_unknown_user_fails_visibly_without_showing_a_password(upstream: Upstream, tmp_path: Path) -> None:
    with captured(tmp_path, upstream.prepare_capture(), username="nobody_at_all") as c:
        assert c.start().wait(60) == 1
        error = c.info().error
        assert error is not None and error["code"] == "source.authentication"
        assert PASSWORD not in c.log()


def test_an_unreachable_server_is_retried(upstream: Upstream, tmp_path: Path) -> None:
    with captured(tmp_path, upstream.prepare_capture(), port="1") as c:
        process = c.start()
        c.wait_state(ConnectionState.RETRYING, "source.unreachable")
        assert process.poll() is None
        assert c.close() == 0


def wait_paused(c: Captured, commit: Callable[[], object]) -> None:
    """Waits until a capture publishes nothing of what is committed, though it is alive."""

    def paused() -> bool:
        before, heard = c.info().position, c.lines.count("alive")
        commit()
        wait_for(lambda: c.lines.count("alive") >= heard + 3, c.log()[-2000:])
        assert c.process is not None and c.process.poll() is None
        return c.info().position == before

    wait_for(paused, "it waits", 60.0)


@pytest.mark.parametrize("inside", [False, True], ids=["idle", "inside a transaction"])
def test_a_capture_that_is_paused_lives_and_publishes_nothing_more_until_it_may_continue(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: bool
) -> None:
    monkeypatch.setenv("HEADWATER_CAPTURE_SILENCE_S", "5")  # a sign of life every half second: two flushes
    monkeypatch.setenv("HEADWATER_FLUSH_BYTES", "65536")  # a large transaction comes in many pieces
    numbers = itertools.count(1)
    with captured(tmp_path, upstream.prepare_capture()) as c:
        c.start()
        c.wait_caught_up()
        if inside:
            upstream.execute(f"INSERT INTO item SELECT i + 1000, i, '' FROM {upstream.numbers(LARGE)}")
            wait_for(lambda: c.info().last_index > 0, c.log()[-2000:])
        c.tell(PAUSE)
        if inside:
            wait_for(lambda: c.info().committed_index >= LARGE, "an open transaction is ended first")
        wait_paused(c, lambda: upstream.execute(f"INSERT INTO item VALUES ({next(numbers)}, 1, '')"))
        held_at = c.info().last_index
        assert held_at == c.info().committed_index, "nobody can fold a part of a transaction"
        c.tell(RESUME)
        c.wait_caught_up()
        assert c.info().committed_index > held_at
        assert c.close() == 0
        assert c.transactions() == c.upstream.oracle() != []


def until(c: Captured, place: str) -> int:
    """How far a capture comes that is told where to end."""
    c.lines.clear()
    c.start(until=place)
    wait_for(lambda: "reached" in c.lines, what=c.log()[-2000:])
    assert c.close() == 0
    return c.info().committed_index


def test_a_capture_ends_exactly_at_the_place_it_is_told(upstream: Upstream, tmp_path: Path) -> None:
    """`--until`: what committed before a position (or by a moment) is there, nothing after it, and a start goes on."""
    with captured(tmp_path, upstream.prepare_capture()) as c:
        upstream.execute("INSERT INTO item VALUES (1, 1, '')")
        with upstream.session() as run:
            run("BEGIN")
            run(f"INSERT INTO item SELECT i + 100, i, '' FROM {upstream.numbers(LARGE)}")
            position = upstream.seam().position()
            run("COMMIT")  # begun before the place, committed after it
        assert until(c, position) == 1
        upstream.execute("INSERT INTO item VALUES (2, 2, '')")
        if upstream.can.tell_moments:
            upstream.pause(0.01)
            moment = upstream.clock()
            upstream.pause(0.01)
            upstream.execute("INSERT INTO item VALUES (3, 3, '')")
            assert until(c, moment) == 1 + LARGE + 1
        until(c, upstream.clock(ahead_s=1))  # a moment to come, on an upstream where nothing happens then
        assert c.transactions() == c.upstream.oracle()
        assert c.info().committed_index == 1 + LARGE + (2 if upstream.can.tell_moments else 1)
