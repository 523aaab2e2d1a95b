"""Which names of upstream columns the lake can store, and those that it keeps for itself."""

from __future__ import annotations

import re

UNSTORABLE = re.compile(r"[ ,;{}()\n\t=]")  # what Delta refuses in a column name

# The columns that stand beside a table's own
INDEX, TXN, OP = "__index", "__txn", "__op"  # of a change, and of the row that it made
MISSING = "__missing"  # ordinals of the columns whose values the log did not carry
OLD = "__old"  # changes: the key before an update changed it
FROM = "__from"  # overlays: the key of the base row that holds the missing columns
OURS = frozenset({INDEX, TXN, OP, MISSING, OLD, FROM})


def is_storable(name: str) -> bool:
    """Whether a base can have a column of this name."""
    return not UNSTORABLE.search(name) and name.lower() not in OURS
