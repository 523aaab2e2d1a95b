"""A real MySQL 9.7 without Docker, from Debian sid: downloaded once by root, then run by any account.

`python tests/support/mysql.py --setup` downloads it. Debian's own loader and libraries come along and run the server,
so it depends on nothing on the machine and needs no chroot.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from headwater.demo.server import EmbeddedServer, Settings
from headwater.errors import MachineError
from headwater.source.mysql.client.session import Endpoint

SETUP_TIMEOUT_S = 600
LIBRARIES = "usr/lib/x86_64-linux-gnu"
PARTS = ("usr/sbin/mysqld", "usr/share/mysql", "usr/lib/mysql/plugin", LIBRARIES)


class EmbeddedMySQL(EmbeddedServer):
    """MySQL 9.7, with GTIDs."""

    name = "mysql"
    defaults: ClassVar[Settings] = {
        "gtid_mode": "ON",
        "enforce_gtid_consistency": "ON",
        "innodb_redo_log_capacity": "64M",
        "mysqlx": "OFF",
        "secure_file_priv": "",
    }

    @classmethod
    def find(cls) -> Path:
        folder = directory()
        if not (folder / PARTS[0]).exists():
            raise MachineError(
                "demo.server", "MySQL is not set up", "Run as root: python tests/support/mysql.py --setup"
            )
        return folder

    def program(self) -> list[str]:
        libraries = self.install / LIBRARIES
        loader = str(libraries / "ld-linux-x86-64.so.2")
        return [loader, "--library-path", str(libraries), str(self.install / PARTS[0])]

    def places(self) -> dict[str, Path]:
        share = self.install / "usr/share/mysql"
        return {
            "basedir": self.install / "usr",
            "lc-messages-dir": share,
            "character-sets-dir": share / "charsets",
            "plugin-dir": self.install / "usr/lib/mysql/plugin",
        }

    def initialise(self) -> None:
        first = self.write(
            "first.sql",
            f"CREATE USER '{self.user}'@'{self.host}' IDENTIFIED BY '{self.password}';\n"
            f"GRANT ALL ON *.* TO '{self.user}'@'{self.host}' WITH GRANT OPTION;\n",
        )
        self.run("--initialize-insecure", "--skip-log-bin", f"--init-file={first}")


@dataclass(frozen=True)
class MyDatabase:
    """A fresh database on a shared server, MySQL or MariaDB."""

    server: EmbeddedServer
    name: str
    user: str = EmbeddedServer.user
    password: str = EmbeddedServer.password

    @property
    def options(self) -> dict[str, str]:
        """The options that CREATE CONNECTION would have."""
        server = self.server
        place = {"hostname": server.host, "port": str(server.port), "username": self.user}
        return {**place, "database.name": self.name}

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint.of(self.options, self.password)

    def as_user(self, user: str) -> MyDatabase:
        """The same database for a user whose password is their name."""
        return replace(self, user=user, password=user)

    def connect(self, **options: Any) -> Any:
        return self.server.connect(self.name, **options)

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        return self.server.execute(statement, self.name)


def directory() -> Path:
    """Where setup puts the server: outside the repository, so that it outlives a clone."""
    given = os.environ.get("HEADWATER_MYSQL")
    return Path(given) if given else Path.home() / ".cache" / "headwater" / "mysql-9.7"


def setup() -> None:
    """Downloads the server unless it exists; an error says what the machine lacks."""
    folder = directory()
    if (folder / PARTS[0]).exists():
        return
    if os.geteuid() != 0:
        raise MachineError("demo.server", "only root can unpack a Debian", "Run the set-up as root.")
    if shutil.which("debootstrap") is None:
        raise MachineError("demo.server", "there is no debootstrap", "Run: apt-get install debootstrap")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".mysql-", dir=folder.parent) as scratch:
        debian, ready = Path(scratch) / "debian", Path(scratch) / "ready"
        command = ["debootstrap", "--variant=minbase", "--include=mysql-server-core", "sid", str(debian)]
        done = subprocess.run(command, capture_output=True, check=False, timeout=SETUP_TIMEOUT_S)
        if done.returncode:
            tail = (done.stdout + done.stderr).decode(errors="replace")[-1000:]
            raise MachineError(
                "demo.server",
                f"debootstrap failed:\n{tail}",
                "Check that Debian's packages can be reached from here.",
            )
        for part in PARTS:
            (ready / part).parent.mkdir(parents=True, exist_ok=True)
            (debian / part).rename(ready / part)
        ready.rename(folder)


def main() -> int:
    if sys.argv[1:] != ["--setup"]:
        print("usage: mysql.py --setup", file=sys.stderr)
        return 2
    began = time.monotonic()
    try:
        setup()
    except MachineError as e:
        print(f"✗ {e.message}\n  → {e.hint}", file=sys.stderr)
        return e.exit_status
    print(f"✓ MySQL in {directory()} ({time.monotonic() - began:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
