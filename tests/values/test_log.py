"""What a change says of its row, over every upstream: updates, deletes, key changes, and keys that cannot be kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.decode.changes import decode_changes
from headwater.errors import DataError
from headwater.model import Op
from support.upstreams import Upstream


def test_updates_deletes_and_key_changes_are_told_apart(upstream: Upstream) -> None:
    upstream.execute("CREATE TABLE t (v varchar(300), b int, n int, a varchar(9), PRIMARY KEY (a, b))")
    log = upstream.log("t")
    for statement in (
        "INSERT INTO t VALUES ('x', 1, NULL, 'k'), (NULL, 2, 5, 'k')",
        "UPDATE t SET n = 7",
        "UPDATE t SET a = 'K', v = NULL WHERE b = 1",
        "DELETE FROM t WHERE b = 2",
        "TRUNCATE TABLE t",
    ):
        upstream.execute(statement)
    changes = log.changes(upstream.columns("t"), ("a", "b"))
    rows = changes.table.to_pylist()
    log.close()
    assert [(r["__op"], r["v"], r["b"], r["n"], r["a"], r["__old"]) for r in rows] == [
        (Op.INSERT, "x", 1, None, "k", None),
        (Op.INSERT, None, 2, 5, "k", None),
        (Op.UPDATE, "x", 1, 7, "k", None),
        (Op.UPDATE, None, 2, 7, "k", None),
        (Op.UPDATE, None, 1, 7, "K", {"a": "k", "b": 1}),
        (Op.DELETE, None, 2, None, "k", None),
        (Op.TRUNCATE, None, None, None, None, None),
    ]
    assert all(r["__missing"] is None for r in rows) and changes.unrepresentable == {}


def test_a_key_that_the_lake_cannot_keep_is_an_error_from_scan_and_log(upstream: Upstream, tmp_path: Path) -> None:
    type, lost, _ = upstream.lossy_key
    upstream.execute(f"CREATE TABLE t (id {type} PRIMARY KEY, n int)")
    log, columns = upstream.log("t"), upstream.columns("t")
    upstream.lenient(f"INSERT INTO t VALUES ({lost}, 1)")
    raw = log.read()
    log.close()
    with pytest.raises(DataError, match="id") as caught:
        decode_changes(raw, log.schemas, columns, ("id",))
    assert caught.value.code == "data.key_value"
    with pytest.raises(DataError) as caught:
        upstream.bench(tmp_path, "t").read()
    assert caught.value.code == "data.key_value"
    text = {"id": "STRING"}
    logged = decode_changes(raw, log.schemas, upstream.columns("t", text), ("id",)).table.column("id").to_pylist()
    scanned = upstream.bench(tmp_path, "t", lake=text).read()[0].column("id").to_pylist()
    assert logged == scanned == [lost.strip("'")]
