"""Runs of a view that are merged while a fold of the view is under way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.engine.home import Home
from headwater.engine.view.merge import merge_runs
from headwater.errors import DefinitionError
from headwater.meta import epochs, intents, relations, runs, views
from headwater.meta.intents import Fold
from headwater.model import Column, CoveredSpan, Layout, RelationInfo, Span, UpstreamType
from headwater.ownership.lease import Leases
from headwater.ownership.names import Name
from headwater.relation.layers import read_layer
from headwater.relation.overlay import Overlays
from headwater.relation.runs import folder
from headwater.view.shape import WEIGHT
from headwater.view.signed import change, write_change
from support.defined import add_table, home_with
from support.owned import serving

COLUMNS = (Column("k", "BIGINT", UpstreamType("", 0)),)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with home_with(tmp_path) as home:
        yield home


def defined(home: Home) -> tuple[RelationInfo, Leases]:
    """A view that is filled at epoch 1, without rows."""
    with home.meta.write() as c:
        id = add_table(c, "v", COLUMNS, ("k",), connection_id=0)
        views.add(c, id, query="SELECT 1", inputs=[], uses={}, visible=1, order=[], limit=None)
        first = epochs.publish(c, [], {}).id
        epochs.put_layout(c, layout(id, first), first)
        return relations.get(c, id), serving(c)


def layout(id: int, index: int) -> Layout:
    return Layout(id, 0, (CoveredSpan(Span(None, None), index, index, (), 0),), True, 1)


def epoch(home: Home) -> int:
    with home.meta.write() as c:
        return epochs.publish(c, [], {}).id


def refreshed(home: Home, view: RelationInfo, last: int, target: int) -> None:
    """A run that brings the row whose key is the epoch."""
    signed = pa.table({"k": pa.array([target], pa.int64()), WEIGHT: pa.array([1], pa.int32())})
    made, path = change(view, signed, target), f"{folder(view.id)}/{target}.parquet"
    write_change(home.storage, made, path, f"{path}.before")
    with home.meta.write() as c:
        runs.add(
            c,
            view.id,
            first_index=last + 1,
            last_index=target,
            path=path,
            rows=made.rows,
            bytes=made.bytes,
            missing=False,
            schema_version=1,
            base_index=-1,
            before_path=f"{path}.before",
        )


def test_runs_are_not_merged_across_the_end_of_a_fold_that_is_under_way(home: Home) -> None:
    view, leases = defined(home)
    for target in (2, 3, 4, 5):
        assert epoch(home) == target
        refreshed(home, view, target - 1, target)
    assert (epoch(home), epoch(home)) == (6, 7), "a refresh to 6 is running, and tables go on"
    with home.meta.write() as c:
        fold = intents.add(c, view.id, Fold(5, 7, ()), "")
        epochs.take_pin(c, 7, "fold")
    refreshed(home, view, 5, 6)
    merge_runs(home, leases.of(Name.relation(view.id)), view)
    with home.meta.write() as c:  # the fold ends
        runs.retire_folded(c, view.id, 5)
        intents.done(c, fold.id)
        after = epochs.publish(c, [], {view.id: layout(view.id, 5)}).id
    overlay = Overlays(home.storage, home.meta).at(view, layout(view.id, 5), after)
    shown = [k for x in overlay.layers for k in read_layer(home.storage, view, x.path)["k"].to_pylist()]
    assert shown == [6], "what came after the fold's end is not in the base"


def test_a_view_that_is_dropped_while_a_statement_begins_is_not_read_without_its_runs(home: Home) -> None:
    view, _ = defined(home)
    assert epoch(home) == 2
    refreshed(home, view, 1, 2)
    overlays = Overlays(home.storage, home.meta)
    assert overlays.at(view, layout(view.id, 1), 2).layers
    with home.meta.write() as c:
        relations.remove(c, view.id)
    with pytest.raises(DefinitionError) as refused:
        Overlays(home.storage, home.meta).at(view, layout(view.id, 1), 2)
    assert refused.value.code == "name.unknown"
