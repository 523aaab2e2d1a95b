"""The whole way of the data: a live database, its tables in the lake, exact at every cut while writers go on."""

from __future__ import annotations

import json
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headwater
from headwater.errors import DefinitionError
from headwater.meta import relations
from headwater.meta import runs as meta_runs
from headwater.settings.table import DEFAULTS
from support import upstreams
from support.invariant import QUERY, check_invariant
from support.lake import HEADWATER, await_equal, definitions
from support.upstreams import Upstream
from support.wait import wait_for
from support.writing import LEDGERS

FOLLOWED = ("ints", "pairs", "parts", "padded", *LEDGERS)  # faults and soak follow the others

SEED_STATEMENTS = """
CREATE CONNECTION pg_connection WITH (
    type='postgres-cdc',
    hostname = '{host}',
    port = '{port}',
    username = '{user}',
    password = '{password}',
    database.name = '{database}',
);

// create at time t1
CREATE TABLE orders (
    order_id int PRIMARY KEY,
    order_date bigint,
    customer_name string,
    price decimal,
    product_id int,
    order_status smallint
) FROM CONNECTION pg_connection;

// create at time t2
CREATE TABLE shipments (
  shipment_id INTEGER,
  order_id INTEGER,
  origin STRING,
  destination STRING,
  is_arrived boolean,
  PRIMARY KEY (shipment_id)
) FROM CONNECTION pg_connection;
"""


def rows(hw: Any, query: str) -> list[dict[str, Any]]:
    return list(hw.sql(query)[0].rows.to_pylist())


def test_the_seeds_statements_run_as_written_twice_and_prices_keep_their_cents(
    database: Any, spark: SparkSession, tmp_path: Path
) -> None:
    database.execute(
        "CREATE TABLE orders (order_id int PRIMARY KEY, order_date bigint, customer_name text, price numeric(12,2), "
        "product_id int, order_status smallint)"
    )
    database.execute(
        "CREATE TABLE shipments (shipment_id int PRIMARY KEY, order_id int, origin text, destination text, "
        "is_arrived boolean)"
    )
    database.execute("INSERT INTO orders SELECT i, i, 'c' || i, i + 0.99, i, i % 3 FROM generate_series(1, 500) i")
    database.execute("INSERT INTO shipments VALUES (1, 1, 'a', 'b', true)")
    s = database.server
    text = SEED_STATEMENTS.format(host=s.host, port=s.port, user=s.user, password=s.password, database=database.name)
    for _ in range(2):
        with headwater.open(tmp_path / "home", spark=spark) as hw:
            hw.run(text, once=True)
    with headwater.open(tmp_path / "home", spark=spark) as hw:
        assert rows(hw, "SELECT sum(price) AS s, count(*) AS n FROM orders") == [{"s": Decimal("125745.00"), "n": 500}]
        assert hw.table("orders").schema["price"].dataType.simpleString() == "decimal(12,2)"
        answer = rows(hw, "SELECT order_status, count(*) AS n FROM orders GROUP BY order_status ORDER BY 1")
        assert [r["n"] for r in answer] == [166, 167, 167]
        with pytest.raises(DefinitionError) as e:
            hw.sql("CREATE TABLE orders FROM CONNECTION pg_connection;")
        assert e.value.code == "name.taken" and "+ CREATE TABLE orders FROM CONNECTION" in str(e.value)


@upstreams.ONE_OF
def test_every_table_equals_its_upstream_at_each_cut_while_writers_run(
    kinds: tuple[type[Upstream], ...],
    request: pytest.FixtureRequest,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    kind, seed = upstreams.choose(kinds)
    anew = f"{DEFAULTS.replaced_bytes if seed % 2 else 0}"  # both ways to fold
    settings = {"fold.replaced_bytes": anew, "tail.changes": "100"}  # runs are made and merged all the time
    upstream = upstreams.fresh(request, kind)
    upstream.create_schema(rows=300, seed=seed)
    with (
        headwater.open(tmp_path / "home", spark=spark, settings=settings) as hw,
        upstream.writer(seed, rate=60, sessions=4) as writer,
        hw.running(),
    ):
        hw.sql(upstream.definitions(FOLLOWED))
        wait_for(lambda: any(t.spans_done for t in hw.status().tables), "a span is covered")
        await_equal(hw.verify, filling=True)  # in the middle of the backfill: exactly the covered spans
        wait_for(lambda: all(t.state == "live" for t in hw.status().tables), _states(hw))
        await_equal(hw.verify)  # a table may just be reading a key again
        check_invariant(*hw.sql(QUERY)[0].rows.to_pylist()[0].values())
        for table in FOLLOWED:
            hw.sql(f"FOLD TABLE {table}")
        await_equal(hw.verify)
        wait_for(lambda: _has_run(hw, "ints"), "a run is made")
        upstream.truncate("ints", "pairs")  # ends the base, the runs and a part of the tail
        await_equal(hw.verify)
        check_invariant(*hw.sql(QUERY)[0].rows.to_pylist()[0].values())
        assert not writer.errors
        query = f"SELECT * FROM changelog('{upstream.connection}', table => 'ints') ORDER BY index DESC LIMIT 5"
        envelope = rows(hw, query)
        assert len(envelope) == 5 and json.loads(envelope[0]["source"])["table"] == "ints"


def test_another_process_asks_the_running_server(database: Any, spark: SparkSession, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.execute("INSERT INTO t SELECT i, 'v' || i FROM generate_series(1, 100) i")
    home = tmp_path / "home"
    with headwater.open(home, spark=spark) as hw, hw.running():
        hw.sql(definitions(database, ["t"]))
        wait_for(lambda: all(t.state == "live" for t in hw.status().tables), _states(hw))
        database.execute("INSERT INTO t VALUES (1000, 'fresh')")
        query = "SELECT v FROM t WHERE id = 1000"
        ask = [HEADWATER, "sql", "-c", query, "--format", "json", "--home", str(home)]

        def fresh() -> bool:
            answer = subprocess.run(ask, capture_output=True, text=True, timeout=60, check=True)
            return bool(json.loads(answer.stdout) == [{"v": "fresh"}])

        wait_for(fresh, "the row is visible")


def test_dropping_leaves_nothing_upstream(database: Any, spark: SparkSession, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with headwater.open(tmp_path / "home", spark=spark) as hw, hw.running():
        hw.sql(definitions(database, ["t"]))
        wait_for(lambda: all(t.state == "live" for t in hw.status().tables), _states(hw))
        assert database.execute("SELECT count(*) FROM pg_publication_tables")[0][0] == 1
        with pytest.raises(DefinitionError) as e:
            hw.sql("DROP CONNECTION pg")
        assert e.value.code == "name.in_use"
        hw.sql("DROP CONNECTION pg CASCADE")
        assert hw.sql("SHOW TABLES")[0].rows.num_rows == 0
    slots = f"SELECT count(*) FROM pg_replication_slots WHERE database = '{database.name}'"
    assert database.execute(slots)[0][0] == 0
    assert database.execute("SELECT count(*) FROM pg_publication")[0][0] == 0


def _has_run(hw: Any, table: str) -> bool:
    with hw._home.meta.read() as c:
        relation = relations.find(c, table)
        return relation is not None and bool(meta_runs.live(c, relation.id, 0, 1 << 62))


def _states(hw: Any) -> str:
    return f"all tables live; {[(t.name, t.state, t.error, t.waiting_for) for t in hw.status().tables]}"
