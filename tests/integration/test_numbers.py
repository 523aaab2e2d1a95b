"""Numbers in a base's log, as Spark and Delta keep them: what an earlier owner has begun is refused or skipped."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.errors import DataError
from headwater.model import Span
from headwater.relation import base, fold
from headwater.settings.table import Settings
from support.relation import History, Lake, columns_of
from support.wait import wait_for

APP = "fold"  # under which the lake of these tests folds
ALL = Span(None, None)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    h = History(columns_of(), ("k",), random.Random(5), truncates=False)
    h.begin(8)
    made = Lake(spark, tmp_path, h)
    made.settings = Settings(replaced_bytes=0)  # a MERGE, however small the base
    made.scan(ALL, 0, at=0)
    h.run(10)
    made.publish()
    return made


def version(lake: Lake) -> int:
    return base.current_version(lake.storage, lake.relation.base_path)


def rows(lake: Lake) -> int:
    return lake.session.read.format("delta").load(lake.storage.address(lake.relation.base_path)).count()


def passed(lake: Lake, number: int) -> int:
    made = base.pass_number(lake.storage, lake.relation.base_path, APP, number, after=-1)
    assert made is not None
    return made


def test_a_number_is_not_passed_once_the_commit_before_it_was_made(lake: Lake) -> None:
    passed(lake, 4)
    newest = version(lake)
    assert base.pass_number(lake.storage, lake.relation.base_path, APP, 5, after=4) is None
    assert version(lake) == newest


def test_a_fold_during_which_a_later_number_was_committed_is_refused(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fold of an owner that is taken for gone, while another one gives it up."""
    began, gate, source = tmp_path / "began", tmp_path / "gate", fold._source

    def held(*given: Any) -> Any:
        def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import time

            began.touch()
            while not gate.exists():
                time.sleep(0.05)
            yield from batches

        frame = source(*given)
        return frame.mapInArrow(wait, frame.schema)

    monkeypatch.setattr(fold, "_source", held)
    refused: list[BaseException] = []

    def run() -> None:
        try:
            lake.fold(lake.layout(), lake.published, version=4)
        except BaseException as e:
            refused.append(e)

    folding = threading.Thread(target=run)
    before = rows(lake)
    folding.start()
    wait_for(began.exists, "the MERGE has read the base")
    after = passed(lake, 5)
    gate.touch()
    folding.join(240)
    (error,) = refused
    assert isinstance(error, PySparkException) and "ConcurrentTransaction" in str(error)
    assert (version(lake), rows(lake)) == (after, before)


def test_a_fold_whose_number_has_been_passed_is_an_error_and_no_fold_of_nothing(lake: Lake) -> None:
    """Spark skips it without a word; who took that for done would lose its changes."""
    before, after = rows(lake), passed(lake, 5)
    with pytest.raises(DataError, match="later commit"):
        lake.fold(lake.layout(), lake.published, version=4)
    own = lake.session.newSession()
    for name, value in fold._numbered(APP, 4).items():
        own.conf.set(name, value)
    with lake.overlays.use(lake.relation, lake.layout(), lake.published) as overlay:
        fold._merge(own, lake.storage, lake.relation, lake.layout(), overlay)
    assert (version(lake), rows(lake)) == (after, before), "what Spark itself does with it"
    lake.fold(lake.layout(), lake.published, version=6)
    assert lake.read(lake.layout(), lake.published) == lake.history.states[lake.published]


def test_rows_are_taken_out_once_and_not_after_what_was_read_again_is_there(lake: Lake) -> None:
    take_out = lake.session, lake.storage, lake.relation, [ALL], APP
    first = fold.remove(*take_out, 4)
    assert rows(lake) == 0 and fold.remove(*take_out, 4) == first
    lake.scan(ALL, 1, at=0)
    passed(lake, 5)
    there, newest = rows(lake), version(lake)
    for number in (4, 5):  # by an owner that was stopped before it
        fold.remove(*take_out, number)
    assert (rows(lake), version(lake)) == (there, newest) and there > 0
