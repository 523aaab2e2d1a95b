"""Values that the lake cannot keep are counted once each, whoever decodes them and however often."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.engine.query.read import Reader
from headwater.meta import progress, relations
from headwater.model import Column, RelationInfo, UpstreamType
from support.defined import add_table
from support.log import Log
from support.messages import begin, commit, data, row

COLUMNS = (
    Column("id", "INT", UpstreamType("int4", 23, ordered=True), False),
    Column("d", "DATE", UpstreamType("date", 1082)),
)


def described() -> bytes:
    body = b"R" + struct.pack("!I", 1) + b"public\0t\0d" + struct.pack("!H", 2)
    return data(body + b"\1id\0" + struct.pack("!Ii", 23, -1) + b"\0d\0" + struct.pack("!Ii", 1082, -1))


def inserted(id: int, day: str) -> bytes:
    values = b"".join(b"t" + struct.pack("!I", len(v)) + v for v in (str(id).encode(), day.encode()))
    return row("I", 1, b"N" + struct.pack("!H", 2) + values)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    it = Log(tmp_path)
    with it.home.meta.write() as c:
        add_table(c, "t", COLUMNS, ("id",), connection_id=it.id)
    yield it
    it.home.meta.close()


def table(log: Log) -> RelationInfo:
    with log.home.meta.read() as c:
        return relations.get(c, 1)


def counted(log: Log) -> int:
    with log.home.meta.read() as c:
        return progress.notices(c, "value.unrepresentable").get(1, 0)


def reader(log: Log) -> Reader:
    """A reader as a new process has it: it remembers nothing."""
    return Reader(log.home, lambda: None)  # type: ignore[arg-type,return-value]


def rows_of(reader: Reader, log: Log, after: int, upto: int) -> pa.Table:
    return pa.concat_tables([s.table for s in reader.overlays.changes.slices(table(log), after, upto)])


def test_what_somebody_reads_for_a_purpose_of_their_own_is_not_counted(log: Log) -> None:
    log.write(begin(101), described(), inserted(1, "infinity"), commit(200))
    (part,) = reader(log).overlays.changes.slices(table(log), 0, 1, apart=True)
    assert part.table.num_rows == 1 and counted(log) == 0
    assert rows_of(reader(log), log, 0, 1).num_rows == 1 and counted(log) == 1


def test_a_value_is_counted_once_though_it_is_decoded_again_and_again(log: Log) -> None:
    for n in range(4):
        log.write(begin(101 + n), described(), inserted(n, "infinity" if n % 2 else "2026-01-01"), commit(200 + n))
    first = reader(log)
    assert rows_of(first, log, 0, 3).num_rows == 3
    assert counted(log) == 1
    assert rows_of(first, log, 0, 4).num_rows == 4
    assert counted(log) == 2
    again = reader(log)
    assert rows_of(again, log, 0, 2).num_rows == 2
    assert rows_of(again, log, 0, 4).num_rows == 4
    assert rows_of(reader(log), log, 1, 4).num_rows == 3
    assert counted(log) == 2
    log.write(begin(110), inserted(9, "-infinity"), commit(300))
    rows = rows_of(reader(log), log, 0, 5)
    assert rows["id"].to_pylist() == [0, 1, 2, 3, 9]
    assert counted(log) == 3
