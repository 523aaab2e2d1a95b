"""Fills that begin again, and slices whose end could not be recorded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from sqlalchemy.engine import Connection

from headwater.engine.home import Home
from headwater.engine.query.read import Reader
from headwater.engine.view.definition import Trees
from headwater.engine.view.fill import Filler, slice_number, slice_spans, startable
from headwater.engine.view.views import Views
from headwater.meta import epochs, intents, relations, spans, views
from headwater.meta.intents import Cover
from headwater.meta.views import Fill
from headwater.model import Column, CoveredSpan, Layout, ScanResult, Span, SpanState, TableState, UpstreamType
from headwater.ownership.lease import Leases
from headwater.view.slices import Slices
from support.defined import add_table, home_with
from support.owned import serving

COLUMNS = (Column("k", "STRING", UpstreamType("", 0)),)


def no_spark() -> None:
    raise AssertionError("nothing here needs Spark")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with home_with(tmp_path) as home:
        yield home


def filling(home: Home) -> tuple[int, Leases]:
    """A view in a fill of two slices over a table that has no rows at the fill's epoch: it was read again."""
    with home.meta.write() as c:
        leases, table = serving(c), add_table(c, "t")
        id, epoch = add_table(c, "v", connection_id=0), epochs.publish(c, [], {}).id
        views.add(c, id, query="SELECT 1", inputs=[table], uses={}, visible=0, order=[], limit=None)
        views.set_fill(c, id, views.Fill(epoch, 2))
        spans.add(c, id, slice_spans(2), 0.0)
        relations.set_state(c, id, TableState.FILLING)
    return id, leases


@pytest.mark.parametrize("entering", [False, True], ids=["no-file-in-the-base", "files-about-to-enter-the-base"])
def test_a_fill_begins_again_in_a_base_that_has_no_file_of_the_first_one(home: Home, entering: bool) -> None:
    id, leases = filling(home)
    reader = Reader(home, no_spark)  # type: ignore[arg-type]
    filler = Filler(home, leases, reader, Trees(home, no_spark))  # type: ignore[arg-type]
    with home.meta.write() as c:
        relation, (first, second) = relations.get(c, id), spans.all(c, id)
        if entering:
            intents.add(c, id, Cover((first.id,)), "")
    filler.write(relation, second)
    with home.meta.read() as c:
        now = relations.find(c, "v")
        assert now is not None and views.fill(c, now.id) is None and not spans.all(c, now.id)
        assert (now.base_path == relation.base_path) is not entering


def test_a_slice_that_nobody_works_on_is_written_again(home: Home) -> None:
    id, leases = filling(home)
    reader = Reader(home, no_spark)  # type: ignore[arg-type]
    loop = Views(home, leases, reader, None, no_spark, lambda: None)  # type: ignore[arg-type]
    with home.meta.write() as c:
        spans.set_state(c, spans.all(c, id)[0].id, SpanState.SCANNING)  # meta did not hear how it ended
        relation = relations.get(c, id)
    loop._fill(relation)
    with home.meta.read() as c:
        assert [s.state for s in spans.all(c, id)] == [SpanState.PENDING] * 2


def test_partial_rows_are_put_together_only_when_every_slice_of_them_is_written(home: Home) -> None:
    with home.meta.write() as c:
        id = add_table(c, "v", connection_id=0)
        views.add(c, id, query="SELECT 1", inputs=[], uses={}, visible=0, order=[], limit=None)
        views.set_fill(c, id, views.Fill(1, 3, partial=True))
        spans.add(c, id, slice_spans(4), 0.0)
        view, parts = relations.get(c, id), spans.all(c, id)
        for written in range(3):
            found = [slice_number(s.span) for s in startable(c, view, 9)]
            assert found == list(range(written, 3)), "the last step waits"
            spans.set_state(c, parts[written].id, SpanState.SCANNING)
            assert 3 not in [slice_number(s.span) for s in startable(c, view, 9)], "one is still being written"
            spans.set_state(c, parts[written].id, SpanState.SCANNED)
        assert [slice_number(s.span) for s in startable(c, view, 9)] == [3]


def test_a_fill_begins_again_when_the_input_that_it_is_cut_by_was_replaced(home: Home) -> None:
    """A slice of the new input would be all of it."""
    id, leases = filling(home)
    reader = Reader(home, no_spark)  # type: ignore[arg-type]
    filler = Filler(home, leases, reader, Trees(home, no_spark))  # type: ignore[arg-type]
    with home.meta.write() as c:
        fill, (first, *_) = views.fill(c, id), spans.all(c, id)
        assert fill is not None
        table = add_table(c, "new")
        span = CoveredSpan(Span(None, None), 0, 0)
        epochs.put_layout(c, Layout(table, 0, (span,), True), fill.epoch)  # whole at the fill's epoch
        before = relations.get(c, id).view
        assert before is not None
        (old,) = before.inputs
        views.set_fill(c, id, replace(fill, input=old))
        views.replace_input(c, old, table)
        relation = relations.get(c, id)
    filler.write(relation, first)
    with home.meta.read() as c:
        assert views.fill(c, id) is None and not spans.all(c, id)


def with_rows(c: Connection, name: str, rows: int) -> int:
    """A table that is complete and has so many rows."""
    id = add_table(c, name, COLUMNS, ("k",))
    spans.add(c, id, [Span(None, None)], 0.0)
    spans.scanned(c, spans.all(c, id)[0].id, ScanResult("", "", (), rows), 0, "")
    return id


def cut(home: Home, way: Slices, **rows: int) -> tuple[Fill, dict[str, int]]:
    """How a view over tables of so many rows is cut, and their ids."""
    with home.meta.write() as c:
        leases, ids = serving(c), {name: with_rows(c, name, n) for name, n in rows.items()}
        view = add_table(c, "v", connection_id=0)
        views.add(c, view, query="SELECT 1", inputs=[*ids.values()], uses={}, visible=0, order=[], limit=None)
        relations.set_options(c, view, {"backfill.rows_per_span": "10"})
        reader = Reader(home, no_spark)  # type: ignore[arg-type]
        filler = Filler(home, leases, reader, Trees(home, no_spark))  # type: ignore[arg-type]
        return filler._cut(c, relations.get(c, view), epochs.publish(c, [], {}), way), ids


@pytest.mark.parametrize("kind", ["spans", "merge"])
def test_slices_are_of_an_input_that_can_be_cut_although_another_one_is_larger(
    home: Home, kind: Literal["spans", "merge"]
) -> None:
    """A slice of the right side of a left join would show left rows without the matches of all other slices."""
    fill, ids = cut(home, Slices(kind, ("left",)), left=25, right=1000)
    assert fill.input == ids["left"] and fill.slices == 3 and fill.partial == (kind == "merge")


def test_a_view_of_few_rows_and_one_that_cannot_be_cut_are_one_slice(home: Home) -> None:
    fill, ids = cut(home, Slices("spans", ("a", "b")), a=10, b=9)
    assert (fill.slices, fill.input) == (1, 0)
    with home.meta.write() as c:
        for id in (relations.find(c, "v"), *(relations.get(c, id) for id in ids.values())):
            assert id is not None
            relations.remove(c, id.id)
    fill, _ = cut(home, Slices("one"), a=1000)
    assert (fill.slices, fill.input) == (1, 0)
