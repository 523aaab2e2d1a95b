"""Scan into the base against a streaming cursor, a raw read of the same SELECT, and Spark JDBC → Delta: one run.

    .venv/bin/python bench/my_scan.py [--server mysql|mariadb] [--rows N] [--rounds N] [--jdbc-jar FILE]

A table of seven columns. Headwater and Spark JDBC as in bench/scan.py. Cursor: PyMySQL's SSCursor, rows fetched and
discarded. Raw: what a scan of the whole table would select, bytes discarded. Prints rows per second, medians over
the rounds, the ratios, and the peak memory of a Python worker.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from pymysql.constants import COMMAND
from pymysql.cursors import SSCursor

from headwater.model import Span
from headwater.source.mysql.catalog.table import describe, selection
from headwater.source.mysql.scan.read_spans import configure
from my_home import NAME, TABLE, Database, discard, fill, servers
from scan import Race, find_driver, report, run, start_spark
from support.mysql_scan import bench

DRIVER = "com.mysql_mysql-connector-j-9.7.0.jar"
END_BYTES = 9  # of the packet after the last row


def cursor(database: Database) -> None:
    """What a Python user would write."""
    with database.connect(cursorclass=SSCursor) as connection, connection.cursor() as c:
        c.execute(f"SELECT * FROM {NAME}")
        for _ in c:
            pass


def raw(race: Race) -> None:
    """The server's own limit: one stream, discarded."""
    table = race.job.table
    endpoint: Any = race.job.reach
    session = endpoint.endpoint.connect()
    try:
        configure(session, race.job.lock_timeout_s)
        at = describe(session, table)
        columns = ", ".join(selection(table, at).expressions)
        session._execute_command(COMMAND.COM_QUERY, f"SELECT {columns} FROM {at.source} ORDER BY id")
        discard(session, lambda _, last: _ends(bytes(last[-END_BYTES:])))
    finally:
        session._force_close()


def _ends(tail: bytes) -> bool:
    return len(tail) == END_BYTES and tail[:3] == b"\5\0\0" and tail[4] == 0xFE


def jdbc_options(database: Database) -> dict[str, str]:
    """One driver for both servers; rows are fetched all at once, which is its fastest mode."""
    server = database.server
    settings = "sslMode=DISABLED&allowPublicKeyRetrieval=true&connectionTimeZone=UTC"
    return {
        "url": f"jdbc:mysql://{server.host}:{server.port}/{database.name}?{settings}",
        "driver": "com.mysql.cj.jdbc.Driver",
        "user": server.user,
        "password": server.password,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jdbc-jar")
    given, databases = servers(parser)
    driver = find_driver(given.jdbc_jar, DRIVER)
    with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
        session = start_spark(Path(folder), driver)
        try:
            for database in databases:
                database.execute(TABLE)
                fill(database, 1, given.rows, 50_000)
                database.execute(f"ANALYZE TABLE {NAME}")
                home = Path(folder) / database.server.name
                job = bench(database, home, NAME).job(Span(None, None))
                race = Race(job, session, home, given.rows, jdbc_options(database) if driver else None)
                limits = {"cursor": lambda _, __, d=database: cursor(d), "raw": lambda r, _: raw(r)}
                report(race, run(race, given.rounds, limits))
        finally:
            session.stop()


if __name__ == "__main__":
    main()
