"""What every upstream's scans promise: each row once, whatever the key and whatever happens meanwhile."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import numpy as np
import pytest

from headwater.backfill.read_span import scan_span
from headwater.backfill.span import WHOLE, one_key
from headwater.errors import DataError, HeadwaterError, Retry, SourceError
from headwater.model import Bound, Span
from support import turns, upstreams
from support.upstreams import Upstream
from support.wait import wait_for

pytestmark = turns.TAKEN


def saw(upstream: Upstream, seen: str, txn: int) -> bool:
    return bool(upstream.seam().sees(seen, np.array([txn], np.int64))[0])


def numbers(upstream: Upstream, rows: int) -> None:
    """A table `t` whose key counts from 1."""
    upstream.execute("CREATE TABLE t (id int PRIMARY KEY)")
    upstream.fill("t", rows, "i")


def texts(upstream: Upstream, rows: int, bytes: int) -> None:
    upstream.execute("CREATE TABLE t (id int PRIMARY KEY, b text)")
    upstream.fill("t", rows, f"i, repeat('x', {bytes})")


def test_a_scan_that_stops_at_every_batch_resumes_without_a_gap(upstream: Upstream, tmp_path: Path) -> None:
    """`test_plan` does it for every shape of key."""
    upstream.execute("CREATE TABLE t (id varchar(20) PRIMARY KEY, v int)")
    upstream.fill("t", 1000, "concat('K', i), i")
    table = upstream.bench(tmp_path, "t")
    first = scan_span(table.job(WHOLE, scan_s=0.0, batch_bytes=2_000))
    assert first.stopped_at is not None and 0 < first.rows < 1000
    found = [r["v"] for r in table.scan_all([WHOLE], scan_s=0.0, batch_bytes=4_000)]
    assert found == [v for (v,) in upstream.execute("SELECT v FROM t ORDER BY id")]


def test_a_scan_of_at_most_so_many_rows_hands_the_rest_back(upstream: Upstream, tmp_path: Path) -> None:
    numbers(upstream, 100)
    table = upstream.bench(tmp_path, "t")
    first = scan_span(table.job(WHOLE, max_rows=30))
    assert (first.rows, first.stopped_at) == (30, Bound(("30",)))
    assert [r["id"] for r in table.scan_all([WHOLE], max_rows=30)] == list(range(1, 101))
    assert scan_span(table.job(WHOLE, max_rows=101)).stopped_at is None
    upto = Span(Bound(("70",)), Bound(("100",)))
    assert scan_span(table.job(upto, max_rows=30)).stopped_at is None, "nothing was left"


def test_rows_beyond_the_limit_are_not_read_upstream(upstream: Upstream, tmp_path: Path) -> None:
    numbers(upstream, 50_000)
    table = upstream.bench(tmp_path, "t")
    before = upstream.rows_read("t")
    assert scan_span(table.job(WHOLE, max_rows=100)).rows == 100
    wait_for(lambda: upstream.rows_read("t") > before)
    assert upstream.rows_read("t") - before < 1000


def test_a_partitioned_table_is_read_through_its_root(upstream: Upstream, tmp_path: Path) -> None:
    for statement in upstream.partitions:
        upstream.execute(statement)
    upstream.fill("t", 1000, "i, i")
    upstream.analyse("t")
    table = upstream.bench(tmp_path, "t")
    parts = table.spans(table.plan(span_rows=200, span_bytes=1))
    assert len(parts) >= 6
    assert [r["v"] for r in table.scan_all(parts)] == list(range(1, 1001))


def test_each_scan_reads_the_rows_of_its_own_moment(upstream: Upstream, tmp_path: Path) -> None:
    """A snapshot that outlives its scan would read older rows than the next one says."""
    numbers(upstream, 3)
    table = upstream.bench(tmp_path, "t")
    first = scan_span(table.job(WHOLE))
    with table.reach.walk(table.table) as walk:
        assert walk.next_bound(None, Bound(("9",)), 4) is None
        txn = upstream.commit("INSERT INTO t VALUES (4)")
        assert walk.next_bound(None, Bound(("9",)), 4) == Bound(("4",))
    second = scan_span(table.job(WHOLE))
    assert [r["id"] for r in table.rows(second)] == [1, 2, 3, 4]
    assert (saw(upstream, first.saw, txn), saw(upstream, second.saw, txn)) == (False, True)
    number = upstream.seam().number
    assert number(first.high) <= number(second.high)


def test_a_truncate_waits_for_the_scan_and_is_unseen(upstream: Upstream, tmp_path: Path) -> None:
    """The lock comes before the snapshot, so no TRUNCATE lies between them and leaves nothing to see."""
    numbers(upstream, 50)
    table = upstream.bench(tmp_path, "t")
    truncated: list[int] = []
    truncating = threading.Thread(target=lambda: truncated.append(upstream.commit("TRUNCATE TABLE t")))

    def hooks(point: str) -> None:
        if point == "scan.after_snapshot":
            truncating.start()
            wait_for(lambda: upstream.waits("TRUNCATE TABLE t"), "it waits", 10)

    first = scan_span(table.job(WHOLE), hooks)
    truncating.join(20)
    (txn,) = truncated
    second = scan_span(table.job(WHOLE))
    assert [r["id"] for r in table.rows(first)] == list(range(1, 51)) and table.rows(second) == []
    assert (saw(upstream, first.saw, txn), saw(upstream, second.saw, txn)) == (False, True)


def test_a_locked_table_is_retried_later(upstream: Upstream, tmp_path: Path) -> None:
    numbers(upstream, 1)
    table = upstream.bench(tmp_path, "t")
    with upstream.locked("t"):
        with pytest.raises(SourceError) as e:
            scan_span(table.job(WHOLE, lock_timeout_s=1.0))
        assert (e.value.code, e.value.retry) == ("source.lock_timeout", Retry.AUTO)


def test_a_session_that_ends_in_mid_stream_is_retried_and_leaves_no_file(upstream: Upstream, tmp_path: Path) -> None:
    texts(upstream, 2000, 20_000)
    table = upstream.bench(tmp_path, "t")
    for how in upstream.endings:
        ended: list[int] = []

        def end(point: str, how: str = how, ended: list[int] = ended) -> None:
            if point == "scan.batch" and not ended:
                ended += upstream.scanning()
                upstream.execute(how.format(ended[0]))

        with pytest.raises(SourceError) as e:
            scan_span(table.job(WHOLE, batch_bytes=100_000), end)
        assert len(ended) == 1 and (e.value.code, e.value.retry) == ("source.disconnected", Retry.AUTO)
        assert not list((tmp_path / "base").glob("*"))


def test_a_scan_that_is_stopped_leaves_no_session_behind(upstream: Upstream, tmp_path: Path) -> None:
    texts(upstream, 2000, 20_000)
    table = upstream.bench(tmp_path, "t")
    assert scan_span(table.job(WHOLE, scan_s=0.0, batch_bytes=100_000)).stopped_at is not None
    wait_for(lambda: not upstream.scanning(), "the query ends", 10)


def test_a_failure_at_any_point_leaves_neither_file_nor_transaction(upstream: Upstream, tmp_path: Path) -> None:
    numbers(upstream, 1000)
    table = upstream.bench(tmp_path, "t")
    points: list[str] = []
    scan_span(table.job(WHOLE), hooks=points.append)
    (tmp_path / "base").rename(tmp_path / "kept")
    for point in dict.fromkeys(points):

        def fail(at: str, point: str = point) -> None:
            if at == point:
                raise RuntimeError(point)

        with pytest.raises(RuntimeError, match=point):
            scan_span(table.job(WHOLE), hooks=fail)
        assert not list((tmp_path / "base").glob("*")), point
    assert points[0] == "scan.before_snapshot" and points[-1] == "scan.after_message"
    wait_for(lambda: not upstream.scanning(), "no session is left", 10)
    with upstream.locked("t"):  # nor a lock
        pass


def test_a_column_dropped_upstream_is_null(upstream: Upstream, tmp_path: Path) -> None:
    upstream.execute("CREATE TABLE t (id int PRIMARY KEY, gone int, also json, v int)")
    upstream.execute("INSERT INTO t VALUES (1, 2, '{}', 3)")
    table = upstream.bench(tmp_path, "t")
    upstream.execute("ALTER TABLE t DROP COLUMN gone, DROP COLUMN also")
    assert table.scan_all([WHOLE]) == [{"id": 1, "gone": None, "also": None, "v": 3}]


def test_a_widened_column_is_read_as_it_is_now(upstream: Upstream, tmp_path: Path) -> None:
    upstream.execute("CREATE TABLE t (id int PRIMARY KEY, v varchar(3), w text)")
    upstream.execute("INSERT INTO t VALUES (1, 'abc', 'x')")
    table = upstream.bench(tmp_path, "t")
    upstream.execute(upstream.lengthen)
    upstream.execute("ALTER TABLE t ADD COLUMN extra int DEFAULT 3")
    upstream.execute("UPDATE t SET v = 'abcdef'")
    assert table.scan_all([WHOLE]) == [{"id": 1, "v": "abcdef", "w": "x"}]


@upstreams.each(lambda kind: kind.reforms, "reform")
def test_a_table_that_became_another_is_not_read_as_the_old_one(
    upstream: Upstream, reform: tuple[str, str], tmp_path: Path
) -> None:
    upstream.execute(f"CREATE TABLE t ({upstream.formed})")
    upstream.execute("INSERT INTO t VALUES (1, 2, 'x')")
    table = upstream.bench(tmp_path, "t")
    statement, code = reform
    upstream.execute(statement)
    with pytest.raises(DataError) as e:
        scan_span(table.job(WHOLE))
    assert e.value.code == code and "RESYNC TABLE" in e.value.hint


def test_another_server_is_refused(upstream: Upstream, tmp_path: Path) -> None:
    numbers(upstream, 1)
    table = upstream.bench(tmp_path, "t")
    for identity in upstream.strangers:
        with pytest.raises(SourceError) as e:
            scan_span(table.job(WHOLE, identity=identity))
        assert e.value.code == "source.replaced", identity


def test_a_key_that_cannot_be_kept_stops_the_table(upstream: Upstream, tmp_path: Path) -> None:
    type, lost, kept = upstream.lossy_key
    upstream.execute(f"CREATE TABLE t (id {type} PRIMARY KEY)")
    upstream.lenient(f"INSERT INTO t VALUES ({lost}), ({kept})")
    table = upstream.bench(tmp_path, "t")
    with pytest.raises(DataError) as e:
        scan_span(table.job(WHOLE))
    assert e.value.code == "data.key_value"
    assert not list((tmp_path / "base").glob("*"))


def test_a_job_travels_to_a_task_and_its_repr_hides_the_password(upstream: Upstream, tmp_path: Path) -> None:
    numbers(upstream, 1)
    job = upstream.bench(tmp_path, "t").job(one_key(("1",)))
    assert pickle.loads(pickle.dumps(job)) == job
    assert "password" not in repr(job)


def test_a_refusal_names_no_key_value(upstream: Upstream, tmp_path: Path) -> None:
    numbers(upstream, 1)
    table = upstream.bench(tmp_path, "t")
    with pytest.raises(HeadwaterError) as e:
        scan_span(table.job(one_key(("not-a-number-4711",))))
    assert "4711" not in str(e.value) and "4711" not in e.value.hint
