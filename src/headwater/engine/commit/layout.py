"""Which part of a relation a reader may see: spans in, layout out. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.model import CoveredSpan, Delivery, Layout, RelationInfo, Span, SpanInfo, SpanState


def layout_of(relation: RelationInfo, covered: Sequence[SpanInfo], complete: bool) -> Layout:
    """The layout that the relation's covered (and settled) spans allow now; without any while nothing may be read.

    `complete`: they are the whole table.
    """
    if not covered or (not relation.ordered and not complete):
        return Layout(relation.id, relation.base_version, (), False)
    if relation.ordered:
        parts = _neighbours_joined([_covered(relation, s) for s in covered])
    else:
        parts = [_whole(relation, covered)]
    return Layout(relation.id, relation.base_version, tuple(parts), complete)


def _covered(relation: RelationInfo, s: SpanInfo) -> CoveredSpan:
    assert s.log_index is not None and s.cover_index is not None
    checked = s.state is SpanState.COVERED and relation.delivery is Delivery.EXACTLY_ONCE
    return CoveredSpan(s.span, s.log_index, s.cover_index, (s.saw,) if checked and s.saw else ())


def _whole(relation: RelationInfo, covered: Sequence[SpanInfo]) -> CoveredSpan:
    """One span over all keys, for keys that only the database can order: its scans are asked together.

    A settled part would make "unseen by at least one" true for every change; settling happens to all parts at once,
    by the first fold after the last span is covered, so the two never mix.
    """
    parts = [_covered(relation, s) for s in covered]
    return CoveredSpan(
        Span(None, None),
        min(p.log_index for p in parts),
        max(p.cover_index for p in parts),
        tuple(dict.fromkeys(x for p in parts for x in p.saw)),
    )


def _neighbours_joined(parts: list[CoveredSpan]) -> list[CoveredSpan]:
    """Neighbours that are read alike become one, so that layouts stay small."""
    joined: list[CoveredSpan] = []
    for part in parts:
        before = joined[-1] if joined else None
        if (
            before is not None
            and before.span.hi is not None
            and before.span.hi == part.span.lo
            and (before.log_index, before.saw) == (part.log_index, part.saw)
        ):
            span = Span(before.span.lo, part.span.hi)
            joined[-1] = CoveredSpan(span, part.log_index, max(before.cover_index, part.cover_index), part.saw)
        else:
            joined.append(part)
    return joined
