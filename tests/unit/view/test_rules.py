"""Which rule maintains a view when some of its inputs change."""

from __future__ import annotations

from headwater.view import build
from headwater.view.rules import decide, explain
from headwater.view.tree import Node, Tree
from support.view_trees import call, column, equal, expression, grouped, leaf, names, tree_of

A, B = leaf("a", "k"), leaf("b", "k")
BOTH = frozenset({"a", "b"})
NONE: frozenset[str] = frozenset()


def word(of: Tree | Node, changed: frozenset[str] = BOTH, appended: frozenset[str] = NONE) -> str:
    return decide(of if isinstance(of, Tree) else tree_of(of), changed, appended).word


def test_a_view_whose_inputs_did_not_change_needs_nothing() -> None:
    assert word(A, frozenset({"b"})) == "none"


def test_rows_that_only_came_are_appended() -> None:
    joined = build.inner([A, B], [equal("a_k", "b_k")])
    assert word(joined) == "rows"
    assert word(joined, BOTH, BOTH) == "append"
    assert word(joined, BOTH, frozenset({"a"})) == "rows"
    assert word(joined, frozenset({"a"}), frozenset({"a"})) == "append"


def test_groups_at_the_root_are_adjusted() -> None:
    counted = grouped(A, "a_k", call("x", "count"))
    assert word(counted) == "groups"
    assert word(build.filtered(counted, expression("x > 1", "x"))) == "groups"
    assert word(grouped(A, "", call("x", "sum", "a_k"))) == "groups"


def test_one_call_that_cannot_be_adjusted_makes_its_groups_computed_again() -> None:
    assert word(grouped(A, "a_k", call("x", "count"), call("y", "other", "a_id"))) == "keys"


def test_such_a_call_over_all_rows_is_recomputed_and_named() -> None:
    decision = decide(tree_of(grouped(A, "", call("y", "other", "a_id"))), BOTH, NONE)
    assert (decision.word, decision.reason) == ("full", "other(a_id) over all rows cannot be adjusted")


def test_groups_inside_are_computed_again() -> None:
    inside = grouped(A, "a_k", call("x", "count"))
    assert word(build.inner([inside, B], [equal("x", "b_k")])) == "keys"
    assert word(grouped(inside, "x", call("y", "count"))) == "groups"  # the root's own


def test_an_outer_join_follows_its_left_side_row_by_row() -> None:
    joined = build.joined("left", A, B, [equal("a_k", "b_k")], names())
    assert word(joined, frozenset({"a"})) == "rows"
    assert word(joined, frozenset({"b"})) == "keys"
    full = build.joined("full", A, B, [equal("a_k", "b_k")], names())
    assert word(full, frozenset({"a"})) == "keys"


def test_what_can_touch_any_row_is_recomputed_with_a_reason() -> None:
    limited = build.top(A, (), 3, 0)
    ranked = build.windowed(A, [], [("x", expression("rank()", "a_k"))], set())
    total = grouped(B, "", call("x", "count"))
    compared = build.filtered(build.with_scalar(A, total, "x", "s"), expression("a_k > s", "a_k", "s"))
    crossed = build.inner([A, total], [])
    for node in (limited, ranked, compared, crossed):
        decision = decide(tree_of(node), BOTH, NONE)
        assert decision.word == "full"
        assert decision.reason
    assert word(compared, frozenset({"a"})) == "rows"  # the sub-query's value is what it was
    assert word(crossed, frozenset({"a"})) == "rows"


def test_a_query_without_a_tree_is_recomputed_for_its_reason() -> None:
    of = Tree("select now()", (), tree_of(A).inputs, None, "it is late")
    assert decide(of, BOTH, NONE).reason == "it is late"
    assert explain(of).note == "it is late"


LOOSE = grouped(A, "a_k", call("x", "other", "a_id", exact=False))


def test_values_that_are_not_exact_may_reach_the_output() -> None:
    assert word(LOOSE) == "keys"
    window = build.windowed(A, ["a_k"], [("x", expression("sum(f)", "a_k"))], {"x"})
    decision = decide(tree_of(build.project(window, [("y", expression("x + 1", "x"))])), BOTH, NONE)
    assert (decision.word, decision.from_state) == ("keys", True)


def test_values_that_are_not_exact_may_be_aggregated_again_at_the_root() -> None:
    assert word(grouped(LOOSE, "a_k", call("y", "sum", "x"))) == "keys"  # not adjusted: what went is not known exactly


def test_values_that_are_not_exact_may_not_choose_rows_groups_or_matches() -> None:
    filtered = build.filtered(LOOSE, expression("x > 1", "x"))
    windowed = build.windowed(A, ["a_k"], [("x", expression("sum(f)", "a_k"))], {"x"})
    for node in (
        grouped(LOOSE, "x", call("y", "count")),
        grouped(filtered, "a_k", call("y", "count")),
        grouped(LOOSE, "", call("y", "count")),
        build.inner([LOOSE, B], [equal("x", "b_k")]),
        build.filtered(windowed, expression("x > 1", "x")),
        build.windowed(windowed, ["x"], [("y", column("x"))], set()),
    ):
        assert word(node) == "full"
        assert word(node, frozenset({"b"})) in ("none", "rows")  # what did not change is what it was


def test_exact_columns_of_a_window_may_choose_rows() -> None:
    made = [("x", expression("sum(f)", "a_k")), ("y", expression("row_number()", "a_k"))]
    window = build.windowed(A, ["a_k"], made, {"x"})
    assert word(build.filtered(window, expression("y = 1", "y"))) == "keys"


def test_every_operator_is_explained() -> None:
    root = build.filtered(grouped(A, "a_k", call("x", "count")), expression("x > 1", "x"))
    rule = explain(tree_of(root, "a_k", "x"))
    assert (rule.operator, rule.word, rule.key) == ("filter", "rows", ("a_k",))
    (below,) = rule.below
    assert (below.operator, below.word) == ("aggregate", "groups")
    (lowest,) = below.below
    assert (lowest.operator, lowest.key) == ("input a", ("a.id",))
