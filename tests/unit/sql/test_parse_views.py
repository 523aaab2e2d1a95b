"""Statements about views: two languages in one statement, and what each means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from headwater.errors import SqlError
from headwater.sql import statements as st
from headwater.sql.options import validate
from headwater.sql.parse import complete, parse
from headwater.sql.same import same


def one(text: str) -> st.Statement:
    (statement,) = parse(text)
    return statement


def view(text: str) -> st.CreateMaterializedView:
    statement = one(text)
    assert isinstance(statement, st.CreateMaterializedView)
    return statement


def plain(text: str) -> st.CreateView:
    statement = one(text)
    assert isinstance(statement, st.CreateView)
    return statement


def test_a_definition_is_ours_up_to_its_as_and_spark_s_from_there() -> None:
    text = r"""CREATE MATERIALIZED VIEW IF NOT EXISTS "it's; v" WITH (cluster.by = 'a; b\', refresh = 'FULL') AS
SELECT 'it\'s; one', "two; 'x" FROM t, `a;b`; SHOW VIEWS"""
    first, second = parse(text)
    assert isinstance(first, st.CreateMaterializedView) and second == st.Show(kind=st.Listing.VIEWS)
    assert (first.name, first.if_not_exists) == ("it's; v", True)
    assert (first.options["cluster.by"], first.options["refresh"]) == ("a; b\\", "full")
    assert first.query.spark_text == r"""SELECT 'it\'s; one', "two; 'x" FROM t, `a;b`"""
    assert (first.line, first.query.line, second.line) == (1, 2, 2)
    assert {"t", "a;b"} <= first.query.identifiers


@pytest.mark.parametrize(
    "text",
    [
        "create view v as select 'it\\'s; one'",
        "CREATE /* as */ VIEW -- AS '\n v // it's as \n AS select 'it\\'s; one'",
        "CREATE VIEW \"as\" AS\n\n  select 'it\\'s; one' ",
        "CREATE VIEW `v` AS (select 'it\\'s; one')",
    ],
)
def test_comments_and_quotes_may_stand_anywhere(text: str) -> None:
    first, second = parse(text + "; SELECT 1")
    assert isinstance(first, st.CreateView) and isinstance(second, st.Query)
    assert first.query.spark_text.strip("()") == "select 'it\\'s; one'"


def test_a_shell_reads_on_until_the_query_of_a_view_ends() -> None:
    assert not complete("CREATE VIEW v AS SELECT 'it\\'s;")
    assert not complete("CREATE VIEW v AS SELECT 'it\\'s'")
    assert complete("CREATE VIEW v AS SELECT 'it\\'s';")


def test_options_have_defaults_and_one_form() -> None:
    assert view("CREATE MATERIALIZED VIEW v AS SELECT 1 AS a").options == {"refresh": "auto", "refresh.interval": "1"}
    given_options = view("CREATE MATERIALIZED VIEW v WITH (Refresh.Interval = '500ms', cluster.by = 'a,b') AS TABLE t")
    assert given_options.options["refresh.interval"] == "0.5" and given_options.options["cluster.by"] == "a, b"
    assert given_options.query.identifiers >= {"t"}
    with pytest.raises(SqlError) as caught:
        parse("CREATE MATERIALIZED VIEW v WITH (refresh.intervall = '1s') AS SELECT 1")
    assert (caught.value.code, caught.value.hint) == ("sql.unknown_option", "Did you mean refresh.interval?")


def test_short_statements_about_views_are_parsed() -> None:
    drop = st.DropView(kind=st.ObjectKind.MATERIALIZED_VIEW, name="v", if_exists=True, cascade=True)
    assert one("DROP MATERIALIZED VIEW IF EXISTS v CASCADE") == drop
    assert one("DROP VIEW v RESTRICT") == st.DropView(kind=st.ObjectKind.VIEW, name="v")
    assert one("ALTER MATERIALIZED VIEW v SET (refresh = full)") == st.AlterView(name="v", options={"refresh": "full"})
    assert one("PAUSE MATERIALIZED VIEW v") == st.ControlView(pause=True, name="v")
    assert one("RESUME MATERIALIZED VIEW v") == st.ControlView(pause=False, name="v")
    assert one("REFRESH MATERIALIZED VIEW v") == st.RefreshView(name="v")
    assert one("FOLD MATERIALIZED VIEW v") == st.Fold(name="v", kind=st.ObjectKind.MATERIALIZED_VIEW)
    assert one('EXPLAIN MATERIALIZED -- it\'s\n VIEW "a b"') == st.ExplainView(name="a b")
    assert one("SHOW MATERIALIZED VIEWS") == st.Show(kind=st.Listing.MATERIALIZED_VIEWS)
    shown = st.ShowCreate(kind=st.ObjectKind.MATERIALIZED_VIEW, name="v")
    assert one("SHOW CREATE MATERIALIZED VIEW v") == shown
    assert one("SHOW CREATE VIEW v") == st.ShowCreate(kind=st.ObjectKind.VIEW, name="v")
    assert one("DESCRIBE MATERIALIZED VIEW v") == one("DESC VIEW v") == st.Describe(name="v")
    assert one("DESCRIBE view") == st.Describe(name="view")


def test_changes_of_a_relation_are_found_with_their_place() -> None:
    text = "SELECT * FROM changes('V', from => 3, to => 9) a JOIN changelog('pg') b JOIN changes(relation => 'w') c"
    (query,) = parse(text)
    assert isinstance(query, st.Query)
    first, log, second = query.calls
    assert isinstance(first, st.ChangesCall) and isinstance(log, st.ChangelogCall)
    assert (first.relation, first.from_epoch, first.to_epoch) == ("V", 3, 9)
    assert isinstance(second, st.ChangesCall) and (second.relation, second.from_epoch) == ("w", None)
    assert query.with_views(("x", "y", "z")) == "SELECT * FROM x a JOIN y b JOIN z c"
    assert {"v", "w"} <= query.identifiers and "changes" not in query.identifiers


def test_a_block_may_hold_views_with_their_tables() -> None:
    from headwater.sql.steps import steps

    text = "BEGIN; CREATE TABLE t FROM CONNECTION c; CREATE MATERIALIZED VIEW v AS SELECT * FROM t; COMMIT;"
    (step,) = steps(parse(text))
    assert step.block and len(step.statements) == 2
    assert parse(step.text)[2] == step.statements[1]


@pytest.mark.parametrize(
    ("given_query", "equal"),
    [
        ("SELECT a,  B FROM t -- why\n WHERE c = 'X'", True),
        ("select `A`, b from T where C = 'X'", True),
        ("SELECT a, b FROM t WHERE c = 'x'", False),
        ("SELECT a, b FROM t WHERE c = 1", False),
        ("SELECT b, a FROM t WHERE c = 'X'", False),
    ],
)
def test_the_same_query_again_is_the_same_definition(given_query: str, equal: bool) -> None:
    for kind in ("VIEW", "MATERIALIZED VIEW"):
        stored = f"CREATE {kind} v AS\nSELECT a, b FROM t WHERE c = 'X'"
        again = one(f"CREATE {kind} V AS {given_query}")
        assert isinstance(again, st.CreateView | st.CreateMaterializedView)
        assert same(stored, again) is equal
    assert not same("CREATE VIEW v AS\nSELECT 1", view("CREATE MATERIALIZED VIEW v AS SELECT 1"))


def test_altered_options_do_not_make_another_definition() -> None:
    altered = view("CREATE MATERIALIZED VIEW v WITH (refresh = 'full') AS SELECT a FROM t")
    assert same("CREATE MATERIALIZED VIEW v AS\nSELECT a FROM t", altered)


name = some.text(some.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8)
word = some.sampled_from(
    [
        "a",
        "as",
        "AS",
        "'it\\'s'",
        '"; \\" as"',
        "`;x``y`",
        "(",
        ")",
        "--c;'\n",
        "/* ; ' */",
        "//;\n",
        "1.5",
        "r'\\'",
        "\n",
    ]
)


@given(name, some.lists(word, max_size=8), some.sampled_from(["auto", "full"]), some.sampled_from(["1", "0.25"]))
def test_a_views_canonical_text_is_read_back(view_name: str, words: list[str], refresh: str, interval: str) -> None:
    options = validate("materialized view", {"refresh": refresh, "refresh.interval": interval, "cluster.by": "a', b"})
    (query,) = parse(" ".join(["SELECT", *words, "x"]))
    assert isinstance(query, st.Query)
    for first in (
        st.CreateMaterializedView(name=view_name, query=query, options=options),
        st.CreateView(name=view_name, query=query),
    ):
        again, last = parse(first.canonical() + "; SHOW TABLES")
        assert again == first and last == st.Show(kind=st.Listing.TABLES)
        assert isinstance(again, st.CreateMaterializedView | st.CreateView)
        assert again.canonical() == first.canonical() and same(first.canonical(), again)
