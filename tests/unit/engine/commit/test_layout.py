"""Which part of a relation a reader may see."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.engine.commit.layout import layout_of
from headwater.model import Column, CoveredSpan, Layout, RelationInfo, Span, SpanInfo, SpanState
from headwater.relation import judge
from support.commits import INT, TEXT, span
from support.relation import relation_of


def relation(ordered: bool = True, **options: str) -> RelationInfo:
    made = relation_of((Column("id", "INT", INT if ordered else TEXT, False),), ("id",), **options)
    return replace(made, base_version=9)


def covered(s: Span, saw: str | None, log_index: int, cover_index: int) -> SpanInfo:
    state = SpanState.COVERED if saw else SpanState.SETTLED
    return SpanInfo(1, 1, s, state, saw, "0/1", log_index, cover_index)


def test_nothing_is_shown_without_a_span_or_while_an_order_is_missing() -> None:
    nothing = Layout(1, 9, (), False)
    assert layout_of(relation(), [], True) == nothing
    parts = [covered(span(None, 5), "a", 1, 2)]
    assert layout_of(relation(ordered=False), parts, False) == nothing
    assert layout_of(relation(), parts, False).spans


def test_neighbours_that_are_read_alike_become_one_and_no_others_do() -> None:
    a, b, c = span(None, 5), span(5, 8), span(9, None)
    same = [covered(a, None, 4, 2), covered(b, None, 4, 3), covered(c, None, 4, 1)]
    assert layout_of(relation(), same, True).spans == (
        CoveredSpan(span(None, 8), 4, 3, (), 1),
        CoveredSpan(c, 4, 1, (), 1),
    )
    later = [same[0], replace(same[1], log_index=5)]
    assert len(layout_of(relation(), later, True).spans) == 2
    other = [covered(a, "x", 4, 2), covered(b, "y", 4, 2)]
    assert [s.saw for s in layout_of(relation(), other, True).spans] == [("x",), ("y",)]
    alike = [covered(a, "x", 4, 2), covered(b, "x", 4, 1)]
    assert layout_of(relation(), alike, True).spans == (CoveredSpan(span(None, 8), 4, 2, ("x",), 1),)


def test_a_span_without_an_end_has_no_neighbour() -> None:
    parts = [covered(span(None, None), None, 4, 2), covered(Span(None, None), None, 4, 2)]
    assert len(layout_of(relation(), parts, True).spans) == 2


def test_where_keys_have_no_order_all_scans_are_asked_from_the_earliest_on() -> None:
    parts = [covered(span(None, 5), "x", 7, 9), covered(span(5, 8), "y", 4, 12), covered(span(8, None), "x", 6, 3)]
    (one,) = layout_of(relation(ordered=False), parts, True).spans
    assert one == CoveredSpan(Span(None, None), 4, 12, ("x", "y"), 1)


@pytest.mark.parametrize(("delivery", "saw"), [("exactly-once", ("x",)), ("at-least-once", ())])
def test_a_settled_span_and_at_least_once_ask_no_scan(delivery: str, saw: tuple[str, ...]) -> None:
    parts = [covered(span(None, 5), "x", 7, 9), covered(span(5, None), None, 7, 9)]
    found = layout_of(relation(delivery=delivery), parts, True)
    assert found.spans[0].saw == saw and found.spans[-1].saw == ()
    assert found.settled is (delivery == "at-least-once")


@pytest.mark.parametrize(
    ("delivery", "log_index", "complete", "settled"),
    [
        ("exactly-once", 3, True, True),
        ("exactly-once", 3, False, False),
        ("at-least-once", 3, True, False),  # the base may hold changes up to its cover
        ("at-least-once", 4, True, True),
        ("at-least-once", 4, False, False),
    ],
)
def test_netted_changes_outlive_a_reader_only_where_the_base_can_hold_none_of_them(
    delivery: str, log_index: int, complete: bool, settled: bool
) -> None:
    layout = Layout(1, 9, (CoveredSpan(span(None, None), log_index, 4),), complete)
    assert judge.settled(relation(delivery=delivery), layout) is settled
