"""Spark's refusals in our words, with the place; the texts are Spark's own."""

from __future__ import annotations

import pytest

from headwater.errors import SqlError
from headwater.sql.parse import parse
from headwater.sql.refusal import refusal
from headwater.sql.statements import Query


def query(text: str) -> Query:
    statement = parse(text)[-1]
    assert isinstance(statement, Query)
    return statement


def test_a_syntax_error_shows_its_place() -> None:
    q = query("SHOW TABLES;\nSELECT *\nFROM t\nWHERE (id = 1")
    said = (
        "\n[PARSE_SYNTAX_ERROR] Syntax error at or near end of input. SQLSTATE: 42601 (line 3, pos 13)\n\n== SQL ==\n…"
    )
    e = refusal(Exception(said), q)
    assert isinstance(e, SqlError)
    assert (e.code, e.line, e.column, e.text) == ("sql.query", 4, 14, "WHERE (id = 1")
    assert e.message == "line 4, column 14: Syntax error at or near end of input."


def test_a_name_in_double_quotes_gets_backticks_as_the_hint() -> None:
    said = (
        "\n[PARSE_SYNTAX_ERROR] Syntax error at or near '\"Group\"'. SQLSTATE: 42601 (line 1, pos 14)\n\n== SQL ==\n…"
    )
    e = refusal(Exception(said), query('SELECT * FROM "Group"'))
    assert e.code == "sql.query" and "`backticks`" in e.hint


def test_a_wrong_column_is_reported_without_the_plan() -> None:
    said = (
        "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `x` "
        "cannot be resolved. Did you mean one of the following? [`id`]. SQLSTATE: 42703; line 1 pos 15;\n"
        "'Project ['x]\n+- Range (0, 3)\n"
    )
    e = refusal(Exception(said), query("SELECT x FROM t"), prefix="EXPLAIN ")
    assert isinstance(e, SqlError) and e.column == 8
    assert e.message.endswith("name `x` cannot be resolved. Did you mean one of the following? [`id`].")


def test_an_error_while_it_runs_is_reported_without_sparks_settings() -> None:
    said = (
        "[DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL instead. "
        'If necessary set "spark.sql.ansi.enabled" to "false" to bypass this error. SQLSTATE: 22012\n'
        "== SQL (line 1, position 8) ==\nSELECT 1/0\n       ^^^\n"
    )
    e = refusal(Exception(said), query("SELECT 1/0"))
    assert isinstance(e, SqlError) and (e.line, e.column) == (1, 8)
    assert e.message == (
        "line 1, column 8: Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL instead."
    )


def test_a_spark_that_was_ended_by_its_cluster_is_no_fault_of_the_query() -> None:
    said = "[NO_ACTIVE_OR_DEFAULT_SESSION] No active or default Spark session found. SQLSTATE: XXKCM"
    e = refusal(Exception(said), query("SELECT 1"))
    assert (e.code, e.exit_status) == ("spark.failed", 3)


def test_an_unknown_table_is_an_unknown_name() -> None:
    said = "[TABLE_OR_VIEW_NOT_FOUND] The table or view `a`.`nothing` cannot be found. Verify …\nSearch path: […]."
    e = refusal(Exception(said), query("SELECT * FROM a.nothing"))
    assert (e.code, e.message, e.exit_status) == ("name.unknown", "there is no table a.nothing", 2)
    assert e.hint == "SHOW TABLES lists all of them."


def test_an_unknown_table_is_reported_with_the_nearest_name() -> None:
    said = "[TABLE_OR_VIEW_NOT_FOUND] The table or view `custmers` cannot be found. Verify …\nSearch path: […]."
    e = refusal(Exception(said), query("SELECT * FROM custmers"), "", ["orders", "Customers"])
    assert (e.message, e.hint) == ("there is no table custmers", "Did you mean customers?")


@pytest.mark.parametrize(
    "said",
    [
        "An error occurred.\nCaused by: java.io.FileNotFoundException: File /x.parquet does not exist\n\tat a.b(c)",
        "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file x. SQLSTATE: KD001",
    ],
)
def test_a_missing_file_is_a_damaged_base(said: str) -> None:
    assert refusal(Exception(said), query("SELECT 1")).code == "data.base_damaged"


def test_a_coded_cause_inside_a_stack_is_found_and_the_stack_is_not_shown() -> None:
    said = (
        "An error occurred while calling o1.x.\n: org.apache.spark.SparkException: Job aborted\n\tat a.b(c)\n"
        "Caused by: org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] no way SQLSTATE: P0001\n\tat a.b(c)"
    )
    e = refusal(Exception(said), query("SELECT 1"))
    assert (e.code, e.message) == ("sql.query", "no way")


def test_anything_else_is_sparks_failure_with_its_cause() -> None:
    said = "An error.\n: a.B: Job aborted\n\tat a.b(c)\nCaused by: java.lang.OutOfMemoryError: Java heap space\n\tat x"
    e = refusal(Exception(said), query("SELECT 1"))
    assert (e.code, e.exit_status) == ("spark.failed", 3)
    assert e.message == "Spark failed to run the query: Java heap space"


def test_an_error_that_spark_has_no_words_for_is_reported_by_its_name() -> None:
    said = (
        "An error occurred while calling o93.sql.\n: org.apache.spark.SparkException: [INTERNAL_ERROR] "
        "Cannot find main error class 'COLUMN_IS_NOT_VARIANT_TYPE' SQLSTATE: XX000\n\tat a.b(c)"
    )
    e = refusal(Exception(said), query("SELECT props:a FROM t"))
    assert (e.code, e.message) == ("sql.query", "column is not variant type")
    assert "parse_json(column):path" in e.hint
    e = refusal(Exception(said.replace("COLUMN_IS_NOT_VARIANT_TYPE", "NOTHING_KNOWN")), query("SELECT 1"))
    assert (e.code, e.message) == ("sql.query", "nothing known") and e.hint


def test_no_place_is_guessed_behind_a_changelog_call() -> None:
    said = "[PARSE_SYNTAX_ERROR] Syntax error at or near 'x'. SQLSTATE: 42601 (line 1, pos 40)"
    e = refusal(Exception(said), query("SELECT * FROM changelog('c') WHERE x x"))
    assert isinstance(e, SqlError) and e.line == 0
