"""What a view's query may see of a relation."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.model import Column
from headwater.view.tree import InputColumn, InputSchema


def input_schema(columns: Sequence[Column], key: tuple[str, ...], is_view: bool) -> InputSchema:
    """A relation as an input, with its hidden columns.

    A table's column may hold NULL whatever the upstream says, in the place of a value that the lake cannot represent;
    only a key never does. A view's columns hold NULL only if its query says so.
    """
    found = (InputColumn(c.name, c.lake_type, c.nullable if is_view else c.name not in key) for c in columns)
    return InputSchema(tuple(found), key)
