"""What the log tells of a table's change, and when it must be looked up in the table as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from headwater.decode.values import arrow_schema
from headwater.engine.home import Home
from headwater.engine.query import moved
from headwater.engine.query.between import At, Frames
from headwater.engine.query.moved import MovedTable
from headwater.meta import relations
from headwater.model import Column, CoveredSpan, Layout, Op, Span, UpstreamType
from headwater.relation.changes import Slice
from headwater.relation.layers import Layer, no_holes
from headwater.relation.overlay import Overlay
from headwater.relation.schema import key_struct
from headwater.source.names import BEFORE, OLD, OP
from headwater.view.images import Went
from support.defined import add_table, home_with

COLUMNS = (Column("k", "BIGINT", UpstreamType("", 0), False), Column("v", "BIGINT", UpstreamType("", 0)))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with home_with(tmp_path) as home:
        yield home


def changes() -> pa.Table:
    """An INSERT of 1, and an UPDATE of 2 with its old row."""
    return pa.table(
        [
            pa.array([1, 2], pa.int64()),
            pa.array([int(Op.INSERT), int(Op.UPDATE)], pa.int8()),
            pa.nulls(2, key_struct(COLUMNS, ("k",))),
            pa.array([None, {"k": 2, "v": 20}], pa.struct(list(arrow_schema(COLUMNS)))),
        ],
        names=["k", OP, OLD, BEFORE],
    )


def table(home: Home, **options: str) -> MovedTable:
    """A table that has these changes between two epochs."""
    with home.meta.write() as c:
        relation = replace(relations.get(c, add_table(c, "t", COLUMNS, ("k",))), options=options)
    layout = Layout(relation.id, 0, (CoveredSpan(Span(None, None), 0, 0),), True, relation.schema_version)
    logged = SimpleNamespace(slices=lambda *_, **__: [Slice(0, 2, changes())])
    deltas: Any = SimpleNamespace(overlays=SimpleNamespace(changes=logged))
    session: Any = None
    frames = Frames(session, home, deltas.overlays, ExitStack())
    return MovedTable(frames, deltas, At(relation, layout, 0), At(relation, layout, 2))


def keys(rows: pa.Table) -> list[int]:
    return sorted(rows["k"].to_pylist())


@pytest.mark.parametrize(
    "options", [{}, {"backfill.filter": "v > 3"}, {"snapshot": "false"}], ids=["whole", "filtered", "without history"]
)
def test_the_log_tells_what_a_table_had_only_if_it_has_every_row(
    home: Home, monkeypatch: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    """A row that a filter excludes, or that came before the first change, has an old image and was never there."""
    monkeypatch.setattr(moved, "FEW_ROWS", 1)  # as if there were too many to look them up here
    found = table(home, **options)._find()
    assert found.went is not None and keys(found.went.touched) == [1, 2] and not found.append_only
    if options:
        assert found.went.rows.num_rows == 0 and keys(found.went.unknown) == [1, 2]
    else:
        assert keys(found.went.rows) == [2] and found.went.unknown.num_rows == 0


def test_the_log_alone_is_read_only_if_all_of_it_is_in_one_layer_without_gaps(home: Home) -> None:
    of = table(home)
    schema = arrow_schema(COLUMNS)
    went = Went(schema.empty_table(), schema.empty_table().select(["k"]), schema.empty_table().select(["k"]))

    def signed(*layers: Layer) -> pa.Table | None:
        relation = of.before.relation
        return of._logged(Overlay(relation.id, 2, layers, frozenset(), (), no_holes(relation), 2), went)

    nothing = signed()
    assert nothing is not None and nothing.num_rows == 0
    assert signed(Layer("a", 1, True)) is None, "some rows lack values that the table has"
    assert signed(Layer("a", 1, False), Layer("b", 1, False)) is None, "a key may be in both"
