"""Which names of upstream columns the lake can store."""

from __future__ import annotations

import re

UNSTORABLE = re.compile(r"[ ,;{}()\n\t=]")  # what Delta refuses in a column name
OURS = frozenset({"__index", "__txn", "__op", "__missing", "__old", "__from"})


def is_storable(name: str) -> bool:
    """Whether a base can have a column of this name."""
    return not UNSTORABLE.search(name) and name.lower() not in OURS
