"""Snapshots: who was seen, asked for many transactions at once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headwater.source.postgres.scan.snapshot import Snapshot, sees

XIDS = st.integers(3, 2**62)


def test_a_snapshot_reads_and_writes_the_databases_own_form() -> None:
    assert Snapshot.parse("10:20:12,15") == Snapshot(10, 20, (12, 15))
    assert Snapshot.parse("10:10:") == Snapshot(10, 10, ())
    assert str(Snapshot.parse("10:20:15,12")) == "10:20:12,15"
    assert Snapshot.parse("10:20:12").txn_min == 10


@given(st.data())
def test_seen_is_below_xmin_or_over_before_xmax(data: st.DataObject) -> None:
    xmin = data.draw(XIDS)
    xmax = data.draw(st.integers(xmin, xmin + 10))
    xip = data.draw(st.sets(st.integers(xmin, xmax - 1))) if xmax > xmin else set()
    snapshot = Snapshot(xmin, xmax, tuple(sorted(xip)))
    txn = np.arange(xmin - 2, xmax + 3, dtype=np.int64)
    expected = [x < xmin or (x < xmax and x not in xip) for x in txn.tolist()]
    assert snapshot.sees(txn).tolist() == expected
    assert sees(str(snapshot), txn).tolist() == expected
