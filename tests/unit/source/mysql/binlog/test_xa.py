"""Statements about prepared transactions, as people and frameworks write them."""

from __future__ import annotations

import pytest

from headwater.source.mysql.binlog.xa import ends_prepared


@pytest.mark.parametrize(
    "text",
    [
        "XA COMMIT 'a'",
        "xa  commit 'a'",
        "XA ROLLBACK 'a', 'b', 3",
        "/* app */ XA COMMIT 'a'",
        "/* app */\n-- by somebody\n# and more\n\tXA\n/* which */ COMMIT/**/'a'",
        "/*! XA COMMIT 'a' */",
        "/*!50000 XA */ COMMIT 'a'",
        "/*M!100500 XA COMMIT 'a' */",
        "/* a comment that is cut off before its end",
    ],
)
def test_a_statement_that_may_end_a_prepared_transaction_is_known(text: str) -> None:
    assert ends_prepared(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "COMMIT",
        "XA PREPARE 'a'",
        "XA RECOVER",
        "SELECT 'XA COMMIT'",
        "/* XA COMMIT */ SELECT 1",
        "-- XA COMMIT\nSELECT 1",
        "INSERT INTO xa VALUES ('commit')",
        "XACOMMIT 'a'",
    ],
)
def test_other_statements_do_not_end_a_prepared_transaction(text: str) -> None:
    assert not ends_prepared(text)
