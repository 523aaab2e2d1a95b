"""Statements: what is read, and that the seed's own text is."""

from __future__ import annotations

import pytest

from headwater.errors import SqlError
from headwater.sql import statements as st
from headwater.sql.parse import complete, parse

SEED = """
CREATE CONNECTION pg_connection WITH (
\t\ttype='postgres-cdc',
    hostname = 'localhost',
    port = '8432',
    username = 'myuser',
    password = '123456',
    database.name = 'mydb',
);

// create at time t1
CREATE TABLE orders (
\t\torder_id int PRIMARY KEY,
\t  order_date bigint,
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


def one(text: str) -> st.Statement:
    (statement,) = parse(text)
    return statement


def table(text: str) -> st.CreateTable:
    statement = one(text)
    assert isinstance(statement, st.CreateTable)
    return statement


def query(text: str) -> st.Query:
    statement = one(text)
    assert isinstance(statement, st.Query)
    return statement


def test_the_seed_s_statements_are_read_as_written() -> None:
    connection, orders, shipments = parse(SEED)
    assert isinstance(connection, st.CreateConnection)
    assert connection.options["database.name"] == "mydb"
    assert connection.options["port"] == "8432"
    assert "password" not in connection.options
    assert connection.secret is not None and connection.secret.resolve() == "123456"
    assert isinstance(orders, st.CreateTable) and isinstance(shipments, st.CreateTable)
    assert orders.columns is not None and shipments.columns is not None
    assert [(c.name, c.type) for c in orders.columns][3:] == [
        ("price", "decimal"),
        ("product_id", "int"),
        ("order_status", "smallint"),
    ]
    assert orders.key == ("order_id",) and shipments.key == ("shipment_id",)
    assert (connection.line, orders.line, shipments.line) == (2, 12, 22)


def test_a_password_is_in_no_repr() -> None:
    assert "123456" not in repr(parse(SEED))


def test_columns_may_be_left_out_or_starred() -> None:
    assert table("CREATE TABLE t FROM CONNECTION c").columns is None
    assert table("CREATE TABLE t (*) FROM CONNECTION c").columns is None
    starred = table("CREATE TABLE t (*, PRIMARY KEY (a, b)) FROM CONNECTION c")
    assert starred.columns is None and starred.key == ("a", "b")


@pytest.mark.parametrize(
    ("written", "upstream"),
    [
        ("TABLE 'public.shipments'", ("public", "shipments")),
        ("TABLE public.shipments", ("public", "shipments")),
        ("TABLE shipments", (None, "shipments")),
        ("TABLE 'shipments'", (None, "shipments")),
        ('TABLE "My.Schema"."T"', ("My.Schema", "T")),
        ("TABLE '\"My.Schema\".T'", ("My.Schema", "T")),
        ("", None),
    ],
)
def test_the_upstream_table_may_be_named_in_several_ways(written: str, upstream: object) -> None:
    assert table(f"CREATE TABLE t FROM CONNECTION c {written}").upstream == upstream


@pytest.mark.parametrize(
    "type",
    ["varchar(10)", "decimal(10, 2)", "timestamp with time zone", "int[]", "ARRAY<INT>", "array<decimal(3,1)>", "date"],
)
def test_types_are_kept_as_written(type: str) -> None:
    columns = table(f"CREATE TABLE t (a int PRIMARY KEY, b {type} NOT NULL, c int) FROM CONNECTION c").columns
    assert columns is not None
    assert [c.type for c in columns] == ["int", type, "int"]


def test_options_may_stand_before_or_after_the_connection() -> None:
    before = table("CREATE TABLE t WITH (delivery = 'at-least-once') FROM CONNECTION c")
    after = table("CREATE TABLE t FROM CONNECTION c WITH (delivery = 'AT-LEAST-ONCE',)")
    assert before.options == after.options
    assert before.canonical() == after.canonical()


def test_words_of_the_grammar_may_be_column_names() -> None:
    columns = table("CREATE TABLE t (key int, type string, table int, name date, end int) FROM CONNECTION c").columns
    assert columns is not None and [c.name for c in columns] == ["key", "type", "table", "name", "end"]


def test_quoted_names_keep_their_characters() -> None:
    t = table('CREATE TABLE "Or""der s" (`a``b` int PRIMARY KEY) FROM CONNECTION "c d"')
    assert (t.name, t.key, t.connection) == ('Or"der s', ("a`b",), "c d")


def test_a_key_is_spelled_as_its_column_is() -> None:
    assert table("CREATE TABLE t (Id int, PRIMARY KEY (ID)) FROM CONNECTION c").key == ("Id",)


def test_if_not_exists_if_exists_and_cascade() -> None:
    assert table("CREATE TABLE IF NOT EXISTS t FROM CONNECTION c").if_not_exists
    assert one("DROP TABLE IF EXISTS t CASCADE") == st.DropTable(name="t", if_exists=True, cascade=True)
    assert one("DROP CONNECTION c") == st.DropConnection(name="c")


def test_short_statements_are_parsed() -> None:
    assert one("show tables") == st.Show(kind=st.Listing.TABLES)
    assert one("SHOW CREATE CONNECTION c") == st.ShowCreate(kind=st.ObjectKind.CONNECTION, name="c")
    assert one("DESC t") == one("DESCRIBE TABLE t") == st.Describe(name="t")
    assert one("DESCRIBE table") == st.Describe(name="table")
    assert one("FOLD TABLE t") == st.Fold(name="t")
    assert parse("BEGIN; COMMIT;") == [st.Begin(), st.Commit()]
    assert one("CANCEL QUERY 17") == st.CancelQuery(id=17)
    assert one("CANCEL BACKFILL query") == st.ControlBackfill(verb=st.BackfillVerb.CANCEL, name="query")
    for wrong in ("CANCEL QUERY", "CANCEL QUERY x", "CANCEL QUERY 1.5", "CANCEL QUERY 1 2"):
        with pytest.raises(SqlError):
            parse(wrong)


def test_a_quote_is_doubled_and_a_backslash_is_itself_in_our_own_statements() -> None:
    options = r"type='postgres-cdc', hostname='h', username='a''b\', password='\''', database.name='d'"
    connection = one(f"CREATE CONNECTION c WITH ({options})")
    assert isinstance(connection, st.CreateConnection) and connection.secret is not None
    assert connection.options["username"] == "a'b\\"
    assert connection.secret.resolve() == "\\'"


def test_a_query_goes_to_spark_as_written_but_for_slash_comments() -> None:
    text = "SELECT 'it\\'s; // no', \"a;b\" // gone; not a statement\n, r'\\' -- kept ; //\n FROM t /*+ h; */"
    q = query(text)
    assert q.spark_text == text[: text.index("// gone")] + " " * 24 + text[text.index("\n,") :].removesuffix(
        " /*+ h; */"
    )


def test_the_two_languages_may_follow_each_other() -> None:
    connection, first, second = parse(
        r"CREATE CONNECTION c WITH (type='postgres-cdc', hostname='\', username='u', database.name='d');"
        r"SELECT '\';' AS a; VALUES ('\\')"
    )
    assert isinstance(connection, st.CreateConnection) and connection.options["hostname"] == "\\"
    assert first.text == r"SELECT '\';' AS a"
    assert second.text == r"VALUES ('\\')"


@pytest.mark.parametrize(
    "text", ["SELECT 1", "with x as (select 1) select 1", "VALUES 1", "TABLE t", "FROM t", "(SELECT 1)"]
)
def test_these_are_queries(text: str) -> None:
    assert query(text).spark_text == text


def test_a_query_knows_the_names_in_it_in_lower_case() -> None:
    q = query("SELECT o.x, 'shipments' FROM Orders o JOIN `Line Items` -- customers\n USING (id)")
    assert {"orders", "line items", "o", "id"} <= q.identifiers
    assert not {"shipments", "customers"} & q.identifiers


def test_what_cannot_be_a_table_is_none_that_a_query_reads() -> None:
    """Its age and completeness would be asked for."""
    q = query("SELECT count(*) AS big, t.items FROM t WHERE t.id IN (SELECT id FROM u) ORDER BY big")
    assert {"t", "u"} <= q.identifiers
    assert not {"count", "items", "select", "from", "order"} & q.identifiers
    for text in ("SELECT * FROM select", "TABLE select", "SELECT * FROM t, `select` s", "SELECT 1 FROM t JOIN select"):
        assert "select" in query(text).identifiers
    assert "big" not in query("SELECT count(*) AS big FROM items").identifiers


@pytest.mark.parametrize(
    "text",
    [
        "SELECT big FROM t",
        "SELECT a, big, (big + 1), f(big) FROM t WHERE big > 1 AND x IN (big, 2)",
        "SELECT sum(x) OVER (PARTITION BY big ORDER BY big) FROM t JOIN u ON t.id = big GROUP BY big HAVING big > 1",
        "SELECT a FROM t ORDER BY a, big LIMIT 3",
        "SELECT a FROM t UNION ALL SELECT big FROM u",
    ],
)
def test_a_column_is_not_taken_for_a_table_of_the_same_name(text: str) -> None:
    found = query(text).identifiers
    assert "big" not in found and "t" in found


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a FROM t, big",
        "SELECT a FROM t JOIN u ON t.id = u.id, big",
        "SELECT a FROM t JOIN u ON (t.id = u.id) LEFT JOIN big USING (id)",
        "SELECT a FROM (t CROSS JOIN big)",
        "SELECT (SELECT max(x) FROM big), a FROM t WHERE a IN (SELECT a FROM u)",
        "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u, big)",
        "WITH c AS (SELECT big FROM t) SELECT a FROM c, big",
        "FROM t |> WHERE a > 1 |> JOIN big ON t.a = big.a",
        "SELECT a FROM t ORDER BY a UNION ALL (TABLE big)",
        "SELECT a FROM order, big",
        "SELECT t.order FROM t, big",
        "SELECT a AS group FROM t, big",
    ],
)
def test_a_table_is_found_wherever_a_query_can_name_one(text: str) -> None:
    assert "big" in query(text).identifiers


def test_changelog_calls_are_found_with_their_exact_place() -> None:
    q = query("SELECT * FROM changelog('pg', table => 'public.t', from => 5, to => 9) a, changelog( 'x' ) b, t")
    first, second = q.changelog_calls
    assert (first.connection, first.table, first.from_index, first.to_index) == ("pg", "public.t", 5, 9)
    assert (second.connection, second.table) == ("x", None)
    assert q.with_views(("v1", "v2")) == "SELECT * FROM v1 a, v2 b, t"
    assert "changelog" not in q.identifiers and "t" in q.identifiers


def test_explain_takes_a_query_and_a_mode() -> None:
    plain, formatted = parse("EXPLAIN SELECT 1; EXPLAIN FORMATTED SELECT a FROM changelog('c')")
    assert isinstance(plain, st.Explain) and (plain.mode, plain.query.spark_text) == ("", "SELECT 1")
    assert isinstance(formatted, st.Explain) and formatted.mode == "FORMATTED"
    assert formatted.query.with_views(("v",)) == "SELECT a FROM v"


def test_an_empty_text_has_no_statements() -> None:
    assert parse("") == parse(" ;; -- x\n /* /* y */ */ // z") == parse("\ufeff") == []


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("SELECT 1;", True),
        ("SELECT 1", False),
        ("SELECT ';", False),
        ("SELECT ';'; -- x", True),
        ("SELECT 1 /* ;", False),
        ("SELECT 1 -- ;", False),
        ("-- nothing", True),
        ("SELECT 1; SELECT", False),
    ],
)
def test_a_shell_knows_when_a_statement_is_whole(text: str, whole: bool) -> None:
    assert complete(text) is whole
