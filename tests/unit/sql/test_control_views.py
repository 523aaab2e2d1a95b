"""Statements about a view that a copy replaces while they are being executed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.engine.home import Home
from headwater.engine.view import anew
from headwater.meta import epochs, relations, views
from headwater.model import Control
from headwater.sql.statements import ControlView, RefreshView
from headwater.sql.view import control
from headwater.view.shape import shape
from support.defined import add_table, home_with
from support.view_trees import leaf, tree_of

FOUND = shape(tree_of(leaf("t", key="a"), "t_a"))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with home_with(tmp_path) as home:
        yield home


def defined(home: Home) -> tuple[int, int]:
    """A table, and a view over it."""
    with home.meta.write() as c:
        table = add_table(c, "t", anew.stored_columns(FOUND), FOUND.key)
        view = add_table(c, "v", anew.stored_columns(FOUND), FOUND.key, connection_id=0)
        views.add(c, view, query="SELECT a", inputs=[table], uses={}, visible=FOUND.visible, order=[], limit=None)
    return table, view


def test_a_view_that_was_never_filled_has_no_rows_that_refresh_could_keep(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, old = defined(home)
    monkeypatch.setattr(control, "shape_now", lambda *_: FOUND)
    said = control.refresh_view(home, RefreshView(name="v"), None)  # type: ignore[arg-type]
    assert "from the beginning" in said.message
    with home.meta.read() as c:
        (found,) = (r for r in relations.all(c) if r.view is not None)
        assert found.name == "v" and found.id != old and not found.replaces


def test_a_view_that_is_replaced_while_refresh_analyses_it_gets_its_copy_under_its_name(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, old = defined(home)
    with home.meta.write() as c:
        anew.fill_beside(c, relations.get(c, old), FOUND)
        copy = relations.replacement(c, old)
        assert copy is not None

    def swapped_meanwhile(*_: object) -> object:
        with home.meta.write() as c:
            views.add_version(c, copy.id, epochs.publish(c, [], {}).id)
            relations.take_place(c, copy.id)
        return FOUND

    monkeypatch.setattr(control, "shape_now", swapped_meanwhile)
    control.refresh_view(home, RefreshView(name="v"), None)  # type: ignore[arg-type]
    with home.meta.read() as c:
        again = relations.replacement(c, copy.id)
        assert again is not None and again.view is not None and again.view.inputs == (table,)
        assert relations.replacement(c, old) is None, "nobody could drop that one"
    control.control_view(home, ControlView(name="v", pause=True))
    with home.meta.read() as c:
        assert relations.get(c, copy.id).control is relations.get(c, again.id).control is Control.PAUSED
