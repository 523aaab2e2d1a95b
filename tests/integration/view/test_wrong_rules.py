"""The judge of views is no formality: rules that are known to be wrong fail it, where ours pass."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from headwater.view import build, changes, frames
from headwater.view.shape import WEIGHT
from support.view_moves import Step, Table, View, schema_of, settle

pytestmark = pytest.mark.spark


class OnlyNewVersions(Step):
    def pre(self) -> DataFrame:
        return self.post()


class OnlyNewImages(Step):
    def delta(self) -> DataFrame:
        return super().delta().where(fn.col(WEIGHT) == 1)


def two() -> dict[str, Table]:
    tables = {"a": Table(schema_of("id INT; k INT; v INT", "id")), "b": Table(schema_of("id INT; k INT", "id"))}
    tables["a"].put((1, 1, 10), (2, 2, 20), (3, None, 30), (4, None, 40))
    tables["b"].put((1, 1), (2, 2))
    settle(tables)
    return tables


JOINED = "select a.id, b.id bid from a join b on a.k = b.k"


def moved_together(session: SparkSession, move: type[Step]) -> None:
    tables = two()
    view = View(session, JOINED, tables, move)
    tables["a"].drop(1)
    tables["b"].drop(1)
    view.follow()
    view.check()


def test_other_inputs_are_read_as_they_were_for_rows_that_went(quick: SparkSession) -> None:
    moved_together(quick, Step)
    with pytest.raises(AssertionError, match=r"extra .*\[1, 1\]"):
        moved_together(quick, OnlyNewVersions)


@pytest.mark.parametrize("query", ["select id, v from a", JOINED, "select k, sum(v) s from a group by k"])
def test_rows_that_went_are_needed_by_every_rule(quick: SparkSession, query: str) -> None:
    for move, right in ((Step, True), (OnlyNewImages, False)):
        tables = two()
        view = View(quick, query, tables, move)
        tables["a"].put((1, 2, 11))
        if right:
            view.follow()
            view.check()
        else:
            with pytest.raises(AssertionError):
                view.follow()
                view.check()


def test_the_key_of_the_nullable_side_does_not_identify_rows(
    quick: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "select a.id, b.id bid from a left join b on a.k = b.k"
    View(quick, query, two()).check()
    ours = build.joined
    monkeypatch.setattr(
        build, "joined", lambda kind, left, right, *rest: replace(ours(kind, left, right, *rest), key=right.key)
    )
    with pytest.raises(AssertionError, match="not unique"):
        View(quick, query, two())


def test_keys_that_are_null_must_be_found_again(quick: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def largest_of_null() -> None:
        tables = two()
        view = View(quick, "select k, max(v) m from a group by k", tables)
        tables["a"].drop(4)
        view.follow()
        view.check()

    largest_of_null()
    plain = lambda names, others: frames.both(fn.col(a) == fn.col(b) for a, b in zip(names, others, strict=True))  # noqa: E731
    monkeypatch.setattr(changes, "same", plain)
    with pytest.raises(AssertionError, match="extra"):
        largest_of_null()
