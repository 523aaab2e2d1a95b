"""A delta is made once per step, by whoever asks first, and its file goes when nobody needs it any more."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.engine.home import Home
from headwater.engine.query import deltas
from headwater.engine.query.deltas import Deltas, Signed
from headwater.relation.changes import LoggedChanges

ROWS = pa.table({"id": [1], "__w": pa.array([1], pa.int32())})


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home.open(tmp_path / "home")
    yield made
    made.meta.close()


@pytest.fixture
def shared(home: Home) -> Deltas:
    return Deltas(home, LoggedChanges(home.storage, home.meta))


def test_views_that_take_the_same_step_share_one_delta(shared: Deltas) -> None:
    made, together, paths = [], threading.Barrier(4), set()

    def make() -> Signed:
        made.append(1)
        return Signed(1, True, ROWS)

    def take() -> None:
        together.wait()
        with shared.use(("t", 1, 2), make) as delta:
            paths.add(delta.path)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(made) == len(paths) == 1


def test_a_delta_that_could_not_be_made_is_tried_again(shared: Deltas) -> None:
    def fails() -> Signed:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"), shared.use(1, fails):
        pass
    with shared.use(1, lambda: Signed(1, True, ROWS)) as delta:
        assert delta.path


def test_the_file_of_a_delta_goes_when_it_is_old(shared: Deltas, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deltas, "KEPT_S", -1.0)
    with shared.use(1, lambda: Signed(1, True, ROWS)) as delta:
        assert home.storage.exists(delta.path)
        with shared.use(2, lambda: Signed(1, True, ROWS)):
            assert home.storage.exists(delta.path), "in use"
    assert not home.storage.exists(delta.path)
