"""MySQL and MariaDB as a user meets them: the seeds' statements, and one lake over two kinds of databases."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headwater
from headwater.errors import DefinitionError, HeadwaterError
from support import upstreams
from support.invariant import check_invariant
from support.lake import assert_equal
from support.upstreams import Upstream
from support.wait import wait_for
from support.writing import LEDGERS, RandomWriter

EXAMPLE = Path(__file__).parents[2] / "examples" / "shop_mysql.sql"


def rows(hw: Any, query: str) -> list[dict[str, Any]]:
    return list(hw.sql(query)[0].rows.to_pylist())


def test_the_example_runs_twice_and_prices_keep_their_cents(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream = upstreams.fresh(request, upstreams.choose(upstreams.FAMILY)[0])
    upstream.execute(
        "CREATE TABLE orders (order_id int PRIMARY KEY, order_date bigint, customer_name varchar(100), "
        "price decimal(12,2), product_id int, order_status smallint)"
    )
    upstream.execute(
        "CREATE TABLE shipments (shipment_id int PRIMARY KEY, order_id int, origin text, destination text, "
        "is_arrived tinyint(1))"
    )
    upstream.fill("orders", 500, "i, i, concat('c', i), i + 0.99, i, i % 3")
    upstream.execute("INSERT INTO shipments VALUES (1, 1, 'a', 'b', true)")
    s = upstream.server
    monkeypatch.setenv("SHOP_PASSWORD", s.password)
    text = EXAMPLE.read_text()
    for name, ours in (("'localhost'", s.host), ("'3306'", s.port), ("'headwater'", s.user)):
        assert name in text
        text = text.replace(name, f"'{ours}'")
    text = text.replace("'shop'", f"'{upstream.database.name}'")
    for _ in range(2):
        with headwater.open(tmp_path / "home", spark=spark) as hw:
            hw.run(text, once=True)
    with headwater.open(tmp_path / "home", spark=spark) as hw:
        assert rows(hw, "SELECT sum(price) AS s, count(*) AS n FROM orders") == [{"s": Decimal("125745.00"), "n": 500}]
        assert hw.table("orders").schema["price"].dataType.simpleString() == "decimal(12,2)"
        assert rows(hw, "SELECT is_arrived FROM shipments") == [{"is_arrived": True}]
        with pytest.raises(DefinitionError) as e:
            hw.sql("CREATE TABLE orders FROM CONNECTION shop;")
        assert e.value.code == "name.taken"


def test_a_declared_unique_key_is_followed_and_a_table_that_cannot_begin_holds_up_no_other(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> None:
    upstream = upstreams.fresh(request, upstreams.choose(upstreams.FAMILY)[0])
    upstream.execute(
        "CREATE TABLE keyed (a int NOT NULL, b varchar(20) NOT NULL, v int, UNIQUE pair (b, a), UNIQUE (v))"
    )
    upstream.fill("keyed", 500, "i % 7, concat('k', i), i")
    upstream.execute("CREATE TABLE lost (id int NOT NULL, v int, UNIQUE (id))")
    upstream.fill("lost", 10, "i, i")
    declare = "CREATE TABLE {0} ({1}, PRIMARY KEY ({2})) FROM CONNECTION my WITH (backfill.rows_per_span = 90);\n"
    text = upstream.definitions(()) + declare.format("lost", "id int, v int", "id")
    text += declare.format("keyed", "a int, b string, v int", "b, a")
    with headwater.open(tmp_path / "home", spark=spark) as hw:
        hw.sql(text)
        upstream.execute("DROP INDEX id ON lost")
        with pytest.raises(HeadwaterError) as e:
            hw.run(once=True)
        assert e.value.code == "table.no_key"
        assert {t.name: (t.state, t.scanned_rows) for t in hw.status().tables} == {
            "lost": ("failed", 0),
            "keyed": ("live", 500),
        }
        upstream.execute("UPDATE keyed SET a = a + 10, v = v + 1000 WHERE v <= 100")
        upstream.execute("DELETE FROM keyed WHERE v BETWEEN 200 AND 250")
        upstream.execute("INSERT INTO keyed VALUES (1, 'new', 7777)")
        hw.sql("DROP TABLE lost")
        hw.run(once=True)
        assert rows(hw, "SELECT count(*) AS n, sum(v) AS s FROM keyed") == [
            {"n": int(n), "s": int(s)} for n, s in upstream.execute("SELECT count(*), sum(v) FROM keyed")
        ]
        with hw.running():  # a comparison needs the captures
            assert_equal(hw.verify("keyed"))


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
