"""A home on a Spark cluster: a master and two workers of one core each, and the driver in `headwater run`.

Backfill, changes, folds and queries run there; a worker that is lost in the middle costs time and nothing else. The
tests share one server, because cluster and server take longer to start than each of them.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from headwater.demo.embedded import EmbeddedPostgres
from headwater.errors import HeadwaterError
from support.cluster import EXECUTOR_MEMORY, Cluster
from support.lake import HEADWATER, Lake, assert_equal
from support.wait import wait_for

pytestmark = pytest.mark.soak  # a cluster and a server of its own take a minute or two

ROWS, ROWS_PER_SPAN = 4_000, 400
DEFINITIONS = """
CREATE CONNECTION pg WITH (type='postgres-cdc', hostname='{host}', port='{port}', username='{user}',
    password='{password}', database.name='cluster');
CREATE TABLE orders FROM CONNECTION pg WITH (backfill.rows_per_span = {rows_per_span});
CREATE TABLE lines FROM CONNECTION pg WITH (backfill.rows_per_span = 3000);
"""
SETTINGS = """
tail.changes = 100          # so that runs are made
slice.changes = 2000        # of several slices
fold.replaced_bytes = 0     # a fold is a MERGE: that is what Spark does

[spark]
driver_host = "127.0.0.1"
driver_memory = "1GB"
secret = "file:{secret}"

[spark.conf]
spark.executor.memory = "{memory}"
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("spark") / "cluster") as it:
        yield it


@pytest.fixture(scope="module")
def upstream(pg: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    pg.execute("CREATE DATABASE cluster")
    for statement in (
        "CREATE TABLE orders (id int PRIMARY KEY, status text, price numeric(10, 2))",
        f"INSERT INTO orders SELECT i, 'new', i / 4.0 FROM generate_series(1, {ROWS}) i",
        "CREATE TABLE lines (order_id int, line int, item text, PRIMARY KEY (order_id, line))",
        f"INSERT INTO lines SELECT i, j, 'item ' || j FROM generate_series(1, {ROWS // 4}) i, generate_series(1, 2) j",
    ):
        pg.execute(statement, "cluster")
    yield pg

    def dropped() -> bool:
        found = "SELECT slot_name, active_pid FROM pg_replication_slots WHERE database = 'cluster'"
        for slot, pid in (slots := pg.execute(found)):
            pg.execute(f"SELECT pg_terminate_backend({pid})" if pid else f"SELECT pg_drop_replication_slot('{slot}')")
        return not slots

    wait_for(dropped, "the slots are gone")
    pg.execute("DROP DATABASE cluster WITH (FORCE)")


@pytest.fixture(scope="module")
def lake(cluster: Cluster, upstream: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    home = tmp_path_factory.mktemp("shared") / "home"
    home.mkdir(mode=0o700)
    (home / "headwater.toml").write_text(SETTINGS.format(secret=cluster.secret_file, memory=EXECUTOR_MEMORY))
    at = {"host": upstream.host, "port": upstream.port, "user": upstream.user, "password": upstream.password}
    text = DEFINITIONS.format(**at, rows_per_span=ROWS_PER_SPAN)
    it = Lake(home, text, "--master", cluster.url)
    it.start(HEADWATER_TAIL_CHANGES="", HEADWATER_SLICE_CHANGES="", HEADWATER_REPLACED_BYTES="")  # the file says it
    yield it
    it.stop()


def change(upstream: EmbeddedPostgres, turn: int) -> None:
    upstream.execute(f"UPDATE orders SET status = 'turn {turn}' WHERE id % 7 = {turn}", "cluster")
    upstream.execute(f"DELETE FROM lines WHERE order_id % 11 = {turn}", "cluster")
    upstream.execute(
        f"INSERT INTO orders SELECT {ROWS} * {turn + 1} + i, 'late', i FROM generate_series(1, 50) i", "cluster"
    )


def ask(lake: Lake, query: str) -> list[dict[str, Any]]:
    (result,) = lake.remote().ask(query)
    rows: list[dict[str, Any]] = result.rows.to_pylist()  # type: ignore[union-attr]
    return rows


def headwater(lake: Lake, *arguments: str) -> Any:
    """What a command of a user prints as JSON."""
    command = [HEADWATER, *arguments, "--home", str(lake.home), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr + lake.log
    return json.loads(done.stdout)["result"]


def waiting(upstream: EmbeddedPostgres, cluster: Cluster) -> psutil.Process | None:
    """The executor whose task waits for a lock upstream."""
    blocked = "SELECT client_port FROM pg_stat_activity WHERE datname = 'cluster' AND wait_event_type = 'Lock'"
    ports = {port for (port,) in upstream.execute(blocked)}
    for executor in cluster.executors():
        for process in executor.children(recursive=True):
            if any(c.laddr.port in ports for c in process.net_connections()):
                return executor
    return None


def test_a_worker_that_is_lost_in_the_middle_of_a_scan_costs_no_row(
    lake: Lake, cluster: Cluster, upstream: EmbeddedPostgres
) -> None:
    def covered() -> int:
        return next((t.spans_done for t in lake.status().tables if t.name == "orders"), 0)

    wait_for(lambda: covered() >= 2, "some spans are covered")
    change(upstream, 1)
    with upstream.connect("cluster") as blocker, blocker.transaction():
        blocker.execute("LOCK TABLE orders, lines IN ACCESS EXCLUSIVE MODE")
        scanning: psutil.Process = wait_for(lambda: waiting(upstream, cluster), "a scan runs on a worker", 60)
        cluster.kill_worker(scanning.ppid())
    assert covered() < ROWS // ROWS_PER_SPAN, "it was in the middle"
    change(upstream, 2)
    lake.wait_live()
    assert len(cluster.executors()) == 1
    found = headwater(lake, "verify")
    assert {v["table"] for v in found if v["equal"]} == {"orders", "lines"}, found


def test_changes_folds_and_queries_run_on_what_is_left(lake: Lake, upstream: EmbeddedPostgres) -> None:
    change(upstream, 3)
    lake.remote().ask("FOLD TABLE orders")
    (base,) = lake.home.glob("warehouse/1/_delta_log")
    assert any('"operation":"MERGE"' in p.read_text() for p in base.glob("*.json")), "Spark has folded"
    change(upstream, 4)
    counted = "SELECT count(*) AS n FROM orders o JOIN lines l ON l.order_id = o.id WHERE o.status LIKE 'turn%'"
    (expected,) = upstream.execute(counted, "cluster")[0]
    wait_for(lambda: ask(lake, counted) == [{"n": expected}], "the changes are read")
    assert_equal(lake.verify())


def test_the_command_line_names_the_cluster_and_no_secret(lake: Lake, cluster: Cluster) -> None:
    shown = {line["name"]: line for line in headwater(lake, "settings")["settings"]}
    assert (shown["spark.master"]["value"], shown["spark.master"]["from"]) == (cluster.url, "command line")
    assert shown["spark.secret"]["value"] == f"file:{cluster.secret_file}"
    jvms = lake.children("org.apache.spark.deploy.SparkSubmit")
    assert jvms and all(cluster.secret not in " ".join([*p.cmdline(), *p.environ().values()]) for p in jvms)


def test_an_application_that_the_cluster_has_ended_is_started_again(
    lake: Lake, cluster: Cluster, upstream: EmbeddedPostgres
) -> None:
    lake.wait_live()
    before = ask(lake, "SELECT count(*) AS n FROM orders")
    cluster.end_applications()

    def answered() -> list[dict[str, Any]]:
        try:
            return ask(lake, "SELECT count(*) AS n FROM orders WHERE id > 0")
        except HeadwaterError as e:
            assert e.code == "spark.failed", (e.code, e.message)
            return []

    upstream.execute("INSERT INTO orders VALUES (0, 'meanwhile', 0)", "cluster")
    assert wait_for(answered, "Spark runs again") == before
    wait_for(lambda: ask(lake, "SELECT id FROM orders WHERE id = 0"), "what came meanwhile is there")
