"""Several layers as one: of each key the newest row, whether it is there or gone."""

from __future__ import annotations

import pyarrow as pa

from headwater.model import Column, UpstreamType
from headwater.relation.layers import stacked
from support.relation import relation_of

RELATION = relation_of((Column("k", "BIGINT", UpstreamType("int8", 20)),), ("k",))


def layer(*rows: tuple[int | None, str]) -> pa.Table:
    return pa.table({"k": pa.array([k for k, _ in rows], pa.int64()), "v": [v for _, v in rows]})


def test_the_newest_row_of_each_key_counts_and_null_is_a_key() -> None:
    found = stacked(RELATION, [layer((1, "a"), (None, "b"), (2, "c")), layer((2, "d"), (3, "e")), layer((None, "f"))])
    assert sorted(found.to_pylist(), key=str) == [
        {"k": 1, "v": "a"},
        {"k": 2, "v": "d"},
        {"k": 3, "v": "e"},
        {"k": None, "v": "f"},
    ]
