"""What is suggested for a table that the upstream does not have."""

from __future__ import annotations

import pytest

from headwater.source.missing import way_out

KNOWN = [(name, f"public.{name}") for name in ("orders", "order_items", "t9", "ul")]


@pytest.mark.parametrize("pattern", ["*", "order%", "t?"])
def test_a_pattern_is_answered_with_one_statement_for_each_table(pattern: str) -> None:
    assert way_out(pattern, KNOWN) == (
        "Write one CREATE TABLE for each table: a name is not a pattern. "
        "There are public.orders, public.order_items, public.t9, public.ul."
    )
    assert way_out(pattern, [*KNOWN, *KNOWN]).endswith("public.ul, public.orders and 3 more.")
    assert way_out(pattern, []) == "Write one CREATE TABLE for each table: a name is not a pattern."


def test_only_a_name_that_is_alike_is_suggested_whatever_its_schema() -> None:
    assert (
        way_out("order", KNOWN) == "Write TABLE 'public.orders' (or public.order_items), or create the table upstream."
    )
    assert way_out("zz", KNOWN) == "Correct the name after TABLE, or create the table upstream."
    assert way_out("T9", [("t9", "sales.t9")]) == "Write TABLE 'sales.t9', or create the table upstream."
