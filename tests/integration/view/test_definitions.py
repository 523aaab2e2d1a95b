"""Definitions of views: what Spark understands of them is stored; what cannot be stored is refused with its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import headwater
from headwater.engine.home import Home
from headwater.errors import HeadwaterError, SqlError
from headwater.meta import epochs, plain_views, relations, views
from headwater.model import Column, Control, RelationInfo, TableState, UpstreamType
from support.defined import add_connection, add_table

INT = UpstreamType("int4", 23, ordered=True)
TEXT = UpstreamType("text", 25)
ORDERS = (
    Column("id", "BIGINT", INT, False),
    Column("customer", "STRING", TEXT),
    Column("price", "DECIMAL(10,2)", INT),
    Column("orders", "INT", INT),
)
PEOPLE = (Column("name", "STRING", TEXT, False), Column("city", "STRING", TEXT))
TOTALS = "SELECT customer, count(*) AS n, sum(price) AS total FROM orders GROUP BY customer"


@pytest.fixture
def hw(spark: SparkSession, tmp_path: Path) -> Iterator[Any]:
    """A home with the tables `orders` and `People`, which no server follows."""
    path = tmp_path / "home"
    opened = Home.open(path)
    with opened.meta.write() as c:
        add_connection(c)
        add_table(c, "orders", ORDERS, ("id",), upstream_id=1)
        add_table(c, "People", PEOPLE, ("name",), upstream_id=2)
    opened.meta.close()
    with headwater.open(path, spark=spark) as home:
        yield home


def done(hw: Any, text: str) -> str:
    result = hw.sql(text)[-1]
    return str(result.message)


def rows(hw: Any, text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = hw.sql(text)[-1].rows.to_pylist()
    return found


def refused(hw: Any, text: str) -> HeadwaterError:
    with pytest.raises(HeadwaterError) as caught:
        hw.sql(text)
    assert caught.value.hint.endswith((".", "?"))
    return caught.value


def stored(hw: Any, name: str) -> RelationInfo:
    with hw._home.meta.read() as c:
        found = relations.find(c, name)
    assert found is not None and found.view is not None
    return found


def uses(hw: Any, name: str) -> dict[str, list[str]]:
    with hw._home.meta.read() as c:
        found = views.uses(c, stored(hw, name).id)
        return {relations.get(c, id).name: list(columns) for id, columns in found.items()}


def test_a_view_is_stored_with_its_columns_key_and_inputs(hw: Any) -> None:
    text = f"CREATE MATERIALIZED VIEW totals WITH (refresh = 'incremental', cluster.by = 'TOTAL') AS\n{TOTALS}"
    assert done(hw, text) == "materialized view totals created"
    view = stored(hw, "TOTALS")
    assert view.view is not None and view.kind == "materialized view"
    assert [(c.name, c.lake_type) for c in view.shown_columns] == [
        ("customer", "STRING"),
        ("n", "BIGINT"),
        ("total", "DECIMAL(20,2)"),
    ]
    assert all(c.name.startswith("__") for c in view.columns[3:]) and view.key == ("customer",)
    assert view.options == {"refresh": "incremental", "refresh.interval": "1", "cluster.by": "total"}
    assert (view.state, view.view.limit, view.origin.connection_id) == (TableState.DEFINED, None, 0)
    assert uses(hw, "totals") == {"orders": ["id", "customer", "price"]}
    assert rows(hw, "DESCRIBE totals") == [
        {"column": "customer", "type": "STRING", "key": 1, "upstream_type": None},
        {"column": "n", "type": "BIGINT", "key": None, "upstream_type": None},
        {"column": "total", "type": "DECIMAL(20,2)", "key": None, "upstream_type": None},
    ]
    (shown,) = rows(hw, "SHOW CREATE MATERIALIZED VIEW totals")
    assert shown["statement"].endswith(f"AS\n{TOTALS};")
    assert done(hw, shown["statement"]) == "materialized view totals already exists"


def test_the_same_definition_again_is_a_no_op_and_another_one_is_refused(hw: Any) -> None:
    done(hw, f"CREATE MATERIALIZED VIEW v AS {TOTALS}")
    assert "already exists" in done(hw, f"create materialized view V as -- again\n{TOTALS.lower()}")
    assert "already exists" in done(hw, "CREATE MATERIALIZED VIEW IF NOT EXISTS v AS SELECT 1 AS a")
    error = refused(hw, "CREATE MATERIALIZED VIEW v AS SELECT id FROM orders")
    assert error.code == "name.taken" and "+ SELECT id FROM orders" in error.message


def test_tables_views_and_plain_views_share_one_namespace(hw: Any) -> None:
    done(hw, "CREATE VIEW p AS SELECT 1 AS a; CREATE MATERIALIZED VIEW m AS SELECT id FROM orders")
    for text in (
        "CREATE VIEW ORDERS AS SELECT 1 AS a",
        "CREATE MATERIALIZED VIEW P AS SELECT id FROM orders",
        "CREATE VIEW IF NOT EXISTS m AS SELECT 1 AS a",
        "CREATE TABLE p FROM CONNECTION pg",
        "BEGIN; CREATE VIEW x AS SELECT 1 AS a; CREATE MATERIALIZED VIEW X AS SELECT id FROM orders; COMMIT",
    ):
        assert refused(hw, text).code == "name.taken"
    assert refused(hw, "DROP TABLE m").hint == "Write MATERIALIZED VIEW instead of TABLE: m is a materialized view."
    assert refused(hw, "DROP VIEW orders").hint == "Write TABLE instead of VIEW: orders is a table."
    assert refused(hw, "SHOW CREATE VIEW m").code == "name.unknown"
    assert refused(hw, "PAUSE MATERIALIZED VIEW orderz").hint == "Did you mean orders?"
    assert refused(hw, "SELECT * FROM orderz").hint == "Did you mean orders?"


def test_star_means_the_columns_of_now_and_a_name_only_what_spark_understands(hw: Any) -> None:
    done(hw, "CREATE MATERIALIZED VIEW s AS SELECT * EXCEPT (price) FROM orders AS people")
    assert [c.name for c in stored(hw, "s").shown_columns] == ["id", "customer", "orders"]
    assert uses(hw, "s") == {"orders": ["id", "customer", "price", "orders"]}
    with hw._home.meta.read() as c:
        view = stored(hw, "s").view
        assert view is not None and [relations.get(c, id).name for id in view.inputs] == ["orders"]
        assert "SELECT `id`, `customer`, `price`, `orders` FROM `orders`" in view.query


def test_views_over_views_see_only_what_readers_see(hw: Any) -> None:
    done(hw, f"CREATE MATERIALIZED VIEW one AS {TOTALS}; CREATE MATERIALIZED VIEW two AS SELECT * FROM one WHERE n > 1")
    assert [c.name for c in stored(hw, "two").shown_columns] == ["customer", "n", "total"]
    done(hw, "CREATE MATERIALIZED VIEW three AS SELECT o.price FROM orders o JOIN two ON two.customer = o.customer")
    assert stored(hw, "three").key == ("__k0",), "of the order; each has at most one customer"
    done(hw, "CREATE MATERIALIZED VIEW four AS SELECT * FROM three")
    four = stored(hw, "four")
    assert [c.name for c in four.shown_columns] == ["price"]
    assert set(four.key) <= {c.name for c in four.columns} and "price" not in four.key


def test_a_block_defines_views_with_the_views_before_them(hw: Any) -> None:
    text = "BEGIN; CREATE VIEW p AS SELECT id AS a FROM orders; CREATE MATERIALIZED VIEW m AS SELECT a FROM p; COMMIT"
    assert [r.message for r in hw.sql(text)] == ["view p created", "materialized view m created"]
    assert uses(hw, "m") == {"orders": ["id"]}
    wrong = "BEGIN; CREATE VIEW q AS SELECT 1 AS a; CREATE MATERIALIZED VIEW n AS SELECT * FROM nowhere; COMMIT"
    assert refused(hw, wrong).code == "name.unknown"
    assert [v["name"] for v in rows(hw, "SHOW VIEWS")] == ["p"]


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        (
            "SELECT count(*) FROM orders",
            "view.column_name",
            "column 1 has no name that can be stored: count(1) (it contains a parenthesis)",
        ),
        ("SELECT id AS a, price AS A FROM orders", "view.column_name", "column 2 has the same name as another one: A"),
        ("SELECT id AS `__k` FROM orders", "view.column_name", "names that begin with __ are reserved"),
        ("SELECT id AS `a b` FROM orders", "view.column_name", "a b"),
        ("SELECT id, INTERVAL 1 DAY AS i FROM orders", "view.column_type", "column i has the type interval day"),
        ("SELECT id, NULL AS i FROM orders", "view.column_type", "void"),
        ("SELECT id, parse_json('1') AS i FROM orders", "view.column_type", "variant"),
        ("SELECT id, struct(array(NULL) AS x) AS i FROM orders", "view.column_type", "void"),
        ("SELECT op FROM changelog('pg')", "view.input", "changelog(…)"),
        ("SELECT id FROM changes('orders')", "view.input", "changes(…)"),
        ("SELECT op FROM logged", "view.input", "changelog(…)"),
        ("SELECT id FROM v", "view.input", "names the view itself"),
        ("SELECT 1 AS a", "view.input", "reads no table"),
        ("SELECT * FROM nowhere", "name.unknown", "there is no table nowhere"),
        ("SELECT * FROM pg.orders", "name.unknown", "there is no table pg.orders"),
    ],
)
def test_what_cannot_be_a_materialized_view_is_refused(hw: Any, query: str, code: str, words: str) -> None:
    hw.sql("CREATE VIEW logged AS SELECT op FROM changelog('pg')")
    error = refused(hw, f"CREATE MATERIALIZED VIEW v AS {query}")
    assert error.code == code and words in error.message
    assert rows(hw, "SHOW MATERIALIZED VIEWS") == []


def test_spark_s_complaint_has_its_place_in_the_definition(hw: Any) -> None:
    for kind in ("VIEW", "MATERIALIZED VIEW"):
        error = refused(hw, f"SHOW TABLES;\n\nCREATE {kind} v AS SELECT id, prize\nFROM orders")
        assert isinstance(error, SqlError) and error.code == "sql.query"
        line = f"CREATE {kind} v AS SELECT id, prize"
        assert (error.line, error.column, error.text) == (3, line.index("prize") + 1, line)
        error = refused(hw, f"CREATE {kind} v AS\n  SELECT id,\n    FROM orders WHERE")
        assert isinstance(error, SqlError) and (error.code, error.line) == ("sql.query", 3)


def test_only_a_query_with_a_rule_for_every_operator_is_incremental(hw: Any) -> None:
    query = "SELECT count(*) AS n FROM (SELECT id FROM orders ORDER BY price LIMIT 3)"
    text = f"CREATE MATERIALIZED VIEW v WITH (refresh = 'incremental') AS {query}"
    error = refused(hw, text)
    assert error.code == "view.not_incremental" and "limit: any change can move the border" in error.message
    done(hw, text.replace("incremental", "auto"))
    assert refused(hw, "ALTER MATERIALIZED VIEW v SET (refresh = 'incremental')").code == "view.not_incremental"
    assert stored(hw, "v").options["refresh"] == "auto"
    found = rows(hw, "EXPLAIN MATERIALIZED VIEW v")
    limit = next(r for r in found if r["operator"].endswith("limit"))
    assert limit["rule"] == "full" and limit["reads"].startswith("all rows; any change can move the border")


def test_options_are_checked_against_the_view_and_altered(hw: Any) -> None:
    error = refused(hw, f"CREATE MATERIALIZED VIEW v WITH (cluster.by = 'price') AS {TOTALS}")
    assert error.code == "sql.bad_option" and error.hint == "Its columns are customer, n, total."
    done(hw, f"CREATE MATERIALIZED VIEW v AS {TOTALS}")
    assert refused(hw, "ALTER MATERIALIZED VIEW v SET (cluster.by = 'x')").code == "sql.bad_option"
    done(hw, "ALTER MATERIALIZED VIEW v SET (cluster.by = 'N, customer', refresh.interval = '1min', refresh = full)")
    wanted = {"cluster.by": "n, customer", "refresh.interval": "60", "refresh": "full"}
    assert stored(hw, "v").options == wanted
    done(hw, "PAUSE MATERIALIZED VIEW v")
    assert stored(hw, "v").control is Control.PAUSED
    (shown,) = rows(hw, "SHOW MATERIALIZED VIEWS")
    assert (shown["state"], shown["waits_for"]) == ("paused", "RESUME MATERIALIZED VIEW v")
    done(hw, "RESUME MATERIALIZED VIEW v")
    (shown,) = rows(hw, "SHOW MATERIALIZED VIEWS")
    assert (shown["state"], shown["waits_for"]) == ("defined", "a server: start `headwater run`")
    assert [x["table"] for x in rows(hw, "SHOW BACKFILLS")] == ["orders", "People", "v"]
    assert sorted(x["name"] for x in rows(hw, "SHOW TABLES")) == ["People", "orders"]


def test_explain_shows_the_rule_of_each_operator(hw: Any) -> None:
    done(hw, f"CREATE MATERIALIZED VIEW v AS {TOTALS}")
    found = rows(hw, "EXPLAIN MATERIALIZED VIEW v")
    aggregate = next(r for r in found if r["operator"].endswith("aggregate"))
    assert (aggregate["rule"], aggregate["key"]) == ("groups", "customer")
    leaf = found[-1]
    assert leaf["operator"].endswith("└─ input orders") and leaf["reads"] == "its changes: id, customer, price"


def test_a_refresh_defines_the_view_beside_itself(hw: Any) -> None:
    done(hw, f"CREATE VIEW p AS SELECT * FROM orders; CREATE MATERIALIZED VIEW v AS {TOTALS.replace('orders', 'p')}")
    with hw._home.meta.write() as c:  # it has rows
        views.add_version(c, stored(hw, "v").id, epochs.publish(c, [], {}).id)
    assert "computed again" in done(hw, "REFRESH MATERIALIZED VIEW v")
    assert "already being refreshed" in done(hw, "REFRESH MATERIALIZED VIEW v")
    old = stored(hw, "v")
    with hw._home.meta.read() as c:
        beside = relations.replacement(c, old.id)
        assert beside is not None and beside.view == old.view and beside.columns == old.columns
        assert views.uses(c, beside.id) == views.uses(c, old.id) and views.plain_views(c, beside.id) == ["p"]
    assert [x["table"] for x in rows(hw, "SHOW BACKFILLS")][-1] == "v (refresh)"
    assert [x["name"] for x in rows(hw, "SHOW MATERIALIZED VIEWS")] == ["v"]
    assert refused(hw, "DROP VIEW p").message == "view p is used by materialized view v"
    done(hw, "DROP MATERIALIZED VIEW v")
    with hw._home.meta.read() as c:
        assert relations.get_or_none(c, beside.id) is None


def test_what_is_in_use_is_dropped_only_with_its_dependents(hw: Any) -> None:
    done(hw, "CREATE VIEW p AS SELECT * FROM orders; CREATE VIEW q AS SELECT city FROM people")
    done(hw, "CREATE MATERIALIZED VIEW a AS SELECT id, price FROM p; CREATE MATERIALIZED VIEW b AS SELECT id FROM a")
    done(hw, "CREATE VIEW named_alike AS SELECT orders FROM (SELECT 1 AS orders)")
    error = refused(hw, "DROP TABLE orders")
    assert error.code == "name.in_use"
    assert error.message == "table orders is used by materialized views a and b, view p"
    assert refused(hw, "DROP MATERIALIZED VIEW a").message == "materialized view a is used by materialized view b"
    assert refused(hw, "DROP CONNECTION pg").message.endswith("used by materialized views a and b, views p and q")
    assert done(hw, "DROP VIEW p CASCADE") == "view p dropped, with materialized views a and b"
    assert done(hw, "DROP VIEW IF EXISTS p; DROP MATERIALIZED VIEW IF EXISTS a").endswith("a does not exist")
    with hw._home.meta.read() as c:
        assert [v.name for v in plain_views.all(c)] == ["q", "named_alike"]


def test_every_form_of_a_query_is_stored_with_what_it_means(hw: Any) -> None:
    forms = {
        "WITH orders AS (SELECT * FROM orders WHERE id > 1) SELECT id FROM orders": ["orders"],
        "TABLE orders": ["orders"],
        "FROM orders SELECT id": ["orders"],
        "(SELECT id FROM `ORDERS`)": ["orders"],
        "SELECT id FROM orders UNION ALL SELECT orders FROM orders": ["orders"],
        "SELECT customer FROM orders WHERE customer IN (SELECT name FROM people)": ["People", "orders"],
        "SELECT o.id, p.city FROM orders o LEFT JOIN people p ON p.name = o.customer": ["People", "orders"],
        "SELECT id FROM orders WHERE price > (SELECT avg(price) FROM orders)": ["orders"],
        "SELECT id, 'it\\'s; AS' AS s FROM orders -- why\nWHERE customer <> \"x;\"": ["orders"],
        "SELECT id FROM orders ORDER BY price DESC NULLS LAST LIMIT 3": ["orders"],
    }
    for number, (query, wanted) in enumerate(forms.items()):
        hw.sql(f"CREATE MATERIALIZED VIEW v{number} AS {query};")
        assert sorted(uses(hw, f"v{number}")) == wanted, query
    last = stored(hw, f"v{len(forms) - 1}").view
    assert last is not None and last.limit == 3
    assert [(o.descending, o.nulls_first) for o in last.order] == [(True, False)]
