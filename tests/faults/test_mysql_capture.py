"""The capture of MySQL and MariaDB whose log is gone: it fails visibly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headwater.model import ConnectionState
from support import upstreams
from support.capture_mysql import log_end
from support.captured import Captured, captured
from support.upstreams import Mysql
from support.wait import wait_for

Make = Callable[[type[Mysql]], Mysql]


def fails_with(c: Captured, code: str) -> None:
    process = c.start()
    error = c.wait_state(ConnectionState.FAILED, code)
    assert "Resync" in error["hint"]
    assert process.wait(30) == 1


@pytest.mark.parametrize("kind", upstreams.FAMILY, ids=lambda k: k.name)
def test_a_log_that_was_purged_fails_visibly(kind: type[Mysql], make: Make, tmp_path: Path) -> None:
    upstream = make(kind).prepare_capture()
    with captured(tmp_path, upstream) as c:
        upstream.fill(1, 10, 10)
        upstream.execute("FLUSH BINARY LOGS")
        (last, *_) = upstream.execute("SHOW BINARY LOGS")[-1]

        def purged() -> bool:  # not while another reader, or a checkpoint, needs a file
            upstream.execute("UPDATE mark SET n = n + 1")
            upstream.execute(f"PURGE BINARY LOGS TO '{last}'")
            return bool(upstream.execute("SHOW BINARY LOGS")[0][0] == last)

        wait_for(purged, "the log is purged", 30)
        fails_with(c, "source.slot_lost")


@pytest.mark.parametrize("kind", upstreams.FAMILY, ids=lambda k: k.name)
@pytest.mark.parametrize("grown", [False, True], ids=["shorter", "longer"])
def test_a_log_that_was_reset_fails_visibly_even_if_it_has_grown_past_our_place(
    kind: type[Mysql], grown: bool, make: Make, tmp_path: Path
) -> None:
    upstream = make(kind).prepare_capture()
    upstream.execute(kind.reset_log)  # so that our file is the first, whose name comes again
    upstream.began = log_end(upstream.database)
    with captured(tmp_path, upstream) as c:
        c.start()
        upstream.fill(1, 10, 10)
        c.wait_caught_up()
        assert c.close() == 0
        upstream.execute(kind.reset_log)
        if grown:
            upstream.fill(100, 20_100, 100)
        fails_with(c, "source.slot_lost")
