"""Netting against a naive model: whatever the history, base and overlay together are the rows of the upstream."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from headwater.model import Op
from headwater.relation.net import Judgement, holes, net
from headwater.source.names import INDEX, OP
from support.relation import Change, History, Rows, applied, changes_table, columns_of

COLUMNS = columns_of()
KEY = ("k",)


def history(seed: int, width: int = 1, steps: int = 40, truncates: bool = False) -> History:
    note(f"seed {seed}")
    columns = columns_of(width)
    made = History(columns, ("k", "k2")[:width], random.Random(seed), truncates=truncates)
    made.begin(6)
    made.run(steps)
    return made


def netted(changes: list[Change]) -> pa.Table:
    return net([changes_table(changes, COLUMNS, KEY)], COLUMNS, KEY)


def row(k: int, t: str | None = "t", n: int = 0) -> dict[str, Any]:
    return {"n": n, "k": k, "a`b.c": "a", "t": t}


def without_t(k: int, n: int = 0) -> dict[str, Any]:
    return {"n": n, "k": k, "a`b.c": "a"}


T = next(i for i, c in enumerate(COLUMNS) if c.name == "t")


@settings(max_examples=200)
@given(seed=st.integers(0, 2**32), width=st.integers(1, 2))
def test_base_and_overlay_are_the_rows_of_the_upstream(seed: int, width: int) -> None:
    h = history(seed, width)
    overlay = net([changes_table(h.changes, h.columns, h.key)], h.columns, h.key)
    assert applied(h.states[0], overlay, h.columns, h.key) == (h.now, set())
    assert overlay[INDEX].to_pylist() == sorted(overlay[INDEX].to_pylist())


@settings(max_examples=200)
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 40), max_size=3))
def test_netting_what_is_netted_already_changes_nothing(seed: int, cuts: list[int]) -> None:
    h = history(seed)
    overlay = net([], h.columns, h.key)
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), 40], strict=True):
        overlay = net([overlay, changes_table(h.changes[start:end], h.columns, h.key)], h.columns, h.key)
    at_once = net([changes_table(h.changes, h.columns, h.key)], h.columns, h.key)
    assert applied(h.states[0], overlay, h.columns, h.key) == (h.now, set())
    by_key = [(t.sort_by([("k", "ascending")]).to_pylist()) for t in (overlay, at_once)]
    assert by_key[0] == by_key[1]


@settings(max_examples=150)
@given(seed=st.integers(0, 2**32))
def test_a_truncate_ends_every_row(seed: int) -> None:
    h = history(seed, steps=60, truncates=True)
    overlay = net([changes_table(h.changes, h.columns, h.key)], h.columns, h.key)
    emptied = max((c.index for c in h.changes if c.op == Op.TRUNCATE), default=0)
    later = overlay.filter(pa.compute.field(INDEX) > emptied)
    assert applied({} if emptied else h.states[0], later, h.columns, h.key) == (h.now, set())


@settings(max_examples=400)
@given(seed=st.integers(0, 2**32), scanned=st.lists(st.integers(-1, 40), min_size=4, max_size=4))
def test_spans_scanned_at_different_times_agree_with_the_upstream(seed: int, scanned: list[int]) -> None:
    """Keys 3i…3i+2 are span i, scanned when the log stood at scanned[i]; -1: not covered. Holes are hidden."""
    h = history(seed)
    base: Rows = {k: r for i, s in enumerate(scanned) for k, r in h.states[max(s, 0)].items() if k[0] // 3 == i}
    base = {k: r for k, r in base.items() if scanned[k[0] // 3] >= 0}

    def judge(keys: list[Any], index: list[int]) -> np.ndarray[Any, np.dtype[np.bool_]]:
        return np.array(
            [k is not None and 0 <= scanned[k // 3] < i for k, i in zip(keys, index, strict=True)], np.bool_
        )

    index = [c.index for c in h.changes]
    own = judge([c.row["k"] for c in h.changes], index)
    old = judge([c.old and c.old[0] for c in h.changes], index)
    covered = np.array([scanned[c.row["k"] // 3] >= 0 for c in h.changes], np.bool_)
    overlay = net([changes_table(h.changes, h.columns, h.key)], h.columns, h.key, Judgement(own, old, old, covered))
    result, unresolved = applied(base, overlay, h.columns, h.key)
    truth = {k: r for k, r in h.now.items() if scanned[k[0] // 3] >= 0}
    assert unresolved == {(k,) for k in holes(overlay)["k"].to_pylist()}, "every hole is known without the base"
    assert result == {k: r for k, r in truth.items() if k not in unresolved}
    if len(set(scanned)) == 1:
        assert not unresolved


def test_insert_after_delete_in_one_transaction_is_the_new_row() -> None:
    overlay = netted([Change(1, 10, Op.DELETE, {"k": 1}), Change(2, 10, Op.INSERT, row(1, "new"))])
    assert overlay.select(["k", "t", OP]).to_pylist() == [{"k": 1, "t": "new", OP: 1}]


def test_keys_that_swap_keep_their_own_toast_values() -> None:
    base = {(1,): row(1, "one"), (2,): row(2, "two")}
    swap = [
        Change(1, 10, Op.UPDATE, without_t(9), (T,), (1,)),
        Change(2, 10, Op.UPDATE, without_t(1), (T,), (2,)),
        Change(3, 10, Op.UPDATE, without_t(2), (T,), (9,)),
    ]
    result, unresolved = applied(base, netted(swap), COLUMNS, KEY)
    assert {k[0]: r["t"] for k, r in result.items()} == {1: "two", 2: "one"} and not unresolved


def test_a_chain_of_key_changes_leads_to_the_first_base_row() -> None:
    chain = [Change(i, 10, Op.UPDATE, without_t(i + 1, i), (T,), (i,)) for i in range(1, 6)]
    result, _ = applied({(1,): row(1, "kept")}, netted(chain), COLUMNS, KEY)
    assert result == {(6,): row(6, "kept", 5)}


def test_a_value_sent_before_is_used_instead_of_the_base() -> None:
    overlay = netted([Change(1, 10, Op.INSERT, row(1, "sent")), Change(2, 10, Op.UPDATE, without_t(2), (T,), (1,))])
    assert overlay.filter(pa.compute.field(OP) == 1)["t"].to_pylist() == ["sent"]
    assert overlay["__missing"].null_count == overlay.num_rows


def test_an_update_of_a_row_that_is_gone_is_a_hole_not_a_guess() -> None:
    overlay = netted([Change(1, 10, Op.DELETE, {"k": 1}), Change(2, 10, Op.UPDATE, without_t(1), (T,))])
    assert holes(overlay)["k"].to_pylist() == [1]


def test_no_changes_are_an_empty_overlay() -> None:
    assert net([], COLUMNS, KEY).num_rows == 0


@pytest.mark.parametrize(
    "type_", [pa.float64(), pa.decimal128(38, 2), pa.binary(), pa.timestamp("us", "UTC"), pa.bool_()]
)
def test_keys_of_every_type_have_numbers(type_: pa.DataType) -> None:
    from headwater.relation.net import _numbers

    values = pa.array([0, 1, 0, None], pa.int64())
    cast = pa.array([b"a", b"b", b"a", None]) if pa.types.is_binary(type_) else values.cast(type_)
    assert _numbers(cast).tolist() == [0, 1, 0, 2]
    if pa.types.is_floating(type_):
        assert _numbers(pa.array([0.0, -0.0])).tolist() == [0, 0]
