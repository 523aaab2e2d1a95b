"""What SHOW and DESCRIBE say of a table that is being filled."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from headwater.backfill.span import joined
from headwater.engine.failures import Who
from headwater.engine.home import Home
from headwater.engine.results import Result
from headwater.engine.status.status import status_of
from headwater.errors import JobError, Retry
from headwater.meta import relations, spans
from headwater.model import Bound, Column, Control, ScanResult, Span, TableState, UpstreamType
from headwater.sql import listing
from headwater.sql.parse import parse
from headwater.sql.ranges import condition
from support.defined import add_connection, add_table

ID = Column("id", "BIGINT", UpstreamType("int8", 20, ordered=True))
NAME = Column("name", "STRING", UpstreamType("text", 25))
EDGES = [None, *(Bound((str(i),)) for i in (10, 20, 30, 40)), None]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    opened = Home.open(tmp_path / "home")
    with opened.meta.write() as c:
        add_connection(c)
        for name, key in (("orders", ID), ("people", NAME)):
            id = add_table(c, name, (key,), (key.name,))
            relations.set_state(c, id, TableState.FILLING)
            cut = [Span(lo, hi) for lo, hi in itertools.pairwise(EDGES)]
            spans.add(c, id, cut, 1.0)
            for number, s in enumerate(spans.all(c, id)):
                if number in (0, 1, 3):
                    spans.scanned(c, s.id, ScanResult("1:1:", "0/9", (), 7), 0, "life")
                    spans.cover(c, s.id, 5)
            relations.set_planned(c, id, True)
    yield opened
    opened.meta.close()


def ask(home: Home, text: str) -> Result:
    (statement,) = parse(text)
    return listing.run(home, statement)


def test_describe_says_which_part_is_covered(home: Home) -> None:
    assert ask(home, "DESCRIBE orders").warnings == ("orders: 50 % covered, 3 of 5 spans: id ≤ 20; 30 < id ≤ 40",)
    assert "readable when complete" in ask(home, "DESCRIBE people").warnings[0]
    with home.meta.write() as c:
        for s in spans.all(c, 1):
            spans.cover(c, s.id, 5)
    assert ask(home, "DESCRIBE orders").warnings == ()


def test_the_same_word_for_a_state_everywhere(home: Home) -> None:
    with home.meta.write() as c:
        relations.set_control(c, 1, Control.PAUSED)
    tables, backfills = ask(home, "SHOW TABLES").rows, ask(home, "SHOW BACKFILLS").rows
    assert tables is not None and backfills is not None
    assert tables["state"].to_pylist() == backfills["state"].to_pylist() == ["paused", "filling"]
    assert tables["spans"].to_pylist() == backfills["spans"].to_pylist() == ["3/5", "3/5"]
    assert tables["scanned_rows"].to_pylist() == backfills["scanned_rows"].to_pylist() == [21, 21]
    assert backfills["note"].to_pylist() == [None, "only the database can order its keys: readable when complete"]


def test_a_paused_capture_is_shown_with_its_connection_and_its_tables(home: Home) -> None:
    paused = JobError("changelog.ahead", "the capture is paused", "Wait for the folds.", Retry.AUTO)
    home.live.failures.failed(Who("pause", connection=1), paused)
    shown = ask(home, "SHOW CONNECTIONS").rows
    assert shown is not None and ["the capture is paused" in e for e in shown["error"].to_pylist()] == [True]
    status = status_of(home, None)
    assert {x.error for x in (*status.connections, *status.tables)} == {"the capture is paused"}


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (Span(None, None), "all keys"),
        (Span(None, Bound(("5",))), "id ≤ 5"),
        (Span(Bound(("5",)), None), "id > 5"),
        (Span(Bound(("5",)), Bound(("9",))), "5 < id ≤ 9"),
        (Span(Bound(("5",), after=False), Bound(("5",), after=True)), "5 ≤ id ≤ 5"),
        (Span(Bound(("5",), after=False), None), "id ≥ 5"),
        (Span(None, Bound(("5",), after=False)), "id < 5"),
    ],
)
def test_a_key_range_is_a_condition(span: Span, words: str) -> None:
    assert condition(("id",), span) == words


def test_a_key_of_several_columns_is_written_as_a_row() -> None:
    assert condition(("a", "b"), Span(None, Bound(("1", "x")))) == "(a, b) ≤ (1, x)"


@given(some.lists(some.booleans(), min_size=5, max_size=5))
def test_neighbours_become_one_range_and_others_stay_apart(covered: list[bool]) -> None:
    cut = [Span(lo, hi) for lo, hi in itertools.pairwise(EDGES)]
    groups = "".join("x" if c else " " for c in covered).split()
    found = joined([s for s, c in zip(cut, covered, strict=True) if c])
    assert len(found) == len(groups)
    assert all(a.hi != b.lo for a, b in itertools.pairwise(found))
