"""Plain views in meta: found by name in any case, and each after those that it names."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy.exc import IntegrityError

from headwater.engine.home import Home
from headwater.meta import plain_views


def test_plain_views_are_listed_after_those_that_they_name(tmp_path: Path) -> None:
    home = Home.open(tmp_path / "home")
    with home.meta.write() as c:
        for name, inputs in (("a", ["t"]), ("b", ["a", "u"]), ("Größe", ["b"]), ("other", ["t"])):
            plain_views.add(c, name=name, query=f"SELECT * FROM {inputs[0]}", inputs=inputs, statement="…")
        assert [v.name for v in plain_views.needed(c, ["größe", "t"])] == ["a", "b", "Größe"]
        assert [v.name for v in plain_views.needed(c, ["nothing"])] == []
        assert [v.name for v in plain_views.over(c, "t")] == ["a", "other"]
        found = plain_views.find(c, "B")
        assert found is not None and found.inputs == ("a", "u") and plain_views.find(c, "c") is None
        plain_views.remove(c, found.id)
        assert [v.name for v in plain_views.all(c)] == ["a", "Größe", "other"]
    with pytest.raises(IntegrityError), home.meta.write() as c:
        plain_views.add(c, name="a", query="", inputs=[], statement="")
    home.meta.close()
