"""Random JSON documents of MySQL and MariaDB, whole and in part, against what the servers print."""

from __future__ import annotations

import json
import random
from typing import Any

from headwater.decode.changes import decode_changes
from support.mysql import MyDatabase
from support.mysql_types import TABLE
from support.mysql_values import TableLog, columns_of
from support.random_values import text

DOCUMENTS = 250
PATCHED = 100


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
