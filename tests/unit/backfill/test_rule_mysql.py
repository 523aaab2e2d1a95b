"""The backfill rule over MySQL's and MariaDB's numbers: a place in the log instead of a snapshot."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headwater.backfill.span import WHOLE
from headwater.model import Column, CoveredSpan, Layout, Span, UpstreamType
from headwater.source.mysql.upstream import MysqlUpstream
from support.history import Key, read
from support.history_mysql import PlacedModel

INT = (Column("id", "INT", UpstreamType("int", 3, dialect="mysql", ordered=True), False),)
KEYS: list[Key] = [(i,) for i in range(8)]


def lake(model: PlacedModel, spans: list[Span], epoch: int, sees: object = MysqlUpstream.sees) -> dict[Key, int]:
    """What a reader gets after the first `epoch` commits."""
    covered = [(spans[i], scan) for i, scan in sorted(model.scans.items()) if scan.high <= epoch]
    parts = tuple(CoveredSpan(span, 0, 0, (scan.saw,)) for span, scan in covered)
    base = {k: v for _, scan in covered for k, v in scan.rows.items()}
    log = [c for c in model.log if c.index <= model.index_at(epoch)]
    return read(Layout(1, 0, parts, len(parts) == len(spans)), INT, base, log, sees=sees)  # type: ignore[arg-type]


def between_log_and_visibility() -> PlacedModel:
    """A commit that is in the log before the scan, and visible only after it; a later one is visible already."""
    model = PlacedModel(KEYS, dict.fromkeys(KEYS, 0), 1, {(3,): 7, (4,): 7})
    for who, key in ((0, 3), (1, 4)):
        model.begin()
        model.write(who, (key,), (key,), 8)
    model.commit_record(0)
    model.commit_record(0)
    model.end(1)
    model.scan(0)
    model.end(0)
    return model


def test_a_commit_between_the_log_and_visibility_counts() -> None:
    model = between_log_and_visibility()
    assert model.scans[0].rows == {(3,): 7, (4,): 8}
    assert lake(model, [WHOLE], 2) == {(3,): 8, (4,): 8} == model.state_at(2)


def test_the_end_of_the_log_as_a_scans_place_would_lose_it() -> None:
    """The test above bites: with where the log ended instead of a proven place the row stays old."""
    model = between_log_and_visibility()
    end = model.address_of(2)

    def by_end(_: str, txn: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        return txn < end

    assert lake(model, [WHOLE], 2, by_end) == {(3,): 7, (4,): 8} != model.state_at(2)


def test_what_a_scan_saw_begins_with_the_first_transaction_that_it_may_not_have_seen() -> None:
    saw = "binlog.000007:104"
    assert MysqlUpstream.txn_min(saw) == 7 << 36 | 104
    assert MysqlUpstream.sees(saw, np.array([7 << 36 | 4, 7 << 36 | 104, 6 << 36 | 900])).tolist() == [
        True,
        False,
        True,
    ]
