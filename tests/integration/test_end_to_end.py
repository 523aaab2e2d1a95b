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
from headwater.meta import progress, relations
from headwater.settings.table import DEFAULTS
from support import upstreams
from support.invariant import QUERY, check_invariant
from support.lake import HEADWATER, assert_equal, await_equal, definitions
from support.upstreams import Upstream
from support.wait import wait_for
from support.writing import LEDGERS, RandomWriter

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
EXAMPLE = Path(__file__).parents[2] / "examples" / "shop_mysql.sql"


def as_written(upstream: Upstream) -> str:
    """The seeds' statements, or the example that says the same of a MySQL, for a test's database."""
    s, name = upstream.server, upstream.database.name
    if upstream.type == "postgres-cdc":
        return SEED_STATEMENTS.format(host=s.host, port=s.port, user=s.user, password=s.password, database=name)
    text = EXAMPLE.read_text()
    for example, ours in (("'localhost'", s.host), ("'3306'", s.port), ("'headwater'", s.user), ("'shop'", name)):
        assert example in text
        text = text.replace(example, f"'{ours}'")
    return text


def rows(hw: Any, query: str) -> list[dict[str, Any]]:
    return list(hw.sql(query)[0].rows.to_pylist())


@upstreams.ONE_OF
def test_the_seeds_statements_run_as_written_twice_and_prices_keep_their_cents(
    kinds: tuple[type[Upstream], ...],
    request: pytest.FixtureRequest,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    upstream = upstreams.fresh(request, upstreams.choose(kinds)[0])
    upstream.execute(
        "CREATE TABLE orders (order_id int PRIMARY KEY, order_date bigint, customer_name varchar(100), "
        "price decimal(12,2), product_id int, order_status smallint)"
    )
    upstream.execute(
        "CREATE TABLE shipments (shipment_id int PRIMARY KEY, order_id int, origin text, destination text, "
        "is_arrived boolean)"
    )
    upstream.fill("orders", 500, "i, i, concat('c', i), i + 0.99, i, i % 3")
    upstream.execute("INSERT INTO shipments VALUES (1, 1, 'a', 'b', true)")
    monkeypatch.setenv("SHOP_PASSWORD", upstream.server.password)
    text = as_written(upstream)
    for _ in range(2):
        with headwater.open(tmp_path / "home", spark=spark) as hw:
            hw.run(text, once=True)
    with headwater.open(tmp_path / "home", spark=spark) as hw:
        assert rows(hw, "SELECT sum(price) AS s, count(*) AS n FROM orders") == [{"s": Decimal("125745.00"), "n": 500}]
        assert hw.table("orders").schema["price"].dataType.simpleString() == "decimal(12,2)"
        answer = rows(hw, "SELECT order_status, count(*) AS n FROM orders GROUP BY order_status ORDER BY 1")
        assert [r["n"] for r in answer] == [166, 167, 167]
        assert rows(hw, "SELECT is_arrived FROM shipments") == [{"is_arrived": True}]
        with pytest.raises(DefinitionError) as e:
            hw.sql(f"CREATE TABLE orders FROM CONNECTION {'shop' if 'shop' in text else 'pg_connection'};")
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
    # runs are made and merged all the time, of several slices each
    settings = {"fold.replaced_bytes": anew, "tail.changes": "100", "slice.changes": "10000"}
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


BOOKS = """SELECT
  (SELECT sum(amount) FROM {0}_ledger_a) + (SELECT sum(amount) FROM {0}_ledger_b) AS {0}_total,
  (SELECT count(*) FROM {0}_ledger_a) AS {0}_a, (SELECT count(*) FROM {0}_ledger_b) AS {0}_b"""
JOIN = (
    "SELECT p.id, p.amount AS pg, m.amount AS my FROM pg_ledger_a p JOIN my_ledger_a m ON p.id = m.id "
    "WHERE p.amount <> 500 OR m.amount <> 500 ORDER BY p.id"
)


def ledgers(upstream: Upstream) -> str:
    """The ledgers of a database under names of their own."""
    text = upstream.definitions(())
    prefix = upstream.connection
    for table in LEDGERS:
        name = f"{upstream.schema}.{table}"
        text += f"CREATE TABLE {prefix}_{table} FROM CONNECTION {prefix} TABLE '{name}';\n"
    return text


@pytest.mark.postgres
@pytest.mark.mariadb
@pytest.mark.mysql
def test_one_lake_joins_a_postgresql_table_with_a_mysql_table_at_one_epoch(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> None:
    """Transfers run in both databases; no statement ever sees half of one, in either."""
    kind, seed = upstreams.choose(upstreams.FAMILY)
    pg, my = upstreams.fresh(request, upstreams.Postgres), upstreams.fresh(request, kind)
    for upstream in (pg, my):
        upstream.create_schema(rows=0, seed=seed)
    with headwater.open(tmp_path / "home", spark=spark) as hw, hw.running():
        hw.sql(ledgers(pg) + ledgers(my))
        wait_for(lambda: [t.state for t in hw.status().tables] == ["live"] * 4, "all four are live")
        with (
            RandomWriter(pg.dialect, seed, LEDGERS, 40, sessions=2) as one,
            RandomWriter(my.dialect, seed + 1, LEDGERS, 40, sessions=2) as two,
        ):
            wait_for(lambda: min(one.done["_transfer"], two.done["_transfer"]) > 20, "both are being written")
            for _ in range(4):
                (found,) = rows(hw, f"SELECT * FROM ({BOOKS.format('pg')}), ({BOOKS.format('my')})")
                check_invariant(found["pg_total"], found["pg_a"], found["pg_b"])
                check_invariant(found["my_total"], found["my_a"], found["my_b"])
        assert_equal(hw.verify())  # waits until the lake holds everything up to now
        amounts = [dict(u.execute("SELECT id, amount FROM ledger_a")) for u in (pg, my)]
        both = [{"id": i, "pg": a, "my": amounts[1][i]} for i, a in sorted(amounts[0].items())]
        expected = [r for r in both if (r["pg"], r["my"]) != (500, 500)]
        assert expected and rows(hw, JOIN) == expected


def _has_run(hw: Any, table: str) -> bool:
    with hw._home.meta.read() as c:
        relation = relations.find(c, table)
        return relation is not None and relation.id in progress.runs(c)


def _states(hw: Any) -> str:
    return f"all tables live; {[(t.name, t.state, t.error, t.waiting_for) for t in hw.status().tables]}"
