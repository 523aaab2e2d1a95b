"""A server of the MySQL family without Docker or root: the parts that MariaDB and MySQL share."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from headwater.demo.machine import free_port, link_tree, reachable
from headwater.demo.process import PASSWORD, ServerProcess

# the settings a data directory is initialized with
LASTING = ("innodb_page_size", "innodb_data_file_path", "lower_case_table_names")

Settings = dict[str, str | None]  # None: a bare flag such as skip_log_bin
_templates: dict[tuple[Any, ...], Path] = {}


class EmbeddedServer(ServerProcess):
    """A server of the MySQL family in a temporary directory, on a free loopback port, user `root`.

    `settings` are added to my.cnf: `None` is a bare flag.
    """

    ends = signal.SIGTERM
    crashes = leaves = signal.SIGKILL
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
    password = PASSWORD

    def __init__(self, settings: Settings | None = None, database: str = "test") -> None:
        install = self.find()
        super().__init__(("mysql",))
        self.database = database
        self.settings = {**EmbeddedServer.defaults, **self.defaults, **(settings or {})}
        self.port = free_port()
        try:
            if self._account and not reachable(install / "any"):
                link_tree(install, self.root / "install")
                install = self.root / "install"
            self.install = install
            self.write("my.cnf", self._configuration())
            (self.root / "tmp").mkdir()
            self._own(self.root / "tmp")
            self._own(self.root)
            self._fill()
            self.start()
            self.execute(f"CREATE DATABASE IF NOT EXISTS `{database}`", database="mysql")
        except BaseException:
            self.stop()
            raise

    @classmethod
    @abstractmethod
    def find(cls) -> Path:
        """The directory of the installed server; if it is missing, the error names the command to install it."""

    @abstractmethod
    def program(self) -> list[str]:
        """The command that runs the server."""

    @abstractmethod
    def places(self) -> dict[str, Path]:
        """Options that tell the server where its own files are."""

    @abstractmethod
    def initialise(self) -> None:
        """Initializes the data directory and creates the user."""

    def connect(self, database: str | None = None, **options: Any) -> Any:
        """A PyMySQL connection in autocommit mode."""
        import pymysql

        account = {"user": self.user, "password": self.password, "database": database or self.database}
        return pymysql.connect(host=self.host, port=self.port, **{"autocommit": True, **account, **options})

    def execute(self, statement: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Runs a statement on a new connection; returns its rows."""
        with self.connect(database) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def answer(self) -> None:
        self.connect("mysql", connect_timeout=2).close()

    def command(self, *options: str) -> list[str]:
        """The server's command line."""
        places = {**self.places(), "datadir": self.data}
        given = [f"--{name}={path}" for name, path in places.items()]
        return [*self.program(), f"--defaults-file={self.root / 'my.cnf'}", *given, *options]

    def run(self, *options: str, input: str = "") -> None:
        """Runs the server until it exits, for work it does before it serves."""
        command = self.command(*options)
        done = subprocess.run(command, input=input.encode(), capture_output=True, check=False, **self.as_account())
        if done.returncode:
            raise self.failed("could not be initialised", done.stdout + done.stderr)

    def _fill(self) -> None:
        """Creates a data directory: the first of its kind in this process is initialized, others are copies of it."""
        kind = (self.find(), *(self.settings.get(name) for name in LASTING))
        if kind not in _templates:
            self.data.mkdir()
            self._own(self.data)
            self.initialise()
            (self.data / "auto.cnf").unlink(missing_ok=True)  # MySQL's identity, which each server generates for itself
            _templates[kind] = Path(tempfile.mkdtemp(prefix=f"headwater-{self.name}-template-"))
            atexit.register(shutil.rmtree, _templates[kind], ignore_errors=True)
            _copy(self.data, _templates[kind] / "data")
        else:
            _copy(_templates[kind] / "data", self.data)

    def _configuration(self) -> str:
        places = {
            "bind_address": self.host,
            "port": str(self.port),
            "socket": str(self.root / "sock"),
            "tmpdir": str(self.root / "tmp"),  # servers that share a tmpdir can remove each other's temporary tables
            "pid_file": str(self.root / "pid"),
        }
        lines = [k if v is None else f"{k} = {v}" for k, v in {**self.settings, **places}.items()]
        return "\n".join(["[mysqld]", *lines, ""])

    def write(self, name: str, text: str) -> Path:
        """Writes a file that the server may read."""
        path = self.root / name
        path.write_text(text)
        self._own(path)
        return path

    def _own(self, path: Path) -> None:
        if self._account:
            os.chown(path, self._account.pw_uid, self._account.pw_gid)


def _copy(source: Path, target: Path) -> None:
    """Copies the files with their owners."""
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True)
