"""Column names that a table may have."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater
from headwater.source import names
from headwater.source.names import is_storable

STAGES = ("relation", "check", "decode", "changelog")
NO_COLUMNS = {"__debezium_unavailable_value"}


def added_names() -> Iterator[str]:
    """What our own code calls columns that it adds to a table's; a number in such a name becomes 0."""
    for stage in STAGES:
        for path in (Path(headwater.__file__).parent / stage).rglob("*.py"):
            tree = ast.parse(path.read_text())
            formatted = [n for n in ast.walk(tree) if isinstance(n, ast.JoinedStr)]
            parts = {id(v) for n in formatted for v in n.values}
            texts = ["".join(str(v.value) if isinstance(v, ast.Constant) else "0" for v in n.values) for n in formatted]
            constants = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in parts]
            texts += [n.value for n in constants if isinstance(n.value, str)]
            for text in texts:
                if text.startswith("__") and text.isidentifier() and not text.endswith("_"):
                    yield text


def test_no_table_can_have_a_column_that_our_own_would_hide() -> None:
    assert set(added_names()) <= NO_COLUMNS, "source/names.py names them"
    numbered = [f"{side}{n}" for side in (names.FROM_BASE, names.FROM_KEYS, names.FROM_LAYER) for n in (0, 17)]
    for name in (*names.OURS, names.ORDER, names.NETTED, names.HASH, *numbered):
        assert name.startswith("__") and not is_storable(name) and not is_storable(name.upper())


@pytest.mark.parametrize(
    "name", ["__b", "__key", "__key0", "__known", "__orders", "_b0", "b0", "__bx", "__v", "Id", "größe", "a.b", "`"]
)
def test_any_other_name_is_storable(name: str) -> None:
    assert is_storable(name)
