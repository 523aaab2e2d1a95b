"""Every predicate gives the same rows with our file statistics as without any: hazards 44 and 57, in Spark."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from headwater.backfill.files import FileWriter
from headwater.model import DataFile
from headwater.storage import LocalStorage
from support.owned import PERMIT
from support.upstreams import new_seed

COLUMNS = {
    "id": ("INT", pa.int32()),
    "big": ("BIGINT", pa.int64()),
    "price": ("DECIMAL(10,2)", pa.decimal128(10, 2)),
    "wide": ("DECIMAL(38,18)", pa.decimal128(38, 18)),
    "day": ("DATE", pa.date32()),
    "moment": ("TIMESTAMP", pa.timestamp("us", "UTC")),
    "local": ("TIMESTAMP_NTZ", pa.timestamp("us")),
    "name": ("STRING", pa.string()),
    "long": ("STRING", pa.string()),
    "ratio": ("DOUBLE", pa.float64()),
    "flag": ("BOOLEAN", pa.bool_()),
    "raw": ("BINARY", pa.binary()),
}
SCHEMA = pa.schema([(name, kind) for name, (_, kind) in COLUMNS.items()])
FILES, ROWS = 6, 8


def value(r: random.Random, name: str, file: int) -> Any:
    """Values that lie close together within a file, so that files can be skipped, with the awkward ones among them."""
    if r.random() < (0.9 if name == "long" and file == 2 else 0.1):
        return None
    us = timedelta(microseconds=file * 5_000_000 + r.choice([0, 1, 499, 999, 1000, 123456]))
    return {
        "id": lambda: file * 100 + r.randrange(10),
        "big": lambda: r.choice([-(2**63), 2**63 - 1, file]) if file == 0 else file * 2**58 + r.randrange(9),
        "price": lambda: Decimal(file * 1000 + r.randrange(100)).scaleb(-2),
        "wide": lambda: Decimal(file * 10**35 + r.choice([1, 10**17 + 1, 999])).scaleb(-18),
        "day": lambda: (
            r.choice([date(1, 1, 1), date(9999, 12, 31)]) if file == 3 else date(2020, 2, 27) + timedelta(file)
        ),
        "moment": lambda: datetime(2024, 3, 31, 0, 59, 59, tzinfo=UTC) + us,
        "local": lambda: datetime(1999, 12, 31, 23, 59, 59) + us,
        "name": lambda: r.choice(["a", "Z", "é", "z\u0301", "\U0001f600", "", " x"]) + "m" * r.randrange(3) + str(file),
        "long": lambda: "x" * 32 + r.choice(["", "a", "\uffff", "\U0001f600"]) + str(file),
        "ratio": lambda: r.choice([float("nan"), float("inf"), -0.0, file * 1.5]),
        "flag": lambda: r.random() < 0.5,
        "raw": lambda: bytes([file, r.randrange(256)]),
    }[name]()


def literal(name: str, v: Any) -> str:
    kind = COLUMNS[name][0]
    if kind in ("STRING",):
        return "'" + v.replace("'", "''") + "'"
    if kind == "BINARY":
        return f"X'{v.hex()}'"
    if kind == "TIMESTAMP":
        return f"TIMESTAMP'{v:%Y-%m-%d %H:%M:%S.%f}Z'"
    if kind == "TIMESTAMP_NTZ":
        return f"TIMESTAMP_NTZ'{v:%Y-%m-%d %H:%M:%S.%f}'"
    if kind == "DATE":
        return f"DATE'{v.isoformat()}'"
    if kind == "DOUBLE":
        return f"CAST('{v}' AS DOUBLE)"
    return f"CAST('{v}' AS {kind})"


def predicates(r: random.Random, rows: list[dict[str, Any]], count: int) -> list[str]:
    found = []
    for i in range(count):
        name = list(COLUMNS)[i % len(COLUMNS)]
        a, b = (literal(name, v) for v in r.choices([row[name] for row in rows if row[name] is not None], k=2))
        forms = [f"{name} {op} {a}" for op in ("=", "<", "<=", ">", ">=", "<>", "<=>")]
        forms += [f"{name} IS NULL", f"{name} IS NOT NULL", f"{name} IN ({a}, {b})", f"{name} BETWEEN {a} AND {b}"]
        if COLUMNS[name][0] == "STRING":
            forms += [f"{name} LIKE '{'x' * 32}%'", f"startswith({name}, {a})", f"{name} > 'x{'x' * 31}'"]
        found.append(r.choice(forms))
    return found


@pytest.fixture
def session(spark: Any) -> Any:
    return spark


def create_base(session: Any, path: Path) -> str:
    columns = ", ".join(f"`{n}` {ddl}" for n, (ddl, _) in COLUMNS.items())
    session.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta")
    return str(path)


def add(path: str, files: list[DataFile]) -> None:
    table = DeltaTable(path)
    actions = [AddAction(f.path, f.bytes, {}, 0, True, f.stats) for f in files]
    table.create_write_transaction(actions, "append", table.schema())


def test_every_predicate_gives_the_same_rows_with_and_without_statistics(session: Any, tmp_path: Path) -> None:
    r = random.Random(new_seed())
    path = create_base(session, tmp_path / "base")
    rows, files = [], []
    for file in range(FILES):
        part = [{name: value(r, name, file) for name in COLUMNS} for _ in range(ROWS)]
        with FileWriter(LocalStorage(tmp_path), "base", SCHEMA, PERMIT, "scan-1") as writer:
            for at in range(0, ROWS, 4):
                writer.write(pa.RecordBatch.from_pylist(part[at : at + 4], SCHEMA))
            files += writer.close()
        rows += part
    add(path, files)
    asked = ["ratio = 0", "ratio IN (-0.0D, 4.5D)"]
    asked += ["ratio > 5", "ratio >= CAST('nan' AS DOUBLE)", f"long = '{'x' * 32}a1'", *predicates(r, rows, 24)]
    session.createDataFrame(pa.Table.from_pylist(rows, SCHEMA)).createOrReplaceTempView("plain")
    expected = session.sql("SELECT " + ", ".join(f"count_if({p})" for p in asked) + " FROM plain").collect()[0]
    found = [session.sql(f"SELECT * FROM delta.`{path}` WHERE {p}").count() for p in asked]
    wrong = [(p, e, f) for p, e, f in zip(asked, expected, found, strict=True) if e != f]
    assert not wrong
    ends = ", ".join(
        f"min({n}), max({n}), count({n})" for n in COLUMNS if n not in ("flag", "raw", "ratio")
    )  # -0.0 = 0.0
    assert str(session.sql(f"SELECT {ends} FROM delta.`{path}`").collect()) == str(
        session.sql(f"SELECT {ends} FROM plain").collect()
    )


def test_a_skipped_file_is_really_skipped(session: Any, tmp_path: Path) -> None:
    """The test above would prove nothing if Spark ignored our statistics."""
    path = create_base(session, tmp_path / "base")
    files = []
    for file in range(3):
        with FileWriter(LocalStorage(tmp_path), "base", SCHEMA, PERMIT, "scan-1") as writer:
            row = dict.fromkeys(COLUMNS) | {
                "id": file,
                "name": f"n{file}",
                "wide": Decimal(f"{file}.000000000000000001"),
                "moment": datetime(2024, 1, 1 + file, microsecond=1, tzinfo=UTC),
                "local": datetime(2024, 1, 1 + file),
                "day": date(2024, 1, 1 + file),
            }
            writer.write(pa.RecordBatch.from_pylist([row], SCHEMA))
            files += writer.close()
    add(path, files)
    for predicate in (
        "id = 1",
        "name = 'n1'",
        "wide = 1.000000000000000001",
        "moment = TIMESTAMP'2024-01-02 00:00:00.000001Z'",
        "local = TIMESTAMP_NTZ'2024-01-02 00:00:00'",
        "day = DATE'2024-01-02'",
    ):
        frame = session.sql(f"SELECT * FROM delta.`{path}` WHERE {predicate}")
        assert (frame.count(), len(frame.inputFiles())) == (1, 1), predicate
