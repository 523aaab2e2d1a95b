"""Which upstream column names the lake can store, and those it reserves."""

from __future__ import annotations

import re

UNSTORABLE = re.compile(r"[ ,;{}()\n\t=]")  # characters that Delta does not allow in a column name

_SHOWN = {
    " ": "a space",
    "\n": "a line break",
    "\t": "a tab",
    **dict.fromkeys("()", "a parenthesis"),
    **dict.fromkeys("{}", "a brace"),
}

# The columns added to a table's own
INDEX, TXN, OP = "__index", "__txn", "__op"  # of a change, and of the row it produced
MISSING = "__missing"  # ordinals of the columns whose values were missing from the log
OLD = "__old"  # changes: the key before an update changed it
BEFORE = "__before"  # changes: the whole row before an update or a delete
FROM = "__from"  # overlays: the key of the base row that holds the missing columns
OURS = frozenset({INDEX, TXN, OP, MISSING, OLD, BEFORE, FROM})
# The columns that joins, sorts and comparisons add for themselves
ORDER = "__order"  # reads: the order of layers
NETTED = "__netted"  # netting: which row counts
HASH = "__hash"  # comparisons: a row's digest
# with a column's ordinal: the other side of a join
FROM_BASE, FROM_KEYS, FROM_LAYER = "__base", "__keys", "__layer"
_TEMPORARY = re.compile(f"{ORDER}|{NETTED}|{HASH}|(?:{FROM_BASE}|{FROM_KEYS}|{FROM_LAYER})\\d+")


def is_storable(name: str) -> bool:
    """Whether a base can have a column of this name."""
    lower = name.lower()
    return not UNSTORABLE.search(name) and lower not in OURS and not _TEMPORARY.fullmatch(lower)


def why_unstorable(name: str) -> str:
    """Which character a base's column name cannot have, as the end of a sentence; empty: it has none."""
    found = UNSTORABLE.search(name)
    return f" (it contains {_SHOWN.get(found[0], found[0])})" if found else ""
