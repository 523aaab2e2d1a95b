"""Views defined a second time: one that was never filled makes room for itself at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import Connection

from headwater.engine.view import anew
from headwater.errors import JobError, Retry
from headwater.meta import relations, spans, views
from headwater.meta.store import Meta
from headwater.meta.views import Fill
from headwater.model import Column, Control, Span, TableState, UpstreamType
from headwater.view.shape import shape
from support.defined import add_table
from support.view_trees import leaf, tree_of

COLUMNS = (Column("a", "INT", UpstreamType("int4", 23)), Column("b", "BIGINT", UpstreamType("int8", 20)))


@pytest.fixture
def c(tmp_path: Path) -> Iterator[Connection]:
    meta = Meta(f"sqlite:///{tmp_path / 'meta.db'}")
    with meta.write() as open:
        yield open
    meta.close()


def view(c: Connection, name: str, *inputs: int, replaces: int = 0) -> int:
    id = add_table(c, name, COLUMNS[:1], ("a",), connection_id=0, replaces=replaces)
    uses = {input: {"a": "INT", "b": "INT", "gone": "INT"} for input in inputs}
    views.add(c, id, query="SELECT a", inputs=inputs, uses=uses, visible=1, order=[], limit=3, plain_views=["p"])
    return id


@pytest.mark.parametrize("replaces", [0, 77], ids=["the view", "its refresh"])
def test_a_view_that_was_never_filled_begins_again_without_slices_under_its_name(c: Connection, replaces: int) -> None:
    table = add_table(c, "t", COLUMNS, ("a",))
    old = view(c, "v", table, replaces=replaces)
    above = view(c, "above", old)
    relations.set_control(c, old, Control.PAUSED)
    views.set_fill(c, old, Fill(5, 1))
    spans.add(c, old, [Span(None, None)], 0.0)
    before = relations.get(c, old)
    anew.begin_again(c, before)
    new = relations.find(c, "v")
    assert new is not None and new.id != old and relations.get_or_none(c, old) is None
    assert (new.columns, new.key, new.view, new.control) == (before.columns, before.key, before.view, Control.PAUSED)
    assert new.replaces == replaces and new.base_path != before.base_path
    assert views.fill(c, new.id) is None and spans.all(c, new.id) == []
    assert views.uses(c, new.id) == {table: {"a": "INT", "b": "BIGINT"}}, "as its inputs are now"
    assert views.plain_views(c, new.id) == ["p"]
    assert views.over(c, new.id) == [above], "what reads it goes on with the new one"
    assert views.uses(c, above) == {new.id: {"a": "INT", "b": "INT", "gone": "INT"}}, "and still says what it uses"


def test_a_copy_that_failed_makes_room_for_another_and_one_that_is_filled_does_not(c: Connection) -> None:
    old = relations.get(c, view(c, "v", add_table(c, "t", COLUMNS, ("a",))))
    found = shape(tree_of(leaf("t", key="a"), "t_a"))
    assert anew.fill_beside(c, old, found)
    first = relations.replacement(c, old.id)
    assert first is not None and not anew.fill_beside(c, old, found)
    relations.set_state(c, first.id, TableState.FAILED, JobError("view.failed", "it failed", "", Retry.AUTO))
    assert anew.fill_beside(c, old, found)
    second = relations.replacement(c, old.id)
    assert second is not None and second.id != first.id and relations.get_or_none(c, first.id) is None


def test_a_view_that_was_replaced_while_it_was_analysed_gets_no_copy(c: Connection) -> None:
    old = view(c, "v", add_table(c, "t", COLUMNS, ("a",)))
    new = view(c, f"{relations.BESIDE}v", replaces=old)
    relations.take_place(c, new)
    found = shape(tree_of(leaf("t", key="a"), "t_a"))
    assert not anew.fill_beside(c, relations.get(c, old), found)
    assert relations.replacement(c, old) is None
