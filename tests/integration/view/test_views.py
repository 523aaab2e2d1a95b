"""Materialized views over live tables: filled, then moved from epoch to epoch, always equal to their queries."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headwater
from headwater.demo.embedded import EmbeddedPostgres
from headwater.errors import HeadwaterError
from headwater.meta import relations, views
from support.lake import definitions
from support.wait import wait_for

_numbers = itertools.count(1)


class Shop:
    """A home with a running server over one PostgreSQL database."""

    def __init__(self, hw: Any, upstream: Any) -> None:
        self.hw = hw
        self.upstream = upstream

    def write(self, *statements: str) -> None:
        """Runs the statements in one transaction of the upstream."""
        with self.upstream.transaction():
            for statement in statements:
                self.upstream.execute(statement)

    def table(self, columns: str, *rows: str, options: str = "") -> str:
        """A new upstream table with rows, followed by the lake; returns its name."""
        name = f"t{next(_numbers)}"
        self.write(f"CREATE TABLE {name} ({columns})", *(f"INSERT INTO {name} {row}" for row in rows))
        if options:
            self.write(f"ALTER TABLE {name} {options}")
        self.hw.sql(f"CREATE TABLE {name} FROM CONNECTION pg")
        return name

    def view(self, query: str, options: str = "") -> str:
        """A new view, filled."""
        name = f"v{next(_numbers)}"
        self.hw.sql(f"CREATE MATERIALIZED VIEW {name} {options} AS {query}")
        self.await_filled(name)
        return name

    def await_filled(self, *names: str) -> None:
        def filled() -> bool:
            with self.hw._home.meta.read() as c:
                found = [relations.find(c, name) for name in names]
                return all(r is not None and views.last_version(c, r.id) for r in found)

        wait_for(filled, f"{names} filled; {self.states()}", 120.0)

    def states(self) -> list[Any]:
        found: list[Any] = self.hw.sql("SHOW MATERIALIZED VIEWS")[0].rows.to_pylist()
        return found

    def of(self, view: str) -> Any:
        return next(s for s in self.states() if s["name"] == view)

    def rows(self, query: str, fresh: bool = True) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.hw.sql(query, fresh=fresh)[0].rows.to_pylist()
        return found

    def check(self, view: str, query: str) -> list[dict[str, Any]]:
        """The view's rows, fresh, after comparing them with the query in the same statement."""
        columns = ", ".join(f"`{name}`" for name in self.hw.sql(f"SELECT * FROM {view} LIMIT 0")[0].columns)
        both = f"(SELECT 'view' side, {columns} FROM {view}) UNION ALL (SELECT 'query', {columns} FROM ({query}))"
        found = self.rows(both)
        sides: dict[str, list[tuple[Any, ...]]] = {"view": [], "query": []}
        for row in found:
            sides[row.pop("side")].append(tuple(map(repr, row.values())))
        assert sorted(sides["view"]) == sorted(sides["query"])
        return self.rows(f"SELECT * FROM {view}")


@pytest.fixture(scope="module")
def shop(spark: SparkSession, pg: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    name = "views"
    pg.execute(f"CREATE DATABASE {name}")
    upstream = pg.connect(name)
    upstream.autocommit = True

    class Database:
        server = pg

    Database.name = name  # type: ignore[attr-defined]
    with headwater.open(tmp_path_factory.mktemp("views") / "home", spark=spark) as hw:
        hw.sql(definitions(Database, []))
        with hw.running():
            yield Shop(hw, upstream)
            hw.sql("DROP CONNECTION pg CASCADE")
    upstream.close()
    pg.execute(f"DROP DATABASE {name} WITH (FORCE)")


QUERIES = {
    "rows": "SELECT id, v * 2 AS double, upper(s) AS s FROM {a} WHERE v > 3",
    "groups": "SELECT k, count(*) AS n, sum(v) AS total, avg(v) AS mean FROM {a} GROUP BY k",
    "keys": "SELECT k, max(v) AS most, count(DISTINCT s) AS kinds FROM {a} GROUP BY k",
    "join": "SELECT a.id, b.name, a.v FROM {a} a JOIN {b} b ON a.k = b.id",
    "outer": "SELECT a.id AS aid, b.id AS bid, b.name FROM {a} a FULL JOIN {b} b ON a.k = b.id",
    "having": "SELECT k, count(*) AS n FROM {a} GROUP BY k HAVING count(*) > 2",
    "window": "SELECT id, row_number() OVER (PARTITION BY k ORDER BY v) AS place FROM {a}",
    "exists": "SELECT id FROM {a} a WHERE EXISTS (SELECT 1 FROM {b} b WHERE b.id = a.k AND b.name <> 'n1')",
    "global": "SELECT count(*) AS n, sum(v) AS total FROM {a}",
    "full": "SELECT id, rank() OVER (ORDER BY v, id) AS place FROM {a}",
}


@pytest.mark.slow
def test_views_of_every_strategy_follow_random_changes_of_two_tables(shop: Shop) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    a = shop.table(
        "id bigint PRIMARY KEY, k int, v numeric(10,2), s text",
        "SELECT i, i % 5, i, 'x' || i % 3 FROM generate_series(1, 40) i",
    )
    b = shop.table("id bigint PRIMARY KEY, name text", "SELECT i, 'n' || i FROM generate_series(0, 3) i")
    queries = {kind: q.format(a=a, b=b) for kind, q in QUERIES.items()}
    made = {f"v_{kind}": q for kind, q in queries.items()}
    for name, query in made.items():
        shop.hw.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    shop.await_filled(*made)
    for _ in range(2):
        statements = []
        for _ in range(chance.randrange(1, 8)):
            id, k = chance.randrange(1, 60), chance.choice(["NULL", *map(str, range(6))])
            v = chance.choice(["NULL", str(chance.randrange(9))])
            statements.append(
                chance.choice(
                    (
                        f"INSERT INTO {a} VALUES ({id}, {k}, {v}, 'y') ON CONFLICT (id) DO UPDATE SET v = {v}",
                        f"UPDATE {a} SET k = {k}, v = {v} WHERE id = {id}",
                        f"UPDATE {a} SET id = id + 100 WHERE id = {id}",
                        f"DELETE FROM {a} WHERE id = {id}",
                        f"UPDATE {b} SET name = 'm' || {id} WHERE id = {id % 5}",
                        f"DELETE FROM {b} WHERE id = {id % 7}",
                        f"INSERT INTO {b} VALUES ({id % 7}, 'again') ON CONFLICT DO NOTHING",
                    )
                )
            )
        shop.write(*statements)
        for name, query in made.items():
            shop.check(name, query)
    used = {name.removeprefix("v_"): shop.of(name)["strategy"] for name in made}
    assert used["groups"] == used["having"] == used["global"] == "groups" and used["full"] == "full", used
    assert all(v.equal for v in shop.hw.verify() if v.table in made)
    for name in made:
        shop.hw.sql(f"DROP MATERIALIZED VIEW {name}")


@contextmanager
def busy(work: Callable[[], None]) -> Iterator[None]:
    """Repeats the work in a thread while the block runs; its error ends the test."""
    stop, failed = threading.Event(), list[BaseException]()

    def repeat() -> None:
        try:
            while not stop.is_set():
                work()
        except BaseException as e:
            failed.append(e)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        if failed:
            raise failed[0]


@pytest.mark.slow
def test_no_statement_sees_a_sum_and_its_accounts_disagree_while_money_moves(shop: Shop) -> None:
    accounts = shop.table("id int PRIMARY KEY, balance bigint", "SELECT i, 100 FROM generate_series(1, 50) i")
    with busy(lambda: _transfer(shop, accounts)):  # also while the view is filled
        total = shop.view(f"SELECT sum(balance) AS total, count(*) AS n FROM {accounts}")
        doubled = shop.view(f"SELECT total * 2 AS twice FROM {total}")
        for _ in range(5):
            (row,) = shop.rows(
                f"SELECT (SELECT total FROM {total}) AS stored, (SELECT sum(balance) FROM {accounts}) AS computed, "
                f"(SELECT twice FROM {doubled}) AS twice",
                fresh=False,
            )
            assert row == {"stored": 5000, "computed": 5000, "twice": 10000}
    assert shop.check(total, f"SELECT sum(balance) AS total, count(*) AS n FROM {accounts}") == [
        {"total": 5000, "n": 50}
    ]


def _transfer(shop: Shop, accounts: str) -> None:
    one, two, amount = random.randrange(1, 51), random.randrange(1, 51), random.randrange(1, 20)
    shop.write(
        f"UPDATE {accounts} SET balance = balance - {amount} WHERE id = {one}",
        f"UPDATE {accounts} SET balance = balance + {amount} WHERE id = {two}",
    )


@pytest.mark.slow
def test_a_chain_of_five_and_a_diamond_agree_at_every_statement(shop: Shop) -> None:
    t = shop.table("id bigint PRIMARY KEY, k int, v int", "SELECT i, i % 4, i FROM generate_series(1, 20) i")
    chain = [shop.view(f"SELECT id, k, v + 1 AS v FROM {t}")]
    for _ in range(3):
        chain.append(shop.view(f"SELECT id, k, v + 1 AS v FROM {chain[-1]}"))
    end = shop.view(f"SELECT k, sum(v) AS v FROM {chain[-1]} GROUP BY k")
    left = shop.view(f"SELECT k, count(*) AS n FROM {chain[0]} GROUP BY k")
    both = shop.view(f"SELECT e.k, e.v, l.n FROM {end} e JOIN {left} l ON e.k = l.k")
    for i in range(3):
        shop.write(f"INSERT INTO {t} VALUES ({100 + i}, {i}, {i})", f"UPDATE {t} SET k = {i} WHERE id = {i + 1}")
        shop.check(both, f"SELECT k, sum(v + 4) AS v, count(*) AS n FROM {t} GROUP BY k")
    assert {s["strategy"] for s in shop.states() if s["name"] in (*chain, end, left)} <= {"rows", "groups", "append"}


@pytest.mark.slow
@pytest.mark.parametrize("identity", ["", "REPLICA IDENTITY FULL"], ids=["keys-only", "whole-rows"])
def test_a_view_survives_large_values_key_changes_truncate_and_resync(shop: Shop, identity: str) -> None:
    large = "repeat(md5(i::text), 400)"
    t = shop.table(
        "id bigint PRIMARY KEY, n int, big text", f"SELECT i, i, {large} FROM generate_series(1, 6) i", options=identity
    )
    shop.write(f"ALTER TABLE {t} ALTER big SET STORAGE EXTERNAL")
    query = f"SELECT id, n, length(big) AS size, substring(big, 1, 8) AS start FROM {t}"
    view, groups = shop.view(query), shop.view(f"SELECT n % 2 AS odd, count(big) AS c FROM {t} GROUP BY n % 2")
    shop.write(f"UPDATE {t} SET n = n + 1 WHERE id < 4")  # the log leaves the large value out
    assert all(row["size"] == 12800 for row in shop.check(view, query))
    shop.write(f"UPDATE {t} SET id = id + 100, n = n + 1 WHERE id = 2", f"DELETE FROM {t} WHERE id = 3")
    shop.check(view, query)
    shop.write(f"TRUNCATE {t}", f"INSERT INTO {t} VALUES (7, 1, 'small')")
    assert shop.check(view, query) == [{"id": 7, "n": 1, "size": 5, "start": "small"}]
    assert "truncated" in shop.of(view)["reason"]
    shop.hw.sql(f"RESYNC TABLE {t}")
    shop.write(f"INSERT INTO {t} VALUES (8, 2, 'new')")
    wait_for(lambda: len(shop.rows(f"SELECT * FROM {view}")) == 2, "the new row is in the view", 120.0)
    shop.check(view, query)
    shop.check(groups, f"SELECT n % 2 AS odd, count(big) AS c FROM {t} GROUP BY n % 2")


@pytest.mark.slow
def test_a_view_whose_query_fails_says_why_and_goes_on_once_the_rows_are_corrected(shop: Shop) -> None:
    t = shop.table("id int PRIMARY KEY, d int", "VALUES (1, 1), (2, 2)")
    other = shop.view(f"SELECT count(*) AS n FROM {t}")
    view = shop.view(f"SELECT id, 10 / d AS q FROM {t}")
    shop.write(f"INSERT INTO {t} VALUES (3, 0)")
    wait_for(lambda: shop.of(view)["state"] == "failed", "the view failed", 120.0)
    assert "DIVIDE_BY_ZERO" in shop.of(view)["error"]
    assert shop.check(other, f"SELECT count(*) AS n FROM {t}") == [{"n": 3}]
    assert len(shop.rows(f"SELECT * FROM {view}", fresh=False)) == 2, "it stays readable as it was"
    shop.write(f"UPDATE {t} SET d = 5 WHERE id = 3")
    wait_for(lambda: shop.of(view)["state"] == "live", "the view goes on", 120.0)
    shop.check(view, f"SELECT id, 10 / d AS q FROM {t}")


@pytest.mark.slow
def test_a_paused_view_stands_still_until_it_is_resumed_and_refresh_computes_it_anew(shop: Shop) -> None:
    t = shop.table("id int PRIMARY KEY, v int", "VALUES (1, 1)")
    query = f"SELECT id, v FROM {t}"
    view = shop.view(query)
    shop.hw.sql(f"PAUSE MATERIALIZED VIEW {view}")
    shop.write(f"INSERT INTO {t} VALUES (2, 2)")
    wait_for(lambda: len(shop.rows(f"SELECT * FROM {t}", fresh=False)) == 2, "the table has both rows")
    assert shop.of(view)["state"] == "paused"
    assert shop.rows(f"SELECT (SELECT count(*) FROM {view}) AS v, (SELECT count(*) FROM {t}) AS t", fresh=False) == [
        {"v": 1, "t": 1}
    ]
    shop.hw.sql(f"RESUME MATERIALIZED VIEW {view}")
    assert len(shop.check(view, query)) == 2
    shop.hw.sql(f"REFRESH MATERIALIZED VIEW {view}")
    shop.write(f"INSERT INTO {t} VALUES (3, 3)")
    wait_for(lambda: len(shop.rows(f"SELECT * FROM {view}", fresh=False)) == 3, "the refreshed view", 120.0)
    shop.check(view, query)


@pytest.mark.slow
def test_changes_between_two_epochs_are_net_for_tables_and_views(shop: Shop) -> None:
    t = shop.table("id int PRIMARY KEY, v int", "VALUES (1, 1), (2, 2), (3, 3)")
    view = shop.view(f"SELECT id, v * 10 AS v FROM {t}")
    before = shop.hw.sql(f"SELECT * FROM {view}", fresh=True)[0].epoch
    shop.hw.sql(f"PAUSE MATERIALIZED VIEW {view}")  # so that its version is kept
    shop.write(f"UPDATE {t} SET v = 9 WHERE id = 1", f"DELETE FROM {t} WHERE id = 2", f"INSERT INTO {t} VALUES (4, 4)")
    shop.write(f"INSERT INTO {t} VALUES (5, 5)")
    shop.write(f"DELETE FROM {t} WHERE id = 5", f"UPDATE {t} SET v = v WHERE id = 3")
    wait_for(lambda: shop.rows(f"SELECT count(*) AS n FROM {t}", fresh=False) == [{"n": 3}], "the changes")
    expected = {(1, 1, "update_preimage"), (1, 9, "update_postimage"), (2, 2, "delete"), (4, 4, "insert")}

    def found(of: str, factor: int) -> set[tuple[int, int, str]]:
        rows = shop.rows(f"SELECT * FROM changes('{of}', from => {before})", fresh=False)
        assert len(rows) == 4
        return {(r["id"], r["v"] // factor, r["_change_type"]) for r in rows}

    assert found(t, 1) == expected
    shop.hw.sql(f"RESUME MATERIALIZED VIEW {view}")
    with pytest.raises(HeadwaterError) as refused:
        shop.rows(f"SELECT * FROM changes('{view}', from => 0)")
    assert refused.value.code == "query.epoch"
