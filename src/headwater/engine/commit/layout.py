"""Which part of a relation a reader may see: spans in, layout out. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headwater.meta import changes as changes_of
from headwater.model import CoveredSpan, Delivery, Layout, RelationInfo, Span, SpanInfo, SpanState


def layout_of(relation: RelationInfo, covered: Sequence[SpanInfo], complete: bool) -> Layout:
    """The layout of the relation's covered (and settled) spans; without spans while nothing is readable.

    `complete`: they are the whole table.
    """
    if not covered or (not relation.ordered and not complete):
        return Layout(relation.id, relation.base_version, (), False, relation.schema_version)
    if relation.ordered:
        parts = _neighbours_joined([_covered(relation, s) for s in covered])
    else:
        parts = [_whole(relation, covered)]
    return Layout(relation.id, relation.base_version, tuple(parts), complete, relation.schema_version)


def _covered(relation: RelationInfo, s: SpanInfo) -> CoveredSpan:
    assert s.log_index is not None and s.cover_index is not None
    checked = s.state is SpanState.COVERED and relation.delivery is Delivery.EXACTLY_ONCE
    saw = (s.saw,) if checked and s.saw else ()
    return CoveredSpan(s.span, s.log_index, s.cover_index, saw, changes_of.connection_of(relation))


def _whole(relation: RelationInfo, covered: Sequence[SpanInfo]) -> CoveredSpan:
    """One span over all keys, for keys that only the database can order: the rule checks all its scans together.

    A settled part would make "unseen by at least one" true for every change. But all parts settle at once, in the
    first fold after the last span is covered, so settled and unsettled parts never mix.
    """
    parts = [_covered(relation, s) for s in covered]
    return CoveredSpan(
        Span(None, None),
        min(p.log_index for p in parts),
        max(p.cover_index for p in parts),
        tuple(dict.fromkeys(x for p in parts for x in p.saw)),
        changes_of.connection_of(relation),
    )


def _neighbours_joined(parts: list[CoveredSpan]) -> list[CoveredSpan]:
    """Joins adjacent spans that are read the same way, so that layouts stay small."""
    joined: list[CoveredSpan] = []
    for part in parts:
        before = joined[-1] if joined else None
        if (
            before is not None
            and before.span.meets(part.span)
            and (before.log_index, before.saw, before.connection_id) == (part.log_index, part.saw, part.connection_id)
        ):
            span, cover_index = Span(before.span.lo, part.span.hi), max(before.cover_index, part.cover_index)
            joined[-1] = replace(part, span=span, cover_index=cover_index)
        else:
            joined.append(part)
    return joined
