"""The layout of the arrays that kernels and framing share: the walk's state, and what it knows about tables."""

from __future__ import annotations

from typing import Any

import numpy as np

Ints = np.ndarray[Any, np.dtype[np.int32]]

# why `walk` stopped
DONE, LOOK, FULL, SOURCE_UNKNOWN, DAMAGED = 0, 1, 2, 3, 4

# the walk's state: next message and its place; rows, index, transactions; position; the open group; runs of GTIDs
MESSAGE, AT, ROW, NEXT, KEPT, POSITION, GROUP, TXN, FIRST, TIME, SOURCE, GNO, RUNS, ASIDE = range(14)
STATE_LENGTH = 14

# what is known about a table's description, by ordinal
MAP_START, MAP_LENGTH, COLUMN, COLUMNS, STEP, STEPS, TABLE, FOLLOWED, DESCRIBED = range(9)
SLOT_LENGTH = 9
SOURCE_BYTES = 56  # a source's length, then a uuid and a tag of up to 32 characters, or MariaDB's domain and server
