"""What all value kernels share: the types they take, the marks they leave per value.

A kernel gets `buffer` (read-only bytes), `starts` and `lengths` (negative = no value) and writes one mark per value.
It returns the index of the first text that is invalid for its type, or -1.
"""

from __future__ import annotations

from numba import types

# marks
NULL = 0  # no value
KEPT = 1  # the value is in the output
UNREPRESENTABLE = 2  # there is a value, but the lake type cannot represent it exactly

OK = -1  # a kernel's return value when every text was valid

BYTES = types.Array(types.uint8, 1, "C", readonly=True)
OFFSETS = types.Array(types.int32, 1, "C", readonly=True)
PLACES = types.Array(types.int64, 1, "C", readonly=True)
MARKS = types.uint8[::1]
