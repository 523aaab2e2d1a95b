"""What the benchmarks of MySQL and MariaDB share: the servers, a table to fill, raw reads from a server's socket."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from headwater.demo.mariadb import EmbeddedMariaDB
from headwater.demo.server import EmbeddedServer
from headwater.errors import MachineError
from headwater.source.mysql.client.session import Session
from support.mysql import EmbeddedMySQL, MyDatabase
from support.writer_mysql import numbers

SERVERS: dict[str, type[EmbeddedServer]] = {"mysql": EmbeddedMySQL, "mariadb": EmbeddedMariaDB}
# Filling is not measured; and no reader waits for the upstream's disk, which brings out their differences.
SETTINGS: dict[str, str | None] = {
    "sync_binlog": "0",
    "innodb_flush_log_at_trx_commit": "2",
    "innodb_buffer_pool_size": "1G",
}
TABLE = """CREATE TABLE orders (id bigint PRIMARY KEY, customer int, ordered timestamp(6) NULL, amount decimal(12,2),
status smallint, note text, paid boolean)"""
FILL = """INSERT INTO orders SELECT i, i % 1000, '2024-01-01' + INTERVAL i SECOND, i % 100000 / 100.0,
i % 5, CONCAT('order number ', i), i % 2 = 0 FROM {}"""
ONE_BY_ONE = f"""CREATE PROCEDURE one_by_one(i bigint, n bigint) BEGIN
WHILE n > 0 DO {FILL.format("DUAL")}; SET i = i + 1, n = n - 1; END WHILE; END"""
NAME = "orders"
READ_BYTES = 4 << 20


class Database(MyDatabase):
    """The benchmark's database, without TLS: neither the driver's cursor nor mysql-replication uses it by default."""

    @property
    def options(self) -> dict[str, str]:
        return {**super().options, "ssl.mode": "disable"}


def servers(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, Iterator[Database]]:
    """The arguments, and a database on each server that they name."""
    parser.add_argument("--server", choices=sorted(SERVERS), help="one of them alone")
    given = parser.parse_args()
    return given, started([given.server] if given.server else list(SERVERS))


def started(names: list[str]) -> Iterator[Database]:
    """A fresh database on each of these servers in turn; one of several that cannot run is skipped with a message."""
    for name in names:
        try:
            server = SERVERS[name](SETTINGS, database="bench")
        except MachineError as e:
            if len(names) == 1:
                raise
            print(f"{name} is skipped: {e.message}. {e.hint}", file=sys.stderr)
            continue
        with server:
            print(f"-- {name} {server.execute('SELECT version()')[0][0]}", flush=True)
            yield Database(server, server.database)


def fill(database: Database, first: int, rows: int, per_transaction: int = 1000) -> None:
    """Writes rows starting at the key `first`."""
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        if per_transaction == 1:
            cursor.execute("DROP PROCEDURE IF EXISTS one_by_one")
            cursor.execute(ONE_BY_ONE)
            cursor.execute(f"CALL one_by_one({first}, {rows})")  # a statement for each would take minutes
            return
        for at in range(first, first + rows, per_transaction):
            cursor.execute(FILL.format(numbers(at, min(at + per_transaction, first + rows) - 1)))


def discard(session: Session, enough: Callable[[int, memoryview], bool]) -> int:
    """Reads from a session's socket and discards everything, until `enough(bytes so far, last block)`."""
    block = memoryview(bytearray(READ_BYTES))
    total = 0
    while True:
        got = session._sock.recv_into(block)
        assert got, f"the server closed the connection after {total} bytes"
        total += got
        if enough(total, block[:got]):
            return total
