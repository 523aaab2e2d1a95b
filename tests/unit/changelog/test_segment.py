"""Segments: what is written is what is read, under the right schema version, once, in sequence."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.changelog import reader, retention, segment
from headwater.changelog.envelope import TableSource, envelope
from headwater.changelog.writer import WriterThread
from headwater.errors import DataError, FencedError, HeadwaterError, JobError, Retry, disk_full
from headwater.meta import segments
from headwater.model import Op
from headwater.source.postgres.upstream import PostgresUpstream
from support.log import Log
from support.messages import begin, commit, inbox, keepalive, relation, row, truncate
from support.owned import taken_over


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    it = Log(tmp_path)
    yield it
    it.home.meta.close()


def test_a_reader_of_one_table_gets_its_rows_in_index_order_and_range(log: Log) -> None:
    log.write(begin(101), relation(1, "a"), row("I", 1), relation(2, "b"), row("I", 2), row("U", 1), commit(200))
    log.write(begin(102), row("D", 1), truncate(2, 1), commit(300))
    assert [(r["index"], r["op"], r["txn"]) for r in log.read(1)] == [
        (1, Op.INSERT, 101),
        (3, Op.UPDATE, 101),
        (4, Op.DELETE, 102),
        (6, Op.TRUNCATE, 102),
    ]
    assert [r["index"] for r in log.read(2)] == [2, 5]
    assert [r["index"] for r in log.read(1, 1, 4)] == [3, 4]
    assert log.read(1, 1, 2) == []
    assert log.read(3) == []
    assert log.read(1)[0]["payload"] == row("I", 1)[25:]
    with log.home.meta.read() as c:
        paths = [s.path for s in segments.in_range(c, log.id, 0, 6)]
        assert [p.truncates for s in segments.in_range(c, log.id, 3, 6) for p in s.parts] == [1, 1]
    done = reader.read_transactions(log.home.storage, paths).to_pylist()
    assert [(t["txn"], t["commit"], t["first_index"], t["last_index"], t["changes"]) for t in done] == [
        (101, 200, 1, 3, 3),
        (102, 300, 4, 6, 3),
    ]


def test_a_row_belongs_to_the_schema_version_that_precedes_it_even_across_batches(log: Log) -> None:
    log.write(begin(101), relation(1, "a"), row("I", 1), relation(1, "a", "b"), row("I", 1), commit(200))
    log.write(begin(102), row("I", 1), relation(1, "a", "b"), row("I", 1), commit(300))  # said again: no new version
    log.write(begin(103), row("I", 1), relation(1, "c"))  # a piece that ends between a description and its row
    log.write(row("I", 1), commit(400))
    assert log.names(1) == [
        *((1, ("a",)), (2, ("a", "b")), (3, ("a", "b")), (4, ("a", "b"))),
        *((5, ("a", "b")), (6, ("c",))),
    ]
    with log.home.meta.read() as c:
        assert [s.from_index for s in segments.schemas(c, log.id)] == [1, 2, 6]


def test_a_new_flow_that_describes_a_table_again_makes_no_new_version(log: Log) -> None:
    log.write(begin(101), relation(1, "a"), row("I", 1), commit(200))
    log.writer = log.flow()
    log.write(begin(102), relation(1, "a"), row("I", 1), commit(300))
    with log.home.meta.read() as c:
        assert len(segments.schemas(c, log.id)) == 1


def test_rows_of_a_table_that_was_never_described_are_an_error(log: Log) -> None:
    with pytest.raises(JobError):
        log.write(begin(101), row("I", 9), commit(200))


def test_a_half_captured_transaction_is_cut_back_whole_and_its_indexes_are_used_again(log: Log) -> None:
    log.write(begin(101), relation(1, "a"), row("I", 1), commit(200))
    log.write(begin(102), row("I", 1), row("I", 1))
    assert (log.info().last_index, log.info().committed_index, log.info().position) == (3, 1, "0/C8")
    with log.home.meta.owned(log.lease) as c:
        dead = segments.cut_back(c, log.id)
    assert len(dead) == 1 and log.info().last_index == 1
    log.writer = log.flow()
    log.write(begin(102), relation(1, "a"), row("I", 1), row("U", 1), commit(300))
    assert [r["op"] for r in log.read(1)] == [Op.INSERT, Op.INSERT, Op.UPDATE]


def test_an_idle_position_moves_without_a_segment_and_never_backwards(log: Log) -> None:
    log.write(keepalive(500))
    log.write(keepalive(400))
    info = log.info()
    assert (info.position, info.resume_position, info.last_index) == ("0/1F4", "0/1F4", 0)
    assert list(log.home.storage.list("changelog")) == []


def test_an_owner_who_lost_the_lease_publishes_nothing_and_touches_no_file_of_the_new_one(log: Log) -> None:
    with log.home.meta.write() as c:
        new = taken_over(c, log.lease.name)
    stale, log.lease = log.writer, new
    log.writer = log.flow()
    messages = (begin(101), relation(1, "a"), row("I", 1), commit(200))
    log.write(*messages)
    with pytest.raises(FencedError):
        stale.write(*inbox([*messages, begin(102), row("I", 1), commit(300)]).arrays())
    with pytest.raises(FencedError):
        stale.write(*inbox([keepalive(900)]).arrays())
    assert log.info().last_index == 1 and log.info().position == "0/C8"
    assert len(log.read(1)) == 1


@pytest.mark.parametrize(
    ("number", "code"),
    [(errno.ENOSPC, "home.disk_full"), (errno.EDQUOT, "home.disk_full"), (errno.EIO, "home.unusable")],
)
def test_a_write_that_the_disk_refused_is_retried_and_says_why(
    log: Log, monkeypatch: pytest.MonkeyPatch, number: int, code: str
) -> None:
    write, refused = log.writer.write, [OSError(number, "reason")]

    def refusing(*arguments: Any) -> None:
        if refused:
            raise refused.pop()
        write(*arguments)

    monkeypatch.setattr(log.writer, "write", refusing)
    troubles: list[HeadwaterError | None] = []
    thread = WriterThread(log.writer, lambda: None, troubles.append)
    thread.hand_over(inbox([begin(101), relation(1, "a"), row("I", 1), commit(200)]), 4, 10**6)
    assert thread.wait_idle(20)
    thread.stop()
    first, last = troubles
    assert first is not None and (first.code, first.retry) == (code, Retry.AUTO) and last is None
    assert log.info().last_index == 1


def test_a_publication_whose_answer_was_lost_is_not_repeated(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    real = log.home.meta.write

    @contextmanager
    def deaf() -> Iterator[Any]:
        with real() as c:
            yield c
        raise disk_full("meta: disk I/O error")

    troubles: list[HeadwaterError | None] = []
    thread = WriterThread(log.writer, lambda: None, troubles.append)
    monkeypatch.setattr(log.home.meta, "write", deaf)
    thread.hand_over(inbox([begin(101), relation(1, "a"), row("I", 1), commit(200)]), 4, 10**6)
    while not troubles:
        assert not thread.wait_idle(0.01)
    monkeypatch.setattr(log.home.meta, "write", real)
    assert thread.wait_idle(20)
    assert troubles[0] is not None and troubles[0].code == "home.disk_full" and troubles[-1] is None
    thread.hand_over(inbox([begin(102), row("I", 1), commit(300)]), 3, 10**6)
    assert thread.wait_idle(20)
    thread.stop()
    assert [r["txn"] for r in log.read(1)] == [101, 102]


def test_a_segment_goes_only_when_nobody_needs_it_and_it_is_old(log: Log) -> None:
    for n in range(3):
        log.write(begin(101 + n), relation(1, "a"), row("I", 1), commit(200 + n))
    log.write(begin(110), row("I", 1), row("I", 1))

    def expire(needed_after: int, keep_s: float) -> int:
        return retention.expire(log.home.meta, log.home.storage, log.id, needed_after=needed_after, keep_s=keep_s)

    assert expire(needed_after=2, keep_s=3600) == 0
    assert expire(needed_after=2, keep_s=-1) == 2
    assert [r["index"] for r in log.read(1)] == [3, 4, 5]
    assert expire(needed_after=100, keep_s=-1) == 1  # never what is past the last commit
    assert len(list(log.home.storage.list("changelog"))) == 1
    assert log.info().last_index == 5


def test_a_segment_file_that_is_gone_or_damaged_is_a_clear_error(log: Log) -> None:
    log.write(begin(101), relation(1, "a"), row("I", 1), commit(200))
    (path,) = log.home.storage.list("changelog")
    Path(log.home.storage.address(path)).write_bytes(b"not a segment")
    for _ in range(2):
        with pytest.raises(DataError, match="changelog") as e:
            log.read(1)
        assert e.value.code == "data.history_missing"
        log.home.storage.remove([path])


def test_more_than_a_gigabyte_of_one_table_is_spread_over_several_batches(log: Log) -> None:
    from headwater.source.frames import FramedTo
    from headwater.source.postgres.frame import frame

    frames, _ = frame(*inbox([begin(1), relation(1, "a"), *[row("I", 1)] * 5, commit(9)]).arrays(), FramedTo(1, "0/1"))
    heavy = replace(frames, length=frames.length * 0 + (900 << 20))
    assert [g.rows.tolist() for g in segment.group(heavy, {})] == [[0], [1], [2], [3], [4]]
    assert [g.rows.tolist() for g in segment.group(frames, {})] == [[0, 1, 2, 3, 4]]


def test_the_envelope_shows_changes_as_debezium_does() -> None:
    changes = pa.table(
        {
            "id": pa.array([1, 2, 2, None], pa.int32()),
            "note": pa.array(["ä", None, None, None]),
            "at": pa.array([0, 86_400_000_000, None, None], pa.timestamp("us", tz="UTC")),
            "raw": pa.array([b"\0\1", None, None, None], pa.binary()),
            "__index": pa.array([5, 6, 7, 9]),
            "__txn": pa.array([101, 101, 101, 102]),
            "__op": pa.array([1, 2, 3, 4], pa.int8()),
            "__missing": pa.array([None, [1], None, None], pa.list_(pa.int32())),
            "__old": pa.array([None, {"id": 1}, None, None], pa.struct([("id", pa.int32())])),
        }
    )
    transactions = pa.table(
        {
            "last_index": [7, 9],
            "txn": [101, 102],
            "commit": [200, 300],
            "commit_time_us": [1_000_000, 2_000_000],
            "first_index": [5, 8],
            "changes": [3, 2],
        }
    )
    table_source = TableSource("0.1.0", "pg", "shop", "public", "t", PostgresUpstream.source_block)
    rows = envelope(changes, transactions, ["id"], table_source).to_pylist()
    assert [r["op"] for r in rows] == ["c", "u", "d", "t"]
    assert json.loads(rows[0]["after"]) == {"id": 1, "note": "ä", "at": "1970-01-01T00:00:00Z", "raw": "AAE="}
    assert rows[0]["before"] is None and rows[3]["before"] is None and rows[2]["after"] is rows[3]["after"] is None
    assert json.loads(rows[1]["before"]) == {"id": 1, "note": None, "at": None, "raw": None}
    assert json.loads(rows[1]["after"])["note"] == "__debezium_unavailable_value"
    assert json.loads(rows[2]["before"])["id"] == 2
    assert rows[0]["ts_ms"] == 946_684_801_000
    source = json.loads(rows[3]["source"])
    assert (source["connector"], source["txId"], source["lsn"], source["table"]) == ("postgresql", 102, 300, "t")
    assert json.loads(rows[3]["transaction"]) == {"id": "102", "total_order": 2}
    with pytest.raises(DataError):
        envelope(changes, transactions.slice(1), ["id"], table_source)
    named = changes.rename_columns(["id", "__note", *changes.column_names[2:]])
    (after,) = (
        json.loads(r["after"]) for r in envelope(named, transactions, ["id"], table_source).slice(1, 1).to_pylist()
    )
    assert after == {"id": 2, "__note": "__debezium_unavailable_value", "at": "1970-01-02T00:00:00Z", "raw": None}
