"""What a view stores next to what it shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.view import build
from headwater.view.shape import shape, total_type
from headwater.view.tree import Call, CallKind, Order, Tree
from support.view_trees import call, column, equal, expression, grouped, leaf, tree_of

A, B = leaf("a", "k"), leaf("b", "k")


def stored(of: Tree) -> list[str]:
    return [c.name for c in shape(of).columns]


def test_a_key_that_is_shown_is_not_stored_twice() -> None:
    assert stored(tree_of(A, "a_id", "a_k")) == ["a_id", "a_k"]
    assert stored(tree_of(A, "a_k")) == ["a_k", "__k0"]
    both = tree_of(build.inner([A, B], [equal("a_k", "b_k")]), "a_k", "b_id")
    assert stored(both) == ["a_k", "b_id", "__k0"]
    assert shape(both).key == ("__k0", "b_id")


def test_a_single_row_has_a_constant_key() -> None:
    view = shape(tree_of(grouped(A, "", call("x", "count")), "x"))
    assert view.key == ("__k0",)
    assert [c.name for c in view.columns] == ["x", "__k0", "__n"]


def test_counters_are_stored_where_groups_can_be_adjusted() -> None:
    calls = (call("x", "count"), call("y", "sum", "a_k"), call("z", "count", "a_k"))
    assert stored(tree_of(grouped(A, "a_k", *calls), "x")) == ["x", "__k0", "__n", "__s0", "__c0", "__c1"]
    sure = Call("y", "sum", expression("sum(a_id)", "a_id"), column("a_id", nullable=False))
    assert stored(tree_of(grouped(A, "a_k", sure), "a_k")) == ["a_k", "__n", "__s0"]  # every row has a value
    other = call("y", "other", "a_id")
    assert stored(tree_of(grouped(A, "a_k", other), "a_k", "y")) == ["a_k", "y"]


def test_groups_that_having_excludes_are_stored_and_not_shown() -> None:
    root = build.filtered(grouped(A, "a_k", call("x", "count")), expression("x > 1", "x"))
    view = shape(tree_of(root, "a_k", "x"))
    assert view.shown
    assert [c.name for c in view.columns] == ["a_k", "x", "__n", "__shown"]
    other = build.filtered(grouped(A, "a_k", call("x", "other", "a_id")), expression("x > 1", "x"))
    assert not shape(tree_of(other, "a_k", "x")).shown  # computed again, so nothing needs to be kept


def test_what_orders_rows_is_stored() -> None:
    of = replace(tree_of(A, "a_id"), order=(Order("a_k", False, False), Order("a_id", True, True)), limit=3)
    view = shape(of)
    assert [c.name for c in view.columns] == ["a_id", "__o0"]
    assert [o.name for o in view.order] == ["__o0", "a_id"]
    assert view.limit == 3


def test_a_query_without_a_tree_is_identified_by_its_content_and_a_number() -> None:
    of = Tree("", tree_of(A, "a_k").visible, tree_of(A).inputs, None, "why")
    assert stored(of) == ["a_k", "__k0", "__k1"]
    assert shape(of).key == ("__k0", "__k1")
    assert shape(of).reason == "why"


def test_an_input_counts_with_its_key_and_the_columns_that_are_used() -> None:
    wide = leaf("a", "k", "unused")
    assert shape(tree_of(wide, "a_k")).inputs == {"a": ("id", "k")}


@pytest.mark.parametrize(
    ("kind", "of", "wanted"),
    [
        ("sum", "INT", "BIGINT"),
        ("sum", "BIGINT", "BIGINT"),
        ("avg", "INT", "BIGINT"),
        ("avg", "BIGINT", "DECIMAL(38,0)"),
        ("sum", "DECIMAL(12,2)", "DECIMAL(22,2)"),
        ("sum", "DECIMAL(35,4)", "DECIMAL(38,4)"),
        ("all", "BOOLEAN", "BIGINT"),
    ],
)
def test_totals_are_as_wide_as_sparks_own(kind: CallKind, of: str, wanted: str) -> None:
    assert total_type(call("x", kind, "a_k", of=of)) == wanted
