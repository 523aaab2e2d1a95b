"""Materialized views over live tables: filled, then moved from epoch to epoch, always equal to their queries."""

from __future__ import annotations

import random

import pytest

from headwater.errors import HeadwaterError
from support.shop import Shop, busy
from support.wait import wait_for

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


BY_CHANGES = "WITH (refresh = 'incremental')"  # recomputing so few rows would be faster, and repairs what is wrong


@pytest.mark.slow
def test_views_of_every_strategy_follow_random_changes_of_two_tables(shop: Shop) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    a = shop.table(
        "id bigint PRIMARY KEY, k int, v numeric(10,2), s text",
        "SELECT i, i % 5, i, 'x' || i % 3 FROM generate_series(0, 40) i",
    )
    b = shop.table("id bigint PRIMARY KEY, name text", "SELECT i, 'n' || i FROM generate_series(0, 3) i")
    queries = {kind: q.format(a=a, b=b) for kind, q in QUERIES.items()}
    made = {f"v_{kind}": q for kind, q in queries.items()}
    for name, query in made.items():
        options = "" if name == "v_full" else BY_CHANGES
        shop.hw.sql(f"CREATE MATERIALIZED VIEW {name} {options} AS {query}")
    shop.await_filled(*made)
    for _ in range(2):
        statements = [f"UPDATE {a} SET v = v + 1 WHERE id = 0"]  # which nothing else touches
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
    assert {v.table for v in shop.hw.verify() if v.equal} >= made.keys()
    for name in made:
        shop.hw.sql(f"DROP MATERIALIZED VIEW {name}")


@pytest.mark.slow
def test_no_statement_sees_a_sum_and_its_accounts_disagree_while_money_moves(shop: Shop) -> None:
    accounts = shop.table("id int PRIMARY KEY, balance bigint", "SELECT i, 100 FROM generate_series(1, 50) i")
    with busy(lambda: _transfer(shop, accounts)):  # also while the view is filled
        total = shop.view(f"SELECT sum(balance) AS total, count(*) AS n FROM {accounts}", BY_CHANGES)
        doubled = shop.view(f"SELECT total * 2 AS twice FROM {total}", BY_CHANGES)
        read = set()
        for _ in range(5):
            (row,) = shop.rows(
                f"SELECT (SELECT total FROM {total}) AS stored, (SELECT sum(balance) FROM {accounts}) AS computed, "
                f"(SELECT twice FROM {doubled}) AS twice",
                fresh=False,
            )
            assert row["stored"] == row["computed"] and row["twice"] == 2 * row["stored"]
            assert (row["stored"] - 5000) % DEPOSIT == 0, "half of a transaction"
            read.add(row["stored"])
            wait_for(lambda: shop.rows(f"SELECT total FROM {total}", fresh=False)[0]["total"] not in read, "it moves")
    shop.check(total, f"SELECT sum(balance) AS total, count(*) AS n FROM {accounts}")


DEPOSIT = 7  # that each transfer adds: a constant sum would be the same at any two epochs


def _transfer(shop: Shop, accounts: str) -> None:
    one, two, amount = random.randrange(1, 51), random.randrange(1, 51), random.randrange(1, 20)
    shop.write(
        f"UPDATE {accounts} SET balance = balance - {amount} WHERE id = {one}",
        f"UPDATE {accounts} SET balance = balance + {amount + DEPOSIT} WHERE id = {two}",
    )


@pytest.mark.slow
def test_a_chain_of_five_and_a_diamond_agree_at_every_statement(shop: Shop) -> None:
    t = shop.table("id bigint PRIMARY KEY, k int, v int", "SELECT i, i % 4, i FROM generate_series(1, 20) i")
    chain = [shop.view(f"SELECT id, k, v + 1 AS v FROM {t}", BY_CHANGES)]
    for _ in range(3):
        chain.append(shop.view(f"SELECT id, k, v + 1 AS v FROM {chain[-1]}", BY_CHANGES))
    end = shop.view(f"SELECT k, sum(v) AS v FROM {chain[-1]} GROUP BY k", BY_CHANGES)
    left = shop.view(f"SELECT k, count(*) AS n FROM {chain[0]} GROUP BY k", BY_CHANGES)
    both = shop.view(f"SELECT e.k, e.v, l.n FROM {end} e JOIN {left} l ON e.k = l.k", BY_CHANGES)
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
    view = shop.view(query, BY_CHANGES)
    groups = shop.view(f"SELECT n % 2 AS odd, count(big) AS c FROM {t} GROUP BY n % 2", BY_CHANGES)
    shop.write(f"UPDATE {t} SET n = n + 1 WHERE id < 4")  # the log leaves the large value out
    assert all(row["size"] == 12800 for row in shop.check(view, query))
    shop.write(f"UPDATE {t} SET id = id + 100, n = n + 1 WHERE id = 2", f"DELETE FROM {t} WHERE id = 3")
    shop.check(view, query)
    shop.check(groups, f"SELECT n % 2 AS odd, count(big) AS c FROM {t} GROUP BY n % 2")
    assert shop.of(view)["strategy"] == "rows" and shop.of(groups)["strategy"] == "groups"
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
    shop.check(view, f"SELECT id, v * 10 AS v FROM {t}")
    assert found(view, 10) == expected
    for i in range(6):  # its runs are merged meanwhile
        shop.write(f"UPDATE {t} SET v = {20 + i} WHERE id = 4")
        shop.check(view, f"SELECT id, v * 10 AS v FROM {t}")
    shop.write(f"UPDATE {t} SET v = 4 WHERE id = 4")
    shop.check(view, f"SELECT id, v * 10 AS v FROM {t}")
    assert found(view, 10) == expected
    with pytest.raises(HeadwaterError) as refused:
        shop.rows(f"SELECT * FROM changes('{view}', from => 0)")
    assert refused.value.code == "query.epoch"


@pytest.mark.slow
def test_a_view_over_one_with_an_offset_follows_rows_that_move_over_its_border(shop: Shop) -> None:
    t = shop.table("id bigint PRIMARY KEY, v int", "SELECT i, i FROM generate_series(1, 10) i")
    below = shop.view(f"SELECT id, v FROM {t} ORDER BY id OFFSET 2")
    above = shop.view(f"SELECT id, v * 2 AS w FROM {below}")
    shop.write(f"UPDATE {t} SET v = 100 WHERE id IN (5, 6)", f"DELETE FROM {t} WHERE id = 1")
    rows = shop.check(above, f"SELECT id, v * 2 AS w FROM {below}")
    assert sorted((r["id"], r["w"]) for r in rows)[:3] == [(4, 8), (5, 200), (6, 200)]


@pytest.mark.slow
def test_a_view_has_columns_with_dots_and_backticks_in_their_names(shop: Shop) -> None:
    t = shop.table('id int PRIMARY KEY, "a.b" int, "x`y" text', "VALUES (1, 10, 'p'), (2, 20, 'q')")
    columns = "id, `a.b`, `x``y`"
    view = shop.define(f"SELECT {columns} FROM {t}")
    grouped = shop.define(f"SELECT `a.b`, count(*) AS `n.n` FROM {t} GROUP BY `a.b`")
    shop.await_filled(view, grouped)
    shop.write(f'UPDATE {t} SET "a.b" = 30 WHERE id = 2', f"INSERT INTO {t} VALUES (3, 10, 'r')")
    shop.check(view, f"SELECT {columns} FROM {t}")
    shop.check(grouped, f"SELECT `a.b`, count(*) AS `n.n` FROM {t} GROUP BY `a.b`")
