"""Key ranges in words: the part of a table they cover. Pure."""

from __future__ import annotations

from headwater.model import Bound, Span


def condition(key: tuple[str, ...], span: Span) -> str:
    """The keys of a span as a condition: `100 < id ≤ 200`, `(a, b) > (1, x)`, `all keys`."""
    name = _tuple(key)
    if span.lo is None and span.hi is None:
        return "all keys"
    if span.lo is None:
        assert span.hi is not None
        return f"{name} {'≤' if span.hi.after else '<'} {_tuple(span.hi.key)}"
    if span.hi is None:
        return f"{name} {'>' if span.lo.after else '≥'} {_tuple(span.lo.key)}"
    return f"{_low(span.lo)} {name} {'≤' if span.hi.after else '<'} {_tuple(span.hi.key)}"


def _low(lo: Bound) -> str:
    return f"{_tuple(lo.key)} {'<' if lo.after else '≤'}"


def _tuple(parts: tuple[str, ...]) -> str:
    return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"
