"""The hint for a table that the upstream does not have."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

PATTERN = frozenset("*%?")
SHOWN = 5


def way_out(wanted: str, known: Sequence[tuple[str, str]]) -> str:
    """What to write instead of `wanted`; `known` are the upstream's tables: bare names, and names for TABLE.

    Only bare names are compared: a shared schema would make all tables look alike.
    """
    written = [text for _, text in known]
    if PATTERN & set(wanted):
        more = f" and {len(written) - SHOWN:,} more" if len(written) > SHOWN else ""
        there = f" There are {', '.join(written[:SHOWN])}{more}." if written else ""
        return f"Write one CREATE TABLE for each table: a name is not a pattern.{there}"
    names = {name.lower() for name, _ in known}
    near = difflib.get_close_matches(wanted.lower(), sorted(names), n=3, cutoff=0.6)
    found = [text for n in dict.fromkeys((wanted.lower(), *near)) for name, text in known if name.lower() == n][:3]
    if not found:
        return "Correct the name after TABLE, or create the table upstream."
    others = f" (or {', '.join(found[1:])})" if len(found) > 1 else ""
    return f"Write TABLE '{found[0]}'{others}, or create the table upstream."
