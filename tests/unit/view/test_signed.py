"""The signed changes of views against a dict: splitting, telescoping, and what went according to the log."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.decode.values import arrow_schema
from headwater.model import Column, Op, RelationInfo, TableState, UpstreamType, ViewOrigin
from headwater.relation.schema import GONE, UPSERT, key_struct
from headwater.source.names import BEFORE, OLD, OP
from headwater.view.images import went
from headwater.view.shape import WEIGHT
from headwater.view.signed import Change, change, signed_rows, telescoped

TYPE = UpstreamType("", 0)
COLUMNS = (Column("k", "BIGINT", TYPE), Column("v", "STRING", TYPE))
VIEW = RelationInfo(
    id=7,
    name="v",
    origin=ViewOrigin("SELECT 1", (1,), 2),
    columns=COLUMNS,
    key=("k",),
    options={},
    state=TableState.LIVE,
    error=None,
    base_path="warehouse/7",
    base_version=0,
)
Rows = dict[int | None, str | None]
keys = st.one_of(st.none(), st.integers(0, 4))
states = st.dictionaries(keys, st.one_of(st.none(), st.sampled_from("abc")), max_size=5)


def signed(before: Rows, after: Rows) -> pa.Table:
    rows = [(k, v, -1) for k, v in before.items() if k not in after or after[k] != v]
    rows += [(k, v, 1) for k, v in after.items() if k not in before or before[k] != v]
    columns = [pa.array([r[i] for r in rows], t) for i, t in enumerate((pa.int64(), pa.string(), pa.int32()))]
    return pa.table(columns, names=["k", "v", WEIGHT])


def applied(state: Rows, of: Change) -> Rows:
    result = dict(state)
    for k, v, op in zip(*(of.layer[name].to_pylist() for name in ("k", "v", OP)), strict=True):
        if op == GONE:
            del result[k]
        else:
            assert op == UPSERT
            result[k] = v
    return result


def contents(rows: pa.Table) -> Rows:
    found = dict(zip(rows["k"].to_pylist(), rows["v"].to_pylist(), strict=True))
    assert len(found) == rows.num_rows, "each key once"
    return found


@given(st.lists(states, min_size=2, max_size=6))
def test_changes_that_follow_each_other_telescope_into_the_change_from_the_first_state_to_the_last(
    history: list[Rows],
) -> None:
    steps = [change(VIEW, signed(a, b), i) for i, (a, b) in enumerate(pairwise(history))]
    total = telescoped(VIEW, steps)
    first, last = history[0], history[-1]
    assert applied(first, total) == last
    named = set(total.layer["k"].to_pylist())
    assert contents(total.before) == {k: v for k, v in first.items() if k in named}
    assert not any(k not in first and k not in last for k in named), "a key that came and went is in neither part"


@given(states, states)
def test_a_change_gives_back_the_signed_rows_that_it_was_made_of(before: Rows, after: Rows) -> None:
    given_rows = signed(before, after)
    back = signed_rows(VIEW, change(VIEW, given_rows, 3))

    def as_set(rows: pa.Table) -> set[tuple[object, ...]]:
        return set(zip(*(rows[name].to_pylist() for name in ("k", "v", WEIGHT)), strict=True))

    assert as_set(back) == as_set(given_rows)
    assert back.num_rows == given_rows.num_rows


@st.composite
def histories(draw: st.DrawFn) -> tuple[Rows, list[tuple[int, int | None, int | None, str | None, bool]]]:
    """A state and changes of it: (op, key, old key if it moved, value, whether the log has the old row)."""
    state: Rows = dict(draw(st.dictionaries(st.integers(0, 4), st.sampled_from("abc"), max_size=4)))
    now, changes = dict(state), []
    for _ in range(draw(st.integers(0, 12))):
        known, value = draw(st.booleans()), draw(st.sampled_from("abc"))
        absent = [k for k in range(5) if k not in now]
        choice = draw(st.sampled_from(["insert"] * bool(absent) + ["update", "delete", "move"] * bool(now)))
        if choice == "insert":
            key = draw(st.sampled_from(absent))
            changes.append((int(Op.INSERT), key, None, value, False))
            now[key] = value
            continue
        key = draw(st.sampled_from(sorted(now)))  # type: ignore[type-var]
        if choice == "update":
            changes.append((int(Op.UPDATE), key, None, value, known))
            now[key] = value
        elif choice == "delete":
            changes.append((int(Op.DELETE), key, None, None, known))
            del now[key]
        elif absent:
            new = draw(st.sampled_from(absent))
            changes.append((int(Op.UPDATE), new, key, value, known))
            del now[key]
            now[new] = value
    return state, changes


@given(histories(), st.integers(1, 5))
def test_what_went_is_the_first_image_of_each_key_or_must_be_looked_up(
    history: tuple[Rows, list[tuple[int, int | None, int | None, str | None, bool]]], size: int
) -> None:
    state, changes = history
    images, now = [], dict(state)
    for op, key, old, value, known in changes:
        before = key if old is None else old
        images.append({"k": before, "v": now[before]} if op != Op.INSERT and known else None)
        if op != Op.INSERT:
            del now[before]
        if op != Op.DELETE:
            now[key] = value
    table = pa.table(
        [
            pa.array([c[1] for c in changes], pa.int64()),
            pa.array([c[0] for c in changes], pa.int8()),
            pa.array([None if c[2] is None else {"k": c[2]} for c in changes], key_struct(COLUMNS, ("k",))),
            pa.array(images, pa.struct(list(arrow_schema(COLUMNS)))),
        ],
        names=["k", OP, OLD, BEFORE],
    )
    slices = [table.slice(at, size) for at in range(0, len(changes), size)]
    found = went(slices, COLUMNS, ("k",))
    touched = {k for c in changes for k in (c[1], c[2]) if k is not None}
    assert set(found.touched["k"].to_pylist()) == touched
    rows, unknown = contents(found.rows), set(found.unknown["k"].to_pylist())
    assert rows.keys() | unknown == touched & state.keys()
    assert not rows.keys() & unknown
    assert all(state[k] == v for k, v in rows.items())
    firsts: dict[int, bool] = {}
    for op, key, old, _, known in changes:
        for k in (old, key):
            if k is not None and k not in firsts:
                firsts[k] = known and (k == old or (old is None and op != Op.INSERT))
    assert rows.keys() == {k for k, known in firsts.items() if known and k in state}


@pytest.mark.parametrize("weight", [-2, 2, 3])
def test_a_row_that_a_view_has_twice_is_an_error_and_never_half_a_change(weight: int) -> None:
    twice = pa.table({"k": pa.array([1], pa.int64()), "v": ["x"], WEIGHT: pa.array([weight], pa.int32())})
    with pytest.raises(AssertionError, match="more than once"):
        change(VIEW, twice, 5)
