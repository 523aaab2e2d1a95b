"""Random values of many MySQL and MariaDB types: what a scan gives, the log gives, to the bit."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater.decode.changes import decode_changes
from headwater.model import Span
from support.mysql import MyDatabase
from support.mysql_case import quoted
from support.mysql_scan import bench
from support.mysql_types import TABLE
from support.mysql_values import TableLog, columns_of, run, same

ROWS = 300
DOCUMENTS = 250
PATCHED = 100


def text(r: random.Random, low: int = 32, high: int = 0x2FFF) -> str:
    return "".join(chr(r.randint(low, high)) for _ in range(r.randint(0, 12)))


def clock(r: random.Random, digits: int) -> str:
    return f"{r.randint(0, 23):02}:{r.randint(0, 59):02}:{r.randint(0, 59):02}.{r.randint(0, 10**digits - 1):0{digits}}"


def day(r: random.Random) -> str:
    return f"{r.randint(0, 9999):04}-{r.randint(0, 12):02}-{r.randint(0, 31):02}"


def digits(r: random.Random, whole: int, fraction: int) -> str:
    sign = r.choice(["", "-"])
    return f"{sign}{r.randint(0, 10 ** r.randint(0, whole) - 1)}.{r.randint(0, 10**fraction - 1):0{fraction}}"


def blob(r: random.Random, most: int) -> str:
    return f"x'{r.randbytes(r.randint(0, most)).hex()}'"


TYPES: dict[str, Callable[[random.Random], str]] = {
    "tinyint": lambda r: str(r.randint(-(2**7), 2**7 - 1)),
    "tinyint(1)": lambda r: str(r.randint(-1, 2)),
    "smallint unsigned": lambda r: str(r.randint(0, 2**16 - 1)),
    "mediumint": lambda r: str(r.randint(-(2**23), 2**23 - 1)),
    "bigint": lambda r: str(r.randint(-(2**63), 2**63 - 1)),
    "bigint unsigned": lambda r: str(r.randint(0, 2**64 - 1)),
    "decimal(20,5)": lambda r: digits(r, 15, 5),
    "decimal(38,19)": lambda r: digits(r, 19, 19),
    "decimal(60,25)": lambda r: digits(r, 35, 25),
    "float": lambda r: f"{r.uniform(-10, 10)}e{r.randint(-30, 30)}",
    "double": lambda r: f"{r.uniform(-10, 10)}e{r.randint(-300, 300)}",
    "bit(19)": lambda r: str(r.randint(0, 2**19 - 1)),
    "char(20)": lambda r: quoted(text(r)),
    "varchar(20)": lambda r: quoted(text(r)),
    "varchar(30) CHARACTER SET latin1": lambda r: quoted(text(r, 32, 126)),
    "mediumtext CHARACTER SET utf16": lambda r: quoted(text(r)),
    "binary(9)": lambda r: blob(r, 9),
    "varbinary(300)": lambda r: blob(r, 300),
    "blob": lambda r: blob(r, 99),
    "date": lambda r: f"'{day(r)}'",
    "datetime(5)": lambda r: f"'{day(r)} {clock(r, 5)}'",
    "timestamp(2) NULL": lambda r: (
        f"'20{r.randint(0, 37):02}-{r.randint(1, 12):02}-{r.randint(1, 28):02} {clock(r, 2)}'"
    ),
    "time(4)": lambda r: f"'{r.choice(['', '-'])}{r.randint(0, 837)}{clock(r, 4)[2:]}'",
    "year": lambda r: str(r.choice([0, r.randint(1901, 2155)])),
    "enum('a','b','ü')": lambda r: str(r.randint(1, 3)),
    "set('a','b','ü')": lambda r: str(r.randint(0, 7)),
}


def test_scan_and_log_agree_to_the_bit(my_database: MyDatabase, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    r = random.Random(seed)
    names = {f"c{i}": t for i, t in enumerate(TYPES)}
    my_database.execute(
        f"CREATE TABLE t (id int PRIMARY KEY, {', '.join(f'{n} {t}' for n, t in names.items())}) {TABLE}"
    )
    log = TableLog(my_database, "t")
    rows = (", ".join("NULL" if r.random() < 0.1 else TYPES[t](r) for t in names.values()) for _ in range(ROWS))
    run(my_database, f"INSERT INTO t VALUES {', '.join(f'({i}, {row})' for i, row in enumerate(rows))}")
    run(my_database, "UPDATE t SET id = id + 1000")
    changes = log.changes(columns_of(my_database, "t"))
    logged = changes.table.select(["id", *names]).to_pylist()
    scanned = bench(my_database, tmp_path, "t").scan_all([Span(None, None)])
    inserted, updated = logged[:ROWS], logged[ROWS:]
    wrong = [
        (names[n], s[n], i[n], u[n])
        for s, i, u in zip(scanned, inserted, updated, strict=True)
        for n in names
        if not (same(s[n], i[n]) and same(s[n], u[n]))
    ]
    assert not wrong
    assert changes.table.column("__old").to_pylist()[ROWS:] == [{"id": i} for i in range(ROWS)]


def document(r: random.Random, depth: int = 0) -> Any:
    kind = r.random()
    if depth > 3 or kind < 0.5:
        numbers = [r.randint(-(2**63), 2**64 - 1), r.randint(-40_000, 70_000), r.random() * 10.0 ** r.randint(-30, 30)]
        return r.choice([None, True, False, *numbers, text(r, 0), "x" * r.choice([127, 128, 20_000])])
    if kind < 0.75:
        return [document(r, depth + 1) for _ in range(r.choice([0, 1, 5]))]
    return {text(r, 0): document(r, depth + 1) for _ in range(r.choice([0, 1, 5]))}


def test_documents_are_printed_as_the_server_prints_them(my_database: MyDatabase) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    r = random.Random(seed)
    my_database.execute(f"CREATE TABLE t (id int PRIMARY KEY, j json) {TABLE}")
    log = TableLog(my_database, "t")
    with my_database.connect() as connection, connection.cursor() as cursor:
        for i in range(DOCUMENTS):
            cursor.execute("INSERT INTO t VALUES (%s, %s)", (i, json.dumps(document(r), ensure_ascii=r.random() < 0.5)))
    logged = log.changes(columns_of(my_database, "t")).table.column("j").to_pylist()
    assert logged == [j for (j,) in my_database.execute("SELECT CONCAT(j) FROM t ORDER BY id")]


def test_partial_updates_of_documents_become_whole_ones(mysql_database: MyDatabase) -> None:
    """Paths that are there or not, in documents of every shape: the log tells differences where the server can."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    r = random.Random(seed)
    mysql_database.execute(f"CREATE TABLE t (id int PRIMARY KEY, a json, n varchar(99), b json) {TABLE}")
    log = TableLog(mysql_database, "t")
    with mysql_database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION binlog_row_value_options = 'PARTIAL_JSON'")
        for i in range(PATCHED):
            old = {"k": document(r), "ä.b": [document(r), document(r)], "l": "x" * 99}
            cursor.execute("INSERT INTO t VALUES (%s, %s, 'n', %s)", (i, json.dumps(old), json.dumps([old])))
            new = json.dumps(document(r, 2))
            path = r.choice(["$.k", '$."ä.b"[1]', '$."ä.b"[9]', "$.new", "$"])
            cursor.execute("UPDATE t SET a = JSON_SET(a, %s, CAST(%s AS JSON)) WHERE id = %s", (path, new, i))
            cursor.execute("UPDATE t SET b = JSON_REMOVE(b, '$[0].k', '$[0].\"ä.b\"[0]'), n = %s WHERE id = %s", (i, i))
    raw = log.read()
    changes = decode_changes(raw, log.schemas, columns_of(mysql_database, "t"), ("id",)).table.to_pylist()
    last = {c["id"]: (c["a"], c["n"], c["b"]) for c in changes}
    found = mysql_database.execute("SELECT id, CONCAT(a), n, CONCAT(b) FROM t")
    assert last == {i: tuple(rest) for i, *rest in found}
