"""What the capture promises, against a real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.capture import Upstream, Writers, captured, wait_for



def test_the_changelog_holds_each_committed_change_once_in_commit_order(database: Any, tmp_path: Path) -> None:
    upstream = Upstream.prepare(database.dsn)
    Writers.prepare(upstream)
    with captured(tmp_path, upstream) as c:
        c.start()
        with Writers(database.dsn, seed=1) as writers:
            wait_for(lambda: writers.commits > 300)
        c.wait_caught_up()
        assert c.close() == 0
        assert c.transactions() == upstream.oracle()
