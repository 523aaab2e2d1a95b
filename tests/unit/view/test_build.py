"""What identifies the rows of each operator."""

from __future__ import annotations

import pytest

from headwater.view import build, tree
from headwater.view.tree import Attribute
from support.view_trees import call, column, equal, expression, grouped, leaf, names

A, B, C = leaf("a", "k"), leaf("b", "k"), leaf("c", "k")


def test_projections_filters_and_windows_keep_the_key_of_their_child() -> None:
    assert build.project(A, [("x", expression("a_k + 1", "a_k"))]).key == ("a_id",)
    assert build.filtered(A, expression("a_k > 1", "a_k")).key == ("a_id",)
    assert build.windowed(A, ["a_k"], [("x", expression("rank()", "a_k"))], set()).key == ("a_id",)
    assert build.top(A, (), 3, 0).key == ("a_id",)


def test_an_inner_join_has_the_keys_of_all_inputs() -> None:
    assert build.inner([A, B], [equal("a_k", "b_k")]).key == ("a_id", "b_id")


def test_an_input_whose_key_the_others_determine_adds_nothing() -> None:
    assert build.inner([A, B], [equal("a_k", "b_id")]).key == ("a_id",)
    chain = [equal("a_k", "b_id"), equal("b_k", "c_id")]
    assert build.inner([A, B, C], chain).key == ("a_id",)
    assert build.inner([A, B], [equal("a_id", "b_id")]).key == ("a_id",)  # one of both stays


def test_inputs_that_determine_each_other_keep_one_key() -> None:
    assert build.inner([A, B], [equal("a_id", "b_k"), equal("a_k", "b_id")]).key == ("a_id",)


def test_a_key_that_is_equal_by_collation_only_determines_nothing() -> None:
    loose = leaf("b", "k", kind="STRING COLLATE UTF8_LCASE")
    assert build.inner([A, loose], [equal("a_k", "b_id")]).key == ("a_id", "b_id")


def test_inner_joins_of_inner_joins_are_one() -> None:
    node = build.inner([build.inner([A, B], [equal("a_k", "b_k")]), C], [equal("b_k", "c_k")])
    assert isinstance(node, tree.Inner)
    assert node.inputs == (A, B, C)
    assert len(node.conditions) == 2


def test_a_left_join_is_identified_by_both_sides_unless_there_is_one_match_at_most() -> None:
    assert build.joined("left", A, B, [equal("a_k", "b_k")], names()).key == ("a_id", "b_id")
    assert build.joined("left", A, B, [equal("a_k", "b_id")], names()).key == ("a_id",)


def test_the_padded_side_of_an_outer_join_is_nullable() -> None:
    left = build.joined("left", A, B, [equal("a_k", "b_k")], names())
    assert not build.attribute(left, "a_id").nullable
    assert build.attribute(left, "b_id").nullable
    full = build.joined("full", A, B, [equal("a_k", "b_k")], names())
    assert build.attribute(full, "a_id").nullable


def test_rows_of_a_full_join_whose_keys_may_all_be_null_say_where_they_come_from() -> None:
    """A row of either side with a NULL key and without a match would have the same key."""
    one, two = grouped(A, "a_k", call("x", "count")), grouped(B, "b_k", call("y", "count"))
    assert build.joined("full", one, two, [equal("a_k", "b_k")], names()).key == ("n0", "a_k", "b_k")
    assert build.joined("full", A, B, [equal("a_k", "b_k")], names()).key == ("a_id", "b_id")


@pytest.mark.parametrize("kind", ["semi", "anti", "existence"])
def test_joins_that_only_test_keep_the_left_key(kind: tree.JoinKind) -> None:
    assert build.joined(kind, A, B, [equal("a_k", "b_k")], names()).key == ("a_id",)


def test_an_aggregate_is_identified_by_its_groups() -> None:
    assert grouped(A, "a_k", call("x", "count")).key == ("a_k",)
    assert grouped(A, "", call("x", "count")).key == ()


def test_keys_of_a_unions_branches_share_columns_of_the_same_type() -> None:
    text = leaf("c", "k", kind="STRING")
    outputs = [Attribute("o", "INT", True)]
    node = build.union([A, B, text], outputs, [["a_k"], ["b_k"], ["c_k"]], names())
    assert isinstance(node, tree.Union)
    assert node.key == ("n2", "n0", "n1")
    assert node.arms == (("a_k", "a_id", None), ("b_k", "b_id", None), ("c_k", None, "c_id"))


def test_expanded_and_generated_rows_have_a_number_each() -> None:
    arms = [[column("a_k")], [expression("null")]]
    assert build.expanded(A, [Attribute("o", "INT", True)], arms, names()).key == ("n0", "a_id")
    place = Attribute("p", "INT", False)
    made = [Attribute("e", "INT", True)]
    assert build.generated(A, "array", [column("a_k")], made, place, False).key == ("a_id", "p")
    assert build.generated(A, "tuple", [column("a_k")], made, None, False).key == ("a_id",)
