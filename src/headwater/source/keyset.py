"""Spans and order of a key in an upstream's SQL, as far as all databases share the syntax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from headwater.model import Bound, Span


class Quoted(Protocol):
    """A key column that knows how its table's SQL names it."""

    @property
    def quoted(self) -> str: ...


def condition(span: Span, compare: Callable[[str, Bound], str]) -> str:
    """The span as a WHERE condition; `compare` compares the key with a bound, using an operator."""
    parts = []
    if span.lo is not None:
        parts.append(compare(">" if span.lo.after else ">=", span.lo))
    if span.hi is not None:
        parts.append(compare("<=" if span.hi.after else "<", span.hi))
    return " AND ".join(parts) or "true"


def order(key: Sequence[Quoted], *, descending: bool = False) -> str:
    """The key as an ORDER BY list."""
    return ", ".join(k.quoted + (" DESC" if descending else "") for k in key)
