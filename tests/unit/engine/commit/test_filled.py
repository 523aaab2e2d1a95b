"""The end of a view's fill from partial rows: what enters the base, what counts, and which files go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import Connection

from headwater.engine.commit import filled
from headwater.engine.view.fill import slice_spans
from headwater.meta import epochs, relations, spans, views
from headwater.meta.intents import Cover
from headwater.meta.store import Meta
from headwater.meta.views import Fill
from headwater.model import DataFile, ScanResult, SpanState, TableState
from support.defined import add_table

PARTS = 3


@pytest.fixture
def c(tmp_path: Path) -> Iterator[Connection]:
    meta = Meta(f"sqlite:///{tmp_path / 'meta.db'}")
    with meta.write() as open:
        yield open
    meta.close()


def in_parts(c: Connection) -> int:
    """A view whose fill has three slices of partial rows, and one more that makes the view of them."""
    id, epoch = add_table(c, "v", connection_id=0), epochs.publish(c, [], {}).id
    views.add(c, id, query="SELECT 1", inputs=[], uses={}, visible=0, order=[], limit=None)
    views.set_fill(c, id, Fill(epoch, PARTS, partial=True))
    spans.add(c, id, slice_spans(PARTS + 1), 0.0)
    return id


def written(c: Connection, id: int, number: int, rows: int) -> None:
    slice, file = spans.all(c, id)[number], DataFile(f"{number}.parquet", 1, rows, "")
    spans.scanned(c, slice.id, ScanResult("", "", (file,), rows), 1, "")


def test_a_fill_is_not_written_while_its_last_step_runs(c: Connection) -> None:
    """Else the newest partial rows would be taken for the view."""
    id = in_parts(c)
    for number in range(PARTS):
        written(c, id, number, rows=2)
    assert filled.in_parts(c, id) and not filled.all_written(c, id), "the last step is to come"
    spans.set_state(c, spans.all(c, id)[PARTS].id, SpanState.SCANNING)
    assert not filled.all_written(c, id), "it runs"
    written(c, id, PARTS, rows=5)
    assert filled.all_written(c, id)


def test_only_rows_of_the_view_count_and_only_files_of_parts_go(c: Connection) -> None:
    id = in_parts(c)
    for number in range(PARTS + 1):
        written(c, id, number, rows=5 if number == PARTS else 2)
    view, ready = relations.get(c, id), spans.uncovered(c, id)
    cover = Cover(spans=tuple(s.id for s in ready), files=ready[-1].files)
    assert filled.parts(c, view, cover) == [f"{view.base_path}/{number}.parquet" for number in range(PARTS)]
    assert filled.settle_slices(c, id, cover.spans) == epochs.get(c, 1)
    assert spans.rows(c, id) == 5 and views.last_version(c, id) == 1
    assert relations.get(c, id).state is TableState.LIVE
