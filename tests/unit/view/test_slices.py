"""How the fill of a view can be cut."""

from __future__ import annotations

from headwater.view import build
from headwater.view.slices import Slices, slices
from headwater.view.tree import Attribute, Tree
from support.view_trees import call, equal, expression, grouped, leaf, names, tree_of

A, B = leaf("a", "k"), leaf("b", "k")


def test_rows_are_cut_by_the_key_of_an_input_that_makes_its_own_rows() -> None:
    assert slices(tree_of(A)) == Slices("spans", ("a",))
    assert slices(tree_of(build.inner([A, B], [equal("a_k", "b_k")]))) == Slices("spans", ("a", "b"))
    left = build.joined("left", A, B, [equal("a_k", "b_k")], names())
    assert slices(tree_of(left)) == Slices("spans", ("a",))


def test_no_side_of_a_full_join_can_be_cut() -> None:
    """A slice of one side would show the other side's rows as rows without a match."""
    full = build.joined("full", A, B, [equal("a_k", "b_k")], names())
    assert slices(tree_of(full)).kind == "hash"


def test_an_input_that_is_read_twice_cannot_be_cut() -> None:
    again = leaf("a", "k")
    assert slices(tree_of(build.inner([A, again], []))).kind == "hash"


def test_groups_that_can_be_added_up_are_cut_below() -> None:
    assert slices(tree_of(grouped(A, "a_k", call("x", "count")), "a_k", "x")) == Slices("merge", ("a",))
    assert slices(tree_of(grouped(A, "", call("x", "count")), "x")) == Slices("merge", ("a",))


def test_what_is_keyed_is_cut_by_the_hash_of_its_key() -> None:
    assert slices(tree_of(grouped(A, "a_k", call("x", "other", "a_id")), "a_k", "x")) == Slices("hash")
    outputs = [Attribute("o", "INT", True)]
    both = build.union([A, B], outputs, [["a_k"], ["b_k"]], names())
    assert slices(tree_of(both, "o")) == Slices("hash")


def test_a_single_row_or_an_unknown_query_is_one_slice() -> None:
    assert slices(tree_of(grouped(A, "", call("x", "other", "a_id")), "x")) == Slices("one")
    assert slices(Tree("", (), {}, None, "why")) == Slices("one")


def test_a_scalar_sub_query_is_read_whole() -> None:
    total = grouped(B, "", call("x", "count"))
    root = build.filtered(build.with_scalar(A, total, "x", "s"), expression("a_k > s", "a_k", "s"))
    assert slices(tree_of(root, "a_k")) == Slices("spans", ("a",))


def test_what_is_keyed_by_a_value_that_is_not_exact_is_one_slice() -> None:
    sums = grouped(A, "a_k", call("x", "other", "a_id", exact=False))
    assert slices(tree_of(grouped(sums, "x", call("y", "other", "a_k")), "x", "y")) == Slices("one")
    assert slices(tree_of(sums, "a_k", "x")) == Slices("hash")


def test_what_is_keyed_by_a_map_is_one_slice() -> None:
    """Spark has no hash of a map."""
    of = leaf("a", "m", kind="MAP<STRING,INT>")
    assert slices(tree_of(grouped(of, "a_m", call("x", "other", "a_id")), "a_m", "x")) == Slices("one")
