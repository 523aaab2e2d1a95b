"""Debezium's own engine (JSON, no sink) on MySQL: rows per second of its snapshot and its streaming, for comparison.

    .venv/bin/python bench/my_debezium.py [--rows N] [--changes N]

MySQL only: the engine's package has no connector for MariaDB.
"""

from __future__ import annotations

import argparse
import tempfile

from debezium import COMMON, measure
from my_home import NAME, TABLE, Database, fill, started


def properties(database: Database, folder: str) -> dict[str, str]:
    server = database.server
    return {
        **COMMON,
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "offset.storage.file.filename": f"{folder}/offsets.dat",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": f"{folder}/history.dat",
        "database.server.id": "4000000004",
        "database.hostname": server.host,
        "database.port": str(server.port),
        "database.user": server.user,
        "database.password": server.password,
        "database.ssl.mode": "disabled",
        "driver.allowPublicKeyRetrieval": "true",
        "database.include.list": database.name,
        "table.include.list": f"{database.name}.{NAME}",
        "include.schema.changes": "false",
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=500_000)
    given = parser.parse_args()
    for database in started(["mysql"]):
        with tempfile.TemporaryDirectory(prefix="headwater-bench-") as folder:
            database.execute(TABLE)
            fill(database, 1, given.rows, 50_000)
            options = properties(database, folder)
            measure(given.rows, given.changes, options, lambda d=database: fill(d, given.rows + 1, given.changes))


if __name__ == "__main__":
    main()
