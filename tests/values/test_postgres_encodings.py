"""Databases whose encoding is not UTF-8."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from headwater.demo.embedded import EmbeddedPostgres
from support.values import Log, columns_of, scan


@dataclass(frozen=True)
class Database:
    server: EmbeddedPostgres
    name: str

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        return self.server.execute(statement, self.name)


@pytest.fixture(params=["LATIN1", "SQL_ASCII"])
def encoded(request: pytest.FixtureRequest, pg: EmbeddedPostgres) -> Iterator[tuple[str, Database, Log]]:
    name = f"enc_{request.param.lower()}"
    pg.execute(f"CREATE DATABASE {name} ENCODING '{request.param}' LOCALE 'C' TEMPLATE template0")
    database = Database(pg, name)
    database.execute("CREATE TABLE e (id int PRIMARY KEY, v text, l text[])")
    log = Log(database, "e")
    yield request.param, database, log
    log.close()
    pg.execute(f"SELECT pg_drop_replication_slot('{log.slot}')")
    pg.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_text_of_another_encoding_comes_as_utf8_from_scan_and_log(encoded: tuple[str, Database, Log]) -> None:
    encoding, database, log = encoded
    umlaut = "chr(252)" if encoding == "LATIN1" else r"E'\xc3\xbc'"
    database.execute(f"INSERT INTO e VALUES (1, {umlaut}, ARRAY[{umlaut}])")
    columns = columns_of(database, "e")
    scanned, _ = scan(database, "e", columns, "id")
    changes = log.changes(columns, ("id",))
    assert scanned.to_pylist() == [{"id": 1, "v": "ü", "l": ["ü"]}]
    assert changes.table.select(["id", "v", "l"]).to_pylist() == scanned.to_pylist()


@pytest.mark.parametrize("encoded", ["SQL_ASCII"], indirect=True)
def test_bytes_of_no_encoding_are_refused_by_the_upstream_visibly(encoded: tuple[str, Database, Log]) -> None:
    _, database, log = encoded
    database.execute(r"INSERT INTO e VALUES (2, E'\xfc', NULL)")
    with pytest.raises(OSError, match="invalid byte sequence"):
        scan(database, "e", columns_of(database, "e"), "id")
    with pytest.raises(psycopg.errors.CharacterNotInRepertoire):
        log.read()
