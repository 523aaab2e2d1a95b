"""A table's filter: read strictly, and judged by the upstream as a naive model judges it."""

from __future__ import annotations

import datetime
import random
from typing import Any

import pytest

from headwater.backfill.filter import columns_of, read_filter
from headwater.errors import DefinitionError
from headwater.model import Test
from headwater.source.postgres.scan.filter import filter_text
from support.filters import COLUMNS, MAKERS, judge, random_condition, random_rows


def test_a_filter_is_read_into_conditions() -> None:
    condition = read_filter("i BETWEEN 1 AND 3 AND (s NOT IN ('a', 'it''s') OR 5 < \"Odd Name\") AND b", COLUMNS)
    assert columns_of(condition) == {"i", "s", "Odd Name", "b"}
    assert filter_text(condition) == (
        """(((("i" >= 1) AND ("i" <= 3)) AND ((NOT ("s" IN ('a', 'it''s'))) OR ("Odd Name" > 5))) AND ("b" = TRUE))"""
    )
    assert read_filter("z >= '2026-01-01 02:00:00+02'", COLUMNS) == Test(
        "z", ">=", (datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),)
    )
    assert read_filter("u = 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'", COLUMNS) == Test(
        "u", "=", ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",)
    )


@pytest.mark.parametrize(
    "text",
    [
        *("", "i", "i = ", "i = 1; DROP TABLE x", "lower(s) = 'a'", "i = n", "nothing = 1", "i IN (SELECT 1)"),
        *("s < 'a'", "c = 'a'", "f > 1", "n IS NULL", "d IS NULL", "i = 'x'", "i = 1.5", "d = 'yesterday'"),
        *("z = '2026-01-01'", "t = '2026-01-01 00:00:00+00'", "s LIKE 'a%'", "s = 1", "EXISTS (SELECT 1)", "b = 1"),
        *("i = random()", "i = NULL", "u = 'x'", "t.i = 1", "i + 1 = 2", "1 = 1", "i IS TRUE"),
    ],
)
def test_what_is_not_surely_judged_alike_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError) as e:
        read_filter(text, COLUMNS)
    assert e.value.code == "table.filter" and e.value.hint


def test_upstream_and_naive_model_judge_a_filter_alike(database: Any) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    r = random.Random(seed)
    database.execute(
        "CREATE TABLE f (k int PRIMARY KEY, i int, n numeric(10,2), b bool, s text, d date, z timestamptz, "
        '"Odd Name" int8)'
    )
    table = random_rows(r, 300)
    with database.connect() as c, c.cursor() as cursor:
        cursor.executemany("INSERT INTO f VALUES (%s, %s, %s, %s, %s, %s, %s, %s)", table)
        for _ in range(120):
            condition = random_condition(r, 3)
            found = {k for (k,) in cursor.execute(f"SELECT k FROM f WHERE {filter_text(condition)}").fetchall()}
            expected = {row[0] for row in table if judge(condition, dict(zip(MAKERS, row[1:], strict=True))) is True}
            assert found == expected, (seed, filter_text(condition))
