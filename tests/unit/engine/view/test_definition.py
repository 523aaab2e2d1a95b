"""Whether a view's stored rows still fit its query after an input has changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.engine.view.definition import Reshaped, check_stored
from headwater.errors import HeadwaterError
from headwater.model import Column, RelationInfo, TableState, UpstreamType, ViewOrigin
from headwater.view.shape import Shape, StoredColumn, shape
from support.view_trees import leaf, tree_of

NOW = shape(tree_of(leaf("a", "k", "v"), "a_id", "a_k", "a_v"))


def stored(as_of: Shape) -> RelationInfo:
    columns = tuple(Column(c.name, c.type, UpstreamType("", 0), c.nullable) for c in as_of.columns)
    origin = ViewOrigin("SELECT 1", (1,), as_of.visible)
    return RelationInfo(2, "v", origin, columns, as_of.key, {}, TableState.LIVE, None, "warehouse/2", 0)


def test_rows_that_are_as_before_fit() -> None:
    check_stored(stored(NOW), NOW)


@pytest.mark.parametrize(
    "now",
    [
        replace(NOW, columns=(*NOW.columns, StoredColumn("__k0", "INT", True))),
        replace(NOW, key=("a_id", "a_k")),  # the input's primary key was replaced, and RESYNC has adopted it
        replace(NOW, columns=(StoredColumn("a_id", "INT", True), *NOW.columns[1:])),  # keys were not compared null-safe
    ],
)
def test_a_view_with_other_hidden_columns_or_another_key_is_to_be_filled_again(now: Shape) -> None:
    with pytest.raises(Reshaped):
        check_stored(stored(NOW), now)


def test_other_visible_columns_stop_the_view() -> None:
    with pytest.raises(HeadwaterError) as e:
        check_stored(stored(NOW), replace(NOW, columns=(*NOW.columns[:-1], StoredColumn("a_v", "STRING", True))))
    assert e.value.code == "view.input_changed"
