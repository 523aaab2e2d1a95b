"""The commands as a user runs them: one server, questions beside it and without it, a clean stop, going on."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.lake import HEADWATER, Lake, definitions

pytestmark = pytest.mark.spark


def headwater(*arguments: str, expected: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([HEADWATER, *arguments], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == expected, done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done


def test_a_home_is_run_queried_stopped_queried_again_and_continues(database: Any, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, price numeric(10,2))")
    database.execute("INSERT INTO t SELECT i, i + 0.5 FROM generate_series(1, 100) i")
    lake = Lake(tmp_path / "home", definitions(database, ["t"]))
    home = ("--home", str(lake.home))
    ask = ("sql", *home, "--format", "json", "--require-complete", "-c", "SELECT sum(price) AS s FROM t")
    lake.start()
    try:
        lake.wait_live()
        assert json.loads(headwater(*ask).stdout) == [{"s": "5100.00"}]
        refused = headwater("run", *home, expected=3)
        assert "home.locked" in refused.stderr
        status = json.loads(headwater("status", *home, "--json").stdout)
        assert status["result"]["server_pid"] == lake.process.pid if lake.process else False
    finally:
        lake.stop()  # asserts an exit with 0
    database.execute("INSERT INTO t VALUES (1000, 0.25)")
    assert json.loads(headwater(*ask).stdout) == [{"s": "5100.00"}]  # nothing runs: the newest epoch there is
    once = headwater("run", str(lake.file), *home, "--once", "--json")
    assert json.loads(once.stdout)["ok"] is True
    assert json.loads(headwater(*ask).stdout) == [{"s": "5100.25"}]
