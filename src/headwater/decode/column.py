"""A decoded column, and how to make one from a kernel's output."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headwater.decode.kernels import KEPT, OK, UNREPRESENTABLE
from headwater.errors import DataError

NO_VALUE = -1  # the length of a NULL in a grid of places
MISSING_VALUE = -2  # of a value missing from the log


class Decoded(NamedTuple):
    """A column. `unrepresentable` values became NULL; `bad` (or None) says which."""

    array: pa.Array
    unrepresentable: int
    bad: np.ndarray[Any, np.dtype[np.bool_]] | None


def column(type_: pa.DataType, marks: Any, *buffers: Any, children: list[pa.Array] | None = None) -> Decoded:
    """An array from its buffers and a kernel's marks."""
    kept = marks == KEPT
    unrepresentable = int(np.count_nonzero(marks == UNREPRESENTABLE))
    validity = None if kept.all() else pa.py_buffer(np.packbits(kept, bitorder="little"))
    array = pa.Array.from_buffers(type_, marks.size, [validity, *(pa.py_buffer(b) for b in buffers)], children=children)
    return Decoded(array, unrepresentable, marks == UNREPRESENTABLE if unrepresentable else None)


def check(answer: int, type_name: str) -> None:
    """Raises if a kernel met a text that is invalid for its type."""
    if answer != OK:
        raise DataError(
            "data.log_damaged",
            f"a value of type {type_name} cannot be parsed",
            "Report it with the type and the upstream's version; RESYNC TABLE reads the table again.",
        )


def offsets_of(sizes: Any) -> Any:
    """Arrow's int32 offsets for values of these sizes."""
    offsets = np.zeros(sizes.size + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise OverflowError("more than 2 GB of values in one batch")
    return offsets.astype(np.int32)


def unrepresentable_key(name: str) -> DataError:
    """The error for an unrepresentable key: without it the row would be lost or confused with another."""
    return DataError(
        "data.key_value",
        f"key column {name} holds a value that its lake type cannot represent",
        f"Declare {name} as STRING in CREATE TABLE, or change the value upstream and RESYNC TABLE.",
    )
